/* Kernels: every floating-point loop that decides bits, once per instruction-set level.
 *
 * A level is one `struct kern`: a data sheet and function pointers, never NULL. All levels give the
 * same bits (level-invariance); docs/NUMERICS.md is the law they implement and says why. The
 * promises, per operator:
 *
 *   thread     kernels are single-threaded; callers split rows or columns, and a split never
 *              changes a bit
 *   rows       row i of a result depends on row i of the input and on the weights, not on how many
 *              rows there are or which (batch-invariance)
 *   path       attention visits keys in blocks of KV_BLOCK absolute positions, in order, whoever
 *              asks: decode, prefill, training
 *   order      a matrix product adds, per step of 32 k: the 16 even products by fused multiply-add
 *              from +0, the 16 odd ones likewise, even + odd, then + the accumulator: the order of
 *              the AMX tile instruction TDPBF16PS; steps ascend, K is never split otherwise
 *   lanes      row kernels sum over 16 lanes (element i in lane i mod 16, ascending, by fused
 *              multiply-add or addition as stated) and fold lanes 8+8, 4+4, 2+2, 1+1
 *
 * Kernels take pointers and sizes; they know no model, no clock, no telemetry. They never fail: a
 * broken contract is ASSERTed. Callers have denormals flushed (pool_flush_denormals). Pointers need
 * no alignment beyond their type's unless stated. restrict: outputs never overlap inputs unless a
 * contract says "may alias".
 *
 *     const struct kern *k = kern_best();              // or kern_find("avx2")
 *     k->pack_nk(packed, w, D, n_out, D, 0, kern_panels(k, n_out));
 *     k->gemm(&(struct gemm){.a = x, .lda = D, .m = rows, .k = D, .b = packed, .n = n_out,
 *                            .c = y, .ldc = n_out, .mode = GEMM_STORE, .scratch = s});
 *
 * A packed B ("B operand", n columns, k deep) is a sequence of panels of k->panel columns, each
 * round_up(k, GEMM_STEP) deep; columns past n and depth past k hold zeros. Its inside is the
 * level's own.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>

enum {
    GEMM_STEP = 32,      // k of one step of a matrix product: what one TDPBF16PS adds.
    KV_BLOCK = 32,       // Keys per attention block: one step where keys are the depth.
    VOCAB_CHUNK = 1024,  // Columns of the LM head that are ever materialised at once.
    KERN_GUARD = 64,     // Bytes after the last panel of a packed B that a level may read.
    SUMSQ_BLOCK = 65536, // Elements per partial sum of a gradient norm.
};

enum gemm_mode {
    GEMM_STORE,    // C = A B
    GEMM_ADD,      // C = C + A B: the product is summed from +0 first, then added once
    GEMM_CONTINUE, // accumulators start from C: C = ((C + step 0) + step 1) + ...
};

/* C[m, n] (op)= A[m, k] B[k, n]: A bf16 row-major, B packed, C float row-major. */
struct gemm {
    const bf16 *a; // (m, lda)
    size_t lda;
    const void *b; // packed, from column 0 of this call: kern_panel moves it
    float *c;      // (m, ldc)
    size_t ldc;
    int m, n, k;
    enum gemm_mode mode;
    void *scratch; // kern->scratch_bytes, 64-byte aligned, of this thread
};

/* A weight gradient: dw[n_out, n_in] continues (GEMM_CONTINUE) with the sum over rows of
   dy[row, n_out] x[row, n_in]. Rows come in segments; each segment's rows are cut into steps of 32
   from its own start, its last step zero-filled, so the sum does not depend on how segments were
   packed; a level may leave the zeros out, as long as the bits are those of filling them in. x is
   packed once by pack_segments (it serves all of n_out). */
struct segment {
    int row; // first row in dy and x
    int n;   // rows, >= 1
};
struct wgrad {
    const bf16 *dy; // (rows, ldy); columns [out_lo, out_hi) are used
    size_t ldy;
    const struct segment *segment; // (n_segments), in the order of summation
    int n_segments;
    const void *x; // packed by pack_segments: n_in columns; depth sum of round_up(n, GEMM_STEP)
    int n_in;
    int out_lo, out_hi; // this thread's rows of dw
    float *dw;          // (n_out, ld_dw), row 0 is output 0
    size_t ld_dw;
    void *scratch;
};

/* One key and its value, as kv_put stores them. A block of KV_BLOCK of them is kv_bytes(E) bytes,
   64-byte aligned, K part then V part, in the level's layout; all zeros when taken. */
struct kv_row {
    const float *k, *v; // (E) each; rounded to bf16 when stored
};

/* Attention of consecutive positions of one sequence, for one KV head and its n_heads query heads.
   Row r is at position pos + r and sees keys 0 .. pos + r. Blocks come through a table. */
