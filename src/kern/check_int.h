/* Inside kern_check: one operator at work on two levels and in double precision.
 *
 * A case fills inputs with `draw`, runs the operator on the level under test and on portable into
 * two outputs made alike, demands equal bits with `same`, and compares one of them with the
 * textbook formula in double, term by term, by `near`. Buffers come from an arena that each case
 * resets. Padding of every buffer holds NaN: a value read from there shows in a result.
 */
#pragma once

#include "kern/kern.h"

#include "base/mem.h"

enum { CHECK_PAD = 24 }; // Elements after each buffer: of NaN, or that nobody may write.

struct check {
    const struct kern *k, *oracle;
    struct arena arena;
    uint64_t random;
    bool flushed; // This thread flushes denormals.
    struct kern_verdict v;
};

/* n floats of both signs, magnitudes up to `scale`, some zeros. */
float *check_floats(struct check *c, size_t n, float scale);
bf16 *check_bf16(struct check *c, size_t n, float scale);
/* n elements that hold the same pattern whenever asked for: an output before it is written. */
float *check_out(struct check *c, size_t n);
bf16 *check_out_bf16(struct check *c, size_t n);
float *check_copy(struct check *c, const float *x, size_t n);
void *check_bytes(struct check *c, size_t n);
void *check_scratch(struct check *c, const struct kern *k, int depth, int E);
int check_below(struct check *c, int n);
/* rows x cols values in rows of ld, NaN between. */
bf16 *check_matrix(struct check *c, int rows, int cols, size_t ld, float scale);
/* w (n, ld) packed for the level k: B[depth, n], reduction along a row of w. */
void *check_packed(struct check *c, const struct kern *k, const bf16 *w, size_t ld, int n,
                   int depth);
/* A size at which something changes: around vectors, panels and steps. */
int check_edge(struct check *c, int i);

/* Both outputs with their padding, bit by bit; any NaN equals any NaN in float. */
void check_same(struct check *c, const float *a, const float *b, size_t n);
void check_same_bf16(struct check *c, const bf16 *a, const bf16 *b, size_t n);

/* got is within bound (plus the smallest normal float) of want. */
void check_near(struct check *c, double got, double want, double bound);
/* The same for a result rounded to bf16: half a unit in its last place on top. */
void check_near_bf16(struct check *c, bf16 got, double want, double bound);
void check_that(struct check *c, bool ok);

#define CHECK_U 0x1p-24 // The relative error of one float operation.

/* One check per operator, each in check_gemm.c, check_rows.c, check_vocab.c or check_attn.c. */
#define X(ret, op, args) void check_##op(struct check *c);
KERN_OPS(X)
#undef X
