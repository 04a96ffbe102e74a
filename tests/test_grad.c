/* The engine's gradients and log-probabilities against the double-precision twin.
 *
 * Tightly against the twin with bf16 roundings at the engine's places. The engine sums in float,
 * the twin in double: once in some thousands of roundings the two fall on different sides of a tie,
 * and from there on the two rows differ as much as roundings do (docs/NUMERICS.md section 6). So
 * each shape is tried with several random models and groups, small enough that most have no such
 * flip. An error of the engine cannot hide behind flips: they are random, it is in every group of
 * the shape that meets it, and the smallest rounding left out moves a tensor by 8e-4.
 *
 * Loosely, by direction and norm, on groups of real size against the twin without roundings, and on
 * PyTorch's goldens.
 */
#include "engine.h"

#include "base/mem.h"
#include "base/rng.h"
#include "golden.h"
#include "grpo/grpo.h"
#include "twin.h"

static const double TIGHT = 1e-4;         // per tensor, relative to its norm: no flip
static const double TIGHT_LOGPROB = 1e-5; // nats
static const double LOOSE = 1e-1;         // with flips: a cosine of 0.995
enum { SEEDS = 9 };

/* ---- a twin of a device's policy ---- */

static void twin_of(struct twin *t, struct device *d)
{
    const struct model_config *c = &d->conf.model;
    struct err e = {0};
    struct model_params p;
    bf16 *w = mem_calloc(d->n_elements, sizeof *w);
    struct device_weights all = {.hi = d->n_elements, .data = w};
    struct twin_config conf = {.vocab = c->V,
                               .hidden = c->D,
                               .ffn = c->F,
                               .layers = c->L,
                               .heads = c->H,
                               .kv_heads = c->G,
                               .head_dim = c->E,
                               .eps = (double)c->norm_eps,
                               .rope_theta = c->rope_theta,
                               .qkv_bias = c->qkv_bias,
                               .qk_norm = c->qk_norm,
                               .tied = c->tied};
    if (c->rope_llama3) {
        conf.llama3.factor = c->rope_factor;
        conf.llama3.low_freq_factor = c->rope_low;
        conf.llama3.high_freq_factor = c->rope_high;
        conf.llama3.original_positions = c->rope_original;
    }
    check_ok(device_weights_read(d, &all, &e), e);
    model_params_init(&p, c);
    twin_init(t, &conf);
    assert_int_equal(p.n, t->n_tensors);
    for (int i = 0; i < p.n; i++) {
        struct twin_tensor *x = twin_find(t, p.param[i].name);
        assert_non_null(x);
        for (int k = 0; k < x->rows * x->cols; k++)
            x->w[k] = (double)bf16_to(w[p.param[i].offset + (size_t)k]);
    }
    model_params_release(&p);
    mem_free(w);
}

/* Runs the twin over all groups; logprob (n_tokens) out. */
static void run_twin(struct twin *t, enum twin_mode mode, const struct engine_groups *g,
                     double temperature, double *logprob)
{
    int at = 0;
    twin_zero_grad(t);
    for (int i = 0; i < g->n; i++) {
        struct twin_rows r = {.temperature = temperature};
        const struct device_group *q = &g->group[i];
        int first = at;
        twin_rows_prompt(&r, q->prompt.token, q->prompt.n);
        for (int s = 0; s < q->n_samples; s++) {
            double coef[256];
            for (int k = 0; k < q->sample[s].n; k++)
                coef[k] = (double)g->coef[at + k];
            twin_rows_sample(&r, q->sample[s].token, q->sample[s].n, coef);
            at += q->sample[s].n;
        }
        double *all = mem_calloc((size_t)r.n, sizeof *all);
        twin_run(t, mode, &r, all, NULL);
        memcpy(logprob + first, all + r.prompt, (size_t)(at - first) * sizeof *logprob);
        mem_free(all);
        twin_rows_release(&r);
    }
}

/* ---- comparing ---- */

struct difference {
    double logprob;      // the largest
    double tensor;       // relative to the tensor's norm, the worst tensor
    double cosine, norm; // the worst tensor's, and the largest |ratio - 1|
    double key_bias;     // that ratio for key biases, whose gradients mostly cancel
    char name[64];       // the tensor of `tensor`
};

/* `size` is the norm of the whole gradient: a tensor whose gradient vanishes, as those of q and k
   do where there is but one key, may hold the dust of float sums. */