struct attn {
    const bf16 *q; // (n, ldq): head h at columns [h*E, (h+1)*E), roped
    size_t ldq;
    int n, n_heads, E;     // rows, query heads of this KV head, head width
    int pos;               // absolute position of row 0
    const void *const *kv; // (pos + n + 31) / 32 key blocks of this KV head
    float scale;           // 1 / sqrt(E), applied to the score in float
    bf16 *out;             // (n, ldo), same columns as q
    size_t ldo;
    float *max, *inv_sum; // (n, n_heads), row-major with ld n_heads; NULL when not wanted
    void *scratch;
};

/* Backward of attention for one segment (one sample, or the prompt) and one KV head.
   Adds to dk, dv of every key it sees and writes dq. Key position p's gradient is at
   dk[p - key_pos_split .. ]: keys below `split` belong to the prompt and go to dk_lo/dv_lo, keys
   from `split` on are the segment's own and go to dk_hi/dv_hi. For the prompt, split = 0. */
struct attn_grad {
    const bf16 *q, *dout, *out; // (n, ld) as in struct attn; dout is rounded to bf16 by the caller
    size_t ldq, ldo;            // ldq for q; ldo for out and dout
    int n, n_heads, E, pos, split;
    const void *const *kv;
    float scale;
    const float *max, *inv_sum; // (n, n_heads) from the forward
    float *dq;                  // (n, ld_dq), columns as q; overwritten
    size_t ld_dq;
    float *dk_lo, *dv_lo; // (split, ld_lo): continued, row = position
    size_t ld_lo;
    float *dk_hi, *dv_hi; // (pos + n - split, ld_hi): continued, row = position - split
    size_t ld_hi;
    void *scratch;
};

/* Statistics of one row over one vocabulary chunk of scaled logits z = logit * inv_temperature. */
struct chunk_stat {
    float max;    // max z
    float sum;    // sum exp(z - max), 16 lanes
    float moment; // sum exp(z - max) (z - max), 16 lanes: for the entropy
    float target; // z of the target token when it lies in the chunk, else 0
};

struct adamw {
    float lr, beta1, beta2, eps, decay; // decay = weight decay
    float bias1, bias2;                 // 1 - beta^t
    float factor;                       // gradients are multiplied by it first
};

/* Every operator once: result, name, arguments. Table members, tests and benchmarks expand it. */
#define KERN_OPS(X)                                                                                \
    /* Packs panels [p0, p1) of B[k, n] = w[n, k]: w (n, ldw) row-major, reduction along a row. */ \
    X(void, pack_nk, (void *packed, const bf16 *w, size_t ldw, int n, int k, int p0, int p1))      \
    /* Packs panels [p0, p1) of B[k, n] = w[k, n]: w (k, ldw) row-major, reduction down rows. */   \
    X(void, pack_kn, (void *packed, const bf16 *w, size_t ldw, int n, int k, int p0, int p1))      \
    /* Packs x (rows, ldx) for wgrad, and for it alone: panels [p0, p1). */                        \
    X(void, pack_segments,                                                                         \
      (void *packed, const bf16 *x, size_t ldx, int n_in, const struct segment *s, int n_segments, \
       int p0, int p1))                                                                            \
    X(void, gemm, (const struct gemm *g))                                                          \
    X(void, wgrad, (const struct wgrad *g))                                                        \
    /* Stores key slot t (0..31) of a block. */                                                    \
    X(void, kv_put, (void *block, int E, int t, struct kv_row row))                                \
    X(void, attn, (const struct attn *a))                                                          \
    X(void, attn_grad, (const struct attn_grad *a))                                                \
    /* y = bf16((x * rstd) * w), rstd = 1 / sqrt(sum x^2 / D + eps) returned. */                   \
    X(float, rmsnorm, (bf16 * y, const float *x, const float *w, int D, float eps))                \
    /* The same, float out; y may alias x. For QK norm. */                                         \
    X(float, rmsnorm_f, (float *y, const float *x, const float *w, int D, float eps))              \
    /* dx (+)= backward of rmsnorm; dw_row[i] += dy[i] * (x[i] * rstd). With add, dx += else =. */ \
    X(void, rmsnorm_grad,                                                                          \
      (float *dx, bool add, float *dw_row, const float *dy, const float *x, const float *w,        \
       float rstd, int D))                                                                         \
    /* Rotates pairs (i, i + E/2) in place: cs holds E/2 cosines, then E/2 sines. */               \
    /* inverse rotates by the negative angle (the backward). */                                    \
    X(void, rope, (float *x, const float *cs, int E, bool inverse))                                \
    /* h = bf16(silu(gate) * up), silu(g) = g / (1 + exp(-g)). */                                  \
    X(void, swiglu, (bf16 * h, const float *gate, const float *up, int n))                         \
    /* dgate, dup in bf16 from dh. */                                                              \
    X(void, swiglu_grad,                                                                           \
      (bf16 * dgate, bf16 * dup, const float *dh, const float *gate, const float *up, int n))      \
    X(void, to_bf16, (bf16 * y, const float *x, size_t n))                                         \
    X(void, from_bf16, (float *y, const bf16 *x, size_t n))                                        \
    X(void, add, (float *y, const float *x, size_t n)) /* y += x */                                \
    /* y = x0 + x1, element by element (a node of the reduction tree). y may alias x0. */          \
    X(void, fold, (float *y, const float *x0, const float *x1, size_t n))                          \
    /* Sum of x^2: 16 lanes in double, folded as the lanes are. n <= SUMSQ_BLOCK. */               \
    X(double, sumsq, (const float *x, size_t n))                                                   \
    /* Sum of x over 16 lanes. */                                                                  \
    X(float, sum, (const float *x, size_t n))                                                      \
    /* True when all are finite; else *at is the first that is not. */                             \
    X(bool, finite, (const float *x, size_t n, size_t *at))                                        \
    /* Statistics of a chunk: logits (n), target column or -1. */                                  \
    X(struct chunk_stat, chunk_stats,                                                              \
      (const float *logits, int n, float inv_temperature, int target))                             \
    /* dlogits = bf16(coef * (onehot - exp(z - lse))): coef already holds inv_temperature. */      \
    X(void, chunk_grad,                                                                            \
      (bf16 * dlogits, const float *logits, int n, float inv_temperature, float lse, int target,   \
       float coef))                                                                                \
    /* Inverse CDF inside a chunk: smallest i with sum_{j<=i} exp(z_j - max) > u in this order: */ \
    /* runs of 16, each run's 16 values folded as lanes; then one by one. Returns i; where no   */ \
    /* sum exceeds u, the last element that the running sum, in float, still feels. */             \
    X(int, chunk_draw, (const float *logits, int n, float inv_temperature, float max, float u))    \
    /* Index of the largest (lowest index on ties). */                                             \
    X(int, argmax, (const float *x, int n))                                                        \
    /* AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2; decoupled decay), then */      \
    /* w = bf16(master). decay applies where wd is true. */                                        \
    X(void, adamw,                                                                                 \
      (float *master, float *m, float *v, bf16 *w, const float *grad, size_t n,                    \
       const struct adamw *h, bool wd))

