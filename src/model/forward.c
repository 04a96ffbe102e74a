/* Forward through the layers: one path for prefill, decode, scoring and training. All threads go
 * through it together; each phase below is a thread's share of it. NUMERICS section 3 is the
 * formula.
 */
#include "model/model.h"

#include "model/model_int.h"

#include <math.h>
#include <string.h>

void acts_carve(struct acts *a, const struct model *m, int rows_max, bool keep, struct carve *c)
{
    const struct model_config *f = &m->conf;
    size_t N = (size_t)rows_max, L = (size_t)f->L, layers = keep ? L : 1;
    size_t q = (size_t)model_q_width(f), D = (size_t)f->D, F = (size_t)f->F;

    *a = (struct acts){.rows_max = rows_max, .keep = keep};
    a->x = carve_take(c, (keep ? L + 1 : 1) * N * D * sizeof *a->x);
    a->qkv = carve_take(c, (keep && f->qk_norm ? L : 1) * N * (size_t)model_qkv_width(f) *
                               sizeof *a->qkv);
    a->q = carve_take(c, layers * N * q * sizeof *a->q);
    a->o = carve_take(c, layers * N * q * sizeof *a->o);
    a->gate_up = carve_take(c, layers * N * 2 * F * sizeof *a->gate_up);
    if (keep) {
        a->x_mid = carve_take(c, L * N * D * sizeof *a->x_mid);
        a->max = carve_take(c, L * N * (size_t)f->H * sizeof *a->max);
        a->inv_sum = carve_take(c, L * N * (size_t)f->H * sizeof *a->inv_sum);
    }
    a->a = carve_take(c, N * D * sizeof *a->a);
    a->h = carve_take(c, N * F * sizeof *a->h);
    a->f = carve_take(c, N * D * sizeof *a->f);
    a->rstd = carve_take(c, N * sizeof *a->rstd);
    a->stat = carve_take(c, N * (size_t)m->chunks * sizeof *a->stat);
}

static void embed(const struct pass *p)
{
    const struct model *m = p->m;
    size_t D = (size_t)m->conf.D;
    int lo, hi;
    model_my_rows(p, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        const bf16 *row = p->w->flat + m->params.embed + (size_t)p->r->token[i] * D;
        m->kern->from_bf16(p->a->x + (size_t)i * D, row, D);
    }
}

void model_norm(const struct pass *p, const float *x, const float *weight, bf16 *y, float *copy)
{
    const struct model *m = p->m;
    size_t D = (size_t)m->conf.D;
    int lo, hi;
    model_my_rows(p, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        const float *row = x + (size_t)i * D;
        p->a->rstd[i] =
            m->kern->rmsnorm(y + (size_t)i * D, row, weight, m->conf.D, m->conf.norm_eps);
        if (copy)
            memcpy(copy + (size_t)i * D, row, D * sizeof *row);
    }
}

const struct model_segment *model_segment_at(const struct model_rows *r, int row)
{
    int lo = 0, hi = r->n_segments;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (r->segment[mid].row <= row)
            lo = mid;
        else
            hi = mid;
    }
    return &r->segment[lo];
}

/* Bias, QK norm, rope and the roundings of one row: q to the activations, k and v to the cache. The
   projection itself stays as it is where QK norm's backward needs it. */
static void place_row(const struct pass *p, int row, float *tmp)
{
    const struct model *m = p->m;
    const struct model_config *c = &m->conf;
    const struct kern *kern = m->kern;
    const struct model_segment *s = model_segment_at(p->r, row);
    const struct model_layer *l = &m->params.layer[p->layer];
    int E = c->E, q_width = model_q_width(c), pos = s->pos + row - s->row;
    float *qkv = p->a->qkv +
                 act_at(p->a, c->qk_norm ? act_layer(p->a, p->layer) : 0, row, model_qkv_width(c));
    bf16 *q = p->a->q + act_at(p->a, act_layer(p->a, p->layer), row, q_width);
    const float *cs = m->rope + (size_t)pos * (size_t)E;

    if (l->width[VECTOR_QKV_BIAS])
        kern->add(qkv, wide(m, p->w, p->layer, VECTOR_QKV_BIAS), (size_t)model_qkv_width(c));
    for (int h = 0; h < c->H + c->G; h++) {
        const float *head = qkv + h * E;
        if (c->qk_norm)
            kern->rmsnorm_f(tmp, head,
                            wide(m, p->w, p->layer, h < c->H ? VECTOR_Q_NORM : VECTOR_K_NORM), E,
                            c->norm_eps);
        else
            memcpy(tmp, head, (size_t)E * sizeof *tmp);
        kern->rope(tmp, cs, E, false);
        if (h < c->H) {
            kern->to_bf16(q + h * E, tmp, (size_t)E);
            continue;
        }
        int g = h - c->H;
        void *block = kv_head(p->kv, s->block[pos / KV_BLOCK], p->layer, g);
        const float *v = qkv + (c->H + c->G + g) * E;
        kern->kv_put(block, E, pos % KV_BLOCK, (struct kv_row){.k = tmp, .v = v});
    }
}

