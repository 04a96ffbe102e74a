/* Errors keep the first message, gain context outwards, and end the process as documented. */
#include "check.h"

#include "base/log.h"

static void test_first_message_wins(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(err_set(&e, ERR_IO, "disk %d", 3), ERR_IO);
    assert_int_equal(err_set(&e, ERR_DATA, "later"), ERR_DATA);
    check_error(e, ERR_IO, "disk 3");
}

static void test_context_is_prepended(void **state)
{
    (void)state;
    struct err e = {0};
    err_set(&e, ERR_FORMAT, "header is %d bytes", 9);
    assert_int_equal(err_in(&e, ERR_FORMAT, "%s", "a.safetensors"), ERR_FORMAT);
    err_in(&e, ERR_FORMAT, "train");
    check_error(e, ERR_FORMAT, "train: a.safetensors: header is 9 bytes");
}

static void test_context_leaves_success_alone(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(err_in(&e, 0, "train"), 0);
    check_error(e, ERR_NONE, "");
    assert_int_equal(err_set(NULL, ERR_IO, "nobody asks"), ERR_IO);
    assert_int_equal(err_in(NULL, ERR_IO, "nobody asks"), ERR_IO);
}

static void test_long_texts_are_cut_not_overrun(void **state)
{
    (void)state;
    struct err e = {0};
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    err_set(&e, ERR_IO, "%s", longer);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    err_in(&e, ERR_IO, "run");
    assert_int_equal(strncmp(e.text, "run: xxx", 8), 0);
    err_in(&e, ERR_IO, "%s", longer);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
}

static void test_exit_status_of_each_code(void **state)
{
    (void)state;
    assert_int_equal(err_exit_status(ERR_NONE), 0);
    assert_int_equal(err_exit_status(ERR_USAGE), 2);
    assert_int_equal(err_exit_status(ERR_NUMERIC), 9);
    assert_int_equal(err_exit_status(ERR_STOPPED), 130);
    assert_int_equal(err_exit_status(-77), 1);
}

static int third_fails(int n, struct err *e)
{
    return n == 3 ? err_set(e, ERR_DATA, "three") : 0;
}

static int count_until(int *n, struct err *e)
{
    int rc = 0;
    for (*n = 0;; ++*n)
        TRY(third_fails(*n, e));
fail:
    return err_in(e, rc, "counting");
}

static void test_try_leaves_with_the_code(void **state)
{
    (void)state;
    struct err e = {0};
    int n;
    assert_int_equal(count_until(&n, &e), ERR_DATA);
    assert_int_equal(n, 3);
    check_error(e, ERR_DATA, "counting: three");
}

static void break_a_promise(void *ctx)
{
    ASSERT(*(int *)ctx == 2);
}

static void test_assert_names_expression_place_and_stack(void **state)
{
    (void)state;
    int one = 1, two = 2;
    char text[8192];
    assert_int_equal(check_child(break_a_promise, &two, text, sizeof text), 0);
    int status = check_child(break_a_promise, &one, text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_err.c:"));
    assert_non_null(strstr(text, "*(int *)ctx == 2 does not hold"));
    assert_non_null(strstr(text, "test_err"));
}

static void die_of_memory(void *ctx)
{
    (void)ctx;
    err_die(ERR_MEMORY, "no more than %d", 7);
}

static void test_die_prints_and_exits(void **state)
{
    (void)state;
    char text[256];
    int status = check_child(die_of_memory, NULL, text, sizeof text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 6);
    assert_string_equal(text, "loco: error: no more than 7\n");
}

static void say_things(void *ctx)
{
    (void)ctx;
    for (int i = 0; i < 3; i++)
        log_warn("odd %s", "row");
    log_warn("other");
    log_info("step %d", 1);
    log_error("bad");
}

static void test_warnings_are_said_once(void **state)
{
    (void)state;
    char text[512];
    assert_int_equal(check_child(say_things, NULL, text, sizeof text), 0);
    assert_string_equal(text, "warning: odd row\nwarning: other\nstep 1\nloco: error: bad\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_message_wins),
        cmocka_unit_test(test_context_is_prepended),
        cmocka_unit_test(test_context_leaves_success_alone),
        cmocka_unit_test(test_long_texts_are_cut_not_overrun),
        cmocka_unit_test(test_exit_status_of_each_code),
        cmocka_unit_test(test_try_leaves_with_the_code),
        cmocka_unit_test(test_assert_names_expression_place_and_stack),
        cmocka_unit_test(test_die_prints_and_exits),
        cmocka_unit_test(test_warnings_are_said_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
