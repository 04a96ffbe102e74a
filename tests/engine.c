/* See engine.h. */
#include "engine.h"

#include "base/mem.h"
#include "base/rng.h"
#include "roll/roll.h"

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
                            .threads = o.threads ? o.threads : 1,
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

/* ---- rollouts ---- */

static void submit(struct roll *r, const struct engine_groups *prompts, int i, int lo, int hi,
                   const struct engine_sampling *s, int *token, float *logprob)
{
    size_t at = (size_t)(i * s->samples + lo) * (size_t)s->tokens_max;
    roll_submit(r, &(struct roll_request){.tag = (uint64_t)(i * s->samples),
                                          .epoch = 3,
                                          .index = (uint32_t)(100 + i),
                                          .sample_lo = lo,
                                          .sample_hi = hi,
                                          .prompt = prompts->group[i].prompt,
                                          .tokens_max = s->tokens_max,
                                          .token = token + at,
                                          .logprob = logprob + at});
}

static void submit_all(struct roll *r, const struct engine_groups *prompts,
                       const struct engine_sampling *s, int *token, float *logprob)
{
    int parts = s->apart ? s->samples : 1, each = s->samples / parts, n = prompts->n * parts;
    for (int k = 0; k < n; k++) {
        int at = s->backwards ? n - 1 - k : k, lo = at % parts * each;
        submit(r, prompts, at / parts, lo, lo + each, s, token, logprob);
    }
}

/* Runs r dry; length (samples) out. */
static void drain(struct roll *r, int *length)
{
    struct err e = {0};
    struct roll_done done;
    while (roll_begin(r)) {
        check_ok(roll_finish(r, &e), e);
        while (roll_next(r, &done)) {
            assert_int_equal(length[done.tag + (uint64_t)done.sample], 0);
            length[done.tag + (uint64_t)done.sample] = done.n;
        }
    }
    assert_int_equal(roll_pending(r), 0);
}

/* Groups over the prompts' tokens and the drawn ones, which move into one array. */
static struct engine_rollout collect(const struct engine_groups *prompts,
                                     const struct engine_sampling *s, const int *token,
                                     const float *logprob, const int *length)
{
    struct engine_rollout r = {.groups.n = prompts->n};
    struct engine_groups *g = &r.groups;
    size_t n = (size_t)(prompts->n * s->samples), max = (size_t)s->tokens_max, at = 0, room = 0;
    for (int i = 0; i < prompts->n; i++)
        room += (size_t)prompts->group[i].prompt.n;
    g->group = mem_calloc((size_t)g->n, sizeof *g->group);
    g->sample = mem_calloc(n, sizeof *g->sample);
    g->token = mem_calloc(room + n * max, sizeof *g->token);
    g->coef = mem_calloc(n * max, sizeof *g->coef);
    r.logprob = mem_calloc(n * max, sizeof *r.logprob);
    for (int i = 0; i < g->n; i++) {
        struct device_tokens prompt = prompts->group[i].prompt;
        struct device_tokens *samples = g->sample + i * s->samples;
        memcpy(g->token + at, prompt.token, (size_t)prompt.n * sizeof *prompt.token);
        g->group[i] = (struct device_group){.prompt = {.token = g->token + at, .n = prompt.n},
                                            .sample = samples,
                                            .n_samples = s->samples};
        at += (size_t)prompt.n;
        for (int k = 0; k < s->samples; k++) {
            size_t from = (size_t)(i * s->samples + k), count = (size_t)length[from];
            assert_in_range(count, 1, max);
            memcpy(g->token + at, token + from * max, count * sizeof *token);
            memcpy(r.logprob + g->n_tokens, logprob + from * max, count * sizeof *logprob);
            samples[k] = (struct device_tokens){.token = g->token + at, .n = (int)count};
            at += count;
            g->n_tokens += (int)count;
        }
    }
    for (int i = 0; i < g->n_tokens; i++)
        g->coef[i] = (float)(i % 7 - 3) / 3;
    return r;
}

struct engine_rollout engine_roll(struct device *d, const struct engine_groups *prompts,
                                  struct engine_sampling s)
{
    static const int STOP[] = {0, 1, 2, 3, 4, 5, 6, 7};
    size_t n = (size_t)(prompts->n * s.samples), tokens = n * (size_t)s.tokens_max;
    int *token = mem_calloc(tokens, sizeof *token), *length = mem_calloc(n, sizeof *length);
    float *logprob = mem_calloc(tokens, sizeof *logprob);
    struct roll *r =
        roll_new(&(struct roll_conf){.device = d,
                                     .dispatch_steps = s.dispatch_steps ? s.dispatch_steps : 5,
                                     .temperature = s.temperature,
                                     .key = rng_key(9, RNG_ROLLOUT),
                                     .stop = STOP,
                                     .n_stop = s.n_stop});
    submit_all(r, prompts, &s, token, logprob);
    drain(r, length);
    roll_free(r);
    struct engine_rollout out = collect(prompts, &s, token, logprob, length);
    mem_free(token);
    mem_free(length);
    mem_free(logprob);
    return out;
}

