/* Random numbers, exact functions, maps and memory. */
#include "check.h"

#include "base/base_int.h"
#include "base/exact.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"

/* Known-answer vectors of Random123 1.14, kat_vectors: counter, key, result. */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < ARRAY_LEN(kat); i++) {
        const uint32_t *c = kat[i].counter;
        uint32_t out[4];
        rng_block((uint64_t)kat[i].key[1] << 32 | kat[i].key[0], c[0], c[1], c[2], c[3], out);
        assert_memory_equal(out, kat[i].want, sizeof out);
    }
}

/* SplitMix64's published first outputs for seed 1234567 are its finaliser over multiples of the
   golden gamma, which is what the key is. */
static void test_key_is_splitmix64(void **state)
{
    (void)state;
    assert_true(rng_key(1234567, RNG_INIT) == UINT64_C(6457827717110365317));
    assert_true(rng_key(1234567, RNG_SHUFFLE) == UINT64_C(3203168211198807973));
    assert_true(rng_key(1234567, RNG_DATA) == UINT64_C(9817491932198370423));
}

static void test_uniform_and_below_have_their_ranges_and_means(void **state)
{
    (void)state;
    uint64_t key = rng_key(check_seed(), RNG_ROLLOUT);
    enum { DRAWS = 20000, SIDES = 6 };
    double sum = 0;
    int count[SIDES] = {0};
    for (uint32_t i = 0; i < DRAWS; i++) {
        double u = rng_uniform(key, i, 1, 2, 3);
        assert_true(u >= 0 && u < 1);
        sum += u;
        uint32_t side = rng_below(key, i, 4, 5, 6, SIDES);
        assert_true(side < SIDES);
        count[side]++;
    }
    assert_true(fabs(sum / DRAWS - 0.5) < 6 * sqrt(1.0 / 12 / DRAWS));
    for (int i = 0; i < SIDES; i++)
        assert_true(abs(count[i] - DRAWS / SIDES) < 6 * sqrt(DRAWS * 5.0 / 36));
    assert_int_equal(rng_below(key, 0, 0, 0, 0, 1), 0);
}

/* rng_below is the upper part of a 96-bit product. */
static void test_below_multiplies_and_shifts(void **state)
{
    (void)state;
    uint64_t key = rng_key(check_seed(), RNG_DATA);
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t out[4], n;
        rng_block(key, i, 0, 0, 1, out);
        n = out[3] | 1;
        __extension__ typedef unsigned __int128 wide;
        uint64_t x = (uint64_t)out[0] << 32 | out[1];
        assert_true(rng_below(key, i, 0, 0, 1, n) == (uint32_t)(((wide)x * n) >> 64));
    }
}

static void test_permute_is_a_permutation_for_every_small_n(void **state)
{
    (void)state;
    uint64_t key = rng_key(check_seed(), RNG_SHUFFLE);
    bool *seen = mem_alloc(600);
    for (uint64_t n = 1; n < 600; n += n < 70 ? 1 : 37) {
        memset(seen, 0, n);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t to = rng_permute(key, 3, n, i);
            assert_true(to < n && !seen[to]);
            seen[to] = true;
        }
    }
    mem_free(seen);
}

static void test_permute_differs_by_epoch_and_mixes(void **state)
{
    (void)state;
    uint64_t key = rng_key(7, RNG_SHUFFLE), n = 1000;
    int fixed = 0, same = 0, neighbours = 0;
    for (uint64_t i = 0; i < n; i++) {
        fixed += rng_permute(key, 0, n, i) == i;
        same += rng_permute(key, 0, n, i) == rng_permute(key, 1, n, i);
        neighbours += i > 0 && rng_permute(key, 0, n, i) == rng_permute(key, 0, n, i - 1) + 1;
    }
    assert_true(fixed < 10 && same < 10 && neighbours < 10);
    assert_true(rng_permute(key, 0, UINT64_MAX, UINT64_MAX - 1) < UINT64_MAX);
}

static double ulp_of(double x)
{
    int e;
    frexp(x, &e);
    return ldexp(1, MAX(e, -1021) - 53);
}

/* Worst error in units of the last place against libm's long double. */
static double worst(double (*ours)(double), long double (*theirs)(long double), double lo,
                    double hi)
{
    uint64_t key = rng_key(check_seed(), RNG_EVAL);
    double most = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        double x = lo + (hi - lo) * rng_uniform(key, i, 0, 0, 0);
        long double want = theirs(x);
        double off = (double)fabsl(ours(x) - want) / ulp_of((double)want);
        most = MAX(most, off);
    }
    return most;
}

