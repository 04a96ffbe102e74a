/* Going on from a checkpoint: which one, whether it is of this run and has all that it counts on,
 * and its state put back. checkpoint.c writes what is read here; verify.c says whether it is whole.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATE_MAX = 64 << 20 };

/* ---- its state ---- */

/* trainer_state.json, with all that is needed. */
struct state {
    int64_t step, epoch, position, num_tokens, best_step;
    struct telem_mark metrics;
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

static int read_fields(struct state *s, struct err *e)
{
    int rc = 0;
    int64_t metrics_bytes;
    const char *metrics_crc;
    const json_t *cursor = json_object_get(s->root, "data_cursor");
    const json_t *best = json_object_get(s->root, "best_metric");
    TRY(get_int(s->root, "global_step", 0, &s->step, e));
    TRY(get_int(cursor, "epoch", 0, &s->epoch, e));
    TRY(get_int(cursor, "position", 0, &s->position, e));
    TRY(get_int(s->root, "num_tokens", 0, &s->num_tokens, e));
    TRY(get_int(s->root, "metrics_bytes", 0, &metrics_bytes, e));
    TRY(get_text(s->root, "metrics_crc32", &metrics_crc, e));
    TRY(get_int(s->root, "best_global_step", -1, &s->best_step, e));
    TRY(get_text(s->root, "run_id", &s->run_id, e));
    TRY(get_text(s->root, "data_checksum", &s->data_checksum, e));
    TRY(get_text(s->root, "model_checksum", &s->model_checksum, e));
    s->metrics =
        (struct telem_mark){(uint64_t)metrics_bytes, (uint32_t)strtoul(metrics_crc, NULL, 16)};
    s->best_metric = json_is_number(best) ? json_number_value(best) : (double)NAN;
fail:
    return rc;
}

static int read_state(struct state *s, const char *dir, struct err *e)
{
    int rc = coord_read_json(dir, "trainer_state.json", &s->root, e);
    if (rc < 0)
        return rc;
    return err_in(e, read_fields(s, e), "%s", dir);
}

/* ---- whether it is of this run, before anything is loaded ---- */

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
    rc = conf_resume_check(&saved, r->conf, e);
    if (rc < 0)
        err_in(e, rc, "%s", dir);
fail:
    conf_release(&saved);
    buf_release(&whole);
    mem_free(text);
    mem_free(path);
    return rc;
}

/* Checkpoints are listed by their names, so that must be its step's; a folder that was copied
   elsewhere may have any other name. */
static int check_name(const struct state *s, const char *dir, struct err *e)
{
    int64_t named = coord_checkpoint_step(dir);
    if (named < 0 || named == s->step)
        return 0;
    return err_set(e, ERR_STATE,
                   "%s: trainer_state.json says global_step %" PRId64
                   ", so its name should be checkpoint-%" PRId64,
                   dir, s->step, s->step);
}

/* Its name, and what it counts on in output_dir: metrics and samples up to its step, to the
   byte. */
static int check_counted(const struct run *r, const char *dir, struct err *e)
{
    int rc = 0;
    struct state s = {0};
    TRY(read_state(&s, dir, e));
    TRY(check_name(&s, dir, e));
    TRY(telem_check(r->conf->output_dir, s.metrics, e));
    TRY(coord_check_samples(r, s.metrics.bytes, e));
fail:
    json_decref(s.root);
    return rc;
}

/* ---- which one ---- */

/* The newest checkpoint of output_dir before this one that could be gone on from; NULL: none. */
static char *find_before(const struct run *r, const char *dir)
{
    struct err ignored = {0};
    int64_t *step = NULL, bad = coord_checkpoint_step(dir);
    char *found = NULL;
    size_t n = 0;
    if (coord_checkpoint_steps(r, &step, &n, &ignored) < 0)
        n = 0;
    for (size_t i = n; i-- > 0 && !found;) {
        char *path = coord_checkpoint_path(r, step[i]);
        if ((step[i] < bad || bad < 0) && coord_verify_checkpoint(path, &ignored) == 0 &&
            check_counted(r, path, &ignored) == 0)
            found = path;
        else
            mem_free(path);
    }
    mem_free(step);
    return found;
}

/* A fault of the checkpoint, or of what it counts on in output_dir, with the way out of it. */
static int tell_damaged(const struct run *r, const char *dir, bool counted, const struct err *why,
                        struct err *e)
{
    char *before = find_before(r, dir);
    struct buf out = {0};
    if (!before && !counted)
        buf_puts(&out, ", and none before it is");
    if (!before || counted)
        buf_puts(&out, "; put it back as it was, or ");
    if (!before)
        buf_puts(&out, "start anew in another output_dir");
    else if (counted)
        buf_printf(&out, "go on with resume_from_checkpoint=%s", before);
    else
        buf_printf(&out, "; go on with resume_from_checkpoint=%s, or remove %s", before, dir);
    int rc = err_set(e, ERR_STATE, "%s%s", why->text, buf_str(&out));
    buf_release(&out);
    mem_free(before);
    return rc;
}

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

int coord_find_checkpoint(const struct run *r, char **dir, struct err *e)
{
    int rc = 0;
    struct err why = {0};
    const char *from = r->conf->resume_from_checkpoint;
    *dir = NULL;
    if (!from)
        return 0;
    if (strcmp(from, "auto") == 0) {
        TRY(find_newest(r, dir, e));
    } else {
        if (!file_is_dir(from))
            TRY(err_set(e, ERR_STATE, "resume_from_checkpoint: %s is not a folder", from));
        *dir = mem_strdup(from);
    }
    if (*dir) {
        if (coord_verify_checkpoint(*dir, &why) < 0)
            TRY(tell_damaged(r, *dir, false, &why, e));
        TRY(check_options(r, *dir, e));
        TRY(check_folder(r, *dir, e));
        if (check_counted(r, *dir, &why) < 0)
            TRY(tell_damaged(r, *dir, true, &why, e));
    }
fail:
    return rc;
}

/* ---- put back ---- */

static int check_same_run(const struct run *r, const struct state *s, struct err *e)
{
    char data[24], model[24];
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
    TRY(check_same_run(r, &s, e));
    TRY(load_devices(&r->coord, dir, e));
    r->step = s.step;
    r->cursor = (struct data_cursor){.epoch = (uint32_t)s.epoch, .position = (uint64_t)s.position};
    r->num_tokens = (uint64_t)s.num_tokens;
    r->best_metric = s.best_metric;
    r->best_step = s.best_step;
    snprintf(r->run_id, sizeof r->run_id, "%s", s.run_id);
    TRY(telem_resume(r->telem, s.metrics, r->step, e));
fail:
    json_decref(s.root);
    return rc < 0 ? err_in(e, rc, "%s", dir) : 0;
}
