/* Backward of a micro-batch: the head chunk by chunk, then the layers from the last to the first.
 * Matrix gradients and vector gradients are summed in the order of struct model_batch, whatever the
 * packing; NUMERICS sections 3 to 5.
 */
#include "model/model.h"

#include "model/model_int.h"

#include <math.h>
#include <string.h>

void grads_carve(struct grads *g, const struct model *m, int rows_max, int prompts_max,
                 int segments_max, struct carve *c)
{
    const struct model_config *f = &m->conf;
    size_t N = (size_t)rows_max, D = (size_t)f->D, F = (size_t)f->F;
    size_t q = (size_t)model_q_width(f), qkv = (size_t)model_qkv_width(f);
    int depth = rows_max + (KV_BLOCK - 1) * segments_max;
    int x_max = MAX(MAX(f->D, f->F), model_q_width(f));

    *g = (struct grads){.rows_max = rows_max, .prompts_max = prompts_max,
                        .segments_max = segments_max};
    g->steps_max = depth / KV_BLOCK + 1;
    g->step_width = MAX(f->D, model_qkv_width(f) + 2 * f->E);
    g->dx = carve_take(c, N * D * sizeof *g->dx);
    g->wide = carve_take(c, N * MAX(MAX(D, F), qkv) * sizeof *g->wide);
    g->dy = carve_take(c, N * MAX(MAX(D, 2 * F), qkv) * sizeof *g->dy);
    g->dout = carve_take(c, N * q * sizeof *g->dout);
    g->dprompt = carve_take(c, (size_t)f->L * (size_t)prompts_max * 2 * (size_t)model_kv_width(f) *
                                   sizeof *g->dprompt);
    g->dlogits = carve_take(c, N * VOCAB_CHUNK * sizeof *g->dlogits);
    g->packed = carve_take(c, kern_packed_bytes(m->kern, x_max, depth));
    g->steps = carve_take(c, (size_t)g->steps_max * (size_t)g->step_width * sizeof *g->steps);
    g->order = carve_take(c, (size_t)segments_max * sizeof *g->order);
}

/* One backward in progress. */
struct back {
    const struct model *m;
    const struct model_weights *w;
    const struct kv *kv;
    const struct model_batch *b;
    struct acts *a;
    const struct token_stat *stat;
    const float *coef;
    struct grads *g;
    float *grad;
    int lo;      // first row that takes part
    int n_order; // segments in g->order
    int layer, chunk;
    // The phase's operands.
    const float *x, *norm;
    float *vector[3]; // where the step sums go
    int width[3];     //   and how wide each is; they lie one after the other in a step's row
    const bf16 *in;
    size_t in_width;
    struct wgrad wgrad;
    int n_out;
};

/* ---- gradients of matrices ---- */

static void pack_share(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    size_t lo, hi;
    pool_split((size_t)kern_panels(k->m->kern, (int)k->in_width), 1, ith, nth, &lo, &hi);
    k->m->kern->pack_segments(k->g->packed, k->in, k->in_width, (int)k->in_width, k->g->order,
                              k->n_order, (int)lo, (int)hi);
}

static void wgrad_share(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    struct wgrad w = k->wgrad;
    size_t lo, hi;
    pool_split((size_t)k->n_out, 32, ith, nth, &lo, &hi);
    w.out_lo = (int)lo;
    w.out_hi = (int)hi;
    w.scratch = k->m->scratch[ith];
    if (lo < hi)
        k->m->kern->wgrad(&w);
}

/* x becomes the packed operand of the next matrix_grad. */
static void matrix_input(struct back *k, const bf16 *x, int width)
{
    k->in = x;
    k->in_width = (size_t)width;
    pool_run(k->m->pool, pack_share, k);
}

