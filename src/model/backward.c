/* Backward of a micro-batch: the head chunk by chunk, then the layers from the last to the first;
 * its parts stand in back_int.h. NUMERICS sections 3 to 5.
 */
#include "model/model.h"

#include "model/back_int.h"

#include <string.h>

void grads_carve(struct grads *g, const struct model *m, int rows_max, int prompts_max,
                 int segments_max, struct carve *c)
{
    const struct model_config *f = &m->conf;
    size_t N = (size_t)rows_max, D = (size_t)f->D, F = (size_t)f->F;
    size_t q = (size_t)model_q_width(f), qkv = (size_t)model_qkv_width(f);
    int depth = rows_max + (GEMM_STEP - 1) * segments_max;
    int x_max = MAX(MAX(f->D, f->F), model_q_width(f));

    *g = (struct grads){
        .rows_max = rows_max, .prompts_max = prompts_max, .segments_max = segments_max};
    g->steps_max = depth / GEMM_STEP + 1;
    g->step_width = MAX(f->D, model_qkv_width(f) + 2 * f->E);
    g->dx = carve_take(c, N * D * sizeof *g->dx);
    g->wide = carve_take(c, N * MAX(MAX(D, F), qkv) * sizeof *g->wide);
    g->dy = carve_take(c, N * D * sizeof *g->dy);
    g->dy_wide = carve_take(c, N * MAX(2 * F, qkv) * sizeof *g->dy_wide);
    g->dout = carve_take(c, N * q * sizeof *g->dout);
    g->dprompt = carve_take(c, (size_t)f->L * (size_t)prompts_max * 2 * (size_t)model_kv_width(f) *
                                   sizeof *g->dprompt);
    g->dlogits = carve_take(c, N * VOCAB_CHUNK * sizeof *g->dlogits);
    g->packed = carve_take(c, kern_packed_bytes(m->kern, x_max, depth));
    g->steps = carve_take(c, (size_t)g->steps_max * (size_t)g->step_width * sizeof *g->steps);
    g->order = carve_take(c, (size_t)segments_max * sizeof *g->order);
}

/* ---- the layers ---- */

/* dx (+)= the norm's backward of wide; the head's rows have no dx yet. */
static void norm_back(const struct back *k, int row, float *step, bool add)
{
    const struct pass *p = &k->pass;
    int D = p->m->conf.D;
    size_t at = (size_t)row * (size_t)D;
    p->m->kern->rmsnorm_grad(k->g->dx + at, add, step, k->g->wide + at, k->norm.x + at,
                             k->norm.weight, p->a->rstd[row], D);
}

static void norm_back_add(const struct back *k, int row, float *step, float *tmp)
{
    (void)tmp;
    norm_back(k, row, step, true);
}

static void norm_back_store(const struct back *k, int row, float *step, float *tmp)
{
    (void)tmp;
    norm_back(k, row, step, false);
}

static void round_dx(const struct back *k)
{
    size_t D = (size_t)k->pass.m->conf.D;
    int lo, hi;
    model_my_rows(&k->pass, &lo, &hi);
    k->pass.m->kern->to_bf16(k->g->dy + (size_t)lo * D, k->g->dx + (size_t)lo * D,
                             (size_t)(hi - lo) * D);
}

static void swiglu_back(const struct back *k)
{
    const struct pass *p = &k->pass;
    int F = p->m->conf.F, lo, hi;
    model_my_rows(p, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        const float *gate = p->a->gate_up + act_at(p->a, p->layer, i, 2 * F);
        bf16 *dgate = k->g->dy_wide + (size_t)i * 2 * (size_t)F;
        p->m->kern->swiglu_grad(dgate, dgate + F, k->g->wide + (size_t)i * (size_t)F, gate,
                                gate + F, F);
    }
}

/* The backward of the layer's norm of x and of the matrix that it feeds. */
static void normed_matrix_back(struct back *k, int vector, int which, const float *x)
{
    struct pass *p = &k->pass;
    k->norm.x = x;
    k->norm.weight = wide(p->m, p->w, p->layer, vector);
    model_norm(p, x, k->norm.weight, p->a->a, NULL);
    model_back_matrix(k, which, p->a->a, k->g->dy_wide);
    model_back_rows1(k, p->m->params.layer[p->layer].vector[vector], p->m->conf.D, norm_back_add);
}

