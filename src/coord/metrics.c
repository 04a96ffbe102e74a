/* What a run says of itself: the header with every definition in force, and a step's metrics under
 * TRL's names. metrics.jsonl gets only functions of the configuration.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void put_metric(void *ctx, const char *name, double value)
{
    telem_put(ctx, value, "%s", name);
}

/* Totals over the step's prompts. */
static void prompt_lengths(const struct run *r, double *mean, double *max, uint64_t *tokens)
{
    *mean = *max = 0;
    for (int i = 0; i < r->n_groups; i++) {
        const struct group *g = &r->group[i];
        *mean += (double)g->prompt.n / r->n_groups;
        *max = MAX(*max, (double)g->prompt.n);
        *tokens += g->prompt.n * (uint64_t)g->S;
        for (int s = 0; s < g->S; s++)
            *tokens += (uint64_t)g->sample[s].n;
    }
}

static void count_rules(struct run *r)
{
    r->reward_counts = (struct reward_counts){0};
    for (int i = 0; i < r->n_groups; i++)
        for (int s = 0; s < r->group[i].S; s++)
            reward_counts_add(&r->reward_counts, &r->group[i].sample[s].result);
}

/* A group's forward pass: its prompt but the last token, once, and each sample behind it. */
static double group_flops(const struct model_config *m, const struct group *g)
{
    double prompt = (double)g->prompt.n, tokens = 0, keys = prompt * (prompt - 1) / 2;
    for (int s = 0; s < g->S; s++) {
        double n = g->sample[s].n;
        tokens += n;
        keys += n * prompt + n * (n - 1) / 2;
    }
    return model_flops(m, prompt - 1 + tokens, tokens, keys);
}

/* What telem makes rates of: operations, and the longest sample, which a rollout waits for. */
static void count_work(const struct run *r)
{
    double forward = 0, passes = 3; // forward, and backward as two
    int longest = 0;
    if (r->grpo.n_rewards > 0)
        passes += 1 + (r->grpo.kl != GRPO_KL_NONE); // sampled, and scored by the reference
    for (int i = 0; i < r->n_groups; i++) {
        const struct group *g = &r->group[i];
        forward += group_flops(&r->coord.model, g);
        for (int s = 0; s < g->S; s++)
            longest = MAX(longest, g->sample[s].n);
    }
    telem_count(r->telem, TELEM_FLOPS, (uint64_t)(passes * forward));
    if (r->grpo.n_rewards > 0)
        telem_count(r->telem, TELEM_LONGEST_SAMPLE, (uint64_t)longest);
}

/* Training's forward has them, so they come after the rest of the step's statistics. */
static void count_entropies(struct run *r)
{
    for (int i = 0; i < r->leaves; i++) {
        const struct leaf *l = &r->leaf[i];
        size_t at = 0;
        for (int k = l->lo; k < l->hi; k++) {
            const struct group *g = &r->group[k];
            for (int s = 0; s < g->S; s++) {
                const struct sample *x = &g->sample[s];
                const struct grpo_sample sample = {.n_tokens = (size_t)x->n,
                                                   .truncated = x->truncated};
                grpo_stats_entropy(&r->grpo, &sample, l->entropy + at, &r->stats);
                at += sample.n_tokens;
            }
        }
    }
}

/* Sampler against trainer: coord_step stops at any other value. */
static void put_sampling(struct telem_record *m)
{
    telem_put(m, 0, "sampling/sampling_logp_difference/mean");
    telem_put(m, 0, "sampling/sampling_logp_difference/max");
    telem_put(m, 1, "sampling/importance_sampling_ratio/min");
    telem_put(m, 1, "sampling/importance_sampling_ratio/mean");
    telem_put(m, 1, "sampling/importance_sampling_ratio/max");
}

/* Share of samples that are a stop token and nothing else. */
static double empty_share(const struct run *r)
{
    int samples = 0, empty = 0;
    for (int i = 0; i < r->n_groups; i++) {
        const struct group *g = &r->group[i];
        samples += g->S;
        for (int s = 0; s < g->S; s++)
            empty += g->sample[s].n == 1 && !g->sample[s].truncated;
    }
    return (double)empty / samples;
}

