/* The metrics of a step under TRL's names, from its statistics. */
#include "grpo/grpo.h"

#include "base/exact.h"

#include <math.h>

/* Where a metric goes. */
struct sink {
    grpo_metric_fn fn;
    void *ctx;
};

static void emit(const struct sink *to, const char *name, double value)
{
    to->fn(to->ctx, name, value);
}

static double share(uint64_t part, uint64_t whole)
{
    return whole == 0 ? (double)NAN : (double)part / (double)whole;
}

/* A sum over the step's one denominator. */
static double over(const struct grpo_tally *t, double denominator)
{
    return t->bad ? (double)NAN : grpo_sum_value(&t->sum) / denominator;
}

static double lowest(const struct grpo_tally *t)
{
    return t->n > t->bad ? t->min : (double)NAN;
}

static double highest(const struct grpo_tally *t)
{
    return t->n > t->bad ? t->max : (double)NAN;
}

/* The unbiased deviation from a value's tally and its square's: 0 when all values are equal. */
static double deviation(const struct grpo_tally *value, const struct grpo_tally *square)
{
    double n = (double)value->n, mean = grpo_tally_mean(value);
    if (value->n < 2 || value->bad + square->bad > 0)
        return (double)NAN;
    if (value->min == value->max)
        return 0.0;
    double variance = (grpo_tally_mean(square) - mean * mean) * n / (n - 1.0);
    return sqrt(MAX(variance, 0.0));
}

/* The 99th percentile of the importance ratio: its bucket's upper edge, at most the maximum. */
static double ratio_p99(const struct grpo_stats *s)
{
    uint64_t below = 0, rank = s->ratio.n - s->ratio.n / 100;
    for (int i = 0; i < GRPO_RATIO_BUCKETS; i++) {
        below += s->ratio_bucket[i];
        if (below >= rank && below > 0 && i < GRPO_RATIO_BUCKETS - 1)
            return MIN(exact_exp((i + 1 - GRPO_RATIO_BUCKETS / 2) / 32.0), highest(&s->ratio));
    }
    return highest(&s->ratio);
}

static void emit_rewards(const struct sink *to, const struct grpo_conf *c,
                         const struct grpo_stats *s)
{
    emit(to, "reward", grpo_tally_mean(&s->reward));
    emit(to, "reward_std", deviation(&s->reward, &s->reward_square));
    struct buf name = {0};
    for (int k = 0; k < c->n_rewards; k++) {
        buf_clear(&name);
        buf_printf(&name, "rewards/%s/mean", c->reward_name[k]);
        emit(to, buf_str(&name), grpo_tally_mean(&s->score[k]));
        buf_clear(&name);
        buf_printf(&name, "rewards/%s/std", c->reward_name[k]);
        emit(to, buf_str(&name), deviation(&s->score[k], &s->score_square[k]));
    }
    buf_release(&name);
    uint64_t equal = s->groups_all_correct + s->groups_all_wrong;
    emit(to, "frac_reward_zero_std", share(equal, s->groups));
    emit(to, "frac_reward_zero_std_all_correct", share(s->groups_all_correct, s->groups));
    emit(to, "frac_reward_zero_std_all_wrong", share(s->groups_all_wrong, s->groups));
    emit(to, "advantage/mean", grpo_tally_mean(&s->advantage));
    emit(to, "advantage/abs_mean", grpo_tally_mean(&s->advantage_size));
    emit(to, "advantage/min", lowest(&s->advantage));
    emit(to, "advantage/max", highest(&s->advantage));
    emit(to, "advantage/nonzero_frac", share(s->advantages_nonzero, s->advantage.n));
}

/* TRL's zeros where no sample stopped by itself. */
static void emit_lengths(const struct sink *to, const struct grpo_stats *s)
{
    const struct grpo_tally *stopped = &s->length_stopped;
    emit(to, "completions/mean_length", grpo_tally_mean(&s->length));
    emit(to, "completions/min_length", lowest(&s->length));
    emit(to, "completions/max_length", highest(&s->length));
    emit(to, "completions/mean_terminated_length", stopped->n ? grpo_tally_mean(stopped) : 0.0);
    emit(to, "completions/min_terminated_length", stopped->n ? lowest(stopped) : 0.0);
    emit(to, "completions/max_terminated_length", stopped->n ? highest(stopped) : 0.0);
    emit(to, "completions/clipped_ratio", share(s->length.n - stopped->n, s->length.n));
}

static void emit_ratios(const struct sink *to, const struct grpo_stats *s)
{
    uint64_t low = s->tokens_clipped_low, high = s->tokens_clipped_high;
    emit(to, "clip_ratio/low_mean", share(low, s->tokens));
    emit(to, "clip_ratio/low_min", lowest(&s->clip_low));
    emit(to, "clip_ratio/high_mean", share(high, s->tokens));
    emit(to, "clip_ratio/high_max", highest(&s->clip_high));
    emit(to, "clip_ratio/region_mean", share(low + high, s->tokens));
    emit(to, "importance_ratio/mean", grpo_tally_mean(&s->ratio));
    emit(to, "importance_ratio/min", lowest(&s->ratio));
    emit(to, "importance_ratio/max", highest(&s->ratio));
    emit(to, "importance_ratio/p99", ratio_p99(s));
    emit(to, "ppo_kl", grpo_tally_mean(&s->k1));
    emit(to, "approx_kl", grpo_tally_mean(&s->k3));
}

void grpo_metrics(const struct grpo_conf *c, const struct grpo_stats *s, grpo_metric_fn fn,
                  void *ctx)
{
    const struct sink to = {fn, ctx};
    double denominator = (double)grpo_denominator(c, s->samples, s->tokens);
    emit(&to, "loss", over(&s->loss, denominator));
    emit(&to, "policy_loss", over(&s->policy_loss, denominator));
    emit_rewards(&to, c, s);
    emit_lengths(&to, s);
    emit(&to, "entropy", grpo_tally_mean(&s->entropy));
    if (c->kl != GRPO_KL_NONE)
        emit(&to, "kl", grpo_tally_mean(&s->kl));
    emit_ratios(&to, s);
}
