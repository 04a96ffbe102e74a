/* kern_check: every operator of a level against the portable level, bit by bit, and against the
   textbook in double precision. This file holds the frame; check_*.c the operators. */
#include "kern/kern.h"
#include "kern/check_int.h"

#include "base/pool.h"

#include <math.h>
#include <string.h>

enum { CHECK_ARENA = 96 << 20 };

/* xorshift64* (Vigna, arXiv 1402.6246). */
static uint64_t next_random(struct check *c)
{
    uint64_t x = c->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    c->random = x;
    return x * 2685821657736338717u;
}

int check_below(struct check *c, int n)
{
    return (int)((next_random(c) >> 33) % (uint64_t)n);
}

static float random_float(struct check *c, float scale)
{
    uint64_t r = next_random(c);
    if (r % 64 == 0)
        return 0;
    return (float)((double)(int64_t)r * 0x1p-63) * scale;
}

void *check_bytes(struct check *c, size_t n)
{
    return arena_alloc(&c->arena, n);
}

/* Off the alignment by one element, as kernels must bear. */
float *check_out(struct check *c, size_t n)
{
    float *x = (float *)arena_alloc(&c->arena, (n + 1 + CHECK_PAD) * sizeof *x) + 1;
    for (size_t i = 0; i < n + CHECK_PAD; i++)
        x[i] = NAN;
    return x;
}

bf16 *check_out_bf16(struct check *c, size_t n)
{
    bf16 *x = (bf16 *)arena_alloc(&c->arena, (n + 1 + CHECK_PAD) * sizeof *x) + 1;
    for (size_t i = 0; i < n + CHECK_PAD; i++)
        x[i] = 0x7fc0;
    return x;
}

float *check_floats(struct check *c, size_t n, float scale)
{
    float *x = check_out(c, n);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float(c, scale);
    return x;
}

bf16 *check_bf16(struct check *c, size_t n, float scale)
{
    bf16 *x = check_out_bf16(c, n);
    for (size_t i = 0; i < n; i++)
        x[i] = bf16_from(random_float(c, scale));
    return x;
}

float *check_copy(struct check *c, const float *x, size_t n)
{
    float *y = check_out(c, n);
    memcpy(y, x, n * sizeof *y);
    return y;
}

void *check_scratch(struct check *c, const struct kern *k, int depth, int E)
{
    size_t n = k->scratch_bytes(depth, E);
    return memset(check_bytes(c, n), 0xff, n);
}

bf16 *check_matrix(struct check *c, int rows, int cols, size_t ld, float scale)
{
    bf16 *x = check_out_bf16(c, (size_t)rows * ld);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            x[(size_t)i * ld + j] = bf16_from(random_float(c, scale));
    return x;
}

void *check_packed(struct check *c, const struct kern *k, const bf16 *w, size_t ld, int n,
                   int depth)
{
    size_t bytes = kern_packed_bytes(k, n, depth);
    void *packed = memset(check_bytes(c, bytes), 0xff, bytes);
    k->pack_nk(packed, w, ld, n, depth, 0, kern_panels(k, n));
    return packed;
}

int check_edge(struct check *c, int i)
{
    static const int edge[] = {1, 2, 3, 4, 5, 7, 8, 13, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 97};
    const int n = ARRAY_LEN(edge);
    return edge[i >= 0 && i < n ? i : check_below(c, n)];
}

void check_that(struct check *c, bool ok)
{
    c->v.wrong += !ok;
}

void check_same(struct check *c, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n + CHECK_PAD; i++)
        c->v.unequal += memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]));
    c->v.compared += (int64_t)n;
}

void check_same_bf16(struct check *c, const bf16 *a, const bf16 *b, size_t n)
{
    for (size_t i = 0; i < n + CHECK_PAD; i++)
        c->v.unequal += a[i] != b[i];
    c->v.compared += (int64_t)n;
}

void check_near(struct check *c, double got, double want, double bound)
{
    double share = fabs(got - want) / (bound + 0x1p-126);
    if (isnan(got) || isnan(want))
        share = isnan(got) && isnan(want) ? 0 : INFINITY;
    else if (got == want)
        share = 0;
    c->v.wrong += !(share <= 1);
    if (share > c->v.worst)
        c->v.worst = share;
}

void check_near_bf16(struct check *c, bf16 got, double want, double bound)
{
    check_near(c, bf16_to(got), want, bound + (fabs(want) + bound) * 0x1p-8);
}

/* Whether this thread flushes denormals: valgrind's does not, whatever MXCSR says. */
static bool denormals_flushed(void)
{
    volatile float tiny = 0x1p-126f, half = 0.5f;
    return tiny * half == 0;
}

int kern_check(const struct kern *k, void (*report)(void *ctx, const struct kern_verdict *v),
               void *ctx)
{
#define X(ret, op, args) {#op, check_##op},
    static const struct {
        const char *name;
        void (*run)(struct check *c);
    } op[] = {KERN_OPS(X)};
#undef X
    struct err e = {0};
    struct check c = {.k = k, .oracle = &kern_portable, .random = 0x9e3779b97f4a7c15u};
    int failed = 0;
    if (arena_init(&c.arena, "kernel check", CHECK_ARENA, &e) < 0)
        err_die(e.code, "%s", e.text);
    pool_flush_denormals();
    c.flushed = denormals_flushed();
    for (size_t i = 0; i < ARRAY_LEN(op); i++) {
        c.v = (struct kern_verdict){.op = op[i].name};
        arena_reset(&c.arena, 0);
        op[i].run(&c);
        failed += c.v.unequal || c.v.wrong;
        report(ctx, &c.v);
    }
    arena_release(&c.arena);
    return failed;
}
