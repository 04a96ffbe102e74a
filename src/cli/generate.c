/* loco generate: samples of one prompt or of many. Prompts go through the devices in a window, so
 * that a set of any size needs little memory; samples are printed in the order of prompts. One
 * sample of one prompt is shown token by token.
 */
#include "cli/cli.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "coord/coord.h"
#include "telem/telem.h"

#include <inttypes.h>
#include <string.h>

/* A prompt under way. */
struct asked {
    uint32_t index; // its row
    struct buf prompt;
    struct text_ids ids;
    int done;      // samples
    int *n;        // (S) their tokens
    bool *stopped; // (S)
    int *token;    // (S, tokens_max)
    float *logprob;
};

struct job {
    const struct conf *conf;
    struct coord c;
    int S, tokens_max;
    struct data *data; // NULL: the one prompt of --prompt
    uint64_t rows, next, printed;
    struct roll *roll[COORD_DEVICES_MAX];
    struct asked *asked; // (window): row i is at i % window
    uint64_t window;
    size_t longest; // tokens of a prompt
    struct data_row row;
    struct buf out;
    bool live; // token by token
    struct text_stream stream;
    int written; // rc of writing tokens
    struct err *e;
    uint64_t start_ns, open_ns, first_ns, tokens;
};

static bool is_stop(const struct job *j, int token)
{
    for (int i = 0; i < j->c.model.n_eos; i++)
        if (j->c.model.eos[i] == token)
            return true;
    return false;
}

static void on_token(void *ctx, uint64_t tag, int sample, int token, float logprob)
{
    struct job *j = ctx;
    size_t n = 0;
    struct buf text = {0};
    (void)tag, (void)sample, (void)logprob;
    if (j->tokens++ == 0)
        j->first_ns = telem_now_ns();
    if (!j->live || j->written < 0 || is_stop(j, token) || text_is_special(j->c.text, token))
        return;
    const char *bytes = text_token_bytes(j->c.text, token, &n);
    if (bytes)
        text_stream_put(&j->stream, bytes, n, &text);
    cli_put_foreign(&j->out, buf_str(&text), text.len);
    j->written = cli_flush(&j->out, j->e);
    buf_release(&text);
}

/* ---- prompts ---- */

/* Asked of every row while the set is indexed: notes the longest prompt. */
static const char *reject(void *ctx, const struct data_row *row)
{
    struct job *j = ctx;
    struct text_ids ids = {0};
    coord_prompt(&j->c, buf_str(&row->prompt), row->prompt.len, &ids);
    size_t n = ids.n;
    text_ids_release(&ids);
    if (n == 0)
        return "prompt without a token";
    if (n + (size_t)j->tokens_max > (size_t)j->c.model.positions_max)
        return "longer than max_position_embeddings less max_completion_length";
    j->longest = MAX(j->longest, n);
    return NULL;
}

static int open_one(struct job *j, struct err *e)
{
    struct text_ids ids = {0};
    int limit = j->c.model.positions_max;
    coord_prompt(&j->c, j->conf->prompt, strlen(j->conf->prompt), &ids);
    j->longest = ids.n;
    j->rows = 1;
    text_ids_release(&ids);
    if (j->longest == 0)
        return err_set(e, ERR_USAGE,
                       "prompt: has no token, and the model names no token to begin with; "
                       "give some text");
    if (j->longest + (size_t)j->tokens_max > (size_t)limit)
        return err_set(e, ERR_USAGE,
                       "prompt: %zu tokens and max_completion_length %d are more than the "
                       "model's max_position_embeddings %d; lower max_completion_length",
                       j->longest, j->tokens_max, limit);
    return 0;
}

static int open_set(struct job *j, struct err *e)
{
    struct data_options options = {
        .want = DATA_PROMPTS, .prompt_field = j->conf->prompt_field, .reject = reject, .ctx = j};
    struct buf report = {0};
    int rc = data_open(&j->data, j->conf->prompts, &options, e);
    if (rc < 0)
        return rc;
    j->rows = data_count(j->data);
    data_report(j->data, &report);
    if (j->rows < data_rows(j->data))
        log_warn("%s: %s", j->conf->prompts, buf_str(&report));
    buf_release(&report);
    return 0;
}

