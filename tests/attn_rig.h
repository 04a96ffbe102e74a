/* Attention cases at random, and a level at work on them: blocks, scratch and padded buffers that
 * are checked for what nobody may touch. Include it after check.h. */
#pragma once

#include "attn_oracle.h"

#include "base/mem.h"
#include "base/rng.h"

enum {
    PAD = 5, // Columns after each row of a buffer, which nobody may touch.
    FILL = 0xff,
};

#define EACH_LEVEL(k)                                                                              \
    for (const struct kern *const *k = kern_levels(); *k; k++)                                     \
        if (kern_usable(*k))

/* ---- cases ---- */

/* bf16 values, uniform in (-range, range), named by what and id. */
static inline double *draw(size_t n, double range, uint32_t what, uint32_t id)
{
    double *x = mem_alloc(n * sizeof *x + 1);
    uint64_t key = rng_key(check_seed(), RNG_DATA);
    for (size_t i = 0; i < n; i++)
        x[i] = bf16_to(
            bf16_from((float)(range * (2 * rng_uniform(key, (uint32_t)i, what, id, 0) - 1))));
    return x;
}

/* q and k so wide that scores spread by several nats and the running maximum moves. */
static inline struct attn_case case_new(int E, int heads, int pos, int n, uint32_t id)
{
    size_t rows = (size_t)n * heads * E, keys = (size_t)(pos + n) * E;
    return (struct attn_case){E,
                              heads,
                              pos,
                              n,
                              draw(rows, 3, 0, id),
                              draw(rows, 1, 1, id),
                              draw(keys, 3, 2, id),
                              draw(keys, 1, 3, id)};
}

static inline void case_free(struct attn_case *c)
{
    mem_free(c->q);
    mem_free(c->dout);
    mem_free(c->k);
    mem_free(c->v);
}

static inline struct attn_saved saved_new(const struct attn_case *c)
{
    size_t rows = (size_t)c->n * c->heads;
    return (struct attn_saved){mem_calloc(rows * c->E, sizeof(bf16)),
                               mem_calloc(rows, sizeof(float)), mem_calloc(rows, sizeof(float))};
}

static inline void saved_free(struct attn_saved *s)
{
    mem_free(s->out);
    mem_free(s->max);
    mem_free(s->inv);
}

static inline void assert_same_saved(const struct attn_case *c, const struct attn_saved *a,
                                     const struct attn_saved *b)
{
    size_t rows = (size_t)c->n * c->heads;
    assert_memory_equal(a->out, b->out, rows * c->E * sizeof(bf16));
    assert_memory_equal(a->max, b->max, rows * sizeof(float));
    assert_memory_equal(a->inv, b->inv, rows * sizeof(float));
}

static inline struct attn_sums sums_new(const struct attn_case *c)
{
    size_t keys = (size_t)(c->pos + c->n) * c->E;
    return (struct attn_sums){mem_calloc((size_t)c->n * c->heads * c->E, sizeof(float)),
                              mem_calloc(keys, sizeof(float)), mem_calloc(keys, sizeof(float))};
}

static inline void sums_free(struct attn_sums *g)
{
    mem_free(g->dq);
    mem_free(g->dk);
    mem_free(g->dv);
}

static inline void assert_same_sums(const struct attn_case *c, const struct attn_sums *a,
                                    const struct attn_sums *b)
{
    size_t keys = (size_t)(c->pos + c->n) * c->E;
    assert_memory_equal(a->dq, b->dq, (size_t)c->n * c->heads * c->E * sizeof(float));
    assert_memory_equal(a->dk, b->dk, keys * sizeof(float));
    assert_memory_equal(a->dv, b->dv, keys * sizeof(float));
}

/* ---- a level at work ---- */

/* Key blocks behind a table, and scratch with a guard after it. */
struct rig {
    const struct kern *k;
    struct arena arena;
    const void **table;
    size_t scratch_bytes;
    unsigned char *scratch, fill; // scratch is filled with `fill` before each call
};

static inline void rig_put(const struct rig *r, const struct attn_case *c, int key)
{
    float k[256], v[256];
    for (int i = 0; i < c->E; i++) {
        k[i] = (float)c->k[(size_t)key * c->E + i];
        v[i] = (float)c->v[(size_t)key * c->E + i];
    }
    void *block = (void *)(uintptr_t)r->table[key / KV_BLOCK];
    r->k->kv_put(block, c->E, key % KV_BLOCK, (struct kv_row){k, v});
}

/* Zeroed blocks for all of c's keys, of which the first `keys` are put. */
static inline struct rig rig_open(const struct kern *k, const struct attn_case *c, int keys)
{
    size_t blocks = ((size_t)(c->pos + c->n) + KV_BLOCK - 1) / KV_BLOCK;
    size_t table = blocks * sizeof(void *), block = k->kv_bytes(c->E);
    struct rig r = {.k = k, .scratch_bytes = k->scratch_bytes(c->E, c->E), .fill = FILL};
    struct err e = {0};
    check_ok(arena_init(&r.arena, "attention",
                        arena_cost(table) + blocks * arena_cost(block) +
                            arena_cost(r.scratch_bytes + 64),
                        &e),
             e);
    r.table = arena_alloc(&r.arena, table);
    for (size_t i = 0; i < blocks; i++)
        r.table[i] = arena_alloc(&r.arena, block);
    r.scratch = arena_alloc(&r.arena, r.scratch_bytes + 64);
    for (int key = 0; key < keys; key++)
        rig_put(&r, c, key);
    return r;
}

static inline void rig_close(struct rig *r)
{
    arena_release(&r->arena);
}

