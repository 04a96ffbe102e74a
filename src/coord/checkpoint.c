/* Checkpoints: a folder that transformers opens, with the optimizer's state and what a run needs to
 * go on to the bit. It is written beside its place and renamed when every byte is on disk, and
 * removed the other way round, so a checkpoint is either whole or absent. docs/FORMATS.md has the
 * files; resume.c reads them.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PREFIX[] = "checkpoint-";
static const char HALF[] = ".tmp";    // half-written or half-removed: it is nothing
static const char ASIDE[] = ".aside"; // in the way and not this run's

static char *path_of(const struct run *r, int64_t step, const char *suffix)
{
    char name[48];
    snprintf(name, sizeof name, "%s%" PRId64 "%s", PREFIX, step, suffix);
    return file_join(r->conf->output_dir, name);
}

char *coord_checkpoint_path(const struct run *r, int64_t step)
{
    return path_of(r, step, "");
}

/* The step of a name that is PREFIX, a number, and the suffix; or -1. */
static int64_t step_of(const char *name, const char *suffix)
{
    char number[24];
    int64_t step;
    size_t head = strlen(PREFIX), tail = strlen(suffix), n = strlen(name);
    if (!str_starts(name, PREFIX) || !str_ends(name, suffix) || n < head + tail ||
        n - head - tail >= sizeof number)
        return -1;
    snprintf(number, sizeof number, "%.*s", (int)(n - head - tail), name + head);
    return str_to_int(number, &step) && step >= 0 ? step : -1;
}

int64_t coord_checkpoint_step(const char *dir)
{
    return step_of(file_base(dir), "");
}

