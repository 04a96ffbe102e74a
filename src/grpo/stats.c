/* Statistics of a step: exact sums, tallies, and merging.
 *
 * A sum is a 128-bit integer in units of 2^-64, so addition is associative: that is what lets
 * leaves and hosts merge in any order and still give the same bits.
 */
#include "grpo/grpo.h"

#include <math.h>

static const double TWO_64 = 18446744073709551616.0;
static const double TALLY_LIMIT = 1099511627776.0; // 2^40

static struct grpo_sum negated(struct grpo_sum s)
{
    uint64_t hi = ~(uint64_t)s.hi + (s.lo == 0);
    return (struct grpo_sum){(int64_t)hi, ~s.lo + 1};
}

void grpo_sum_merge(struct grpo_sum *dst, const struct grpo_sum *src)
{
    uint64_t lo = dst->lo + src->lo;
    uint64_t hi = (uint64_t)dst->hi + (uint64_t)src->hi + (lo < src->lo);
    *dst = (struct grpo_sum){(int64_t)hi, lo};
}

void grpo_sum_add(struct grpo_sum *sum, double x)
{
    double size = fabs(x), whole = floor(size);
    ASSERT(size < TALLY_LIMIT);
    struct grpo_sum term = {(int64_t)whole, (uint64_t)((size - whole) * TWO_64)};
    if (x < 0.0)
        term = negated(term);
    grpo_sum_merge(sum, &term);
}

double grpo_sum_value(const struct grpo_sum *sum)
{
    bool minus = sum->hi < 0;
    struct grpo_sum size = minus ? negated(*sum) : *sum;
    double value = (double)size.hi + (double)size.lo / TWO_64;
    return minus ? -value : value;
}

/* Widens [min, max] of a tally that holds `good` values before. */
static void widen(struct grpo_tally *t, uint64_t good, double min, double max)
{
    t->min = good == 0 || min < t->min ? min : t->min;
    t->max = good == 0 || max > t->max ? max : t->max;
}

void grpo_tally_add(struct grpo_tally *t, double x)
{
    if (fabs(x) < TALLY_LIMIT) {
        widen(t, t->n - t->bad, x, x);
        grpo_sum_add(&t->sum, x);
    } else {
        t->bad++; // NaN included.
    }
    t->n++;
}

void grpo_tally_merge(struct grpo_tally *dst, const struct grpo_tally *src)
{
    if (src->n > src->bad)
        widen(dst, dst->n - dst->bad, src->min, src->max);
    dst->n += src->n;
    dst->bad += src->bad;
    grpo_sum_merge(&dst->sum, &src->sum);
}

double grpo_tally_mean(const struct grpo_tally *t)
{
    return t->n == 0 || t->bad > 0 ? (double)NAN : grpo_sum_value(&t->sum) / (double)t->n;
}

static void tally_group_kind(const double *totals, size_t n, struct grpo_stats *stats)
{
    struct grpo_tally total = {0};
    for (size_t i = 0; i < n; i++)
        if (!isnan(totals[i]))
            grpo_tally_add(&total, totals[i]);
    bool equal = total.n >= 2 && total.bad == 0 && total.min == total.max;
    stats->groups++;
    stats->groups_all_correct += equal && total.max > 0.0;
    stats->groups_all_wrong += equal && total.max <= 0.0;
}

void grpo_stats_group(const struct grpo_conf *c, const double *scores, const double *totals,
                      const float *advantages, size_t n, struct grpo_stats *stats)
{
    tally_group_kind(totals, n, stats);
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < c->n_rewards; k++) {
            double score = scores[i * (size_t)c->n_rewards + (size_t)k];
            if (isnan(score))
                continue;
            grpo_tally_add(&stats->score[k], score);
            grpo_tally_add(&stats->score_square[k], score * score);
        }
        if (!isnan(totals[i])) {
            grpo_tally_add(&stats->reward, totals[i]);
            grpo_tally_add(&stats->reward_square, totals[i] * totals[i]);
        }
        grpo_tally_add(&stats->advantage, advantages[i]);
        grpo_tally_add(&stats->advantage_size, fabs((double)advantages[i]));
        stats->advantages_nonzero += advantages[i] != 0.0F;
    }
}

void grpo_stats_merge(struct grpo_stats *dst, const struct grpo_stats *src)
{
    dst->groups += src->groups;
    dst->groups_all_correct += src->groups_all_correct;
    dst->groups_all_wrong += src->groups_all_wrong;
    dst->samples += src->samples;
    dst->tokens += src->tokens;
    dst->tokens_clipped_low += src->tokens_clipped_low;
    dst->tokens_clipped_high += src->tokens_clipped_high;
    dst->advantages_nonzero += src->advantages_nonzero;
    for (int i = 0; i < GRPO_RATIO_BUCKETS; i++)
        dst->ratio_bucket[i] += src->ratio_bucket[i];
#define X(name) grpo_tally_merge(&dst->name, &src->name);
    GRPO_TALLIES(X)
#undef X
    for (int k = 0; k < GRPO_REWARDS_MAX; k++) {
        grpo_tally_merge(&dst->score[k], &src->score[k]);
        grpo_tally_merge(&dst->score_square[k], &src->score_square[k]);
    }
}