static void compare_tensor(struct difference *r, const char *name, const double *want,
                           const float *got, size_t n, double size)
{
    double dot = 0, norm = 0, other = 0, off = 0;
    for (size_t k = 0; k < n; k++) {
        double a = want[k], b = (double)got[k];
        dot += a * b;
        norm += a * a;
        other += b * b;
        off += (a - b) * (a - b);
    }
    assert_true(isfinite(other));
    if (sqrt(norm) < 1e-9 * size) {
        assert_true(sqrt(other) <= 1e-6 * size);
        return;
    }
    double relative = sqrt(off / norm);
    if (relative >= r->tensor) {
        r->tensor = relative;
        snprintf(r->name, sizeof r->name, "%s", name);
    }
    r->cosine = MIN(r->cosine, dot / sqrt(norm * other));
    double *ratio = strstr(name, "k_proj.bias") ? &r->key_bias : &r->norm;
    *ratio = MAX(*ratio, fabs(sqrt(other / norm) - 1));
}

static struct difference compare(const struct twin *t, const struct device *d,
                                 const float *gradient)
{
    struct model_params p;
    struct difference r = {.cosine = 1};
    double sumsq = 0;
    model_params_init(&p, &d->conf.model);
    for (size_t i = 0; i < d->n_elements; i++)
        sumsq += (double)gradient[i] * (double)gradient[i];
    for (int i = 0; i < p.n; i++) {
        const struct twin_tensor *want = twin_find(t, p.param[i].name);
        compare_tensor(&r, want->name, want->g, gradient + p.param[i].offset,
                       (size_t)want->rows * (size_t)want->cols, sqrt(sumsq));
    }
    model_params_release(&p);
    return r;
}

/* The engine and a twin over the same groups. */
static struct difference differ(struct device *d, struct twin *t, enum twin_mode mode,
                                const struct engine_groups *g, float temperature)
{
    float *gradient = mem_calloc(d->n_elements, sizeof *gradient);
    float *logprob = mem_calloc((size_t)g->n_tokens, sizeof *logprob);
    double *want = mem_calloc((size_t)g->n_tokens, sizeof *want);
    engine_gradient(d, g, ENGINE_ROWS, temperature, gradient, logprob);
    run_twin(t, mode, g, (double)temperature, want);
    struct difference r = compare(t, d, gradient);
    for (int i = 0; i < g->n_tokens; i++)
        r.logprob = MAX(r.logprob, fabs(want[i] - (double)logprob[i]));
    mem_free(gradient);
    mem_free(logprob);
    mem_free(want);
    return r;
}

/* ---- tightly ---- */

struct scenario {
    struct engine_shape shape;
    float temperature;
};

static const struct scenario SCENARIOS[] = {
    {{1, 1, 1, 1, 1, 1}, 1},    // one token after one token: no prompt rows
    {{1, 1, 2, 2, 1, 1}, 1},    // a prompt of one row
    {{1, 3, 1, 1, 1, 3}, 1},    // samples that share nothing
    {{2, 2, 2, 4, 1, 3}, 0.7f}, // two groups
    {{1, 3, 5, 5, 2, 4}, 1.3f}, // three samples of one prompt
    {{1, 1, 31, 31, 3, 3}, 1},  // the sample starts before the border of a key block
    {{1, 2, 32, 32, 2, 2}, 1},  //   one before it
    {{1, 2, 33, 33, 2, 2}, 1},  //   on it: nothing straddles
    {{1, 1, 34, 34, 2, 2}, 1},  //   behind it
    {{1, 1, 2, 2, 34, 34}, 1},  // a sample of two steps
};

/* Reports a trial; true when it was tight. */
static bool is_tight(const char *name, size_t scenario, uint64_t seed, const struct difference *r)
{
    if (!(r->tensor <= LOOSE))
        fail_msg("%s, scenario %zu, seed %llu: %s is off by %.2e of its norm", name, scenario,
                 (unsigned long long)seed, r->name, r->tensor);
    return r->tensor <= TIGHT && r->logprob <= TIGHT_LOGPROB;
}

static void check_most(const char *name, size_t scenario, int tight)
{
    if (2 * tight <= SEEDS)
        fail_msg("%s, scenario %zu: only %d of %d trials agree within %.0e", name, scenario, tight,
                 SEEDS, TIGHT);
}

/* Coefficients that a loss gives the groups' samples, from random log-probabilities at sampling
   time and of a reference, on either side of the clipping borders. */
static void give_coefficients(struct device *d, const struct grpo_conf *c, float temperature,
                              uint64_t seed, struct engine_groups *g)
{
    uint64_t key = rng_key(seed, RNG_REWARD);
    struct grpo_stats stats = {0};
    float *logp = mem_calloc((size_t)g->n_tokens * 3, sizeof *logp);
    float *old = logp + g->n_tokens, *ref = old + g->n_tokens;
    uint32_t at = 0;
    engine_score(d, DEVICE_POLICY, g, ENGINE_ROWS, temperature, logp, NULL, NULL);
    for (uint32_t i = 0; i < (uint32_t)g->n_tokens; i++) {
        old[i] = logp[i] + (float)(rng_uniform(key, i, 0, 0, 0) - 0.5);
        ref[i] = logp[i] + (float)(rng_uniform(key, i, 1, 0, 0) * 2 - 1);
    }
    for (int i = 0; i < g->n * g->group->n_samples; i++) {
        struct grpo_sample sample = {.n_tokens = (size_t)g->sample[i].n,
                                     .logp = logp + at,
                                     .logp_old = old + at,
                                     .logp_ref = ref + at,
                                     .advantage =
                                         (float)(rng_uniform(key, (uint32_t)i, 2, 0, 0) * 2 - 1)};
        grpo_sample_loss(c, &sample, g->coef + at, &stats);
        at += (uint32_t)sample.n_tokens;
    }
    mem_free(logp);
}

