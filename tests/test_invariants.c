/* The engine's promises (DESIGN, README), bit for bit: what is sampled is what is trained, and
 * neither slots, neighbours, paging, threads, micro-batches, kernel levels nor devices change a
 * bit.
 */
#include "engine.h"

#include "base/mem.h"
#include "golden.h"

static const struct engine_shape PROMPTS = {7, 1, 1, 45, 1, 1};

/* Prompts of 1 and of 33 tokens are among them: no prefill, and a sample that starts on a block. */
static struct engine_groups some_prompts(uint64_t seed, const struct device *d, int n)
{
    struct engine_shape shape = PROMPTS;
    shape.groups = n;
    struct engine_groups g = engine_groups(seed, d->conf.model.V, shape);
    g.group[0].prompt.n = 1;
    if (n > 1 && g.group[1].prompt.n > 33)
        g.group[1].prompt.n = 33;
    return g;
}

static bool same(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* ---- sampler-equals-trainer ---- */

/* Trains what was sampled, in micro-batches of `rows`; every log-probability has the same bits. */
static void check_trained(struct device *d, const struct engine_rollout *r, int rows,
                          float temperature)
{
    size_t n = (size_t)r->groups.n_tokens;
    float *gradient = mem_calloc(d->n_elements, sizeof *gradient);
    float *logprob = mem_calloc(n, sizeof *logprob);
    engine_gradient(d, &r->groups, rows, temperature, gradient, logprob);
    assert_true(same(logprob, r->logprob, n));
    memset(logprob, 0, n * sizeof *logprob);
    engine_score(d, DEVICE_POLICY, &r->groups, rows, temperature, logprob, NULL, NULL);
    assert_true(same(logprob, r->logprob, n));
    mem_free(gradient);
    mem_free(logprob);
}

static void check_sampler(struct device *d, float temperature)
{
    struct engine_sampling how = {
        .temperature = temperature, .samples = 3, .tokens_max = 40, .n_stop = 3};
    for (int apart = 0; apart < 2; apart++) {
        how.apart = apart;
        struct engine_groups prompts = some_prompts(3, d, PROMPTS.groups);
        struct engine_rollout r = engine_roll(d, &prompts, how);
        check_trained(d, &r, ENGINE_ROWS, temperature);
        check_trained(d, &r, 90, temperature);
        engine_rollout_free(&r);
        engine_groups_free(&prompts);
    }
}

static void sampler_equals_trainer(void **state)
{
    (void)state;
    static const float temperature[] = {0.7f, 1, 1.3f};
    for (int m = 0; m < engine_models(); m++) {
        struct device *d =
            engine_make(&engine_model[m], (struct engine_options){.threads = m == 0 ? 2 : 1});
        engine_fill(d, 11);
        for (size_t t = 0; t < ARRAY_LEN(temperature); t++)
            check_sampler(d, temperature[t]);
        device_close(d);
    }
    for (const char *const *name = golden_models; *name; name++) {
        struct device *d = engine_open(*name, (struct engine_options){0});
        check_sampler(d, 1);
        device_close(d);
    }
}

/* ---- batch-invariance ---- */

/* Each sample by itself on a device of one slot, one thread, one step a call, and as many blocks as
   that sample needs. */
static void check_alone(const struct model_config *c, const struct engine_groups *prompts,
                        struct engine_sampling how, const struct engine_rollout *all)
{
    struct device *d = engine_make(c, (struct engine_options){.threads = 1, .slots = 1});
    int at = 0;
    engine_fill(d, 12);
    how.apart = true;
    how.dispatch_steps = 1;
    struct engine_rollout r = engine_roll(d, prompts, how);
    engine_check_rollouts(all, &r, "alone");
    for (int i = 0; i < prompts->n; i++) { // and scored alone
        struct device_group one = r.groups.group[i];
        for (int s = 0; s < how.samples; s++, one.sample++) {
            float logprob[64];
            struct engine_groups g = {.n = 1, .group = &one, .n_tokens = one.sample->n};
            one.n_samples = 1;
            engine_score(d, DEVICE_POLICY, &g, ENGINE_ROWS, how.temperature ? how.temperature : 1,
                         logprob, NULL, NULL);
            assert_true(same(logprob, all->logprob + at, (size_t)one.sample->n));
            at += one.sample->n;
        }
    }
    engine_rollout_free(&r);
    device_close(d);
}

static void check_batch(const struct model_config *c, float temperature)
{
    static const struct {
        struct engine_options device;
        int dispatch_steps;
        bool apart, backwards;
        const char *what;
    } way[] = {
        {{.threads = 2, .slots = 64}, 5, false, false, "two threads"},
        {{.slots = 3}, 2, false, false, "three slots"},
        {{.slots = 64}, 1, false, true, "the reverse order"},
        {{.slots = 13, .kv_blocks = 9}, 40, false, false, "nine blocks of cache"},
        {{.slots = 64, .rows = 16}, 7, true, false, "prompts apart, in pieces"},
    };
    struct engine_sampling how = {
        .temperature = temperature, .samples = 9, .tokens_max = 45, .n_stop = 1};
    struct device *d = engine_make(c, (struct engine_options){.slots = 64});
    struct engine_groups prompts = some_prompts(4, d, PROMPTS.groups);
    engine_fill(d, 12);
    struct engine_rollout all = engine_roll(d, &prompts, how);
    device_close(d);
    for (size_t i = 0; i < ARRAY_LEN(way); i++) {
        d = engine_make(c, way[i].device);
        engine_fill(d, 12);
        how.dispatch_steps = way[i].dispatch_steps;
        how.apart = way[i].apart;
        how.backwards = way[i].backwards;
        struct engine_rollout r = engine_roll(d, &prompts, how);
        engine_check_rollouts(&all, &r, way[i].what);
        engine_rollout_free(&r);
        device_close(d);
    }
    check_alone(c, &prompts, how, &all);
    engine_rollout_free(&all);
    engine_groups_free(&prompts);
}

static void batch_invariance(void **state)
{
    (void)state;
    for (int m = 0; m < engine_models(); m++)
        check_batch(&engine_model[m], m == 1 ? 0 : 1); // greedy once
}

/* ---- micro-batch-invariance ---- */

static void check_micro_batches(const struct model_config *c, struct engine_shape shape)
{
    enum { WHOLE = 2048 };
    static const struct {
        int rows, segments, threads;
    } way[] = {{64, 64, 2}, {64, 3, 1}, {100, 64, 1}, {256, 64, 1}, {WHOLE, 128, 2}};
    struct engine_groups g = engine_groups(5, c->V, shape);
    struct device *d = engine_make(c, (struct engine_options){.rows = WHOLE, .segments = 128});
    float *want = mem_calloc(d->n_elements, sizeof *want);
    float *got = mem_calloc(d->n_elements, sizeof *got);
    float *want_logprob = mem_calloc((size_t)g.n_tokens * 2, sizeof *want_logprob);
    float *logprob = want_logprob + g.n_tokens;
    engine_fill(d, 13);
    engine_gradient(d, &g, WHOLE, 1, want, want_logprob);
    device_close(d);
    for (size_t i = 0; i < ARRAY_LEN(way); i++) {
        d = engine_make(c, (struct engine_options){.threads = way[i].threads,
                                                   .rows = way[i].rows,
                                                   .segments = way[i].segments});
        engine_fill(d, 13);
        engine_gradient(d, &g, way[i].rows, 1, got, logprob);
        if (!same(want, got, d->n_elements) || !same(want_logprob, logprob, (size_t)g.n_tokens))
            fail_msg("%d rows, %d segments, %d threads: another gradient", way[i].rows,
                     way[i].segments, way[i].threads);
        device_close(d);
    }
    mem_free(want);
    mem_free(got);
    mem_free(want_logprob);
    engine_groups_free(&g);
}

static void micro_batch_invariance(void **state)
{
    (void)state;
    for (int m = 0; m < engine_models(); m++) {
        check_micro_batches(&engine_model[m], (struct engine_shape){5, 6, 1, 30, 1, 34});
        check_micro_batches(&engine_model[m], (struct engine_shape){9, 4, 1, 3, 1, 5});
    }
}

/* ---- level-invariance ---- */

/* All that a run computes: draws, log-probabilities and entropies, the gradient, two updates. */
struct everything {
    struct engine_rollout rollout;
    float *gradient, *entropy;
    int *best;
    struct engine_state state;
    double norm[2][3]; // of each update: gradient, parameters, their change
    size_t n;
};

static struct everything everything(const struct model_config *c, const char *level, int threads)
{
    struct device *d =
        engine_make(c, (struct engine_options){.level = level, .gradients = 2, .threads = threads});
    struct engine_groups prompts = some_prompts(6, d, PROMPTS.groups);
    struct everything x = {.n = d->n_elements};
    engine_fill(d, 14);
    x.rollout = engine_roll(
        d, &prompts,
        (struct engine_sampling){.temperature = 1, .samples = 4, .tokens_max = 40, .n_stop = 2});
    size_t n = (size_t)x.rollout.groups.n_tokens;
    float *logprob = mem_calloc(n, sizeof *logprob);
    x.gradient = mem_calloc(x.n, sizeof *x.gradient);
    x.entropy = mem_calloc(n, sizeof *x.entropy);
    x.best = mem_calloc(n, sizeof *x.best);
    engine_gradient(d, &x.rollout.groups, ENGINE_ROWS, 1, x.gradient, logprob);
    engine_score(d, DEVICE_POLICY, &x.rollout.groups, ENGINE_ROWS, 1, logprob, x.entropy, x.best);
    for (int i = 0; i < 2; i++) {
        struct train_update u = engine_step(&d, 1, &x.rollout.groups, 1, i + 1);
        memcpy(x.norm[i], (double[]){u.grad_norm, u.param_norm, u.update_norm}, sizeof x.norm[i]);
    }
    x.state = engine_state(&d, 1);
    mem_free(logprob);
    engine_groups_free(&prompts);
    device_close(d);
    return x;
}

static void everything_free(struct everything *x)
{
    engine_rollout_free(&x->rollout);
    engine_state_free(&x->state);
    mem_free(x->gradient);
    mem_free(x->entropy);
    mem_free(x->best);
}

static void level_invariance(void **state)
{
    (void)state;
    for (int m = 0; m < engine_models(); m++) {
        struct everything want = everything(&engine_model[m], "portable", 1);
        size_t n = (size_t)want.rollout.groups.n_tokens;
        for (const struct kern *const *k = kern_levels(); *k; k++) {
            if (!kern_usable(*k) || *k == &kern_portable)
                continue;
            struct everything got = everything(&engine_model[m], (*k)->name, 2);
            engine_check_rollouts(&want.rollout, &got.rollout, (*k)->name);
            assert_true(same(want.gradient, got.gradient, want.n));
            assert_true(same(want.entropy, got.entropy, n));
            assert_memory_equal(want.best, got.best, n * sizeof *want.best);
            assert_memory_equal(want.norm, got.norm, sizeof want.norm);
            engine_check_states(&want.state, &got.state, (*k)->name);
            everything_free(&got);
        }
        everything_free(&want);
    }
}

/* ---- device-invariance ---- */

enum { LEAVES = 8, STEPS = 2 };

struct trained {
    struct engine_state state;
    struct train_update update[STEPS];
};

/* Trains the leaves on n devices of so many threads; each has the buffers it asks for, no more. */
static struct trained train_on(const char *model, int n, int threads,
                               const struct engine_groups *leaf)
{
    struct device *device[LEAVES];
    struct trained t;
    for (int i = 0; i < n; i++)
        device[i] =
            engine_open(model, (struct engine_options){.threads = threads,
                                                       .gradients = train_buffers(LEAVES, i, n)});
    for (int s = 0; s < STEPS; s++)
        t.update[s] = engine_step(device, n, leaf, LEAVES, s + 1);
    t.state = engine_state(device, n);
    for (int i = 0; i < n; i++)
        device_close(device[i]);
    return t;
}

static void device_invariance(void **state)
{
    (void)state;
    static const int threads[] = {1, 1, 1, 2, 1, 1};
    static const int devices[] = {2, 3, 5, 7, LEAVES, 1};
    static const char model[] = "qwen2_bias"; // more than one block of the norm
    struct engine_groups leaf[LEAVES];
    for (int i = 0; i < LEAVES; i++)
        leaf[i] = engine_groups(20 + (uint64_t)i, 300, (struct engine_shape){2, 2, 1, 12, 1, 20});
    struct trained want = train_on(model, 1, 2, leaf);
    assert_true(want.state.n > SUMSQ_BLOCK);
    assert_true(want.update[0].changed > want.state.n / 2);
    for (size_t i = 0; i < ARRAY_LEN(devices); i++) {
        char what[32];
        snprintf(what, sizeof what, "%d devices", devices[i]);
        struct trained got = train_on(model, devices[i], threads[i], leaf);
        engine_check_states(&want.state, &got.state, what);
        for (int s = 0; s < STEPS; s++) {
            assert_true(want.update[s].grad_norm == got.update[s].grad_norm);
            assert_true(want.update[s].param_norm == got.update[s].param_norm);
            assert_true(want.update[s].update_norm == got.update[s].update_norm);
            assert_int_equal(want.update[s].changed, got.update[s].changed);
        }
        engine_state_free(&got.state);
    }
    engine_state_free(&want.state);
    for (int i = 0; i < LEAVES; i++)
        engine_groups_free(&leaf[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sampler_equals_trainer), cmocka_unit_test(batch_invariance),
        cmocka_unit_test(micro_batch_invariance), cmocka_unit_test(level_invariance),
        cmocka_unit_test(device_invariance),
    };
    return cmocka_run_group_tests_name("invariants", tests, NULL, NULL);
}
