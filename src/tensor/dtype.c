/* Dtypes: their table, shapes in text, conversion of elements and the search for NaN and Inf.
 * Elements are copied to a small array first, since a file may hold them at any alignment. */
#include "tensor/tensor_int.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian");

enum { PIECE = 512 }; // Elements converted at a time.

static const struct {
    const char *name;
    int bits;
} table[TENSOR_DTYPE_COUNT] = {
#define X(name, bits) {#name, bits},
    TENSOR_DTYPES(X)
#undef X
};

const char *tensor_dtype_name(enum tensor_dtype dtype)
{
    return table[dtype].name;
}

int tensor_dtype_bits(enum tensor_dtype dtype)
{
    return table[dtype].bits;
}

int st_dtype(const char *name)
{
    for (int i = 0; i < TENSOR_DTYPE_COUNT; i++)
        if (strcmp(table[i].name, name) == 0)
            return i;
    return -1;
}

bool st_shape_size(enum tensor_dtype dtype, const uint64_t *shape, int n_dims, uint64_t *n_elems,
                   uint64_t *n_bits)
{
    *n_elems = 1;
    for (int i = 0; i < n_dims; i++)
        if (__builtin_mul_overflow(*n_elems, shape[i], n_elems))
            return false;
    return !__builtin_mul_overflow(*n_elems, (uint64_t)table[dtype].bits, n_bits);
}

char *tensor_shape_text(const uint64_t *shape, int n_dims, char *out, size_t size)
{
    struct buf b = {0};
    buf_putc(&b, '[');
    for (int i = 0; i < n_dims; i++)
        buf_printf(&b, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
    buf_putc(&b, ']');
    snprintf(out, size, "%s", b.data);
    buf_release(&b);
    return out;
}

static float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float float_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31)
        return float_of_bits(fraction ? 0x7fc00000 : sign | 0x7f800000);
    if (exponent == 0) { // Zero or subnormal: fraction * 2^-24, a normal float.
        float x = (float)fraction * 0x1p-24f;
        return sign ? -x : x;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static float float_of_bf16(bf16 h)
{
    bool is_nan = (h & 0x7fff) > 0x7f80;
    return float_of_bits(is_nan ? 0x7fc00000 : (uint32_t)h << 16);
}

/* Nearest, ties to even; overflow goes to infinity as in IEEE arithmetic. */
static bf16 bf16_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fc0;
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* At most PIECE elements, from lo on, of a 16-bit tensor. */
static void piece_to_float(const struct tensor *t, uint64_t lo, size_t n, float *out)
{
    uint16_t half[PIECE];
    memcpy(half, t->data + lo * sizeof half[0], n * sizeof half[0]);
    for (size_t i = 0; i < n; i++)
        out[i] = t->dtype == TENSOR_F16 ? float_of_f16(half[i]) : float_of_bf16(half[i]);
}

static void check_range(const struct tensor *t, uint64_t lo, uint64_t hi)
{
    ASSERT(TENSOR_WEIGHTS & TENSOR_ONLY(t->dtype));
    ASSERT(lo <= hi && hi <= t->n_elems);
}

void tensor_to_float(const struct tensor *t, uint64_t lo, uint64_t hi, float *out)
{
    check_range(t, lo, hi);
    if (lo == hi)
        return;
    if (t->dtype == TENSOR_F32) {
        memcpy(out, t->data + lo * sizeof *out, (hi - lo) * sizeof *out);
        return;
    }
    for (uint64_t at = lo; at < hi; at += PIECE)
        piece_to_float(t, at, MIN(hi - at, (uint64_t)PIECE), out + (at - lo));
}

void tensor_to_bf16(const struct tensor *t, uint64_t lo, uint64_t hi, bf16 *out)
{
    check_range(t, lo, hi);
    if (lo == hi)
        return;
    if (t->dtype == TENSOR_BF16) {
        memcpy(out, t->data + lo * sizeof *out, (hi - lo) * sizeof *out);
        return;
    }
    float piece[PIECE];
    for (uint64_t at = lo; at < hi; at += PIECE) {
        size_t n = MIN(hi - at, (uint64_t)PIECE);
        tensor_to_float(t, at, at + n, piece);
        for (size_t i = 0; i < n; i++)
            out[at - lo + i] = bf16_of_float(piece[i]);
    }
}

/* Index of the first element that is NaN or infinite, else n_elems. `infinity` is the dtype's. */
#define FIRST_NONFINITE(width)                                                                     \
    static uint64_t first_nonfinite_##width(const struct tensor *t, uint##width##_t infinity)      \
    {                                                                                              \
        const uint##width##_t magnitude = INT##width##_MAX;                                        \
        uint##width##_t piece[PIECE];                                                              \
        for (uint64_t at = 0; at < t->n_elems; at += PIECE) {                                      \
            size_t n = MIN(t->n_elems - at, (uint64_t)PIECE);                                      \
            memcpy(piece, t->data + at * sizeof piece[0], n * sizeof piece[0]);                    \
            bool bad = false;                                                                      \
            for (size_t i = 0; i < n; i++)                                                         \
                bad |= (piece[i] & magnitude) >= infinity;                                         \
            for (size_t i = 0; bad && i < n; i++)                                                  \
                if ((piece[i] & magnitude) >= infinity)                                            \
                    return at + i;                                                                 \
        }                                                                                          \
        return t->n_elems;                                                                         \
    }
FIRST_NONFINITE(16)
FIRST_NONFINITE(32)
FIRST_NONFINITE(64)

uint64_t st_first_nonfinite(const struct tensor *t)
{
    switch (t->dtype) {
    case TENSOR_F16:
        return first_nonfinite_16(t, 0x7c00);
    case TENSOR_BF16:
        return first_nonfinite_16(t, 0x7f80);
    case TENSOR_F32:
        return first_nonfinite_32(t, 0x7f800000);
    case TENSOR_F64:
        return first_nonfinite_64(t, 0x7ff0000000000000);
    default:
        return t->n_elems;
    }
}