/* How full micro-batches were, of all devices; their counts begin again. */
static void put_packing(struct run *r)
{
    struct train_packing sum = {0};
    for (int d = 0; d < r->coord.n_devices; d++) {
        struct train_packing *p = &r->lane[d].packing;
        sum.rows += p->rows;
        sum.rows_padded += p->rows_padded;
        sum.samples += p->samples;
        sum.batches += p->batches;
        *p = (struct train_packing){0};
    }
    telem_put(&r->perf, 1 - (double)sum.rows / (double)MAX(sum.rows_padded, 1),
              "pack/padding_ratio");
    telem_put(&r->perf, (double)sum.samples / (double)MAX(sum.batches, 1), "pack/seqs_per_row");
}

/* What only training by rewards has. */
static void put_rollout(struct run *r)
{
    struct telem_record *m = &r->metrics;
    count_entropies(r);
    grpo_metrics(&r->grpo, &r->stats, put_metric, m);
    count_rules(r);
    reward_metrics(&r->reward_conf, &r->reward_counts, put_metric, m);
    telem_put(m, empty_share(r), "rollout/empty");
    put_sampling(m);
    telem_put(m, r->samples_crc, "samples_crc32"); // resume checks the file by it
}

void coord_step_metrics(struct run *r)
{
    struct telem_record *m = &r->metrics;
    double mean, max;

    prompt_lengths(r, &mean, &max, &r->num_tokens);
    telem_put(m, run_epoch(r), "epoch");
    telem_put(m, (double)r->num_tokens, "num_tokens");
    if (r->grpo.n_rewards > 0)
        put_rollout(r);
    telem_put(m, r->update.grad_norm, "grad_norm");
    telem_put(m, r->update.param_norm, "param_norm");
    telem_put(m, r->update.update_norm, "update_norm");
    telem_put(m, r->learning_rate, "learning_rate");
    telem_put(m, (double)r->update.changed / (double)r->coord.device[0]->n_elements,
              "update/frac_bf16_changed");
    telem_put(m, mean, "prompt_length/mean");
    telem_put(m, max, "prompt_length/max");
    count_work(r);
    put_packing(r);
}

static const char *family_name(enum model_family f)
{
    return f == MODEL_LLAMA ? "llama" : f == MODEL_QWEN2 ? "qwen2" : "qwen3";
}

static void put_ledger(const struct ledger *l, struct buf *out)
{
    char text[24];
    buf_puts(out, "memory     ");
    for (int i = 0; i < l->n; i++)
        buf_printf(out, "%s%s %s", i ? ", " : "", l->item[i].name,
                   mem_text(l->item[i].bytes, text));
    buf_printf(out, "; together %s\n", mem_text(ledger_total(l), text));
}

/* "reward     exact + 0.5 x random", then every definition that a metric or the loss rests on. */
static void put_objective(const struct grpo_conf *g, struct buf *out)
{
    buf_puts(out, "reward     ");
    for (int i = 0; i < g->n_rewards; i++) {
        buf_puts(out, i ? " + " : "");
        if (g->weight[i] != 1)
            buf_printf(out, "%g x ", g->weight[i]);
        buf_puts(out, g->reward_name[i]);
    }
    buf_putc(out, '\n');
    grpo_describe(g, out);
    buf_puts(out, "lengths    in tokens, the stop token included\n");
}

void coord_header(const struct run *r, struct buf *out)
{
    const struct coord *c = &r->coord;
    const struct model_config *m = &c->model;
    struct model_params p;
    model_params_init(&p, m);
    buf_printf(out, "model      %s: %s, %.1f M parameters, %d layers, width %d, vocabulary %d\n",
               r->conf->model, family_name(m->family), (double)p.count / 1e6, m->L, m->D, m->V);
    model_params_release(&p);
    buf_printf(out, "data       %s: ", r->conf->data);
    data_report(r->data, out);
    buf_printf(out, "\nsteps      %" PRId64 " of %d prompts x %d samples, in %d leaves\n", r->steps,
               r->n_groups, c->needs.samples, r->leaves);
    if (r->grpo.n_rewards > 0)
        put_objective(&r->grpo, out);
    buf_printf(out, "machine    kernel level %s, %d device%s, ", c->kern->name, c->n_devices,
               c->n_devices == 1 ? "" : "s");
    if (c->slots > 0)
        buf_printf(out, "%d decode slots each, ", c->slots);
    buf_printf(out, "micro-batches of up to %d tokens\n", c->limits.rows);
    put_ledger(&c->ledger, out);
}
