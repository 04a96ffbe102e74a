/* The CPU device's scoring and training: groups laid out as rows, the prompts' first, then the
 * samples'. The last prompt token is the first row of every sample, so that a sample's rows are the
 * rows that predict its tokens.
 */
#include "device/device.h"

#include "device/cpu_int.h"

#include <string.h>

/* Rows [row, row + n) of a new segment at position pos; its KV table is its own seq. */
static int add_segment(struct cpu *d, struct model_batch *b, int n, int pos)
{
    struct batch_space *s = &d->batch;
    int i = b->rows.n_segments++;
    ASSERT(i < d->device.conf.segments && b->rows.N + n <= d->device.conf.rows);
    ASSERT(pos + n <= d->model.positions);
    s->segment[i] =
        (struct model_segment){.row = b->rows.N, .n = n, .pos = pos, .block = s->seq[i].block};
    s->prompt_of[i] = -1;
    b->rows.N += n;
    return i;
}

static void lay_prompts(struct cpu *d, const struct device_batch *a, struct model_batch *b)
{
    for (int g = 0; g < a->n_groups; g++) {
        const struct device_tokens *p = &a->group[g].prompt;
        ASSERT(p->n >= 1);
        if (p->n == 1)
            continue;
        memcpy(d->batch.token + b->rows.N, p->token, (size_t)(p->n - 1) * sizeof *p->token);
        add_segment(d, b, p->n - 1, 0);
    }
    b->prompt_rows = b->rows.N;
}

/* A sample's rows: the last prompt token, then its tokens but the last; targets are its tokens. */
static void lay_sample(struct cpu *d, const struct device_group *g,
                       const struct device_tokens *sample, int prompt, int loss_at,
                       struct model_batch *b)
{
    struct batch_space *s = &d->batch;
    int row = b->rows.N, i = add_segment(d, b, sample->n, g->prompt.n - 1);
    s->token[row] = g->prompt.token[g->prompt.n - 1];
    memcpy(s->token + row + 1, sample->token, (size_t)(sample->n - 1) * sizeof *sample->token);
    memcpy(s->target + row, sample->token, (size_t)sample->n * sizeof *sample->token);
    s->prompt_of[i] = prompt;
    s->loss_row[i] = loss_at;
    s->order[b->n_order++] = i;
}

static struct model_batch lay_out(struct cpu *d, const struct device_batch *a)
{
    struct batch_space *s = &d->batch;
    struct model_batch b = {.rows = {.token = s->token, .segment = s->segment},
                            .prompt_of = s->prompt_of,
                            .is_first = a->first,
                            .is_last = a->last,
                            .order = s->order,
                            .target = s->target,
                            .inv_temperature = 1 / a->temperature};
    int prompt = 0, loss_at = 0;

    lay_prompts(d, a, &b);
    for (int g = 0; g < a->n_groups; g++) {
        const struct device_group *group = &a->group[g];
        bool has_prompt = group->prompt.n > 1;
        for (int i = 0; i < group->n_samples; i++) {
            lay_sample(d, group, &group->sample[i], has_prompt ? prompt : -1, loss_at, &b);
            loss_at += group->sample[i].n;
        }
        if (has_prompt && a->last)
            s->order[b.n_order++] = prompt;
        prompt += has_prompt;
    }
    return b;
}

/* Prompts through the layers, unless kept; then every sample's view of its prompt. */
static void run_prompts(struct cpu *d, const struct device_batch *a, const struct model_batch *b,
                        struct acts *acts)
{
    struct batch_space *s = &d->batch;
    const struct model_weights *w = cpu_set(d, a->set);
    int n_prompts = 0;

    while (n_prompts < b->rows.n_segments && s->segment[n_prompts].row < b->prompt_rows)
        n_prompts++;
    for (int i = a->first ? 0 : n_prompts; i < d->device.conf.segments; i++)
        kv_drop(&d->train_kv, &s->seq[i]);
    if (a->first && n_prompts > 0) {
        struct model_rows prompts = {
            .N = b->prompt_rows, .token = s->token, .n_segments = n_prompts, .segment = s->segment};
        for (int i = 0; i < n_prompts; i++) {
            bool room = kv_reserve(&d->train_kv, &s->seq[i], s->segment[i].n);
            ASSERT(room);
        }
        model_forward(&d->model, w, &d->train_kv, &prompts, 0, b->prompt_rows, acts);
    }
    for (int i = n_prompts; i < b->rows.n_segments; i++) {
        bool room = true;
        if (s->prompt_of[i] >= 0)
            room = kv_fork(&d->train_kv, &s->seq[s->prompt_of[i]], s->segment[i].pos, &s->seq[i]);
        room = room && kv_reserve(&d->train_kv, &s->seq[i], s->segment[i].pos + s->segment[i].n);
        ASSERT(room);
    }
}

