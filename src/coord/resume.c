/* Going on from a checkpoint: which one, whether it is whole and of this run, and its state put
 * back. checkpoint.c writes what is read here.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"
#include "base/log.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FORMAT = 1, STATE_MAX = 64 << 20 };

/* Reads dir/name, an object of LoCo's with "format": 1. */
static int read_json(const char *dir, const char *name, json_t **root, struct err *e)
{
    char *text = NULL, *path = file_join(dir, name);
    size_t size;
    json_error_t problem;
    int rc = 0;
    *root = NULL;
    TRY(file_read(path, STATE_MAX, &text, &size, e));
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
    int rc = read_json(dir, name, &root, e);
    const char *text = json_string_value(json_object_get(root, "run_id"));
    if (rc == 0 && !text)
        rc = err_set(e, ERR_FORMAT, "%s/%s: run_id is missing", dir, name);
    if (rc == 0)
        snprintf(id, RUN_ID, "%s", text);
    json_decref(root);
    return rc;
}

/* ---- whether it is whole ---- */

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
        TRY(err_set(e, ERR_STATE,
                    "%s: has %zu bytes, COMPLETE says %" JSON_INTEGER_FORMAT
                    "; resume from an earlier checkpoint",
                    path, map.size, size));
    char have[16];
    snprintf(have, sizeof have, "%08" PRIx32, file_crc32(0, map.data, map.size));
    if (strcmp(have, crc) != 0)
        TRY(err_set(e, ERR_STATE,
                    "%s: has checksum %s, COMPLETE says %.16s; resume from an earlier checkpoint",
                    path, have, crc));
fail:
    file_unmap(&map);
    mem_free(path);
    return rc;
}

int coord_verify_checkpoint(const char *dir, struct err *e)
{
    int rc = 0;
    json_t *root = NULL;
    char *path = file_join(dir, "COMPLETE");
    if (!file_exists(path))
        TRY(err_set(e, ERR_STATE,
                    "%s: not found, so the checkpoint is not whole; resume from another", path));
    TRY(read_json(dir, "COMPLETE", &root, e));
    const json_t *files = json_object_get(root, "files");
    if (json_array_size(files) == 0)
        TRY(err_set(e, ERR_FORMAT, "%s: lists no files; resume from another checkpoint", path));
    for (size_t i = 0; i < json_array_size(files); i++)
        TRY(verify_file(dir, json_array_get(files, i), e));
fail:
    json_decref(root);
    mem_free(path);
    return rc;
}

/* ---- which one ---- */

/* The newest whole one; those passed over are named. */
static int find_newest(const struct run *r, char **dir, struct err *e)
{
    int64_t *step = NULL;
    size_t n = 0;
    int rc = coord_checkpoint_steps(r, &step, &n, e);
    for (size_t i = n; rc == 0 && i-- > 0 && !*dir;) {
        char *path = coord_checkpoint_path(r, step[i]), *complete = file_join(path, "COMPLETE");
        if (file_exists(complete))
            *dir = mem_strdup(path);
        else
            log_warn("%s has no COMPLETE, so it is not whole: passed over", path);
        mem_free(complete);
        mem_free(path);
    }
    mem_free(step);
    return rc;
}

/* Metrics and samples go on in output_dir, so it must be the folder of the checkpoint's run. */
static int check_folder(const struct run *r, const char *dir, struct err *e)
{
    struct err ignored = {0};
    char saved[RUN_ID], here[RUN_ID];
    int rc = coord_read_run_id(dir, "trainer_state.json", saved, e);
    if (rc < 0)
        return rc;
    if (coord_read_run_id(r->conf->output_dir, "env.json", here, &ignored) == 0 &&
        strcmp(saved, here) == 0)
        return 0;
    return err_set(e, ERR_STATE,
                   "output_dir: %s does not hold the run of %s; give that run's folder, where its "
                   "metrics and samples go on",
                   r->conf->output_dir, dir);
}

int coord_find_checkpoint(const struct run *r, char **dir, struct err *e)
{
    int rc = 0;
    const char *from = r->conf->resume_from_checkpoint;
    *dir = NULL;
    if (!from)
        return 0;
    if (strcmp(from, "auto") == 0) {
        TRY(find_newest(r, dir, e));
        if (*dir)
            TRY(coord_verify_checkpoint(*dir, e));
        return 0;
    }
    if (!file_is_dir(from))
        return err_set(e, ERR_STATE, "resume_from_checkpoint: %s is not a folder", from);
    TRY(coord_verify_checkpoint(from, e));
    TRY(check_folder(r, from, e));
    *dir = mem_strdup(from);
fail:
    return rc;
}

/* ---- whether it is of this run ---- */

