/* What the files of model share: indexing into weights and activations, and the phases that forward
 * and backward have in common. Nothing here is a contract to the outside.
 */
#pragma once

#include "model/model.h"

/* Element offset of a layer's vector in weights->wide; layer L, vector 0 is the final norm. */
size_t model_wide_offset(const struct model *m, int layer, int vector);

static inline const float *wide(const struct model *m, const struct model_weights *w, int layer,
                                int vector)
{
    return w->wide + model_wide_offset(m, layer, vector);
}

static inline int model_chunk_width(const struct model *m, int chunk)
{
    return MIN(VOCAB_CHUNK, m->conf.V - chunk * VOCAB_CHUNK);
}

/* Widths of one row's segments of the fused projection. */
static inline int model_q_width(const struct model_config *c)
{
    return c->H * c->E;
}
static inline int model_kv_width(const struct model_config *c)
{
    return c->G * c->E;
}
static inline int model_qkv_width(const struct model_config *c)
{
    return (c->H + 2 * c->G) * c->E;
}

/* Layer l's slice of an activation array of `width` per row: l is 0 where one layer is kept. */
static inline size_t act_at(const struct acts *a, int layer, int row, int width)
{
    return ((size_t)layer * (size_t)a->rows_max + (size_t)row) * (size_t)width;
}
static inline int act_layer(const struct acts *a, int layer)
{
    return a->keep ? layer : 0;
}

/* Query rows' softmax maxima of one KV head: (N, H/G) at layer l. */
static inline size_t softmax_at(const struct acts *a, const struct model_config *c, int layer,
                                int g, int row)
{
    return (((size_t)layer * (size_t)c->G + (size_t)g) * (size_t)a->rows_max + (size_t)row) *
           (size_t)(c->H / c->G);
}

/* The segment that holds a row. */
const struct model_segment *model_segment_at(const struct model_rows *r, int row);

/* Block pointers of one KV head for a segment, in thread ith's table. */
const void *const *model_table(const struct model *m, const struct kv *kv, int ith,
                               const struct model_segment *s, int layer, int g);

/* MODEL_TMP floats of a thread that a row's work may use between two calls of the head. */
enum { MODEL_TMP = MODEL_LOGIT_ROWS * VOCAB_CHUNK };
static inline float *model_tmp(const struct model *m, int ith)
{
    return m->logits[ith];
}

/* One layer of one call, and the rows [lo, N) that take part. */
struct pass {
    const struct model *m;
    const struct model_weights *w;
    const struct kv *kv;
    const struct model_rows *r;
    struct acts *a;
    int layer, lo;
    struct {                     // The norm at hand.
        const float *x, *weight; // (N, D), (D)
        bf16 *y;                 // (N, D) out
        float *copy;             // (N, D) out: x again; NULL for none
    } norm;
};

/* This thread's rows of [lo, N). */
static inline void model_my_rows(int lo, int N, int ith, int nth, int *first, int *limit)
{
    size_t from, to;
    pool_split((size_t)(N - lo), 1, ith, nth, &from, &to);
    *first = lo + (int)from;
    *limit = lo + (int)to;
}

/* p->norm of all rows; a->rstd takes theirs. */
void model_norm(struct pass *p, const float *x, const float *weight, bf16 *y, float *copy);
/* The layer's SwiGLU of all rows, from a->gate_up to a->a. */
void model_swiglu(struct pass *p);

/* C (n wide) of `rows` rows (op)= a times packed weights, all threads. */
void model_product(const struct model *m, const bf16 *a, size_t lda, const void *packed, float *c,
                   int rows, int n, int k, enum gemm_mode mode);
