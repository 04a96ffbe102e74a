/* The float transcription and the double oracle of attention. Loops are the slow, obvious ones:
   one row, one head, one key at a time. */
#include "attn_oracle.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* ---- law ---- */

float law_exp(float x)
{
    if (x < -87.0f)
        return 0;
    float n = rintf(x * 1.44269504f), r = fmaf(n, -0.693359375f, x);
    static const float coefficient[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                        1.6666665459e-1f, 5.0000001201e-1f};
    r = fmaf(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    for (size_t i = 0; i < ARRAY_LEN(coefficient); i++)
        p = fmaf(p, r, coefficient[i]);
    return ldexpf(fmaf(p, r * r, r + 1), (int)n);
}

/* One 32-step of a product: even + odd, of n values (the rest are zeros). */
static float step(const float *a, const float *b, int n)
{
    float even = 0, odd = 0;
    for (int j = 0; j < 16; j++) {
        even = fmaf(2 * j < n ? a[2 * j] : 0, 2 * j < n ? b[2 * j] : 0, even);
        odd = fmaf(2 * j + 1 < n ? a[2 * j + 1] : 0, 2 * j + 1 < n ? b[2 * j + 1] : 0, odd);
    }
    return even + odd;
}

static float dot(const float *a, const float *b, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i += 32)
        sum += step(a + i, b + i, MIN(32, n - i));
    return sum;
}

static float fold(const float lane[16])
{
    float s[16];
    memcpy(s, lane, sizeof s);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            s[i] = s[i] + s[i + half];
    return s[0];
}

static float rounded(float x)
{
    return bf16_to(bf16_from(x));
}

