/* GRPO's arithmetic over the cases of tests/golden/grpo.txt: TRL's own numbers, leaves, slopes. */
#include "grpo_metric.h"

#include "grpo/grpo.h"

#include "base/file.h"
#include "base/mem.h"

enum { SAMPLES_MAX = 16, TOKENS_MAX = 16, METRICS_MAX = 64 };

/* A case of the golden file. */
struct golden {
    char name[64];
    struct grpo_conf conf;
    size_t n; // samples
    struct {
        size_t n_tokens;
        bool truncated;
        double scores[GRPO_REWARDS_MAX];
        float logp[TOKENS_MAX], old[TOKENS_MAX], ref[TOKENS_MAX], entropy[TOKENS_MAX];
        double dlogp[TOKENS_MAX];
        double advantage;
    } sample[SAMPLES_MAX];
    double loss;
    int n_metrics;
    struct {
        char name[64];
        double value;
    } metric[METRICS_MAX];
};

static size_t group_samples; // S of the golden file.

static void assert_close(const char *where, const char *what, double got, double want)
{
    double tolerance = 1e-5 * fabs(want) + 1e-12;
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= tolerance))
        fail_msg("%s: %s is %.17g, TRL has %.17g", where, what, got, want);
}

static size_t parse_doubles(const char *s, double *out, size_t max)
{
    size_t n = 0;
    for (char *end; n < max; s = end) {
        double x = strtod(s, &end);
        if (end == s)
            break;
        out[n++] = x;
    }
    return n;
}

static void parse_floats(const char *s, float *out)
{
    double x[TOKENS_MAX];
    size_t n = parse_doubles(s, x, TOKENS_MAX);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)x[i];
}

static void parse_conf(struct grpo_conf *c, const char *key, const char *value)
{
    if (strcmp(key, "loss_type") == 0)
        assert_true(grpo_objective_find(value, &c->objective));
    else if (strcmp(key, "scale_rewards") == 0)
        c->scale = strcmp(value, "none") == 0 ? GRPO_SCALE_NONE : GRPO_SCALE_GROUP;
    else if (strcmp(key, "kl") == 0)
        c->kl = strcmp(value, "none") == 0 ? GRPO_KL_NONE
                : strcmp(value, "k3") == 0 ? GRPO_KL_K3
                                           : GRPO_KL_K3_RATIO;
    else if (strcmp(key, "beta") == 0)
        c->beta = strtod(value, NULL);
    else if (strcmp(key, "epsilon_low") == 0)
        c->epsilon_low = strtod(value, NULL);
    else if (strcmp(key, "epsilon_high") == 0)
        c->epsilon_high = strtod(value, NULL);
    else if (strcmp(key, "mask_truncated") == 0)
        c->mask_truncated = value[0] == '1';
    else if (strcmp(key, "weights") == 0)
        c->n_rewards = (int)parse_doubles(value, c->weight, GRPO_REWARDS_MAX);
}

static void parse_sample(struct golden *g, const char *key, const char *value)
{
    double pair[2] = {0};
    if (strcmp(key, "sample") == 0) {
        assert_true(g->n < SAMPLES_MAX && parse_doubles(value, pair, 2) == 2);
        g->sample[g->n].n_tokens = (size_t)pair[0];
        g->sample[g->n].truncated = pair[1] != 0.0;
        g->n++;
    }
    size_t i = g->n - 1;
    if (strcmp(key, "rewards") == 0)
        parse_doubles(value, g->sample[i].scores, GRPO_REWARDS_MAX);
    else if (strcmp(key, "logp") == 0)
        parse_floats(value, g->sample[i].logp);
    else if (strcmp(key, "old") == 0)
        parse_floats(value, g->sample[i].old);
    else if (strcmp(key, "ref") == 0)
        parse_floats(value, g->sample[i].ref);
    else if (strcmp(key, "entropy") == 0)
        parse_floats(value, g->sample[i].entropy);
    else if (strcmp(key, "dlogp") == 0)
        parse_doubles(value, g->sample[i].dlogp, TOKENS_MAX);
    else if (strcmp(key, "advantage") == 0)
        g->sample[i].advantage = strtod(value, NULL);
}