static inline void scratch_fill(const struct rig *r)
{
    memset(r->scratch, r->fill, r->scratch_bytes);
    memset(r->scratch + r->scratch_bytes, 0x5a, 64);
}

static inline void scratch_check(const struct rig *r)
{
    for (int i = 0; i < 64; i++)
        assert_int_equal(r->scratch[r->scratch_bytes + i], 0x5a);
}

/* n rows of `wide` values between an array without padding and one with. */
static inline void pad_rows(void *padded, void *plain, size_t n, size_t wide, size_t size,
                            bool to_padded)
{
    for (size_t i = 0; i < n; i++) {
        char *a = (char *)padded + i * (wide + PAD) * size, *b = (char *)plain + i * wide * size;
        memcpy(to_padded ? a : b, to_padded ? b : a, wide * size);
    }
}

static inline void *padded_new(size_t n, size_t wide, size_t size)
{
    char *p = mem_alloc(n * (wide + PAD) * size + 1);
    memset(p, FILL, n * (wide + PAD) * size);
    return p;
}

static inline void padded_check(const void *p, size_t n, size_t wide, size_t size)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = wide * size; j < (wide + PAD) * size; j++)
            assert_int_equal(((const unsigned char *)p)[i * (wide + PAD) * size + j], FILL);
}

static inline bf16 *padded_bf16(const double *x, size_t n, size_t wide)
{
    bf16 *p = padded_new(n, wide, sizeof *p);
    for (size_t i = 0; i < n * wide; i++)
        p[i / wide * (wide + PAD) + i % wide] = bf16_from((float)x[i]);
    return p;
}

/* Rows [lo, hi) of c. */
static inline void forward(const struct rig *r, const struct attn_case *c, int lo, int hi,
                           struct attn_saved *s)
{
    size_t wide = (size_t)c->heads * c->E, n = (size_t)(hi - lo), at = (size_t)lo * c->heads;
    bf16 *q = padded_bf16(c->q + (size_t)lo * wide, n, wide);
    bf16 *out = padded_new(n, wide, sizeof *out);
    scratch_fill(r);
    r->k->attn(&(struct attn){.q = q,
                              .ldq = wide + PAD,
                              .n = (int)n,
                              .n_heads = c->heads,
                              .E = c->E,
                              .pos = c->pos + lo,
                              .kv = r->table,
                              .scale = 1 / sqrtf((float)c->E),
                              .out = out,
                              .ldo = wide + PAD,
                              .max = s->max + at,
                              .inv_sum = s->inv + at,
                              .scratch = r->scratch});
    scratch_check(r);
    padded_check(out, n, wide, sizeof *out);
    pad_rows(out, s->out + (size_t)lo * wide, n, wide, sizeof *out, false);
    mem_free(q);
    mem_free(out);
}

/* Continues g->dk and g->dv, whose keys below split travel as the prompt's. */
static inline void backward(const struct rig *r, const struct attn_case *c, int split,
                            const struct attn_saved *s, struct attn_sums *g)
{
    size_t E = (size_t)c->E, wide = (size_t)c->heads * E, n = (size_t)c->n, lo = (size_t)split;
    size_t hi = (size_t)(c->pos + c->n - split), f = sizeof(float);
    bf16 *q = padded_bf16(c->q, n, wide), *dout = padded_bf16(c->dout, n, wide);
    bf16 *out = padded_new(n, wide, sizeof *out);
    float *dq = padded_new(n, wide, f);
    float *part[4] = {padded_new(lo, E, f), padded_new(lo, E, f), padded_new(hi, E, f),
                      padded_new(hi, E, f)};
    float *whole[4] = {g->dk, g->dv, g->dk + lo * E, g->dv + lo * E};
    pad_rows(out, s->out, n, wide, sizeof *out, true);
    for (int i = 0; i < 4; i++)
        pad_rows(part[i], whole[i], i < 2 ? lo : hi, E, f, true);
    scratch_fill(r);
    r->k->attn_grad(&(struct attn_grad){.q = q,
                                        .dout = dout,
                                        .out = out,
                                        .ldq = wide + PAD,
                                        .ldo = wide + PAD,
                                        .n = c->n,
                                        .n_heads = c->heads,
                                        .E = c->E,
                                        .pos = c->pos,
                                        .split = split,
                                        .kv = r->table,
                                        .scale = 1 / sqrtf((float)c->E),
                                        .max = s->max,
                                        .inv_sum = s->inv,
                                        .dq = dq,
                                        .ld_dq = wide + PAD,
                                        .dk_lo = part[0],
                                        .dv_lo = part[1],
                                        .ld_lo = E + PAD,
                                        .dk_hi = part[2],
                                        .dv_hi = part[3],
                                        .ld_hi = E + PAD,
                                        .scratch = r->scratch});
    scratch_check(r);
    padded_check(dq, n, wide, f);
    pad_rows(dq, g->dq, n, wide, f, false);
    for (int i = 0; i < 4; i++) {
        padded_check(part[i], i < 2 ? lo : hi, E, f);
        pad_rows(part[i], whole[i], i < 2 ? lo : hi, E, f, false);
        mem_free(part[i]);
    }
    mem_free(q);
    mem_free(dout);
    mem_free(out);
    mem_free(dq);
}

/* All of c on a level: forward, then backward onto zeros. */
static inline void run(const struct kern *k, const struct attn_case *c, int split,
                       struct attn_saved *s, struct attn_sums *g)
{
    struct rig r = rig_open(k, c, c->pos + c->n);
    forward(&r, c, 0, c->n, s);
    backward(&r, c, split, s, g);
    rig_close(&r);
}
