/* Telemetry: phases add up, records keep their order and bits, files are cut where a checkpoint was
 * made, and what a person sees. Curves are in test_curve.c.
 */
#include "check.h"

#include "telem/telem.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"

#include <inttypes.h>

/* A clock that the test moves, and a terminal that keeps what it is given. */
struct bench {
    uint64_t ns;
    uint64_t tick; // added at each look
    struct buf shown;
};

static uint64_t bench_now(void *ctx)
{
    struct bench *b = ctx;
    return b->ns += b->tick;
}

static void bench_print(void *ctx, const char *text, size_t n)
{
    struct bench *b = ctx;
    buf_put(&b->shown, text, n);
}

static struct telem *bench_telem(struct bench *b, const char *dir, bool live)
{
    struct telem *t = NULL;
    struct err e = {0};
    struct telem_options o = {.dir = dir,
                              .steps = 100,
                              .logging_steps = 1,
                              .devices = 4,
                              .peak_flops_s = 1000,
                              .live = live,
                              .columns = 40,
                              .print = bench_print,
                              .now_ns = bench_now,
                              .ctx = b};
    check_ok(telem_new(&t, &o, &e), e);
    return t;
}

static void pass(struct bench *b, double seconds)
{
    b->ns += (uint64_t)(seconds * 1e9);
}

static void end_step(struct telem *t, int64_t step, const struct telem_record *metrics)
{
    struct err e = {0};
    check_ok(telem_step(t, step, metrics, NULL, &e), e);
}

static void check_close(double got, double want)
{
    if (fabs(got - want) > 1e-9)
        fail_msg("expected %.12g, got %.12g", want, got);
}

static void nested_time_goes_to_the_innermost_phase(void **state)
{
    (void)state;
    struct bench b = {0};
    struct telem_record none = {0};
    struct telem *t = bench_telem(&b, NULL, false);
    pass(&b, 1);
    telem_enter(t, TELEM_ROLLOUT);
    pass(&b, 2);
    telem_enter(t, TELEM_REWARD);
    pass(&b, 4);
    telem_leave(t, TELEM_REWARD);
    pass(&b, 8);
    telem_leave(t, TELEM_ROLLOUT);
    telem_enter(t, TELEM_SYNC);
    pass(&b, 16);
    telem_leave(t, TELEM_SYNC);
    telem_enter(t, TELEM_WAIT);
    pass(&b, 32);
    telem_leave(t, TELEM_WAIT);
    end_step(t, 1, &none);
    check_close(telem_phase_s(t, TELEM_ROLLOUT), 10);
    check_close(telem_phase_s(t, TELEM_REWARD), 4);
    check_close(telem_phase_s(t, TELEM_OTHER), 1);
    check_close(telem_share_s(t, TELEM_COMPUTE), 10);
    check_close(telem_share_s(t, TELEM_HOST), 5);
    check_close(telem_share_s(t, TELEM_NETWORK), 16);
    check_close(telem_share_s(t, TELEM_WAITING), 32);
    check_close(telem_step_s(t), 63);
    pass(&b, 3);
    end_step(t, 2, &none);
    check_close(telem_phase_s(t, TELEM_ROLLOUT), 0);
    check_close(telem_step_s(t), 3);
    telem_free(t);
    buf_release(&b.shown);
}

/* Random nesting, with a clock that moves at every look: also what telem spends is in the sum. */
static void time_adds_up(void **state)
{
    (void)state;
    uint64_t key = rng_key(check_seed(), RNG_DATA);
    struct telem_record none = {0};
    for (uint32_t run = 0; run < 50; run++) {
        struct bench b = {.tick = 1000};
        struct telem *t = bench_telem(&b, NULL, false);
        enum telem_phase open[8];
        int depth = 0;
        uint64_t begin = b.ns;
        for (uint32_t i = 0; i < 200; i++) {
            b.ns += rng_below(key, i, 1, run, 0, 1000000);
            if (depth > 0 && (depth == 8 || rng_below(key, i, 2, run, 0, 2))) {
                telem_leave(t, open[--depth]);
            } else {
                open[depth] = (enum telem_phase)rng_below(key, i, 3, run, 0, TELEM_PHASES_N);
                telem_enter(t, open[depth++]);
            }
        }
        while (depth > 0)
            telem_leave(t, open[--depth]);
        end_step(t, 1, &none);
        double wall = (double)(b.ns - begin) * 1e-9, shares = 0, phases = 0;
        for (int i = 0; i < TELEM_SHARES_N; i++)
            shares += telem_share_s(t, (enum telem_share)i);
        for (int i = 0; i < TELEM_PHASES_N; i++)
            phases += telem_phase_s(t, (enum telem_phase)i);
        check_close(telem_step_s(t), wall);
        assert_true(fabs(shares - wall) <= 0.01 * wall);
        assert_true(fabs(phases - wall) <= 0.01 * wall);
        telem_free(t);
        buf_release(&b.shown);
    }
}

