/* Checkpoints and run folders, for loco inspect. */
#include "cli/cli.h"

#include "base/mem.h"
#include "coord/coord.h"
#include "telem/telem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char PREFIX[] = "checkpoint-";

/* DIR/NAME as an object that the caller owns; NULL when it is not there or not one. */
static json_t *read_object(const char *dir, const char *name)
{
    enum { BYTES_MAX = 64 << 20 };
    char *path = file_join(dir, name), *data = NULL;
    size_t size;
    json_t *o = NULL;
    if (file_exists(path) && file_read(path, BYTES_MAX, &data, &size, NULL) == 0)
        o = json_loadb(data, size, 0, NULL);
    mem_free(data);
    mem_free(path);
    return o;
}

int cli_inspect_checkpoint(const char *path, json_t *report, struct err *e)
{
    int rc = 0;
    json_t *state = read_object(path, "trainer_state.json"),
           *complete = read_object(path, "COMPLETE");
    char text[80];
    json_object_set_new(report, "kind", json_string("checkpoint"));
    TRY(cli_inspect_model(path, report, e));
    if (!json_is_object(state))
        TRY(err_set(e, ERR_FORMAT,
                    "%s/trainer_state.json: expected a JSON object; the checkpoint is "
                    "damaged",
                    path));
    json_object_del(state, "log_history");
    json_object_set(report, "trainer_state", state);
    TRY(coord_verify_checkpoint(path, e));
    snprintf(text, sizeof text, "%zu files, sizes and checksums as written",
             json_array_size(json_object_get(complete, "files")));
    json_object_set_new(report, "complete", json_string(text));
fail:
    json_decref(state);
    json_decref(complete);
    return rc;
}

/* ---- run folder ---- */

/* The last whole line of metrics.jsonl as an object, or NULL. */
static json_t *last_metrics(const char *path)
{
    struct file_map map;
    json_t *last = NULL;
    if (file_map(&map, path, NULL) < 0)
        return NULL;
    const char *text = (const char *)map.data;
    size_t end = map.size;
    while (end > 0 && text[end - 1] != '\n')
        end--;
    size_t from = end > 0 ? end - 1 : 0;
    while (from > 0 && text[from - 1] != '\n')
        from--;
    if (end > from)
        last = json_loadb(text + from, end - from, 0, NULL);
    file_unmap(&map);
    return last;
}

/* A seed beyond the integers of JSON parsers is a text. */
static json_t *seed_value(uint64_t seed)
{
    return seed <= INT64_MAX ? json_integer((json_int_t)seed) : json_sprintf("%" PRIu64, seed);
}

static void put_config(const char *path, json_t *report)
{
    char *file = file_join(path, "config.yaml");
    struct conf c = {0};
    bool sft = false;
    if (conf_read(&c, CONF_TRAIN, file, NULL) < 0)
        sft = conf_read(&c, CONF_SFT, file, NULL) == 0;
    mem_free(file);
    if (!c.model)
        return;
    json_object_set_new(
        report, "config",
        json_pack("{s:s, s:s, s:s, s:o, s:I, s:f}", "command", sft ? "sft" : "train", "model",
                  c.model, "data", c.data, "seed", seed_value(c.seed), "prompts_per_step",
                  (json_int_t)c.prompts_per_step, "learning_rate", c.learning_rate));
    conf_release(&c);
}

static int by_step(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Folders named checkpoint-N, by N. */
static int put_checkpoints(const char *path, json_t *report, struct err *e)
{
    char **name = NULL, text[48];
    size_t names = 0, n = 0;
    json_t *list = json_array();
    int rc = file_list(path, &name, &names, e);
    int64_t *step = mem_calloc(names + 1, sizeof *step);
    for (size_t i = 0; i < names; i++) {
        bool is_one = str_starts(name[i], PREFIX) && str_to_int(name[i] + strlen(PREFIX), &step[n]);
        n += is_one;
        mem_free(name[i]);
    }
    mem_free(name);
    qsort(step, n, sizeof *step, by_step);
    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s%" PRId64, PREFIX, step[i]);
        char *dir = file_join(path, text), *complete = file_join(dir, "COMPLETE");
        json_array_append_new(
            list, json_pack("{s:s, s:b}", "name", text, "complete", file_exists(complete)));
        mem_free(dir);
        mem_free(complete);
    }
    mem_free(step);
    json_object_set_new(report, "checkpoints", list);
    return rc;
}

static void put_curve(const struct telem_series *s, const char *metric, json_t *report,
                      struct buf *curve)
{
    enum { HEIGHT = 8, MARGIN = 16, WIDEST = 100 };
    struct telem_plot plot = {
        .title = metric, .height = HEIGHT, .width = MAX(MIN(cli_columns() - MARGIN, WIDEST), 2)};
    json_object_set_new(
        report, "curve",
        json_pack("{s:s, s:f, s:f}", "metric", metric, "first", s->y[0], "last", s->y[s->n - 1]));
    buf_putc(curve, '\n');
    telem_plot(curve, &plot, s);
}

int cli_inspect_run(const char *path, json_t *report, struct buf *curve, struct err *e)
{
    static const char *const metrics[] = {"reward", "loss"};
    int rc = 0;
    struct telem_series s = {0};
    char *file = file_join(path, "metrics.jsonl");
    json_object_set_new(report, "kind", json_string("run folder"));
    put_config(path, report);
    TRY(put_checkpoints(path, report, e));
    json_t *last = last_metrics(file);
    if (last)
        json_object_set_new(report, "last_step", last);
    for (size_t i = 0; i < ARRAY_LEN(metrics) && s.n == 0; i++) {
        TRY(telem_series_read(&s, file, metrics[i], e));
        if (s.n > 0)
            put_curve(&s, metrics[i], report, curve);
    }
fail:
    telem_series_release(&s);
    mem_free(file);
    return rc;
}
