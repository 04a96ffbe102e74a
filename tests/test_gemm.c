/* Matrix products: the order of the sum by a transcription of docs/NUMERICS.md section 1, and what
   follows from it: rows, columns, threads, blocks of K and packing never change a bit. */
#include "check.h"

#include "kern/kern.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"

enum { M = 64, N = 200, K = 1100 }; // More than one block of rows and of K, a ragged last panel.

#define EACH_LEVEL(k)                                                                              \
    for (const struct kern *const *k = kern_levels(); *k; k++)                                     \
        if (kern_usable(*k))

static bf16 *draw(size_t n, uint32_t what)
{
    bf16 *x = mem_alloc(n * sizeof *x);
    uint64_t key = rng_key(check_seed(), RNG_DATA);
    for (size_t i = 0; i < n; i++)
        x[i] = bf16_from((float)(2 * rng_uniform(key, (uint32_t)i, what, 0, 0) - 1));
    return x;
}

static float *draw_float(size_t n, uint32_t what)
{
    bf16 *x = draw(n, what);
    float *y = mem_alloc(n * sizeof *y);
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_to(x[i]) * 1.0009765625f;
    mem_free(x);
    return y;
}

/* 64-byte aligned memory of a size that a level names. */
struct aligned {
    void *whole, *at;
};

static struct aligned aligned_new(size_t bytes)
{
    char *p = mem_alloc(bytes + 64);
    memset(p, 0xff, bytes + 64);
    return (struct aligned){p, p + (64 - (uintptr_t)p % 64) % 64};
}

/* One product of w (n, k) at work on a level. */
struct work {
    const struct kern *k;
    struct aligned packed, scratch;
    struct gemm g;
};

static struct work work_new(const struct kern *k, const bf16 *a, const bf16 *w, float *c, int m,
                            int n, int depth)
{
    struct work x = {.k = k};
    x.packed = aligned_new(kern_packed_bytes(k, n, depth));
    x.scratch = aligned_new(k->scratch_bytes(depth, 64));
    k->pack_nk(x.packed.at, w, (size_t)depth, n, depth, 0, kern_panels(k, n));
    x.g = (struct gemm){.a = a, .lda = (size_t)depth, .b = x.packed.at, .c = c};
    x.g.ldc = (size_t)n;
    x.g.m = m;
    x.g.n = n;
    x.g.k = depth;
    x.g.scratch = x.scratch.at;
    return x;
}

static void work_free(struct work *x)
{
    mem_free(x->packed.whole);
    mem_free(x->scratch.whole);
}

/* docs/NUMERICS.md section 1, as it reads. */
static float law(const bf16 *a, const bf16 *w, int k, float acc)
{
    for (int step = 0; step < k; step += 32) {
        float sum[2] = {0, 0};
        for (int j = step; j < step + 32; j++)
            sum[j & 1] = fmaf(j < k ? bf16_to(a[j]) : 0, j < k ? bf16_to(w[j]) : 0, sum[j & 1]);
        acc = acc + (sum[0] + sum[1]);
    }
    return acc;
}

static void sums_run_in_the_order_of_the_law(void **state)
{
    (void)state;
    static const int depth[] = {1, 31, 32, 33, 64, 1023, 1024, 1025, 2080};
    bf16 *a = draw(5 * 2080, 1), *w = draw(37 * 2080, 2);
    float *was = draw_float(5 * 37, 3), *c = mem_alloc(5 * 37 * sizeof *c);
    EACH_LEVEL(k)
    for (size_t i = 0; i < ARRAY_LEN(depth) * 3; i++) {
        struct work x = work_new(*k, a, w, c, 5, 37, depth[i / 3]);
        x.g.mode = (enum gemm_mode)(i % 3);
        memcpy(c, was, 5 * 37 * sizeof *c);
        (*k)->gemm(&x.g);
        for (int e = 0; e < 5 * 37; e++) {
            const bf16 *ar = a + e / 37 * depth[i / 3], *wr = w + e % 37 * depth[i / 3];
            float start = x.g.mode == GEMM_CONTINUE ? was[e] : 0;
            float want = law(ar, wr, depth[i / 3], start);
            if (x.g.mode == GEMM_ADD)
                want = was[e] + want;
            assert_memory_equal(&c[e], &want, sizeof want);
        }
        work_free(&x);
    }
    mem_free(a);
    mem_free(w);
    mem_free(was);
    mem_free(c);
}

