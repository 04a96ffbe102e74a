/* The loss of one sample and its derivative by every log-probability.
 *
 * A token's loss is a surrogate plus beta times a KL estimate; both come as a term: the value and
 * its slope, d value / d logp. The objective only weighs them (grpo.h has the formulas).
 */
#include "grpo/grpo.h"

#include "base/exact.h"

#include <math.h>
#include <string.h>

struct term {
    double value, slope;
};

/* Sequence factors f_i of a sample with n trained tokens. */
static double factor_one(size_t n)
{
    (void)n;
    return 1.0;
}

static double factor_mean(size_t n)
{
    return 1.0 / (double)MAX(n, 1);
}

/* Denominators D from the step's samples B and trained tokens T. */
static uint64_t count_samples(const struct grpo_conf *c, uint64_t samples, uint64_t tokens)
{
    (void)c, (void)tokens;
    return samples;
}

static uint64_t count_tokens(const struct grpo_conf *c, uint64_t samples, uint64_t tokens)
{
    (void)c, (void)samples;
    return tokens;
}

static uint64_t count_slots(const struct grpo_conf *c, uint64_t samples, uint64_t tokens)
{
    (void)tokens;
    return samples * c->max_completion_length;
}

static const struct objective {
    const char *name;
    double (*factor)(size_t n);
    uint64_t (*denominator)(const struct grpo_conf *c, uint64_t samples, uint64_t tokens);
    const char *text;
} OBJECTIVE[GRPO_OBJECTIVES] = {
    // L = 1/B sum_i 1/n_i sum_t l_it
    [GRPO_GRPO] = {"grpo", factor_mean, count_samples, "token mean of each sample / samples"},
    // L = 1/T sum_i sum_t l_it
    [GRPO_DAPO] = {"dapo", factor_one, count_tokens, "token sum / trained tokens of the step"},
    // L = 1/(B max_completion_length) sum_i sum_t l_it
    [GRPO_DR_GRPO] = {"dr_grpo", factor_one, count_slots,
                      "token sum / (samples x max_completion_length)"},
    // L = 1/T sum_i sum_t l_it over a micro-batch, which is the whole step
    [GRPO_BNPO] = {"bnpo", factor_one, count_tokens, "as dapo: the step is one micro-batch"},
};

/* PPO's clipped surrogate (Schulman et al. 2017, eq. 7): with w = clip(r, 1 - low, 1 + high)
 *
 *     l = -min(r A, w A)        dl/dlogp = -r A where r A is the smaller, else 0
 */
static struct term clipped_surrogate(const struct grpo_conf *c, double ratio, double advantage)
{
    double low = 1.0 - c->epsilon_low, high = 1.0 + c->epsilon_high;
    double held = ratio < low ? low : ratio > high ? high : ratio;
    if (ratio * advantage <= held * advantage)
        return (struct term){-ratio * advantage, -ratio * advantage};
    return (struct term){-held * advantage, 0.0};
}

/* The k3 estimate of KL(policy | reference) (Schulman 2020): with d = ref - logp
 *
 *     k = e^d - d - 1           dk/dlogp = 1 - e^d
 */
static struct term kl_k3(double logp, double ref)
{
    double d = ref - logp, e = exact_exp(d);
    return (struct term){e - d - 1.0, 1.0 - e};
}

/* The same times the importance ratio, which the gradient passes through:
 *
 *     k = r (e^d - d - 1)       dk/dlogp = k + r (1 - e^d)
 */
static struct term kl_k3_ratio(double logp, double ref, double ratio)
{
    struct term k = kl_k3(logp, ref);
    return (struct term){ratio * k.value, ratio * (k.value + k.slope)};
}

static struct term kl_term(const struct grpo_conf *c, const struct grpo_sample *s, size_t t,
                           double ratio)
{
    switch (c->kl) {
    case GRPO_KL_K3:
        return kl_k3(s->logp[t], s->logp_ref[t]);
    case GRPO_KL_K3_RATIO:
        return kl_k3_ratio(s->logp[t], s->logp_ref[t], ratio);
    case GRPO_KL_NONE:
        break;
    }
    return (struct term){0, 0};
}

static bool is_trained(const struct grpo_conf *c, const struct grpo_sample *s, size_t t)
{
    bool masked = c->mask_truncated && s->truncated;
    return !masked && (!s->sampled || s->sampled[t]);
}

static size_t count_trained(const struct grpo_conf *c, const struct grpo_sample *s)
{
    size_t n = 0;
    for (size_t t = 0; t < s->n_tokens; t++)
        n += is_trained(c, s, t);
    return n;
}

