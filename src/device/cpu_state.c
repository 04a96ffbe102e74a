/* The CPU device's calls on weights, gradients and optimizer state: slices of the flat space.
 */
#include "device/device.h"

#include "device/cpu_int.h"
#include "base/file.h"

#include <string.h>

static float *buffer_at(struct cpu *d, int buffer, size_t lo, size_t hi)
{
    ASSERT(buffer >= 0 && buffer < d->device.conf.gradients);
    ASSERT(lo <= hi && hi <= d->device.n_elements);
    return d->gradient[buffer] + lo;
}

/* A slice operation split over threads at 64-element borders. */
struct slice_job {
    struct cpu *d;
    float *y;
    const float *x;
    size_t n;
    struct device_sumsq *sumsq;
    struct device_apply *apply;
    size_t *partial; // (threads)
};

static void zero_share(void *ctx, int ith, int nth)
{
    struct slice_job *j = ctx;
    size_t lo, hi;
    pool_split(j->n, 64, ith, nth, &lo, &hi);
    memset(j->y + lo, 0, (hi - lo) * sizeof *j->y);
}

int cpu_grad_zero(struct cpu *d, struct device_slice *s, struct err *e)
{
    (void)e;
    struct slice_job job = {.d = d, .y = buffer_at(d, s->buffer, s->lo, s->hi), .n = s->hi - s->lo};
    pool_run(d->pool, zero_share, &job);
    return 0;
}

static void fold_share(void *ctx, int ith, int nth)
{
    struct slice_job *j = ctx;
    size_t lo, hi;
    pool_split(j->n, 64, ith, nth, &lo, &hi);
    j->d->model.kern->fold(j->y + lo, j->y + lo, j->x + lo, hi - lo);
}

int cpu_grad_fold(struct cpu *d, struct device_fold *f, struct err *e)
{
    (void)e;
    struct slice_job job = {.d = d,
                            .y = buffer_at(d, f->into, f->lo, f->hi),
                            .x = buffer_at(d, f->from, f->lo, f->hi),
                            .n = f->hi - f->lo};
    pool_run(d->pool, fold_share, &job);
    return 0;
}

int cpu_grad_read(struct cpu *d, struct device_slice *s, struct err *e)
{
    (void)e;
    memcpy(s->data, buffer_at(d, s->buffer, s->lo, s->hi), (s->hi - s->lo) * sizeof *s->data);
    return 0;
}

int cpu_grad_write(struct cpu *d, struct device_slice *s, struct err *e)
{
    (void)e;
    memcpy(buffer_at(d, s->buffer, s->lo, s->hi), s->data, (s->hi - s->lo) * sizeof *s->data);
    return 0;
}

static void sumsq_share(void *ctx, int ith, int nth)
{
    struct slice_job *j = ctx;
    const struct kern *kern = j->d->model.kern;
    struct device_sumsq *s = j->sumsq;
    size_t lo, hi, bad;
    j->partial[ith] = SIZE_MAX;
    pool_split(s->hi - s->lo, SUMSQ_BLOCK, ith, nth, &lo, &hi);
    for (size_t at = lo; at < hi; at += SUMSQ_BLOCK) {
        size_t n = MIN((size_t)SUMSQ_BLOCK, hi - at);
        s->block[at / SUMSQ_BLOCK] = kern->sumsq(j->x + at, n);
        if (j->partial[ith] == SIZE_MAX && !kern->finite(j->x + at, n, &bad))
            j->partial[ith] = s->lo + at + bad;
    }
}

int cpu_sumsq(struct cpu *d, struct device_sumsq *s, struct err *e)
{
    (void)e;
    int threads = pool_threads(d->pool);
    size_t *bad = mem_calloc((size_t)threads, sizeof *bad);
    ASSERT(s->lo % SUMSQ_BLOCK == 0);
    struct slice_job job = {
        .d = d, .x = buffer_at(d, s->buffer, s->lo, s->hi), .sumsq = s, .partial = bad};
    pool_run(d->pool, sumsq_share, &job);
    s->bad = SIZE_MAX;
    for (int i = threads - 1; i >= 0; i--)
        s->bad = MIN(s->bad, bad[i]);
    mem_free(bad);
    return 0;
}

/* ---- the update ---- */

enum { APPLY_PIECE = 4096 }; // it divides SUMSQ_BLOCK

/* AdamW on the tensors' parts of [lo, hi). */
static void step_piece(struct cpu *d, const struct device_apply *a, size_t lo, size_t hi)
{
    const struct model_params *p = &d->model.params;
    const struct model_param *q = model_param_at(p, lo), *end = p->param + p->n;
    for (; q < end && q->offset < hi; q++) {
        size_t first = MAX(lo, q->offset);
        size_t limit = MIN(hi, q->offset + (size_t)q->rows * (size_t)q->cols);
        if (first < limit)
            d->model.kern->adamw(d->master + first, d->m + first, d->v + first,
                                 d->set[DEVICE_POLICY].flat + first, d->gradient[a->buffer] + first,
                                 limit - first, &a->adamw, !q->is_vector);
    }
}