/* dw (n_out, input width) += dy^T x over the order's rows. */
static void matrix_grad(struct back *k, const bf16 *dy, size_t ldy, int n_out, float *dw)
{
    k->wgrad = (struct wgrad){.dy = dy, .ldy = ldy, .segment = k->g->order, .n_segments = k->n_order,
                              .x = k->g->packed, .n_in = (int)k->in_width, .dw = dw,
                              .ld_dw = k->in_width};
    k->n_out = n_out;
    pool_run(k->m->pool, wgrad_share, k);
}

/* The whole backward of one of the layer's matrices: its gradient from input x and dy (in g->dy),
   and g->wide = dy W. */
static void matrix_back(struct back *k, int which, const bf16 *x)
{
    const struct model_matrix *w = &k->m->params.layer[k->layer].matrix[which];
    matrix_input(k, x, w->k);
    matrix_grad(k, k->g->dy, (size_t)w->n, w->n, k->grad + w->offset);
    model_product(k->m, k->g->dy + (size_t)k->lo * (size_t)w->n, (size_t)w->n,
                  k->w->bwd[k->layer * MATRICES + which],
                  k->g->wide + (size_t)k->lo * (size_t)w->k, k->b->rows.N - k->lo, w->k, w->n,
                  GEMM_STORE);
}

/* ---- gradients of vectors: sums per 32-row step, then the steps in order ---- */

/* Row range of step `step` in the order; false past the last. */
static bool step_rows(const struct back *k, int step, int *row, int *n)
{
    for (int i = 0; i < k->n_order; i++) {
        const struct segment *s = &k->g->order[i];
        int steps = (s->n + KV_BLOCK - 1) / KV_BLOCK;
        if (step < steps) {
            *row = s->row + step * KV_BLOCK;
            *n = MIN(KV_BLOCK, s->n - step * KV_BLOCK);
            return true;
        }
        step -= steps;
    }
    return false;
}

static int step_count(const struct back *k)
{
    int steps = 0;
    for (int i = 0; i < k->n_order; i++)
        steps += (k->g->order[i].n + KV_BLOCK - 1) / KV_BLOCK;
    return steps;
}

typedef void (*row_fn)(const struct back *k, int row, float *step, float *tmp);

struct steps_job {
    const struct back *k;
    row_fn fn;
    int steps;
};

static void steps_share(void *ctx, int ith, int nth)
{
    const struct steps_job *j = ctx;
    const struct back *k = j->k;
    size_t lo, hi;
    pool_split((size_t)j->steps, 1, ith, nth, &lo, &hi);
    for (size_t s = lo; s < hi; s++) {
        float *sum = k->g->steps + s * (size_t)k->g->step_width;
        int row, n;
        bool found = step_rows(k, (int)s, &row, &n);
        ASSERT(found);
        memset(sum, 0, (size_t)k->g->step_width * sizeof *sum);
        for (int i = 0; i < n; i++)
            j->fn(k, row + i, sum, k->m->logits[ith]);
    }
}

static void add_steps_share(void *ctx, int ith, int nth)
{
    const struct steps_job *j = ctx;
    const struct back *k = j->k;
    size_t at = 0;
    for (int v = 0; v < 3; v++) {
        size_t lo, hi;
        pool_split((size_t)k->width[v], 16, ith, nth, &lo, &hi);
        for (int s = 0; s < j->steps && lo < hi; s++)
            k->m->kern->add(k->vector[v] + lo,
                            k->g->steps + (size_t)s * (size_t)k->g->step_width + at + lo, hi - lo);
        at += (size_t)k->width[v];
    }
}

/* Runs fn on every row of the order and adds what it left in the step sums to k->vector. */
static void by_steps(struct back *k, row_fn fn)
{
    struct steps_job job = {.k = k, .fn = fn, .steps = step_count(k)};
    ASSERT(job.steps <= k->g->steps_max);
    pool_run(k->m->pool, steps_share, &job);
    pool_run(k->m->pool, add_steps_share, &job);
}

static void one_vector(struct back *k, size_t offset, int width)
{
    memset(k->width, 0, sizeof k->width);
    k->vector[0] = k->grad + offset;
    k->width[0] = width;
}

/* ---- rows ---- */

