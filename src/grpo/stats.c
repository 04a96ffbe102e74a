/* Statistics of a step: exact sums and tallies.
 *
 * A sum is a 128-bit integer in units of 2^-64, so addition is associative: samples in any order
 * give the same bits.
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

static struct grpo_sum added(struct grpo_sum a, struct grpo_sum b)
{
    uint64_t lo = a.lo + b.lo;
    uint64_t hi = (uint64_t)a.hi + (uint64_t)b.hi + (lo < b.lo);
    return (struct grpo_sum){(int64_t)hi, lo};
}

void grpo_sum_add(struct grpo_sum *sum, double x)
{
    double size = fabs(x), whole = floor(size);
    ASSERT(size < TALLY_LIMIT);
    struct grpo_sum term = {(int64_t)whole, (uint64_t)((size - whole) * TWO_64)};
    if (x < 0.0)
        term = negated(term);
    *sum = added(*sum, term);
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
