/* Checkpoints: a folder that transformers opens, with the optimizer's state and what a run needs to
 * go on to the bit. It is written beside its place and renamed when every byte is on disk, so a
 * checkpoint is either whole or absent. docs/FORMATS.md has the files.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"
#include "base/log.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PREFIX[] = "checkpoint-";

static char *checkpoint_path(const struct run *r, int64_t step, const char *suffix)
{
    char name[48];
    snprintf(name, sizeof name, "%s%" PRId64 "%s", PREFIX, step, suffix);
    return file_join(r->conf->output_dir, name);
}

/* The step of a checkpoint's name, or -1: half-written ones end in .tmp. */
static int64_t step_of(const char *name)
{
    int64_t step;
    if (!str_starts(name, PREFIX) || !str_to_int(name + strlen(PREFIX), &step) || step < 0)
        return -1;
    return step;
}

/* ---- writing ---- */

static int write_state(const struct run *r, const char *dir, struct err *e)
{
    struct buf out = {0};
    char *path = file_join(dir, "trainer_state.json");
    buf_printf(&out,
               "{\n  \"format\": 1,\n  \"run_id\": \"%s\",\n  \"global_step\": %" PRId64 ",\n",
               r->run_id, r->step);
    buf_puts(&out, "  \"epoch\": ");
    buf_double(&out,
               (double)r->cursor.epoch + (double)r->cursor.position / (double)data_count(r->data));
    buf_printf(&out, ",\n  \"max_steps\": %" PRId64 ",\n", r->steps);
    buf_printf(&out, "  \"data_cursor\": {\"epoch\": %u, \"position\": %" PRIu64 "},\n",
               r->cursor.epoch, r->cursor.position);
    buf_printf(&out, "  \"data_checksum\": \"%016" PRIx64 "\",\n", data_checksum(r->data));
    buf_printf(&out, "  \"model_checksum\": \"%08" PRIx32 "\",\n", r->model_checksum);
    buf_printf(&out, "  \"num_tokens\": %" PRIu64 ",\n  \"metrics_bytes\": %" PRIu64 ",\n",
               r->num_tokens, telem_metrics_bytes(r->telem));
    buf_puts(&out, "  \"best_metric\": ");
    buf_double(&out, r->best_metric);
    buf_printf(&out, ",\n  \"best_global_step\": %" PRId64 ",\n  \"log_history\": []\n}\n",
               r->best_step);
    int rc = file_write_atomic(path, buf_str(&out), out.len, e);
    buf_release(&out);
    mem_free(path);
    return rc;
}

static int write_config(const struct run *r, const char *dir, struct err *e)
{
    struct buf out = {0};
    char *path = file_join(dir, "config.yaml");
    conf_yaml(r->conf, &out);
    int rc = file_write_atomic(path, buf_str(&out), out.len, e);
    buf_release(&out);
    mem_free(path);
    return rc;
}

/* COMPLETE: every file with its size and CRC-32, written last. */
static int write_complete(const struct run *r, const char *dir, struct err *e)
{
    int rc = 0;
    struct buf out = {0};
    char **name = NULL, *path = NULL;
    size_t n = 0;
    TRY(file_list(dir, &name, &n, e));
    buf_printf(&out, "{\n  \"format\": 1,\n  \"run_id\": \"%s\",\n  \"files\": [", r->run_id);
    for (size_t i = 0; i < n; i++) {
        struct file_map map;
        path = file_join(dir, name[i]);
        TRY(file_map(&map, path, e));
        buf_puts(&out, i ? ",\n    {\"name\": " : "\n    {\"name\": ");
        buf_json(&out, name[i], strlen(name[i]));
        buf_printf(&out, ", \"size\": %zu, \"crc32\": \"%08" PRIx32 "\"}", map.size,
                   file_crc32(0, map.data, map.size));
        file_unmap(&map);
        mem_free(path);
        path = NULL;
    }
    buf_puts(&out, "\n  ]\n}\n");
    path = file_join(dir, "COMPLETE");
    TRY(file_write_atomic(path, buf_str(&out), out.len, e));
fail:
    for (size_t i = 0; i < n; i++)
        mem_free(name[i]);
    mem_free(name);
    mem_free(path);
    buf_release(&out);
    return rc;
}