static size_t count_sampled(const struct grpo_sample *s)
{
    size_t n = 0;
    for (size_t t = 0; t < s->n_tokens; t++)
        n += !s->sampled || s->sampled[t];
    return n;
}

static void tally_ratio(struct grpo_stats *stats, double log_ratio, double ratio)
{
    double place = floor(log_ratio * 32.0) + GRPO_RATIO_BUCKETS / 2;
    place = place >= 0.0 ? MIN(place, GRPO_RATIO_BUCKETS - 1) : 0.0; // NaN goes to 0, too.
    stats->ratio_bucket[(size_t)place]++;
    grpo_tally_add(&stats->ratio, ratio);
    grpo_tally_add(&stats->k1, -log_ratio);
    grpo_tally_add(&stats->k3, ratio - 1.0 - log_ratio);
}

void grpo_sample_loss(const struct grpo_conf *c, const struct grpo_sample *s, float *dlogp,
                      struct grpo_stats *stats)
{
    ASSERT((c->kl == GRPO_KL_NONE) == (c->beta == 0.0));
    size_t n = count_trained(c, s), n_low = 0, n_high = 0;
    double factor = OBJECTIVE[c->objective].factor(n), advantage = s->advantage;
    memset(dlogp, 0, s->n_tokens * sizeof *dlogp);
    for (size_t t = 0; t < s->n_tokens; t++) {
        if (!is_trained(c, s, t))
            continue;
        double log_ratio = (double)s->logp[t] - s->logp_old[t], ratio = exact_exp(log_ratio);
        struct term surrogate = clipped_surrogate(c, ratio, advantage);
        struct term kl = kl_term(c, s, t, ratio);
        dlogp[t] = (float)(factor * (surrogate.slope + c->beta * kl.slope));
        grpo_tally_add(&stats->loss, factor * (surrogate.value + c->beta * kl.value));
        grpo_tally_add(&stats->policy_loss, factor * surrogate.value);
        grpo_tally_add(&stats->kl, kl.value);
        tally_ratio(stats, log_ratio, ratio);
        n_low += ratio < 1.0 - c->epsilon_low && advantage < 0.0;
        n_high += ratio > 1.0 + c->epsilon_high && advantage > 0.0;
    }
    stats->samples++;
    stats->tokens += n;
    stats->tokens_clipped_low += n_low;
    stats->tokens_clipped_high += n_high;
    if (n > 0) {
        grpo_tally_add(&stats->clip_low, (double)n_low / (double)n);
        grpo_tally_add(&stats->clip_high, (double)n_high / (double)n);
    }
    grpo_tally_add(&stats->length, (double)count_sampled(s));
    if (!s->truncated)
        grpo_tally_add(&stats->length_stopped, (double)count_sampled(s));
}

void grpo_stats_entropy(const struct grpo_conf *c, const struct grpo_sample *s,
                        const float *entropy, struct grpo_stats *stats)
{
    for (size_t t = 0; t < s->n_tokens; t++)
        if (is_trained(c, s, t))
            grpo_tally_add(&stats->entropy, entropy[t]);
}

uint64_t grpo_denominator(const struct grpo_conf *c, uint64_t samples, uint64_t tokens)
{
    return MAX(OBJECTIVE[c->objective].denominator(c, samples, tokens), 1);
}

bool grpo_objective_find(const char *name, enum grpo_objective *out)
{
    for (int i = 0; i < GRPO_OBJECTIVES; i++) {
        if (strcmp(OBJECTIVE[i].name, name) == 0) {
            *out = (enum grpo_objective)i;
            return true;
        }
    }
    return false;
}

void grpo_describe(const struct grpo_conf *c, struct buf *out)
{
    static const char *const SCALE[] = {
        [GRPO_SCALE_GROUP] = "(total - group mean) / (unbiased group std + 1e-4)",
        [GRPO_SCALE_NONE] = "total - group mean",
    };
    static const char *const KL[] = {
        [GRPO_KL_NONE] = "none",
        [GRPO_KL_K3] = "k3",
        [GRPO_KL_K3_RATIO] = "k3 x importance ratio",
    };
    const struct objective *o = &OBJECTIVE[c->objective];
    buf_printf(out, "loss       %s: %s\n", o->name, o->text);
    buf_printf(out, "clip       ratio in [%g, %g]\n", 1 - c->epsilon_low, 1 + c->epsilon_high);
    buf_printf(out, "advantage  %s, 0 when all totals are equal\n", SCALE[c->scale]);
    buf_printf(out, "kl         %s, beta %g\n", KL[c->kl], c->beta);
    buf_printf(out, "truncated  %s\n", c->mask_truncated ? "not trained" : "trained");
}