static void feed_forward_back(struct back *k)
{
    struct pass *p = &k->pass;
    round_dx(k);
    model_swiglu(p);
    model_back_matrix(k, MATRIX_DOWN, p->a->h, k->g->dy);
    swiglu_back(k);
    normed_matrix_back(k, VECTOR_MLP_NORM, MATRIX_GATE_UP,
                       p->a->x_mid + act_at(p->a, p->layer, 0, p->m->conf.D));
}

static void attention_back(struct back *k)
{
    struct pass *p = &k->pass;
    const struct model_config *c = &p->m->conf;
    round_dx(k);
    model_back_matrix(k, MATRIX_O, p->a->o + act_at(p->a, p->layer, 0, model_q_width(c)), k->g->dy);
    model_back_attention(k);
    normed_matrix_back(k, VECTOR_ATTN_NORM, MATRIX_QKV, p->a->x + act_at(p->a, p->layer, 0, c->D));
}

/* Embedding rows of the order: their gradients and tokens, one after the other; own columns. */
static void embed_back(const struct back *k)
{
    const struct pass *p = &k->pass;
    size_t D = (size_t)p->m->conf.D, lo, hi, at = 0;
    pool_split(D, 16, p->ith, p->nth, &lo, &hi);
    for (const struct segment *s = k->g->order; s < k->g->order + k->n_order; s++)
        for (int row = s->row; row < s->row + s->n; row++, at++) {
            if (p->ith == 0)
                k->embed_tokens[at] = k->b->rows.token[row];
            memcpy(k->embed_rows + at * D + lo, k->g->dx + (size_t)row * D + lo,
                   (hi - lo) * sizeof *k->embed_rows);
        }
}

/* Prompt rows have no dx from the head: the layers' first rows to take part. */
static void clear_prompts(const struct back *k)
{
    size_t D = (size_t)k->pass.m->conf.D;
    int lo, hi;
    model_my_rows(&k->pass, &lo, &hi);
    hi = MIN(hi, k->b->prompt_rows);
    if (lo < hi)
        memset(k->g->dx + (size_t)lo * D, 0, (size_t)(hi - lo) * D * sizeof *k->g->dx);
}

static void layers_share(void *ctx, int ith, int nth)
{
    struct back k = *(const struct back *)ctx;
    struct pass *p = &k.pass;
    p->ith = ith;
    p->nth = nth;
    clear_prompts(&k);
    for (p->layer = p->m->conf.L - 1; p->layer >= 0; p->layer--) {
        feed_forward_back(&k);
        attention_back(&k);
    }
    embed_back(&k);
}

/* ---- the head ---- */

/* This thread's rows: logits again, their gradient, and its product with the head's weights. */
static void head_rows(const struct back *k, int chunk)
{
    const struct pass *p = &k->pass;
    const struct model *m = p->m;
    int D = m->conf.D, width = model_chunk_width(m, chunk), lo, hi;
    float inv_t = k->b->inv_temperature, *logits = m->logits[p->ith];
    struct gemm forward = {.lda = (size_t)D,
                           .b = p->w->head_fwd[chunk],
                           .c = logits,
                           .ldc = VOCAB_CHUNK,
                           .n = width,
                           .k = D,
                           .mode = GEMM_STORE,
                           .scratch = m->scratch[p->ith]};

    model_my_rows(p, &lo, &hi);
    for (int row = lo; row < hi; row += MODEL_LOGIT_ROWS) {
        forward.a = p->a->f + (size_t)row * (size_t)D;
        forward.m = MIN(MODEL_LOGIT_ROWS, hi - row);
        m->kern->gemm(&forward);
        for (int i = row; i < row + forward.m; i++)
            m->kern->chunk_grad(k->g->dlogits + (size_t)i * VOCAB_CHUNK,
                                logits + (size_t)(i - row) * VOCAB_CHUNK, width, inv_t,
                                k->stat[i].lse, k->b->target[i] - chunk * VOCAB_CHUNK,
                                k->coef[i] * inv_t);
    }
    if (lo < hi)
        m->kern->gemm(&(struct gemm){.a = k->g->dlogits + (size_t)lo * VOCAB_CHUNK,
                                     .lda = VOCAB_CHUNK,
                                     .b = p->w->head_bwd[chunk],
                                     .c = k->g->wide + (size_t)lo * (size_t)D,
                                     .ldc = (size_t)D,
                                     .m = hi - lo,
                                     .n = D,
                                     .k = width,
                                     .mode = chunk ? GEMM_CONTINUE : GEMM_STORE,
                                     .scratch = m->scratch[p->ith]});
}

/* From coefficients to dx of the last layer's output, sample rows only. The final norm's rstd is
   still in the activations. */