/* The most likely token of every sample row: a pass of its own over the vocabulary. */
struct best_job {
    struct cpu *d;
    const struct device_batch *a;
    const struct model_batch *b;
    const struct acts *acts;
};

static void best_share(void *ctx, int ith, int nth)
{
    const struct best_job *j = ctx;
    const struct batch_space *s = &j->d->batch;
    const struct model_weights *w = cpu_set(j->d, j->a->set);
    size_t lo, hi;
    pool_split((size_t)(j->b->rows.N - j->b->prompt_rows), 1, ith, nth, &lo, &hi);
    lo += (size_t)j->b->prompt_rows;
    hi += (size_t)j->b->prompt_rows;
    for (int i = 0; i < j->b->rows.n_segments; i++) {
        const struct model_segment *seg = &s->segment[i];
        int first = MAX((int)lo, seg->row), limit = MIN((int)hi, seg->row + seg->n);
        for (int row = first; row < limit; row++)
            j->a->best[s->loss_row[i] + row - seg->row] =
                model_draw(&j->d->model, w, j->acts, row, 0, j->b->inv_temperature, true, ith)
                    .token;
    }
}

static void report(struct cpu *d, const struct device_batch *a, const struct model_batch *b,
                   const struct acts *acts)
{
    const struct batch_space *s = &d->batch;
    struct best_job best = {.d = d, .a = a, .b = b, .acts = acts};
    for (int i = 0; i < b->rows.n_segments; i++) {
        const struct model_segment *seg = &s->segment[i];
        if (seg->row < b->prompt_rows)
            continue;
        for (int j = 0; j < seg->n; j++) {
            const struct token_stat *t = &s->stat[seg->row + j];
            a->logprob[s->loss_row[i] + j] = t->logprob;
            if (a->entropy)
                a->entropy[s->loss_row[i] + j] = t->entropy;
        }
    }
    if (a->best)
        pool_run(d->pool, best_share, &best);
}

int cpu_score(struct cpu *d, struct device_batch *a, struct err *e)
{
    (void)e;
    struct model_batch b = lay_out(d, a);
    run_prompts(d, a, &b, &d->acts);
    model_batch_forward(&d->model, cpu_set(d, a->set), &d->train_kv, &b, &d->acts, d->batch.stat);
    report(d, a, &b, &d->acts);
    return 0;
}

int cpu_accumulate(struct cpu *d, struct device_batch *a, struct err *e)
{
    (void)e;
    struct batch_space *s = &d->batch;
    const struct model_weights *w = cpu_set(d, DEVICE_POLICY);
    struct model_batch b = lay_out(d, a);

    ASSERT(d->device.conf.trainable && a->set == DEVICE_POLICY);
    ASSERT(d->n_embed + (size_t)b.rows.N <= (size_t)d->device.conf.leaf_tokens);
    run_prompts(d, a, &b, &d->train_acts);
    model_batch_forward(&d->model, w, &d->train_kv, &b, &d->train_acts, s->stat);
    report(d, a, &b, &d->train_acts);
    for (int i = 0; i < b.rows.n_segments; i++) {
        const struct model_segment *seg = &s->segment[i];
        if (seg->row >= b.prompt_rows)
            memcpy(s->coef + seg->row, a->coef + s->loss_row[i], (size_t)seg->n * sizeof *s->coef);
    }
    d->n_embed += (size_t)model_batch_backward(
        &d->model, w, &d->train_kv, &b, &d->train_acts, s->stat, s->coef, &d->grads,
        d->gradient[a->gradient], d->embed_tokens + d->n_embed,
        d->embed_rows + d->n_embed * (size_t)d->model.conf.D);
    return 0;
}

int cpu_leaf_end(struct cpu *d, struct device_slice *s, struct err *e)
{
    (void)e;
    model_embed_scatter(&d->model, d->embed_tokens, d->embed_rows, d->n_embed,
                        d->gradient[s->buffer]);
    d->n_embed = 0;
    return 0;
}
