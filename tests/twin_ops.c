/* The twin's operators, forward and backward, as a textbook has them. See twin_ops.h.
 * Derivatives are of L = the loss; dy stands for dL/dy. */
#include "twin_ops.h"

#include <math.h>

enum { BLOCK = 32 }; // Keys per attention block: the unit of the running maximum.

double twin_round1(enum twin_mode mode, double x)
{
    if (mode == TWIN_EXACT || x == 0 || !isfinite(x))
        return x;
    int exponent;
    double fraction = frexp(x, &exponent); // 0.5 <= |fraction| < 1
    return ldexp(rint(ldexp(fraction, 8)), exponent - 8);
}

void twin_round(enum twin_mode mode, double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = twin_round1(mode, x[i]);
}

static double dot(const double *x, const double *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* y += a x */
static void axpy(double *y, double a, const double *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] += a * x[i];
}

void twin_linear(double *y, const double *x, const struct twin_tensor *w,
                 const struct twin_tensor *bias, int n)
{
    int out = w->rows, in = w->cols;
    for (int r = 0; r < n; r++)
        for (int j = 0; j < out; j++)
            y[r * out + j] = dot(x + r * in, w->w + j * in, in) + (bias ? bias->w[j] : 0);
}

void twin_linear_grad(double *dx, struct twin_tensor *w, struct twin_tensor *bias, const double *dy,
                      const double *x, int n)
{
    int out = w->rows, in = w->cols;
    for (int r = 0; r < n; r++)
        for (int j = 0; j < out; j++) {
            double d = dy[r * out + j];
            axpy(dx + r * in, d, w->w + j * in, in);
            axpy(w->g + j * in, d, x + r * in, in);
            if (bias)
                bias->g[j] += d;
        }
}

void twin_norm(double *y, const double *x, const struct twin_tensor *w, double eps, int n)
{
    int width = w->rows;
    for (int r = 0; r < n; r++, x += width, y += width) {
        double rstd = 1 / sqrt(dot(x, x, width) / width + eps);
        for (int i = 0; i < width; i++)
            y[i] = x[i] * rstd * w->w[i];
    }
}

/* With s = rstd and g = dy * w: y_i = x_i s w_i, ds/dx_i = -s^3 x_i / width, so
   dx_i = g_i s - x_i s^3 / width * sum_j g_j x_j. */
void twin_norm_grad(double *dx, struct twin_tensor *w, const double *dy, const double *x,
                    double eps, int n)
{
    int width = w->rows;
    for (int r = 0; r < n; r++, x += width, dx += width, dy += width) {
        double rstd = 1 / sqrt(dot(x, x, width) / width + eps), gx = 0;
        for (int i = 0; i < width; i++)
            gx += dy[i] * w->w[i] * x[i];
        double pull = gx * rstd * rstd * rstd / width;
        for (int i = 0; i < width; i++) {
            dx[i] += dy[i] * w->w[i] * rstd - x[i] * pull;
            w->g[i] += dy[i] * x[i] * rstd;
        }
    }
}

/* Radians per position of pair i; rope_type "llama3" stretches the long wavelengths by `factor`,
   keeps the short ones, and blends between. */
static double rope_frequency(const struct twin_config *c, int i)
{
    double f = pow(c->rope_theta, -2.0 * i / c->head_dim);
    if (c->llama3.factor == 0)
        return f;
    double turns = c->llama3.original_positions * f / (2 * M_PI);
    double low = c->llama3.low_freq_factor, high = c->llama3.high_freq_factor;
    double keep = fmin(1, fmax(0, (turns - low) / (high - low)));
    return keep * f + (1 - keep) * f / c->llama3.factor;
}

void twin_rope(const struct twin_config *c, double *x, int pos, bool inverse)
{
    int half = c->head_dim / 2;
    for (int i = 0; i < half; i++) {
        double angle = (inverse ? -pos : pos) * rope_frequency(c, i);
        double x0 = x[i], x1 = x[i + half];
        x[i] = x0 * cos(angle) - x1 * sin(angle);
        x[i + half] = x1 * cos(angle) + x0 * sin(angle);
    }
}

void twin_swiglu(double *h, const double *gate, const double *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
}

/* With s = sigmoid(gate): silu = gate s, silu' = s (1 + gate (1 - s)). */
void twin_swiglu_grad(double *dgate, double *dup, const double *dh, const double *gate,
                      const double *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double s = 1 / (1 + exp(-gate[i]));
        dup[i] = dh[i] * gate[i] * s;
        dgate[i] = dh[i] * up[i] * s * (1 + gate[i] * (1 - s));
    }
}

int twin_position(const struct twin_rows *r, int row)
{
    return row < r->prompt ? row : r->prompt + row - r->first[row];
}

/* The row that holds position pos of row's sequence. */
static int row_at(const struct twin_rows *r, int row, int pos)
{
    return pos < r->prompt ? pos : r->first[row] + pos - r->prompt;
}

