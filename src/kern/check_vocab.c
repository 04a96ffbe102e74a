/* Checks of the vocabulary kernels: statistics, gradient and draw of a chunk, and argmax. */
#include "kern/kern.h"
#include "kern/check_int.h"

#include <math.h>
#include <string.h>

static const float inv_temperature = 1.25f;

/* Logits of a row; every third case has a peak, which makes most probabilities vanish. */
static float *logits_of(struct check *c, int i, int *n)
{
    arena_reset(&c->arena, 0);
    *n = i < 19 ? check_edge(c, i) : i % 2 ? VOCAB_CHUNK : 1 + check_below(c, VOCAB_CHUNK);
    float *x = check_floats(c, (size_t)*n, 6);
    if (i % 3 == 0)
        x[check_below(c, *n)] = 100;
    return x;
}

/* The error of exp(z - m) relative to it: of z, of the difference and of exp itself. */
static double exp_error(double z, double m)
{
    return (fabs(z) + fabs(m) + fabs(z - m) + 6) * CHECK_U;
}

void check_chunk_stats(struct check *c)
{
    for (int i = 0, n; i < 60; i++) {
        float *x = logits_of(c, i, &n);
        int target = check_below(c, n + 1) - 1;
        struct chunk_stat a = c->k->chunk_stats(x, n, inv_temperature, target);
        struct chunk_stat b = c->oracle->chunk_stats(x, n, inv_temperature, target);
        check_that(c, memcmp(&a, &b, sizeof a) == 0);
        c->v.compared += 4;
        double max = -INFINITY, sum = 0, moment = 0, es = 0, em = 0;
        for (int j = 0; j < n; j++)
            max = fmax(max, (double)x[j] * inv_temperature);
        for (int j = 0; j < n; j++) {
            double z = (double)x[j] * inv_temperature, e = exp(z - max), u = exp_error(z, max);
            sum += e;
            moment += e * (z - max);
            es += e * (u + (n / 16 + 6) * CHECK_U);
            em += e * (fabs(z - max) * (u + (n / 16 + 6) * CHECK_U) + u);
        }
        check_near(c, a.max, max, fabs(max) * CHECK_U);
        check_near(c, a.sum, sum, es + n * 1.7e-38); // exp is 0 below -87
        check_near(c, a.moment, moment, em + n * 1.5e-36);
        double z = target < 0 ? 0 : (double)x[target] * inv_temperature;
        check_near(c, a.target, z, fabs(z) * CHECK_U);
    }
}

void check_chunk_grad(struct check *c)
{
    for (int i = 0, n; i < 60; i++) {
        float *x = logits_of(c, i, &n), lse = i % 3 == 0 ? 125.5f : 14.0f, coef = 0.3f;
        int target = check_below(c, n + 1) - 1;
        bf16 *y = check_out_bf16(c, (size_t)n), *z = check_out_bf16(c, (size_t)n);
        c->k->chunk_grad(y, x, n, inv_temperature, lse, target, coef);
        c->oracle->chunk_grad(z, x, n, inv_temperature, lse, target, coef);
        check_same_bf16(c, y, z, (size_t)n);
        for (int j = 0; j < n; j++) {
            double s = (double)x[j] * inv_temperature, p = exp(s - lse);
            check_near_bf16(
                c, y[j], coef * ((j == target) - p),
                coef * (p * (exp_error(s, lse) + 2 * CHECK_U) + 2 * CHECK_U * (j == target)) +
                    1e-37);
        }
    }
}

/* The drawn index is where the sum in double passes u, within the error of the sum. */
static void drawn_near(struct check *c, const float *x, int n, double max, double u, int got)
{
    double before = 0, sum = 0, error = 0;
    for (int j = 0; j <= got; j++) {
        double z = (double)x[j] * inv_temperature, e = exp(z - max);
        before = sum;
        sum += e;
        error += e * (exp_error(z, max) + (n / 16 + 40) * CHECK_U);
    }
    check_that(c, got >= 0 && got < n && before <= u + error && sum > u - error);
}

void check_chunk_draw(struct check *c)
{
    for (int i = 0, n; i < 200; i++) {
        float *x = logits_of(c, i, &n);
        struct chunk_stat s = c->oracle->chunk_stats(x, n, inv_temperature, -1);
        float u = s.sum * (float)check_below(c, 1000) / 1000;
        int a = c->k->chunk_draw(x, n, inv_temperature, s.max, u);
        check_that(c, a == c->oracle->chunk_draw(x, n, inv_temperature, s.max, u));
        drawn_near(c, x, n, s.max, u, a);
        int last = c->k->chunk_draw(x, n, inv_temperature, s.max, s.sum * 2);
        check_that(c, last == c->oracle->chunk_draw(x, n, inv_temperature, s.max, s.sum * 2));
        // Past the end: the last that the running sum, in float, still feels.
        check_that(c, x[last] * inv_temperature - s.max >= -87);
        for (int j = last + 1; j < n; j++)
            check_that(c, exp((double)(x[j] * inv_temperature - s.max)) <= 2 * CHECK_U * s.sum);
        c->v.compared += 2;
    }
}

void check_argmax(struct check *c)
{
    for (int i = 0, n; i < 60; i++) {
        float *x = logits_of(c, i, &n);
        int best = 0, twin = check_below(c, n);
        for (int j = 0; j < n; j++)
            best = x[j] > x[best] ? j : best;
        x[twin] = x[best];
        check_that(c, c->k->argmax(x, n) == MIN(best, twin));
        c->v.compared++;
    }
}
