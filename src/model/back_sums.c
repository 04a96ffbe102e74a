/* Gradients of matrices and vectors, summed over rows in an order of their own; see back_int.h.
 */
#include "model/model.h"

#include "model/back_int.h"

#include <string.h>

/* ---- matrices ---- */

void model_back_input(const struct back *k, const bf16 *x, int width)
{
    const struct pass *p = &k->pass;
    size_t lo, hi;
    pool_split((size_t)kern_panels(p->m->kern, width), 1, p->ith, p->nth, &lo, &hi);
    p->m->kern->pack_segments(k->g->packed, x, (size_t)width, width, k->g->order, k->n_order,
                              (int)lo, (int)hi);
}

void model_back_weights(const struct back *k, const bf16 *dy, size_t ldy, int n_out, int n_in,
                        float *dw)
{
    const struct pass *p = &k->pass;
    size_t lo, hi;
    pool_split((size_t)n_out, 32, p->ith, p->nth, &lo, &hi);
    if (lo < hi)
        p->m->kern->wgrad(&(struct wgrad){.dy = dy,
                                          .ldy = ldy,
                                          .segment = k->g->order,
                                          .n_segments = k->n_order,
                                          .x = k->g->packed,
                                          .n_in = n_in,
                                          .out_lo = (int)lo,
                                          .out_hi = (int)hi,
                                          .dw = dw,
                                          .ld_dw = (size_t)n_in,
                                          .scratch = p->m->scratch[p->ith]});
}

void model_back_matrix(const struct back *k, int which, const bf16 *x, const bf16 *dy)
{
    const struct pass *p = &k->pass;
    const struct model_matrix *w = &p->m->params.layer[p->layer].matrix[which];
    model_meet(p);
    model_back_input(k, x, w->k);
    model_product(p, dy, p->w->bwd[p->layer * MATRICES + which], k->g->wide, w->k, w->n,
                  GEMM_STORE);
    model_meet(p);
    model_back_weights(k, dy, (size_t)w->n, w->n, w->k, k->grad + w->offset);
}

/* ---- vectors ---- */

static int steps_of(const struct segment *s)
{
    return (s->n + GEMM_STEP - 1) / GEMM_STEP;
}

/* The rows of step `step` of the order. */
static struct segment step_rows(const struct back *k, int step)
{
    const struct segment *s = k->g->order;
    while (step >= steps_of(s))
        step -= steps_of(s++);
    int first = step * GEMM_STEP;
    return (struct segment){.row = s->row + first, .n = MIN(GEMM_STEP, s->n - first)};
}

/* Sums of this thread's steps. */
static void sum_steps(const struct back *k, back_row_fn fn, int steps)
{
    const struct pass *p = &k->pass;
    const struct grads *g = k->g;
    size_t lo, hi;
    pool_split((size_t)steps, 1, p->ith, p->nth, &lo, &hi);
    for (size_t i = lo; i < hi; i++) {
        float *sum = g->steps + i * (size_t)g->step_width;
        struct segment s = step_rows(k, (int)i);
        memset(sum, 0, (size_t)g->step_width * sizeof *sum);
        for (int row = s.row; row < s.row + s.n; row++)
            fn(k, row, sum, model_tmp(p->m, p->ith));
    }
}

/* All steps' sums onto this thread's part of each vector. */
static void add_steps(const struct back *k, int steps)
{
    const struct pass *p = &k->pass;
    size_t at = 0, lo, hi;
    for (int v = 0; v < BACK_VECTORS; at += (size_t)k->vector[v++].width) {
        pool_split((size_t)k->vector[v].width, 16, p->ith, p->nth, &lo, &hi);
        const float *sum = k->g->steps + at + lo;
        for (int s = 0; s < steps && lo < hi; s++, sum += k->g->step_width)
            p->m->kern->add(k->vector[v].grad + lo, sum, hi - lo);
    }
}

void model_back_rows(const struct back *k, back_row_fn fn)
{
    int steps = 0;
    for (int i = 0; i < k->n_order; i++)
        steps += steps_of(&k->g->order[i]);
    ASSERT(steps <= k->g->steps_max);
    sum_steps(k, fn, steps);
    model_meet(&k->pass);
    add_steps(k, steps);
}

void model_back_rows1(struct back *k, size_t offset, int width, back_row_fn fn)
{
    memset(k->vector, 0, sizeof k->vector);
    k->vector[0].grad = k->grad + offset;
    k->vector[0].width = width;
    model_back_rows(k, fn);
}
