/* The private interface inside one kernel level.
 *
 * A level's .c defines LV_NAME, includes vec.h (sixteen floats), then its matrix primitives
 * (gemm_portable.inc or gemm_avx2.inc, declared here), then gemm.inc, rows.inc and attn.inc, which
 * are written once over them and define `static ... op_NAME` for every NAME in KERN_OPS. Everything
 * is static: a level exports its table (kern_portable, kern_avx2) and nothing else.
 *
 * Operands. An "A operand" is m rows, depth deep; a "B operand" is n columns, depth deep, in panels
 * of LV_PANEL columns. depth is round_up(k, 32); what lies between k and depth is zero, in both.
 * The inside is the level's own: only lv_b_index says where an element of a panel lies. A packed B
 * ends in KERN_GUARD bytes that are read and ignored, and its panels follow each other at
 * lv_panel_bytes.
 *
 * The `_at` forms pack k values into depth [k0, k0 + round_up(k, 32)) of an operand of that depth
 * (k0 a multiple of 32), so that several pieces make one operand.
 *
 *     lv_pack_a(a, x, ldx, m, k);                      // a: lv_a_bytes(m, k)
 *     lv_mul(a, b, c, ldc, GEMM_STORE, m, n, k);       // C[m, n] = A[m, k] B[k, n]
 */
#pragma once

#include "kern/kern.h"

enum { LV_PANEL = 16 }; // Columns per panel at every level that has no tiles.

#define LV static __attribute__((unused))

/* The depth of an operand for k values. */
LV inline int lv_depth(int k)
{
    return (k + 31) & ~31;
}

/* Bytes of an A operand. 64-byte alignment is best, 4 suffice. */
LV size_t lv_a_bytes(int m, int k);

/* A[i][j] = src[i * ld + j]: m rows of k values. */
LV void lv_pack_a_at(void *dst, int depth, int k0, const bf16 *src, size_t ld, int m, int k);

/* A[i][j] = src[j * ld + i]: k rows of m values, transposed. */
LV void lv_pack_a_t_at(void *dst, int depth, int k0, const bf16 *src, size_t ld, int m, int k);

/* Panels [p0, p1) of B[j][c] = src[c * ld + j]: n rows of k values (reduction along a row). */
LV void lv_pack_b_nk(void *dst, const bf16 *src, size_t ld, int n, int k, int p0, int p1);

/* Panels [p0, p1) of B[j][c] = src[j * ld + c]: k rows of n values (reduction down the rows). */
LV void lv_pack_b_kn_at(void *dst, int depth, int k0, const bf16 *src, size_t ld, int n, int k,
                        int p0, int p1);

/* The way back from either packing: dst[j * ld + c] = B[j][c], k rows of whole panels of columns.
 */
LV void lv_unpack_b(bf16 *dst, size_t ld, const void *b, int n, int k);

/* Where B[j][c] lies, c < LV_PANEL, counted in bf16 from the start of a panel (any depth). */
LV size_t lv_b_index(int j, int c);

/* C (op)= A B over depth values of k. The panels of b are `panel_depth` deep: b may point at a k
   block inside them (a multiple of 32: + k0 * LV_PANEL bf16). Columns >= n of C are not touched. */
LV void lv_mul_at(const void *a, const void *b, int panel_depth, float *c, size_t ldc,
                  enum gemm_mode mode, int m, int n, int depth);

/* Scratch that attn and attn_grad take for head width E (any number of rows); in attn.inc. */
static size_t attn_scratch_bytes(int E);

/* ---- shorthands ---- */

LV inline void lv_pack_a(void *dst, const bf16 *src, size_t ld, int m, int k)
{
    lv_pack_a_at(dst, lv_depth(k), 0, src, ld, m, k);
}

LV inline void lv_pack_a_t(void *dst, const bf16 *src, size_t ld, int m, int k)
{
    lv_pack_a_t_at(dst, lv_depth(k), 0, src, ld, m, k);
}

LV inline void lv_pack_b_kn(void *dst, const bf16 *src, size_t ld, int n, int k, int p0, int p1)
{
    lv_pack_b_kn_at(dst, lv_depth(k), 0, src, ld, n, k, p0, p1);
}

LV inline void lv_mul(const void *a, const void *b, float *c, size_t ldc, enum gemm_mode mode,
                      int m, int n, int k)
{
    lv_mul_at(a, b, lv_depth(k), c, ldc, mode, m, n, lv_depth(k));
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
