/* Checks of row kernels: norms, rope, SwiGLU, conversions, sums, AdamW. A bound counts the
   roundings of the float formula in units of CHECK_U times the magnitudes they round. */
#include "kern/kern.h"
#include "kern/check_int.h"

#include <math.h>
#include <string.h>

enum { EXP_ULP = 6 }; // exp's error in CHECK_U, with the last addition or product around it.

/* Row lengths: the edges, then what models have. */
static int row_length(struct check *c, int i)
{
    static const int wide[] = {100, 257, 576, 1000, 1024, 1536};
    return i < 19 ? check_edge(c, i) : wide[(size_t)i % ARRAY_LEN(wide)];
}

#define EACH_LENGTH(c, n)                                                                          \
    for (int row = 0, n; row < 31 && (arena_reset(&(c)->arena, 0), n = row_length(c, row)); row++)

static double rstd_of(const float *x, int n, double eps)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += (double)x[i] * x[i];
    return 1 / sqrt(s / n + eps);
}

/* Roundings of a sum of n over lanes. */
static double lanes(int n)
{
    return n / 16 + 6;
}

void check_rmsnorm(struct check *c)
{
    EACH_LENGTH(c, n)
    {
        float *x = check_floats(c, (size_t)n, 3), *w = check_floats(c, (size_t)n, 2);
        bf16 *y = check_out_bf16(c, (size_t)n), *z = check_out_bf16(c, (size_t)n);
        float a = c->k->rmsnorm(y, x, w, n, 1e-6f), b = c->oracle->rmsnorm(z, x, w, n, 1e-6f);
        check_that(c, a == b);
        check_same_bf16(c, y, z, (size_t)n);
        double r = rstd_of(x, n, 1e-6f), u = (lanes(n) + 6) * CHECK_U;
        check_near(c, a, r, r * u);
        for (int i = 0; i < n; i++)
            check_near_bf16(c, y[i], x[i] * r * w[i], fabs(x[i] * r * w[i]) * u);
    }
}

void check_rmsnorm_f(struct check *c)
{
    EACH_LENGTH(c, n)
    {
        float *x = check_floats(c, (size_t)n, 3), *w = check_floats(c, (size_t)n, 2);
        float *y = check_out(c, (size_t)n), *z = check_copy(c, x, (size_t)n);
        float a = c->k->rmsnorm_f(y, x, w, n, 1e-5f), b = c->oracle->rmsnorm_f(z, z, w, n, 1e-5f);
        check_that(c, a == b);
        check_same(c, y, z, (size_t)n);
        double r = rstd_of(x, n, 1e-5f), u = (lanes(n) + 6) * CHECK_U;
        for (int i = 0; i < n; i++)
            check_near(c, y[i], x[i] * r * w[i], fabs(x[i] * r * w[i]) * u);
    }
}

void check_rmsnorm_grad(struct check *c)
{
    EACH_LENGTH(c, n)
    {
        const bool add = row % 2;
        float *x = check_floats(c, (size_t)n, 3), *w = check_floats(c, (size_t)n, 2);
        float *dy = check_floats(c, (size_t)n, 1), *was = check_floats(c, (size_t)n, 1);
        float *dx = check_copy(c, was, (size_t)n), *dx2 = check_copy(c, was, (size_t)n);
        float *dw = check_copy(c, was, (size_t)n), *dw2 = check_copy(c, was, (size_t)n);
        float r = (float)rstd_of(x, n, 1e-6);
        c->k->rmsnorm_grad(dx, add, dw, dy, x, w, r, n);
        c->oracle->rmsnorm_grad(dx2, add, dw2, dy, x, w, r, n);
        check_same(c, dx, dx2, (size_t)n);
        check_same(c, dw, dw2, (size_t)n);
        double s = 0, magnitude = 0, k = (double)r * r * r / n;
        for (int i = 0; i < n; i++) {
            s += (double)dy[i] * w[i] * x[i];
            magnitude += fabs((double)dy[i] * w[i] * x[i]);
        }
        for (int i = 0; i < n; i++) {
            double g = (double)dy[i] * w[i] * r, before = add ? was[i] : 0;
            double bound = fabs(g) * 4 + fabs(x[i]) * k * magnitude * (lanes(n) + 8) + fabs(before);
            check_near(c, dx[i], before + g - x[i] * s * k, bound * CHECK_U * 1.01);
            double t = (double)dy[i] * x[i] * r;
            check_near(c, dw[i], was[i] + t, (fabs(t) * 3 + fabs(was[i])) * CHECK_U);
        }
    }
}

