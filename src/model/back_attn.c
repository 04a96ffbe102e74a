/* Backward through attention, rope, QK norm and the bias of the fused projection. A prompt's K and
 * V gradients are summed over its samples in a buffer that outlives the micro-batch (g->dprompt).
 */
#include "model/model.h"

#include "model/back_int.h"

#include <math.h>
#include <string.h>

static void round_dout(const struct back *k)
{
    size_t q = (size_t)model_q_width(&k->pass.m->conf);
    int lo, hi;
    model_my_rows(&k->pass, &lo, &hi);
    k->pass.m->kern->to_bf16(k->g->dout + (size_t)lo * q, k->g->wide + (size_t)lo * q,
                             (size_t)(hi - lo) * q);
}

/* The place of row `row`'s K gradient of head 0; V's follows G E further on. Prompt rows have
   theirs in dprompt, the others behind their dq in wide. */
static float *dkv_row(const struct back *k, int row)
{
    const struct model_config *c = &k->pass.m->conf;
    if (row >= k->b->prompt_rows)
        return k->g->wide + (size_t)row * (size_t)model_qkv_width(c) + model_q_width(c);
    size_t at = (size_t)k->pass.layer * (size_t)k->g->prompts_max + (size_t)row;
    return k->g->dprompt + at * 2 * (size_t)model_kv_width(c);
}

/* Zeroes one KV head's K and V gradients of a segment's rows, which attend_back continues. */
static void clear_dkv(const struct back *k, int segment, int g)
{
    const struct model_config *c = &k->pass.m->conf;
    const struct model_segment *s = &k->b->rows.segment[segment];
    size_t bytes = (size_t)c->E * sizeof(float);
    for (int row = s->row; row < s->row + s->n; row++) {
        float *dk = dkv_row(k, row) + g * c->E;
        memset(dk, 0, bytes);
        memset(dk + model_kv_width(c), 0, bytes);
    }
}

static void attend_back(const struct back *k, int segment, int g)
{
    const struct model *m = k->pass.m;
    const struct model_config *c = &m->conf;
    const struct acts *a = k->pass.a;
    const struct model_segment *s = &k->b->rows.segment[segment];
    int prompt = k->b->prompt_of[segment], heads = c->H / c->G, kv = model_kv_width(c);
    int layer = k->pass.layer;
    bool is_prompt = s->row < k->b->prompt_rows;
    size_t q_at = act_at(a, layer, s->row, model_q_width(c)) + (size_t)(g * heads * c->E);
    size_t soft = softmax_at(a, c, layer, g, s->row);
    size_t ld = (size_t)model_qkv_width(c), ld_prompt = 2 * (size_t)kv;
    float *own = dkv_row(k, s->row) + g * c->E;
    float *shared = prompt < 0 ? NULL : dkv_row(k, k->b->rows.segment[prompt].row) + g * c->E;

    m->kern->attn_grad(&(struct attn_grad){
        .q = a->q + q_at,
        .out = a->o + q_at,
        .dout = k->g->dout + (size_t)s->row * (size_t)model_q_width(c) + g * heads * c->E,
        .ldq = (size_t)model_q_width(c),
        .ldo = (size_t)model_q_width(c),
        .n = s->n,
        .n_heads = heads,
        .E = c->E,
        .pos = s->pos,
        .split = is_prompt ? 0 : s->pos,
        .kv = model_table(m, k->pass.kv, k->pass.ith, s, layer, g),
        .scale = 1.0f / sqrtf((float)c->E),
        .max = a->max + soft,
        .inv_sum = a->inv_sum + soft,
        .dq = k->g->wide + (size_t)s->row * ld + g * heads * c->E,
        .ld_dq = ld,
        .dk_lo = shared,
        .dv_lo = shared ? shared + kv : NULL,
        .ld_lo = ld_prompt,
        .dk_hi = own,
        .dv_hi = own + kv,
        .ld_hi = is_prompt ? ld_prompt : ld,
        .scratch = m->scratch[k->pass.ith]});
}