/* All of C at once on one thread: what every other way to compute it must equal. */
static float *whole(const struct kern *k, const bf16 *a, const bf16 *w)
{
    float *c = mem_alloc(M * N * sizeof *c);
    struct work x = work_new(k, a, w, c, M, N, K);
    k->gemm(&x.g);
    work_free(&x);
    return c;
}

static void a_row_does_not_depend_on_the_others(void **state)
{
    (void)state;
    bf16 *a = draw(M * K, 4), *w = draw(N * K, 5);
    EACH_LEVEL(k)
    {
        float *all = whole(*k, a, w), *c = mem_alloc(M * N * sizeof *c);
        for (int rows = 1; rows < 10; rows++)
            for (int r0 = 0; r0 + rows <= M; r0 += 11) {
                struct work x = work_new(*k, a + (size_t)r0 * K, w, c, rows, N, K);
                (*k)->gemm(&x.g);
                assert_memory_equal(c, all + (size_t)r0 * N, (size_t)rows * N * sizeof *c);
                work_free(&x);
            }
        mem_free(all);
        mem_free(c);
    }
    mem_free(a);
    mem_free(w);
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    enum { TALL = 600 }; // Rows enough for kern_gemm_part to split them.
    bf16 *a = draw(TALL * K, 6), *w = draw(N * K, 7);
    const struct kern *k = kern_best();
    for (int m = M; m <= TALL; m += TALL - M) {
        float *one = mem_alloc((size_t)m * N * sizeof *one), *c = mem_alloc((size_t)m * N * 4);
        struct work x = work_new(k, a, w, one, m, N, K);
        k->gemm(&x.g);
        x.g.c = c;
        for (int threads = 1; threads <= 20; threads += threads < 5 ? 1 : 5) {
            memset(c, 0xff, (size_t)m * N * sizeof *c);
            for (int i = 0; i < threads; i++)
                kern_gemm_part(k, &x.g, i, threads);
            assert_memory_equal(c, one, (size_t)m * N * sizeof *c);
        }
        work_free(&x);
        mem_free(one);
        mem_free(c);
    }
    mem_free(a);
    mem_free(w);
}

static void continue_joins_pieces_of_k(void **state)
{
    (void)state;
    bf16 *a = draw(M * K, 8), *w = draw(N * K, 9);
    EACH_LEVEL(k)
    {
        float *all = whole(*k, a, w), *c = mem_alloc(M * N * sizeof *c);
        for (int k0 = 0, k1; k0 < K; k0 = k1) {
            k1 = MIN(k0 + 416, K); // 13 steps
            bf16 *part = mem_alloc((size_t)N * (size_t)(k1 - k0) * sizeof *part);
            for (int n = 0; n < N; n++)
                memcpy(part + (size_t)n * (size_t)(k1 - k0), w + (size_t)n * K + k0,
                       (size_t)(k1 - k0) * sizeof *part);
            struct work x = work_new(*k, a + k0, part, c, M, N, k1 - k0);
            x.g.lda = K;
            x.g.mode = k0 ? GEMM_CONTINUE : GEMM_STORE;
            (*k)->gemm(&x.g);
            work_free(&x);
            mem_free(part);
        }
        assert_memory_equal(c, all, M * N * sizeof *c);
        mem_free(all);
        mem_free(c);
    }
    mem_free(a);
    mem_free(w);
}

