/* One GRPO step, on one page. The phases stand in coord_step in the order in which they depend on
 * each other; how many devices there are changes where a phase runs, never what it is.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"

#include <string.h>

/* The next draws of the data set, as tokens, cut into leaves. */
static int read_prompts(struct run *r, struct err *e)
{
    for (int i = 0; i < r->n_groups; i++) {
        struct group *g = &r->group[i];
        g->draw = data_next(r->data, &r->cursor);
        int rc = data_read(r->data, g->draw.slot, &g->row, e);
        if (rc < 0)
            return rc;
        coord_prompt(&r->coord, buf_str(&g->row.prompt), g->row.prompt.len, &g->prompt);
    }
    coord_leaves(r);
    return 0;
}

/* Every device draws samples; they are judged between dispatches. Their lengths are known then, so
   the leaves' arrays are laid. */
static int draw_samples(struct run *r, struct err *e)
{
    struct sampling how = {.temperature = r->temperature,
                           .key = rng_key(r->conf->seed, RNG_ROLLOUT),
                           .rewards = r->rewards,
                           .telem = r->telem};
    for (int d = 0; d < r->coord.n_devices; d++)
        roll_sampling(r->roll[d], how.temperature, how.key);
    int rc = coord_draw(&r->coord, r->roll, r->group, r->n_groups, &how, e);
    if (rc == 0)
        coord_leaf_tokens(r);
    return rc;
}

/* Whatever is not judged yet. */
static int judge_samples(struct run *r)
{
    coord_judge(r->rewards, r->group);
    return 0;
}

/* How much better than its group each sample is. */
static void set_advantages(struct run *r, struct group *g)
{
    double score[COORD_SAMPLES_MAX * REWARD_MAX], total[COORD_SAMPLES_MAX];
    float advantage[COORD_SAMPLES_MAX];
    for (int s = 0; s < g->S; s++) {
        const double *scores = g->sample[s].result.score;
        memcpy(score + s * r->grpo.n_rewards, scores, (size_t)r->grpo.n_rewards * sizeof *score);
        total[s] = g->sample[s].total = grpo_total(&r->grpo, scores);
    }
    grpo_advantages(r->grpo.scale, total, (size_t)g->S, advantage);
    for (int s = 0; s < g->S; s++)
        g->sample[s].advantage = advantage[s];
    grpo_stats_group(&r->grpo, score, total, advantage, (size_t)g->S, &r->stats);
}

/* A sample as the objective sees it. On policy the log-probabilities that it was drawn with are the
   policy's own. */
static struct grpo_sample view_sample(const struct group *g, int s, const float *ref)
{
    const float *logprob = group_logprobs(g, s);
    return (struct grpo_sample){.n_tokens = (size_t)g->sample[s].n,
                                .logp = logprob,
                                .logp_old = logprob,
                                .logp_ref = ref,
                                .advantage = g->sample[s].advantage,
                                .truncated = g->sample[s].truncated};
}

/* Advantages, and from them what every token weighs in the gradient: its coefficient, without the
   step's denominator. */
static int weigh_tokens(struct run *r)
{
    r->stats = (struct grpo_stats){0};
    for (int i = 0; i < r->leaves; i++) {
        struct leaf *l = &r->leaf[i];
        size_t at = 0;
        for (int k = l->lo; k < l->hi; k++) {
            struct group *g = &r->group[k];
            set_advantages(r, g);
            for (int s = 0; s < g->S; s++) {
                struct grpo_sample sample = view_sample(g, s, l->ref + at);
                grpo_sample_loss(&r->grpo, &sample, l->coef + at, &r->stats);
                at += sample.n_tokens;
            }
        }
    }
    return 0;
}

/* The promise that training sees what was sampled: the same float for every token of a sample. */
static int check_sample(const struct group *g, int s, const float *trained, struct err *e)
{
    const float *drawn = group_logprobs(g, s);
    for (int t = 0; t < g->sample[s].n; t++)
        if (memcmp(&drawn[t], &trained[t], sizeof *drawn) != 0)
            return err_set(e, ERR_NUMERIC,
                           "sampler-equals-trainer broke: epoch %u, index %u, sample %d, token %d "
                           "has log-probability %.9g when sampled and %.9g in training",
                           g->draw.epoch, g->draw.index, s, t, (double)drawn[t],
                           (double)trained[t]);
    return 0;
}

static int check_logprobs(const struct run *r, struct err *e)
{
    for (int i = 0; i < r->leaves; i++) {
        const struct leaf *l = &r->leaf[i];
        size_t at = 0;
        for (int k = l->lo; k < l->hi; k++) {
            const struct group *g = &r->group[k];
            for (int s = 0; s < g->S; s++) {
                int rc = check_sample(g, s, l->logprob + at, e);
                if (rc < 0)
                    return rc;
                at += (size_t)g->sample[s].n;
            }
        }
    }
    return 0;
}

/* New weights, or none when the gradient is not finite; a loss alone that is not ends the run too.
 */
static int apply_gradient(struct run *r, struct err *e)
{
    int rc = coord_apply(r, grpo_denominator(&r->grpo, r->stats.samples, r->stats.tokens), e);
    if (rc == 0 && r->stats.loss.bad > 0)
        rc = err_set(e, ERR_NUMERIC, "the loss is not finite at %llu of %llu tokens",
                     (unsigned long long)r->stats.loss.bad, (unsigned long long)r->stats.tokens);
    return rc;
}

int coord_step(struct run *r, struct err *e)
{
    int rc = 0;
#define PHASE(phase, call)                                                                         \
    do {                                                                                           \
        telem_enter(r->telem, TELEM_##phase);                                                      \
        rc = (call);                                                                               \
        telem_leave(r->telem, TELEM_##phase);                                                      \
        if (rc < 0)                                                                                \
            goto fail;                                                                             \
    } while (0)
    PHASE(DATA, read_prompts(r, e));
    PHASE(ROLLOUT, draw_samples(r, e));
    PHASE(REWARD, judge_samples(r));
    if (r->grpo.kl != GRPO_KL_NONE)
        PHASE(REF_LOGP, coord_reference(r, e)); // the samples under the model as it was
    PHASE(ADV, weigh_tokens(r));
    PHASE(UPDATE, coord_backward(r, e)); // forward, backward, and the leaves' tree
    PHASE(CHECK, check_logprobs(r, e));
    PHASE(APPLY, apply_gradient(r, e));
#undef PHASE
fail:
    return rc;
}
