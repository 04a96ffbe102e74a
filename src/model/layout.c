/* Where everything lies: the flat parameter space, the tables of a model and the packed weight set.
 * Each structure has one function that both measures it and lays it out (struct carve).
 */
#include "model/model.h"

#include "model/model_int.h"
#include "base/exact.h"

#include <stdio.h>
#include <string.h>

void *carve_take(struct carve *c, size_t bytes)
{
    c->used += arena_cost(bytes);
    return c->arena ? arena_alloc(c->arena, bytes) : NULL;
}

/* ---- the flat parameter space ---- */

static struct model_param *add_param(struct model_params *p, const char *name, int rows, int cols,
                                     bool is_vector)
{
    struct model_param *q = &p->param[p->n++];
    *q = (struct model_param){
        .offset = p->count, .rows = rows, .cols = cols, .is_vector = is_vector};
    snprintf(q->name, sizeof q->name, "%s", name);
    p->count += (size_t)rows * (size_t)cols;
    return q;
}

/* Starts a new fused group: offsets of groups are multiples of 16. */
static size_t group(struct model_params *p)
{
    p->count = round_up(p->count, 16);
    return p->count;
}

static void add_layer_param(struct model_params *p, int layer, const char *name, int rows, int cols,
                            bool is_vector)
{
    char full[sizeof p->param->name];
    snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    add_param(p, full, rows, cols, is_vector);
}

static void add_vector(struct model_params *p, int layer, int which, const char *name, int width)
{
    struct model_layer *l = &p->layer[layer];
    l->vector[which] = group(p);
    l->width[which] = width;
    add_layer_param(p, layer, name, 1, width, true);
}

static void add_matrix(struct model_params *p, int layer, int which, int n, int k)
{
    p->layer[layer].matrix[which] = (struct model_matrix){.offset = group(p), .n = n, .k = k};
}

static void add_layer(struct model_params *p, const struct model_config *c, int layer)
{
    int D = c->D, F = c->F, q = c->H * c->E, kv = c->G * c->E;
    struct model_layer *l = &p->layer[layer];

    add_vector(p, layer, VECTOR_ATTN_NORM, "input_layernorm.weight", D);
    add_matrix(p, layer, MATRIX_QKV, q + 2 * kv, D);
    add_layer_param(p, layer, "self_attn.q_proj.weight", q, D, false);
    add_layer_param(p, layer, "self_attn.k_proj.weight", kv, D, false);
    add_layer_param(p, layer, "self_attn.v_proj.weight", kv, D, false);
    if (c->qkv_bias) {
        l->vector[VECTOR_QKV_BIAS] = group(p);
        l->width[VECTOR_QKV_BIAS] = q + 2 * kv;
        add_layer_param(p, layer, "self_attn.q_proj.bias", 1, q, true);
        add_layer_param(p, layer, "self_attn.k_proj.bias", 1, kv, true);
        add_layer_param(p, layer, "self_attn.v_proj.bias", 1, kv, true);
    }
    if (c->qk_norm) {
        add_vector(p, layer, VECTOR_Q_NORM, "self_attn.q_norm.weight", c->E);
        add_vector(p, layer, VECTOR_K_NORM, "self_attn.k_norm.weight", c->E);
    }
    add_matrix(p, layer, MATRIX_O, D, q);
    add_layer_param(p, layer, "self_attn.o_proj.weight", D, q, false);
    add_vector(p, layer, VECTOR_MLP_NORM, "post_attention_layernorm.weight", D);
    add_matrix(p, layer, MATRIX_GATE_UP, 2 * F, D);
    add_layer_param(p, layer, "mlp.gate_proj.weight", F, D, false);
    add_layer_param(p, layer, "mlp.up_proj.weight", F, D, false);
    add_matrix(p, layer, MATRIX_DOWN, D, F);
    add_layer_param(p, layer, "mlp.down_proj.weight", D, F, false);
}

