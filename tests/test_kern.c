/* Kernels as a whole: every operator of every level, the choice of a level, bf16. */
#include "check.h"

#include "kern/kern.h"

#include <cmocka.h>

static void verdict(void *ctx, const struct kern_verdict *v)
{
    print_message("  %-13s %9lld outputs, worst error %.2f of its bound\n", v->op,
                  (long long)v->compared, v->worst);
    assert_true(v->compared > 0);
    if (v->unequal || v->wrong)
        print_error("  %s: %lld unequal to portable, %lld wrong\n", v->op, (long long)v->unequal,
                    (long long)v->wrong);
    (*(int *)ctx)++;
}

static void every_operator_of_every_level_agrees(void **state)
{
    (void)state;
    if (check_on_valgrind())
        skip();
    for (const struct kern *const *k = kern_levels(); *k; k++) {
        if (!kern_usable(*k)) {
            print_message("  level %s: this CPU lacks it\n", (*k)->name);
            continue;
        }
        int reported = 0, n_ops = 0;
#define X(ret, op, args) n_ops++;
        KERN_OPS(X)
#undef X
        print_message("  level %s\n", (*k)->name);
        assert_int_equal(kern_check(*k, verdict, &reported), 0);
        assert_int_equal(reported, n_ops);
    }
}

static void tables_are_complete(void **state)
{
    (void)state;
    for (const struct kern *const *k = kern_levels(); *k; k++) {
        assert_non_null((*k)->name);
        assert_true((*k)->panel == 16 || (*k)->panel == 32);
#define X(ret, op, args) assert_true((*k)->op != NULL);
        KERN_OPS(X)
#undef X
    }
}

static void the_best_level_is_the_last_usable(void **state)
{
    (void)state;
    const struct kern *best = NULL;
    for (const struct kern *const *k = kern_levels(); *k; k++)
        best = kern_usable(*k) ? *k : best;
    assert_ptr_equal(kern_best(), best);
    assert_true(kern_usable(kern_levels()[0]));
}

static void loco_kern_names_the_level(void **state)
{
    (void)state;
    struct err e = {0};
    setenv("LOCO_KERN", "portable", 1);
    assert_ptr_equal(kern_choose(&e), kern_find("portable"));
    setenv("LOCO_KERN", "", 1);
    assert_ptr_equal(kern_choose(&e), kern_best());
    unsetenv("LOCO_KERN");
    assert_ptr_equal(kern_choose(&e), kern_best());
    assert_int_equal(e.code, 0);
}

static void an_unknown_level_is_refused(void **state)
{
    (void)state;
    struct err e = {0};
    char want[256];
    setenv("LOCO_KERN", "avx3", 1);
    assert_null(kern_choose(&e));
    unsetenv("LOCO_KERN");
    snprintf(want, sizeof want,
             "LOCO_KERN=avx3: no such kernel level; this CPU runs: portable%s (unset it to take "
             "the best)",
             kern_best() == kern_find("avx2") ? ", avx2" : "");
    check_error(e, ERR_USAGE, want);
}

static void bf16_rounds_to_even(void **state)
{
    (void)state;
    assert_int_equal(bf16_from(1.0f), 0x3f80);
    assert_int_equal(bf16_from(1.00390625f), 0x3f80);  // halfway between 0x3f80 and 0x3f81
    assert_int_equal(bf16_from(1.01171875f), 0x3f82);  // halfway between 0x3f81 and 0x3f82
    assert_int_equal(bf16_from(1.003906369f), 0x3f81); // just above half
    assert_int_equal(bf16_from(-0.0f), 0x8000);
    assert_int_equal(bf16_from(3.4e38f), 0x7f80);
    assert_int_equal(bf16_from(-INFINITY), 0xff80);
    assert_int_equal(bf16_from(-NAN), 0x7fc0);
    for (int i = 0; i < 65536; i++)
        assert_int_equal(bf16_from(bf16_to((bf16)i)), isnan(bf16_to((bf16)i)) ? 0x7fc0 : i);
}

static void packed_sizes_add_up(void **state)
{
    (void)state;
    for (const struct kern *const *k = kern_levels(); *k; k++) {
        int p = (*k)->panel;
        assert_int_equal(kern_panels(*k, 1), 1);
        assert_int_equal(kern_panels(*k, p), 1);
        assert_int_equal(kern_panels(*k, p + 1), 2);
        assert_int_equal(kern_packed_bytes(*k, p + 1, 33), 2 * p * 64 * 2 + KERN_GUARD);
        const char *base = "";
        assert_ptr_equal(kern_panel(*k, base, 33, p * 3), base + 3 * p * 64 * 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_complete),
        cmocka_unit_test(the_best_level_is_the_last_usable),
        cmocka_unit_test(loco_kern_names_the_level),
        cmocka_unit_test(an_unknown_level_is_refused),
        cmocka_unit_test(bf16_rounds_to_even),
        cmocka_unit_test(packed_sizes_add_up),
        cmocka_unit_test(every_operator_of_every_level_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
