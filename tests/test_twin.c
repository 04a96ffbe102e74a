/* The twin against finite differences, against PyTorch's goldens, and its two modes against each
 * other. What holds here makes the twin an oracle for the engine. */
#include "check.h"
#include "twin.h"
#include "twin_ops.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kern/kern.h"
#include "tensor/tensor.h"

/* Draws are numbered: a function of the run's seed and both numbers. */
static double uniform(uint32_t i, uint32_t j)
{
    return rng_uniform(rng_key(check_seed(), RNG_INIT), i, 0, j, 0);
}

static double normal(uint32_t i, uint32_t j)
{
    return sqrt(-2 * log(1 - uniform(2 * i, j))) * cos(2 * M_PI * uniform(2 * i + 1, j));
}

/* Values that keep activations near 1, so that no derivative is trivially small. */
static void fill_random(struct twin *t)
{
    for (int i = 0; i < t->n_tensors; i++) {
        struct twin_tensor *x = &t->tensor[i];
        bool embeds = x == t->embed || x == t->head;
        double mean = strstr(x->name, "norm") ? 1 : 0;
        double scale = x->cols == 1 ? 0.3 : (embeds ? 1.8 : 1) / sqrt(x->cols);
        for (int j = 0; j < x->rows * x->cols; j++)
            x->w[j] = bf16_to(bf16_from((float)(mean + scale * normal((uint32_t)j, (uint32_t)i))));
    }
}

static const struct twin_config family[] = {
    {.vocab = 61,
     .hidden = 24,
     .ffn = 20,
     .layers = 2,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 10,
     .eps = 1e-5,
     .rope_theta = 10000,
     .tied = true,
     .llama3 = {8, 1, 4, 64}},
    {.vocab = 53,
     .hidden = 20,
     .ffn = 28,
     .layers = 2,
     .heads = 3,
     .kv_heads = 1,
     .head_dim = 8,
     .eps = 1e-6,
     .rope_theta = 1e6,
     .qkv_bias = true},
    {.vocab = 47,
     .hidden = 18,
     .ffn = 22,
     .layers = 2,
     .heads = 2,
     .kv_heads = 2,
     .head_dim = 12,
     .eps = 1e-6,
     .rope_theta = 1e6,
     .qk_norm = true,
     .tied = true},
    {.vocab = 47,
     .hidden = 18,
     .ffn = 22,
     .layers = 2,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 6,
     .eps = 1e-6,
     .rope_theta = 1e6,
     .qk_norm = true},
};

/* A prompt and two samples that together pass a block of keys. */
enum { PROMPT = 29, SHORT = 3, LONG = 9 };
struct group {
    int prompt[PROMPT], completion[2][LONG];
    double coef[2][LONG];
};
static const int length[2] = {SHORT, LONG};

static struct group random_group(int vocab)
{
    struct group g;
    for (int i = 0; i < PROMPT; i++)
        g.prompt[i] = (int)(uniform((uint32_t)i, 1000) * vocab);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < LONG; i++) {
            g.completion[s][i] = (int)(uniform((uint32_t)i, 1001 + (uint32_t)s) * vocab);
            g.coef[s][i] = normal((uint32_t)i, 1003 + (uint32_t)s);
        }
    return g;
}

static struct twin_rows group_rows(const struct group *g, double temperature)
{
    struct twin_rows r = {.temperature = temperature};
    twin_rows_prompt(&r, g->prompt, PROMPT);
    for (int s = 0; s < 2; s++)
        twin_rows_sample(&r, g->completion[s], length[s], g->coef[s]);
    return r;
}

/* Component j of a direction: one element (i >= 0), or random signs everywhere (i < 0). */
static double component(int i, int j)
{
    return i >= 0 ? j == i : uniform((uint32_t)j, 2000) < 0.5 ? -1 : 1;
}

