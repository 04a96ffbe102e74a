/* All matrix products of a pass through a model, one after the other, with nothing between them:
 * what the pass would take if it were its products alone. Every matrix has its own weights, as in
 * the model, so that they come from where the model's come from.
 */
#include "cli/cli.h"

#include "cli/bench_int.h"

struct products {
    struct bench_shape shape;
    struct arena arena;
    struct model model;
    struct model_weights weights;
    struct segment *segment; // (n_segments)
    int n_segments;
    bf16 *x;      // (rows, widest)
    float **y;    // (threads) (rows, widest)
    void *packed; // x for weight gradients
    float *dw;    // (largest matrix)
    double flops, bytes;
};

static void carve(struct products *p, const struct bench *b, const struct model_config *f,
                  struct pool *pool, struct carve *c)
{
    enum { POSITIONS = 1 };
    const struct bench_shape *s = &p->shape;
    size_t rows = (size_t)s->rows;
    int depth = s->rows / s->segment * (int)round_up((size_t)s->segment, GEMM_STEP) +
                (int)round_up((size_t)(s->rows % s->segment), GEMM_STEP);
    int qkv = (f->H + 2 * f->G) * f->E, inputs = MAX(MAX(f->D, f->F), f->H * f->E);
    int outputs = MAX(MAX(2 * f->F, qkv), VOCAB_CHUNK);
    size_t widest = (size_t)MAX(inputs, outputs);

    model_carve(&p->model, f, b->kern, pool, b->threads, POSITIONS, c);
    model_weights_carve(&p->weights, &p->model, s->backward, c);
    p->segment = carve_take(c, rows * sizeof *p->segment);
    p->x = carve_take(c, rows * widest * sizeof *p->x);
    p->packed = carve_take(c, kern_packed_bytes(b->kern, inputs, depth));
    p->dw = carve_take(c, (size_t)inputs * (size_t)outputs * sizeof *p->dw);
    p->y = carve_take(c, (size_t)b->threads * sizeof *p->y);
    for (int i = 0; i < b->threads; i++) {
        float *y = carve_take(c, rows * widest * sizeof *y);
        if (c->arena)
            p->y[i] = y;
    }
}

/* ---- one product ---- */

/* This thread's share of (rows, k) times (k, n). */
static void multiply(const struct products *p, const void *packed, int rows, int n, int k, int ith,
                     int nth)
{
    kern_gemm_part(p->model.kern,
                   &(struct gemm){.a = p->x,
                                  .lda = (size_t)k,
                                  .b = packed,
                                  .c = p->y[ith],
                                  .ldc = (size_t)n,
                                  .m = rows,
                                  .n = n,
                                  .k = k,
                                  .mode = GEMM_STORE,
                                  .scratch = p->model.scratch[ith]},
                   ith, nth);
}

/* The gradient of (n, k) weights over the first `rows` rows. */
static void weight_gradient(const struct products *p, int rows, int n, int k, int ith, int nth)
{
    const struct kern *kern = p->model.kern;
    int n_segments = 0;
    size_t lo, hi;
    while (n_segments < p->n_segments && p->segment[n_segments].row < rows)
        n_segments++;
    pool_split((size_t)n, (size_t)kern->panel, ith, nth, &lo, &hi);
    if (lo < hi)
        kern->wgrad(&(struct wgrad){.dy = p->x,
                                    .ldy = (size_t)n,
                                    .segment = p->segment,
                                    .n_segments = n_segments,
                                    .x = p->packed,
                                    .n_in = k,
                                    .out_lo = (int)lo,
                                    .out_hi = (int)hi,
                                    .dw = p->dw,
                                    .ld_dw = (size_t)k,
                                    .scratch = p->model.scratch[ith]});
}

/* ---- all of them ---- */

/* Calls `each` for every matrix of the pass, head chunks too: which of the packed ones it is. */
typedef void (*each_fn)(struct products *p, const void *fwd, const void *bwd, int rows, int n,
                        int k, int ith, int nth);

static void for_each(struct products *p, each_fn each, int ith, int nth)
{
    const struct model *m = &p->model;
    const struct model_weights *w = &p->weights;
    bool stops = p->shape.head_rows == 0;
    int n_matrices = m->conf.L * MATRICES - (stops ? MATRICES - 1 : 0);
    for (int i = 0; i < n_matrices; i++) {
        const struct model_matrix *x = &m->params.layer[i / MATRICES].matrix[i % MATRICES];
        each(p, w->fwd[i], w->bwd ? w->bwd[i] : NULL, p->shape.rows, x->n, x->k, ith, nth);
    }
    for (int i = 0; i < (stops ? 0 : m->chunks); i++)
        each(p, w->head_fwd[i], w->head_bwd ? w->head_bwd[i] : NULL, p->shape.head_rows,
             MIN(VOCAB_CHUNK, m->conf.V - i * VOCAB_CHUNK), m->conf.D, ith, nth);
}

static void run_one(struct products *p, const void *fwd, const void *bwd, int rows, int n, int k,
                    int ith, int nth)
{
    multiply(p, fwd, rows, n, k, ith, nth);
    if (!bwd)
        return;
    multiply(p, bwd, rows, k, n, ith, nth);
    weight_gradient(p, rows, n, k, ith, nth);
}

static void count_one(struct products *p, const void *fwd, const void *bwd, int rows, int n, int k,
                      int ith, int nth)
{
    (void)fwd;
    (void)ith;
    (void)nth;
    p->flops += 2.0 * rows * n * k * (bwd ? 3 : 1);
    p->bytes += 2.0 * n * k * (bwd ? 2 : 1);
}

static void all_share(void *ctx, int ith, int nth)
{
    for_each(ctx, run_one, ith, nth);
}

static void run_all(void *ctx)
{
    struct products *p = ctx;
    pool_run(p->model.pool, all_share, p);
}

static void fill(struct products *p)
{
    const struct model *m = &p->model;
    const struct bench_shape *s = &p->shape;
    bench_noise(p->weights.flat, 0, m->params.count);
    model_weights_pack(m, &p->weights);
    bench_noise(p->x, 1, (size_t)s->rows * (size_t)MAX(2 * m->conf.F, m->conf.D));
    for (int row = 0; row < s->rows; row += s->segment)
        p->segment[p->n_segments++] =
            (struct segment){.row = row, .n = MIN(s->segment, s->rows - row)};
}

int bench_products(const struct bench *b, const struct model_config *c, struct bench_shape shape,
                   struct bench_products *out, struct err *e)
{
    int rc = 0;
    struct products p = {.shape = shape};
    struct pool *pool = pool_new(b->threads);
    struct carve memory = {0};
    carve(&p, b, c, pool, &memory);
    model_release(&p.model);
    TRY(arena_init(&p.arena, "matrix products", memory.used, e));
    memory = (struct carve){.arena = &p.arena};
    carve(&p, b, c, pool, &memory);
    fill(&p);
    for_each(&p, count_one, 0, 1);
    *out = (struct bench_products){.flops = p.flops, .bytes = p.bytes};
    for (int i = 0; i < BENCH_SWEEPS; i++)
        bench_improve(b, &out->time, run_all, &p);
fail:
    model_release(&p.model);
    pool_free(pool);
    arena_release(&p.arena);
    return rc;
}