/* One query (row, head) and its KV head: where its vectors start, and how far it sees. */
struct query {
    int row, pos;
    size_t stat;   // index into max and sum
    size_t q;      // offset into q and o
    size_t kv_off; // offset into a row of k and v
    size_t ld_kv;  // width of a row of k and v
    double scale;
};

static struct query query_at(const struct twin_attn *a, int row, int head)
{
    const struct twin_config *c = a->config;
    size_t E = (size_t)c->head_dim, stat = (size_t)row * (size_t)c->heads + (size_t)head;
    return (struct query){.row = row,
                          .pos = twin_position(a->rows, row),
                          .stat = stat,
                          .q = stat * E,
                          .kv_off = (size_t)(head / (c->heads / c->kv_heads)) * E,
                          .ld_kv = (size_t)c->kv_heads * E,
                          .scale = 1 / sqrt(c->head_dim)};
}

/* Offset into k and v of the key at position p of this query's sequence. */
static size_t key_at(const struct twin_attn *a, const struct query *y, int p)
{
    return (size_t)row_at(a->rows, y->row, p) * y->ld_kv + y->kv_off;
}

static double score(const struct twin_attn *a, const struct query *y, int p)
{
    return dot(a->q + y->q, a->k + key_at(a, y, p), a->config->head_dim) * y->scale;
}

/* Softmax over blocks of keys: what was summed under the old maximum shrinks to the new one. */
static void attend(const struct twin_attn *a, const struct query *y)
{
    int E = a->config->head_dim;
    double max = -INFINITY, sum = 0, *o = a->o + y->q;
    for (int i = 0; i < E; i++)
        o[i] = 0;
    for (int lo = 0; lo <= y->pos; lo += BLOCK) {
        int hi = y->pos + 1 < lo + BLOCK ? y->pos + 1 : lo + BLOCK;
        double new_max = max;
        for (int p = lo; p < hi; p++)
            new_max = fmax(new_max, score(a, y, p));
        double shrink = exp(max - new_max);
        sum *= shrink;
        for (int i = 0; i < E; i++)
            o[i] *= shrink;
        for (int p = lo; p < hi; p++) {
            double e = exp(score(a, y, p) - new_max);
            sum += e;
            axpy(o, twin_round1(a->mode, e), a->v + key_at(a, y, p), E);
        }
        max = new_max;
    }
    for (int i = 0; i < E; i++)
        o[i] = twin_round1(a->mode, o[i] / sum);
    a->max[y->stat] = max;
    a->sum[y->stat] = sum;
}

/* o = sum_p w_p v_p with w = softmax(score): dw_p = do . v_p, and
   dscore_p = w_p (dw_p - sum_j w_j dw_j), where the sum is do . o. */
static void attend_grad(const struct twin_attn *a, const struct query *y, const double *dout,
                        double *dq, double *dk, double *dv)
{
    int E = a->config->head_dim;
    const double *d = dout + y->q;
    double mean = dot(d, a->o + y->q, E);
    for (int p = 0; p <= y->pos; p++) {
        size_t key = key_at(a, y, p);
        double w = exp(score(a, y, p) - a->max[y->stat]) / a->sum[y->stat];
        double dw = dot(d, a->v + key, E);
        double ds = twin_round1(a->mode, w * (dw - mean) * y->scale);
        axpy(dq + y->q, ds, a->k + key, E);
        axpy(dk + key, ds, a->q + y->q, E);
        axpy(dv + key, twin_round1(a->mode, w), d, E);
    }
}

void twin_attn(const struct twin_attn *a)
{
    for (int row = 0; row < a->rows->n; row++)
        for (int head = 0; head < a->config->heads; head++) {
            struct query y = query_at(a, row, head);
            attend(a, &y);
        }
}

void twin_attn_grad(const struct twin_attn *a, const double *dout, double *dq, double *dk,
                    double *dv)
{
    for (int row = 0; row < a->rows->n; row++)
        for (int head = 0; head < a->config->heads; head++) {
            struct query y = query_at(a, row, head);
            attend_grad(a, &y, dout, dq, dk, dv);
        }
}

struct twin_softmax twin_softmax(const double *logits, int vocab, double temperature, int target)
{
    double max = -INFINITY, sum = 0, entropy = 0;
    for (int i = 0; i < vocab; i++)
        max = fmax(max, logits[i] / temperature);
    for (int i = 0; i < vocab; i++)
        sum += exp(logits[i] / temperature - max);
    double lse = max + log(sum);
    for (int i = 0; i < vocab; i++) {
        double logprob = logits[i] / temperature - lse;
        entropy -= exp(logprob) * logprob;
    }
    return (struct twin_softmax){
        .lse = lse, .logprob = logits[target] / temperature - lse, .entropy = entropy};
}

void twin_softmax_grad(double *dlogits, const double *logits, int vocab, double temperature,
                       int target, double lse, double coef)
{
    for (int i = 0; i < vocab; i++)
        dlogits[i] = coef / temperature * ((i == target) - exp(logits[i] / temperature - lse));
}
