/* See engine.h. */
#include "engine.h"

#include "base/mem.h"
#include "base/rng.h"
#include "train/train.h"

struct device *engine_open(const char *name, struct engine_options o)
{
    struct err e = {0};
    struct device *d;
    char dir[128];
    struct device_conf c = {.threads = o.threads ? o.threads : 2,
                            .trainable = true,
                            .reference = o.reference,
                            .slots = o.slots ? o.slots : 8,
                            .positions = ENGINE_POSITIONS,
                            .rows = o.rows ? o.rows : ENGINE_ROWS,
                            .segments = o.segments ? o.segments : 64,
                            .leaf_tokens = 8192,
                            .gradients = o.gradients ? o.gradients : 2};
    snprintf(dir, sizeof dir, "tests/golden/models/%s", name);
    pool_flush_denormals();
    for (const struct kern *const *k = kern_levels(); o.level && *k; k++)
        if (strcmp((*k)->name, o.level) == 0)
            c.kern = *k;
    if (!o.level)
        c.kern = kern_best();
    assert_non_null(c.kern);
    check_ok(model_config_load(&c.model, dir, &e), e);
    c.kv_blocks = c.slots * 2 * (kv_blocks(c.positions) + 1);
    check_ok(cpu_open(&d, &c, &e), e);
    check_ok(device_load(d, DEVICE_POLICY, dir, &e), e);
    if (o.reference)
        check_ok(device_load(d, DEVICE_REFERENCE, dir, &e), e);
    return d;
}

void engine_tokens(uint64_t seed, int vocabulary, int *token, int n)
{
    uint64_t key = rng_key(seed, RNG_DATA);
    for (int i = 0; i < n; i++)
        token[i] = (int)rng_below(key, (uint32_t)i, 0, 0, 0, (uint32_t)vocabulary);
}

struct engine_groups engine_groups(uint64_t seed, int vocabulary, int n, int samples,
                                   int prompt_max, int completion_max)
{
    uint64_t key = rng_key(seed, RNG_INIT);
    struct engine_groups g = {.n = n};
    int at = 0;
    g.group = mem_calloc((size_t)n, sizeof *g.group);
    g.sample = mem_calloc((size_t)(n * samples), sizeof *g.sample);
    g.token =
        mem_calloc((size_t)n * (size_t)(prompt_max + samples * completion_max), sizeof *g.token);
    engine_tokens(seed, vocabulary, g.token, n * (prompt_max + samples * completion_max));
    for (int i = 0; i < n; i++) {
        struct device_group *q = &g.group[i];
        q->prompt.n = 1 + (int)rng_below(key, 0, (uint32_t)i, 0, 0, (uint32_t)prompt_max);
        q->prompt.token = g.token + at;
        at += q->prompt.n;
        q->sample = g.sample + i * samples;
        q->n_samples = samples;
        for (int s = 0; s < samples; s++) {
            struct device_tokens *t = &g.sample[i * samples + s];
            t->n =
                1 + (int)rng_below(key, 1, (uint32_t)i, (uint32_t)s, 0, (uint32_t)completion_max);
            t->token = g.token + at;
            at += t->n;
            g.n_tokens += t->n;
        }
    }
    g.coef = mem_calloc((size_t)g.n_tokens, sizeof *g.coef);
    for (int i = 0; i < g.n_tokens; i++)
        g.coef[i] = (float)(rng_uniform(key, 2, (uint32_t)i, 0, 0) * 2 - 1);
    return g;
}

void engine_groups_free(struct engine_groups *g)
{
    mem_free(g->group);
    mem_free(g->sample);
    mem_free(g->token);
    mem_free(g->coef);
    *g = (struct engine_groups){0};
}

void engine_gradient(struct device *d, const struct engine_groups *g, int rows, float temperature,
                     float *gradient, float *logprob)
{
    struct err e = {0};
    struct train_run run = {0};
    struct train_leaf leaf = {
        .group = g->group, .n_groups = g->n, .coef = g->coef, .logprob = logprob};
    struct train_limits limits = {.rows = rows, .segments = d->conf.segments};
    struct device_slice all = {.hi = d->n_elements, .data = gradient};
    check_ok(device_grad_zero(d, &all, &e), e);
    train_start(&run, d, limits, DEVICE_POLICY, temperature, &leaf, 0);
    check_ok(train_all(&run, &e), e);
    check_ok(device_grad_read(d, &all, &e), e);
    train_run_release(&run);
}
