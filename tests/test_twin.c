/* The twin against finite differences, against PyTorch's goldens, and its two modes against each
 * other. What holds here makes the twin an oracle for the engine. */
#include "check.h"
#include "golden.h"
#include "twin.h"
#include "twin_ops.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kern/kern.h"

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

/* |x - y| <= tolerance |y|, as vectors. */
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

enum { LONGEST = 90 }; // tokens of a golden sequence

/* A golden sequence as rows: n - 1 of them. */
static struct twin_rows sequence_rows(const struct golden *g, int i)
{
    const struct golden_sequence *s = &g->seq[i];
    struct twin_rows r = {.temperature = g->temperature};
    assert_true(s->n <= LONGEST);
    twin_rows_prompt(&r, s->ids, 1);
    twin_rows_sample(&r, s->ids + 1, s->n - 1, s->coef + 1);
    return r;
}

/* Calls check with every tensor's gradient and the golden one. */
static void each_gradient(const struct golden *g, const struct twin *t,
                          void (*check)(const char *name, const double *x, const double *want,
                                        int n))
{
    for (int i = 0; i < t->n_tensors; i++) {
        const struct twin_tensor *x = &t->tensor[i];
        char name[128];
        double *want = golden_gradient(g, x->name);
        snprintf(name, sizeof name, "%s: %s", g->name, x->name);
        check(name, x->g, want, x->rows * x->cols);
        mem_free(want);
    }
}

static void check_equal(const char *name, const double *x, const double *want, int n)
{
    check_near(name, x, want, n, 1e-5);
}

static void exact_twin_equals_pytorch(void **state)
{
    (void)state;
    for (const char *const *name = golden_models; *name; name++) {
        struct golden g;
        struct twin t;
        golden_open(&g, *name);
        twin_load(&t, g.folder);
        for (int i = 0; i < GOLDEN_SEQUENCES; i++) {
            double logprob[LONGEST], entropy[LONGEST];
            struct twin_rows r = sequence_rows(&g, i);
            twin_run(&t, TWIN_EXACT, &r, logprob, entropy);
            for (int j = 0; j < r.n; j++) {
                assert_true(fabs(logprob[j] - g.seq[i].logprobs[j]) <= 1e-5);
                assert_true(fabs(entropy[j] - g.seq[i].entropies[j]) <= 1e-5);
            }
            twin_rows_release(&r);
        }
        each_gradient(&g, &t, check_equal);
        twin_release(&t);
        golden_close(&g);
    }
}

static void check_direction(const char *name, const double *x, const double *want, int n)
{
    double dot = 0, norm_x = norm(x, n), norm_want = norm(want, n);
    for (int i = 0; i < n; i++)
        dot += x[i] * want[i];
    double cosine = dot / (norm_x * norm_want);
    if (!(cosine >= 0.995 && fabs(norm_x - norm_want) <= 0.03 * norm_want))
        fail_msg("%s: cosine %.5f, norm %.5g, expected %.5g", name, cosine, norm_x, norm_want);
}

static void rounded_twin_keeps_the_bounds(void **state)
{
    (void)state;
    for (const char *const *name = golden_models; *name; name++) {
        struct golden g;
        struct twin t;
        double sumsq = 0, most = 0;
        int n = 0;
        golden_open(&g, *name);
        twin_load(&t, g.folder);
        for (int i = 0; i < GOLDEN_SEQUENCES; i++) {
            double logprob[LONGEST];
            struct twin_rows r = sequence_rows(&g, i);
            twin_run(&t, TWIN_ROUNDED, &r, logprob, NULL);
            for (int j = 0; j < r.n; j++, n++) {
                double off = logprob[j] - g.seq[i].logprobs[j];
                most = fmax(most, fabs(off));
                sumsq += off * off;
            }
            twin_rows_release(&r);
        }
        double rms = sqrt(sumsq / n), bound = twin_logprob_bound(t.config.layers, 1, g.spread);
        if (!(rms <= bound && rms >= bound / 10 && most <= 5 * bound))
            fail_msg("%s: off by %.3g rms, %.3g at most; bound %.3g", *name, rms, most, bound);
        each_gradient(&g, &t, check_direction);
        twin_release(&t);
        golden_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_finite_differences),
        cmocka_unit_test(sharing_a_prompt_changes_nothing),
        cmocka_unit_test(rounding_is_that_of_bf16),
        cmocka_unit_test(exact_twin_equals_pytorch),
        cmocka_unit_test(rounded_twin_keeps_the_bounds),
    };
    return cmocka_run_group_tests_name("twin", tests, NULL, NULL);
}