static void my_rows(const struct back *k, int ith, int nth, int *lo, int *hi)
{
    size_t first, limit;
    pool_split((size_t)(k->b->rows.N - k->lo), 1, ith, nth, &first, &limit);
    *lo = k->lo + (int)first;
    *hi = k->lo + (int)limit;
}

/* Norm rows again: the matrix input a and each row's rstd. */
static void norm_rows(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    int D = k->m->conf.D, lo, hi;
    my_rows(k, ith, nth, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        size_t at = (size_t)i * (size_t)D;
        k->a->rstd[i] =
            k->m->kern->rmsnorm(k->a->a + at, k->x + at, k->norm, D, k->m->conf.norm_eps);
    }
}

/* dx (+)= the norm's backward of wide; the head's rows have no dx yet. */
static void norm_back(const struct back *k, int row, float *step, bool add)
{
    int D = k->m->conf.D;
    size_t at = (size_t)row * (size_t)D;
    k->m->kern->rmsnorm_grad(k->g->dx + at, add, step, k->g->wide + at, k->x + at, k->norm,
                             k->a->rstd[row], D);
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

static void round_dx(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    size_t D = (size_t)k->m->conf.D;
    int lo, hi;
    my_rows(k, ith, nth, &lo, &hi);
    k->m->kern->to_bf16(k->g->dy + (size_t)lo * D, k->g->dx + (size_t)lo * D, (size_t)(hi - lo) * D);
}

static void swiglu_rows(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    int F = k->m->conf.F, lo, hi;
    my_rows(k, ith, nth, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        const float *gate = k->a->gate_up + act_at(k->a, k->layer, i, 2 * F);
        k->m->kern->swiglu(k->a->a + (size_t)i * (size_t)F, gate, gate + F, F);
    }
}

static void swiglu_back(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    int F = k->m->conf.F, lo, hi;
    my_rows(k, ith, nth, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        const float *gate = k->a->gate_up + act_at(k->a, k->layer, i, 2 * F);
        bf16 *dgate = k->g->dy + (size_t)i * 2 * (size_t)F;
        k->m->kern->swiglu_grad(dgate, dgate + F, k->g->wide + (size_t)i * (size_t)F, gate, gate + F,
                                F);
    }
}

/* ---- attention ---- */

static void round_dout(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    size_t q = (size_t)model_q_width(&k->m->conf);
    int lo, hi;
    my_rows(k, ith, nth, &lo, &hi);
    k->m->kern->to_bf16(k->g->dout + (size_t)lo * q, k->g->wide + (size_t)lo * q,
                        (size_t)(hi - lo) * q);
}

/* The place of row `row`'s K gradient of head 0; V's follows G E further on. Prompt rows have theirs
   in dprompt, the others behind their dq in wide. */
static float *dkv_row(const struct back *k, int row)
{
    const struct model_config *c = &k->m->conf;
    if (row >= k->b->prompt_rows)
        return k->g->wide + (size_t)row * (size_t)model_qkv_width(c) + model_q_width(c);
    return k->g->dprompt + ((size_t)k->layer * (size_t)k->g->prompts_max + (size_t)row) * 2 *
                               (size_t)model_kv_width(c);
}

static void attend_back(const struct back *k, int segment, int g, int ith)
{
    const struct model *m = k->m;
    const struct model_config *c = &m->conf;
    const struct model_segment *s = &k->b->rows.segment[segment];
    int prompt = k->b->prompt_of[segment], heads = c->H / c->G, kv = model_kv_width(c);
    bool is_prompt = s->row < k->b->prompt_rows;
    size_t q_at = act_at(k->a, k->layer, s->row, model_q_width(c)) + (size_t)(g * heads * c->E);
    size_t soft = softmax_at(k->a, c, k->layer, g, s->row);
    size_t ld = (size_t)model_qkv_width(c), ld_prompt = 2 * (size_t)kv;
    float *own = dkv_row(k, s->row) + g * c->E;
    float *shared = prompt < 0 ? NULL : dkv_row(k, k->b->rows.segment[prompt].row) + g * c->E;

    m->kern->attn_grad(&(struct attn_grad){
        .q = k->a->q + q_at, .out = k->a->o + q_at,
        .dout = k->g->dout + (size_t)s->row * (size_t)model_q_width(c) + g * heads * c->E,
        .ldq = (size_t)model_q_width(c), .ldo = (size_t)model_q_width(c), .n = s->n,
        .n_heads = heads, .E = c->E, .pos = s->pos, .split = is_prompt ? 0 : s->pos,
        .kv = model_table(m, k->kv, ith, s, k->layer, g), .scale = 1.0f / sqrtf((float)c->E),
        .max = k->a->max + soft, .inv_sum = k->a->inv_sum + soft,
        .dq = k->g->wide + (size_t)s->row * ld + g * heads * c->E, .ld_dq = ld,
        .dk_lo = shared, .dv_lo = shared ? shared + kv : NULL, .ld_lo = ld_prompt,
        .dk_hi = own, .dv_hi = own + kv, .ld_hi = is_prompt ? ld_prompt : ld,
        .scratch = m->scratch[ith]});
}

/* The order's segments [first, limit) that share one prompt, and the work they stand for. */
static int next_group(const struct back *k, int first, int64_t *cost)
{
    const struct model_batch *b = k->b;
    int limit = first;
    int prompt = b->prompt_of[b->order[first]];
    *cost = 0;
    do {
        const struct model_segment *s = &b->rows.segment[b->order[limit]];
        *cost += (int64_t)s->n * (s->pos + s->n);
        limit++;
    } while (limit < b->n_order && prompt >= 0 &&
             (b->prompt_of[b->order[limit]] == prompt || b->order[limit] == prompt));
    return limit;
}

/* Jobs are (group, KV head): a prompt's K and V gradients are summed over its samples in order. */
static void attention_share(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    int64_t total = 0, done = 0, cost;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0, limit; i < k->b->n_order; i = limit) {
            limit = next_group(k, i, &cost);
            for (int g = 0; g < k->m->conf.G; g++) {
                bool mine = pass == 1 && done * nth / total == ith;
                for (int j = i; mine && j < limit; j++)
                    attend_back(k, k->b->order[j], g, ith);
                if (pass == 0)
                    total += cost;
                else
                    done += cost;
            }
        }
    }
}

