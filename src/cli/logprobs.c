/* loco logprobs: log-probabilities of given tokens. A row's first token is its prompt and the
 * others its sample, so this is the path that scores completions in training; rows are scored many
 * at a time and answered in order.
 */
#include "cli/cli.h"

#include "base/log.h"
#include "base/mem.h"
#include "coord/coord.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

/* A row in waiting: ids [at, at + n) of the job's. */
struct waiting {
    size_t at, n;
};

struct job {
    const struct conf *conf;
    struct coord c;
    struct cli_rows rows;
    int limit;    // tokens of a row that the plan has room for
    int *row_ids; // of the row being read
    int *id;      // (n_ids) of all rows in waiting
    size_t n_ids, id_cap;
    struct waiting *row; // (n_rows)
    size_t n_rows, row_cap;
    struct device_group *group; // of the rows with 2 tokens or more
    struct device_tokens *sample;
    float *logprob;
    int *best;
    size_t group_cap, sample_cap, logprob_cap, best_cap;
    struct train_run run;
    struct buf out;
    double sum;
    uint64_t tokens;
};

static void make_room(struct job *j)
{
    mem_grow(&j->group, &j->group_cap, j->n_rows, sizeof *j->group);
    mem_grow(&j->sample, &j->sample_cap, j->n_rows, sizeof *j->sample);
    mem_grow(&j->logprob, &j->logprob_cap, j->n_ids, sizeof *j->logprob);
    mem_grow(&j->best, &j->best_cap, j->n_ids, sizeof *j->best);
}

static int score(struct job *j, struct err *e)
{
    int n = 0;
    make_room(j);
    for (size_t i = 0; i < j->n_rows; i++) {
        const struct waiting *w = &j->row[i];
        if (w->n < 2)
            continue;
        j->sample[n] = (struct device_tokens){.token = j->id + w->at + 1, .n = (int)w->n - 1};
        j->group[n] = (struct device_group){
            .prompt = {.token = j->id + w->at, .n = 1}, .sample = &j->sample[n], .n_samples = 1};
        n++;
    }
    struct train_leaf leaf = {.group = j->group,
                              .n_groups = n,
                              .logprob = j->logprob,
                              .best = j->conf->argmax ? j->best : NULL};
    train_start(&j->run, j->c.device[0], j->c.limits, DEVICE_POLICY, 1, &leaf, -1);
    return train_all(&j->run, e);
}

/* One row's line; its results start at `at` of the leaf's. */
static void put_row(struct job *j, const struct waiting *w, size_t at)
{
    size_t n = w->n > 0 ? w->n - 1 : 0;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)j->logprob[at + i];
    buf_puts(&j->out, "{\"ids\": ");
    cli_put_ids(&j->out, j->id + w->at, w->n);
    buf_puts(&j->out, ", \"logprobs\": ");
    cli_put_floats(&j->out, j->logprob + at, n);
    if (j->conf->argmax) {
        buf_puts(&j->out, ", \"argmax\": ");
        cli_put_ids(&j->out, j->best + at, n);
    }
    buf_puts(&j->out, ", \"sum\": ");
    buf_double(&j->out, sum);
    buf_puts(&j->out, "}\n");
    j->sum += sum;
    j->tokens += n;
}

/* Scores and answers the rows in waiting. */
static int answer(struct job *j, struct err *e)
{
    int rc = 0;
    size_t at = 0;
    TRY(score(j, e));
    for (size_t i = 0; i < j->n_rows; i++) {
        put_row(j, &j->row[i], at);
        at += j->row[i].n > 0 ? j->row[i].n - 1 : 0;
    }
    j->n_rows = j->n_ids = 0;
    TRY(cli_flush(&j->out, e));
fail:
    return rc;
}

