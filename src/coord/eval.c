/* Evaluation: sample every prompt of a set, judge, count. Pass@k is the unbiased estimator; the
 * majority is over extracted answers. The same function serves `loco eval` and evaluation in a run.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"
#include "base/log.h"

#include <math.h>
#include <string.h>

struct tally {
    struct coord *c;
    const struct coord_eval *how;
    struct reward_conf rewards;
    double weight[REWARD_MAX];
    struct roll *roll[COORD_DEVICES_MAX];
    struct data *data;
    uint64_t correct, truncated, tokens;
    struct coord_eval_result *out;
};

/* 1 - C(n-c, k) / C(n, k), as a product that cannot overflow. */
static double pass_at_k(int n, int c, int k)
{
    double miss = 1;
    if (n - c < k)
        return 1;
    for (int i = n - c + 1; i <= n; i++)
        miss *= 1.0 - (double)k / i;
    return 1 - miss;
}

/* What a sample says: its extracted answer, or its text without blanks around it. */
static void answer_of(const struct tally *t, const struct group *g, int s, struct buf *answer)
{
    struct buf text = {0};
    const struct sample *x = &g->sample[s];
    coord_completion(t->c, g->completion[s].token, x->n, !x->truncated, &text);
    buf_clear(answer);
    if (reward_extract(&t->rewards, buf_str(&text), text.len, answer) == REWARD_RULE_NONE) {
        const char *from = buf_str(&text), *to = from + text.len;
        while (from < to && strchr(" \t\r\n", *from))
            from++;
        while (to > from && strchr(" \t\r\n", to[-1]))
            to--;
        buf_clear(answer);
        buf_put(answer, from, (size_t)(to - from));
    }
    buf_release(&text);
}

static bool is_correct(const struct sample *s)
{
    return s->result.score[0] >= 1;
}

/* Whether the most frequent answer, the earliest on ties, is right. */
static bool majority_is_correct(const struct tally *t, const struct group *g)
{
    struct buf *answer = mem_calloc((size_t)g->S, sizeof *answer);
    int best = 0, best_votes = 0;
    for (int s = 0; s < g->S; s++)
        answer_of(t, g, s, &answer[s]);
    for (int s = 0; s < g->S; s++) {
        int votes = 0;
        for (int i = 0; i < g->S; i++)
            votes += answer[i].len == answer[s].len &&
                     memcmp(buf_str(&answer[i]), buf_str(&answer[s]), answer[s].len) == 0;
        if (votes > best_votes) {
            best = s;
            best_votes = votes;
        }
    }
    for (int s = 0; s < g->S; s++)
        buf_release(&answer[s]);
    mem_free(answer);
    return is_correct(&g->sample[best]);
}

static void count_group(struct tally *t, const struct group *g)
{
    struct coord_eval_result *r = t->out;
    int correct = 0;
    for (int s = 0; s < g->S; s++) {
        const struct sample *x = &g->sample[s];
        double total = 0;
        for (int i = 0; i < t->rewards.n; i++)
            total += t->weight[i] * x->result.score[i];
        r->reward += total;
        correct += is_correct(x);
        t->truncated += x->truncated;
        t->tokens += (uint64_t)x->n;
    }
    t->correct += (uint64_t)correct;
    for (int i = 0; i < r->n_pass; i++)
        r->pass[i] += pass_at_k(g->S, correct, r->pass_k[i]);
    r->maj += majority_is_correct(t, g);
    r->prompts++;
    r->samples += (uint64_t)g->S;
}

/* Draws and judges rows [lo, hi) with `samples` each. */
static int draw_rows(struct tally *t, struct group *group, uint64_t lo, uint64_t hi,
                     float temperature, struct err *e)
{
    int rc = 0, n = (int)(hi - lo);
    struct reward *rewards = reward_new(&t->rewards);
    struct sampling how = {
        .temperature = temperature, .rewards = rewards, .key = rng_key(t->c->conf->seed, RNG_EVAL)};
    for (int i = 0; i < n; i++) {
        struct group *g = &group[i];
        TRY(data_read(t->data, lo + (uint64_t)i, &g->row, e));
        g->draw = (struct data_draw){.index = g->row.index, .slot = lo + (uint64_t)i};
        coord_prompt(t->c, buf_str(&g->row.prompt), g->row.prompt.len, &g->prompt);
    }
    for (int d = 0; d < t->c->n_devices; d++)
        roll_sampling(t->roll[d], how.temperature, how.key);
    TRY(coord_draw(t->c, t->roll, group, n, &how, e));
    coord_judge(rewards, group);
fail:
    reward_free(rewards);
    return rc;
}

