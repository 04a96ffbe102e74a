/* loco bench: speed of this machine's parts of the work, each beside its ceiling; bench_int.h says
 * how it is measured.
 */
#include "cli/cli.h"

#include "cli/bench_int.h"
#include "base/rng.h"
#include "telem/telem.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MIN = 2, ROUNDS_MAX = 80 };
static const double ROUND_S = 5e-3, LONG_S = 0.1, ENOUGH_S = 0.025, PLENTY_S = 5,
                    ENOUGH_FOR_CEILINGS_S = 1;

struct rounds {
    int n;
    double wall_s[ROUNDS_MAX], cpu_s[ROUNDS_MAX];
};

/* The kernel accounts for a thread when it stops running, or some milliseconds late: a reading is
   right only once the pool's workers have gone to sleep. */
static uint64_t settled_cpu_ns(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    return telem_cpu_ns();
}

static struct bench_time timed(const struct bench *b, void (*run)(void *ctx), void *ctx, int times)
{
    uint64_t cpu = settled_cpu_ns(), wall = telem_now_ns();
    for (int i = 0; i < times; i++)
        run(ctx);
    double scale = 1e-9 / times;
    wall = telem_now_ns() - wall;
    cpu = settled_cpu_ns() - cpu;
    return (struct bench_time){.wall_s = (double)wall * scale,
                               .cpu_s = (double)cpu * scale / b->threads};
}

static void run_rounds(const struct bench *b, void (*run)(void *ctx), void *ctx, double enough_s,
                       struct rounds *r)
{
    struct bench_time t = timed(b, run, ctx, 1); // warms caches
    double spent_s = t.cpu_s;
    if (t.cpu_s > LONG_S) { // its caches are warm for most of it
        *r = (struct rounds){.n = 1, .wall_s = {t.wall_s}, .cpu_s = {t.cpu_s}};
        return;
    }
    t = t.cpu_s > ROUND_S ? t : timed(b, run, ctx, 1);
    int times = (int)fmin(1e6, 1 + ROUND_S / fmax(t.cpu_s, 1e-9));
    for (r->n = 0; r->n < ROUNDS_MAX && (r->n < ROUNDS_MIN || spent_s < enough_s); r->n++) {
        t = timed(b, run, ctx, times);
        spent_s += t.cpu_s * times;
        r->wall_s[r->n] = t.wall_s;
        r->cpu_s[r->n] = t.cpu_s;
    }
}

