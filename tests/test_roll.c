/* The scheduler and what it draws: every sample comes back once, for the right reason; draws follow
 * the distribution that is recorded; a roll can be given up at any moment.
 */
#include "engine.h"

#include "base/mem.h"
#include "base/rng.h"
#include "roll/roll.h"

enum { REQUESTS = 9, SAMPLES = 5, MOST = 30 };

/* A roll of REQUESTS prompts and what it wrote. */
struct job {
    struct roll *roll;
    struct engine_groups prompts;
    int tokens_max[REQUESTS];
    int token[REQUESTS][SAMPLES * MOST];
    float logprob[REQUESTS][SAMPLES * MOST];
    struct roll_done done[REQUESTS][SAMPLES];
    int n_done;
    int seen[REQUESTS][SAMPLES]; // tokens that on_token brought
};

static const int STOP[] = {3, 11};

static void on_token(void *ctx, uint64_t tag, int sample, int token, float logprob)
{
    struct job *j = ctx;
    int at = (sample - 2) * j->tokens_max[tag] + j->seen[tag][sample - 2]++;
    assert_int_equal(j->token[tag][at], token);
    assert_true(j->logprob[tag][at] == logprob);
}

static struct device *open_device(struct engine_options o)
{
    struct device *d = engine_make(&engine_model[1], o);
    engine_fill(d, 21);
    return d;
}

/* Submits all requests to a new roll on d. */
static void job_start(struct job *j, struct device *d)
{
    struct engine_shape shape = {REQUESTS, 1, 1, 40, 1, 1};
    *j = (struct job){.prompts = engine_groups(22, d->conf.model.V, shape)};
    j->roll = roll_new(&(struct roll_conf){.device = d,
                                           .dispatch_steps = 4,
                                           .temperature = 1,
                                           .key = rng_key(1, RNG_EVAL),
                                           .stop = STOP,
                                           .n_stop = 2,
                                           .on_token = on_token,
                                           .ctx = j});
    for (int i = 0; i < REQUESTS; i++) {
        j->tokens_max[i] = 1 + i * (MOST - 1) / (REQUESTS - 1);
        roll_submit(j->roll, &(struct roll_request){.tag = (uint64_t)i,
                                                    .epoch = 1,
                                                    .index = (uint32_t)i,
                                                    .sample_lo = 2,
                                                    .sample_hi = 2 + SAMPLES,
                                                    .prompt = j->prompts.group[i].prompt,
                                                    .tokens_max = j->tokens_max[i],
                                                    .token = j->token[i],
                                                    .logprob = j->logprob[i]});
    }
}

static void job_run(struct job *j)
{
    struct err e = {0};
    struct roll_done done;
    while (roll_begin(j->roll)) {
        check_ok(roll_finish(j->roll, &e), e);
        for (; roll_next(j->roll, &done); j->n_done++) {
            assert_in_range(done.sample, 2, 1 + SAMPLES);
            assert_int_equal(j->done[done.tag][done.sample - 2].n, 0); // once
            j->done[done.tag][done.sample - 2] = done;
        }
        assert_int_equal(roll_pending(j->roll), REQUESTS * SAMPLES - j->n_done);
    }
}

static void job_end(struct job *j)
{
    roll_free(j->roll);
    engine_groups_free(&j->prompts);
}

static bool is_stop(int token)
{
    return token == STOP[0] || token == STOP[1];
}

static void every_sample_ends_once_for_its_reason(void **state)
{
    (void)state;
    static struct job j;
    struct device *d = open_device((struct engine_options){.slots = 6});
    int stopped = 0;
    job_start(&j, d);
    job_run(&j);
    assert_int_equal(j.n_done, REQUESTS * SAMPLES);
    for (int i = 0; i < REQUESTS; i++)
        for (int s = 0; s < SAMPLES; s++) {
            const struct roll_done *done = &j.done[i][s];
            const int *token = j.token[i] + s * j.tokens_max[i];
            assert_in_range(done->n, 1, j.tokens_max[i]);
            assert_int_equal(j.seen[i][s], done->n);
            for (int k = 0; k < done->n - 1; k++)
                assert_false(is_stop(token[k]));
            assert_int_equal(done->stop,
                             is_stop(token[done->n - 1]) ? DEVICE_STOPPED : DEVICE_LENGTH);
            assert_true(done->stop == DEVICE_STOPPED || done->n == j.tokens_max[i]);
            stopped += done->stop == DEVICE_STOPPED;
        }
    assert_in_range(stopped, 1, REQUESTS * SAMPLES - 1); // both kinds came up
    job_end(&j);
    device_close(d);
}

