/* Attention, forward and backward, on every level this CPU has: against the law in float (bit for
   bit), against double (derived bounds), and against itself cut in every way it may be cut. */
#include "check.h"

#include "attn_rig.h"

#include "base/pool.h"

static const int width[] = {8, 16, 20, 32, 48, 64, 80, 96, 128, 256};
static const int heads_per_kv[] = {1, 2, 3, 4, 7, 8};
static const int length[] = {1, 31, 32, 33, 63, 64, 65};

/* ---- the law ---- */

static void check_law(int E, int heads, int pos, int n, uint32_t id)
{
    struct attn_case c = case_new(E, heads, pos, n, id);
    struct attn_saved want = saved_new(&c);
    struct attn_sums want_g = sums_new(&c);
    law_forward(&c, &want);
    law_grad(&c, &want, &want_g);
    EACH_LEVEL(k)
    {
        struct attn_saved s = saved_new(&c);
        struct attn_sums g = sums_new(&c);
        run(*k, &c, pos, &s, &g);
        assert_same_saved(&c, &s, &want);
        assert_same_sums(&c, &g, &want_g);
        saved_free(&s);
        sums_free(&g);
    }
    saved_free(&want);
    sums_free(&want_g);
    case_free(&c);
}

static void test_every_level_gives_the_bits_of_the_law(void **state)
{
    (void)state;
    uint64_t key = rng_key(check_seed(), RNG_SHUFFLE);
    for (uint32_t i = 0; i < ARRAY_LEN(width); i++)
        for (uint32_t j = 0; j < ARRAY_LEN(length); j++) {
            if (check_on_valgrind() && (i + j) % 6)
                continue;
            int heads = heads_per_kv[(i + j) % (width[i] < 96 ? 6 : 3)];
            int pos = (int)rng_below(key, i, j, 0, 0, 40);
            check_law(width[i], heads, pos, length[j], i * 100 + j);
        }
    check_law(64, 2, 0, 260, 1000);
    check_law(16, 70, 5, 40, 1001); // more heads than a tile holds pairs
}

/* A sum that the law's order decides: two samples of one prompt, continued into the same buffer. */
static void test_a_prompts_sums_take_the_samples_in_order(void **state)
{
    (void)state;
    enum { E = 32, HEADS = 3, PROMPT = 45 };
    struct attn_case c[2] = {case_new(E, HEADS, PROMPT, 40, 1), case_new(E, HEADS, PROMPT, 40, 2)};
    size_t prompt = PROMPT * E * sizeof(float), own = 40 * E;
    memcpy(c[1].k, c[0].k, PROMPT * E * sizeof(double));
    memcpy(c[1].v, c[0].v, PROMPT * E * sizeof(double));
    struct attn_saved s = saved_new(c);
    struct attn_sums want = sums_new(c), swapped = sums_new(c), got = sums_new(c);
    for (int i = 0; i < 2; i++) {
        law_forward(c + i, &s);
        law_grad(c + i, &s, &want);
        law_forward(c + 1 - i, &s);
        law_grad(c + 1 - i, &s, &swapped);
    }
    assert_memory_not_equal(want.dk, swapped.dk, prompt);
    assert_memory_not_equal(want.dv, swapped.dv, prompt);
    EACH_LEVEL(k)
    {
        memset(got.dk, 0, prompt);
        memset(got.dv, 0, prompt);
        for (int i = 0; i < 2; i++) {
            memset(got.dk + PROMPT * E, 0, own * sizeof(float));
            memset(got.dv + PROMPT * E, 0, own * sizeof(float));
            run(*k, c + i, PROMPT, &s, &got);
        }
        assert_memory_equal(got.dk, want.dk, prompt);
        assert_memory_equal(got.dv, want.dv, prompt);
    }
    saved_free(&s);
    sums_free(&want);
    sums_free(&swapped);
    sums_free(&got);
    case_free(c);
    case_free(c + 1);
}

/* ---- double ---- */

