/* The engine's gradients and log-probabilities against the double-precision twin, for every family:
 * tightly against the twin with bf16 roundings at the engine's places, and by direction and norm
 * against the twin without any. Temperature, prompts and samples of every shape included.
 */
#include "engine.h"

#include "base/mem.h"
#include "twin.h"

static const char *const MODELS[] = {"llama_tied",   "llama_rope3", "llama_rope3_v4", "qwen2_bias",
                                     "qwen2_untied", "qwen3_tied",  "qwen3_wide"};

struct result {
    double worst_logprob, worst_tensor; // differences, relative per tensor
    double worst_cosine, worst_norm;
    const char *tensor;
};

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
                coef[k] = g->coef[at + k];
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

static struct result compare(const struct twin *t, const struct device *d, const float *gradient)
{
    struct model_params p;
    struct result r = {.worst_cosine = 1};
    model_params_init(&p, &d->conf.model);
    assert_int_equal(p.n, t->n_tensors);
    for (int i = 0; i < p.n; i++) {
        const struct twin_tensor *want = twin_find(t, p.param[i].name);
        double dot = 0, norm = 0, other = 0, difference = 0;
        assert_non_null(want);
        for (size_t k = 0; k < (size_t)want->rows * (size_t)want->cols; k++) {
            double a = want->g[k], b = gradient[p.param[i].offset + k];
            dot += a * b;
            norm += a * a;
            other += b * b;
            difference += (a - b) * (a - b);
        }
        double relative = sqrt(difference / norm), cosine = dot / sqrt(norm * other);
        if (relative > r.worst_tensor)
            r.tensor = want->name;
        r.worst_tensor = MAX(r.worst_tensor, relative);
        r.worst_cosine = MIN(r.worst_cosine, cosine);
        r.worst_norm = MAX(r.worst_norm, fabs(sqrt(other / norm) - 1));
    }
    model_params_release(&p);
    return r;
}

static void check_model(const char *name, float temperature)
{
    struct twin t;
    char dir[128];
    struct device *d = engine_open(name, (struct engine_options){0});
    struct engine_groups g = engine_groups(7, d->conf.model.V, 4, 3, 40, 70);
    float *gradient = mem_calloc(d->n_elements, sizeof *gradient);
    float *logprob = mem_calloc((size_t)g.n_tokens, sizeof *logprob);
    double *want = mem_calloc((size_t)g.n_tokens, sizeof *want);

    snprintf(dir, sizeof dir, "tests/golden/models/%s", name);
    twin_load(&t, dir);
    engine_gradient(d, &g, ENGINE_ROWS, temperature, gradient, logprob);

    run_twin(&t, TWIN_ROUNDED, &g, temperature, want);
    struct result rounded = compare(&t, d, gradient);
    for (int i = 0; i < g.n_tokens; i++)
        rounded.worst_logprob = MAX(rounded.worst_logprob, fabs(want[i] - logprob[i]));
    run_twin(&t, TWIN_EXACT, &g, temperature, want);
    struct result exact = compare(&t, d, gradient);
    for (int i = 0; i < g.n_tokens; i++)
        exact.worst_logprob = MAX(exact.worst_logprob, fabs(want[i] - logprob[i]));

    print_message(
        "%-15s T %.1f  rounded twin: logprob %.1e, tensor %.1e (%s); exact twin: logprob %.1e, "
        "cosine %.5f, norm %.1e\n",
        name, (double)temperature, rounded.worst_logprob, rounded.worst_tensor, rounded.tensor,
        exact.worst_logprob, exact.worst_cosine, exact.worst_norm);
    assert_true(rounded.worst_tensor <= 1e-4);
    assert_true(exact.worst_cosine >= 0.995);
    assert_true(exact.worst_norm <= 0.03);

    twin_release(&t);
    engine_groups_free(&g);
    mem_free(gradient);
    mem_free(logprob);
    mem_free(want);
    device_close(d);
}

static void gradients_equal_the_rounded_twins(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(MODELS); i++)
        check_model(MODELS[i], 1.0f);
}

static void temperature_is_part_of_the_gradient(void **state)
{
    (void)state;
    check_model("qwen3_tied", 0.7f);
    check_model("llama_tied", 1.3f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_the_rounded_twins),
        cmocka_unit_test(temperature_is_part_of_the_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
