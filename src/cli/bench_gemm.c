/* Single matrix products, warm: operands lie where their size lets them lie after the last round,
 * as they do in a run of many micro-batches. Then the gradients of the same weights over rows in
 * long segments and in short ones.
 */
#include "cli/cli.h"

#include "cli/bench_int.h"

#include <string.h>

/* The linears of a layer, by (outputs, inputs), and a chunk of the head. */
static const struct shape {
    const char *model, *matrix;
    int n, k;
} SHAPES[] = {
    {"SmolLM2-135M", "q k v", 960, 576},       {"SmolLM2-135M", "o", 576, 576},
    {"SmolLM2-135M", "gate up", 3072, 576},    {"SmolLM2-135M", "down", 576, 1536},
    {"SmolLM2-135M", "head chunk", 1024, 576}, {"Qwen3-0.6B", "q k v", 4096, 1024},
    {"Qwen3-0.6B", "o", 1024, 2048},           {"Qwen3-0.6B", "gate up", 6144, 1024},
    {"Qwen3-0.6B", "down", 1024, 3072},        {"Qwen3-0.6B", "head chunk", 1024, 1024},
};
static const int ROWS[] = {1, 8, 64, 512, 2048};
static const int SEGMENTS[] = {64, 7}; // rows of each of the gradient's
enum { ROWS_MAX = 2048, N_MAX = 6144, K_MAX = 3072, NK_MAX = 6144 * 1024, GRAD_ROWS = 512 };

struct job {
    const struct kern *kern;
    struct pool *pool;
    struct arena arena;
    bf16 *x;        // (ROWS_MAX, K_MAX)
    bf16 *w;        // (NK_MAX)
    void *packed;   // (NK_MAX) and zeros around
    float *y;       // (ROWS_MAX, N_MAX)
    void **scratch; // (threads)
    struct gemm gemm;
    struct segment segment[GRAD_ROWS];
    void *packed_x; // (GRAD_ROWS, K_MAX), each row at worst a step of its own
    struct wgrad wgrad;
};

/* Steps of 32 rows that GRAD_ROWS can take, cut as SEGMENTS says. */
enum { PACKED_ROWS = (GRAD_ROWS / 7 + 1) * GEMM_STEP };

static size_t carve(struct job *j, int threads, struct carve *c)
{
    size_t scratch_bytes = j->kern->scratch_bytes(K_MAX, KV_BLOCK);
    j->x = carve_take(c, (size_t)ROWS_MAX * K_MAX * sizeof *j->x);
    j->w = carve_take(c, (size_t)NK_MAX * sizeof *j->w);
    j->packed = carve_take(c, kern_packed_bytes(j->kern, N_MAX, 1024));
    j->packed_x = carve_take(c, kern_packed_bytes(j->kern, K_MAX, PACKED_ROWS));
    j->y = carve_take(c, (size_t)ROWS_MAX * N_MAX * sizeof *j->y);
    j->scratch = carve_take(c, (size_t)threads * sizeof *j->scratch);
    for (int i = 0; i < threads; i++) {
        void *scratch = carve_take(c, scratch_bytes);
        if (c->arena)
            j->scratch[i] = scratch;
    }
    return c->used;
}

static void gemm_share(void *ctx, int ith, int nth)
{
    const struct job *j = ctx;
    struct gemm g = j->gemm;
    g.scratch = j->scratch[ith];
    kern_gemm_part(j->kern, &g, ith, nth);
}

static void run_gemm(void *ctx)
{
    struct job *j = ctx;
    pool_run(j->pool, gemm_share, j);
}

static void wgrad_share(void *ctx, int ith, int nth)
{
    const struct job *j = ctx;
    struct wgrad g = j->wgrad;
    size_t lo, hi;
    pool_split((size_t)j->gemm.n, (size_t)j->kern->panel, ith, nth, &lo, &hi);
    g.out_lo = (int)lo;
    g.out_hi = (int)hi;
    g.scratch = j->scratch[ith];
    if (lo < hi)
        j->kern->wgrad(&g);
}

static void run_wgrad(void *ctx)
{
    struct job *j = ctx;
    pool_run(j->pool, wgrad_share, j);
}

