/* Operators of the twin, each with its backward. Private to tests/twin*.c.
 *
 * Backward functions take the gradient of an output, add to the gradient of an input (dx) and to
 * the g of the tensors they use. x and y may be the same array in round and rope only.
 */
#pragma once

#include "twin.h"

/* Rounds to bf16, to nearest even, in TWIN_ROUNDED; else leaves x alone. */
double twin_round1(enum twin_mode mode, double x);
void twin_round(enum twin_mode mode, double *x, size_t n);

/* y (n, out) = x (n, in) w^T + bias: w (out, in); bias NULL for none. */
void twin_linear(double *y, const double *x, const struct twin_tensor *w,
                 const struct twin_tensor *bias, int n);
void twin_linear_grad(double *dx, struct twin_tensor *w, struct twin_tensor *bias, const double *dy,
                      const double *x, int n);

/* y = x / rms(x) * w for each of n rows as wide as w. */
void twin_norm(double *y, const double *x, const struct twin_tensor *w, double eps, int n);
void twin_norm_grad(double *dx, struct twin_tensor *w, const double *dy, const double *x,
                    double eps, int n);

/* Rotates the pairs (i, i + E/2) of one head, E = head_dim, to a position; backward is the
   inverse. */
void twin_rope(const struct twin_config *c, double *x, int pos, bool inverse);

/* h = silu(gate) * up, and its backward, which overwrites dgate and dup. */
void twin_swiglu(double *h, const double *gate, const double *up, size_t n);
void twin_swiglu_grad(double *dgate, double *dup, const double *dh, const double *gate,
                      const double *up, size_t n);

/* Position of a row in its sequence. */
int twin_position(const struct twin_rows *r, int row);

/* Causal attention of all rows. Arrays have the rows' heads side by side: q, o (n, H, E), k, v
   (n, G, E), and max, sum (n, H): the score's maximum and the sum of exp(score - max). */
struct twin_attn {
    const struct twin_config *config;
    const struct twin_rows *rows;
    enum twin_mode mode;
    const double *q, *k, *v;
    double *o, *max, *sum;
};
void twin_attn(const struct twin_attn *a);
void twin_attn_grad(const struct twin_attn *a, const double *dout, double *dq, double *dk,
                    double *dv);

/* The distribution softmax(logits / temperature) of one row. */
struct twin_softmax {
    double lse; // log of the sum of exp(logit / temperature)
    double logprob, entropy;
};
struct twin_softmax twin_softmax(const double *logits, int vocab, double temperature, int target);
/* dlogits of coef * logprob; overwrites. */
void twin_softmax_grad(double *dlogits, const double *logits, int vocab, double temperature,
                       int target, double lse, double coef);