static void the_clock_only_goes_forward(void **state)
{
    (void)state;
    uint64_t last = telem_now_ns();
    for (int i = 0; i < 10000; i++) {
        uint64_t now = telem_now_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void leave_wrong_phase(void *ctx)
{
    telem_enter(ctx, TELEM_ROLLOUT);
    telem_leave(ctx, TELEM_REWARD);
}

static void step_inside_phase(void *ctx)
{
    struct telem_record none = {0};
    telem_enter(ctx, TELEM_ROLLOUT);
    end_step(ctx, 1, &none);
}

static void put_twice(void *ctx)
{
    telem_put(ctx, 1, "reward");
    telem_put(ctx, 2, "%s", "reward");
}

static void misuse_is_caught(void **state)
{
    (void)state;
    struct bench b = {0};
    struct telem_record r = {0};
    struct telem *t = bench_telem(&b, NULL, false);
    check_asserts(leave_wrong_phase, t, "t->open[t->depth - 1] == phase");
    check_asserts(step_inside_phase, t, "t->depth == 0");
    check_asserts(put_twice, &r, "!telem_get(r, m->name, &other)");
    telem_free(t);
}

static char *read_text(const char *dir, const char *name)
{
    char *path = file_join(dir, name), *text = NULL;
    size_t n;
    struct err e = {0};
    check_ok(file_read(path, 1 << 20, &text, &n, &e), e);
    mem_free(path);
    return text;
}

static void metrics_are_one_line_a_step_in_the_order_put(void **state)
{
    (void)state;
    const char *dir = check_folder();
    struct bench b = {.tick = 1};
    struct telem_record r = {0};
    struct telem *t = bench_telem(&b, dir, false);
    telem_put(&r, 0.1, "reward");
    telem_put(&r, 1.0 / 3, "rewards/%s/mean", "a\"b");
    telem_put(&r, 123456789012.0, "num_tokens");
    telem_put(&r, NAN, "kl");
    telem_put(&r, 1e-6, "learning_rate");
    end_step(t, 1, &r);
    telem_record_clear(&r);
    telem_put(&r, 1, "reward");
    end_step(t, 2, &r);
    char *text = read_text(dir, "metrics.jsonl");
    assert_string_equal(text, "{\"step\": 1, \"reward\": 0.1, \"rewards/a\\\"b/mean\": "
                              "0.3333333333333333, \"num_tokens\": 123456789012, \"kl\": null, "
                              "\"learning_rate\": 1e-06}\n{\"step\": 2, \"reward\": 1}\n");
    assert_int_equal(telem_mark(t).bytes, strlen(text));
    assert_int_equal(telem_mark(t).crc, file_crc32(0, text, strlen(text)));
    mem_free(text);
    telem_free(t);
    telem_record_release(&r);
    buf_release(&b.shown);
    check_folder_remove(dir);
}

static void perf_has_time_rates_bytes_and_memory(void **state)
{
    (void)state;
    const char *dir = check_folder();
    struct bench b = {0};
    struct telem_record none = {0}, extra = {0};
    struct telem *t = bench_telem(&b, dir, false);
    struct err e = {0};
    telem_enter(t, TELEM_ROLLOUT);
    telem_count(t, TELEM_DECODE_TOKENS, 30);
    telem_count(t, TELEM_DECODE_TOKENS, 10);
    telem_count(t, TELEM_LONGEST_SAMPLE, 6);
    telem_count(t, TELEM_FLOPS, 2000);
    pass(&b, 2);
    telem_leave(t, TELEM_ROLLOUT);
    pass(&b, 2);
    telem_put(&extra, 0.25, "pack/padding_ratio");
    check_ok(telem_step(t, 1, &none, &extra, &e), e);
    char *text = read_text(dir, "perf.jsonl");
    static const char head[] =
        "{\"step\": 1, \"time/step\": 4, \"time/compute\": 2, \"time/network\": 0, "
        "\"time/waiting\": 0, \"time/host\": 2, \"time/data\": 0, \"time/rollout\": 2, "
        "\"time/reward\": 0, \"time/ref_logp\": 0, \"time/adv\": 0, \"time/update\": 0, "
        "\"time/check\": 0, "
        "\"time/apply\": 0, \"time/sync\": 0, \"time/wait\": 0, \"time/log\": 0, \"time/eval\": 0, "
        "\"time/save\": "
        "0, "
        "\"time/other\": 2, \"tokens_per_s\": 10, "
        "\"tokens_per_s_per_device\": 2.5, \"decode_tokens_per_s\": 20, "
        "\"longest_sample_tokens_per_s\": 3, "
        "\"train_tokens_per_s\": 0, \"mfu\": 0.5, \"net/bytes_sent\": 0, \"net/bytes_received\": "
        "0, "
        "\"memory/anonymous_bytes\": ";
    assert_true(strncmp(text, head, strlen(head)) == 0);
    assert_non_null(strstr(text, ", \"memory/peak_bytes\": "));
    assert_true(str_ends(text, ", \"pack/padding_ratio\": 0.25}\n"));
    mem_free(text);
    telem_free(t);
    telem_record_release(&extra);
    buf_release(&b.shown);
    check_folder_remove(dir);
}

static void append_text(const char *dir, const char *name, const char *text)
{
    char *path = file_join(dir, name);
    struct file_log log = {0};
    struct err e = {0};
    check_ok(file_log_open(&log, path, &e), e);
    check_ok(file_log_append(&log, text, strlen(text), &e), e);
    file_log_close(&log);
    mem_free(path);
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* A run of three steps whose checkpoint was made after the second, killed in its fourth. */
static void resuming_cuts_both_files_where_the_checkpoint_was(void **state)
{
    (void)state;
    const char *dir = check_folder();
    struct bench b = {.tick = 1};
    struct telem_record none = {0};
    struct err e = {0};
    struct telem *t = bench_telem(&b, dir, false);
    end_step(t, 1, &none);
    end_step(t, 2, &none);
    struct telem_mark mark = telem_mark(t);
    end_step(t, 3, &none);
    telem_free(t);
    append_text(dir, "metrics.jsonl", "{\"step\": 4, \"rew");
    append_text(dir, "perf.jsonl", "{\"st");
    t = bench_telem(&b, dir, false);
    check_ok(telem_check(dir, mark, &e), e);
    check_ok(telem_resume(t, mark, 2, &e), e);
    end_step(t, 3, &none);
    check_ok(telem_check(dir, telem_mark(t), &e), e);
    char *metrics = read_text(dir, "metrics.jsonl"), *perf = read_text(dir, "perf.jsonl");
    assert_string_equal(metrics, "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3}\n");
    assert_int_equal(count_lines(perf), 3);
    assert_non_null(strstr(perf, "\n{\"step\": 3, "));
    mem_free(metrics);
    mem_free(perf);
    check_ok(telem_resume(t, (struct telem_mark){0}, -1, &e), e);
    assert_int_equal(telem_mark(t).bytes, 0);
    perf = read_text(dir, "perf.jsonl");
    assert_string_equal(perf, "");
    mem_free(perf);
    telem_free(t);
    buf_release(&b.shown);
    check_folder_remove(dir);
}

static void a_log_of_another_run_is_refused(void **state)
{
    (void)state;
    const char *dir = check_folder();
    char want[512];
    struct bench b = {.tick = 1};
    struct telem_record none = {0};
    struct telem *t = bench_telem(&b, dir, false);
    end_step(t, 1, &none);
    struct err e = {0};
    assert_int_equal(telem_check(dir, (struct telem_mark){.bytes = 100}, &e), ERR_STATE);
    snprintf(want, sizeof want, "%s/metrics.jsonl: has 12 bytes, the checkpoint was made after 100",
             dir);
    check_error(e, ERR_STATE, want);
    e = (struct err){0};
    struct telem_mark mark = telem_mark(t);
    assert_int_equal(mark.bytes, 12);
    check_ok(telem_check(dir, mark, &e), e);
    mark.crc ^= 1;
    assert_int_equal(telem_check(dir, mark, &e), ERR_STATE);
    snprintf(want, sizeof want,
             "%s/metrics.jsonl: its first 12 bytes have checksum %08x, the checkpoint says %08x",
             dir, mark.crc ^ 1, mark.crc);
    check_error(e, ERR_STATE, want);
    telem_free(t);
    buf_release(&b.shown);
    check_folder_remove(dir);
}

static void a_step_is_one_plain_line_when_piped(void **state)
{
    (void)state;
    struct bench b = {0};
    struct telem_record r = {0};
    struct telem *t = bench_telem(&b, NULL, false);
    for (int64_t step = 1; step <= 2; step++) {
        telem_progress(t, "rollout %d/%d", 1, 64);
        telem_enter(t, TELEM_ROLLOUT);
        telem_count(t, TELEM_DECODE_TOKENS, 3000);
        pass(&b, 1.5);
        telem_leave(t, TELEM_ROLLOUT);
        telem_enter(t, TELEM_UPDATE);
        pass(&b, 2.25);
        telem_leave(t, TELEM_UPDATE);
        telem_record_clear(&r);
        telem_put(&r, -0.01, "loss");
        telem_put(&r, 0.25 * (double)step, "reward");
        telem_put(&r, 33.125, "completions/mean_length");
        telem_put(&r, 1.2345, "entropy");
        telem_put(&r, NAN, "kl");
        end_step(t, step, &r);
    }
    assert_string_equal(
        buf_str(&b.shown),
        "step 1/100  reward 0.250  loss -0.0100  length 33.1  entropy 1.234  800 tok/s  rollout "
        "40% "
        "update 60%  3.8 s  left 6m11s\n"
        "step 2/100  reward 0.500 +0.250  loss -0.0100  length 33.1  entropy 1.234  800 tok/s  "
        "rollout 40% update 60%  3.8 s  left 6m08s\n");
    telem_free(t);
    telem_record_release(&r);
    buf_release(&b.shown);
}

/* What came before the first step says nothing about the time that steps take. */
static void an_evaluation_before_the_first_step_is_no_step(void **state)
{
    (void)state;
    struct bench b = {0};
    struct telem_record r = {0};
    struct telem *t = bench_telem(&b, NULL, false);
    telem_enter(t, TELEM_EVAL);
    pass(&b, 500);
    telem_leave(t, TELEM_EVAL);
    telem_put(&r, 0.25, "eval/acc");
    end_step(t, 0, &r);
    telem_record_clear(&r);
    pass(&b, 2);
    end_step(t, 1, &r);
    assert_string_equal(buf_str(&b.shown), "step 0/100  eval 0.250  eval 100%  8m20s\n"
                                           "step 1/100  other 100%  2.0 s  left 3m18s\n");
    telem_free(t);
    telem_record_release(&r);
    buf_release(&b.shown);
}

static void a_live_line_is_rewritten_and_taken_away(void **state)
{
    (void)state;
    struct bench b = {.ns = 5};
    struct telem_record none = {0};
    struct telem *t = bench_telem(&b, NULL, true);
    telem_progress(t, "rollout %d/64", 1);
    telem_progress(t, "rollout %d/64", 2); // too soon
    pass(&b, 0.2);
    telem_progress(t, "%s", "0123456789012345678901234567890123456789-too-long");
    pass(&b, 1);
    end_step(t, 100, &none);
    assert_string_equal(buf_str(&b.shown), "\rrollout 1/64\033[K"
                                           "\r012345678901234567890123456789012345678\033[K"
                                           "\r\033[K"
                                           "step 100/100  other 100%  1.2 s\n");
    telem_free(t);
    buf_release(&b.shown);
}

static void logging_steps_thins_the_lines(void **state)
{
    (void)state;
    struct bench b = {.tick = 1000};
    struct telem *t = NULL;
    struct telem_record none = {0};
    struct err e = {0};
    struct telem_options o = {
        .steps = 25, .logging_steps = 10, .print = bench_print, .now_ns = bench_now, .ctx = &b};
    check_ok(telem_new(&t, &o, &e), e);
    for (int64_t step = 1; step <= 25; step++)
        end_step(t, step, &none);
    assert_int_equal(count_lines(buf_str(&b.shown)), 4);
    assert_non_null(strstr(buf_str(&b.shown), "step 1/25"));
    assert_non_null(strstr(buf_str(&b.shown), "\nstep 10/25"));
    assert_non_null(strstr(buf_str(&b.shown), "\nstep 25/25"));
    telem_free(t);
    buf_release(&b.shown);
}

static void durations_read_well(void **state)
{
    (void)state;
    static const struct {
        double s;
        const char *text;
    } want[] = {{0.04, "0.0 s"}, {9.94, "9.9 s"},    {9.96, "10 s"},  {59.4, "59 s"},
                {59.6, "1m00s"}, {3599.4, "59m59s"}, {3600, "1h00m"}, {86400, "24h00m"}};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct buf b = {0};
        telem_duration(&b, want[i].s);
        assert_string_equal(b.data, want[i].text);
        buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_time_goes_to_the_innermost_phase),
        cmocka_unit_test(time_adds_up),
        cmocka_unit_test(the_clock_only_goes_forward),
        cmocka_unit_test(misuse_is_caught),
        cmocka_unit_test(metrics_are_one_line_a_step_in_the_order_put),
        cmocka_unit_test(perf_has_time_rates_bytes_and_memory),
        cmocka_unit_test(resuming_cuts_both_files_where_the_checkpoint_was),
        cmocka_unit_test(a_log_of_another_run_is_refused),
        cmocka_unit_test(a_step_is_one_plain_line_when_piped),
        cmocka_unit_test(an_evaluation_before_the_first_step_is_no_step),
        cmocka_unit_test(a_live_line_is_rewritten_and_taken_away),
        cmocka_unit_test(logging_steps_thins_the_lines),
        cmocka_unit_test(durations_read_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