/* A row of the table; segment 0: a product. */
static void put(const struct bench *b, json_t *rows, const struct shape *s, int n_rows, int segment,
                struct bench_time t)
{
    json_t *row = json_object();
    double flops = 2.0 * n_rows * s->n * s->k, bytes = 2.0 * s->n * s->k;
    double seconds = bench_s(b, t);
    json_object_set_new(row, "model", json_string(s->model));
    json_object_set_new(row, "matrix", json_string(s->matrix));
    json_object_set_new(row, "n", json_integer(s->n));
    json_object_set_new(row, "k", json_integer(s->k));
    json_object_set_new(row, "what", json_string(segment ? "gradient" : "product"));
    json_object_set_new(row, "rows", json_integer(n_rows));
    json_object_set_new(row, "segment", json_integer(segment ? segment : n_rows));
    bench_put(row, "gflops", flops / seconds * 1e-9);
    bench_put(row, "of_fma", flops / seconds / b->flops);
    bench_put(row, "of_read", bytes / seconds / b->bytes);
    bench_put_ms(row, t);
    json_array_append_new(rows, row);
}

/* What a shape took: its products, then its gradients. */
struct times {
    struct bench_time product[ARRAY_LEN(ROWS)], gradient[ARRAY_LEN(SEGMENTS)];
};

static void products(const struct bench *b, struct job *j, const struct shape *s, struct times *t)
{
    b->kern->pack_nk(j->packed, j->w, (size_t)s->k, s->n, s->k, 0, kern_panels(b->kern, s->n));
    j->gemm = (struct gemm){.a = j->x,
                            .lda = (size_t)s->k,
                            .b = j->packed,
                            .c = j->y,
                            .ldc = (size_t)s->n,
                            .n = s->n,
                            .k = s->k,
                            .mode = GEMM_STORE};
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        j->gemm.m = ROWS[i];
        bench_improve(b, &t->product[i], run_gemm, j);
    }
}

static void gradients(const struct bench *b, struct job *j, const struct shape *s, struct times *t)
{
    memset(j->y, 0, (size_t)s->n * (size_t)s->k * sizeof *j->y);
    for (size_t i = 0; i < ARRAY_LEN(SEGMENTS); i++) {
        int n = 0;
        for (int row = 0; row < GRAD_ROWS; row += SEGMENTS[i])
            j->segment[n++] = (struct segment){.row = row, .n = MIN(SEGMENTS[i], GRAD_ROWS - row)};
        b->kern->pack_segments(j->packed_x, j->x, (size_t)s->k, s->k, j->segment, n, 0,
                               kern_panels(b->kern, s->k));
        j->wgrad = (struct wgrad){.dy = j->w,
                                  .ldy = (size_t)s->n,
                                  .segment = j->segment,
                                  .n_segments = n,
                                  .x = j->packed_x,
                                  .n_in = s->k,
                                  .dw = j->y,
                                  .ld_dw = (size_t)s->k};
        bench_improve(b, &t->gradient[i], run_wgrad, j);
    }
}

int bench_gemm(const struct bench *b, json_t *rows, struct err *e)
{
    int rc = 0;
    struct job j = {.kern = b->kern, .pool = pool_new(b->threads)};
    struct carve c = {0};
    struct times times[ARRAY_LEN(SHAPES)] = {0};
    TRY(arena_init(&j.arena, "matrix products", carve(&j, b->threads, &c), e));
    c = (struct carve){.arena = &j.arena};
    carve(&j, b->threads, &c);
    bench_noise(j.x, 0, (size_t)ROWS_MAX * K_MAX);
    bench_noise(j.w, 0, NK_MAX);
    for (size_t i = 0; i < BENCH_SWEEPS * ARRAY_LEN(SHAPES); i++) {
        size_t at = i % ARRAY_LEN(SHAPES);
        products(b, &j, &SHAPES[at], &times[at]);
        gradients(b, &j, &SHAPES[at], &times[at]);
    }
    for (size_t s = 0; s < ARRAY_LEN(SHAPES); s++) {
        for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
            put(b, rows, &SHAPES[s], ROWS[i], 0, times[s].product[i]);
        for (size_t i = 0; i < ARRAY_LEN(SEGMENTS); i++)
            put(b, rows, &SHAPES[s], GRAD_ROWS, SEGMENTS[i], times[s].gradient[i]);
    }
fail:
    pool_free(j.pool);
    arena_release(&j.arena);
    return rc;
}
