/* Single matrix products, warm: the weights lie where their size lets them lie after the last round,
 * as they do in a run of many micro-batches.
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
enum { ROWS_MAX = 2048, N_MAX = 6144, K_MAX = 3072, NK_MAX = 6144 * 1024 };

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
};

static size_t carve(struct job *j, int threads, struct carve *c)
{
    size_t scratch_bytes = j->kern->scratch_bytes(K_MAX, KV_BLOCK);
    j->x = carve_take(c, (size_t)ROWS_MAX * K_MAX * sizeof *j->x);
    j->w = carve_take(c, (size_t)NK_MAX * sizeof *j->w);
    j->packed = carve_take(c, kern_packed_bytes(j->kern, N_MAX, 1024));
    j->y = carve_take(c, (size_t)ROWS_MAX * N_MAX * sizeof *j->y);
    j->scratch = carve_take(c, (size_t)threads * sizeof *j->scratch);
    for (int i = 0; i < threads; i++) {
        void *scratch = carve_take(c, scratch_bytes);
        if (c->base)
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

static json_t *measure(const struct bench *b, struct job *j, const struct shape *s, int rows)
{
    json_t *row = json_object();
    double flops = 2.0 * rows * s->n * s->k, bytes = 2.0 * s->n * s->k;
    j->gemm.m = rows;
    struct bench_time t = bench_measure(b, run_gemm, j);
    double seconds = bench_s(b, t);
    json_object_set_new(row, "model", json_string(s->model));
    json_object_set_new(row, "matrix", json_string(s->matrix));
    json_object_set_new(row, "rows", json_integer(rows));
    json_object_set_new(row, "n", json_integer(s->n));
    json_object_set_new(row, "k", json_integer(s->k));
    bench_put(row, "gflops", flops / seconds * 1e-9);
    bench_put(row, "of_fma", flops / seconds / b->flops);
    bench_put(row, "weights_gb_s", bytes / seconds * 1e-9);
    bench_put(row, "of_read", bytes / seconds / b->bytes);
    bench_put_ms(row, t);
    return row;
}

int bench_gemm(const struct bench *b, json_t *rows, struct err *e)
{
    int rc = 0;
    struct job j = {.kern = b->kern, .pool = pool_new(b->threads)};
    struct carve c = {0};
    TRY(arena_init(&j.arena, "matrix products", carve(&j, b->threads, &c), e));
    c = (struct carve){.base = j.arena.base};
    carve(&j, b->threads, &c);
    bench_noise(j.x, 0, (size_t)ROWS_MAX * K_MAX);
    bench_noise(j.w, 0, NK_MAX);
    for (const struct shape *s = SHAPES; s < SHAPES + ARRAY_LEN(SHAPES); s++) {
        b->kern->pack_nk(j.packed, j.w, (size_t)s->k, s->n, s->k, 0, kern_panels(b->kern, s->n));
        j.gemm = (struct gemm){.a = j.x,
                               .lda = (size_t)s->k,
                               .b = j.packed,
                               .c = j.y,
                               .ldc = (size_t)s->n,
                               .n = s->n,
                               .k = s->k,
                               .mode = GEMM_STORE};
        for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
            json_array_append_new(rows, measure(b, &j, s, ROWS[i]));
    }
fail:
    pool_free(j.pool);
    arena_release(&j.arena);
    return rc;
}