/* One trial with new weights and tokens; c: the loss, or NULL for random coefficients. */
static struct difference try_scenario(struct device *d, const struct scenario *s,
                                      const struct grpo_conf *c, uint64_t seed)
{
    struct twin t;
    engine_fill(d, seed);
    twin_of(&t, d);
    struct engine_groups g = engine_groups(seed, d->conf.model.V, s->shape);
    if (c)
        give_coefficients(d, c, s->temperature, seed, &g);
    struct difference r = differ(d, &t, TWIN_ROUNDED, &g, s->temperature);
    engine_groups_free(&g);
    twin_release(&t);
    return r;
}

static void gradients_equal_the_rounded_twins(void **state)
{
    (void)state;
    for (int m = 0; m < engine_models(); m++) {
        struct device *d = engine_make(&engine_model[m], (struct engine_options){0});
        for (size_t i = 0; i < ARRAY_LEN(SCENARIOS); i++) {
            int tight = 0;
            for (uint64_t seed = 100 * i + 1; seed <= 100 * i + SEEDS; seed++) {
                struct difference r = try_scenario(d, &SCENARIOS[i], NULL, seed);
                tight += is_tight(engine_model_name[m], i, seed, &r);
            }
            check_most(engine_model_name[m], i, tight);
        }
        device_close(d);
    }
}

static void gradients_of_every_objective_equal_the_rounded_twins(void **state)
{
    (void)state;
    static const struct scenario scenario = {{1, 3, 5, 5, 2, 4}, 1};
    for (int m = 0; m < MIN(3, engine_models()); m++) { // one of each family
        struct device *d = engine_make(&engine_model[m], (struct engine_options){0});
        for (int i = 0; i < GRPO_OBJECTIVES * 3; i++) {
            struct grpo_conf c = {.objective = (enum grpo_objective)(i / 3),
                                  .kl = (enum grpo_kl)(i % 3),
                                  .beta = i % 3 ? 0.4 : 0,
                                  .epsilon_low = 0.2,
                                  .epsilon_high = 0.28,
                                  .max_completion_length = 4};
            int tight = 0;
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                struct difference r = try_scenario(d, &scenario, &c, 5000 + seed);
                tight += is_tight(engine_model_name[m], (size_t)i, seed, &r);
            }
            check_most(engine_model_name[m], (size_t)i, tight);
        }
        device_close(d);
    }
}

/* Products deeper than one step of 32, heads wider than one vector. */
static void golden_models_equal_the_rounded_twins(void **state)
{
    (void)state;
    static const struct engine_shape shapes[] = {{1, 1, 2, 2, 1, 1}, {1, 2, 3, 3, 1, 2}};
    for (const char *const *name = golden_models; *name; name++) {
        struct device *d = engine_open(*name, (struct engine_options){0});
        struct twin t;
        twin_of(&t, d);
        for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
            int tight = 0;
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                struct engine_groups g = engine_groups(seed, d->conf.model.V, shapes[i]);
                struct difference r = differ(d, &t, TWIN_ROUNDED, &g, 1);
                tight += is_tight(*name, i, seed, &r);
                engine_groups_free(&g);
            }
            check_most(*name, i, tight);
        }
        twin_release(&t);
        device_close(d);
    }
}

/* ---- loosely ---- */

static void check_direction(const char *name, const struct difference *r, double key_bias)
{
    if (!(r->cosine >= 0.995 && r->norm <= 0.03 && r->key_bias <= key_bias))
        fail_msg("%s: a tensor's gradient has cosine %.5f, its norm is off by %.2g", name,
                 r->cosine, MAX(r->norm, r->key_bias));
}

static void larger_groups_keep_the_exact_twins_direction(void **state)
{
    (void)state;
    static const struct engine_shape shape = {4, 3, 1, 40, 1, 70};
    static const float temperature[] = {1, 0.7f, 1.3f};
    int i = 0;
    for (const char *const *name = golden_models; *name; name++, i++) {
        struct device *d = engine_open(*name, (struct engine_options){0});
        struct twin t;
        twin_of(&t, d);
        struct engine_groups g = engine_groups(7, d->conf.model.V, shape);
        struct difference r = differ(d, &t, TWIN_EXACT, &g, temperature[i % 3]);
        check_direction(*name, &r, 0.1);
        engine_groups_free(&g);
        twin_release(&t);
        device_close(d);
    }
}

