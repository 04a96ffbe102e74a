/* Checks of packing and matrix products. Packed layouts are a level's own, so packers are checked
   through products: the identity times B gives B back exactly. */
#include "kern/kern.h"
#include "kern/check_int.h"

#include <math.h>
#include <string.h>

static void multiply(struct check *c, const struct kern *k, struct gemm g, float *out)
{
    g.c = out;
    g.scratch = check_scratch(c, k, g.k, 64);
    k->gemm(&g);
}

/* packed is B[depth, n], and B[j, x] is w[j * step_j + x * step_x]. */
static void holds(struct check *c, const void *packed, int n, int depth, const bf16 *w,
                  size_t step_j, size_t step_x)
{
    bf16 *one = check_out_bf16(c, (size_t)depth * depth);
    for (int i = 0; i < depth * depth; i++)
        one[i] = i % (depth + 1) == 0 ? 0x3f80 : 0;
    float *out = check_out(c, (size_t)depth * n);
    struct gemm g = {.a = one, .lda = (size_t)depth, .b = packed, .ldc = (size_t)n};
    g.m = g.k = depth;
    g.n = n;
    multiply(c, c->k, g, out);
    for (int j = 0; j < depth; j++)
        for (int x = 0; x < n; x++)
            check_near(c, out[(size_t)j * n + x], bf16_to(w[j * step_j + x * step_x]), 0);
    c->v.compared += (int64_t)depth * n;
}

/* One packer on all panels, in two calls as two threads would. */
static void packer(struct check *c, bool nk)
{
    for (int i = 0; i < 60; i++) {
        arena_reset(&c->arena, 0);
        int n = check_edge(c, i), k = check_edge(c, i < 19 ? i : -1);
        size_t ld = (size_t)(nk ? k : n) + (size_t)check_below(c, 3);
        bf16 *w = nk ? check_matrix(c, n, k, ld, 1) : check_matrix(c, k, n, ld, 1);
        size_t bytes = kern_packed_bytes(c->k, n, k);
        void *packed = memset(check_bytes(c, bytes), 0xff, bytes);
        int panels = kern_panels(c->k, n), cut = check_below(c, panels + 1);
        (nk ? c->k->pack_nk : c->k->pack_kn)(packed, w, ld, n, k, cut, panels);
        (nk ? c->k->pack_nk : c->k->pack_kn)(packed, w, ld, n, k, 0, cut);
        holds(c, packed, n, k, w, nk ? 1 : ld, nk ? ld : 1);
    }
}

void check_pack_nk(struct check *c)
{
    packer(c, true);
}

void check_pack_kn(struct check *c)
{
    packer(c, false);
}

/* Rows of x in segments with foreign rows between them. */
struct rows {
    struct segment segment[4];
    int n, rows, depth; // segments; rows of x, foreign ones included; depth of the packed operand
};

static struct rows cut_rows(struct check *c, int longest)
{
    struct rows r = {.n = 1 + check_below(c, 4)};
    for (int i = 0; i < r.n; i++) {
        struct segment s = {.row = r.rows + check_below(c, 3), .n = 1 + check_below(c, longest)};
        r.segment[i] = s;
        r.rows = s.row + s.n;
        r.depth += (int)round_up((size_t)s.n, GEMM_STEP);
    }
    return r;
}

/* cols values in the rows that segments name, NaN in all others. */
static bf16 *segment_rows(struct check *c, const struct rows *r, int cols, size_t ld, float scale)
{
    bf16 *x = check_out_bf16(c, (size_t)r->rows * ld);
    for (int i = 0; i < r->n; i++)
        memcpy(x + (size_t)r->segment[i].row * ld,
               check_matrix(c, r->segment[i].n, cols, ld, scale),
               (size_t)r->segment[i].n * ld * sizeof *x);
    return x;
}

static void *packed_segments(struct check *c, const struct kern *k, const struct rows *r,
                             const bf16 *x, size_t ld, int n)
{
    size_t bytes = kern_packed_bytes(k, n, r->depth);
    void *packed = memset(check_bytes(c, bytes), 0xff, bytes);
    int panels = kern_panels(k, n), cut = check_below(c, panels + 1);
    k->pack_segments(packed, x, ld, n, r->segment, r->n, cut, panels);
    k->pack_segments(packed, x, ld, n, r->segment, r->n, 0, cut);
    return packed;
}

