/* Attention, twice, in plain scalar code: the oracles of test_attn.c.
 *
 * "law" is docs/NUMERICS.md sections 1, 2 and 4 written out in float, operation by operation: a
 * kernel must give its very bits. "real" is attention in double. It knows nothing of blocks but
 * where bf16 rounds, and returns with each value a bound on what floats in any order may differ by:
 *
 *   rounded   bf16 where we round; a rounding that the float error could tip either way widens the
 *             bound by the step it tips over, every other one by nothing, so the bound is tight
 *   plain     no rounding at all; each bf16 place costs half a unit in its last place
 *
 * Both see one KV head: rows at positions pos .. pos + n - 1, keys 0 .. pos + n - 1.
 */
#pragma once

#include "kern/kern.h"

/* Inputs; bf16 values unless a test perturbs them. Row r, head h of q starts at (r*heads + h)*E. */
struct attn_case {
    int E, heads, pos, n;
    double *q, *dout; // (n, heads, E)
    double *k, *v;    // (pos + n, E)
};

/* What the forward leaves for the backward. */
struct attn_saved {
    bf16 *out;        // (n, heads, E)
    float *max, *inv; // (n, heads)
};

struct attn_sums {
    float *dq;      // (n, heads, E)
    float *dk, *dv; // (pos + n, E), continued
};

struct real {
    double *x, *bound;
};

float law_exp(float x);
void law_forward(const struct attn_case *c, struct attn_saved *s);
void law_grad(const struct attn_case *c, const struct attn_saved *s, struct attn_sums *g);

/* out (n, heads, E), max and inverse sum (n, heads). out's bound holds its last rounding to bf16.
 */
void real_forward(const struct attn_case *c, bool rounded, struct real out, struct real max,
                  struct real inv);
/* Rounded, from what a level's forward saved; plain (s NULL), from real_forward. Overwrites. */
void real_grad(const struct attn_case *c, const struct attn_saved *s, struct real dq,
               struct real dk, struct real dv);