static int write_files(struct run *r, const char *dir, struct err *e)
{
    int rc = 0;
    if (file_is_dir(dir)) // left over from a run that was killed here
        TRY(file_remove_dir(dir, e));
    TRY(file_mkdirs(dir, e));
    file_fault_point("save");
    TRY(device_save(r->coord.device[0], r->conf->model, dir, e));
    file_fault_point("save-weights");
    TRY(train_state_save(r->coord.device, r->coord.n_devices, dir, e));
    file_fault_point("save-optimizer");
    TRY(write_config(r, dir, e));
    TRY(write_state(r, dir, e));
    TRY(write_complete(r, dir, e));
    TRY(file_sync_dir(dir, e));
    file_fault_point("save-complete");
fail:
    return rc;
}

/* ---- reading ---- */

static int read_json(const char *dir, const char *name, json_t **root, struct err *e)
{
    enum { BYTES_MAX = 64 << 20 };
    char *text = NULL, *path = file_join(dir, name);
    size_t size;
    json_error_t problem;
    int rc = file_read(path, BYTES_MAX, &text, &size, e);
    if (rc == 0) {
        *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &problem);
        if (!json_is_object(*root))
            rc = err_set(e, ERR_FORMAT, "%s:%d: expected a JSON object as LoCo writes it", path,
                         *root ? 1 : problem.line);
    }
    mem_free(text);
    mem_free(path);
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
        TRY(err_set(e, ERR_STATE,
                    "%s: has %zu bytes, COMPLETE says %" JSON_INTEGER_FORMAT
                    "; resume from an earlier checkpoint",
                    path, map.size, size));
    char have[16];
    snprintf(have, sizeof have, "%08" PRIx32, file_crc32(0, map.data, map.size));
    if (strcmp(have, crc) != 0)
        TRY(err_set(e, ERR_STATE,
                    "%s: has checksum %s, COMPLETE says %.16s; resume from an earlier "
                    "checkpoint",
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
    for (size_t i = 0; i < json_array_size(files); i++)
        TRY(verify_file(dir, json_array_get(files, i), e));
fail:
    json_decref(root);
    mem_free(path);
    return rc;
}

/* Whether a folder is a whole checkpoint of this run. */
static bool is_ours(const struct run *r, const char *dir)
{
    struct err ignored = {0};
    json_t *root = NULL;
    char *path = file_join(dir, "COMPLETE");
    bool ours = false;
    if (file_exists(path) && read_json(dir, "COMPLETE", &root, &ignored) == 0) {
        const char *id = json_string_value(json_object_get(root, "run_id"));
        ours = id && strcmp(id, r->run_id) == 0;
    }
    json_decref(root);
    mem_free(path);
    return ours;
}

static int by_step(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Steps of all folders named like checkpoints, ascending; owned by the caller. */
static int list_steps(const struct run *r, int64_t **step, size_t *n, struct err *e)
{
    char **name = NULL;
    size_t names = 0;
    int rc = file_list(r->conf->output_dir, &name, &names, e);
    *n = 0;
    *step = mem_calloc(names + 1, sizeof **step);
    for (size_t i = 0; i < names; i++) {
        if (step_of(name[i]) >= 0)
            (*step)[(*n)++] = step_of(name[i]);
        mem_free(name[i]);
    }
    mem_free(name);
    qsort(*step, *n, sizeof **step, by_step);
    return rc;
}

/* Removes the oldest of this run's whole checkpoints beyond the limit; the best one stays. */
static int remove_old(const struct run *r, struct err *e)
{
    int rc = 0;
    int64_t *step = NULL;
    size_t n = 0, kept = 0;
    if (r->conf->save_total_limit == 0)
        return 0;
    TRY(list_steps(r, &step, &n, e));
    for (size_t i = n; i-- > 0;) {
        char *dir = checkpoint_path(r, step[i], "");
        bool best = r->conf->load_best_model_at_end && step[i] == r->best_step;
        if (is_ours(r, dir) && !best && ++kept > (size_t)r->conf->save_total_limit)
            rc = file_remove_dir(dir, e);
        mem_free(dir);
        if (rc < 0)
            goto fail;
    }
fail:
    mem_free(step);
    return rc;
}

int coord_save(struct run *r, struct err *e)
{
    int rc = 0;
    char *tmp = checkpoint_path(r, r->step, ".tmp"), *dir = checkpoint_path(r, r->step, "");
    rc = write_files(r, tmp, e);
    if (rc < 0) {
        file_remove_dir(tmp, NULL); // a full disk gets its space back
        goto fail;
    }
    if (file_is_dir(dir) && is_ours(r, dir)) // this step once more, after an earlier resume
        TRY(file_remove_dir(dir, e));
    if (file_exists(dir))
        TRY(err_set(e, ERR_STATE,
                    "%s is in the way and no whole checkpoint of this run; move it "
                    "away and resume",
                    dir));
    TRY(file_rename(tmp, dir, e));
    file_fault_point("save-renamed");
    TRY(remove_old(r, e));
fail:
    mem_free(tmp);
    mem_free(dir);
    return rc < 0 ? err_in(e, rc, "saving") : 0;
}

/* What config.yaml says of it; the rest is known only when weights and data are open. */
static int check_same_conf(const struct run *r, const char *dir, struct err *e)
{
    int rc = 0;
    struct conf saved = {0};
    char *path = file_join(dir, "config.yaml");
    TRY(conf_read(&saved, r->conf->command, path, e));
    rc = conf_resume_check(&saved, r->conf, e);
    if (rc < 0)
        err_in(e, rc, "%s", dir);
fail:
    conf_release(&saved);
    mem_free(path);
    return rc;
}

int coord_find_checkpoint(struct run *r, char **dir, struct err *e)
{
    int rc = 0;
    int64_t *step = NULL;
    size_t n = 0;
    const char *from = r->conf->resume_from_checkpoint;
    *dir = NULL;
    if (!from)
        return 0;
    if (strcmp(from, "auto") != 0) {
        if (!file_is_dir(from))
            return err_set(e, ERR_STATE, "resume_from_checkpoint: %s is not a folder", from);
        *dir = mem_strdup(from);
        TRY(coord_verify_checkpoint(from, e));
        return check_same_conf(r, from, e);
    }
    if (!file_is_dir(r->conf->output_dir))
        return 0;
    TRY(list_steps(r, &step, &n, e));
    for (size_t i = n; i-- > 0 && !*dir;) {
        char *path = checkpoint_path(r, step[i], ""), *complete = file_join(path, "COMPLETE");
        if (file_exists(complete))
            *dir = mem_strdup(path);
        else
            log_warn("%s has no COMPLETE, so it is not whole: passed over", path);
        mem_free(complete);
        mem_free(path);
    }
    if (*dir) {
        TRY(coord_verify_checkpoint(*dir, e));
        TRY(check_same_conf(r, *dir, e));
    }
fail:
    mem_free(step);
    return rc;
}

static int64_t get_int(const json_t *root, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(root, key));
}

static uint64_t get_hex(const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text ? strtoull(text, NULL, 16) : 0;
}

static int check_same_run(struct run *r, const json_t *state, struct err *e)
{
    int rc = 0;
    if (get_hex(state, "data_checksum") != data_checksum(r->data))
        TRY(err_set(e, ERR_STATE,
                    "data: %s is not the file that the checkpoint was made with; give that "
                    "file or start anew",
                    r->conf->data));
    r->model_checksum = (uint32_t)get_hex(state, "model_checksum");
    if (r->coord.needs.reference) {
        struct device_weights w = {.set = DEVICE_REFERENCE};
        TRY(device_checksum(r->coord.device[0], &w, e));
        if (w.checksum != r->model_checksum)
            TRY(err_set(e, ERR_STATE,
                        "model: %s does not hold the weights that the run began with, which "
                        "beta > 0 needs as reference",
                        r->conf->model));
    }
fail:
    return rc;
}

int coord_restore(struct run *r, const char *dir, struct err *e)
{
    int rc = 0;
    json_t *state = NULL;
    TRY(read_json(dir, "trainer_state.json", &state, e));
    TRY(check_same_run(r, state, e));
    TRY(train_state_load(r->coord.device, r->coord.n_devices, dir, e));
    r->step = get_int(state, "global_step");
    const json_t *cursor = json_object_get(state, "data_cursor");
    r->cursor.epoch = (uint32_t)get_int(cursor, "epoch");
    r->cursor.position = (uint64_t)get_int(cursor, "position");
    r->num_tokens = (uint64_t)get_int(state, "num_tokens");
    const json_t *best = json_object_get(state, "best_metric");
    r->best_metric = json_is_number(best) ? json_number_value(best) : NAN;
    r->best_step = get_int(state, "best_global_step");
    const char *id = json_string_value(json_object_get(state, "run_id"));
    snprintf(r->run_id, sizeof r->run_id, "%s", id ? id : "");
    TRY(telem_resume(r->telem, (uint64_t)get_int(state, "metrics_bytes"), r->step, e));
    TRY(coord_cut_samples(r, e));
fail:
    json_decref(state);
    return rc < 0 ? err_in(e, rc, "%s", dir) : 0;
}
