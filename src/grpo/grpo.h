/* The arithmetic of GRPO: scores in, one coefficient per token out. No I/O, no state, no threads.
 *
 * The words of reinforcement learning, each in the one sense that LoCo uses:
 *
 *   prompt     the tokens that the policy continues; id = (epoch, index in the data set)
 *   sample     one completion of a prompt, with the log-probabilities it was drawn with
 *   group      the S samples of one prompt: they are compared with each other and with nothing else
 *   leaf       a fixed set of groups that one device rolls out, scores and trains as a whole
 *   score      what one reward says of one sample; NaN when it does not apply to it
 *   total      the weighted sum of a sample's scores; NaN when none applies
 *   advantage  how much better than its group a sample is; the weight of its gradient
 *   row        packed tokens, as the device computes them
 *   policy     the weights that draw samples and are trained
 *
 * Every definition is TRL 1.16's (GRPOTrainer), with one micro-batch, whatever LoCo's
 * micro-batches, leaves and hosts are. For token t of sample i, with n_i trained tokens and
 * advantage A_i,
 *
 *     r_it = exp(logp_it - old_it)                              importance ratio
 *     l_it = -min(r_it A_i, clip(r_it, 1 - epsilon_low, 1 + epsilon_high) A_i) + beta KL_it
 *     L    = sum_i f_i sum_t l_it / D
 *
 * and the objective says what f and D are (B: samples of the step, masked ones included; T: trained
 * tokens of the step):
 *
 *     objective   f_i     D                          source
 *     grpo        1/n_i   B                          Shao et al. 2024, eq. 3
 *     dapo        1       T                          Yu et al. 2025, eq. 8
 *     dr_grpo     1       B max_completion_length    Liu et al. 2025, section 3.2
 *     bnpo        1       T                          TRL: token mean of a micro-batch
 *
 * LoCo takes bnpo's mean over the whole step as one micro-batch, where it equals dapo.
 *
 * D is one integer for the whole step. Coefficients leave here without it: it is reduced along with
 * the gradients and folded in when the update is applied, so no split of the step can matter.
 *
 * A group whose totals are all equal has advantages of exactly 0 (compared before any arithmetic);
 * the KL term still acts on it. A truncated sample under mask_truncated trains no token, but counts
 * in B and in its group's mean and deviation. NaN never leaves a masked token.
 *
 * Sums are 128-bit fixed point, hence exact: statistics are the same bits in any order of samples
 * and groups.
 *
 *     grpo_total(c, scores);                                  for each sample of a group
 *     grpo_advantages(c->scale, totals, S, advantages);
 *     grpo_stats_group(c, scores, totals, advantages, S, &stats);
 *     grpo_sample_loss(c, &sample, dlogp, &stats);            for each sample
 *     grpo_denominator(c, stats.samples, stats.tokens);       once a step
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

#define GRPO_REWARDS_MAX 8

/* The table above; loss.c holds a row for each. */
enum grpo_objective { GRPO_GRPO, GRPO_DAPO, GRPO_DR_GRPO, GRPO_BNPO, GRPO_OBJECTIVES };

/* How advantages are scaled: by the unbiased standard deviation of the group + 1e-4, or not. */
enum grpo_scale { GRPO_SCALE_GROUP, GRPO_SCALE_NONE };

/* The KL term: none (beta = 0, no reference), k3, or k3 times the importance ratio, whose gradient
   is unbiased (TRL's use_bias_correction_kl). */
enum grpo_kl { GRPO_KL_NONE, GRPO_KL_K3, GRPO_KL_K3_RATIO };

struct grpo_conf {
    enum grpo_objective objective;
    enum grpo_scale scale;
    enum grpo_kl kl; // GRPO_KL_NONE exactly when beta is 0.
    double beta;
    double epsilon_low, epsilon_high;
    uint32_t max_completion_length; // tokens
    bool mask_truncated;
    int n_rewards;
    double weight[GRPO_REWARDS_MAX];           // (n_rewards)
    const char *reward_name[GRPO_REWARDS_MAX]; // (n_rewards), borrowed
};

/* One sample as the loss sees it. All arrays are borrowed. */
struct grpo_sample {
    size_t n_tokens;
    const float *logp;      // (n_tokens) under the policy being trained
    const float *logp_old;  // (n_tokens) as recorded when the token was drawn
    const float *logp_ref;  // (n_tokens) under the reference; unused when the KL is none
    const uint8_t *sampled; // (n_tokens) 1 = drawn by the policy, 0 = inserted; NULL = all drawn
    float advantage;
    bool truncated; // It hit the length limit without a stop token.
};

/* A sum of doubles in units of 2^-64: hi + lo / 2^64. {0} is zero. */
struct grpo_sum {
    int64_t hi;
    uint64_t lo;
};