/* Zeroes what attend_back continues: the samples' K and V gradients. */
static void clear_dkv(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    int lo, hi;
    my_rows(k, ith, nth, &lo, &hi);
    for (int i = MAX(lo, k->b->prompt_rows); i < hi; i++)
        memset(dkv_row(k, i), 0, 2 * (size_t)model_kv_width(&k->m->conf) * sizeof(float));
}

/* From a row's dq, dk, dv through rope and QK norm to the projection's gradient dy. */
static void projection_back(const struct back *k, int row, float *step, float *tmp)
{
    const struct model *m = k->m;
    const struct model_config *c = &m->conf;
    const struct model_layer *l = &m->params.layer[k->layer];
    int E = c->E, width = model_qkv_width(c), q = model_q_width(c), kv = model_kv_width(c);
    const struct model_segment *s = k->b->rows.segment;
    float *d = tmp, *normed = tmp + width;
    const float *cs;

    while (row >= s->row + s->n)
        s++;
    cs = m->rope + (size_t)(s->pos + row - s->row) * (size_t)E;
    memcpy(d, k->g->wide + (size_t)row * (size_t)width, (size_t)q * sizeof *d);
    memcpy(d + q, dkv_row(k, row), 2 * (size_t)kv * sizeof *d);
    for (int h = 0; h < c->H + c->G; h++) {
        m->kern->rope(d + h * E, cs, E, true);
        if (!c->qk_norm)
            continue;
        int vector = h < c->H ? VECTOR_Q_NORM : VECTOR_K_NORM;
        const float *x = k->a->qkv + act_at(k->a, k->layer, row, width) + h * E;
        const float *weight = wide(m, k->w, k->layer, vector);
        float rstd = m->kern->rmsnorm_f(normed, x, weight, E, c->norm_eps);
        m->kern->rmsnorm_grad(normed, false, step + (h < c->H ? 0 : E), d + h * E, x, weight, rstd, E);
        memcpy(d + h * E, normed, (size_t)E * sizeof *d);
    }
    bf16 *dy = k->g->dy + (size_t)row * (size_t)width;
    m->kern->to_bf16(dy, d, (size_t)width);
    if (!l->width[VECTOR_QKV_BIAS])
        return;
    m->kern->from_bf16(d, dy, (size_t)width); // a bias sees what its matrix sees
    m->kern->add(step + 2 * l->width[VECTOR_Q_NORM], d, (size_t)width);
}

