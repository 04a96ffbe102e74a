/* samples/step-N.jsonl: every completion of a step, one line each, a pure function of the
 * configuration. docs/FORMATS.md has the fields.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static char *samples_dir(const struct run *r)
{
    return file_join(r->conf->output_dir, "samples");
}

static char *samples_path(const char *dir, int64_t step)
{
    char name[48];
    snprintf(name, sizeof name, "step-%" PRId64 ".jsonl", step);
    return file_join(dir, name);
}

static void put_text(struct buf *out, const char *key, const char *text, size_t n)
{
    buf_printf(out, ", \"%s\": ", key);
    buf_json(out, text, n);
}

static void put_tokens(struct buf *out, const struct group *g, int s)
{
    const struct sample *x = &g->sample[s];
    const float *logprob = group_logprobs(g, s);
    buf_puts(out, ", \"token_ids\": [");
    for (int t = 0; t < x->n; t++)
        buf_printf(out, "%s%d", t ? ", " : "", g->completion[s].token[t]);
    buf_puts(out, "], \"logprobs\": [");
    for (int t = 0; t < x->n; t++) {
        buf_puts(out, t ? ", " : "");
        buf_float(out, logprob[t]);
    }
    buf_putc(out, ']');
}

static void put_sample(const struct run *r, const struct group *g, int s, struct buf *out)
{
    const struct sample *x = &g->sample[s];
    struct buf text = {0};
    coord_completion(&r->coord, g->completion[s].token, x->n, !x->truncated, &text);
    buf_printf(out,
               "{\"format\": 1, \"step\": %" PRId64 ", \"epoch\": %u, \"index\": %u, "
               "\"sample\": %d",
               r->step + 1, g->draw.epoch, g->draw.index, s);
    put_text(out, "prompt", buf_str(&g->row.prompt), g->row.prompt.len);
    put_text(out, "completion", buf_str(&text), text.len);
    put_text(out, "answer", buf_str(&g->row.answer), g->row.answer.len);
    buf_printf(out, ", \"stop\": \"%s\", \"scores\": {", x->truncated ? "length" : "stop");
    for (int i = 0; i < r->grpo.n_rewards; i++) {
        buf_printf(out, "%s\"%s\": ", i ? ", " : "", r->grpo.reward_name[i]);
        buf_double(out, x->result.score[i]);
    }
    buf_puts(out, "}, \"reward\": ");
    buf_double(out, x->total);
    buf_puts(out, ", \"advantage\": ");
    buf_float(out, x->advantage);
    // Runs of tokens: how they came, and the step whose weights drew them.
    buf_printf(out, ", \"origin\": [[\"sampled\", %d]], \"weight_version\": [[%" PRId64 ", %d]]",
               x->n, r->step, x->n);
    put_tokens(out, g, s);
    buf_puts(out, "}\n");
    buf_release(&text);
}

/* Samples that were drawn: a step that broke may have others. */
static int write_group(struct run *r, const struct group *g, struct file_out *file,
                       struct buf *line, struct err *e)
{
    int rc = 0;
    for (int s = 0; s < g->S && rc == 0; s++) {
        buf_clear(line);
        if (g->sample[s].n > 0)
            put_sample(r, g, s, line);
        r->samples_crc = file_crc32(r->samples_crc, buf_str(line), line->len);
        rc = file_out_write(file, buf_str(line), line->len, e);
    }
    return rc;
}

int coord_write_samples(struct run *r, struct err *e)
{
    int rc = 0;
    struct buf line = {0};
    struct file_out file = {0};
    char *dir = samples_dir(r);
    char *path = samples_path(dir, r->step + 1);
    r->samples_crc = 0;
    TRY(file_mkdirs(dir, e));
    TRY(file_out_open(&file, path, e));
    for (int i = 0; i < r->n_groups; i++)
        TRY(write_group(r, &r->group[i], &file, &line, e));
    TRY(file_out_commit(&file, e));
fail:
    file_out_abort(&file);
    buf_release(&line);
    mem_free(path);
    mem_free(dir);
    return rc;
}

/* A person may want to keep no samples; a file of this name beside them says so. */
static const char REMOVED[] = "REMOVED";

static int check_step(const char *dir, int64_t step, uint32_t crc, struct err *e)
{
    int rc = 0;
    struct file_map map = {0};
    char *path = samples_path(dir, step), *removed = file_join(dir, REMOVED);
    if (!file_exists(path)) {
        if (!file_exists(removed))
            rc = err_set(e, ERR_STATE,
                         "%s: not found (where samples were removed on purpose, make the file %s)",
                         path, removed);
        goto fail;
    }
    TRY(file_map(&map, path, e));
    uint32_t have = file_crc32(0, map.data, map.size);
    if (have != crc)
        TRY(err_set(e, ERR_STATE, "%s: has checksum %08" PRIx32 ", metrics.jsonl says %08" PRIx32,
                    path, have, crc));
fail:
    file_unmap(&map);
    mem_free(removed);
    mem_free(path);
    return rc;
}

int coord_check_samples(const struct run *r, uint64_t bytes, struct err *e)
{
    int rc = 0;
    struct telem_series crc = {0};
    char *dir = samples_dir(r), *metrics = file_join(r->conf->output_dir, "metrics.jsonl");
    TRY(telem_series_read_head(&crc, metrics, bytes, "samples_crc32", e));
    for (size_t i = 0; i < crc.n; i++)
        TRY(check_step(dir, (int64_t)crc.x[i], (uint32_t)crc.y[i], e));
fail:
    telem_series_release(&crc);
    mem_free(metrics);
    mem_free(dir);
    return rc;
}

int coord_cut_samples(const struct run *r, struct err *e)
{
    int rc = 0;
    char **name = NULL;
    size_t n = 0;
    char *dir = samples_dir(r);
    if (file_is_dir(dir))
        TRY(file_list(dir, &name, &n, e));
    for (size_t i = 0; i < n; i++) {
        char text[48];
        int64_t step;
        const char *dot = strstr(name[i], ".jsonl");
        if (!str_starts(name[i], "step-") || !dot || dot - name[i] - 5 > 20)
            continue;
        snprintf(text, sizeof text, "%.*s", (int)(dot - name[i] - 5), name[i] + 5);
        if (!str_to_int(text, &step) || step <= r->step)
            continue;
        char *path = file_join(dir, name[i]);
        rc = file_remove(path, e);
        mem_free(path);
        if (rc < 0)
            goto fail;
    }
fail:
    for (size_t i = 0; i < n; i++)
        mem_free(name[i]);
    mem_free(name);
    mem_free(dir);
    return rc;
}

void coord_show_samples(const struct run *r)
{
    enum { SHOWN = 4, BYTES = 400 };
    struct buf out = {0};
    const struct group *g = &r->group[0];
    buf_puts(&out, "  prompt: ");
    buf_terminal(&out, buf_str(&g->row.prompt), MIN(g->row.prompt.len, (size_t)BYTES), false);
    buf_putc(&out, '\n');
    for (int s = 0; s < MIN(g->S, SHOWN); s++) {
        struct buf text = {0};
        coord_completion(&r->coord, g->completion[s].token, g->sample[s].n, !g->sample[s].truncated,
                         &text);
        buf_printf(&out, "  reward %-6.3g ", g->sample[s].total);
        buf_terminal(&out, buf_str(&text), MIN(text.len, (size_t)BYTES), false);
        buf_putc(&out, '\n');
        buf_release(&text);
    }
    telem_progress_clear(r->telem);
    r->sink->print(r->sink->ctx, buf_str(&out), out.len);
    buf_release(&out);
}