void check_rope(struct check *c)
{
    for (int i = 0; i < 19; i++) {
        arena_reset(&c->arena, 0);
        const int half = check_edge(c, i), E = 2 * half;
        float *x = check_floats(c, (size_t)E, 3), *cs = check_floats(c, (size_t)E, 1);
        float *y = check_copy(c, x, (size_t)E), *z = check_copy(c, x, (size_t)E);
        c->k->rope(y, cs, E, i % 2);
        c->oracle->rope(z, cs, E, i % 2);
        check_same(c, y, z, (size_t)E);
        for (int j = 0; j < half; j++) {
            double co = cs[j], si = i % 2 ? -(double)cs[half + j] : cs[half + j];
            double x0 = x[j], x1 = x[half + j];
            double u = (fabs(x0) + fabs(x1)) * 2 * CHECK_U;
            check_near(c, y[j], x0 * co - x1 * si, u);
            check_near(c, y[half + j], x1 * co + x0 * si, u);
        }
    }
}

/* Gates reach where exp overflows and where it vanishes. */
static float *gates(struct check *c, int n)
{
    float *g = check_floats(c, (size_t)n, 8);
    for (int i = 0; i < n; i += 5)
        g[i] *= 20;
    return g;
}

void check_swiglu(struct check *c)
{
    EACH_LENGTH(c, n)
    {
        float *g = gates(c, n), *u = check_floats(c, (size_t)n, 2);
        bf16 *x = check_out_bf16(c, (size_t)n), *y = check_out_bf16(c, (size_t)n);
        c->k->swiglu(x, g, u, n);
        c->oracle->swiglu(y, g, u, n);
        check_same_bf16(c, x, y, (size_t)n);
        for (int i = 0; i < n; i++) {
            double h = g[i] / (1 + exp(-(double)g[i])) * u[i];
            check_near_bf16(c, x[i], h, fabs(h) * (EXP_ULP + 4) * CHECK_U + 1e-35);
        }
    }
}

void check_swiglu_grad(struct check *c)
{
    EACH_LENGTH(c, n)
    {
        float *g = gates(c, n), *u = check_floats(c, (size_t)n, 2);
        float *dh = check_floats(c, (size_t)n, 1);
        bf16 *dg = check_out_bf16(c, (size_t)n), *dg2 = check_out_bf16(c, (size_t)n);
        bf16 *du = check_out_bf16(c, (size_t)n), *du2 = check_out_bf16(c, (size_t)n);
        c->k->swiglu_grad(dg, du, dh, g, u, n);
        c->oracle->swiglu_grad(dg2, du2, dh, g, u, n);
        check_same_bf16(c, dg, dg2, (size_t)n);
        check_same_bf16(c, du, du2, (size_t)n);
        for (int i = 0; i < n; i++) {
            double s = 1 / (1 + exp(-(double)g[i])), ulp = (EXP_ULP + 8) * CHECK_U;
            double slope = s * (1 + g[i] * (1 - s)), wide = s * (1 + fabs(g[i]));
            check_near_bf16(c, du[i], dh[i] * g[i] * s, fabs(dh[i] * g[i] * s) * ulp + 1e-35);
            check_near_bf16(c, dg[i], dh[i] * u[i] * slope,
                            fabs((double)dh[i] * u[i]) * wide * ulp + 1e-35);
        }
    }
}

void check_to_bf16(struct check *c)
{
    EACH_LENGTH(c, n)
    {
        float *x = check_floats(c, (size_t)n, row % 3 ? 1 : 3e38f);
        uint32_t odd[] = {0x7f800000, 0xff800000, 0x7f800001, 0xffc12345, 0x7f7fffff,
                          0x3f808000, 0x3f818000, 0x3f808001, 0x80000000};
        for (size_t i = 0; i < ARRAY_LEN(odd); i++)
            memcpy(x + check_below(c, n), odd + i, 4);
        bf16 *y = check_out_bf16(c, (size_t)n), *z = check_out_bf16(c, (size_t)n);
        c->k->to_bf16(y, x, (size_t)n);
        c->oracle->to_bf16(z, x, (size_t)n);
        check_same_bf16(c, y, z, (size_t)n);
        for (int i = 0; i < n; i++)
            check_that(c, y[i] == bf16_from(x[i]));
    }
}

void check_from_bf16(struct check *c)
{
    EACH_LENGTH(c, n)
    {
        bf16 *x = check_bf16(c, (size_t)n, 1);
        x[check_below(c, n)] = 0x7f80;
        float *y = check_out(c, (size_t)n), *z = check_out(c, (size_t)n);
        c->k->from_bf16(y, x, (size_t)n);
        c->oracle->from_bf16(z, x, (size_t)n);
        check_same(c, y, z, (size_t)n);
        for (int i = 0; i < n; i++)
            check_that(c, y[i] == bf16_to(x[i]));
    }
}