static int by_step(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Steps of all folders of that name and suffix, ascending; owned by the caller. None where
   output_dir is not there yet. */
static int list_steps(const struct run *r, const char *suffix, int64_t **step, size_t *n,
                      struct err *e)
{
    char **name = NULL;
    size_t names = 0;
    int rc = 0;
    if (file_is_dir(r->conf->output_dir))
        rc = file_list(r->conf->output_dir, &name, &names, e);
    *n = 0;
    *step = mem_calloc(names + 1, sizeof **step);
    for (size_t i = 0; i < names; i++) {
        int64_t s = step_of(name[i], suffix);
        if (s >= 0)
            (*step)[(*n)++] = s;
        mem_free(name[i]);
    }
    mem_free(name);
    qsort(*step, *n, sizeof **step, by_step);
    return rc;
}

int coord_checkpoint_steps(const struct run *r, int64_t **step, size_t *n, struct err *e)
{
    return list_steps(r, "", step, n, e);
}

/* ---- writing ---- */

static int write_file(const char *dir, const char *name, const struct buf *text, struct err *e)
{
    char *path = file_join(dir, name);
    int rc = file_write_atomic(path, buf_str(text), text->len, e);
    mem_free(path);
    return rc;
}

static int write_state(const struct run *r, const char *dir, struct err *e)
{
    struct buf out = {0};
    struct telem_mark mark = telem_mark(r->telem);
    buf_printf(&out,
               "{\n  \"format\": 1,\n  \"run_id\": \"%s\",\n  \"global_step\": %" PRId64 ",\n",
               r->run_id, r->step);
    buf_puts(&out, "  \"epoch\": ");
    buf_double(&out, run_epoch(r));
    buf_printf(&out, ",\n  \"max_steps\": %" PRId64 ",\n", r->steps);
    buf_printf(&out, "  \"data_cursor\": {\"epoch\": %u, \"position\": %" PRIu64 "},\n",
               r->cursor.epoch, r->cursor.position);
    buf_printf(&out, "  \"data_checksum\": \"%016" PRIx64 "\",\n", data_checksum(r->data));
    buf_printf(&out, "  \"model_checksum\": \"%08" PRIx32 "\",\n", r->model_checksum);
    buf_printf(&out, "  \"num_tokens\": %" PRIu64 ",\n", r->num_tokens);
    buf_printf(&out, "  \"metrics_bytes\": %" PRIu64 ",\n  \"metrics_crc32\": \"%08" PRIx32 "\",\n",
               mark.bytes, mark.crc);
    buf_puts(&out, "  \"best_metric\": ");
    buf_double(&out, r->best_metric);
    buf_printf(&out, ",\n  \"best_global_step\": %" PRId64 ",\n  \"log_history\": []\n}\n",
               r->best_step);
    int rc = write_file(dir, "trainer_state.json", &out, e);
    buf_release(&out);
    return rc;
}

/* Only what the run is a function of: where it ran and how fast must not change a byte here. */
static int write_config(const struct run *r, const char *dir, struct err *e)
{
    struct buf out = {0};
    buf_puts(&out,
             "# What this run is a function of. The run folder's config.yaml has the rest.\n");
    conf_canonical(r->conf, &out);
    int rc = write_file(dir, "config.yaml", &out, e);
    buf_release(&out);
    return rc;
}

static int put_entry(const char *dir, const char *name, struct buf *out, struct err *e)
{
    struct file_map map;
    char *path = file_join(dir, name);
    int rc = file_map(&map, path, e);
    mem_free(path);
    if (rc < 0)
        return rc;
    buf_puts(out, "{\"name\": ");
    buf_json(out, name, strlen(name));
    buf_printf(out, ", \"size\": %zu, \"crc32\": \"%08" PRIx32 "\"}", map.size,
               file_crc32(0, map.data, map.size));
    file_unmap(&map);
    return 0;
}

/* COMPLETE: every file with its size and CRC-32, written last. */
static int write_complete(const struct run *r, const char *dir, struct err *e)
{
    int rc = 0;
    struct buf out = {0};
    char **name = NULL;
    size_t n = 0;
    TRY(file_list(dir, &name, &n, e));
    buf_printf(&out, "{\n  \"format\": 1,\n  \"run_id\": \"%s\",\n  \"files\": [", r->run_id);
    for (size_t i = 0; i < n; i++) {
        buf_puts(&out, i ? ",\n    " : "\n    ");
        TRY(put_entry(dir, name[i], &out, e));
    }
    buf_puts(&out, "\n  ]\n}\n");
    TRY(write_file(dir, "COMPLETE", &out, e));
fail:
    for (size_t i = 0; i < n; i++)
        mem_free(name[i]);
    mem_free(name);
    buf_release(&out);
    return rc;
}

static int write_files(struct run *r, const char *dir, struct err *e)
{
    int rc = 0;
    TRY(telem_sync(r->telem, e)); // the state says how long metrics.jsonl is
    TRY(file_mkdirs(dir, e));
    file_fault_point("save");
    TRY(device_save(r->coord.device[0], r->conf->model, dir, e));
    file_fault_point("save-weights");
    TRY(train_state_save(r->coord.device, r->coord.n_devices, dir, e));
    file_fault_point("save-optimizer");
    TRY(write_config(r, dir, e));
    TRY(write_state(r, dir, e));
    file_fault_point("save-state");
    TRY(write_complete(r, dir, e));
    TRY(file_sync_dir(dir, e));
    file_fault_point("save-complete");
fail:
    return rc;
}

/* ---- removing ---- */

/* Whether a folder is a whole checkpoint of this run. */
static bool is_ours(const struct run *r, int64_t step)
{
    struct err ignored = {0};
    char id[RUN_ID], *dir = path_of(r, step, "");
    bool ours = coord_read_run_id(dir, "COMPLETE", id, &ignored) == 0 && strcmp(id, r->run_id) == 0;
    mem_free(dir);
    return ours;
}

static int remove_half(const struct run *r, int64_t step, struct err *e)
{
    char *half = path_of(r, step, HALF);
    int rc = file_remove_dir(half, e);
    mem_free(half);
    return rc;
}

/* Under its own name a checkpoint is whole, so it loses that first. */
static int remove_checkpoint(const struct run *r, int64_t step, struct err *e)
{
    char *dir = path_of(r, step, ""), *half = path_of(r, step, HALF);
    int rc = file_rename(dir, half, e);
    file_fault_point("save-removing");
    if (rc == 0)
        rc = file_remove_dir(half, e);
    mem_free(dir);
    mem_free(half);
    return rc;
}

/* Removes this run's whole checkpoints after r->step, which it will write again, and the oldest
   beyond the limit; the best one stays. */
static int remove_surplus(const struct run *r, struct err *e)
{
    int rc = 0;
    int64_t *step = NULL, limit = r->conf->save_total_limit;
    size_t n = 0;
    int64_t kept = 0;
    TRY(list_steps(r, "", &step, &n, e));
    for (size_t i = n; i-- > 0;) {
        bool later = step[i] > r->step;
        bool best = r->conf->load_best_model_at_end && step[i] == r->best_step;
        if (!is_ours(r, step[i]) || (best && !later))
            continue;
        if (later || (++kept > limit && limit > 0))
            TRY(remove_checkpoint(r, step[i], e));
    }
fail:
    mem_free(step);
    return rc;
}

int coord_tidy_checkpoints(const struct run *r, struct err *e)
{
    int rc = 0;
    int64_t *step = NULL;
    size_t n = 0;
    TRY(list_steps(r, HALF, &step, &n, e));
    for (size_t i = 0; i < n; i++)
        TRY(remove_half(r, step[i], e));
    TRY(remove_surplus(r, e));
fail:
    mem_free(step);
    return rc;
}

/* A name for what is in the way, which nothing has yet. */
static char *path_aside(const struct run *r)
{
    char suffix[32];
    char *path = path_of(r, r->step, ASIDE);
    for (int i = 2; file_exists(path); i++) {
        mem_free(path);
        snprintf(suffix, sizeof suffix, "%s-%d", ASIDE, i);
        path = path_of(r, r->step, suffix);
    }
    return path;
}

/* What stands in the new checkpoint's place is not whole or not this run's: it is kept. */
static int make_room(const struct run *r, const char *dir, struct err *e)
{
    if (!file_exists(dir))
        return 0;
    char *aside = path_aside(r);
    int rc = file_rename(dir, aside, e);
    if (rc == 0)
        log_warn("%s is not a whole checkpoint of this run; it is %s now", dir, aside);
    mem_free(aside);
    return rc;
}

int coord_save(struct run *r, struct err *e)
{
    int rc = 0;
    struct err why = {0}, ignored = {0};
    char *half = path_of(r, r->step, HALF), *dir = path_of(r, r->step, "");
    TRY(write_files(r, half, &why));
    TRY(make_room(r, dir, &why));
    TRY(file_rename(half, dir, &why));
    file_fault_point("save-renamed");
    TRY(remove_surplus(r, &why));
fail:
    if (rc < 0 && file_is_dir(half))
        file_remove_dir(half, &ignored);
    mem_free(half);
    mem_free(dir);
    if (rc < 0)
        err_set(e, rc,
                "saving: %s; checkpoints before it are whole: mend this, then go on with "
                "resume_from_checkpoint=auto",
                why.text);
    return rc;
}