/* The loss with tensor x moved by step along direction i. */
static double loss_beside(struct twin *t, const struct twin_rows *r, struct twin_tensor *x, int i,
                          double step)
{
    int n = x->rows * x->cols;
    double *w = x->w;
    x->w = mem_alloc(sizeof *w * (size_t)n);
    for (int j = 0; j < n; j++)
        x->w[j] = w[j] + step * component(i, j);
    double loss = twin_run(t, TWIN_EXACT, r, NULL, NULL);
    mem_free(x->w);
    x->w = w;
    return loss;
}

/* Fourth-order central difference of the loss: error about step^4 + 1e-15 / step. */
static double difference(struct twin *t, const struct twin_rows *r, struct twin_tensor *x, int i)
{
    double h = 1e-4;
    double near = loss_beside(t, r, x, i, h) - loss_beside(t, r, x, i, -h);
    double far = loss_beside(t, r, x, i, 2 * h) - loss_beside(t, r, x, i, -2 * h);
    return (8 * near - far) / (12 * h);
}

static double norm(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Along random signs, and along three single elements. g: the tensor's gradient. */
static void check_slopes(struct twin *t, const struct twin_rows *r, struct twin_tensor *x,
                         const double *g)
{
    int n = x->rows * x->cols;
    double size = norm(g, n);
    assert_true(size > 1e-2);
    for (int k = 0; k < 4; k++) {
        int i = k == 0 ? -1 : (int)(uniform((uint32_t)k, 3000) * n);
        double slope = 0, want = difference(t, r, x, i);
        for (int j = 0; j < n; j++)
            slope += component(i, j) * g[j];
        if (!(fabs(slope - want) <= 1e-8 * size * (i < 0 ? sqrt(n) : 1)))
            fail_msg("%s, direction %d: gradient %.12g, finite difference %.12g", x->name, i, slope,
                     want);
    }
}

/* A copy of every gradient, and zeros in their place. */
static double **take_gradients(struct twin *t)
{
    double **g = mem_alloc(sizeof *g * (size_t)t->n_tensors);
    for (int i = 0; i < t->n_tensors; i++) {
        size_t bytes = sizeof **g * (size_t)t->tensor[i].rows * (size_t)t->tensor[i].cols;
        g[i] = memcpy(mem_alloc(bytes), t->tensor[i].g, bytes);
    }
    twin_zero_grad(t);
    return g;
}

static void free_gradients(const struct twin *t, double **g)
{
    for (int i = 0; i < t->n_tensors; i++)
        mem_free(g[i]);
    mem_free(g);
}

static void gradients_equal_finite_differences(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(family); f++) {
        struct twin t;
        twin_init(&t, &family[f]);
        fill_random(&t);
        struct group group = random_group(family[f].vocab);
        struct twin_rows r = group_rows(&group, f % 2 ? 0.7 : 1);
        twin_run(&t, TWIN_EXACT, &r, NULL, NULL);
        double **g = take_gradients(&t);
        for (int i = 0; i < t.n_tensors; i++)
            check_slopes(&t, &r, &t.tensor[i], g[i]);
        free_gradients(&t, g);
        twin_rows_release(&r);
        twin_release(&t);
    }
}

/* |x - y| <= tolerance |y|, as vectors; a gradient that must vanish needs no case here. */
static void check_near(const char *name, const double *x, const double *y, int n, double tolerance)
{
    double off = 0;
    for (int i = 0; i < n; i++)
        off += (x[i] - y[i]) * (x[i] - y[i]);
    if (!(sqrt(off) <= tolerance * norm(y, n)))
        fail_msg("%s: off by %.3g of its norm, allowed %.3g", name, sqrt(off) / norm(y, n),
                 tolerance);
}