static struct real real_new(size_t n)
{
    return (struct real){mem_calloc(n, sizeof(double)), mem_calloc(n, sizeof(double))};
}

static void real_free(struct real *r)
{
    mem_free(r->x);
    mem_free(r->bound);
}

/* Every y within its bound, and the bounds together below `tight` of the values (as 2-norms). */
static void check_real(const char *what, const float *y, struct real want, size_t n, double tight)
{
    double values = 0, bounds = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(y[i] - want.x[i]) <= want.bound[i]))
            fail_msg("%s[%zu] is %.9g, expected %.9g within %.3g", what, i, y[i], want.x[i],
                     want.bound[i]);
        values += want.x[i] * want.x[i];
        bounds += want.bound[i] * want.bound[i];
    }
    if (sqrt(bounds) > tight * sqrt(values))
        fail_msg("%s: bounds are %.3g of the values, expected at most %.3g", what,
                 sqrt(bounds / values), tight);
}

/* tight: for out, dq and dk, dv. */
static void check_double(const struct attn_case *c, bool rounded, const double tight[3])
{
    size_t rows = (size_t)c->n * c->heads, wide = rows * c->E,
           keys = (size_t)(c->pos + c->n) * c->E;
    struct attn_saved s = saved_new(c);
    struct attn_sums g = sums_new(c);
    struct real out = real_new(wide), max = real_new(rows), inv = real_new(rows);
    struct real dq = real_new(wide), dk = real_new(keys), dv = real_new(keys);
    float *out_f = mem_alloc(wide * sizeof *out_f);
    run(kern_best(), c, c->pos, &s, &g);
    for (size_t i = 0; i < wide; i++)
        out_f[i] = bf16_to(s.out[i]);
    real_forward(c, rounded, out, max, inv);
    real_grad(c, rounded ? &s : NULL, dq, dk, dv);
    check_real("out", out_f, out, wide, tight[0]);
    check_real("max", s.max, max, rows, 2e-5);
    check_real("inv_sum", s.inv, inv, rows, 0.002);
    check_real("dq", g.dq, dq, wide, tight[1]);
    check_real("dk", g.dk, dk, keys, tight[1]);
    check_real("dv", g.dv, dv, keys, tight[2]);
    struct real *all[] = {&out, &max, &inv, &dq, &dk, &dv};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        real_free(all[i]);
    mem_free(out_f);
    saved_free(&s);
    sums_free(&g);
}

/* What is left of the bound is out's own last rounding, 2^-8 at most, and roundings near a tie. */
static void test_double_with_our_roundings_agrees_tightly(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(width); i++) {
        struct attn_case c = case_new(width[i], heads_per_kv[i % 6], (int)i * 11, 70, 200 + i);
        check_double(&c, true, (const double[]){0.008, 0.003, 0.003});
        case_free(&c);
    }
}

/* D is a sum of E products with a rounded out: its worst case is what widens dq and dk. */
static void test_plain_double_agrees_within_the_derived_bounds(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(width); i++) {
        struct attn_case c = case_new(width[i], heads_per_kv[i % 6], (int)i * 7, 70, 300 + i);
        check_double(&c, false, (const double[]){0.02, 0.8, 0.04});
        case_free(&c);
    }
}

/* sum of dout * out. */
static double loss(const struct attn_case *c)
{
    size_t rows = (size_t)c->n * c->heads, wide = rows * c->E;
    struct real out = real_new(wide), max = real_new(rows), inv = real_new(rows);
    double sum = 0;
    real_forward(c, false, out, max, inv);
    for (size_t i = 0; i < wide; i++)
        sum += c->dout[i] * out.x[i];
    real_free(&out);
    real_free(&max);
    real_free(&inv);
    return sum;
}

static void check_slope(const struct attn_case *c, double *x, double slope)
{
    const double h = 1e-5, at = *x;
    *x = at + h;
    double above = loss(c);
    *x = at - h;
    double below = loss(c);
    *x = at;
    double seen = (above - below) / (2 * h);
    if (fabs(seen - slope) > 1e-8 + 1e-6 * fabs(slope)) // h^2, and 1e-16 of the loss over h
        fail_msg("slope is %.12g, finite difference %.12g", slope, seen);
}