/* The order's segments [first, limit) that share one prompt, and the work they stand for. */
static int next_group(const struct back *k, int first, int64_t *cost)
{
    const struct model_batch *b = k->b;
    int limit = first, prompt = b->prompt_of[b->order[first]];
    *cost = 0;
    do {
        const struct model_segment *s = &b->rows.segment[b->order[limit]];
        *cost += (int64_t)s->n * (s->pos + s->n);
        limit++;
    } while (limit < b->n_order && prompt >= 0 &&
             (b->prompt_of[b->order[limit]] == prompt || b->order[limit] == prompt));
    return limit;
}

/* One KV head of the order's segments [first, limit): a prompt's K and V gradients are summed over
   its samples, from the first part of its group on. */
static void group_back(const struct back *k, int first, int limit, int g)
{
    int prompt = k->b->prompt_of[k->b->order[first]];
    if (prompt >= 0 && k->b->is_first)
        clear_dkv(k, prompt, g);
    for (int i = first; i < limit; i++) {
        if (k->b->order[i] != prompt)
            clear_dkv(k, k->b->order[i], g);
        attend_back(k, k->b->order[i], g);
    }
}

/* This thread's jobs, which are (group, KV head), by the work they stand for. */
static void attention(const struct back *k)
{
    const struct pass *p = &k->pass;
    int G = p->m->conf.G;
    int64_t total = 0, done = 0, cost;
    for (int i = 0; i < k->b->n_order;) {
        i = next_group(k, i, &cost);
        total += cost * G;
    }
    for (int i = 0, limit; i < k->b->n_order; i = limit) {
        limit = next_group(k, i, &cost);
        for (int g = 0; g < G; g++, done += cost)
            if (done * p->nth / total == p->ith)
                group_back(k, i, limit, g);
    }
}

/* From a row's dq, dk, dv through rope and QK norm to the projection's gradient. */
static void projection_row(const struct back *k, int row, float *step, float *tmp)
{
    const struct model *m = k->pass.m;
    const struct model_config *c = &m->conf;
    const struct model_layer *l = &m->params.layer[k->pass.layer];
    const struct model_segment *s = model_segment_at(&k->b->rows, row);
    int E = c->E, width = model_qkv_width(c), q = model_q_width(c), kv = model_kv_width(c);
    const float *cs = m->rope + (size_t)(s->pos + row - s->row) * (size_t)E;
    float *d = tmp, *normed = tmp + width;

    memcpy(d, k->g->wide + (size_t)row * (size_t)width, (size_t)q * sizeof *d);
    memcpy(d + q, dkv_row(k, row), 2 * (size_t)kv * sizeof *d);
    for (int h = 0; h < c->H + c->G; h++) {
        m->kern->rope(d + h * E, cs, E, true);
        if (!c->qk_norm)
            continue;
        int vector = h < c->H ? VECTOR_Q_NORM : VECTOR_K_NORM;
        const float *x = k->pass.a->qkv + act_at(k->pass.a, k->pass.layer, row, width) + h * E;
        const float *weight = wide(m, k->pass.w, k->pass.layer, vector);
        float rstd = m->kern->rmsnorm_f(normed, x, weight, E, c->norm_eps);
        m->kern->rmsnorm_grad(normed, false, step + (h < c->H ? 0 : E), d + h * E, x, weight, rstd,
                              E);
        memcpy(d + h * E, normed, (size_t)E * sizeof *d);
    }
    bf16 *dy = k->g->dy_wide + (size_t)row * (size_t)width;
    m->kern->to_bf16(dy, d, (size_t)width);
    if (!l->width[VECTOR_QKV_BIAS])
        return;
    m->kern->from_bf16(d, dy, (size_t)width); // a bias sees what its matrix sees
    m->kern->add(step + l->width[VECTOR_Q_NORM] + l->width[VECTOR_K_NORM], d, (size_t)width);
}

void model_back_attention(struct back *k)
{
    static const int which[BACK_VECTORS] = {VECTOR_Q_NORM, VECTOR_K_NORM, VECTOR_QKV_BIAS};
    const struct model_layer *l = &k->pass.m->params.layer[k->pass.layer];

    round_dout(k);
    model_meet(&k->pass); // g->wide is free for the gradients of q, k and v
    attention(k);
    model_meet(&k->pass);
    for (int v = 0; v < BACK_VECTORS; v++) {
        k->vector[v].grad = k->grad + l->vector[which[v]];
        k->vector[v].width = l->width[which[v]];
    }
    model_back_rows(k, projection_row);
}