static void place(const struct pass *p)
{
    float *tmp = model_tmp(p->m, p->ith);
    int lo, hi;
    model_my_rows(p, &lo, &hi);
    for (int i = lo; i < hi; i++)
        place_row(p, i, tmp);
}

const void *const *model_table(const struct model *m, const struct kv *kv, int ith,
                               const struct model_segment *s, int layer, int g)
{
    const void **table = m->table[ith];
    int n = kv_blocks(s->pos + s->n);
    for (int i = 0; i < n; i++)
        table[i] = kv_head(kv, s->block[i], layer, g);
    return table;
}

enum { ATTN_ROWS = 64 }; // query rows of one attention job

static void attend_job(const struct pass *p, const struct model_segment *s, int first, int g)
{
    const struct model *m = p->m;
    const struct model_config *c = &m->conf;
    int heads = c->H / c->G, q_width = model_q_width(c), layer = act_layer(p->a, p->layer);
    int row = s->row + first;
    size_t at = act_at(p->a, layer, row, q_width) + (size_t)(g * heads * c->E);
    size_t soft = p->a->keep ? softmax_at(p->a, c, p->layer, g, row) : 0;

    m->kern->attn(&(struct attn){.q = p->a->q + at,
                                 .ldq = (size_t)q_width,
                                 .n = MIN(ATTN_ROWS, s->n - first),
                                 .n_heads = heads,
                                 .E = c->E,
                                 .pos = s->pos + first,
                                 .kv = model_table(m, p->kv, p->ith, s, p->layer, g),
                                 .scale = 1.0f / sqrtf((float)c->E),
                                 .out = p->a->o + at,
                                 .ldo = (size_t)q_width,
                                 .max = p->a->keep ? p->a->max + soft : NULL,
                                 .inv_sum = p->a->keep ? p->a->inv_sum + soft : NULL,
                                 .scratch = m->scratch[p->ith]});
}

/* This thread's jobs of one KV head: jobs are (segment, ATTN_ROWS rows) and are dealt in order by
   the work they stand for. `done` of `total` is behind them; returns that and theirs. With a total
   of 0 none is run. */
static int64_t attend_head(const struct pass *p, int g, int64_t done, int64_t total)
{
    for (int i = 0; i < p->r->n_segments; i++) {
        const struct model_segment *s = &p->r->segment[i];
        if (s->row < p->lo)
            continue;
        for (int first = 0; first < s->n; first += ATTN_ROWS) {
            if (total > 0 && done * p->nth / total == p->ith)
                attend_job(p, s, first, g);
            done += (int64_t)MIN(ATTN_ROWS, s->n - first) * (s->pos + first + ATTN_ROWS);
        }
    }
    return done;
}

/* Head by head: segments next to each other mostly share a prompt, whose keys and values of one
   head stay in a near cache. */
static void attend(const struct pass *p)
{
    int64_t total = attend_head(p, 0, 0, 0) * p->m->conf.G, done = 0;
    for (int g = 0; g < p->m->conf.G; g++)
        done = attend_head(p, g, done, total);
}

void model_swiglu(const struct pass *p)
{
    int F = p->m->conf.F, lo, hi;
    model_my_rows(p, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        const float *gate = p->a->gate_up + act_at(p->a, act_layer(p->a, p->layer), i, 2 * F);
        p->m->kern->swiglu(p->a->h + (size_t)i * (size_t)F, gate, gate + F, F);
    }
}

