/* The twin's tensors, rows and the model as a whole: forward, then backward in reverse. Roundings
 * stand where docs/NUMERICS.md section 3 names them. See twin.h. */
#include "twin.h"
#include "twin_ops.h"
#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Adds the tensor called prefix + name. */
static struct twin_tensor *add_tensor(struct twin *t, const char *prefix, const char *name,
                                      int rows, int cols)
{
    struct twin_tensor *x = &t->tensor[t->n_tensors++];
    size_t size = (size_t)rows * (size_t)cols;
    *x = (struct twin_tensor){.rows = rows, .cols = cols};
    snprintf(x->name, sizeof x->name, "%s%s", prefix, name);
    x->w = mem_calloc(size, sizeof *x->w);
    x->g = mem_calloc(size, sizeof *x->g);
    return x;
}

static void add_layer(struct twin *t, int l)
{
    const struct twin_config *c = &t->config;
    struct twin_layer *w = &t->layer[l];
    int q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    char p[32];
    snprintf(p, sizeof p, "model.layers.%d.", l);
    w->attn_norm = add_tensor(t, p, "input_layernorm.weight", c->hidden, 1);
    w->q = add_tensor(t, p, "self_attn.q_proj.weight", q, c->hidden);
    w->k = add_tensor(t, p, "self_attn.k_proj.weight", kv, c->hidden);
    w->v = add_tensor(t, p, "self_attn.v_proj.weight", kv, c->hidden);
    w->o = add_tensor(t, p, "self_attn.o_proj.weight", c->hidden, q);
    if (c->qkv_bias) {
        w->q_bias = add_tensor(t, p, "self_attn.q_proj.bias", q, 1);
        w->k_bias = add_tensor(t, p, "self_attn.k_proj.bias", kv, 1);
        w->v_bias = add_tensor(t, p, "self_attn.v_proj.bias", kv, 1);
    }
    if (c->qk_norm) {
        w->q_norm = add_tensor(t, p, "self_attn.q_norm.weight", c->head_dim, 1);
        w->k_norm = add_tensor(t, p, "self_attn.k_norm.weight", c->head_dim, 1);
    }
    w->ffn_norm = add_tensor(t, p, "post_attention_layernorm.weight", c->hidden, 1);
    w->gate = add_tensor(t, p, "mlp.gate_proj.weight", c->ffn, c->hidden);
    w->up = add_tensor(t, p, "mlp.up_proj.weight", c->ffn, c->hidden);
    w->down = add_tensor(t, p, "mlp.down_proj.weight", c->hidden, c->ffn);
}

enum { TENSORS_PER_LAYER = 14, TENSORS_BESIDE = 3 }; // at most

void twin_init(struct twin *t, const struct twin_config *c)
{
    *t = (struct twin){.config = *c};
    t->tensor =
        mem_calloc((size_t)(c->layers * TENSORS_PER_LAYER + TENSORS_BESIDE), sizeof *t->tensor);
    t->layer = mem_calloc((size_t)c->layers, sizeof *t->layer);
    t->embed = add_tensor(t, "model.", "embed_tokens.weight", c->vocab, c->hidden);
    for (int l = 0; l < c->layers; l++)
        add_layer(t, l);
    t->norm = add_tensor(t, "model.", "norm.weight", c->hidden, 1);
    t->head = c->tied ? t->embed : add_tensor(t, "", "lm_head.weight", c->vocab, c->hidden);
}

void twin_release(struct twin *t)
{
    for (int i = 0; i < t->n_tensors; i++) {
        mem_free(t->tensor[i].w);
        mem_free(t->tensor[i].g);
    }
    mem_free(t->tensor);
    mem_free(t->layer);
    *t = (struct twin){0};
}

struct twin_tensor *twin_find(const struct twin *t, const char *name)
{
    for (int i = 0; i < t->n_tensors; i++)
        if (strcmp(t->tensor[i].name, name) == 0)
            return &t->tensor[i];
    return NULL;
}

void twin_zero_grad(struct twin *t)
{
    for (int i = 0; i < t->n_tensors; i++) {
        struct twin_tensor *x = &t->tensor[i];
        memset(x->g, 0, sizeof *x->g * (size_t)x->rows * (size_t)x->cols);
    }
}