int coord_eval_groups(int slots, int samples)
{
    enum { ROUNDS = 4 }; // so that few slots idle while the last samples end
    return MAX(1, ROUNDS * slots / samples);
}

/* Runs fn over all rows, some prompts at a time. */
static int each_group(struct tally *t, int samples, float temperature, uint64_t rows,
                      void (*fn)(struct tally *, const struct group *), struct err *e)
{
    int rc = 0, at_once = coord_eval_groups(t->c->slots * t->c->n_devices, samples);
    at_once = (int)MIN((uint64_t)at_once, rows);
    struct group *group = mem_calloc((size_t)at_once, sizeof *group);
    for (int i = 0; i < at_once; i++)
        group_init(&group[i], samples, t->c->needs.completion_max);
    for (uint64_t lo = 0; lo < rows; lo += (uint64_t)at_once) {
        uint64_t hi = MIN(lo + (uint64_t)at_once, rows);
        TRY(draw_rows(t, group, lo, hi, temperature, e));
        for (uint64_t i = lo; i < hi; i++)
            fn(t, &group[i - lo]);
    }
fail:
    for (int i = 0; i < at_once; i++)
        group_release(&group[i]);
    mem_free(group);
    return rc;
}

static void count_greedy(struct tally *t, const struct group *g)
{
    t->out->greedy_accuracy += is_correct(&g->sample[0]);
}

/* Rows that cannot be used do not count, which a person must know. */
static void warn_of_drops(const struct tally *t)
{
    struct buf report = {0};
    data_report(t->data, &report);
    if (data_count(t->data) < data_rows(t->data))
        log_warn("%s: %s", t->how->data_path, buf_str(&report));
    buf_release(&report);
}

static int open_tally(struct tally *t, struct err *e)
{
    int rc = 0;
    const struct conf *conf = t->c->conf;
    struct data_options options = {.want = DATA_ANSWERS,
                                   .prompt_field = conf->prompt_field,
                                   .answer_field = conf->answer_field,
                                   .gold_rule = conf->gold_rule,
                                   .reject = coord_reject,
                                   .ctx = t->c};
    TRY(coord_rewards(conf, &t->rewards, t->weight, e));
    TRY(data_open(&t->data, t->how->data_path, &options, e));
    warn_of_drops(t);
    for (int d = 0; d < t->c->n_devices; d++)
        t->roll[d] = coord_roll(t->c, d);
fail:
    return rc;
}

int coord_evaluate(struct coord *c, const struct coord_eval *how, struct coord_eval_result *out,
                   struct err *e)
{
    int rc = 0;
    struct tally t = {.c = c, .how = how, .out = out};
    *out = (struct coord_eval_result){.greedy_accuracy = how->greedy ? 0 : NAN};
    for (int k = 1; k <= how->samples && out->n_pass < COORD_PASS_MAX; k *= 2)
        out->pass_k[out->n_pass++] = k;
    TRY(open_tally(&t, e));
    uint64_t rows = data_count(t.data);
    if (how->rows_max > 0)
        rows = MIN(rows, (uint64_t)how->rows_max);
    TRY(each_group(&t, how->samples, how->temperature, rows, count_group, e));
    if (how->greedy)
        TRY(each_group(&t, 1, 0, rows, count_greedy, e));
    double samples = (double)out->samples, prompts = (double)out->prompts;
    out->reward /= samples;
    out->accuracy = (double)t.correct / samples;
    out->mean_length = (double)t.tokens / samples;
    out->clipped_ratio = (double)t.truncated / samples;
    out->maj /= prompts;
    out->greedy_accuracy /= prompts;
    for (int i = 0; i < out->n_pass; i++)
        out->pass[i] /= prompts;
fail:
    for (int d = 0; d < c->n_devices; d++)
        roll_free(t.roll[d]);
    data_close(t.data);
    return rc;
}