void model_product(const struct pass *p, const bf16 *x, const void *packed, float *y, int n, int k,
                   enum gemm_mode mode)
{
    bool by_rows = model_by_rows(p);
    int lo = p->lo, hi = p->r->N;
    if (by_rows)
        model_my_rows(p, &lo, &hi);
    struct gemm g = {.a = x + (size_t)lo * (size_t)k,
                     .lda = (size_t)k,
                     .b = packed,
                     .c = y + (size_t)lo * (size_t)n,
                     .ldc = (size_t)n,
                     .m = hi - lo,
                     .n = n,
                     .k = k,
                     .mode = mode,
                     .scratch = p->m->scratch[p->ith]};
    kern_gemm_part(p->m->kern, &g, by_rows ? 0 : p->ith, by_rows ? 1 : p->nth);
}

/* y rows (op)= a W for one of the layer's matrices, a's rows being as wide as W's input; by columns
   it needs all threads' rows, and they its columns. */
static void layer_product(const struct pass *p, int which, const bf16 *a, float *y,
                          enum gemm_mode mode)
{
    const struct model_matrix *x = &p->m->params.layer[p->layer].matrix[which];
    model_meet_unless_by_rows(p);
    model_product(p, a, p->w->fwd[p->layer * MATRICES + which], y, x->n, x->k, mode);
    model_meet_unless_by_rows(p);
}

/* The residual stream: x enters, mid lies between attention and feed-forward, out leaves. Where
   activations are kept they are three arrays, and a norm copies what the next product adds to. */
static void run_layer(const struct pass *p, bool stop_after_kv)
{
    const struct model *m = p->m;
    const struct model_config *c = &m->conf;
    struct acts *a = p->a;
    int l = act_layer(a, p->layer);
    float *x = a->x + act_at(a, l, 0, c->D);
    float *mid = a->keep ? a->x_mid + act_at(a, l, 0, c->D) : x;
    float *out = a->keep ? a->x + act_at(a, l + 1, 0, c->D) : x;

    model_norm(p, x, wide(m, p->w, p->layer, VECTOR_ATTN_NORM), a->a, a->keep ? mid : NULL);
    layer_product(p, MATRIX_QKV, a->a,
                  a->qkv + act_at(a, c->qk_norm ? l : 0, 0, model_qkv_width(c)), GEMM_STORE);
    place(p);
    if (stop_after_kv)
        return;
    model_meet(p); // a query sees keys of other threads' rows
    attend(p);
    if (model_by_rows(p))
        model_meet(p); // by columns the product does
    layer_product(p, MATRIX_O, a->o + act_at(a, l, 0, model_q_width(c)), mid, GEMM_ADD);
    model_norm(p, mid, wide(m, p->w, p->layer, VECTOR_MLP_NORM), a->a, a->keep ? out : NULL);
    layer_product(p, MATRIX_GATE_UP, a->a, a->gate_up + act_at(a, l, 0, 2 * c->F), GEMM_STORE);
    model_swiglu(p);
    layer_product(p, MATRIX_DOWN, a->h, out, GEMM_ADD);
}

struct forward {
    struct pass pass;
    int head_lo;
};

static void forward_share(void *ctx, int ith, int nth)
{
    const struct forward *f = ctx;
    struct pass p = f->pass;
    const struct model *m = p.m;
    bool has_head = f->head_lo < p.r->N;
    p.ith = ith;
    p.nth = nth;
    embed(&p);
    for (p.layer = 0; p.layer < m->conf.L; p.layer++)
        run_layer(&p, !has_head && !p.a->keep && p.layer == m->conf.L - 1);
    if (!has_head)
        return;
    model_meet(&p); // other rows are its own now
    p.lo = f->head_lo;
    model_norm(&p, p.a->x + act_at(p.a, p.a->keep ? m->conf.L : 0, 0, m->conf.D),
               wide(m, p.w, m->conf.L, 0), p.a->f, NULL);
}

void model_forward(const struct model *m, const struct model_weights *w, const struct kv *kv,
                   const struct model_rows *r, int row_lo, int head_lo, struct acts *a)
{
    struct forward f = {.pass = {.m = m, .w = w, .kv = kv, .r = r, .a = a, .lo = row_lo},
                        .head_lo = head_lo};
    ASSERT(r->N <= a->rows_max && row_lo <= r->N);
    if (row_lo < r->N)
        pool_run(m->pool, forward_share, &f);
}