static void test_exp_is_within_two_ulp(void **state)
{
    (void)state;
    assert_true(worst(exact_exp, expl, -1, 1) < 2);
    assert_true(worst(exact_exp, expl, -100, 100) < 2);
    assert_true(worst(exact_exp, expl, -708, 709.78) < 2);
    assert_true(worst(exact_exp, expl, -745, -708) < 2);
}

static void test_log_is_within_two_ulp(void **state)
{
    (void)state;
    assert_true(worst(exact_log, logl, 0.9, 1.1) < 2);
    assert_true(worst(exact_log, logl, 1 - 1e-9, 1 + 1e-9) < 2);
    assert_true(worst(exact_log, logl, 0, 2) < 2);
    assert_true(worst(exact_log, logl, 0, 1e300) < 2);
    assert_true(worst(exact_log, logl, 0, 1e-300) < 2);
}

static void test_sin_and_cos_are_within_two_ulp(void **state)
{
    (void)state;
    static const double range[] = {1, 10, 1e3, 1e6, 1e8};
    for (size_t i = 0; i < ARRAY_LEN(range); i++) {
        assert_true(worst(exact_sin, sinl, -range[i], range[i]) < 2);
        assert_true(worst(exact_cos, cosl, -range[i], range[i]) < 2);
    }
}

/* Where the argument is a multiple of pi/2 but for its last bits, reduction needs all parts. */
static void test_sin_keeps_its_bits_near_its_zeros(void **state)
{
    (void)state;
    for (int n = 1; n < 60000000; n = n * 3 + 1) {
        double x = n * 3.14159265358979323846264338327950288L;
        long double want = sinl(x);
        assert_true(fabsl(exact_sin(x) - want) < 2 * ulp_of((double)want));
    }
}

static void test_pow_is_within_two_ulp(void **state)
{
    (void)state;
    if (check_on_valgrind())
        skip();
    uint64_t key = rng_key(check_seed(), RNG_EVAL);
    for (uint32_t i = 0; i < 100000; i++) {
        double x = exact_exp(40 * rng_uniform(key, i, 1, 0, 0) - 20);
        double y = 60 * rng_uniform(key, i, 2, 0, 0) - 30;
        long double want = powl(x, y);
        if (want < 1e-290L || want > 1e290L)
            continue;
        assert_true(fabsl(exact_pow(x, y) - want) < 2 * ulp_of((double)want));
    }
    assert_true(exact_pow(10000, 0) == 1);
    assert_true(exact_pow(2, 10) == 1024);
    assert_true(isinf(exact_pow(10, 400)));
    assert_true(exact_pow(10, -400) == 0);
    assert_true(exact_pow(0, 1) == 0 && exact_pow(-0.0, 3) == 0);
}

static void test_exact_functions_at_their_edges(void **state)
{
    (void)state;
    assert_true(exact_exp(0) == 1);
    assert_true(isinf(exact_exp(709.79)));
    assert_true(exact_exp(-745.14) == 0);
    assert_true(isnan(exact_exp(NAN)));
    assert_true(exact_exp(-INFINITY) == 0);
    assert_true(exact_log(1) == 0);
    assert_true(isinf(exact_log(0)) && exact_log(0) < 0);
    assert_true(isinf(exact_log(-0.0)));
    assert_true(isnan(exact_log(-1)));
    assert_true(isnan(exact_log(NAN)));
    assert_true(isinf(exact_log(INFINITY)));
    assert_true(exact_log(5e-324) == log(5e-324));
    assert_true(exact_sin(0) == 0);
    assert_true(exact_cos(0) == 1);
}

/* The bits themselves: another compiler, machine or libm must give these. */
static void test_exact_functions_have_fixed_bits(void **state)
{
    (void)state;
    uint64_t key = rng_key(1, RNG_EVAL), sum = 0;
    for (uint32_t i = 0; i < 4000; i++) {
        double u = rng_uniform(key, i, 0, 0, 0);
        double value[] = {exact_exp(80 * u - 40), exact_log(1e6 * u), exact_sin(1e8 * u),
                          exact_cos(1e5 * u), exact_pow(1e6 * u + 1, -u)};
        for (size_t k = 0; k < ARRAY_LEN(value); k++) {
            uint64_t bits;
            memcpy(&bits, &value[k], sizeof bits);
            sum = (sum ^ bits) * UINT64_C(0x100000001b3);
        }
    }
    assert_int_equal(sum, UINT64_C(0x48e58083b3ff4d47));
}

static void ask_sine_of_too_much(void *ctx)
{
    (void)ctx;
    exact_sin(1.1e8);
}

