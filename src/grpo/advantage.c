/* From scores to advantages: the weighted total of a sample, and how it compares with its group. */
#include "grpo/grpo.h"

#include <math.h>

static const double STD_FLOOR = 1e-4; // Added to the deviation, as TRL does.

double grpo_total(const struct grpo_conf *c, const double *scores)
{
    double total = 0.0;
    bool any = false;
    for (int k = 0; k < c->n_rewards; k++) {
        if (isnan(scores[k]))
            continue;
        total += c->weight[k] * scores[k];
        any = true;
    }
    return any ? total : (double)NAN;
}

void grpo_advantages(enum grpo_scale scale, const double *totals, size_t n, float *advantages)
{
    struct grpo_tally total = {0}, square = {0};
    for (size_t i = 0; i < n; i++) {
        advantages[i] = 0.0F;
        if (!isnan(totals[i]))
            grpo_tally_add(&total, totals[i]);
    }
    if (total.n < 2 || (total.min == total.max && total.bad == 0))
        return;
    double mean = grpo_tally_mean(&total), divisor = 1.0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(totals[i]))
            grpo_tally_add(&square, (totals[i] - mean) * (totals[i] - mean));
    if (scale == GRPO_SCALE_GROUP)
        divisor = sqrt(grpo_sum_value(&square.sum) / (double)(square.n - 1)) + STD_FLOOR;
    for (size_t i = 0; i < n; i++)
        if (!isnan(totals[i]))
            advantages[i] = (float)((totals[i] - mean) / divisor);
}