/* Grows the rows by one. */
static void add_row(struct twin_rows *r, int token, int first, int target, double coef)
{
    if ((size_t)r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 64;
        r->token = mem_realloc(r->token, r->cap * sizeof *r->token);
        r->first = mem_realloc(r->first, r->cap * sizeof *r->first);
        r->target = mem_realloc(r->target, r->cap * sizeof *r->target);
        r->coef = mem_realloc(r->coef, r->cap * sizeof *r->coef);
    }
    int i = r->n++;
    r->token[i] = token;
    r->first[i] = first;
    r->target[i] = target;
    r->coef[i] = coef;
}

void twin_rows_prompt(struct twin_rows *r, const int *prompt, int n)
{
    ASSERT(r->n == 0 && n >= 1);
    for (int i = 0; i < n - 1; i++)
        add_row(r, prompt[i], 0, -1, 0);
    r->prompt = n - 1;
    r->last = prompt[n - 1];
}

void twin_rows_sample(struct twin_rows *r, const int *completion, int n, const double *coef)
{
    int first = r->n;
    for (int i = 0; i < n; i++)
        add_row(r, i == 0 ? r->last : completion[i - 1], first, completion[i], coef[i]);
}

void twin_rows_release(struct twin_rows *r)
{
    mem_free(r->token);
    mem_free(r->first);
    mem_free(r->target);
    mem_free(r->coef);
    *r = (struct twin_rows){0};
}

/* What a layer's backward needs of its forward; (n, width) each, see struct twin_attn for sizes. */
struct act {
    double *x;                 // residual stream before the layer
    double *a;                 // normed
    double *q_in, *k_in;       // before QK norm and rope
    double *q, *k, *v, *o;     // attention's inputs and output
    double *max, *sum;         // attention's statistics
    double *mid;               // residual stream after attention
    double *b, *gate, *up, *h; // normed, projections, SwiGLU
};

struct run {
    struct twin *t;
    enum twin_mode mode;
    const struct twin_rows *rows;
    void **owned; // every array of this run
    size_t n_owned, cap_owned;
};

/* A zero-filled (rows, width) array that lives as long as the run. */
static double *take(struct run *r, int width)
{
    mem_grow(&r->owned, &r->cap_owned, r->n_owned + 1, sizeof *r->owned);
    double *x = mem_calloc((size_t)r->rows->n * (size_t)width, sizeof *x);
    r->owned[r->n_owned++] = x;
    return x;
}

static double *take_copy(struct run *r, const double *x, int width)
{
    double *y = take(r, width);
    return memcpy(y, x, sizeof *y * (size_t)r->rows->n * (size_t)width);
}

static void round_rows(const struct run *r, double *x, int width)
{
    twin_round(r->mode, x, (size_t)r->rows->n * (size_t)width);
}

static void add_rows(const struct run *r, double *y, const double *x, int width)
{
    for (size_t i = 0; i < (size_t)r->rows->n * (size_t)width; i++)
        y[i] += x[i];
}

static void rope_rows(const struct run *r, double *x, int heads, bool inverse)
{
    int E = r->t->config.head_dim;
    for (int row = 0; row < r->rows->n; row++)
        for (int h = 0; h < heads; h++)
            twin_rope(&r->t->config, x + (row * heads + h) * E, twin_position(r->rows, row),
                      inverse);
}

/* Projections to queries or keys become attention's inputs: QK norm, rope, rounding. */
static double *heads_forward(struct run *r, const double *in, const struct twin_tensor *norm,
                             int heads)
{
    const struct twin_config *c = &r->t->config;
    double *x = take_copy(r, in, heads * c->head_dim);
    if (norm)
        twin_norm(x, in, norm, c->eps, r->rows->n * heads);
    rope_rows(r, x, heads, false);
    round_rows(r, x, heads * c->head_dim);
    return x;
}

/* Consumes dx, the gradient after rope; returns that of the projection, rounded. */
static double *heads_backward(struct run *r, double *dx, const double *in, struct twin_tensor *norm,
                              int heads)
{
    const struct twin_config *c = &r->t->config;
    double *din = dx;
    rope_rows(r, dx, heads, true);
    if (norm) {
        din = take(r, heads * c->head_dim);
        twin_norm_grad(din, norm, dx, in, c->eps, r->rows->n * heads);
    }
    round_rows(r, din, heads * c->head_dim);
    return din;
}

