/* Curves: read back from a run's JSONL, and drawn. */
#include "check.h"

#include "telem/telem.h"

#include "base/file.h"
#include "base/mem.h"

static void write_text(const char *path, const char *text)
{
    struct err e = {0};
    check_ok(file_write_atomic(path, text, strlen(text), &e), e);
}

static void a_curve_is_read_back_from_the_file(void **state)
{
    (void)state;
    const char *dir = check_folder();
    char *path = file_join(dir, "metrics.jsonl"), want[512];
    struct telem_series s = {0};
    struct err e = {0};
    write_text(path,
               "{\"step\": 1, \"reward\": 0.25}\n{\"step\": 2}\n{\"step\": 3, \"reward\": null}\n"
               "{\"step\": 4, \"reward\": 1}\n{\"step\": 5, \"rew");
    check_ok(telem_series_read(&s, path, "reward", &e), e);
    assert_int_equal(s.n, 2);
    assert_true(s.x[0] == 1 && s.y[0] == 0.25 && s.x[1] == 4 && s.y[1] == 1);
    telem_series_release(&s);
    write_text(path, "{\"step\": 1}\n{\"st\n");
    assert_int_equal(telem_series_read(&s, path, "reward", &e), ERR_FORMAT);
    snprintf(want, sizeof want, "%s:2: not JSON: ", path);
    assert_true(str_starts(e.text, want));
    e = (struct err){0};
    write_text(path, "{\"step\": 1}\n{\"step\": 1}\n");
    assert_int_equal(telem_series_read(&s, path, "reward", &e), ERR_FORMAT);
    snprintf(want, sizeof want, "%s:2: expected a step above that of the line before", path);
    check_error(e, ERR_FORMAT, want);
    mem_free(path);
    check_folder_remove(dir);
}

static void check_plot(const struct telem_plot *plot, double *x, double *y, size_t n,
                       const char *want)
{
    struct buf b = {0};
    struct telem_series s = {.x = x, .y = y, .n = n};
    telem_plot(&b, plot, &s);
    assert_string_equal(buf_str(&b), want);
    buf_release(&b);
}

static void a_plot_shows_the_curve(void **state)
{
    (void)state;
    double x[] = {1, 2, 3, 4, 5, 6, 7, 8}, rise[] = {0, 0, .25, .25, .5, .75, .75, 1};
    struct telem_plot plot = {.title = "reward", .width = 8, .height = 5, .ascii = true};
    check_plot(&plot, x, rise, 8,
               "           reward\n"
               "        1 |       *\n"
               "          |     **\n"
               "      0.5 |    *\n"
               "          |  **\n"
               "        0 |**\n"
               "          +--------\n"
               "           1      8\n");
    plot = (struct telem_plot){.title = "reward", .width = 4, .height = 2, .lo = 0, .hi = 1};
    check_plot(&plot, x, rise, 8,
               "           reward\n"
               "        1 ┤  ⢠⠜\n"
               "        0 ┤⣀⠖⠁\n"
               "          └────\n"
               "           1  8\n");
}

static void plots_of_odd_data_stand(void **state)
{
    (void)state;
    double x[] = {1, 2, 9}, flat[] = {.5, .5, .5}, holes[] = {0, NAN, 1}, wide[] = {-3, 7, 2};
    struct telem_plot plot = {.title = "t", .width = 5, .height = 3, .ascii = true};
    check_plot(&plot, x, flat, 0,
               "           t\n      0.5 |\n        0 |\n     -0.5 |\n          +-----\n"
               "           0   0\n");
    check_plot(&plot, x, flat, 1,
               "           t\n        1 |\n      0.5 |*\n        0 |\n          +-----\n"
               "           1   1\n");
    check_plot(&plot, x, holes, 3,
               "           t\n        1 |    *\n      0.5 |  **\n        0 |**\n          +-----\n"
               "           1   9\n");
    plot.lo = 0;
    plot.hi = 1;
    check_plot(&plot, x, wide, 3,
               "           t\n        1 | ****\n      0.5 | *\n        0 |*\n          +-----\n"
               "           1   9\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_curve_is_read_back_from_the_file),
        cmocka_unit_test(a_plot_shows_the_curve),
        cmocka_unit_test(plots_of_odd_data_stand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