/* ---- the layers ---- */

static void feed_forward_back(struct back *k)
{
    const struct model *m = k->m;
    const struct model_layer *l = &m->params.layer[k->layer];
    k->x = k->a->x_mid + act_at(k->a, k->layer, 0, m->conf.D);
    k->norm = wide(m, k->w, k->layer, VECTOR_MLP_NORM);

    pool_run(m->pool, round_dx, k);
    pool_run(m->pool, swiglu_rows, k);
    matrix_back(k, MATRIX_DOWN, k->a->a);
    pool_run(m->pool, swiglu_back, k);
    pool_run(m->pool, norm_rows, k);
    matrix_back(k, MATRIX_GATE_UP, k->a->a);
    one_vector(k, l->vector[VECTOR_MLP_NORM], m->conf.D);
    by_steps(k, norm_back_add);
}

static void attention_back(struct back *k)
{
    const struct model *m = k->m;
    const struct model_layer *l = &m->params.layer[k->layer];
    k->x = k->a->x + act_at(k->a, k->layer, 0, m->conf.D);
    k->norm = wide(m, k->w, k->layer, VECTOR_ATTN_NORM);

    pool_run(m->pool, round_dx, k);
    matrix_back(k, MATRIX_O, k->a->o + act_at(k->a, k->layer, 0, model_q_width(&m->conf)));
    pool_run(m->pool, round_dout, k);
    pool_run(m->pool, clear_dkv, k);
    pool_run(m->pool, attention_share, k);
    for (int v = 0; v < 3; v++) {
        static const int which[] = {VECTOR_Q_NORM, VECTOR_K_NORM, VECTOR_QKV_BIAS};
        k->vector[v] = k->grad + l->vector[which[v]];
        k->width[v] = l->width[which[v]];
    }
    by_steps(k, projection_back);
    pool_run(m->pool, norm_rows, k);
    matrix_back(k, MATRIX_QKV, k->a->a);
    one_vector(k, l->vector[VECTOR_ATTN_NORM], m->conf.D);
    by_steps(k, norm_back_add);
}

/* ---- the head ---- */

/* This thread's rows: logits again, their gradient, and its product with the head's weights. */
static void head_rows(void *ctx, int ith, int nth)
{
    const struct back *k = ctx;
    const struct model *m = k->m;
    int D = m->conf.D, width = model_chunk_width(m, k->chunk), lo, hi;
    float inv_t = k->b->inv_temperature, *logits = m->logits[ith];
    struct gemm forward = {.lda = (size_t)D, .b = k->w->head_fwd[k->chunk], .c = logits,
                           .ldc = VOCAB_CHUNK, .n = width, .k = D, .mode = GEMM_STORE,
                           .scratch = m->scratch[ith]};

    my_rows(k, ith, nth, &lo, &hi);
    for (int row = lo; row < hi; row += MODEL_LOGIT_ROWS) {
        forward.a = k->a->f + (size_t)row * (size_t)D;
        forward.m = MIN(MODEL_LOGIT_ROWS, hi - row);
        m->kern->gemm(&forward);
        for (int i = row; i < row + forward.m; i++)
            m->kern->chunk_grad(k->g->dlogits + (size_t)i * VOCAB_CHUNK,
                                logits + (size_t)(i - row) * VOCAB_CHUNK, width, inv_t,
                                k->stat[i].lse, k->b->target[i] - k->chunk * VOCAB_CHUNK,
                                k->coef[i] * inv_t);
    }
    if (lo < hi)
        m->kern->gemm(&(struct gemm){.a = k->g->dlogits + (size_t)lo * VOCAB_CHUNK,
                                     .lda = VOCAB_CHUNK, .b = k->w->head_bwd[k->chunk],
                                     .c = k->g->wide + (size_t)lo * (size_t)D, .ldc = (size_t)D,
                                     .m = hi - lo, .n = D, .k = width,
                                     .mode = k->chunk ? GEMM_CONTINUE : GEMM_STORE,
                                     .scratch = m->scratch[ith]});
}