static void parse_result(struct golden *g, const char *key, const char *value)
{
    if (strcmp(key, "loss") == 0) {
        g->loss = strtod(value, NULL);
    } else if (strcmp(key, "metric") == 0) {
        assert_true(g->n_metrics < METRICS_MAX);
        assert_int_equal(
            sscanf(value, "%63s %lf", g->metric[g->n_metrics].name, &g->metric[g->n_metrics].value),
            2);
        g->n_metrics++;
    }
}

/* Calls check for every case of the golden file; returns their number. */
static int each_golden(void (*check)(struct golden *g))
{
    char *text, *save = NULL;
    size_t size;
    struct err e = {0};
    assert_int_equal(file_read("tests/golden/grpo.txt", 1 << 20, &text, &size, &e), 0);
    struct golden *g = mem_calloc(1, sizeof *g);
    int cases = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *value = line + strcspn(line, " ");
        if (*value)
            *value++ = 0;
        if (strcmp(line, "shape") == 0) {
            double shape[3] = {0};
            assert_int_equal(parse_doubles(value, shape, 3), 3);
            group_samples = (size_t)shape[1];
            g->conf.max_completion_length = (uint32_t)shape[2];
        } else if (strcmp(line, "case") == 0) {
            *g = (struct golden){
                .conf = {.max_completion_length = g->conf.max_completion_length,
                         .reward_name = {"r0", "r1"}},
            };
            snprintf(g->name, sizeof g->name, "%s", value);
        } else if (strcmp(line, "end") == 0) {
            check(g);
            cases++;
        } else if (line[0] != '#') {
            parse_conf(&g->conf, line, value);
            parse_sample(g, line, value);
            parse_result(g, line, value);
        }
    }
    mem_free(g);
    mem_free(text);
    return cases;
}

static struct grpo_sample sample_of(const struct golden *g, size_t i, float advantage)
{
    return (struct grpo_sample){.n_tokens = g->sample[i].n_tokens,
                                .logp = g->sample[i].logp,
                                .logp_old = g->sample[i].old,
                                .logp_ref = g->sample[i].ref,
                                .advantage = advantage,
                                .truncated = g->sample[i].truncated};
}

/* Advantages of all groups, tallied into stats. */
static void advantages_of(const struct golden *g, float *advantages, struct grpo_stats *stats)
{
    const struct grpo_conf *c = &g->conf;
    for (size_t first = 0; first < g->n; first += group_samples) {
        double totals[SAMPLES_MAX], scores[SAMPLES_MAX * GRPO_REWARDS_MAX];
        for (size_t i = 0; i < group_samples; i++) {
            memcpy(scores + i * (size_t)c->n_rewards, g->sample[first + i].scores,
                   (size_t)c->n_rewards * sizeof *scores);
            totals[i] = grpo_total(c, g->sample[first + i].scores);
        }
        grpo_advantages(c->scale, totals, group_samples, advantages + first);
        grpo_stats_group(c, scores, totals, advantages + first, group_samples, stats);
    }
}

static void check_golden(struct golden *g)
{
    struct grpo_stats stats = {0};
    float advantages[SAMPLES_MAX], dlogp[SAMPLES_MAX][TOKENS_MAX];
    advantages_of(g, advantages, &stats);
    for (size_t i = 0; i < g->n; i++) {
        struct grpo_sample s = sample_of(g, i, advantages[i]);
        assert_close(g->name, "advantage", advantages[i], g->sample[i].advantage);
        grpo_sample_loss(&g->conf, &s, dlogp[i], &stats);
        grpo_stats_entropy(&g->conf, &s, g->sample[i].entropy, &stats);
    }
    double d = (double)grpo_denominator(&g->conf, stats.samples, stats.tokens);
    for (size_t i = 0; i < g->n; i++)
        for (size_t t = 0; t < g->sample[i].n_tokens; t++)
            assert_close(g->name, "dlogp", dlogp[i][t] / d, g->sample[i].dlogp[t]);
    assert_close(g->name, "loss", metric_of(&g->conf, &stats, "loss"), g->loss);
    if (g->conf.kl == GRPO_KL_NONE)
        assert_true(metric_of(&g->conf, &stats, "policy_loss") ==
                    metric_of(&g->conf, &stats, "loss"));
    else if (g->conf.objective == GRPO_DAPO) // whose mean is that of the kl metric
        assert_close(g->name, "policy_loss", metric_of(&g->conf, &stats, "policy_loss"),
                     g->loss - g->conf.beta * metric_of(&g->conf, &stats, "kl"));
    for (int k = 0; k < g->n_metrics; k++)
        assert_close(g->name, g->metric[k].name, metric_of(&g->conf, &stats, g->metric[k].name),
                     g->metric[k].value);
    assert_true(g->n_metrics >= 18);
}