/* The ids of the current row: its own, or its text's. */
static int read_row(struct job *j, size_t *n, struct err *e)
{
    const json_t *ids = json_object_get(j->rows.row, "ids");
    const json_t *text = json_object_get(j->rows.row, "text");
    struct text_ids made = {0};
    int rc = 0;
    if (ids && text) {
        rc = cli_rows_refuse(&j->rows, e, "has both \"ids\" and \"text\"; leave one");
    } else if (ids) {
        rc = cli_get_ids(&j->rows, ids, j->c.model.V, "vocab_size", &j->row_ids, n, e);
    } else if (json_is_string(text) && !j->c.text) {
        rc = cli_rows_refuse(&j->rows, e, "text: %s has no tokenizer.json; give ids",
                             j->conf->model);
    } else if (json_is_string(text)) {
        text_encode(j->c.text, json_string_value(text), json_string_length(text),
                    j->conf->add_special_tokens ? TEXT_WRAP : 0, &made);
        mem_free(j->row_ids);
        j->row_ids = made.id;
        *n = made.n;
    } else {
        rc = cli_rows_refuse(&j->rows, e,
                             "expected \"ids\", a list of token ids, or \"text\", a string");
    }
    if (rc == 0 && *n > (size_t)j->c.model.positions_max)
        rc = cli_rows_refuse(&j->rows, e,
                             "%zu tokens are more than the model's "
                             "max_position_embeddings %d; cut the row",
                             *n, j->c.model.positions_max);
    return rc;
}

/* Opens the model, or opens it again, with room for rows of up to `limit` tokens. */
static int open_model(struct job *j, int limit, struct err *e)
{
    int rc = 0;
    struct coord_needs needs = coord_needs_of(j->conf);
    train_run_release(&j->run);
    coord_close(&j->c);
    TRY(coord_read(&j->c, j->conf, e));
    j->limit = MIN(limit, j->c.model.positions_max);
    needs.slots = 0;
    needs.prompt_max = 1;
    needs.completion_max = MAX(j->limit - 1, 1);
    TRY(coord_plan(&j->c, &needs, e));
    TRY(coord_open(&j->c, j->conf->model, e));
fail:
    return rc;
}

/* Puts the current row into waiting, after answering those with which it would be too much. */
static int take_row(struct job *j, struct err *e)
{
    int rc = 0;
    size_t n;
    TRY(read_row(j, &n, e));
    if (j->n_ids + n > (size_t)j->c.limits.rows)
        TRY(answer(j, e));
    if (n > (size_t)j->limit) // twice as many, so that rows of growing length open it seldom
        TRY(open_model(j, MAX((int)n, 2 * j->limit), e));
    mem_grow(&j->id, &j->id_cap, j->n_ids + n, sizeof *j->id);
    mem_grow(&j->row, &j->row_cap, j->n_rows + 1, sizeof *j->row);
    if (n > 0)
        memcpy(j->id + j->n_ids, j->row_ids, n * sizeof *j->id);
    j->row[j->n_rows++] = (struct waiting){.at = j->n_ids, .n = n};
    j->n_ids += n;
    if (!cli_rows_ready(&j->rows))
        TRY(answer(j, e));
fail:
    return rc;
}

static void release(struct job *j)
{
    cli_rows_close(&j->rows);
    train_run_release(&j->run);
    mem_free(j->row_ids);
    mem_free(j->id);
    mem_free(j->row);
    mem_free(j->group);
    mem_free(j->sample);
    mem_free(j->logprob);
    mem_free(j->best);
    buf_release(&j->out);
    coord_close(&j->c);
}

int cli_logprobs(const struct conf *conf, struct err *e)
{
    int rc = 0;
    struct job j = {.conf = conf};
    TRY(open_model(&j, (int)MIN(conf->microbatch_tokens, INT_MAX / 2), e));
    TRY(cli_rows_open(&j.rows, conf->rows, e));
    while ((rc = cli_rows_next(&j.rows, e)) > 0)
        TRY(take_row(&j, e));
    TRY(rc);
    if (j.n_rows > 0)
        TRY(answer(&j, e));
    log_info("logprobs: %" PRIu64 " rows, %" PRIu64 " tokens, perplexity %.6g", j.rows.rows,
             j.tokens, exp(-j.sum / (double)MAX(j.tokens, 1)));
fail:
    release(&j);
    return rc;
}
