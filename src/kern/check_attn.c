/* Checks of attention, forward and backward, against softmax attention in double on the same bf16
   inputs. The bounds allow for the roundings to bf16 that docs/NUMERICS.md section 4 names. */
#include "kern/kern.h"
#include "kern/check_int.h"

#include <math.h>
#include <string.h>

/* One KV head: rows at positions pos .. pos + n - 1; keys 0 .. pos + n - 1. */
struct scene {
    int E, heads, pos, n, split, keys;
    size_t ld; // of q, dout and out
    bf16 *q, *dout;
    float *k, *v; // (keys, E)
};

/* What one level makes of it. */
struct result {
    bf16 *out;
    float *max, *inv, *dq, *dk, *dv;
};

#define BF16_U (0x1p-8 * 1.1) // A rounding to bf16, and the float errors beside it.

static struct scene scene_new(struct check *c, int i)
{
    static const int widths[] = {8, 16, 24, 64, 80, 128};
    arena_reset(&c->arena, 0);
    struct scene s = {.E = widths[(size_t)i % ARRAY_LEN(widths)], .heads = 1 + check_below(c, 4)};
    s.pos = i % 3 ? check_below(c, 70) : 0;
    s.n = 1 + check_below(c, i % 2 ? 70 : 5);
    s.split = check_below(c, s.pos + 1);
    s.keys = s.pos + s.n;
    s.ld = (size_t)s.heads * s.E + 3;
    s.q = check_matrix(c, s.n, s.heads * s.E, s.ld, 2);
    s.dout = check_matrix(c, s.n, s.heads * s.E, s.ld, 1);
    s.k = check_floats(c, (size_t)s.keys * s.E, 2);
    s.v = check_floats(c, (size_t)s.keys * s.E, 1);
    for (int j = 0; j < s.keys * s.E; j++) {
        s.k[j] = bf16_to(bf16_from(s.k[j]));
        s.v[j] = bf16_to(bf16_from(s.v[j]));
    }
    return s;
}

static const void *const *blocks_of(struct check *c, const struct kern *k, const struct scene *s)
{
    int n = (s->keys + KV_BLOCK - 1) / KV_BLOCK;
    void **table = check_bytes(c, (size_t)n * sizeof *table);
    for (int b = 0; b < n; b++)
        table[b] = memset(check_bytes(c, k->kv_bytes(s->E)), 0, k->kv_bytes(s->E));
    for (int t = 0; t < s->keys; t++)
        k->kv_put(table[t / KV_BLOCK], s->E, t % KV_BLOCK,
                  (struct kv_row){s->k + (size_t)t * s->E, s->v + (size_t)t * s->E});
    return (const void *const *)table;
}

static void attend(struct check *c, const struct kern *k, const struct scene *s, struct result *r)
{
    struct attn a = {.q = s->q, .ldq = s->ld, .n = s->n, .n_heads = s->heads, .E = s->E};
    r->out = check_out_bf16(c, (size_t)s->n * s->ld);
    r->max = check_out(c, (size_t)s->n * s->heads);
    r->inv = check_out(c, (size_t)s->n * s->heads);
    a.pos = s->pos;
    a.kv = blocks_of(c, k, s);
    a.scale = 1 / sqrtf((float)s->E);
    a.out = r->out;
    a.ldo = s->ld;
    a.max = r->max;
    a.inv_sum = r->inv;
    a.scratch = check_scratch(c, k, s->E, s->E);
    k->attn(&a);
}

static void attend_back(struct check *c, const struct kern *k, const struct scene *s,
                        struct result *r)
{
    const size_t kv = (size_t)s->keys * s->E, low = (size_t)s->split * s->E;
    struct attn_grad g = {.q = s->q, .dout = s->dout, .out = r->out, .ldq = s->ld, .ldo = s->ld};
    r->dq = check_out(c, (size_t)s->n * s->ld);
    r->dk = memset(check_out(c, kv), 0, kv * sizeof(float));
    r->dv = memset(check_out(c, kv), 0, kv * sizeof(float));
    g.n = s->n;
    g.n_heads = s->heads;
    g.E = s->E;
    g.pos = s->pos;
    g.split = s->split;
    g.kv = blocks_of(c, k, s);
    g.scale = 1 / sqrtf((float)s->E);
    g.max = r->max;
    g.inv_sum = r->inv;
    g.dq = r->dq;
    g.ld_dq = s->ld;
    g.dk_lo = r->dk;
    g.dv_lo = r->dv;
    g.dk_hi = r->dk + low;
    g.dv_hi = r->dv + low;
    g.ld_lo = g.ld_hi = (size_t)s->E;
    g.scratch = check_scratch(c, k, s->E, s->E);
    k->attn_grad(&g);
}

static double dot(const bf16 *a, const float *b, int n, double *magnitude)
{
    double s = 0;
    *magnitude = 0;
    for (int i = 0; i < n; i++) {
        s += (double)bf16_to(a[i]) * b[i];
        *magnitude += fabs((double)bf16_to(a[i]) * b[i]);
    }
    return s;
}