static void sum_of_two(struct check *c, bool in_place)
{
    EACH_LENGTH(c, n)
    {
        float *a = check_floats(c, (size_t)n, 1), *b = check_floats(c, (size_t)n, 1e-3f);
        float *y = check_copy(c, a, (size_t)n), *z = check_copy(c, a, (size_t)n);
        if (in_place) {
            c->k->add(y, b, (size_t)n);
            c->oracle->add(z, b, (size_t)n);
        } else {
            c->k->fold(y, row % 2 ? y : a, b, (size_t)n);
            c->oracle->fold(z, a, b, (size_t)n);
        }
        check_same(c, y, z, (size_t)n);
        for (int i = 0; i < n; i++)
            check_that(c, y[i] == a[i] + b[i]);
    }
}

void check_add(struct check *c)
{
    sum_of_two(c, true);
}

void check_fold(struct check *c)
{
    sum_of_two(c, false);
}

void check_sumsq(struct check *c)
{
    EACH_LENGTH(c, n)
    {
        float *x = check_floats(c, (size_t)n, 1e20f);
        double a = c->k->sumsq(x, (size_t)n), b = c->oracle->sumsq(x, (size_t)n), s = 0;
        for (int i = 0; i < n; i++)
            s += (double)x[i] * x[i];
        check_that(c, a == b);
        check_near(c, a, s, s * n * 0x1p-52);
        c->v.compared++;
    }
}

void check_sum(struct check *c)
{
    EACH_LENGTH(c, n)
    {
        float *x = check_floats(c, (size_t)n, 1);
        float a = c->k->sum(x, (size_t)n), b = c->oracle->sum(x, (size_t)n);
        double s = 0, magnitude = 0;
        for (int i = 0; i < n; i++) {
            s += x[i];
            magnitude += fabs(x[i]);
        }
        check_that(c, a == b);
        check_near(c, a, s, magnitude * lanes(n) * CHECK_U);
        c->v.compared++;
    }
}

void check_finite(struct check *c)
{
    EACH_LENGTH(c, n)
    {
        float *x = check_floats(c, (size_t)n, 3e38f);
        size_t at = (size_t)n, seen = 12345;
        check_that(c, c->k->finite(x, (size_t)n, &seen) && seen == 12345);
        for (int i = 0; i < 3; i++) {
            size_t j = (size_t)check_below(c, n);
            x[j] = i == 0 ? NAN : i == 1 ? INFINITY : -INFINITY;
            at = MIN(at, j);
            check_that(c, !c->k->finite(x, (size_t)n, &seen) && seen == at);
        }
        c->v.compared += 4;
    }
}

/* One step in double; p, m, v hold the state before. */
static void adamw_near(struct check *c, const struct adamw *h, bool wd, double g, double p,
                       double m, double v, const float got[3])
{
    double m1 = h->beta1 * m + (1 - (double)h->beta1) * g;
    double v1 = h->beta2 * v + (1 - (double)h->beta2) * g * g;
    double root = sqrt(v1 / h->bias2) + h->eps, step = h->lr / h->bias1 / root;
    double kept = wd ? p * (1 - (double)h->lr * h->decay) : p;
    double um = (fabs(h->beta1 * m) + (1 - h->beta1) * fabs(g) * 3) * 2 * CHECK_U;
    check_near(c, got[1], m1, um);
    check_near(c, got[2], v1, v1 * 5 * CHECK_U);
    check_near(c, got[0], kept - step * m1,
               fabs(p) * 4 * CHECK_U + fabs(step) * (um + fabs(m1) * 14 * CHECK_U));
}

void check_adamw(struct check *c)
{
    const struct adamw h = {.lr = 1e-3f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .eps = 1e-8f,
                            .decay = 0.1f,
                            .bias1 = 0.271f,
                            .bias2 = 0.002997f,
                            .factor = 0.37f};
    EACH_LENGTH(c, n)
    {
        size_t z = (size_t)n;
        float *grad = check_floats(c, z, 1), *p0 = check_floats(c, z, 1);
        float *m0 = check_floats(c, z, 1), *v0 = check_floats(c, z, 1);
        for (size_t i = 0; i < z; i++)
            v0[i] = fabsf(v0[i]);
        float *p = check_copy(c, p0, z), *m = check_copy(c, m0, z), *v = check_copy(c, v0, z);
        float *p2 = check_copy(c, p0, z), *m2 = check_copy(c, m0, z), *v2 = check_copy(c, v0, z);
        bf16 *w = check_out_bf16(c, z), *w2 = check_out_bf16(c, z);
        c->k->adamw(p, m, v, w, grad, z, &h, row % 2);
        c->oracle->adamw(p2, m2, v2, w2, grad, z, &h, row % 2);
        check_same(c, p, p2, z);
        check_same(c, m, m2, z);
        check_same(c, v, v2, z);
        check_same_bf16(c, w, w2, z);
        for (size_t i = 0; i < z; i++) {
            adamw_near(c, &h, row % 2, (double)grad[i] * h.factor, p0[i], m0[i], v0[i],
                       (float[]){p[i], m[i], v[i]});
            check_that(c, w[i] == bf16_from(p[i]));
        }
    }
}