static struct twin_attn attention(const struct run *r, const struct act *s)
{
    return (struct twin_attn){.config = &r->t->config,
                              .rows = r->rows,
                              .mode = r->mode,
                              .q = s->q,
                              .k = s->k,
                              .v = s->v,
                              .o = s->o,
                              .max = s->max,
                              .sum = s->sum};
}

/* x += attention(norm(x)) */
static void attn_forward(struct run *r, const struct twin_layer *w, struct act *s, double *x)
{
    const struct twin_config *c = &r->t->config;
    int n = r->rows->n, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    s->x = take_copy(r, x, c->hidden);
    s->a = take(r, c->hidden);
    twin_norm(s->a, x, w->attn_norm, c->eps, n);
    round_rows(r, s->a, c->hidden);
    twin_linear(s->q_in = take(r, q), s->a, w->q, w->q_bias, n);
    twin_linear(s->k_in = take(r, kv), s->a, w->k, w->k_bias, n);
    twin_linear(s->v = take(r, kv), s->a, w->v, w->v_bias, n);
    s->q = heads_forward(r, s->q_in, w->q_norm, c->heads);
    s->k = heads_forward(r, s->k_in, w->k_norm, c->kv_heads);
    round_rows(r, s->v, kv);
    s->o = take(r, q);
    s->max = take(r, c->heads);
    s->sum = take(r, c->heads);
    struct twin_attn a = attention(r, s);
    twin_attn(&a);
    double *y = take(r, c->hidden);
    twin_linear(y, s->o, w->o, NULL, n);
    add_rows(r, x, y, c->hidden);
}

/* dx: from the gradient after the block to that before it. */
static void attn_backward(struct run *r, const struct twin_layer *w, const struct act *s,
                          double *dx)
{
    const struct twin_config *c = &r->t->config;
    int n = r->rows->n, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    double *dy = take_copy(r, dx, c->hidden);
    round_rows(r, dy, c->hidden);
    double *dout = take(r, q);
    twin_linear_grad(dout, w->o, NULL, dy, s->o, n);
    round_rows(r, dout, q);
    double *dq = take(r, q), *dk = take(r, kv), *dv = take(r, kv);
    struct twin_attn a = attention(r, s);
    twin_attn_grad(&a, dout, dq, dk, dv);
    dq = heads_backward(r, dq, s->q_in, w->q_norm, c->heads);
    dk = heads_backward(r, dk, s->k_in, w->k_norm, c->kv_heads);
    round_rows(r, dv, kv);
    double *da = take(r, c->hidden);
    twin_linear_grad(da, w->q, w->q_bias, dq, s->a, n);
    twin_linear_grad(da, w->k, w->k_bias, dk, s->a, n);
    twin_linear_grad(da, w->v, w->v_bias, dv, s->a, n);
    twin_norm_grad(dx, w->attn_norm, da, s->x, c->eps, n);
}

/* x += down(silu(gate(norm(x))) * up(norm(x))) */
static void ffn_forward(struct run *r, const struct twin_layer *w, struct act *s, double *x)
{
    const struct twin_config *c = &r->t->config;
    int n = r->rows->n;
    s->mid = take_copy(r, x, c->hidden);
    s->b = take(r, c->hidden);
    twin_norm(s->b, x, w->ffn_norm, c->eps, n);
    round_rows(r, s->b, c->hidden);
    twin_linear(s->gate = take(r, c->ffn), s->b, w->gate, NULL, n);
    twin_linear(s->up = take(r, c->ffn), s->b, w->up, NULL, n);
    s->h = take(r, c->ffn);
    twin_swiglu(s->h, s->gate, s->up, (size_t)n * (size_t)c->ffn);
    round_rows(r, s->h, c->ffn);
    double *y = take(r, c->hidden);
    twin_linear(y, s->h, w->down, NULL, n);
    add_rows(r, x, y, c->hidden);
}