/* NaN and infinity reach their own row or column and nothing else. */
static void not_a_number_stays_in_its_row_and_column(void **state)
{
    (void)state;
    bf16 *a = draw(M * K, 10), *w = draw(N * K, 11);
    EACH_LEVEL(k)
    {
        float *clean = whole(*k, a, w);
        bf16 a0 = a[7 * K + 40], w0 = w[101 * K + 1099];
        a[7 * K + 40] = 0x7fc0;     // NaN in row 7
        w[101 * K + 1099] = 0x7f80; // infinity in column 101
        float *c = whole(*k, a, w);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++)
                if (i == 7)
                    assert_true(isnan(c[i * N + j]));
                else if (j == 101)
                    assert_true(isinf(c[i * N + j]));
                else
                    assert_memory_equal(&c[i * N + j], &clean[i * N + j], sizeof *c);
        a[7 * K + 40] = a0;
        w[101 * K + 1099] = w0;
        mem_free(clean);
        mem_free(c);
    }
    mem_free(a);
    mem_free(w);
}

/* ---- weight gradients ---- */

enum { OUT = 70, IN = 50, ROWS = 1500 };

static void gradient(const struct kern *k, const bf16 *dy, const bf16 *x, const struct segment *s,
                     int n, float *dw)
{
    size_t depth = 0;
    for (int i = 0; i < n; i++)
        depth += round_up((size_t)s[i].n, 32);
    struct aligned packed = aligned_new(kern_packed_bytes(k, IN, (int)depth));
    struct aligned scratch = aligned_new(k->scratch_bytes(32, 64));
    struct wgrad g = {.dy = dy, .ldy = OUT, .segment = s, .n_segments = n, .x = packed.at};
    k->pack_segments(packed.at, x, IN, IN, s, n, 0, kern_panels(k, IN));
    g.n_in = IN;
    g.out_hi = OUT;
    g.dw = dw;
    g.ld_dw = IN;
    g.scratch = scratch.at;
    k->wgrad(&g);
    mem_free(packed.whole);
    mem_free(scratch.whole);
}

/* Segments of these lengths, one after the other with `gap` rows between, in their own rows. */
static void packed_with_gap(const bf16 *dy, const bf16 *x, const int *length, int n, int gap,
                            struct segment *s, bf16 *dy2, bf16 *x2)
{
    for (int i = 0, from = 0, to = 0; i < n; from += length[i], to += length[i] + gap, i++) {
        s[i] = (struct segment){to, length[i]};
        memcpy(dy2 + (size_t)to * OUT, dy + (size_t)from * OUT,
               (size_t)length[i] * OUT * sizeof *dy);
        memcpy(x2 + (size_t)to * IN, x + (size_t)from * IN, (size_t)length[i] * IN * sizeof *x);
    }
}

static void packing_of_segments_does_not_change_weight_gradients(void **state)
{
    (void)state;
    static const int length[] = {33, 1, 1100, 64, 31, 200};
    enum { SEGMENTS = ARRAY_LEN(length) };
    bf16 *dy = draw(ROWS * OUT, 12), *x = draw(ROWS * IN, 13);
    bf16 *dy2 = draw(ROWS * OUT, 14), *x2 = draw(ROWS * IN, 15);
    float *was = draw_float(OUT * IN, 16);
    EACH_LEVEL(k)
    {
        float *one = mem_alloc(OUT * IN * sizeof *one), *two = mem_alloc(OUT * IN * sizeof *two);
        struct segment s[SEGMENTS];
        packed_with_gap(dy, x, length, SEGMENTS, 0, s, dy2, x2);
        memcpy(one, was, OUT * IN * sizeof *one);
        gradient(*k, dy2, x2, s, SEGMENTS, one);
        for (int gap = 1; gap < 12; gap += 5) { // other places in the batch, same order
            packed_with_gap(dy, x, length, SEGMENTS, gap, s, dy2, x2);
            memcpy(two, was, OUT * IN * sizeof *two);
            gradient(*k, dy2, x2, s, SEGMENTS, two);
            assert_memory_equal(one, two, OUT * IN * sizeof *one);
        }
        memcpy(two, was, OUT * IN * sizeof *two);
        for (int i = 0; i < SEGMENTS; i++) // each in a micro-batch of its own
            gradient(*k, dy2, x2, s + i, 1, two);
        assert_memory_equal(one, two, OUT * IN * sizeof *one);
        mem_free(one);
        mem_free(two);
    }
    mem_free(dy);
    mem_free(x);
    mem_free(dy2);
    mem_free(x2);
    mem_free(was);
}