/* Count, range and exact sum of some value. {0} is empty. `bad` counts values that are not finite
   or reach 2^40 in size (2^22 smaller ones always fit): with any of them the mean is NaN. */
struct grpo_tally {
    uint64_t n, bad;
    double min, max; // Of the n - bad good ones.
    struct grpo_sum sum;
};

/* Log-ratios by 1/32, [-2, 2) and one bucket beyond at either end. */
#define GRPO_RATIO_BUCKETS 130

/* What is tallied: field, of what, once per. */
#define GRPO_TALLIES(X)                                                                            \
    X(loss)           /* f l, per trained token: its mean times n over D is the loss */            \
    X(policy_loss)    /* the same without the KL term */                                           \
    X(kl)             /* KL as the loss takes it, per trained token */                             \
    X(entropy)        /* of the policy's distribution, nats, per trained token */                  \
    X(ratio)          /* importance ratio, per trained token */                                    \
    X(k1)             /* old - logp, per trained token */                                          \
    X(k3)             /* r - 1 - log r, per trained token */                                       \
    X(clip_low)       /* share of a sample's tokens clipped at the low end, per sample */          \
    X(clip_high)      /* the same at the high end */                                               \
    X(reward)         /* total, per sample that has one */                                         \
    X(reward_square)  /* its square */                                                             \
    X(advantage)      /* per sample */                                                             \
    X(advantage_size) /* its absolute value */                                                     \
    X(length)         /* tokens drawn, stop token included, per sample */                          \
    X(length_stopped) /* the same, per sample that was not truncated */

struct grpo_stats {
    uint64_t groups, groups_all_correct, groups_all_wrong; // The two: equal totals, > 0 or <= 0.
    uint64_t samples;                                      // B
    uint64_t tokens;                                       // T
    uint64_t tokens_clipped_low, tokens_clipped_high;
    uint64_t advantages_nonzero;
    uint64_t ratio_bucket[GRPO_RATIO_BUCKETS];
#define X(name) struct grpo_tally name;
    GRPO_TALLIES(X)
#undef X
    struct grpo_tally score[GRPO_REWARDS_MAX], score_square[GRPO_REWARDS_MAX]; // per sample scored
};

/* The objective named in a configuration; false when there is none of that name. */
bool grpo_objective_find(const char *name, enum grpo_objective *out);

/* Appends the definitions in force, one per line, for a run's header. */
void grpo_describe(const struct grpo_conf *c, struct buf *out);

/* The weighted sum of a sample's scores (n_rewards), NaN ones left out; NaN when all are NaN. */
double grpo_total(const struct grpo_conf *c, const double *scores);

/* Advantages (n) of a group from its totals (n): total - mean, over (deviation + 1e-4) when scaled.
   Samples without a total get 0 and do not count; all get 0 when the totals are equal or fewer than
   two. Sums are exact, so permuting the totals permutes the advantages to the bit. */
void grpo_advantages(enum grpo_scale scale, const double *totals, size_t n, float *advantages);

/* Loss of one sample: writes dL/dlogp times D into dlogp (n_tokens), 0 where no token is trained,
   and tallies loss, KL, ratios, clipping and lengths. */
void grpo_sample_loss(const struct grpo_conf *c, const struct grpo_sample *s, float *dlogp,
                      struct grpo_stats *stats);

/* Tallies a sample's entropies (n_tokens), which the device knows only after its forward. */
void grpo_stats_entropy(const struct grpo_conf *c, const struct grpo_sample *s,
                        const float *entropy, struct grpo_stats *stats);

/* Tallies a group's scores (n, n_rewards), totals (n) and advantages (n). */
void grpo_stats_group(const struct grpo_conf *c, const double *scores, const double *totals,
                      const float *advantages, size_t n, struct grpo_stats *stats);

/* D of the table above, at least 1, from the whole step's B and T. */
uint64_t grpo_denominator(const struct grpo_conf *c, uint64_t samples, uint64_t tokens);

/* Calls fn for every metric of a step, in a fixed order, under TRL's names (loss, reward, kl, ...).
   A value without a definition (a mean of nothing) is NaN. */
typedef void (*grpo_metric_fn)(void *ctx, const char *name, double value);
void grpo_metrics(const struct grpo_conf *c, const struct grpo_stats *s, grpo_metric_fn fn,
                  void *ctx);

/* Exact sums and tallies, for whoever reduces other statistics of a step the same way. */
void grpo_sum_add(struct grpo_sum *sum, double x); // |x| < 2^40; rounds towards 0 at 2^-64.
double grpo_sum_value(const struct grpo_sum *sum);
void grpo_tally_add(struct grpo_tally *t, double x);
double grpo_tally_mean(const struct grpo_tally *t); // NaN when empty or bad.
