/* Gradients of matrices and vectors, summed over rows in an order of their own; see back_int.h.
 */
#include "model/model.h"

#include "model/back_int.h"

#include <string.h>

/* ---- matrices ---- */

static void pack_share(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    const struct kern *kern = k->pass.m->kern;
    size_t lo, hi;
    pool_split((size_t)kern_panels(kern, k->in.width), 1, ith, nth, &lo, &hi);
    kern->pack_segments(k->g->packed, k->in.x, (size_t)k->in.width, k->in.width, k->g->order,
                        k->n_order, (int)lo, (int)hi);
}

void model_back_input(struct back *k, const bf16 *x, int width)
{
    k->in.x = x;
    k->in.width = width;
    pool_run(k->pass.m->pool, pack_share, k);
}

struct weights_job {
    const struct model *m;
    struct wgrad wgrad;
    int n_out;
};

static void weights_share(void *ctx, int ith, int nth)
{
    const struct weights_job *j = ctx;
    struct wgrad w = j->wgrad;
    size_t lo, hi;
    pool_split((size_t)j->n_out, 32, ith, nth, &lo, &hi);
    w.out_lo = (int)lo;
    w.out_hi = (int)hi;
    w.scratch = j->m->scratch[ith];
    if (lo < hi)
        j->m->kern->wgrad(&w);
}

void model_back_weights(struct back *k, const bf16 *dy, size_t ldy, int n_out, float *dw)
{
    struct weights_job job = {.m = k->pass.m,
                              .n_out = n_out,
                              .wgrad = {.dy = dy,
                                        .ldy = ldy,
                                        .segment = k->g->order,
                                        .n_segments = k->n_order,
                                        .x = k->g->packed,
                                        .n_in = k->in.width,
                                        .dw = dw,
                                        .ld_dw = (size_t)k->in.width}};
    pool_run(job.m->pool, weights_share, &job);
}

void model_back_matrix(struct back *k, int which, const bf16 *x)
{
    const struct model *m = k->pass.m;
    const struct model_matrix *w = &m->params.layer[k->pass.layer].matrix[which];
    int lo = k->pass.lo;
    model_back_input(k, x, w->k);
    model_back_weights(k, k->g->dy, (size_t)w->n, w->n, k->grad + w->offset);
    model_product(m, k->g->dy + (size_t)lo * (size_t)w->n, (size_t)w->n,
                  k->pass.w->bwd[k->pass.layer * MATRICES + which],
                  k->g->wide + (size_t)lo * (size_t)w->k, k->b->rows.N - lo, w->k, w->n,
                  GEMM_STORE);
}

/* ---- vectors ---- */

static int steps_of(const struct segment *s)
{
    return (s->n + KV_BLOCK - 1) / KV_BLOCK;
}

/* The rows of step `step` of the order. */
static struct segment step_rows(const struct back *k, int step)
{
    const struct segment *s = k->g->order;
    while (step >= steps_of(s))
        step -= steps_of(s++);
    int first = step * KV_BLOCK;
    return (struct segment){.row = s->row + first, .n = MIN(KV_BLOCK, s->n - first)};
}

struct steps_job {
    const struct back *k;
    back_row_fn fn;
    int steps;
};

static void steps_share(void *ctx, int ith, int nth)
{
    const struct steps_job *j = ctx;
    const struct grads *g = j->k->g;
    size_t lo, hi;
    pool_split((size_t)j->steps, 1, ith, nth, &lo, &hi);
    for (size_t i = lo; i < hi; i++) {
        float *sum = g->steps + i * (size_t)g->step_width;
        struct segment s = step_rows(j->k, (int)i);
        memset(sum, 0, (size_t)g->step_width * sizeof *sum);
        for (int row = s.row; row < s.row + s.n; row++)
            j->fn(j->k, row, sum, model_tmp(j->k->pass.m, ith));
    }
}

static void add_steps_share(void *ctx, int ith, int nth)
{
    const struct steps_job *j = ctx;
    const struct back *k = j->k;
    size_t at = 0, lo, hi;
    for (int v = 0; v < BACK_VECTORS; at += (size_t)k->vector[v++].width) {
        pool_split((size_t)k->vector[v].width, 16, ith, nth, &lo, &hi);
        const float *sum = k->g->steps + at + lo;
        for (int s = 0; s < j->steps && lo < hi; s++, sum += k->g->step_width)
            k->pass.m->kern->add(k->vector[v].grad + lo, sum, hi - lo);
    }
}

void model_back_rows(struct back *k, back_row_fn fn)
{
    struct steps_job job = {.k = k, .fn = fn};
    for (int i = 0; i < k->n_order; i++)
        job.steps += steps_of(&k->g->order[i]);
    ASSERT(job.steps <= k->g->steps_max);
    pool_run(k->pass.m->pool, steps_share, &job);
    pool_run(k->pass.m->pool, add_steps_share, &job);
}

void model_back_rows1(struct back *k, size_t offset, int width, back_row_fn fn)
{
    memset(k->vector, 0, sizeof k->vector);
    k->vector[0].grad = k->grad + offset;
    k->vector[0].width = width;
    model_back_rows(k, fn);
}
