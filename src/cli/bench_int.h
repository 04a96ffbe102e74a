/* loco bench, for its own files: clocks, ceilings, and what is measured.
 *
 * A figure is the best of several rounds, by two clocks: wall time, and the CPU time of all threads
 * divided by their number. On a quiet machine they agree; on a shared one the second is the
 * steadier. Which one the rates and shares of a run go by is decided once, by the spread of the
 * rounds of the ceiling itself, and the report says so. Every row has both.
 *
 * Neighbours that a core or its caches are shared with come in bursts of seconds, so rounds of one
 * figure do not follow on one another: a table is gone through BENCH_SWEEPS times, what takes
 * seconds fewer times.
 *
 * Ceilings are measured in the same run with the same threads: fused multiply-adds from registers
 * (the level's peak loop) and reading memory that no cache holds.
 */
#pragma once

#include "base/mem.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "model/model.h"

struct bench_time {
    double wall_s;
    double cpu_s; // of all threads, divided by their number
    int sweeps;   // that it comes from
};

struct bench {
    const struct kern *kern;
    int threads;
    bool by_cpu;                    // the clock of rates and shares
    double wall_spread, cpu_spread; // of the rounds of the ceiling: median / best - 1
    double flops, bytes;            // ceilings: operations and bytes read in a second
};

enum { BENCH_SWEEPS = 10 };

/* Rounds of run(ctx); t keeps the best by either clock, 0 being none yet. A round repeats it until
   it takes some milliseconds. */
void bench_improve(const struct bench *b, struct bench_time *t, void (*run)(void *ctx), void *ctx);

/* Seconds by the run's clock. */
static inline double bench_s(const struct bench *b, struct bench_time t)
{
    return b->by_cpu ? t.cpu_s : t.wall_s;
}

/* Measures the ceilings and chooses the clock: b has kern and threads. ERR_MEMORY. */
int bench_ceilings(struct bench *b, struct err *e);

/* A number cut to four digits, for tables; the milliseconds of both clocks. */
void bench_put(json_t *row, const char *key, double value);
void bench_put_ms(json_t *row, struct bench_time t);

/* Small random values: elements [lo, lo + n) of an endless row of them. */
void bench_noise(bf16 *out, size_t lo, size_t n);

/* ---- bench_gemm.c ---- */

/* A row for each matrix product of SmolLM2-135M and Qwen3-0.6B and each number of rows. ERR_MEMORY.
   */
int bench_gemm(const struct bench *b, json_t *rows, struct err *e);

/* ---- bench_products.c: a model's matrix products and nothing else ---- */

struct bench_shape {
    int rows;      // through the layers, and of them
    int head_rows; // through the head; 0: the last layer has only its first product (prefill)
    int segment;   // rows of a segment, which weight gradients are summed by
    bool backward; // with both backward products of each
};

struct bench_products {
    struct bench_time time;
    double flops, bytes; // bytes of weights, read once for each product
};

/* What the products of that shape alone take. ERR_MEMORY. */
int bench_products(const struct bench *b, const struct model_config *c, struct bench_shape shape,
                   struct bench_products *out, struct err *e);

/* ---- bench_model.c: a device at work ---- */

/* Whether a model folder is measured, not the built-in shape. */
bool bench_is_folder(const struct conf *conf);

/* Rows of decode, prefill and training, as conf->part asks, and the memory that they took. */
int bench_model(const struct bench *b, const struct conf *conf, json_t *rows, json_t *memory,
                struct err *e);

/* ---- bench_start.c ---- */

/* The best time to a first token of a model folder that has a tokenizer. */
int bench_start(const struct bench *b, const char *model, json_t *o, struct err *e);
