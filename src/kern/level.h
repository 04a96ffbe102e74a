/* The private interface inside one kernel level.
 *
 * A level's .c defines LV_NAME, includes vec.h (sixteen floats), then its matrix primitives
 * (gemm_portable.inc or gemm_avx2.inc, declared here), then gemm.inc, rows.inc and attn.inc, which
 * are written once over them and define `static ... op_NAME` for every NAME in KERN_OPS. Everything
 * is static: a level exports its table (kern_portable, kern_avx2) and nothing else.
 *
 * Operands. An "A operand" is m rows, depth deep; a "B operand" is n columns, depth deep, in panels
 * of LV_PANEL columns. depth is round_up(k, GEMM_STEP); what lies between k and depth is zero, in
 * both. The inside is the level's own: only lv_b_index says where an element of a panel lies. A
 * packed B ends in KERN_GUARD bytes that are read and ignored, and its panels follow each other at
 * lv_panel_bytes.
 *
 * The `_at` forms pack k values, from depth k0 on, into an operand that has `depth` in all, so that
 * several pieces make one operand. A piece is cut into steps of 32; what is short of a step at its
 * end is either zero-filled to one (FILL_STEP), or to a pair, which is all that is stored of it and
 * multiplied (FILL_PAIR: round_up(k, 2) deep). Runs of steps of equal size say what an operand
 * holds. A short step gives the bits of one filled with zeros: what it leaves out is fma(0, 0,
 * sum), which changes -0 to +0 and nothing else, and one addition of +0 to both of its sums does
 * that too.
 *
 *     lv_pack_a(a, x, ldx, m, k);                      // a: lv_a_bytes(m, k)
 *     lv_mul(a, b, c, ldc, GEMM_STORE, m, n, k);       // C[m, n] = A[m, k] B[k, n]
 */
#pragma once

#include "kern/kern.h"

enum { LV_PANEL = 16 }; // Columns per panel at every level that has no tiles.

#define LV static __attribute__((unused))

enum lv_fill { FILL_STEP, FILL_PAIR };

/* `steps` steps of `pairs` pairs of k, 16 in a whole one. */
struct lv_run {
    int steps, pairs;
};

/* The pairs of a step of `rows` values of k, GEMM_STEP at most. */
LV inline int lv_pairs(int rows, enum lv_fill fill)
{
    return fill == FILL_STEP ? 16 : (rows + 1) / 2;
}

/* The depth of an operand for k values. */
LV inline int lv_depth(int k)
{
    return (k + GEMM_STEP - 1) & ~(GEMM_STEP - 1);
}

/* Bytes of an A operand. 64-byte alignment is best, 4 suffice. */
LV size_t lv_a_bytes(int m, int k);

/* A[i][j] = src[i * ld + j]: m rows of k values. */
LV void lv_pack_a_at(void *dst, int depth, int k0, const bf16 *src, size_t ld, int m, int k);

/* A[i][j] = src[j * ld + i]: k rows of m values, transposed. */
LV void lv_pack_a_t_at(void *dst, int depth, int k0, const bf16 *src, size_t ld, int m, int k,
                       enum lv_fill fill);

/* Panels [p0, p1) of B[j][c] = src[c * ld + j]: n rows of k values (reduction along a row). */
LV void lv_pack_b_nk(void *dst, const bf16 *src, size_t ld, int n, int k, int p0, int p1);

/* Panels [p0, p1) of B[j][c] = src[j * ld + c]: k rows of n values (reduction down the rows). */
LV void lv_pack_b_kn_at(void *dst, int depth, int k0, const bf16 *src, size_t ld, int n, int k,
                        int p0, int p1, enum lv_fill fill);

/* The way back from either packing: dst[j * ld + c] = B[j][c], k rows of whole panels of columns.
 */
LV void lv_unpack_b(bf16 *dst, size_t ld, const void *b, int n, int k);

/* Where B[j][c] lies, c < LV_PANEL, counted in bf16 from the start of a panel (any depth). */
LV size_t lv_b_index(int j, int c);

/* C (op)= A B over n_runs runs of steps, which are all that A holds. The panels of b are
   `panel_depth` deep: b may point at a step inside them (+ k0 * LV_PANEL bf16). Columns >= n of C
   are not touched.
 */
LV void lv_mul_at(const void *a, const void *b, int panel_depth, float *c, size_t ldc,
                  enum gemm_mode mode, int m, int n, const struct lv_run *run, int n_runs);

/* Scratch that attn and attn_grad take for head width E (any number of rows); in attn.inc. */
static size_t attn_scratch_bytes(int E);

/* ---- shorthands ---- */

LV inline void lv_pack_a(void *dst, const bf16 *src, size_t ld, int m, int k)
{
    lv_pack_a_at(dst, lv_depth(k), 0, src, ld, m, k);
}

LV inline void lv_pack_a_t(void *dst, const bf16 *src, size_t ld, int m, int k)
{
    lv_pack_a_t_at(dst, lv_depth(k), 0, src, ld, m, k, FILL_STEP);
}

LV inline void lv_pack_b_kn(void *dst, const bf16 *src, size_t ld, int n, int k, int p0, int p1)
{
    lv_pack_b_kn_at(dst, lv_depth(k), 0, src, ld, n, k, p0, p1, FILL_STEP);
}

LV inline void lv_mul(const void *a, const void *b, float *c, size_t ldc, enum gemm_mode mode,
                      int m, int n, int k)
{
    const struct lv_run whole = {.steps = lv_depth(k) / GEMM_STEP, .pairs = 16};
    lv_mul_at(a, b, lv_depth(k), c, ldc, mode, m, n, &whole, 1);
}

/* The depth of runs: what A is deep. */
LV inline int lv_runs_depth(const struct lv_run *run, int n_runs)
{
    int depth = 0;
    for (int i = 0; i < n_runs; i++)
        depth += run[i].steps * run[i].pairs * 2;
    return depth;
}

LV inline int lv_panels(int n)
{
    return (n + LV_PANEL - 1) / LV_PANEL;
}

LV inline size_t lv_panel_bytes(int k)
{
    return (size_t)lv_depth(k) * LV_PANEL * sizeof(bf16);
}

LV inline size_t lv_b_bytes(int n, int k)
{
    return (size_t)lv_panels(n) * lv_panel_bytes(k) + KERN_GUARD;
}

/* ---- one key block: K is a B operand of 32 columns (keys), E deep; V one of E columns, 32 deep */

LV inline size_t lv_kv_bytes(int E)
{
    return lv_b_bytes(KV_BLOCK, E) + lv_b_bytes(E, KV_BLOCK);
}

/* The V part of a block; its K part is the block itself. */
LV inline const void *lv_kv_v(const void *block, int E)
{
    return (const char *)block + lv_b_bytes(KV_BLOCK, E);
}