static double best(const double *s, int n)
{
    double least = s[0];
    for (int i = 1; i < n; i++)
        least = fmin(least, s[i]);
    return least;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How far the median lies above the best; orders s. */
static double spread(double *s, int n)
{
    qsort(s, (size_t)n, sizeof *s, by_size);
    return s[n / 2] / s[0] - 1;
}

void bench_improve(const struct bench *b, struct bench_time *t, void (*run)(void *ctx), void *ctx)
{
    struct rounds r;
    if (t->sweeps > 1 && t->cpu_s * t->sweeps > PLENTY_S)
        return;
    run_rounds(b, run, ctx, ENOUGH_S, &r);
    t->sweeps++;
    double wall_s = best(r.wall_s, r.n), cpu_s = best(r.cpu_s, r.n);
    t->wall_s = t->wall_s > 0 ? fmin(t->wall_s, wall_s) : wall_s;
    t->cpu_s = t->cpu_s > 0 ? fmin(t->cpu_s, cpu_s) : cpu_s;
}

/* ---- ceilings ---- */

struct ceiling {
    const struct kern *kern;
    struct pool *pool;
    double flops;          // of thread 0; all do the same
    const uint64_t *words; // (n)
    size_t n;
    uint64_t folded; // so that no read can be left out
};

static void peak_share(void *ctx, int ith, int nth)
{
    enum { FMA_ROUNDS = 200000 };
    struct ceiling *c = ctx;
    (void)nth;
    double flops = c->kern->peak(FMA_ROUNDS);
    if (ith == 0)
        c->flops = flops;
}

static void read_share(void *ctx, int ith, int nth)
{
    struct ceiling *c = ctx;
    size_t lo, hi;
    uint64_t fold[8] = {0};
    pool_split(c->n, ARRAY_LEN(fold), ith, nth, &lo, &hi);
    for (size_t i = lo; i < hi; i += ARRAY_LEN(fold))
        for (size_t j = 0; j < ARRAY_LEN(fold); j++)
            fold[j] ^= c->words[i + j];
    for (size_t j = 1; j < ARRAY_LEN(fold); j++)
        fold[0] ^= fold[j];
    __atomic_fetch_xor(&c->folded, fold[0], __ATOMIC_RELAXED);
}

static void run_peak(void *ctx)
{
    struct ceiling *c = ctx;
    pool_run(c->pool, peak_share, c);
}

static void run_read(void *ctx)
{
    struct ceiling *c = ctx;
    pool_run(c->pool, read_share, c);
}

int bench_ceilings(struct bench *b, struct err *e)
{
    enum { READ_BYTES = 256 << 20 };
    int rc = 0;
    struct arena arena = {0};
    struct rounds r;
    struct bench_time reading = {0};
    struct ceiling c = {.kern = b->kern, .n = READ_BYTES / sizeof(uint64_t)};
    c.pool = pool_new(b->threads);
    run_rounds(b, run_peak, &c, ENOUGH_FOR_CEILINGS_S, &r);
    b->wall_spread = spread(r.wall_s, r.n);
    b->cpu_spread = spread(r.cpu_s, r.n);
    b->by_cpu = b->cpu_spread < b->wall_spread;
    b->flops = c.flops * b->threads / (b->by_cpu ? r.cpu_s[0] : r.wall_s[0]);
    TRY(arena_init(&arena, "memory to read", arena_cost(READ_BYTES), e));
    c.words = memset(arena_alloc(&arena, READ_BYTES), 1, READ_BYTES);
    for (int i = 0; i < BENCH_SWEEPS; i++)
        bench_improve(b, &reading, run_read, &c);
    b->bytes = READ_BYTES / bench_s(b, reading);
fail:
    arena_release(&arena);
    pool_free(c.pool);
    return rc;
}

/* ---- rows of the report ---- */

void bench_put(json_t *row, const char *key, double value)
{
    double unit = value == 0 ? 1 : pow(10, floor(log10(fabs(value))) - 3);
    json_object_set_new(
        row, key,
        json_real(unit < 1 ? round(value / unit) / (1 / unit) : round(value / unit) * unit));
}

void bench_put_ms(json_t *row, struct bench_time t)
{
    bench_put(row, "wall_ms", t.wall_s * 1e3);
    bench_put(row, "cpu_ms", t.cpu_s * 1e3);
}

void bench_noise(bf16 *out, size_t lo, size_t n)
{
    enum { PERIOD = 65536 };
    static bf16 noise[PERIOD];
    if (noise[0] == 0)
        for (uint32_t i = 0; i < PERIOD; i++)
            noise[i] = bf16_from((float)(rng_uniform(rng_key(0, RNG_INIT), i, 0, 0, 0) - 0.5) / 8);
    while (n > 0) {
        size_t at = lo % PERIOD, part = MIN(n, PERIOD - at);
        memcpy(out, noise + at, part * sizeof *out);
        out += part;
        lo += part;
        n -= part;
    }
}

static void put_machine(json_t *root, const struct bench *b)
{
    json_t *o = json_object();
    json_object_set_new(root, "machine", o);
    json_object_set_new(o, "level", json_string(b->kern->name));
    json_object_set_new(o, "threads", json_integer(b->threads));
    json_object_set_new(o, "clock", json_string(b->by_cpu ? "cpu" : "wall"));
    bench_put(o, "wall_spread", b->wall_spread);
    bench_put(o, "cpu_spread", b->cpu_spread);
    bench_put(o, "fma_gflops", b->flops * 1e-9);
    bench_put(o, "read_gb_s", b->bytes * 1e-9);
}

static json_t *put_rows(json_t *root, const char *key, json_t *value)
{
    json_object_set_new(root, key, value);
    return value;
}

static int measure(const struct conf *conf, json_t *root, struct err *e)
{
    int rc = 0;
    struct bench b = {.kern = kern_choose(e),
                      .threads = conf->threads > 0 ? (int)conf->threads : pool_cpus()};
    if (!b.kern)
        return ERR_USAGE;
    TRY(bench_ceilings(&b, e));
    put_machine(root, &b);
    if (conf->part == CONF_PART_ALL || conf->part == CONF_PART_GEMM)
        TRY(bench_gemm(&b, put_rows(root, "gemm", json_array()), e));
    if (conf->part == CONF_PART_ALL && bench_is_folder(conf))
        TRY(bench_start(&b, conf->model, put_rows(root, "start", json_object()), e));
    if (conf->part != CONF_PART_GEMM) {
        json_t *rows = put_rows(root, "model", json_array());
        TRY(bench_model(&b, conf, rows, put_rows(root, "memory", json_object()), e));
    }
fail:
    return rc;
}

int cli_bench(const struct conf *conf, struct err *e)
{
    int rc = 0;
    struct buf out = {0};
    json_t *root = json_object();
    TRY(measure(conf, root, e));
    if (conf->json) {
        cli_put_json(&out, root);
        buf_putc(&out, '\n');
    } else {
        cli_put_report(&out, root);
    }
    TRY(cli_flush(&out, e));
fail:
    json_decref(root);
    buf_release(&out);
    return rc;
}