/* The same, adding to the block's sums of squares; returns how many bf16 weights changed. */
static size_t apply_piece(struct cpu *d, const struct device_apply *a, size_t lo, size_t hi)
{
    bf16 before[APPLY_PIECE], *flat = d->set[DEVICE_POLICY].flat + lo;
    float move[APPLY_PIECE], *master = d->master + lo;
    size_t changed = 0, n = hi - lo, block = (lo - a->lo) / SUMSQ_BLOCK;
    memcpy(before, flat, n * sizeof *before);
    memcpy(move, master, n * sizeof *move);
    step_piece(d, a, lo, hi);
    for (size_t i = 0; i < n; i++) {
        changed += before[i] != flat[i];
        move[i] = master[i] - move[i];
    }
    a->master_sq[block] += d->model.kern->sumsq(master, n);
    a->move_sq[block] += d->model.kern->sumsq(move, n);
    return changed;
}

static void apply_share(void *ctx, int ith, int nth)
{
    struct slice_job *j = ctx;
    const struct device_apply *a = j->apply;
    size_t lo, hi, changed = 0;
    pool_split(j->n, SUMSQ_BLOCK, ith, nth, &lo, &hi);
    for (size_t at = lo; at < hi; at += APPLY_PIECE) {
        if (at % SUMSQ_BLOCK == 0)
            a->master_sq[at / SUMSQ_BLOCK] = a->move_sq[at / SUMSQ_BLOCK] = 0;
        changed += apply_piece(j->d, a, a->lo + at, a->lo + MIN(at + APPLY_PIECE, hi));
    }
    j->partial[ith] = changed;
}

int cpu_apply(struct cpu *d, struct device_apply *a, struct err *e)
{
    (void)e;
    int threads = pool_threads(d->pool);
    size_t *changed = mem_calloc((size_t)threads, sizeof *changed);
    (void)buffer_at(d, a->buffer, a->lo, a->hi);
    struct slice_job job = {.d = d, .n = a->hi - a->lo, .apply = a, .partial = changed};
    pool_run(d->pool, apply_share, &job);
    a->changed = 0;
    for (int i = 0; i < threads; i++)
        a->changed += changed[i];
    mem_free(changed);
    return 0;
}

/* ---- reading and writing ---- */

static float *state_at(struct cpu *d, const struct device_floats *f)
{
    ASSERT(d->device.conf.trainable && f->lo <= f->hi && f->hi <= d->device.n_elements);
    float *const base[] = {
        [DEVICE_MASTER] = d->master, [DEVICE_MOMENT1] = d->m, [DEVICE_MOMENT2] = d->v};
    return base[f->state] + f->lo;
}

int cpu_state_read(struct cpu *d, struct device_floats *f, struct err *e)
{
    (void)e;
    memcpy(f->data, state_at(d, f), (f->hi - f->lo) * sizeof *f->data);
    return 0;
}

int cpu_state_write(struct cpu *d, struct device_floats *f, struct err *e)
{
    (void)e;
    memcpy(state_at(d, f), f->data, (f->hi - f->lo) * sizeof *f->data);
    return 0;
}

int cpu_weights_read(struct cpu *d, struct device_weights *w, struct err *e)
{
    (void)e;
    ASSERT(w->lo <= w->hi && w->hi <= d->device.n_elements);
    memcpy(w->data, cpu_set(d, w->set)->flat + w->lo, (w->hi - w->lo) * sizeof *w->data);
    return 0;
}

int cpu_weights_write(struct cpu *d, struct device_weights *w, struct err *e)
{
    (void)e;
    ASSERT(w->lo <= w->hi && w->hi <= d->device.n_elements);
    memcpy(cpu_set(d, w->set)->flat + w->lo, w->data, (w->hi - w->lo) * sizeof *w->data);
    return 0;
}

int cpu_weights_pack(struct cpu *d, struct device_weights *w, struct err *e)
{
    (void)e;
    model_weights_pack(&d->model, cpu_set(d, w->set));
    return 0;
}

int cpu_checksum(struct cpu *d, struct device_weights *w, struct err *e)
{
    (void)e;
    w->checksum = file_crc32(0, cpu_set(d, w->set)->flat, d->device.n_elements * sizeof(bf16));
    return 0;
}

struct peak_job {
    const struct kern *kern;
    int64_t rounds;
    double *flops; // (threads)
};

static void peak_share(void *ctx, int ith, int nth)
{
    const struct peak_job *j = ctx;
    (void)nth;
    j->flops[ith] = j->kern->peak(j->rounds);
}

int cpu_peak(struct cpu *d, struct device_peak *p, struct err *e)
{
    (void)e;
    int threads = pool_threads(d->pool);
    double *flops = mem_calloc((size_t)threads, sizeof *flops);
    struct peak_job job = {.kern = d->model.kern, .rounds = p->rounds, .flops = flops};
    pool_run(d->pool, peak_share, &job);
    p->flops = 0;
    for (int i = 0; i < threads; i++)
        p->flops += flops[i];
    mem_free(flops);
    return 0;
}