/* The group's samples as sequences of their own: prompt and completion without sharing. */
static void run_apart(struct twin *t, const struct group *g, double *logprob)
{
    for (int s = 0; s < 2; s++) {
        struct twin_rows r = {.temperature = 1};
        double of_row[PROMPT + LONG];
        int sequence[PROMPT + LONG], n = PROMPT + length[s];
        double coef[PROMPT + LONG] = {0};
        memcpy(sequence, g->prompt, sizeof g->prompt);
        memcpy(sequence + PROMPT, g->completion[s], sizeof(int) * (size_t)length[s]);
        memcpy(coef + PROMPT, g->coef[s], sizeof(double) * (size_t)length[s]);
        twin_rows_prompt(&r, sequence, 1);
        twin_rows_sample(&r, sequence + 1, n - 1, coef + 1);
        twin_run(t, TWIN_EXACT, &r, of_row, NULL);
        memcpy(logprob, of_row + PROMPT - 1, sizeof(double) * (size_t)length[s]);
        logprob += length[s];
        twin_rows_release(&r);
    }
}

static void sharing_a_prompt_changes_nothing(void **state)
{
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(family); f++) {
        struct twin t;
        twin_init(&t, &family[f]);
        fill_random(&t);
        struct group group = random_group(family[f].vocab);
        struct twin_rows r = group_rows(&group, 1);
        double shared[PROMPT - 1 + SHORT + LONG], apart[SHORT + LONG];
        run_apart(&t, &group, apart);
        double **g = take_gradients(&t);
        twin_run(&t, TWIN_EXACT, &r, shared, NULL);
        check_near("logprob", shared + PROMPT - 1, apart, SHORT + LONG, 1e-13);
        for (int i = 0; i < t.n_tensors; i++)
            check_near(t.tensor[i].name, t.tensor[i].g, g[i], t.tensor[i].rows * t.tensor[i].cols,
                       1e-12);
        free_gradients(&t, g);
        twin_rows_release(&r);
        twin_release(&t);
    }
}

static void rounding_is_that_of_bf16(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100000; i++) {
        float x = (float)(normal(i, 4000) * exp(40 * normal(i, 4001)));
        if (i % 4 == 0) // halfway between neighbours: the even one
            x = (bf16_to((bf16)(i * 7)) + bf16_to((bf16)(i * 7 + 1))) / 2;
        float want = bf16_to(bf16_from(x));
        if (!isfinite(want) || fabsf(x) < 0x1p-126f)
            continue; // the twin has doubles' range
        assert_true(twin_round1(TWIN_ROUNDED, (double)x) == (double)want);
        assert_true(twin_round1(TWIN_EXACT, (double)x) == (double)x);
    }
}

/* A golden file of one model: tools/oracle/model_golden.py says what is in it. */
static const struct tensor *golden_tensor(const struct tensor_set *set, const char *kind, int i,
                                          const char *what)
{
    char name[128];
    if (i >= 0)
        snprintf(name, sizeof name, "%s.%d.%s", kind, i, what);
    else
        snprintf(name, sizeof name, "%s.%s", kind, what);
    return tensor_find(set, name);
}

/* Its float values as doubles; the caller frees them. */
static double *golden_values(const struct tensor *t)
{
    assert_non_null(t);
    double *x = mem_alloc(sizeof *x * t->n_elems);
    for (uint64_t i = 0; i < t->n_elems; i++) {
        float value;
        tensor_to_float(t, i, i + 1, &value);
        x[i] = (double)value;
    }
    return x;
}

static void check_close(const char *what, const double *x, const double *y, int n, double tolerance)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(x[i] - y[i]) <= tolerance))
            fail_msg("%s %d: %.9g, expected %.9g", what, i, x[i], y[i]);
}

/* Runs sequence i in one mode and adds its gradients; false when there is none. With `exact`, the
   log-probabilities and entropies must be the golden's. */