struct kern {
    const char *name;                          // "portable", "avx2"
    int panel;                                 // columns per packed panel: 16 or 32
    size_t (*scratch_bytes)(int k_max, int E); // per thread, for any call with depth <= k_max
    size_t (*kv_bytes)(int E);                 // one key block of one KV head
    double (*peak)(
        int64_t rounds); // fused multiply-adds in registers alone; returns the flops done
#define X(ret, op, args) ret(*op) args;
    KERN_OPS(X)
#undef X
};

extern const struct kern kern_portable; // The oracle.
extern const struct kern kern_avx2;     // Only on x86-64; see kern_usable.

/* The levels in this binary from portable up, ended by NULL; the CPU may not have all. */
const struct kern *const *kern_levels(void);
bool kern_usable(const struct kern *k); // cpuid, xgetbv, the kernel's permission
const struct kern *kern_best(void);
const struct kern *kern_find(const char *name); // NULL for an unknown name
/* The level that LOCO_KERN names, else the best. ERR_USAGE for an unknown or unusable name. */
const struct kern *kern_choose(struct err *e);

/* Bytes of a packed B (with guard bytes), its panel count, and the panel that holds column n0
   (a multiple of panel). */
size_t kern_packed_bytes(const struct kern *k, int n, int depth);
int kern_panels(const struct kern *k, int n);
const void *kern_panel(const struct kern *k, const void *packed, int depth, int n0);

/* Runs one thread's share of a gemm: rows are split when there are many, columns otherwise. */
void kern_gemm_part(const struct kern *k, const struct gemm *g, int ith, int nth);

/* What kern_check found of one operator. It is right when unequal and wrong are 0. */
struct kern_verdict {
    const char *op;
    int64_t compared; // outputs
    int64_t unequal;  // outputs whose bits differ from the portable level's
    int64_t wrong;    // outputs further from double precision than rounding explains
    double worst;     // the largest error as a share of its bound
};

/* Runs every operator of level k (usable here) on generated inputs, against the portable level and
   against textbook formulas in double precision; reports each in the order of KERN_OPS. Returns how
   many are not right. Takes some seconds and 96 MiB; leaves the thread flushing denormals. */
int kern_check(const struct kern *k, void (*report)(void *ctx, const struct kern_verdict *v),
               void *ctx);

/* Round to nearest even; NaN becomes 0x7fc0. And back, exactly. */
static inline bf16 bf16_from(float f)
{
    uint32_t u;
    __builtin_memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
static inline float bf16_to(bf16 b)
{
    uint32_t u = (uint32_t)b << 16;
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