void model_params_init(struct model_params *p, const struct model_config *c)
{
    enum { PER_LAYER = 14 };
    *p = (struct model_params){0};
    p->param = mem_calloc((size_t)c->L * PER_LAYER + 3, sizeof *p->param);
    p->layer = mem_calloc((size_t)c->L, sizeof *p->layer);
    p->embed = group(p);
    add_param(p, "model.embed_tokens.weight", c->V, c->D, false);
    for (int i = 0; i < c->L; i++)
        add_layer(p, c, i);
    p->final_norm = group(p);
    add_param(p, "model.norm.weight", 1, c->D, true);
    p->head = (struct model_matrix){.offset = p->embed, .n = c->V, .k = c->D};
    if (!c->tied) {
        p->head.offset = group(p);
        add_param(p, "lm_head.weight", c->V, c->D, false);
    }
    group(p);
}

void model_params_release(struct model_params *p)
{
    mem_free(p->param);
    mem_free(p->layer);
    *p = (struct model_params){0};
}

const struct model_param *model_param_at(const struct model_params *p, size_t at)
{
    int lo = 0, hi = p->n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (p->param[mid].offset <= at)
            lo = mid;
        else
            hi = mid;
    }
    return &p->param[lo];
}

/* ---- a model's tables ---- */

void model_carve(struct model *m, const struct model_config *conf, const struct kern *kern,
                 struct pool *pool, int threads, int positions, struct carve *c)
{
    int D = conf->D, F = conf->F, q = conf->H * conf->E;
    int k_max = MAX(MAX(D, F), MAX(q, VOCAB_CHUNK));
    size_t n = (size_t)threads;

    *m = (struct model){.conf = *conf, .kern = kern, .pool = pool, .threads = threads};
    model_params_init(&m->params, conf);
    m->positions = (int)round_up((size_t)positions, KV_BLOCK);
    m->chunks = (conf->V + VOCAB_CHUNK - 1) / VOCAB_CHUNK;
    m->rope = carve_take(c, (size_t)m->positions * (size_t)conf->E * sizeof *m->rope);
    m->scratch = carve_take(c, n * sizeof *m->scratch);
    m->logits = carve_take(c, n * sizeof *m->logits);
    m->table = carve_take(c, n * sizeof *m->table);
    for (int i = 0; i < threads; i++) {
        void *scratch = carve_take(c, kern->scratch_bytes(k_max, conf->E));
        float *logits = carve_take(c, (size_t)MODEL_LOGIT_ROWS * VOCAB_CHUNK * sizeof *logits);
        const void **table = carve_take(c, (size_t)kv_blocks(m->positions) * sizeof *table);
        if (c->arena) {
            m->scratch[i] = scratch;
            m->logits[i] = logits;
            m->table[i] = table;
        }
    }
}

/* The rotation frequency of pair i: theta^(-2i/E), with Llama 3's scaling by wavelength
   (transformers' _compute_llama3_parameters). */
static double frequency(const struct model_config *c, int i)
{
    double f = exact_pow(c->rope_theta, -2.0 * i / c->E);
    if (!c->rope_llama3)
        return f;
    double wavelength = 2 * 3.14159265358979323846 / f;
    if (wavelength < c->rope_original / c->rope_high)
        return f;
    if (wavelength > c->rope_original / c->rope_low)
        return f / c->rope_factor;
    double smooth = (c->rope_original / wavelength - c->rope_low) / (c->rope_high - c->rope_low);
    return (1 - smooth) * f / c->rope_factor + smooth * f;
}

void model_init(struct model *m)
{
    int E = m->conf.E, half = E / 2;
    for (int i = 0; i < half; i++) {
        double f = frequency(&m->conf, i);
        for (int pos = 0; pos < m->positions; pos++) {
            float *row = m->rope + (size_t)pos * (size_t)E;
            row[i] = (float)exact_cos(pos * f);
            row[half + i] = (float)exact_sin(pos * f);
        }
    }
}

void model_release(struct model *m)
{
    model_params_release(&m->params);
    *m = (struct model){0};
}

/* ---- weights ---- */

size_t model_wide_offset(const struct model *m, int layer, int vector)
{
    const struct model_layer *l = m->params.layer;
    size_t per_layer = 0, before = 0;
    for (int v = 0; v < VECTORS; v++) {
        if (v == vector)
            before = per_layer;
        per_layer += round_up((size_t)l->width[v], 16);
    }
    return (size_t)layer * per_layer + before;
}