static void test_the_oracles_gradient_is_the_slope_of_its_forward(void **state)
{
    (void)state;
    struct attn_case c = case_new(12, 3, 20, 30, 400);
    size_t wide = 30 * 3 * 12, keys = 50 * 12;
    struct real dq = real_new(wide), dk = real_new(keys), dv = real_new(keys);
    real_grad(&c, NULL, dq, dk, dv);
    for (size_t i = 0; i < 60; i++) {
        check_slope(&c, c.q + i * 17 % wide, dq.x[i * 17 % wide]);
        check_slope(&c, c.k + i * 31 % keys, dk.x[i * 31 % keys]);
        check_slope(&c, c.v + i * 29 % keys, dv.x[i * 29 % keys]);
    }
    real_free(&dq);
    real_free(&dk);
    real_free(&dv);
    case_free(&c);
}

/* ---- cuts ---- */

static void test_a_decoded_row_equals_the_same_row_in_a_segment(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(heads_per_kv); i++) {
        struct attn_case c = case_new(width[i + 2], heads_per_kv[i], 0, 70, 500 + i);
        struct attn_saved whole = saved_new(&c), alone = saved_new(&c);
        EACH_LEVEL(k)
        {
            struct rig r = rig_open(*k, &c, c.n), grown = rig_open(*k, &c, 0);
            forward(&r, &c, 0, c.n, &whole);
            for (int row = 0; row < c.n; row++) {
                rig_put(&grown, &c, row);
                forward(&grown, &c, row, row + 1, &alone);
            }
            assert_same_saved(&c, &whole, &alone);
            rig_close(&r);
            rig_close(&grown);
        }
        saved_free(&whole);
        saved_free(&alone);
        case_free(&c);
    }
}

static void test_rows_cut_anywhere_give_the_same_bits(void **state)
{
    (void)state;
    uint64_t key = rng_key(check_seed(), RNG_SHUFFLE);
    for (uint32_t i = 0; i < 6; i++) {
        int n = length[1 + i] + 60, heads = heads_per_kv[i % 6];
        struct attn_case c = case_new(width[i % 8], heads, (int)i * 9, n, 600 + i);
        struct attn_saved whole = saved_new(&c), cut = saved_new(&c);
        EACH_LEVEL(k)
        {
            struct rig r = rig_open(*k, &c, c.pos + n);
            forward(&r, &c, 0, n, &whole);
            for (int lo = 0, hi; lo < n; lo = hi) {
                hi = lo + 1 + (int)rng_below(key, (uint32_t)lo, i, 1, 0, 50);
                hi = MIN(hi, n);
                forward(&r, &c, lo, hi, &cut);
            }
            assert_same_saved(&c, &whole, &cut);
            rig_close(&r);
        }
        saved_free(&whole);
        saved_free(&cut);
        case_free(&c);
    }
}

/* The prompt's full blocks shared, the straddling one copied: a sample sees what it would have seen
   in one sequence of its own. */
static void test_a_shared_prompt_gives_the_bits_of_one_sequence(void **state)
{
    (void)state;
    static const int prompts[] = {1, 31, 32, 33, 64, 77};
    for (uint32_t i = 0; i < ARRAY_LEN(prompts); i++) {
        int prompt = prompts[i], n = 70;
        struct attn_case c = case_new(64, 3, prompt, n, 700 + i);
        struct attn_saved one = saved_new(&c), shared = saved_new(&c);
        EACH_LEVEL(k)
        {
            struct rig r = rig_open(*k, &c, prompt + n), owner = rig_open(*k, &c, prompt);
            struct rig sample = rig_open(*k, &c, 0);
            for (int b = 0; b < prompt / KV_BLOCK; b++)
                sample.table[b] = owner.table[b];
            if (prompt % KV_BLOCK)
                memcpy((void *)(uintptr_t)sample.table[prompt / KV_BLOCK],
                       owner.table[prompt / KV_BLOCK], (*k)->kv_bytes(64));
            for (int key = prompt; key < prompt + n; key++)
                rig_put(&sample, &c, key);
            forward(&r, &c, 0, n, &one);
            forward(&sample, &c, 0, n, &shared);
            assert_same_saved(&c, &one, &shared);
            rig_close(&r);
            rig_close(&owner);
            rig_close(&sample);
        }
        saved_free(&one);
        saved_free(&shared);
        case_free(&c);
    }
}