static void test_sine_refuses_what_it_cannot_reduce(void **state)
{
    (void)state;
    check_asserts(ask_sine_of_too_much, NULL, "x >= -1e8 && x <= 1e8");
}

static void test_map_keeps_order_and_overwrites(void **state)
{
    (void)state;
    struct map m = {0};
    int64_t value = -1;
    assert_false(map_get(&m, "a", 1, &value));
    enum { KEYS = 5000 };
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        int len = snprintf(key, sizeof key, "key%d", i);
        assert_true(map_put(&m, key, (size_t)len, i));
    }
    assert_false(map_put(&m, "key77", 5, -77));
    assert_int_equal(m.n, KEYS);
    assert_string_equal(m.entry[4321].key, "key4321");
    assert_true(map_get(&m, "key77", 5, &value));
    assert_int_equal(value, -77);
    assert_true(map_get(&m, "key4999", 7, NULL));
    value = 5;
    assert_false(map_get(&m, "key5000", 7, &value));
    assert_int_equal(value, 5);
    map_release(&m);
    map_release(&m);
    assert_int_equal(m.n, 0);
}

static void test_map_keys_are_bytes(void **state)
{
    (void)state;
    struct map m = {0};
    int64_t value;
    assert_true(map_put(&m, "a\0b", 3, 1));
    assert_true(map_put(&m, "a\0c", 3, 2));
    assert_true(map_put(&m, "a", 1, 3));
    assert_true(map_put(&m, "", 0, 4));
    assert_true(map_get(&m, "a\0c", 3, &value) && value == 2);
    assert_true(map_get(&m, "", 0, &value) && value == 4);
    map_release(&m);
}

static void test_arena_aligns_zeroes_and_adds_up(void **state)
{
    (void)state;
    struct arena a;
    struct err e = {0};
    static const size_t sizes[] = {1, 64, 65, 4096, 0, 3 << 20};
    size_t total = 0;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        total += arena_cost(sizes[i]);
    check_ok(arena_init(&a, "test", total, &e), e);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        unsigned char *p = arena_alloc(&a, sizes[i]);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t k = 0; k < sizes[i]; k += 61)
            assert_int_equal(p[k], 0);
        memset(p, 0xAB, sizes[i]);
    }
    assert_int_equal(a.used, total);
    arena_release(&a);
    arena_release(&a);
    assert_null(a.base);
}

static void test_arena_goes_back_to_a_mark(void **state)
{
    (void)state;
    struct arena a;
    struct err e = {0};
    check_ok(arena_init(&a, "scratch", 1 << 16, &e), e);
    arena_alloc(&a, 100);
    size_t mark = a.used;
    void *first = arena_alloc(&a, 1000);
    arena_reset(&a, mark);
    assert_ptr_equal(arena_alloc(&a, 2000), first);
    arena_release(&a);
}

static void overfill(void *ctx)
{
    arena_alloc(ctx, 4096);
}

static void test_arena_refuses_what_was_not_planned(void **state)
{
    (void)state;
    struct arena a;
    struct err e = {0};
    check_ok(arena_init(&a, "small", 4096, &e), e);
    check_asserts(overfill, &a, "cost <= a->size - a->used");
    arena_release(&a);
    assert_int_equal(arena_init(&a, "weights", SIZE_MAX / 4, &e), ERR_MEMORY);
    check_error(e, ERR_MEMORY,
                "weights: the system refuses 4194304.00 TiB: Cannot allocate memory");
}

static void overrun(void *ctx)
{
    memset(ctx, 1, 129);
}

/* A byte too far is seen, also by an object that fills its 64-byte lines. */
static void test_arena_gaps_are_watched_by_asan(void **state)
{
    (void)state;
    struct arena a;
    struct err e = {0};
    char text[8192];
    check_ok(arena_init(&a, "watched", 4096, &e), e);
    void *p = arena_alloc(&a, 128);
    arena_alloc(&a, 128);
    int status = check_child(overrun, p, text, sizeof text);
    assert_int_equal(status != 0, check_on_asan());
    arena_release(&a);
}

static void test_ledger_names_total_budget_largest_and_remedy(void **state)
{
    (void)state;
    struct ledger l = {0};
    struct err e = {0};
    ledger_add(&l, "weights", (size_t)1 << 30);
    ledger_add(&l, "KV cache", (size_t)1 << 30);
    ledger_add(&l, "KV cache", (size_t)2 << 30);
    assert_int_equal(l.n, 2);
    ledger_add(&l, "scratch", 1 << 20);
    assert_int_equal(ledger_total(&l), ((size_t)4 << 30) + (1 << 20));
    check_ok(ledger_check(&l, (size_t)5 << 30, "x", &e), e);
    assert_int_equal(ledger_check(&l, (size_t)2 << 30, "lower slots", &e), ERR_MEMORY);
    check_error(e, ERR_MEMORY,
                "this run needs 4.00 GiB of memory and may use 2.00 GiB; the largest part is "
                "KV cache with 3.00 GiB; lower slots");
    ledger_add(&l, "absurd", SIZE_MAX);
    assert_true(ledger_total(&l) == SIZE_MAX);
}