static float *floats(const double *x, size_t n)
{
    float *y = mem_alloc(n * sizeof *y + 1);
    for (size_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    return y;
}

struct law {
    const struct attn_case *c;
    float *q, *dout, *k, *v, scale;
};

static struct law law_of(const struct attn_case *c)
{
    size_t rows = (size_t)c->n * c->heads * c->E, keys = (size_t)(c->pos + c->n) * c->E;
    return (struct law){c,
                        floats(c->q, rows),
                        floats(c->dout, rows),
                        floats(c->k, keys),
                        floats(c->v, keys),
                        1.0f / sqrtf((float)c->E)};
}

static void law_free(struct law *l)
{
    mem_free(l->q);
    mem_free(l->dout);
    mem_free(l->k);
    mem_free(l->v);
}

/* Scores of 32 keys from `key` on for the row at position p. */
static void law_scores(const struct law *l, const float *q, int key, int p, float s[32])
{
    for (int j = 0; j < 32; j++)
        s[j] = key + j > p ? -INFINITY
                           : dot(q, l->k + (size_t)(key + j) * l->c->E, l->c->E) * l->scale;
}

static void law_row(const struct law *l, const float *q, int p, float *o, float *max, float *sum)
{
    int E = l->c->E;
    for (int key = 0; key <= p; key += 32) {
        float s[32], e[32], lane[16], v[32], top = key ? *max : -INFINITY;
        law_scores(l, q, key, p, s);
        for (int j = 0; j < 32; j++)
            top = s[j] > top ? s[j] : top;
        float alpha = key ? law_exp(*max - top) : 0;
        for (int j = 0; j < 32; j++)
            e[j] = law_exp(s[j] - top);
        for (int j = 0; j < 16; j++)
            lane[j] = e[j] + e[j + 16];
        *sum = key ? *sum * alpha + fold(lane) : fold(lane);
        *max = top;
        for (int j = 0; j < 32; j++)
            e[j] = rounded(e[j]);
        for (int i = 0; i < E; i++) {
            for (int j = 0; j < 32; j++)
                v[j] = key + j > p ? 0 : l->v[(size_t)(key + j) * E + i];
            o[i] = (key ? o[i] * alpha : 0) + step(e, v, 32);
        }
    }
}

void law_forward(const struct attn_case *c, struct attn_saved *s)
{
    struct law l = law_of(c);
    float *o = mem_alloc((size_t)c->E * sizeof *o);
    for (int i = 0; i < c->n * c->heads; i++) {
        float sum = 0;
        law_row(&l, l.q + (size_t)i * c->E, c->pos + i / c->heads, o, s->max + i, &sum);
        s->inv[i] = 1 / sum;
        for (int j = 0; j < c->E; j++)
            s->out[(size_t)i * c->E + j] = bf16_from(o[j] * s->inv[i]);
    }
    mem_free(o);
    law_free(&l);
}

/* bf16 p and dS of one row over the 32 keys from `key` on. */
static void law_grad_scores(const struct law *l, const struct attn_saved *s, int i, int key,
                            float p[32], float ds[32])
{
    int E = l->c->E, pos = l->c->pos + i / l->c->heads;
    const float *dout = l->dout + (size_t)i * E;
    const bf16 *out = s->out + (size_t)i * E;
    float lane[16] = {0}, score[32];
    for (int j = 0; j < E; j++)
        lane[j % 16] = fmaf(dout[j], bf16_to(out[j]), lane[j % 16]);
    float D = fold(lane);
    law_scores(l, l->q + (size_t)i * E, key, pos, score);
    for (int j = 0; j < 32; j++) {
        p[j] = ds[j] = 0;
        if (key + j > pos)
            continue;
        float x = law_exp(score[j] - s->max[i]) * s->inv[i];
        float dp = dot(dout, l->v + (size_t)(key + j) * E, E);
        p[j] = rounded(x);
        ds[j] = rounded((x * (dp - D)) * l->scale);
    }
}

/* One tile of 32 rows, one head, one key block: a 32-step of every sum. */
static void law_tile(const struct law *l, const struct attn_saved *s, struct attn_sums *g, int row,
                     int head, int key)
{
    int E = l->c->E, heads = l->c->heads, rows = MIN(32, l->c->n - row);
    float p[32][32] = {0}, ds[32][32] = {0}, a[32], b[32], x[32], y[32]; // p, ds: (row, key)
    for (int r = 0; r < rows; r++)
        law_grad_scores(l, s, (row + r) * heads + head, key, p[r], ds[r]);
    int keys = MIN(32, l->c->pos + l->c->n - key);
    for (int i = 0; i < E; i++) {
        for (int j = 0; j < 32; j++) {
            size_t at = ((size_t)(row + j) * heads + head) * E + i;
            a[j] = j < keys ? l->k[(size_t)(key + j) * E + i] : 0;
            x[j] = j < rows ? l->q[at] : 0;
            y[j] = j < rows ? l->dout[at] : 0;
        }
        for (int r = 0; r < rows; r++) {
            float *dq = g->dq + ((size_t)(row + r) * heads + head) * E + i;
            *dq = (key ? *dq : 0) + step(ds[r], a, 32);
        }
        for (int j = 0; j < keys; j++) {
            for (int r = 0; r < 32; r++) {
                a[r] = ds[r][j];
                b[r] = p[r][j];
            }
            g->dk[(size_t)(key + j) * E + i] += step(a, x, 32);
            g->dv[(size_t)(key + j) * E + i] += step(b, y, 32);
        }
    }
}

void law_grad(const struct attn_case *c, const struct attn_saved *s, struct attn_sums *g)
{
    struct law l = law_of(c);
    for (int row = 0; row < c->n; row += 32)
        for (int head = 0; head < c->heads; head++)
            for (int key = 0; key < c->pos + MIN(row + 32, c->n); key += 32)
                law_tile(&l, s, g, row, head, key);
    law_free(&l);
}

/* ---- real ---- */

static const double U = 0x1p-24;            // half a unit in the last place of a float
static const double BF16_ULP_HALF = 0x1p-8; // the same of a bf16
static const double TINY = 0x1p-120;        // what flushing may drop

/* A value known to within err. */
struct about {
    double x, err;
};

static double to_bf16(double x)
{
    return bf16_to(bf16_from((float)x));
}

static struct about to_bf16_about(struct about a, bool round)
{
    if (!round)
        return (struct about){a.x, (a.err + BF16_ULP_HALF * (fabs(a.x) + a.err))};
    return (struct about){to_bf16(a.x), to_bf16(a.x + a.err) - to_bf16(a.x - a.err)};
}

/* A float product of n terms by section 1: 17 roundings in a step, one more per step. */
static struct about dot_about(const double *a, const double *b, int n)
{
    double sum = 0, mass = 0;
    for (int i = 0; i < n; i++) {
        sum += a[i] * b[i];
        mass += fabs(a[i] * b[i]);
    }
    return (struct about){sum, (20 + n / 32.0) * U * mass + TINY};
}

static struct about score_about(const struct attn_case *c, const double *q, int key)
{
    double scale = 1 / sqrt(c->E);
    struct about s = dot_about(q, c->k + (size_t)key * c->E, c->E);
    return (struct about){s.x * scale, s.err * scale + 2 * U * fabs(s.x * scale)};
}

/* exp(s - m) as a float makes it: 2 ulp of its own, the difference's rounding, and the errors. */
static struct about exp_about(struct about s, struct about m)
{
    double x = exp(s.x - m.x);
    return (struct about){x, x * expm1(s.err + m.err + U * fabs(s.x - m.x) + 4 * U) + TINY};
}

/* One row's softmax over blocks: O, its mass (the sum of |terms|) and l, with errors. */
struct softmax {
    struct about m, l;
    struct about *o; // (E)
    double *mass;    // (E)
};

static void softmax_block(const struct attn_case *c, const double *q, int key, int keys, bool round,
                          struct softmax *t)
{
    struct about s[32], top = t->m;
    for (int j = 0; j < keys; j++) {
        s[j] = score_about(c, q, key + j);
        top.err = fmax(top.err, s[j].err);
        top.x = fmax(top.x, s[j].x);
    }
    struct about alpha = key ? exp_about(t->m, top) : (struct about){0, 0};
    t->m = top;
    t->l.err = t->l.err * (alpha.x + alpha.err) + t->l.x * alpha.err;
    t->l.x *= alpha.x;
    for (int i = 0; i < c->E; i++) {
        t->o[i].err = t->o[i].err * (alpha.x + alpha.err) + t->mass[i] * alpha.err;
        t->o[i].x *= alpha.x;
        t->mass[i] *= alpha.x;
    }
    for (int j = 0; j < keys; j++) {
        struct about e = exp_about(s[j], top), p = to_bf16_about(e, round);
        t->l.x += e.x;
        t->l.err += e.err;
        for (int i = 0; i < c->E; i++) {
            double v = c->v[(size_t)(key + j) * c->E + i];
            t->o[i].x += p.x * v;
            t->o[i].err += p.err * fabs(v);
            t->mass[i] += p.x * fabs(v);
        }
    }
    t->l.err += 10 * U * t->l.x;
    for (int i = 0; i < c->E; i++)
        t->o[i].err += 20 * U * t->mass[i];
}

void real_forward(const struct attn_case *c, bool round, struct real out, struct real max,
                  struct real inv)
{
    struct softmax t = {.o = mem_alloc((size_t)c->E * sizeof *t.o),
                        .mass = mem_alloc((size_t)c->E * sizeof *t.mass)};
    for (int row = 0; row < c->n * c->heads; row++) {
        int keys = c->pos + row / c->heads + 1;
        t.m = (struct about){-INFINITY, 0};
        t.l = (struct about){0, 0};
        memset(t.o, 0, (size_t)c->E * sizeof *t.o);
        memset(t.mass, 0, (size_t)c->E * sizeof *t.mass);
        for (int key = 0; key < keys; key += 32)
            softmax_block(c, c->q + (size_t)row * c->E, key, MIN(32, keys - key), round, &t);
        double loose = t.l.err / t.l.x + 4 * U;
        max.x[row] = t.m.x;
        max.bound[row] = t.m.err;
        inv.x[row] = 1 / t.l.x;
        inv.bound[row] = 2 * loose / t.l.x;
        for (int i = 0; i < c->E; i++) {
            double x = t.o[i].x / t.l.x, err = t.o[i].err / t.l.x + 2 * fabs(x) * loose;
            out.x[(size_t)row * c->E + i] = x;
            out.bound[(size_t)row * c->E + i] = err + BF16_ULP_HALF * (fabs(x) + err) + TINY;
        }
    }
    mem_free(t.o);
    mem_free(t.mass);
}

/* What the backward of one row starts from. */
struct row_state {
    struct about m, inv, D;
};

static void add_about(struct real r, size_t at, struct about a, double b, double roundings)
{
    r.x[at] += a.x * b;
    r.bound[at] += a.err * fabs(b) + roundings * U * fabs(a.x * b);
}

static void grad_row(const struct attn_case *c, int row, struct row_state st, bool round,
                     struct real dq, struct real dk, struct real dv)
{
    const double *q = c->q + (size_t)row * c->E, *dout = c->dout + (size_t)row * c->E;
    double scale = 1 / sqrt(c->E), adds = 20 + (c->pos + c->n) / 32.0 + c->n / 32.0 * c->heads;
    for (int key = 0; key <= c->pos + row / c->heads; key++) {
        struct about e = exp_about(score_about(c, q, key), st.m);
        struct about dp = dot_about(dout, c->v + (size_t)key * c->E, c->E);
        struct about p = {e.x * st.inv.x, e.err * (st.inv.x + st.inv.err) + e.x * st.inv.err};
        p.err += U * p.x;
        double gap = dp.x - st.D.x, gap_err = dp.err + st.D.err + U * fabs(gap);
        struct about t = {p.x * gap * scale,
                          scale * (p.err * (fabs(gap) + gap_err) + p.x * gap_err)};
        t.err += 3 * U * fabs(t.x) + TINY;
        struct about ds = to_bf16_about(t, round), pr = to_bf16_about(p, round);
        for (int i = 0; i < c->E; i++) {
            add_about(dq, (size_t)row * c->E + i, ds, c->k[(size_t)key * c->E + i], adds);
            add_about(dk, (size_t)key * c->E + i, ds, q[i], adds);
            add_about(dv, (size_t)key * c->E + i, pr, dout[i], adds);
        }
    }
}

static struct real real_new(size_t n)
{
    return (struct real){mem_calloc(n, sizeof(double)), mem_calloc(n, sizeof(double))};
}

static void real_free(struct real *r)
{
    mem_free(r->x);
    mem_free(r->bound);
}

static void real_clear(struct real r, size_t n)
{
    memset(r.x, 0, n * sizeof *r.x);
    memset(r.bound, 0, n * sizeof *r.bound);
}

void real_grad(const struct attn_case *c, const struct attn_saved *s, struct real dq,
               struct real dk, struct real dv)
{
    size_t rows = (size_t)c->n * c->heads, keys = (size_t)(c->pos + c->n);
    struct real out = real_new(rows * c->E), max = real_new(rows), inv = real_new(rows);
    if (!s)
        real_forward(c, false, out, max, inv);
    real_clear(dq, rows * c->E);
    real_clear(dk, keys * c->E);
    real_clear(dv, keys * c->E);
    for (size_t row = 0; row < rows; row++) {
        struct row_state st = {{max.x[row], max.bound[row]}, {inv.x[row], inv.bound[row]}, {0, 0}};
        if (s)
            st = (struct row_state){{s->max[row], 0}, {s->inv[row], 0}, {0, 0}};
        for (int i = 0; i < c->E; i++) {
            size_t at = row * c->E + i;
            double o = s ? bf16_to(s->out[at]) : out.x[at];
            st.D.x += c->dout[at] * o;
            st.D.err += fabs(c->dout[at]) * (out.bound[at] + 20 * U * fabs(o));
        }
        grad_row(c, (int)row, st, s != NULL, dq, dk, dv);
    }
    real_free(&out);
    real_free(&max);
    real_free(&inv);
}