static bool run_golden(struct twin *t, enum twin_mode mode, const struct tensor_set *set, int i)
{
    const struct tensor *ids = golden_tensor(set, "seq", i, "ids");
    if (!ids)
        return false;
    int n = (int)ids->n_elems, *token = mem_alloc(ids->n_bytes);
    memcpy(token, ids->data, ids->n_bytes);
    double *coef = golden_values(golden_tensor(set, "seq", i, "coef"));
    double *temperature = golden_values(tensor_find(set, "temperature"));
    double *want_logprob = golden_values(golden_tensor(set, "seq", i, "logprobs"));
    double *want_entropy = golden_values(golden_tensor(set, "seq", i, "entropies"));
    double *logprob = mem_alloc(sizeof *logprob * (size_t)n);
    double *entropy = mem_alloc(sizeof *entropy * (size_t)n);
    struct twin_rows r = {.temperature = *temperature};
    twin_rows_prompt(&r, token, 1);
    twin_rows_sample(&r, token + 1, n - 1, coef + 1);
    twin_run(t, mode, &r, logprob, entropy);
    if (mode == TWIN_EXACT) {
        check_close("logprob", logprob, want_logprob, n - 1, 1e-5);
        check_close("entropy", entropy, want_entropy, n - 1, 1e-5);
    }
    twin_rows_release(&r);
    void *owned[] = {token, coef, temperature, want_logprob, want_entropy, logprob, entropy};
    for (size_t k = 0; k < ARRAY_LEN(owned); k++)
        mem_free(owned[k]);
    return true;
}

#define MODELS "tests/golden/models/"
static const char *const model[] = {"llama_tied",   "llama_rope3", "llama_rope3_v4", "qwen2_bias",
                                    "qwen2_untied", "qwen3_wide",  "qwen3_tied"};

/* Calls check on each model with the gradients of all its golden sequences. */
static void each_golden(enum twin_mode mode, void (*check)(const char *name, const double *got,
                                                           const double *want, int n))
{
    for (size_t m = 0; m < ARRAY_LEN(model); m++) {
        char folder[128], path[160], what[160];
        struct tensor_set *set;
        struct twin t;
        snprintf(folder, sizeof folder, MODELS "%s", model[m]);
        snprintf(path, sizeof path, "%s/golden.safetensors", folder);
        assert_int_equal(tensor_open(&set, path, NULL), 0);
        twin_load(&t, folder);
        int n_sequences = 0;
        while (run_golden(&t, mode, set, n_sequences))
            n_sequences++;
        assert_int_equal(n_sequences, 4);
        for (int i = 0; i < t.n_tensors; i++) {
            struct twin_tensor *x = &t.tensor[i];
            double *want = golden_values(golden_tensor(set, "grad", -1, x->name));
            snprintf(what, sizeof what, "%s: %s", model[m], x->name);
            check(what, x->g, want, x->rows * x->cols);
            mem_free(want);
        }
        twin_release(&t);
        tensor_close(set);
    }
}

static void check_exact(const char *name, const double *got, const double *want, int n)
{
    check_near(name, got, want, n, 1e-5);
}

static void exact_twin_equals_pytorch(void **state)
{
    (void)state;
    each_golden(TWIN_EXACT, check_exact);
}

static void check_direction(const char *name, const double *got, const double *want, int n)
{
    double dot = 0, a = norm(got, n), b = norm(want, n);
    for (int i = 0; i < n; i++)
        dot += got[i] * want[i];
    if (!(dot >= 0.995 * a * b && fabs(a - b) <= 0.03 * b))
        fail_msg("%s: cosine %.5f, norm %.5g, expected %.5g", name, dot / (a * b), a, b);
}

static void rounded_twin_keeps_the_direction_of_gradients(void **state)
{
    (void)state;
    each_golden(TWIN_ROUNDED, check_direction);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_finite_differences),
        cmocka_unit_test(sharing_a_prompt_changes_nothing),
        cmocka_unit_test(rounding_is_that_of_bf16),
        cmocka_unit_test(exact_twin_equals_pytorch),
        cmocka_unit_test(rounded_twin_keeps_the_direction_of_gradients),
    };
    return cmocka_run_group_tests_name("twin", tests, NULL, NULL);
}