/* Probabilities of a row's keys; max and sum of its scores; returns the scores' error in float. */
static double softmax(const struct scene *s, int row, int head, double *p, double *max, double *sum)
{
    const int n = s->pos + row + 1;
    double error = 0, magnitude;
    *max = -INFINITY;
    *sum = 0;
    for (int t = 0; t < n; t++) {
        p[t] = dot(s->q + row * s->ld + (size_t)head * s->E, s->k + (size_t)t * s->E, s->E,
                   &magnitude) /
               sqrt(s->E);
        error = fmax(error, magnitude / sqrt(s->E) * (s->E / 32 + 24) * CHECK_U);
        *max = fmax(*max, p[t]);
    }
    for (int t = 0; t < n; t++)
        *sum += p[t] = exp(p[t] - *max);
    for (int t = 0; t < n; t++)
        p[t] /= *sum;
    return error + (n / 16 + 20) * CHECK_U;
}

static void forward_near(struct check *c, const struct scene *s, const struct result *r, double *p)
{
    for (int i = 0; i < s->n * s->heads; i++) {
        const int row = i / s->heads, head = i % s->heads;
        double max, sum, error = softmax(s, row, head, p, &max, &sum);
        check_near(c, r->max[i], max, error);
        check_near(c, r->inv[i], 1 / sum, 2 * error / sum);
        for (int e = 0; e < s->E; e++) {
            double o = 0, magnitude = 0;
            for (int t = 0; t <= s->pos + row; t++) {
                o += p[t] * s->v[t * s->E + e];
                magnitude += fabs(p[t] * s->v[t * s->E + e]);
            }
            check_near_bf16(c, r->out[row * s->ld + (size_t)head * s->E + e], o,
                            magnitude * (BF16_U + 4 * error));
        }
    }
}

/* Sums of the backward with the error each may have. */
struct sums {
    double *dk, *dk_error, *dv, *dv_error;
};

static void row_back(struct check *c, const struct scene *s, const struct result *r, int i,
                     double *p, struct sums *g)
{
    const int row = i / s->heads, E = s->E;
    const size_t at = row * s->ld + (size_t)(i % s->heads) * E;
    double max, sum, error = softmax(s, row, i % s->heads, p, &max, &sum), D = 0, dm = 0, magnitude;
    double dq[128] = {0}, dq_error[128] = {0};
    for (int e = 0; e < E; e++) {
        D += (double)bf16_to(s->dout[at + e]) * bf16_to(r->out[at + e]);
        dm += fabs((double)bf16_to(s->dout[at + e]) * bf16_to(r->out[at + e]));
    }
    for (int t = 0; t <= s->pos + row; t++) {
        double ds = dot(s->dout + at, s->v + (size_t)t * E, E, &magnitude) - D;
        double rough = p[t] * (magnitude + dm) / sqrt(E) * (4 * error + 40 * CHECK_U);
        ds *= p[t] / sqrt(E);
        rough += fabs(ds) * BF16_U;
        for (int e = 0; e < E; e++) {
            double k = s->k[t * E + e], q = bf16_to(s->q[at + e]), d = bf16_to(s->dout[at + e]);
            dq[e] += ds * k;
            dq_error[e] += rough * fabs(k);
            g->dk[t * E + e] += ds * q;
            g->dk_error[t * E + e] += rough * fabs(q);
            g->dv[t * E + e] += p[t] * d;
            g->dv_error[t * E + e] += p[t] * fabs(d) * (BF16_U + 4 * error);
        }
    }
    for (int e = 0; e < E; e++)
        check_near(c, r->dq[at + e], dq[e], dq_error[e] + 1e-30);
}

static void backward_near(struct check *c, const struct scene *s, const struct result *r, double *p)
{
    const size_t kv = (size_t)s->keys * s->E;
    struct sums g;
    double **part[] = {&g.dk, &g.dk_error, &g.dv, &g.dv_error};
    for (int i = 0; i < 4; i++)
        *part[i] = memset(check_bytes(c, kv * sizeof(double)), 0, kv * sizeof(double));
    for (int i = 0; i < s->n * s->heads; i++)
        row_back(c, s, r, i, p, &g);
    for (size_t i = 0; i < kv; i++) {
        check_near(c, r->dk[i], g.dk[i], g.dk_error[i] + 1e-30);
        check_near(c, r->dv[i], g.dv[i], g.dv_error[i] + 1e-30);
    }
}

enum { SCENES = 18 };

void check_attn(struct check *c)
{
    for (int i = 0; i < SCENES; i++) {
        struct scene s = scene_new(c, i);
        struct result a, b;
        attend(c, c->k, &s, &a);
        attend(c, c->oracle, &s, &b);
        check_same_bf16(c, a.out, b.out, (size_t)s.n * s.ld);
        check_same(c, a.max, b.max, (size_t)s.n * s.heads);
        check_same(c, a.inv, b.inv, (size_t)s.n * s.heads);
        forward_near(c, &s, &a, check_bytes(c, (size_t)s.keys * sizeof(double)));
    }
}

void check_attn_grad(struct check *c)
{
    for (int i = 0; i < SCENES; i++) {
        struct scene s = scene_new(c, i);
        struct result a, b;
        attend(c, c->oracle, &s, &a);
        b = a;
        attend_back(c, c->k, &s, &a);
        attend_back(c, c->oracle, &s, &b);
        check_same(c, a.dq, b.dq, (size_t)s.n * s.ld);
        check_same(c, a.dk, b.dk, (size_t)s.keys * s.E);
        check_same(c, a.dv, b.dv, (size_t)s.keys * s.E);
        backward_near(c, &s, &a, check_bytes(c, (size_t)s.keys * sizeof(double)));
    }
}