static void head_back(struct back *k)
{
    const struct model *m = k->m;
    const struct model_matrix *head = &m->params.head;
    size_t D = (size_t)m->conf.D;

    k->lo = k->b->prompt_rows;
    matrix_input(k, k->a->f, m->conf.D);
    for (k->chunk = 0; k->chunk < m->chunks; k->chunk++) {
        pool_run(m->pool, head_rows, k);
        matrix_grad(k, k->g->dlogits, VOCAB_CHUNK, model_chunk_width(m, k->chunk),
                    k->grad + head->offset + (size_t)k->chunk * VOCAB_CHUNK * D);
    }
    k->x = k->a->x + act_at(k->a, m->conf.L, 0, m->conf.D);
    k->norm = wide(m, k->w, m->conf.L, 0);
    one_vector(k, m->params.final_norm, m->conf.D);
    by_steps(k, norm_back_store);
}

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

void model_batch_forward(const struct model *m, const struct model_weights *w, const struct kv *kv,
                         const struct model_batch *b, struct acts *a, struct token_stat *stat)
{
    model_forward(m, w, kv, &b->rows, b->prompt_rows, b->prompt_rows, a);
    model_head(m, w, a, b->prompt_rows, b->rows.N, b->target, b->inv_temperature);
    for (int i = b->prompt_rows; i < b->rows.N; i++)
        stat[i] = model_combine(a->stat + (size_t)i * (size_t)m->chunks, m->chunks, b->target[i]);
}

int model_batch_backward(const struct model *m, const struct model_weights *w, const struct kv *kv,
                         const struct model_batch *b, struct acts *a, const struct token_stat *stat,
                         const float *coef, struct grads *g, float *grad, int *embed_tokens,
                         float *embed_rows)
{
    struct back k = {.m = m, .w = w, .kv = kv, .b = b, .a = a, .stat = stat, .coef = coef, .g = g,
                     .grad = grad};
    size_t D = (size_t)m->conf.D;
    int n = 0;

    ASSERT(a->keep && b->rows.N <= g->rows_max && b->prompt_rows <= g->prompts_max);
    ASSERT(b->n_order <= g->segments_max);
    if (b->is_first)
        memset(g->dprompt, 0, (size_t)m->conf.L * (size_t)g->prompts_max * 2 *
                                  (size_t)model_kv_width(&m->conf) * sizeof *g->dprompt);
    set_order(&k, false);
    head_back(&k);
    set_order(&k, true);
    if (b->is_last) {
        k.lo = 0;
        memset(g->dx, 0, (size_t)b->prompt_rows * D * sizeof *g->dx);
    }
    for (k.layer = m->conf.L - 1; k.layer >= 0; k.layer--) {
        feed_forward_back(&k);
        attention_back(&k);
    }
    for (int i = 0; i < k.n_order; i++) {
        const struct segment *s = &g->order[i];
        memcpy(embed_rows + (size_t)n * D, g->dx + (size_t)s->row * D, (size_t)s->n * D * sizeof *g->dx);
        memcpy(embed_tokens + n, b->rows.token + s->row, (size_t)s->n * sizeof *embed_tokens);
        n += s->n;
    }
    return n;
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