/* A packed x is wgrad's alone: the gradient for the identity as dy gives x back. */
void check_pack_segments(struct check *c)
{
    for (int i = 0; i < 30; i++) {
        arena_reset(&c->arena, 0);
        int n = check_edge(c, -1);
        size_t ld = (size_t)n + 3;
        struct rows r = cut_rows(c, 70);
        bf16 *x = segment_rows(c, &r, n, ld, 1), *one = check_out_bf16(c, (size_t)r.rows * r.rows);
        for (int j = 0; j < r.rows * r.rows; j++)
            one[j] = j % (r.rows + 1) == 0 ? 0x3f80 : 0;
        size_t bytes = (size_t)r.rows * n * sizeof(float);
        float *dw = memset(check_out(c, (size_t)r.rows * n), 0, bytes);
        c->k->wgrad(&(struct wgrad){.dy = one,
                                    .ldy = (size_t)r.rows,
                                    .segment = r.segment,
                                    .n_segments = r.n,
                                    .x = packed_segments(c, c->k, &r, x, ld, n),
                                    .n_in = n,
                                    .out_hi = r.rows,
                                    .dw = dw,
                                    .ld_dw = (size_t)n,
                                    .scratch = check_scratch(c, c->k, 32, 64)});
        for (int s = 0; s < r.n; s++)
            for (int row = r.segment[s].row; row < r.segment[s].row + r.segment[s].n; row++)
                for (int j = 0; j < n; j++)
                    check_near(c, dw[(size_t)row * n + j], bf16_to(x[row * ld + j]), 0);
        c->v.compared += (int64_t)r.rows * n;
    }
}

/* Roundings in a sum of n products: a chain of 16, its two joins, then one per step of 32. */
static double chain(int n)
{
    return (n + GEMM_STEP - 1) / GEMM_STEP + 20;
}

/* An element of a product against the plain sum of its terms and what it was added to. */
static void near_dot(struct check *c, float got, double sum, double magnitude, int n)
{
    check_near(c, got, sum, chain(n) * CHECK_U * magnitude + n * 0x1p-126);
}

static void near_product(struct check *c, const struct gemm *g, const bf16 *w, size_t ldw,
                         const float *before)
{
    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < g->n; j++) {
            double x = g->mode == GEMM_STORE ? 0 : before[(size_t)i * g->ldc + j], sum = x;
            double magnitude = fabs(x);
            for (int k = 0; k < g->k; k++) {
                double t = (double)bf16_to(g->a[(size_t)i * g->lda + k]) * bf16_to(w[j * ldw + k]);
                sum += t;
                magnitude += fabs(t);
            }
            near_dot(c, g->c[(size_t)i * g->ldc + j], sum, magnitude, g->k);
        }
}

static void product(struct check *c, int m, int n, int k, float scale, bool special)
{
    arena_reset(&c->arena, 0);
    size_t lda = (size_t)k + (size_t)check_below(c, 3), ldc = (size_t)n + (size_t)check_below(c, 3);
    bf16 *a = check_matrix(c, m, k, lda, scale), *w = check_matrix(c, n, k, lda, scale);
    if (special) {
        a[(size_t)check_below(c, m) * lda + check_below(c, k)] = 0x7f80; // +inf
        a[(size_t)check_below(c, m) * lda + check_below(c, k)] = 0x7fc1; // a NaN
        w[(size_t)check_below(c, n) * lda + check_below(c, k)] = 0xff80; // -inf
    }
    float *before = check_floats(c, (size_t)m * ldc, scale);
    struct gemm g = {.a = a, .lda = lda, .ldc = ldc, .m = m, .n = n, .k = k};
    g.mode = (enum gemm_mode)check_below(c, 3);
    float *x = check_copy(c, before, (size_t)m * ldc), *y = check_copy(c, before, (size_t)m * ldc);
    g.b = check_packed(c, c->oracle, w, lda, n, k);
    multiply(c, c->oracle, g, y);
    g.b = check_packed(c, c->k, w, lda, n, k);
    multiply(c, c->k, g, x);
    check_same(c, x, y, (size_t)m * ldc);
    g.c = x;
    near_product(c, &g, w, lda, before);
    for (int i = 0; i < m; i++)
        check_that(c, memcmp(x + i * ldc + n, before + i * ldc + n, (ldc - n) * 4) == 0);
}