/* ---- the devices ---- */

static int open_devices(struct job *j, struct err *e)
{
    enum { STEPS = 16 }; // of one dispatch
    int rc = 0;
    struct coord_needs needs = coord_needs_of(j->conf);
    needs.prompt_max = (int)j->longest;
    needs.slots = (int)MIN((uint64_t)needs.slots, j->rows * (uint64_t)j->S);
    TRY(coord_plan(&j->c, &needs, e));
    TRY(coord_open(&j->c, j->conf->model, e));
    for (int d = 0; d < j->c.n_devices; d++) {
        struct roll_conf roll = {.device = j->c.device[d],
                                 .dispatch_steps = j->live ? 1 : STEPS,
                                 .temperature = (float)j->conf->temperature,
                                 .key = rng_key(j->conf->seed, RNG_GENERATE),
                                 .stop = j->c.model.eos,
                                 .n_stop = j->c.model.n_eos,
                                 .on_token = on_token,
                                 .ctx = j};
        j->roll[d] = roll_new(&roll);
    }
    j->window = (uint64_t)MAX(2, 2 * j->c.slots * j->c.n_devices / j->S);
    j->window = MIN(j->window, j->rows);
    j->asked = mem_calloc(j->window, sizeof *j->asked);
    for (uint64_t i = 0; i < j->window; i++) {
        size_t samples = (size_t)j->S, tokens = samples * (size_t)j->tokens_max;
        j->asked[i].n = mem_calloc(samples, sizeof *j->asked->n);
        j->asked[i].stopped = mem_calloc(samples, sizeof *j->asked->stopped);
        j->asked[i].token = mem_calloc(tokens, sizeof *j->asked->token);
        j->asked[i].logprob = mem_calloc(tokens, sizeof *j->asked->logprob);
    }
fail:
    return rc;
}

static int submit(struct job *j, struct err *e)
{
    struct asked *a = &j->asked[j->next % j->window];
    const char *text = j->conf->prompt;
    size_t n = text ? strlen(text) : 0;
    if (j->data) {
        int rc = data_read(j->data, j->next, &j->row, e);
        if (rc < 0)
            return rc;
        a->index = j->row.index;
        text = buf_str(&j->row.prompt);
        n = j->row.prompt.len;
    }
    a->done = 0;
    buf_clear(&a->prompt);
    buf_put(&a->prompt, text, n);
    coord_prompt(&j->c, text, n, &a->ids);
    roll_submit(j->roll[j->next % (uint64_t)j->c.n_devices],
                &(struct roll_request){.tag = j->next,
                                       .index = a->index,
                                       .sample_hi = j->S,
                                       .prompt = {.token = a->ids.id, .n = (int)a->ids.n},
                                       .tokens_max = j->tokens_max,
                                       .token = a->token,
                                       .logprob = a->logprob});
    j->next++;
    return 0;
}

/* One call on every device that has work. */
static int advance(struct job *j, struct err *e)
{
    int rc = 0;
    bool busy[COORD_DEVICES_MAX];
    for (int d = 0; d < j->c.n_devices; d++)
        busy[d] = roll_begin(j->roll[d]);
    for (int d = 0; d < j->c.n_devices; d++) {
        struct roll_done done;
        int here = busy[d] ? roll_finish(j->roll[d], rc < 0 ? NULL : e) : 0;
        rc = rc < 0 ? rc : here;
        while (rc == 0 && roll_next(j->roll[d], &done)) {
            struct asked *a = &j->asked[done.tag % j->window];
            a->n[done.sample] = done.n;
            a->stopped[done.sample] = done.stop == DEVICE_STOPPED;
            a->done++;
        }
    }
    return rc < 0 ? rc : j->written;
}

/* ---- results ---- */

