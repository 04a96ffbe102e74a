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

/* One call as one of its threads goes through it: all nth run the same code, each on a copy of this
   and on its share of rows, columns or jobs, and meet where one needs what another has made, or
   would overwrite what another still reads. Rows [lo, N) take part. */
struct pass {
    const struct model *m;
    const struct model_weights *w;
    const struct kv *kv;
    const struct model_rows *r;
    struct acts *a;
    int lo, layer;
    int ith, nth;
};

/* Waits for the other threads. */
static inline void model_meet(const struct pass *p)
{
    pool_barrier(p->m->pool);
}

/* Many rows: in a product a thread takes rows, those that are its own elsewhere too, and needs not
   wait for others. Few: it takes columns of all rows, so that each weight is read once. */
static inline bool model_by_rows(const struct pass *p)
{
    enum { ROWS_EACH = 32 };
    return p->nth == 1 || p->r->N - p->lo >= ROWS_EACH * p->nth;
}
static inline void model_meet_unless_by_rows(const struct pass *p)
{
    if (!model_by_rows(p))
        model_meet(p);
}

/* This thread's rows of [p->lo, N). */
static inline void model_my_rows(const struct pass *p, int *first, int *limit)
{
    enum { BLOCK = 4 }; // rows that a product takes at once
    size_t from, to;
    pool_split((size_t)(p->r->N - p->lo), model_by_rows(p) ? BLOCK : 1, p->ith, p->nth, &from, &to);
    *first = p->lo + (int)from;
    *limit = p->lo + (int)to;
}

/* What follows is a thread's share of a phase. */

/* The norm of x (N, D) to y; a->rstd takes the rows' own; copy (N, D), or NULL, becomes x. */
void model_norm(const struct pass *p, const float *x, const float *weight, bf16 *y, float *copy);
/* The layer's SwiGLU, from a->gate_up to a->h. */
void model_swiglu(const struct pass *p);
/* y (N, n) (op)= x (N, k) times packed weights: own rows, or own columns of all. */
void model_product(const struct pass *p, const bf16 *x, const void *packed, float *y, int n, int k,
                   enum gemm_mode mode);