void check_gemm(struct check *c)
{
    for (int i = 0; i < 100; i++)
        product(c, check_edge(c, i), check_edge(c, -1), check_edge(c, -1), 1, false);
    static const int deep[] = {1023, 1024, 1025, 1056, 1537, 2080};
    for (size_t i = 0; i < ARRAY_LEN(deep); i++)
        for (int m = 1; m < 7; m++)
            product(c, m, 20, deep[i], 1, false);
    product(c, 3, 530, 1100, 1, false);
    for (int i = 0; i < 10; i++)
        product(c, check_edge(c, -1), check_edge(c, -1), check_edge(c, -1), 1, true);
    for (int i = 0; c->flushed && i < 20; i++) // products around the smallest normal float
        product(c, 9, 33, 97, 4e-19f, false);
}

static void weight_gradient(struct check *c, int longest, float scale)
{
    arena_reset(&c->arena, 0);
    struct rows r = cut_rows(c, longest);
    int n_out = check_edge(c, -1), n_in = check_edge(c, -1), lo = check_below(c, n_out);
    int hi = lo + 1 + check_below(c, n_out - lo);
    size_t ldy = (size_t)n_out + 1, ldx = (size_t)n_in + 2, ld = (size_t)n_in + 1;
    bf16 *dy = segment_rows(c, &r, n_out, ldy, scale);
    bf16 *x = segment_rows(c, &r, n_in, ldx, scale);
    float *before = check_floats(c, (size_t)n_out * ld, scale), *out[2];
    const struct kern *level[2] = {c->k, c->oracle};
    for (int i = 0; i < 2; i++) {
        out[i] = check_copy(c, before, (size_t)n_out * ld);
        struct wgrad g = {.dy = dy, .ldy = ldy, .segment = r.segment, .n_segments = r.n};
        g.x = packed_segments(c, level[i], &r, x, ldx, n_in);
        g.n_in = n_in;
        g.out_lo = lo;
        g.out_hi = hi;
        g.dw = out[i];
        g.ld_dw = ld;
        g.scratch = check_scratch(c, level[i], 32, 64);
        level[i]->wgrad(&g);
    }
    check_same(c, out[0], out[1], (size_t)n_out * ld);
    for (int o = 0; o < n_out; o++)
        for (int j = 0; j < (int)ld; j++) {
            double sum = before[o * ld + j], magnitude = fabs(sum);
            for (int s = 0; s < r.n && o >= lo && o < hi && j < n_in; s++)
                for (int i = r.segment[s].row; i < r.segment[s].row + r.segment[s].n; i++) {
                    double t = (double)bf16_to(dy[i * ldy + o]) * bf16_to(x[i * ldx + j]);
                    sum += t;
                    magnitude += fabs(t);
                }
            near_dot(c, out[0][o * ld + j], sum, magnitude, r.depth);
        }
}

void check_wgrad(struct check *c)
{
    for (int i = 0; i < 40; i++)
        weight_gradient(c, 70, 1);
    for (int i = 0; i < 6; i++)
        weight_gradient(c, 1300, 1);
    for (int i = 0; c->flushed && i < 20; i++) // products around the smallest normal float
        weight_gradient(c, 9, 4e-19f);
}

void check_kv_put(struct check *c)
{
    static const int widths[] = {8, 16, 24, 32, 64, 80, 96, 128};
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        arena_reset(&c->arena, 0);
        const int E = widths[i];
        float *k = check_floats(c, (size_t)KV_BLOCK * E, 1);
        float *v = check_floats(c, (size_t)KV_BLOCK * E, 1);
        char *block = memset(check_bytes(c, c->k->kv_bytes(E)), 0, c->k->kv_bytes(E));
        for (int t = 0, slot; t < KV_BLOCK; t++) {
            slot = t * 5 % KV_BLOCK; // each once, out of order
            c->k->kv_put(block, E, slot, (struct kv_row){k + slot * E, v + slot * E});
        }
        bf16 *kb = check_out_bf16(c, (size_t)KV_BLOCK * E);
        bf16 *vb = check_out_bf16(c, (size_t)KV_BLOCK * E);
        for (int j = 0; j < KV_BLOCK * E; j++) {
            kb[j] = bf16_from(k[j]);
            vb[j] = bf16_from(v[j]);
        }
        holds(c, block, KV_BLOCK, E, kb, 1, (size_t)E);
        holds(c, block + kern_packed_bytes(c->k, KV_BLOCK, E), E, KV_BLOCK, vb, (size_t)E, 1);
    }
}