static void loss_advantages_and_metrics_equal_trl(void **state)
{
    (void)state;
    assert_int_equal(each_golden(check_golden), 26);
}

static void tally(const struct golden *g, size_t i, struct grpo_stats *stats)
{
    float dlogp[TOKENS_MAX];
    struct grpo_sample s = sample_of(g, i, (float)g->sample[i].advantage);
    grpo_sample_loss(&g->conf, &s, dlogp, stats);
    grpo_stats_entropy(&g->conf, &s, g->sample[i].entropy, stats);
}

static void check_order(struct golden *g)
{
    struct grpo_stats there = {0}, back = {0};
    for (size_t i = 0; i < g->n; i++) {
        tally(g, i, &there);
        tally(g, g->n - 1 - i, &back);
    }
    assert_memory_equal(&there, &back, sizeof there);
}

static void the_order_of_samples_does_not_change_sums(void **state)
{
    (void)state;
    assert_int_equal(each_golden(check_order), 26);
}

/* The loss of a sample in double, from log-probabilities in double: for differences only. */
static double loss_in_double(const struct grpo_conf *c, const struct grpo_sample *s,
                             const double *logp, size_t t)
{
    double r = exp(logp[t] - (double)s->logp_old[t]), a = s->advantage;
    double w = fmin(fmax(r, 1 - c->epsilon_low), 1 + c->epsilon_high);
    double d = (double)s->logp_ref[t] - logp[t], k = exp(d) - d - 1;
    double kl = c->kl == GRPO_KL_NONE ? 0 : c->kl == GRPO_KL_K3 ? k : r * k;
    double f = c->objective == GRPO_GRPO ? 1.0 / (double)s->n_tokens : 1.0;
    return f * (-fmin(r * a, w * a) + c->beta * kl);
}

static void check_differences(struct golden *g)
{
    if (strstr(g->name, "masked") || strcmp(g->name, "on_policy") == 0)
        return; // Masked tokens are TRL's golden; on policy r = 1 lies inside the clip range.
    const double h = 1e-6;
    for (size_t i = 0; i < g->n; i++) {
        struct grpo_stats stats = {0};
        struct grpo_sample s = sample_of(g, i, (float)g->sample[i].advantage);
        float dlogp[TOKENS_MAX];
        double logp[TOKENS_MAX], sum = 0;
        grpo_sample_loss(&g->conf, &s, dlogp, &stats);
        for (size_t t = 0; t < s.n_tokens; t++) {
            logp[t] = s.logp[t];
            sum += loss_in_double(&g->conf, &s, logp, t);
            logp[t] += h;
            double up = loss_in_double(&g->conf, &s, logp, t);
            logp[t] -= 2 * h;
            double slope = (up - loss_in_double(&g->conf, &s, logp, t)) / (2 * h);
            // Central differences err by h^2 |l'''| / 6 + eps |l| / h < 1e-8.
            assert_true(fabs(slope - (double)dlogp[t]) <= 1e-6 * fabs(slope) + 1e-8);
        }
        assert_true(fabs(sum - grpo_sum_value(&stats.loss.sum)) <= 1e-12 * fabs(sum) + 1e-15);
    }
}

static void the_derivative_is_the_slope_of_the_loss(void **state)
{
    (void)state;
    each_golden(check_differences);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_advantages_and_metrics_equal_trl),
        cmocka_unit_test(the_order_of_samples_does_not_change_sums),
        cmocka_unit_test(the_derivative_is_the_slope_of_the_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