void model_weights_carve(struct model_weights *w, const struct model *m, bool trainable,
                         struct carve *c)
{
    const struct model_params *p = &m->params;
    size_t n_matrices = (size_t)m->conf.L * MATRICES, n_chunks = (size_t)m->chunks;

    *w = (struct model_weights){0};
    w->flat = carve_take(c, p->count * sizeof *w->flat);
    w->wide =
        carve_take(c, (model_wide_offset(m, m->conf.L, 0) + (size_t)m->conf.D) * sizeof *w->wide);
    w->fwd = carve_take(c, n_matrices * sizeof *w->fwd);
    w->head_fwd = carve_take(c, n_chunks * sizeof *w->head_fwd);
    if (trainable) {
        w->bwd = carve_take(c, n_matrices * sizeof *w->bwd);
        w->head_bwd = carve_take(c, n_chunks * sizeof *w->head_bwd);
    }
    for (size_t i = 0; i < n_matrices; i++) {
        const struct model_matrix *x = &p->layer[i / MATRICES].matrix[i % MATRICES];
        void *fwd = carve_take(c, kern_packed_bytes(m->kern, x->n, x->k));
        void *bwd = trainable ? carve_take(c, kern_packed_bytes(m->kern, x->k, x->n)) : NULL;
        if (!c->arena)
            continue;
        w->fwd[i] = fwd;
        if (trainable)
            w->bwd[i] = bwd;
    }
    for (int i = 0; i < m->chunks; i++) {
        int width = model_chunk_width(m, i);
        void *fwd = carve_take(c, kern_packed_bytes(m->kern, width, m->conf.D));
        void *bwd = trainable ? carve_take(c, kern_packed_bytes(m->kern, m->conf.D, width)) : NULL;
        if (!c->arena)
            continue;
        w->head_fwd[i] = fwd;
        if (trainable)
            w->head_bwd[i] = bwd;
    }
}

struct pack_job {
    const struct model *m;
    struct model_weights *w;
};

/* One matrix's panels, this thread's share, both ways. */
static void pack_matrix(const struct model *m, const bf16 *flat, int n, int k, void *fwd, void *bwd,
                        int ith, int nth)
{
    size_t lo, hi;
    pool_split((size_t)kern_panels(m->kern, n), 1, ith, nth, &lo, &hi);
    m->kern->pack_nk(fwd, flat, (size_t)k, n, k, (int)lo, (int)hi);
    if (!bwd)
        return;
    pool_split((size_t)kern_panels(m->kern, k), 1, ith, nth, &lo, &hi);
    m->kern->pack_kn(bwd, flat, (size_t)k, k, n, (int)lo, (int)hi);
}

static void pack_share(void *ctx, int ith, int nth)
{
    const struct pack_job *job = ctx;
    const struct model *m = job->m;
    const struct model_params *p = &m->params;
    struct model_weights *w = job->w;
    int n_matrices = m->conf.L * MATRICES;

    for (int i = 0; i < n_matrices; i++) {
        const struct model_matrix *x = &p->layer[i / MATRICES].matrix[i % MATRICES];
        pack_matrix(m, w->flat + x->offset, x->n, x->k, w->fwd[i], w->bwd ? w->bwd[i] : NULL, ith,
                    nth);
    }
    for (int i = 0; i < m->chunks; i++) {
        const bf16 *rows = w->flat + p->head.offset + (size_t)i * VOCAB_CHUNK * (size_t)m->conf.D;
        pack_matrix(m, rows, model_chunk_width(m, i), m->conf.D, w->head_fwd[i],
                    w->head_bwd ? w->head_bwd[i] : NULL, ith, nth);
    }
    if (ith != 0)
        return;
    for (int l = 0; l < m->conf.L; l++)
        for (int v = 0; v < VECTORS; v++)
            m->kern->from_bf16(w->wide + model_wide_offset(m, l, v),
                               w->flat + p->layer[l].vector[v], (size_t)p->layer[l].width[v]);
    m->kern->from_bf16(w->wide + model_wide_offset(m, m->conf.L, 0), w->flat + p->final_norm,
                       (size_t)m->conf.D);
}

void model_weights_pack(const struct model *m, struct model_weights *w)
{
    struct pack_job job = {.m = m, .w = w};
    pool_run(m->pool, pack_share, &job);
}