/* dx: from the gradient after the block to that before it. */
static void ffn_backward(struct run *r, const struct twin_layer *w, const struct act *s, double *dx)
{
    const struct twin_config *c = &r->t->config;
    int n = r->rows->n;
    double *dy = take_copy(r, dx, c->hidden);
    round_rows(r, dy, c->hidden);
    double *dh = take(r, c->ffn), *dgate = take(r, c->ffn), *dup = take(r, c->ffn);
    twin_linear_grad(dh, w->down, NULL, dy, s->h, n);
    twin_swiglu_grad(dgate, dup, dh, s->gate, s->up, (size_t)n * (size_t)c->ffn);
    round_rows(r, dgate, c->ffn);
    round_rows(r, dup, c->ffn);
    double *db = take(r, c->hidden);
    twin_linear_grad(db, w->gate, NULL, dgate, s->b, n);
    twin_linear_grad(db, w->up, NULL, dup, s->b, n);
    twin_norm_grad(dx, w->ffn_norm, db, s->mid, c->eps, n);
}

/* Final norm, head and loss, forward and backward: x becomes log-probabilities and entropies, dx
   (zero before) the loss's gradient by x. Returns the loss. */
static double head(struct run *r, const double *x, double *dx, double *logprob, double *entropy)
{
    struct twin *t = r->t;
    const struct twin_rows *rows = r->rows;
    int n = rows->n, V = t->config.vocab, D = t->config.hidden;
    double *f = take(r, D), *logits = take(r, V), *dlogits = take(r, V), *df = take(r, D);
    double loss = 0;
    twin_norm(f, x, t->norm, t->config.eps, n);
    round_rows(r, f, D);
    twin_linear(logits, f, t->head, NULL, n);
    for (int i = 0; i < n; i++) {
        struct twin_softmax s = {0};
        if (rows->target[i] >= 0) {
            s = twin_softmax(logits + i * V, V, rows->temperature, rows->target[i]);
            loss += rows->coef[i] * s.logprob;
            twin_softmax_grad(dlogits + i * V, logits + i * V, V, rows->temperature,
                              rows->target[i], s.lse, rows->coef[i]);
        }
        if (logprob)
            logprob[i] = s.logprob;
        if (entropy)
            entropy[i] = s.entropy;
    }
    round_rows(r, dlogits, V);
    twin_linear_grad(df, t->head, NULL, dlogits, f, n);
    twin_norm_grad(dx, t->norm, df, x, t->config.eps, n);
    return loss;
}

static void embed_forward(const struct run *r, double *x)
{
    int D = r->t->config.hidden;
    for (int i = 0; i < r->rows->n; i++)
        memcpy(x + i * D, r->t->embed->w + r->rows->token[i] * D, sizeof *x * (size_t)D);
}

static void embed_backward(const struct run *r, const double *dx)
{
    int D = r->t->config.hidden;
    for (int i = 0; i < r->rows->n; i++)
        for (int j = 0; j < D; j++)
            r->t->embed->g[r->rows->token[i] * D + j] += dx[i * D + j];
}

double twin_run(struct twin *t, enum twin_mode mode, const struct twin_rows *rows, double *logprob,
                double *entropy)
{
    struct run r = {.t = t, .mode = mode, .rows = rows};
    int L = t->config.layers;
    struct act *s = mem_calloc((size_t)L, sizeof *s);
    double *x = take(&r, t->config.hidden), *dx = take(&r, t->config.hidden);
    embed_forward(&r, x);
    for (int l = 0; l < L; l++) {
        attn_forward(&r, &t->layer[l], &s[l], x);
        ffn_forward(&r, &t->layer[l], &s[l], x);
    }
    double loss = head(&r, x, dx, logprob, entropy);
    for (int l = L - 1; l >= 0; l--) {
        ffn_backward(&r, &t->layer[l], &s[l], dx);
        attn_backward(&r, &t->layer[l], &s[l], dx);
    }
    embed_backward(&r, dx);
    for (size_t i = 0; i < r.n_owned; i++)
        mem_free(r.owned[i]);
    mem_free(r.owned);
    mem_free(s);
    return loss;
}

double twin_logprob_bound(int layers, double gain, double spread)
{
    const double rounding = 1.66e-3; // relative rms error of a bf16
    double r = 0;                    // of the residual stream: (relative error / rounding)^2
    for (int j = 1; j <= 2 * layers; j += 2) {
        r += (2 * gain * r + 4 + 4 * gain) / j; // attention
        r += (r + 3) / (j + 1);                 // feed-forward
    }
    return 2 * rounding * spread * sqrt(fmin(r + 1, 2 / (rounding * rounding)));
}