void engine_rollout_free(struct engine_rollout *r)
{
    engine_groups_free(&r->groups);
    mem_free(r->logprob);
    *r = (struct engine_rollout){0};
}

void engine_check_rollouts(const struct engine_rollout *a, const struct engine_rollout *b,
                           const char *what)
{
    const struct engine_groups *x = &a->groups, *y = &b->groups;
    assert_int_equal(x->n, y->n);
    for (int i = 0; i < x->n * x->group->n_samples; i++) {
        int n = x->sample[i].n;
        if (n != y->sample[i].n ||
            memcmp(x->sample[i].token, y->sample[i].token, (size_t)n * sizeof(int)) != 0)
            fail_msg("%s: sample %d has other tokens", what, i);
    }
    if (memcmp(a->logprob, b->logprob, (size_t)x->n_tokens * sizeof *a->logprob) != 0)
        fail_msg("%s: other log-probabilities", what);
}

/* ---- steps ---- */

struct train_update engine_step(struct device *const *device, int n,
                                const struct engine_groups *leaf, int leaves, int step)
{
    struct err e = {0};
    struct train_tree tree[8] = {0};
    struct train_run run = {0};
    struct train_update u = {.denominator = 100,
                             .max_grad_norm = 1,
                             .adamw = {.lr = 1e-2f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.95f,
                                       .eps = 1e-8f,
                                       .decay = 0.1f,
                                       .bias1 = (float)(1 - pow(0.9, step)),
                                       .bias2 = (float)(1 - pow(0.95, step))}};
    for (int d = 0; d < n; d++) {
        struct train_limits limits = {device[d]->conf.rows, device[d]->conf.segments};
        tree[d].device = device[d];
        int lo, hi;
        train_leaves(leaves, d, n, &lo, &hi);
        for (int i = lo; i < hi; i++) {
            float *logprob = mem_calloc((size_t)leaf[i].n_tokens, sizeof *logprob);
            struct train_leaf l = {.group = leaf[i].group,
                                   .n_groups = leaf[i].n,
                                   .coef = leaf[i].coef,
                                   .logprob = logprob};
            int buffer;
            check_ok(train_tree_leaf(&tree[d], i, &buffer, &e), e);
            train_start(&run, device[d], limits, DEVICE_POLICY, 1, &l, buffer);
            check_ok(train_all(&run, &e), e);
            check_ok(train_tree_fold(&tree[d], &e), e);
            mem_free(logprob);
        }
    }
    check_ok(train_apply(tree, n, &u, &e), e);
    train_run_release(&run);
    return u;
}

struct engine_state engine_state(struct device *const *device, int n)
{
    struct err e = {0};
    size_t count = device[0]->n_elements, lo, hi;
    struct engine_state s = {.n = count};
    bf16 *other = mem_calloc(count, sizeof *other);
    s.weight = mem_calloc(count, sizeof *s.weight);
    float **const place[] = {&s.master, &s.moment1, &s.moment2};
    for (int k = 0; k < 3; k++) {
        float *x = *place[k] = mem_calloc(count, sizeof *x);
        for (int d = 0; d < n; d++) {
            train_owned(count, d, n, &lo, &hi);
            struct device_floats f = {(enum device_state)k, lo, hi, x + lo};
            check_ok(device_state_read(device[d], &f, &e), e);
        }
    }
    for (int d = 0; d < n; d++) {
        struct device_weights w = {.hi = count, .data = d ? other : s.weight};
        check_ok(device_weights_read(device[d], &w, &e), e);
        assert_true(d == 0 || memcmp(other, s.weight, count * sizeof *other) == 0);
    }
    mem_free(other);
    return s;
}

void engine_state_free(struct engine_state *s)
{
    mem_free(s->weight);
    mem_free(s->master);
    mem_free(s->moment1);
    mem_free(s->moment2);
    *s = (struct engine_state){0};
}

void engine_check_states(const struct engine_state *a, const struct engine_state *b,
                         const char *what)
{
    assert_int_equal(a->n, b->n);
    if (memcmp(a->weight, b->weight, a->n * sizeof *a->weight) != 0)
        fail_msg("%s: other weights", what);
    if (memcmp(a->master, b->master, a->n * sizeof *a->master) != 0)
        fail_msg("%s: other masters", what);
    if (memcmp(a->moment1, b->moment1, a->n * sizeof *a->moment1) != 0 ||
        memcmp(a->moment2, b->moment2, a->n * sizeof *a->moment2) != 0)
        fail_msg("%s: other moments", what);
}