static void test_memory_figures_are_plausible(void **state)
{
    (void)state;
    size_t before = mem_resident(), n = (size_t)32 << 20;
    assert_true(before > 0 && mem_peak() >= before);
    assert_true(mem_available() > n && mem_available() < (size_t)1 << 50);
    struct arena a;
    struct err e = {0};
    check_ok(arena_init(&a, "touched", n, &e), e);
    memset(arena_alloc(&a, n - 64), 1, n - 64);
    assert_true(mem_resident() >= before + n * 9 / 10);
    arena_release(&a);
    assert_true(mem_peak() >= before + n * 9 / 10);
}

/* As in memory.stat, /proc/self/status, memory.max and cpu.max. */
static void test_fields_of_system_files_are_read(void **state)
{
    (void)state;
    uint64_t v = 7;
    assert_true(base_field("anon 1\nactive_file 22\nfile 3\n", "active_file ", &v) && v == 22);
    assert_true(base_field("anon 1\nactive_file 22\nfile 3\n", "file ", &v) && v == 3);
    assert_true(base_field("Name:\tx\nRssAnon:\t  412 kB\n", "RssAnon", &v) && v == 412);
    assert_true(base_field("150000 100000", "", &v) && v == 150000);
    v = 7;
    assert_false(base_field("max\n", "", &v));
    assert_false(base_field("-1", "", &v));
    assert_false(base_field("anon 1\n", "file ", &v));
    assert_false(base_field("", "file ", &v));
    assert_int_equal(v, 7);
}

static void test_memory_texts(void **state)
{
    (void)state;
    char t[24];
    assert_string_equal(mem_text(0, t), "0 B");
    assert_string_equal(mem_text(1023, t), "1023 B");
    assert_string_equal(mem_text(1536, t), "1.50 KiB");
    assert_string_equal(mem_text((size_t)5 << 28, t), "1.25 GiB");
}

static void test_grow_keeps_content_and_is_amortised(void **state)
{
    (void)state;
    int *v = NULL, moves = 0;
    size_t cap = 0, n = 0;
    for (int i = 0; i < 10000; i++) {
        size_t before = cap;
        mem_grow(&v, &cap, n + 1, sizeof *v);
        moves += cap != before;
        v[n++] = i;
    }
    for (int i = 0; i < 10000; i++)
        assert_int_equal(v[i], i);
    assert_true(moves < 30);
    mem_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_key_is_splitmix64),
        cmocka_unit_test(test_uniform_and_below_have_their_ranges_and_means),
        cmocka_unit_test(test_below_multiplies_and_shifts),
        cmocka_unit_test(test_permute_is_a_permutation_for_every_small_n),
        cmocka_unit_test(test_permute_differs_by_epoch_and_mixes),
        cmocka_unit_test(test_exp_is_within_two_ulp),
        cmocka_unit_test(test_log_is_within_two_ulp),
        cmocka_unit_test(test_sin_and_cos_are_within_two_ulp),
        cmocka_unit_test(test_sin_keeps_its_bits_near_its_zeros),
        cmocka_unit_test(test_pow_is_within_two_ulp),
        cmocka_unit_test(test_exact_functions_at_their_edges),
        cmocka_unit_test(test_exact_functions_have_fixed_bits),
        cmocka_unit_test(test_sine_refuses_what_it_cannot_reduce),
        cmocka_unit_test(test_map_keeps_order_and_overwrites),
        cmocka_unit_test(test_map_keys_are_bytes),
        cmocka_unit_test(test_arena_aligns_zeroes_and_adds_up),
        cmocka_unit_test(test_arena_goes_back_to_a_mark),
        cmocka_unit_test(test_arena_refuses_what_was_not_planned),
        cmocka_unit_test(test_arena_gaps_are_watched_by_asan),
        cmocka_unit_test(test_ledger_names_total_budget_largest_and_remedy),
        cmocka_unit_test(test_memory_figures_are_plausible),
        cmocka_unit_test(test_fields_of_system_files_are_read),
        cmocka_unit_test(test_memory_texts),
        cmocka_unit_test(test_grow_keeps_content_and_is_amortised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