static void head_share(void *ctx, int ith, int nth)
{
    struct back k = *(const struct back *)ctx;
    struct pass *p = &k.pass;
    const struct model *m = p->m;
    const struct model_matrix *head = &m->params.head;
    size_t D = (size_t)m->conf.D;

    p->ith = ith;
    p->nth = nth;
    model_back_input(&k, p->a->f, m->conf.D);
    for (int chunk = 0; chunk < m->chunks; chunk++) {
        head_rows(&k, chunk);
        model_meet(p);
        model_back_weights(&k, k.g->dlogits, VOCAB_CHUNK, model_chunk_width(m, chunk), m->conf.D,
                           k.grad + head->offset + (size_t)chunk * VOCAB_CHUNK * D);
        model_meet(p);
    }
    k.norm.x = p->a->x + act_at(p->a, m->conf.L, 0, m->conf.D);
    k.norm.weight = wide(m, p->w, m->conf.L, 0);
    model_back_rows1(&k, m->params.final_norm, m->conf.D, norm_back_store);
}

/* ---- the micro-batch ---- */

/* g->order: the batch's order as row ranges, prompts left out for the head. */
static void set_order(struct back *k, bool with_prompts)
{
    k->n_order = 0;
    for (int i = 0; i < k->b->n_order; i++) {
        const struct model_segment *s = &k->b->rows.segment[k->b->order[i]];
        if (with_prompts || s->row >= k->b->prompt_rows)
            k->g->order[k->n_order++] = (struct segment){.row = s->row, .n = s->n};
    }
}

struct combine_job {
    const struct model *m;
    const struct model_batch *b;
    const struct acts *a;
    struct token_stat *stat;
};

static void combine_share(void *ctx, int ith, int nth)
{
    const struct combine_job *j = ctx;
    size_t chunks = (size_t)j->m->chunks, first = (size_t)j->b->prompt_rows, lo, hi;
    pool_split((size_t)j->b->rows.N - first, 1, ith, nth, &lo, &hi);
    for (size_t i = first + lo; i < first + hi; i++)
        j->stat[i] = model_combine(j->a->stat + i * chunks, j->m->chunks, j->b->target[i]);
}

void model_batch_forward(const struct model *m, const struct model_weights *w, const struct kv *kv,
                         const struct model_batch *b, struct acts *a, struct token_stat *stat)
{
    struct combine_job combine = {.m = m, .b = b, .a = a, .stat = stat};
    model_forward(m, w, kv, &b->rows, b->prompt_rows, b->prompt_rows, a);
    model_head(m, w, a, b->prompt_rows, b->rows.N, b->target, b->inv_temperature);
    pool_run(m->pool, combine_share, &combine);
}

int model_batch_backward(const struct model *m, const struct model_weights *w, const struct kv *kv,
                         const struct model_batch *b, struct acts *a, const struct token_stat *stat,
                         const float *coef, struct grads *g, float *grad, int *embed_tokens,
                         float *embed_rows)
{
    struct back k = {
        .pass = {.m = m, .w = w, .kv = kv, .r = &b->rows, .a = a, .lo = b->prompt_rows},
        .b = b,
        .stat = stat,
        .coef = coef,
        .g = g,
        .grad = grad,
        .embed_tokens = embed_tokens,
        .embed_rows = embed_rows};

    ASSERT(a->keep && b->rows.N <= g->rows_max && b->prompt_rows <= g->prompts_max);
    ASSERT(b->n_order <= g->segments_max);
    set_order(&k, false);
    pool_run(m->pool, head_share, &k);
    set_order(&k, true);
    if (b->is_last)
        k.pass.lo = 0;
    pool_run(m->pool, layers_share, &k);
    return b->rows.N - k.pass.lo;
}

struct scatter_job {
    const struct model *m;
    const int *token;
    const float *d;
    size_t n;
    float *grad;
};

static void scatter_share(void *ctx, int ith, int nth)
{
    const struct scatter_job *j = ctx;
    size_t D = (size_t)j->m->conf.D, lo, hi;
    pool_split(D, 16, ith, nth, &lo, &hi);
    for (size_t i = 0; i < j->n && lo < hi; i++)
        j->m->kern->add(j->grad + j->m->params.embed + (size_t)j->token[i] * D + lo,
                        j->d + i * D + lo, hi - lo);
}

void model_embed_scatter(const struct model *m, const int *token, const float *d, size_t n,
                         float *grad)
{
    struct scatter_job job = {.m = m, .token = token, .d = d, .n = n, .grad = grad};
    pool_run(m->pool, scatter_share, &job);
}
