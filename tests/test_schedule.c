/* Learning-rate schedules: transformers' own factors (tests/golden/schedule.txt), and refusals. */
#include "check.h"

#include "train/train.h"

#include "base/file.h"
#include "base/mem.h"

static void check_line(char *line)
{
    char *save = NULL, *name = strtok_r(line, " ", &save), *word;
    uint64_t steps = strtoull(strtok_r(NULL, " ", &save), NULL, 10), step = 0;
    double warmup = strtod(strtok_r(NULL, " ", &save), NULL);
    struct train_schedule s;
    struct err e = {0};
    assert_int_equal(train_schedule_init(&s, name, steps, warmup, 0.0, &e), 0);
    while ((word = strtok_r(NULL, " ", &save)) != NULL) {
        double want = strtod(word, NULL), got = train_schedule_factor(&s, step++);
        if (!(fabs(got - want) <= 1e-15))
            fail_msg("%s, %d steps, step %d: %.17g, expected %.17g", name, (int)steps,
                     (int)step - 1, got, want);
    }
    assert_int_equal(step, steps + 2);
}

static void factors_equal_those_of_transformers(void **state)
{
    (void)state;
    char *text, *save = NULL;
    size_t size;
    struct err e = {0};
    int lines = 0;
    assert_int_equal(file_read("tests/golden/schedule.txt", 1 << 20, &text, &size, &e), 0);
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save), lines++)
        check_line(l);
    assert_int_equal(lines, 9);
    mem_free(text);
}

static uint64_t warmup_of(double warmup_steps, double warmup_ratio)
{
    struct train_schedule s;
    assert_int_equal(train_schedule_init(&s, "linear", 25, warmup_steps, warmup_ratio, NULL), 0);
    return s.warmup_steps;
}

static void warmup_is_a_count_or_a_share_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(warmup_of(0, 0), 0);
    assert_int_equal(warmup_of(4, 0.5), 4);
    assert_int_equal(warmup_of(0.1, 0), 3);
    assert_int_equal(warmup_of(0, 0.1), 3);
}

static void unknown_names_and_warmup_of_constant_are_refused(void **state)
{
    (void)state;
    struct train_schedule s;
    struct err e = {0};
    assert_int_equal(train_schedule_init(&s, "polynomial", 10, 0, 0, &e), ERR_USAGE);
    check_error(e, ERR_USAGE,
                "lr_scheduler_type: 'polynomial' is none of constant, constant_with_warmup, "
                "linear, cosine");
    e = (struct err){0};
    assert_int_equal(train_schedule_init(&s, "constant", 10, 0, 0.2, &e), ERR_USAGE);
    check_error(e, ERR_USAGE,
                "lr_scheduler_type constant has no warm-up, but 2 warm-up steps were asked for: "
                "use constant_with_warmup");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_equal_those_of_transformers),
        cmocka_unit_test(warmup_is_a_count_or_a_share_rounded_up),
        cmocka_unit_test(unknown_names_and_warmup_of_constant_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