static void test_where_keys_split_changes_no_bit_of_the_sums(void **state)
{
    (void)state;
    static const int splits[] = {1, 31, 32, 33, 50, 65};
    struct attn_case c = case_new(48, 4, 65, 50, 800);
    struct attn_saved s = saved_new(&c);
    EACH_LEVEL(k)
    {
        struct attn_sums whole = sums_new(&c);
        run(*k, &c, 0, &s, &whole);
        for (size_t i = 0; i < ARRAY_LEN(splits); i++) {
            struct attn_sums parts = sums_new(&c);
            run(*k, &c, splits[i], &s, &parts);
            assert_same_sums(&c, &whole, &parts);
            sums_free(&parts);
        }
        sums_free(&whole);
    }
    saved_free(&s);
    case_free(&c);
}

/* Scratch of NaN bits or of zeros; slots past the last key with another sequence's keys in them, or
   with NaN in K: the same bits. */
static void test_scratch_and_unused_slots_do_not_leak(void **state)
{
    (void)state;
    enum { E = 80, KEYS = 52 };
    struct attn_case c = case_new(E, 2, 10, KEYS - 10, 900), longer = case_new(E, 2, 10, 54, 901);
    struct attn_case poison = case_new(E, 2, 10, 54, 902);
    for (int i = 0; i < E; i++)
        poison.k[KEYS * E + i] = NAN;
    struct attn_saved a = saved_new(&c), b = saved_new(&c);
    EACH_LEVEL(k)
    {
        struct attn_sums ga = sums_new(&c), gb = sums_new(&c);
        struct rig clean = rig_open(*k, &c, KEYS), stale = rig_open(*k, &longer, 64);
        clean.fill = 0;
        forward(&clean, &c, 0, c.n, &a);
        backward(&clean, &c, 10, &a, &ga);
        for (int key = 0; key < KEYS; key++)
            rig_put(&stale, &c, key);
        forward(&stale, &c, 0, c.n, &b);
        backward(&stale, &c, 10, &b, &gb);
        assert_same_saved(&c, &a, &b);
        assert_same_sums(&c, &ga, &gb);
        rig_put(&stale, &poison, KEYS);
        forward(&stale, &c, 0, c.n, &b);
        assert_same_saved(&c, &a, &b);
        rig_close(&clean);
        rig_close(&stale);
        sums_free(&ga);
        sums_free(&gb);
    }
    saved_free(&a);
    saved_free(&b);
    case_free(&c);
    case_free(&longer);
    case_free(&poison);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_level_gives_the_bits_of_the_law),
        cmocka_unit_test(test_a_prompts_sums_take_the_samples_in_order),
        cmocka_unit_test(test_double_with_our_roundings_agrees_tightly),
        cmocka_unit_test(test_plain_double_agrees_within_the_derived_bounds),
        cmocka_unit_test(test_the_oracles_gradient_is_the_slope_of_its_forward),
        cmocka_unit_test(test_a_decoded_row_equals_the_same_row_in_a_segment),
        cmocka_unit_test(test_rows_cut_anywhere_give_the_same_bits),
        cmocka_unit_test(test_a_shared_prompt_gives_the_bits_of_one_sequence),
        cmocka_unit_test(test_where_keys_split_changes_no_bit_of_the_sums),
        cmocka_unit_test(test_scratch_and_unused_slots_do_not_leak),
    };
    pool_flush_denormals();
    return cmocka_run_group_tests_name("attn", tests, NULL, NULL);
}