/* The golden sequences as groups of a prompt of one token and one sample. */
static struct engine_groups golden_groups(const struct golden *golden)
{
    struct engine_groups g = {.n = GOLDEN_SEQUENCES};
    int at = 0;
    g.group = mem_calloc(GOLDEN_SEQUENCES, sizeof *g.group);
    g.sample = mem_calloc(GOLDEN_SEQUENCES, sizeof *g.sample);
    for (int i = 0; i < GOLDEN_SEQUENCES; i++)
        g.n_tokens += golden->seq[i].n - 1;
    g.coef = mem_calloc((size_t)g.n_tokens, sizeof *g.coef);
    for (int i = 0; i < GOLDEN_SEQUENCES; i++) {
        const struct golden_sequence *s = &golden->seq[i];
        g.sample[i] = (struct device_tokens){.token = s->ids + 1, .n = s->n - 1};
        g.group[i] = (struct device_group){
            .prompt = {.token = s->ids, .n = 1}, .sample = &g.sample[i], .n_samples = 1};
        for (int k = 1; k < s->n; k++)
            g.coef[at++] = (float)s->coef[k];
    }
    return g;
}

static void check_golden_gradients(struct device *d, const struct golden *golden,
                                   const struct engine_groups *g)
{
    float *gradient = mem_calloc(d->n_elements, sizeof *gradient);
    float *logprob = mem_calloc((size_t)g->n_tokens, sizeof *logprob);
    struct difference r = {.cosine = 1};
    struct model_params p;
    engine_gradient(d, g, ENGINE_ROWS, (float)golden->temperature, gradient, logprob);
    model_params_init(&p, &d->conf.model);
    for (int i = 0; i < p.n; i++) {
        double *want = golden_gradient(golden, p.param[i].name);
        compare_tensor(&r, p.param[i].name, want, gradient + p.param[i].offset,
                       (size_t)p.param[i].rows * (size_t)p.param[i].cols, 0);
        mem_free(want);
    }
    check_direction(golden->name, &r, 0.03);
    model_params_release(&p);
    mem_free(gradient);
    mem_free(logprob);
}

/* Log-probabilities and entropies within what roundings may do. */
static void check_golden_rows(struct device *d, const struct golden *golden,
                              const struct engine_groups *g)
{
    double bound = twin_logprob_bound(d->conf.model.L, 1, golden->spread), sumsq = 0;
    float *logprob = mem_calloc((size_t)g->n_tokens * 2, sizeof *logprob);
    float *entropy = logprob + g->n_tokens;
    int *best = mem_calloc((size_t)g->n_tokens, sizeof *best), at = 0, other = 0;
    engine_score(d, DEVICE_POLICY, g, ENGINE_ROWS, (float)golden->temperature, logprob, entropy,
                 best);
    for (int i = 0; i < GOLDEN_SEQUENCES; i++)
        for (int k = 0; k < golden->seq[i].n - 1; k++, at++) {
            double off = (double)logprob[at] - golden->seq[i].logprobs[k];
            double entropy_off = (double)entropy[at] - golden->seq[i].entropies[k];
            sumsq += off * off;
            other += best[at] != golden->seq[i].argmax[k];
            if (!(fabs(off) <= 5 * bound && fabs(entropy_off) <= 5 * bound))
                fail_msg("%s: sequence %d, token %d: logprob off by %.3g, entropy by %.3g, "
                         "bound %.3g",
                         golden->name, i, k, off, entropy_off, 5 * bound);
        }
    assert_true(sqrt(sumsq / at) <= bound);
    assert_true(other <= at * 5 / 100); // 1 to 4 of 188 are within a rounding of each other
    mem_free(logprob);
    mem_free(best);
}

static void pytorch_agrees(void **state)
{
    (void)state;
    for (const char *const *name = golden_models; *name; name++) {
        struct golden golden;
        struct device *d = engine_open(*name, (struct engine_options){0});
        golden_open(&golden, *name);
        struct engine_groups g = golden_groups(&golden);
        check_golden_gradients(d, &golden, &g);
        check_golden_rows(d, &golden, &g);
        engine_groups_free(&g);
        golden_close(&golden);
        device_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_the_rounded_twins),
        cmocka_unit_test(gradients_of_every_objective_equal_the_rounded_twins),
        cmocka_unit_test(golden_models_equal_the_rounded_twins),
        cmocka_unit_test(larger_groups_keep_the_exact_twins_direction),
        cmocka_unit_test(pytorch_agrees),
    };
    return cmocka_run_group_tests_name("grad", tests, NULL, NULL);
}