/* A checkpoint's config.yaml leaves out where the run was, which a configuration must have. */
static int check_options(const struct run *r, const char *dir, struct err *e)
{
    static const char REST[] = "\noutput_dir: .\n";
    int rc = 0;
    char *text = NULL, *path = file_join(dir, "config.yaml");
    size_t size;
    struct buf whole = {0};
    struct conf saved = {0};
    TRY(file_read(path, STATE_MAX, &text, &size, e));
    buf_put(&whole, text, size);
    buf_puts(&whole, REST);
    TRY(conf_read_text(&saved, r->conf->command, path, buf_str(&whole), whole.len, e));
    TRY(conf_resume_check(&saved, r->conf, e));
fail:
    conf_release(&saved);
    buf_release(&whole);
    mem_free(text);
    mem_free(path);
    return rc;
}

/* trainer_state.json, with all that is needed. */
struct state {
    int64_t step, epoch, position, num_tokens, metrics_bytes, best_step;
    double best_metric;
    const char *run_id, *data_checksum, *model_checksum; // borrowed from root
    json_t *root;                                        // owned
};

static int get_int(const json_t *object, const char *key, int64_t lo, int64_t *value, struct err *e)
{
    const json_t *item = json_object_get(object, key);
    *value = (int64_t)json_integer_value(item);
    if (json_is_integer(item) && *value >= lo)
        return 0;
    return err_set(e, ERR_FORMAT, "trainer_state.json: expected a number %s", key);
}

static int get_text(const json_t *object, const char *key, const char **value, struct err *e)
{
    *value = json_string_value(json_object_get(object, key));
    return *value ? 0 : err_set(e, ERR_FORMAT, "trainer_state.json: expected a text %s", key);
}

static int read_state(struct state *s, const char *dir, struct err *e)
{
    int rc = 0;
    TRY(read_json(dir, "trainer_state.json", &s->root, e));
    const json_t *cursor = json_object_get(s->root, "data_cursor");
    const json_t *best = json_object_get(s->root, "best_metric");
    TRY(get_int(s->root, "global_step", 0, &s->step, e));
    TRY(get_int(cursor, "epoch", 0, &s->epoch, e));
    TRY(get_int(cursor, "position", 0, &s->position, e));
    TRY(get_int(s->root, "num_tokens", 0, &s->num_tokens, e));
    TRY(get_int(s->root, "metrics_bytes", 0, &s->metrics_bytes, e));
    TRY(get_int(s->root, "best_global_step", -1, &s->best_step, e));
    TRY(get_text(s->root, "run_id", &s->run_id, e));
    TRY(get_text(s->root, "data_checksum", &s->data_checksum, e));
    TRY(get_text(s->root, "model_checksum", &s->model_checksum, e));
    s->best_metric = json_is_number(best) ? json_number_value(best) : (double)NAN;
fail:
    return rc;
}

static int check_same_run(const struct run *r, const struct state *s, const char *dir,
                          struct err *e)
{
    char data[24], model[24];
    int rc = check_options(r, dir, e);
    if (rc < 0)
        return rc;
    snprintf(data, sizeof data, "%016" PRIx64, data_checksum(r->data));
    snprintf(model, sizeof model, "%08" PRIx32, r->model_checksum);
    if (strcmp(data, s->data_checksum) != 0 || (uint64_t)s->position >= data_count(r->data))
        return err_set(e, ERR_STATE,
                       "data: %s is not the file that the checkpoint was made with; give that file "
                       "or start anew",
                       r->conf->data);
    if (strcmp(model, s->model_checksum) != 0)
        return err_set(e, ERR_STATE,
                       "model: %s is not what the run began with: its weights, config.json or "
                       "tokenizer.json changed; give that folder or start anew",
                       r->conf->model);
    return 0;
}

/* ---- its state, put back ---- */

static int load_devices(const struct coord *c, const char *dir, struct err *e)
{
    int rc = 0;
    for (int d = 0; d < c->n_devices; d++)
        TRY(device_load(c->device[d], DEVICE_POLICY, dir, e));
    TRY(train_state_load(c->device, c->n_devices, dir, e));
fail:
    return rc;
}

int coord_restore(struct run *r, const char *dir, struct err *e)
{
    int rc = 0;
    struct state s = {0};
    TRY(read_state(&s, dir, e));
    TRY(check_same_run(r, &s, dir, e));
    TRY(load_devices(&r->coord, dir, e));
    r->step = s.step;
    r->cursor = (struct data_cursor){.epoch = (uint32_t)s.epoch, .position = (uint64_t)s.position};
    r->num_tokens = (uint64_t)s.num_tokens;
    r->best_metric = s.best_metric;
    r->best_step = s.best_step;
    snprintf(r->run_id, sizeof r->run_id, "%s", s.run_id);
    TRY(telem_resume(r->telem, (uint64_t)s.metrics_bytes, r->step, e));
fail:
    json_decref(s.root);
    return rc < 0 ? err_in(e, rc, "%s", dir) : 0;
}
