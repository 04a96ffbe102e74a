/* A run's telemetry: its two files, what a step writes to them, and how they are cut on resume. */
#include "telem/telem_int.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char METRICS[] = "metrics.jsonl";
static const char *const phase_name[TELEM_PHASES_N] = {
#define PHASE_NAME(id, name, share) name,
    TELEM_PHASES(PHASE_NAME)};
static const char *const share_name[TELEM_SHARES_N] = {
#define SHARE_NAME(id, name) name,
    TELEM_SHARES(SHARE_NAME)};

static int open_log(struct file_log *log, const char *dir, const char *name, struct err *e)
{
    char *path = file_join(dir, name);
    int rc = file_log_open(log, path, e);
    mem_free(path);
    return rc;
}

int telem_new(struct telem **out, const struct telem_options *options, struct err *e)
{
    int rc = 0;
    struct telem *t = mem_calloc(1, sizeof *t);
    t->o = *options;
    if (t->o.dir) {
        TRY(open_log(&t->metrics, t->o.dir, METRICS, e));
        TRY(open_log(&t->perf, t->o.dir, "perf.jsonl", e));
    }
    t->begin_ns = t->last_ns = telem_clock(t);
    *out = t;
    return 0;
fail:
    telem_free(t);
    return rc;
}

void telem_free(struct telem *t)
{
    if (!t)
        return;
    telem_progress_clear(t);
    file_log_close(&t->metrics);
    file_log_close(&t->perf);
    buf_release(&t->line);
    mem_free(t);
}

struct telem_mark telem_mark(const struct telem *t)
{
    if (!t->metrics.open)
        return (struct telem_mark){0};
    return (struct telem_mark){(uint64_t)file_log_size(&t->metrics), t->metrics_crc};
}

int telem_sync(struct telem *t, struct err *e)
{
    int rc = 0;
    if (t->metrics.open)
        TRY(file_log_sync(&t->metrics, e));
    if (t->perf.open)
        TRY(file_log_sync(&t->perf, e));
fail:
    return rc;
}

/* End of the lines of perf.jsonl whose steps rise to at most `step`; a torn line ends them. */
static size_t lines_up_to(const struct file_map *m, int64_t step)
{
    static const char opening[] = "{\"step\": ";
    size_t end = 0;
    int64_t last = -1;
    while (end < m->size) {
        const char *line = (const char *)m->data + end;
        const char *stop = memchr(line, '\n', m->size - end);
        if (!stop || strncmp(line, opening, strlen(opening)) != 0)
            break;
        int64_t n = strtoll(line + strlen(opening), NULL, 10);
        if (n <= last || n > step)
            break;
        last = n;
        end += (size_t)(stop - line) + 1;
    }
    return end;
}

static int cut_perf(struct telem *t, int64_t step, struct err *e)
{
    int rc = 0;
    struct file_map m = {0};
    TRY(file_map(&m, t->perf.path, e));
    TRY(file_log_truncate(&t->perf, lines_up_to(&m, step), e));
fail:
    file_unmap(&m);
    return rc;
}

int telem_check(const char *dir, struct telem_mark mark, struct err *e)
{
    int rc = 0;
    struct file_map m = {0};
    char *path = file_join(dir, METRICS);
    TRY(file_map(&m, path, e));
    if (m.size < mark.bytes)
        TRY(err_set(e, ERR_STATE, "%s: has %zu bytes, the checkpoint was made after %" PRIu64, path,
                    m.size, mark.bytes));
    uint32_t crc = file_crc32(0, m.data, mark.bytes);
    if (crc != mark.crc)
        TRY(err_set(e, ERR_STATE,
                    "%s: its first %" PRIu64 " bytes have checksum %08" PRIx32
                    ", the checkpoint says %08" PRIx32,
                    path, mark.bytes, crc, mark.crc));
fail:
    file_unmap(&m);
    mem_free(path);
    return rc;
}

int telem_resume(struct telem *t, struct telem_mark mark, int64_t step, struct err *e)
{
    int rc = 0;
    if (!t->o.dir)
        return 0;
    TRY(file_log_truncate(&t->metrics, mark.bytes, e));
    t->metrics_crc = mark.crc;
    TRY(cut_perf(t, step, e));
fail:
    return rc;
}

static double rate(uint64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

/* What telem itself knows of the finished step. */
static void put_perf(const struct telem *t, const uint64_t *counter, struct telem_record *r)
{
    telem_put(r, t->done_step_s, "time/step");
    for (int i = 0; i < TELEM_SHARES_N; i++)
        telem_put(r, telem_share_s(t, (enum telem_share)i), "time/%s", share_name[i]);
    for (int i = 0; i < TELEM_PHASES_N; i++)
        telem_put(r, t->done_s[i], "time/%s", phase_name[i]);
    double tokens_per_s = rate(counter[TELEM_DECODE_TOKENS], t->done_step_s);
    telem_put(r, tokens_per_s, "tokens_per_s");
    telem_put(r, tokens_per_s / MAX(t->o.devices, 1), "tokens_per_s_per_device");
    telem_put(r, rate(counter[TELEM_DECODE_TOKENS], t->done_s[TELEM_ROLLOUT]),
              "decode_tokens_per_s");
    telem_put(r, rate(counter[TELEM_LONGEST_SAMPLE], t->done_s[TELEM_ROLLOUT]),
              "longest_sample_tokens_per_s");
    telem_put(r, rate(counter[TELEM_TRAIN_TOKENS], t->done_s[TELEM_UPDATE]), "train_tokens_per_s");
    double flops_s = rate(counter[TELEM_FLOPS], t->done_step_s);
    telem_put(r, t->o.peak_flops_s > 0 ? flops_s / t->o.peak_flops_s : (double)NAN, "mfu");
    telem_put(r, (double)counter[TELEM_BYTES_SENT], "net/bytes_sent");
    telem_put(r, (double)counter[TELEM_BYTES_RECEIVED], "net/bytes_received");
    telem_put(r, (double)mem_resident(), "memory/anonymous_bytes");
    telem_put(r, (double)mem_peak(), "memory/peak_bytes");
}

static int append(struct telem *t, struct file_log *log, int64_t step, const struct telem_record *r,
                  struct err *e)
{
    buf_clear(&t->line);
    if (!log->open)
        return 0;
    telem_json(&t->line, step, r);
    return file_log_append(log, t->line.data, t->line.len, e);
}

int telem_step(struct telem *t, int64_t step, const struct telem_record *metrics,
               const struct telem_record *perf, struct err *e)
{
    int rc = 0;
    struct telem_record own = {0};
    uint64_t counter[TELEM_COUNTERS_N];
    memcpy(counter, t->counter, sizeof counter);
    telem_turn(t, telem_charge(t));
    put_perf(t, counter, &own);
    for (size_t i = 0; perf && i < perf->n; i++)
        telem_put(&own, perf->item[i].value, "%s", perf->item[i].name);
    TRY(append(t, &t->metrics, step, metrics, e));
    t->metrics_crc = file_crc32(t->metrics_crc, buf_str(&t->line), t->line.len);
    file_fault_point("metrics");
    TRY(append(t, &t->perf, step, &own, e));
    telem_terminal_step(t, step, metrics, rate(counter[TELEM_DECODE_TOKENS], t->done_step_s));
fail:
    telem_record_release(&own);
    return rc;
}