/* dw[o][i] by the law: every step of every segment filled with zeros to 32. */
static float filled_with_zeros(const bf16 *dy, const bf16 *x, const struct segment *s, int n, int o,
                               int i, float acc)
{
    bf16 a[ROWS], b[ROWS];
    for (; n > 0; n--, s++) {
        for (int row = 0; row < s->n; row++) {
            a[row] = dy[(size_t)(s->row + row) * OUT + o];
            b[row] = x[(size_t)(s->row + row) * IN + i];
        }
        acc = law(a, b, s->n, acc);
    }
    return acc;
}

/* Segments of every length up to 70, in an order that mixes them. */
static int mixed_segments(struct segment *s)
{
    int n = 0;
    for (int row = 0, length = 1; row + length <= ROWS; length = 1 + (length * 37 + 11) % 70) {
        s[n++] = (struct segment){row, length};
        row += length;
    }
    return n;
}

static void short_steps_have_the_bits_of_steps_filled_with_zeros(void **state)
{
    (void)state;
    static struct segment s[ROWS];
    bf16 *dy = draw(ROWS * OUT, 17), *x = draw(ROWS * IN, 18);
    float *was = draw_float(OUT * IN, 19), *dw = mem_alloc(OUT * IN * sizeof *dw);
    int n = mixed_segments(s);
    EACH_LEVEL(k)
    {
        memcpy(dw, was, OUT * IN * sizeof *dw);
        gradient(*k, dy, x, s, n, dw);
        for (int e = 0; e < OUT * IN; e++) {
            float want = filled_with_zeros(dy, x, s, n, e / IN, e % IN, was[e]);
            assert_memory_equal(&dw[e], &want, sizeof want);
        }
    }
    mem_free(dy);
    mem_free(x);
    mem_free(was);
    mem_free(dw);
}

/* Two negative products too small for a float: both sums of the step are -0 where denormals are
   flushed, and zeros after them make them +0. On C = -0 that is to be seen. */
static void zeros_left_out_still_turn_minus_zero_to_plus_zero(void **state)
{
    (void)state;
    volatile float tiny = 0x1p-100f, flushed = -tiny * tiny;
    const float minus = -0.0f;
    bf16 dy[32 * OUT], x[32 * IN];
    struct segment s = {0, 2};
    if (signbit(flushed) == 0 || tiny * 0x1p-49f != 0) { // valgrind does not flush
        print_message("denormals are not flushed here: nothing to see\n");
        skip();
    }
    for (int i = 0; i < 32 * OUT; i++)
        dy[i] = bf16_from(-tiny);
    for (int i = 0; i < 32 * IN; i++)
        x[i] = bf16_from(tiny);
    EACH_LEVEL(k)
    for (s.n = 1; s.n <= 32; s.n++) {
        float dw[OUT * IN];
        for (int e = 0; e < OUT * IN; e++)
            dw[e] = minus;
        gradient(*k, dy, x, &s, 1, dw);
        float want = filled_with_zeros(dy, x, &s, 1, 0, 0, minus);
        assert_int_equal(signbit(want) != 0, s.n == 32); // -0 only where no zero is filled in
        for (int e = 0; e < OUT * IN; e++)
            assert_memory_equal(&dw[e], &want, sizeof want);
    }
}

int main(void)
{
    pool_flush_denormals();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_run_in_the_order_of_the_law),
        cmocka_unit_test(a_row_does_not_depend_on_the_others),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(continue_joins_pieces_of_k),
        cmocka_unit_test(not_a_number_stays_in_its_row_and_column),
        cmocka_unit_test(packing_of_segments_does_not_change_weight_gradients),
        cmocka_unit_test(short_steps_have_the_bits_of_steps_filled_with_zeros),
        cmocka_unit_test(zeros_left_out_still_turn_minus_zero_to_plus_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