/* After any number of calls, the last of them still running: the device has everything back. */
static void a_roll_given_up_leaves_the_device_clean(void **state)
{
    (void)state;
    static struct job want, j;
    struct device *d = open_device((struct engine_options){.slots = 4, .kv_blocks = 20});
    job_start(&want, d);
    job_run(&want);
    job_end(&want);
    for (int calls = 1; calls < 12; calls++) {
        struct err e = {0};
        job_start(&j, d);
        for (int i = 1; i < calls; i++) {
            assert_true(roll_begin(j.roll));
            check_ok(roll_finish(j.roll, &e), e);
        }
        assert_true(roll_begin(j.roll));
        job_end(&j);
        job_start(&j, d);
        job_run(&j);
        assert_memory_equal(want.token, j.token, sizeof want.token);
        assert_memory_equal(want.logprob, j.logprob, sizeof want.logprob);
        job_end(&j);
    }
    device_close(d);
}

/* ---- what is drawn ---- */

/* Each token's share of many draws is its probability, within five standard deviations. */
static void draws_follow_the_recorded_distribution(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    static int token[DRAWS];
    static float logprob[DRAWS];
    static const float temperature[] = {0.6f, 1, 1.5f};
    struct device *d = open_device((struct engine_options){.slots = 64});
    int V = d->conf.model.V, prompt[] = {5, 9, 2}, draws = check_on_valgrind() ? 500 : DRAWS;
    for (size_t t = 0; t < ARRAY_LEN(temperature); t++) {
        double p[64] = {0}, sum = 0;
        int count[64] = {0};
        struct err e = {0};
        struct roll *r = roll_new(&(struct roll_conf){.device = d,
                                                      .dispatch_steps = 1,
                                                      .temperature = temperature[t],
                                                      .key = rng_key(3, RNG_ROLLOUT)});
        roll_submit(r, &(struct roll_request){.sample_hi = draws,
                                              .prompt = {prompt, 3},
                                              .tokens_max = 1,
                                              .token = token,
                                              .logprob = logprob});
        while (roll_begin(r))
            check_ok(roll_finish(r, &e), e);
        roll_free(r);
        for (int i = 0; i < draws; i++) {
            count[token[i]]++;
            p[token[i]] = exp((double)logprob[i]);
        }
        for (int i = 0; i < V; i++) {
            double off = count[i] - draws * p[i];
            sum += p[i];
            assert_true(fabs(off) <= 5 * sqrt(draws * p[i] * (1 - p[i])) + 1e-9);
        }
        assert_true(sum > 1 - 100.0 / draws && sum < 1 + 1e-5); // few are so rare as to be missed
    }
    device_close(d);
}

static void greedy_takes_the_most_likely(void **state)
{
    (void)state;
    struct device *d = open_device((struct engine_options){0});
    struct engine_groups prompts =
        engine_groups(30, d->conf.model.V, (struct engine_shape){6, 1, 1, 20, 1, 1});
    struct engine_rollout r =
        engine_roll(d, &prompts, (struct engine_sampling){.samples = 2, .tokens_max = 12});
    int best[6 * 2 * 12], at = 0;
    float logprob[6 * 2 * 12];
    engine_score(d, DEVICE_POLICY, &r.groups, ENGINE_ROWS, 1, logprob, NULL, best);
    assert_memory_equal(logprob, r.logprob, (size_t)r.groups.n_tokens * sizeof *logprob);
    for (int i = 0; i < 6 * 2; i++)
        for (int k = 0; k < r.groups.sample[i].n; k++)
            assert_int_equal(r.groups.sample[i].token[k], best[at++]);
    engine_rollout_free(&r);
    engine_groups_free(&prompts);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_ends_once_for_its_reason),
        cmocka_unit_test(a_roll_given_up_leaves_the_device_clean),
        cmocka_unit_test(draws_follow_the_recorded_distribution),
        cmocka_unit_test(greedy_takes_the_most_likely),
    };
    return cmocka_run_group_tests_name("roll", tests, NULL, NULL);
}