static void put_sample(struct job *j, const struct asked *a, int s)
{
    size_t at = (size_t)s * (size_t)j->tokens_max, n = (size_t)a->n[s];
    const char *reason = a->stopped[s] ? "stop" : "length";
    struct buf text = {0};
    coord_completion(&j->c, a->token + at, a->n[s], a->stopped[s], &text);
    if (j->conf->json) {
        buf_puts(&j->out, "{\"prompt\": ");
        buf_json(&j->out, buf_str(&a->prompt), a->prompt.len);
        buf_printf(&j->out, ", \"index\": %" PRIu32 ", \"sample\": %d, \"text\": ", a->index, s);
        buf_json(&j->out, buf_str(&text), text.len);
        buf_puts(&j->out, ", \"ids\": ");
        cli_put_ids(&j->out, a->token + at, n);
        buf_puts(&j->out, ", \"logprobs\": ");
        cli_put_floats(&j->out, a->logprob + at, n);
        buf_printf(&j->out, ", \"stop_reason\": \"%s\"}\n", reason);
    } else {
        buf_printf(&j->out, "== prompt %" PRIu32 ", sample %d: %zu tokens, %s\n", a->index, s, n,
                   reason);
        cli_put_foreign(&j->out, buf_str(&text), text.len);
        buf_putc(&j->out, '\n');
    }
    buf_release(&text);
}

/* Prints the prompts that are done and whose forerunners are printed. */
static int print_done(struct job *j, struct err *e)
{
    int rc = 0;
    while (j->printed < j->next && j->asked[j->printed % j->window].done == j->S) {
        const struct asked *a = &j->asked[j->printed++ % j->window];
        if (j->live) {
            struct buf rest = {0};
            text_stream_end(&j->stream, &rest);
            cli_put_foreign(&j->out, buf_str(&rest), rest.len);
            buf_putc(&j->out, '\n');
            buf_release(&rest);
        }
        for (int s = 0; s < j->S && !j->live; s++)
            put_sample(j, a, s);
        TRY(cli_flush(&j->out, e));
    }
fail:
    return rc;
}

static void summarise(const struct job *j)
{
    double load = (double)(j->open_ns - j->start_ns) * 1e-9;
    double first = (double)(j->first_ns - j->start_ns) * 1e-9;
    double all = (double)(telem_now_ns() - j->open_ns) * 1e-9;
    log_info("generate: %" PRIu64 " samples, %" PRIu64
             " tokens, %.1f tokens/s; loaded in %.2f s, first "
             "token after %.2f s",
             j->rows * (uint64_t)j->S, j->tokens, (double)j->tokens / all, load, first);
}

static void release(struct job *j)
{
    for (int d = 0; d < j->c.n_devices; d++)
        roll_free(j->roll[d]);
    for (uint64_t i = 0; j->asked && i < j->window; i++) {
        struct asked *a = &j->asked[i];
        buf_release(&a->prompt);
        text_ids_release(&a->ids);
        mem_free(a->n);
        mem_free(a->stopped);
        mem_free(a->token);
        mem_free(a->logprob);
    }
    mem_free(j->asked);
    data_row_release(&j->row);
    data_close(j->data);
    buf_release(&j->out);
    coord_close(&j->c);
}

int cli_generate(const struct conf *conf, struct err *e)
{
    int rc = 0;
    struct job j = {.conf = conf,
                    .S = (int)conf->num_generations,
                    .e = e,
                    .tokens_max = (int)MIN(conf->max_completion_length, INT32_MAX / 2),
                    .start_ns = telem_now_ns()};
    TRY(coord_read(&j.c, conf, e));
    TRY(conf->prompt ? open_one(&j, e) : open_set(&j, e));
    j.live = j.rows == 1 && j.S == 1 && !conf->json;
    TRY(open_devices(&j, e));
    j.open_ns = telem_now_ns();
    while (j.printed < j.rows) {
        while (j.next < j.rows && j.next - j.printed < j.window)
            TRY(submit(&j, e));
        TRY(advance(&j, e));
        TRY(print_done(&j, e));
    }
    summarise(&j);
fail:
    release(&j);
    return rc;
}
