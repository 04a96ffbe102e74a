/* Backward of a micro-batch, for its three files: back_sums.c sums gradients of matrices and
 * vectors, back_attn.c goes through attention and the projections, backward.c through head and
 * layers.
 *
 * Sums. g->order lists the rows in the order in which they are summed, as ranges (one per segment),
 * each cut into steps of 32 rows from its own start. A matrix's gradient continues over the steps;
 * a vector's is summed per step, then the steps are added in order. So neither packing nor
 * micro-batches nor threads change a bit.
 */
#pragma once

#include "model/model_int.h"

enum { BACK_VECTORS = 3 }; // the most vectors that one phase has a gradient of

/* One backward as one of its threads goes through it: a copy each, as of struct pass. pass.lo is
   the first row that takes part. */
struct back {
    struct pass pass;
    const struct model_batch *b;
    const struct token_stat *stat;
    const float *coef;
    struct grads *g;
    float *grad;
    int n_order; // segments in g->order
    int *embed_tokens;
    float *embed_rows;
    struct {                     // The norm whose backward is at hand.
        const float *x, *weight; // (N, D), (D)
    } norm;
    struct { // Vectors at hand; their sums lie side by side in a step's row.
        float *grad;
        int width;
    } vector[BACK_VECTORS];
};

/* What follows is a thread's share of a phase, and meets the other threads where it says so. */

/* x (N, width) becomes the packed input of the next model_back_weights. */
void model_back_input(const struct back *k, const bf16 *x, int width);
/* dw (n_out, n_in) += dy^T x over the order's rows; x is packed and n_in wide. */
void model_back_weights(const struct back *k, const bf16 *dy, size_t ldy, int n_out, int n_in,
                        float *dw);
/* The whole backward of one of the layer's matrices from its input x and the gradient dy of its
   output: adds to the matrix's gradient and makes g->wide = dy W. Meets before it starts, so x and
   dy may be others' rows, and once g->wide is whole; afterwards others may still read dy. */
void model_back_matrix(const struct back *k, int which, const bf16 *x, const bf16 *dy);

/* Works on one row; adds its share of the vectors' gradients to step. tmp: MODEL_TMP floats. */
typedef void (*back_row_fn)(const struct back *k, int row, float *step, float *tmp);

/* Runs fn on every row of the order and adds what it left in the step sums to k->vector. A thread
   takes steps, not its rows; it meets when all rows are done. */
void model_back_rows(const struct back *k, back_row_fn fn);
/* The same with a single vector: element `offset` of the gradient, `width` wide. */
void model_back_rows1(struct back *k, size_t offset, int width, back_row_fn fn);

/* From g->wide, the gradient of the attention output, to g->dy_wide, that of the fused projection:
   through the attention, rope and QK norm. Adds to the gradients of biases and QK norms. Meets. */
void model_back_attention(struct back *k);
