/* Whether a checkpoint is whole: COMPLETE and every file that it lists, to the byte. Whatever is
 * wrong is one kind of fault, a damaged checkpoint (ERR_STATE); resume.c says what to do about it.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"

#include <inttypes.h>
#include <string.h>

enum { FORMAT = 1, JSON_MAX = 64 << 20 };

int coord_read_json(const char *dir, const char *name, json_t **root, struct err *e)
{
    char *text = NULL, *path = file_join(dir, name);
    size_t size;
    json_error_t problem;
    int rc = 0;
    *root = NULL;
    TRY(file_read(path, JSON_MAX, &text, &size, e));
    *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &problem);
    if (!json_is_object(*root))
        TRY(err_set(e, ERR_FORMAT, "%s:%d: expected a JSON object as LoCo writes it", path,
                    *root ? 1 : problem.line));
    if (json_integer_value(json_object_get(*root, "format")) != FORMAT)
        TRY(err_set(e, ERR_FORMAT, "%s: expected \"format\": %d; another version of LoCo wrote it",
                    path, FORMAT));
fail:
    mem_free(text);
    mem_free(path);
    return rc;
}

int coord_read_run_id(const char *dir, const char *name, char id[RUN_ID], struct err *e)
{
    json_t *root = NULL;
    int rc = coord_read_json(dir, name, &root, e);
    const char *text = json_string_value(json_object_get(root, "run_id"));
    if (rc == 0 && !text)
        rc = err_set(e, ERR_FORMAT, "%s/%s: run_id is missing", dir, name);
    if (rc == 0)
        snprintf(id, RUN_ID, "%s", text);
    json_decref(root);
    return rc;
}

static int verify_file(const char *dir, const json_t *entry, struct err *e)
{
    int rc = 0;
    struct file_map map = {0};
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *crc = json_string_value(json_object_get(entry, "crc32"));
    json_int_t size = json_integer_value(json_object_get(entry, "size"));
    if (!name || !crc || strchr(name, '/'))
        return err_set(e, ERR_FORMAT, "%s/COMPLETE: an entry has no plain name or no crc32", dir);
    char *path = file_join(dir, name);
    TRY(file_map(&map, path, e));
    if ((json_int_t)map.size != size)
        TRY(err_set(e, ERR_STATE, "%s: has %zu bytes, COMPLETE says %" JSON_INTEGER_FORMAT, path,
                    map.size, size));
    char have[16];
    snprintf(have, sizeof have, "%08" PRIx32, file_crc32(0, map.data, map.size));
    if (strcmp(have, crc) != 0)
        TRY(err_set(e, ERR_STATE, "%s: has checksum %s, COMPLETE says %.16s", path, have, crc));
fail:
    file_unmap(&map);
    mem_free(path);
    return rc;
}

/* COMPLETE has no checksum of its own: what it says of the run is compared with a file that has. */
static int verify_run_id(const char *dir, struct err *e)
{
    int rc = 0;
    char id[RUN_ID], state_id[RUN_ID];
    TRY(coord_read_run_id(dir, "COMPLETE", id, e));
    TRY(coord_read_run_id(dir, "trainer_state.json", state_id, e));
    if (strcmp(id, state_id) != 0)
        TRY(err_set(e, ERR_STATE, "%s/COMPLETE: has run_id %s, trainer_state.json %s", dir, id,
                    state_id));
fail:
    return rc;
}

/* What only a run that goes on reads; a model folder may lack it. */
static bool is_of_run(const json_t *entry)
{
    static const char *const RUN[] = {"config.yaml", "trainer_state.json"};
    const char *name = json_string_value(json_object_get(entry, "name"));
    bool found = name && str_starts(name, "optimizer-");
    for (size_t i = 0; i < ARRAY_LEN(RUN); i++)
        found |= name && strcmp(name, RUN[i]) == 0;
    return found;
}

static int verify_files(const char *dir, bool as_model, struct err *e)
{
    int rc = 0;
    json_t *root = NULL;
    TRY(coord_read_json(dir, "COMPLETE", &root, e));
    const json_t *files = json_object_get(root, "files");
    if (json_array_size(files) == 0)
        TRY(err_set(e, ERR_FORMAT, "%s/COMPLETE: lists no files", dir));
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *entry = json_array_get(files, i);
        if (!as_model || !is_of_run(entry))
            TRY(verify_file(dir, entry, e));
    }
    if (!as_model)
        TRY(verify_run_id(dir, e));
fail:
    json_decref(root);
    return rc;
}

int coord_verify_checkpoint(const char *dir, struct err *e)
{
    struct err why = {0};
    if (verify_files(dir, false, &why) == 0)
        return 0;
    return err_set(e, ERR_STATE, "%s, so the checkpoint is not whole", why.text);
}

int coord_verify_model(const char *dir, struct err *e)
{
    struct err why = {0};
    char *complete = file_join(dir, "COMPLETE");
    bool plain = !file_exists(complete);
    mem_free(complete);
    if (plain || verify_files(dir, true, &why) == 0)
        return 0;
    return err_set(e, ERR_STATE, "%s, so the checkpoint is not whole; give another model",
                   why.text);
}
