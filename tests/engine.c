/* See engine.h. */
#include "engine.h"

#include "base/mem.h"
#include "base/rng.h"
#include "train/train.h"

const char *const engine_model_name[ENGINE_MODELS] = {"llama", "qwen2", "qwen3", "qwen3 untied",
                                                      "llama of three chunks"};
const struct model_config engine_model[ENGINE_MODELS] = {
    {.family = MODEL_LLAMA,
     .V = 61,
     .D = 24,
     .F = 20,
     .L = 2,
     .H = 4,
     .G = 2,
     .E = 10,
     .positions_max = 4096,
     .norm_eps = 1e-5f,
     .tied = true,
     .rope_theta = 10000,
     .rope_llama3 = true,
     .rope_factor = 8,
     .rope_low = 1,
     .rope_high = 4,
     .rope_original = 64},
    {.family = MODEL_QWEN2,
     .V = 53,
     .D = 20,
     .F = 28,
     .L = 2,
     .H = 3,
     .G = 1,
     .E = 8,
     .positions_max = 4096,
     .norm_eps = 1e-6f,
     .qkv_bias = true,
     .rope_theta = 1e6},
    {.family = MODEL_QWEN3,
     .V = 47,
     .D = 18,
     .F = 22,
     .L = 2,
     .H = 2,
     .G = 2,
     .E = 12,
     .positions_max = 4096,
     .norm_eps = 1e-6f,
     .tied = true,
     .qk_norm = true,
     .rope_theta = 1e6},
    {.family = MODEL_QWEN3,
     .V = 47,
     .D = 18,
     .F = 22,
     .L = 2,
     .H = 4,
     .G = 1,
     .E = 6,
     .positions_max = 4096,
     .norm_eps = 1e-6f,
     .qk_norm = true,
     .rope_theta = 1e6},
    {.family = MODEL_LLAMA,
     .V = 2 * VOCAB_CHUNK + 77,
     .D = 16,
     .F = 24,
     .L = 2,
     .H = 1,
     .G = 1,
     .E = 16,
     .positions_max = 4096,
     .norm_eps = 1e-5f,
     .rope_theta = 10000},
};

struct device *engine_make(const struct model_config *model, struct engine_options o)
{
    struct err e = {0};
    struct device *d;
    struct device_conf c = {.model = *model,
                            .threads = o.threads ? o.threads : 2,
                            .trainable = true,
                            .reference = o.reference,
                            .slots = o.slots ? o.slots : 8,
                            .positions = ENGINE_POSITIONS,
                            .rows = o.rows ? o.rows : ENGINE_ROWS,
                            .segments = o.segments ? o.segments : 64,
                            .leaf_tokens = 8192,
                            .gradients = o.gradients ? o.gradients : 2};
    pool_flush_denormals();
    c.kern = o.level ? kern_find(o.level) : kern_best();
    assert_non_null(c.kern);
    c.kv_blocks = o.kv_blocks ? o.kv_blocks : c.slots * 2 * (kv_blocks(c.positions) + 1);
    check_ok(cpu_open(&d, &c, &e), e);
    return d;
}

struct device *engine_open(const char *name, struct engine_options o)
{
    struct err e = {0};
    struct model_config c;
    char dir[128];
    snprintf(dir, sizeof dir, "tests/golden/models/%s", name);
    check_ok(model_config_load(&c, dir, &e), e);
    struct device *d = engine_make(&c, o);
    check_ok(device_load(d, DEVICE_POLICY, dir, &e), e);
    if (o.reference)
        check_ok(device_load(d, DEVICE_REFERENCE, dir, &e), e);
    return d;
}

static double normal(uint64_t key, uint32_t i, uint32_t j)
{
    double u = rng_uniform(key, i, 0, j, 0), v = rng_uniform(key, i, 1, j, 0);
    return sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v);
}

void engine_fill(struct device *d, uint64_t seed)
{
    struct err e = {0};
    struct model_params p;
    uint64_t key = rng_key(seed, RNG_INIT);
    bf16 *w = mem_calloc(d->n_elements, sizeof *w);
    float *master = mem_calloc(d->n_elements, sizeof *master);
    model_params_init(&p, &d->conf.model);
    for (int i = 0; i < p.n; i++) {
        const struct model_param *q = &p.param[i];
        bool embeds = strstr(q->name, "embed") || strstr(q->name, "lm_head");
        double mean = strstr(q->name, "norm") ? 1 : 0;
        double scale = q->is_vector ? 0.3 : (embeds ? 1.8 : 1) / sqrt(q->cols);
        for (size_t k = 0; k < (size_t)q->rows * (size_t)q->cols; k++) {
            w[q->offset + k] =
                bf16_from((float)(mean + scale * normal(key, (uint32_t)k, (uint32_t)i)));
            master[q->offset + k] = bf16_to(w[q->offset + k]);
        }
    }
    struct device_weights weights = {.hi = d->n_elements, .data = w};
    struct device_floats state = {.state = DEVICE_MASTER, .hi = d->n_elements, .data = master};
    check_ok(device_weights_write(d, &weights, &e), e);
    check_ok(device_weights_pack(d, &weights, &e), e);
    check_ok(device_state_write(d, &state, &e), e);
    model_params_release(&p);
    mem_free(master);
    mem_free(w);
}

void engine_tokens(uint64_t seed, int vocabulary, int *token, int n)
{
    uint64_t key = rng_key(seed, RNG_DATA);
    for (int i = 0; i < n; i++)
        token[i] = (int)rng_below(key, (uint32_t)i, 0, 0, 0, (uint32_t)vocabulary);
}

/* A length from [min, max]. */
static int length(uint64_t key, uint32_t what, int group, int sample, int min, int max)
{
    return min + (int)rng_below(key, what, (uint32_t)group, (uint32_t)sample, 0,
                                (uint32_t)(max - min + 1));
}

struct engine_groups engine_groups(uint64_t seed, int vocabulary, struct engine_shape shape)
{
    uint64_t key = rng_key(seed, RNG_INIT);
    struct engine_groups g = {.n = shape.groups};
    int samples = shape.samples, at = 0;
    int n_tokens = g.n * (shape.prompt_max + samples * shape.length_max);
    g.group = mem_calloc((size_t)g.n, sizeof *g.group);
    g.sample = mem_calloc((size_t)(g.n * samples), sizeof *g.sample);
    g.token = mem_calloc((size_t)n_tokens, sizeof *g.token);
    engine_tokens(seed, vocabulary, g.token, n_tokens);
    for (int i = 0; i < g.n; i++) {
        struct device_group *q = &g.group[i];
        q->prompt.n = length(key, 0, i, 0, shape.prompt_min, shape.prompt_max);
        q->prompt.token = g.token + at;
        at += q->prompt.n;
        q->sample = g.sample + i * samples;
        q->n_samples = samples;
        for (int s = 0; s < samples; s++) {
            struct device_tokens *t = &g.sample[i * samples + s];
            t->n = length(key, 1, i, s, shape.length_min, shape.length_max);
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

void engine_score(struct device *d, enum device_set set, const struct engine_groups *g, int rows,
                  float temperature, float *logprob, float *entropy, int *best)
{
    struct err e = {0};
    struct train_run run = {0};
    struct train_leaf leaf = {
        .group = g->group, .n_groups = g->n, .logprob = logprob, .entropy = entropy, .best = best};
    struct train_limits limits = {.rows = rows, .segments = d->conf.segments};
    train_start(&run, d, limits, set, temperature, &leaf, -1);
    check_ok(train_all(&run, &e), e);
    train_run_release(&run);
}
