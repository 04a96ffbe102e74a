/* Tensors on disk: safetensors files and Hugging Face model folders, read and written.
 *
 * A struct tensor_set is an open file, or a model folder: `model.safetensors`, or the shards that
 * `model.safetensors.index.json` lists (where both are there, the single file counts, as it does
 * for transformers). Files are mapped, never copied: a tensor's data points into the mapping, may
 * be unaligned, and lives until the set is closed.
 *
 * All that can be checked before data is used is checked at open, so that a set that opened holds
 * only tensors whose bytes are there: header length, UTF-8, JSON, duplicate names, dtypes, shapes
 * (overflow included), offsets that cover the data without hole or overlap, and for folders that
 * index and shards list the same tensors, each once. Header keys may come in any order. The header
 * is read one entry at a time, so a million tensors cost a table row each and a hostile header no
 * more. Values are checked by tensor_finite when the caller asks.
 *
 * Refused, each with one message: everything above, tensors of more than TENSOR_DIMS dimensions,
 * shard names with '/' or starting with '.', and a file whose size changed since it was opened. A
 * file cut short by another process between that check and the read ends this process with a
 * message (file_standard): writers must write a new file and rename it over the old one, as
 * tensor_write does.
 *
 *     struct tensor_set *set;
 *     const struct tensor *t;
 *     TRY(tensor_open(&set, "Qwen3-0.6B", e));
 *     TRY(tensor_get(set, "model.norm.weight", TENSOR_WEIGHTS, 1, (uint64_t[]){D}, &t, e));
 *     TRY(tensor_finite(set, t, e));
 *     tensor_to_float(t, 0, t->n_elems, norm);
 *     tensor_close(set);
 *
 * Writing streams: contents come from a pointer or are made piece by piece by a callback, so a file
 * of many gigabytes needs one small buffer. The bytes are those of the reference writer
 * (safetensors 0.8): entries by dtype, widest first, then by name; header padded with spaces to 8
 * bytes.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>

#define TENSOR_DIMS 8

/* Name as in the file, bits an element; in the order of the reference implementation, which is the
   order of alignment and thereby of entries in a written file. */
#define TENSOR_DTYPES(X)                                                                           \
    X(BOOL, 8)                                                                                     \
    X(F4, 4)                                                                                       \
    X(F6_E2M3, 6)                                                                                  \
    X(F6_E3M2, 6)                                                                                  \
    X(U8, 8)                                                                                       \
    X(I8, 8)                                                                                       \
    X(F8_E5M2, 8)                                                                                  \
    X(F8_E4M3, 8)                                                                                  \
    X(F8_E8M0, 8)                                                                                  \
    X(F8_E4M3FNUZ, 8)                                                                              \
    X(F8_E5M2FNUZ, 8)                                                                              \
    X(I16, 16)                                                                                     \
    X(U16, 16)                                                                                     \
    X(F16, 16)                                                                                     \
    X(BF16, 16)                                                                                    \
    X(I32, 32)                                                                                     \
    X(U32, 32)                                                                                     \
    X(F32, 32)                                                                                     \
    X(C64, 64)                                                                                     \
    X(F64, 64)                                                                                     \
    X(I64, 64)                                                                                     \
    X(U64, 64)

enum tensor_dtype {
#define X(name, bits) TENSOR_##name,
    TENSOR_DTYPES(X)
#undef X
        TENSOR_DTYPE_COUNT
};

/* Sets of dtypes, as tensor_get takes them. */
#define TENSOR_ONLY(dtype) (1u << (dtype))
#define TENSOR_WEIGHTS                                                                             \
    (TENSOR_ONLY(TENSOR_BF16) | TENSOR_ONLY(TENSOR_F16) | TENSOR_ONLY(TENSOR_F32))

struct tensor {
    const char *name; // Owned by the set.
    enum tensor_dtype dtype;
    int n_dims;
    uint64_t shape[TENSOR_DIMS]; // (n_dims), outermost first; 0 is legal; no dims = one element.
    uint64_t n_elems, n_bytes;
    const unsigned char
        *data;     // (n_bytes), borrowed from the mapping, any alignment, little-endian.
    uint32_t file; // Index for tensor_file_name.
};

struct tensor_set;

const char *tensor_dtype_name(enum tensor_dtype dtype);
int tensor_dtype_bits(enum tensor_dtype dtype);

/* "[2, 3]" for a shape: writes at most `size` bytes and returns out. */
char *tensor_shape_text(const uint64_t *shape, int n_dims, char *out, size_t size);

/* Opens a .safetensors file, an index file, or a model folder. *set is NULL on failure, else the
   caller closes it. ERR_IO, ERR_FORMAT or ERR_UNSUPPORTED. */
int tensor_open(struct tensor_set **set, const char *path, struct err *e);
void tensor_close(struct tensor_set *set); // NULL is fine.

/* Tensors in the order of their files, inside a file in the order of data. */
size_t tensor_count(const struct tensor_set *set);
const struct tensor *tensor_at(const struct tensor_set *set, size_t i);

/* NULL when there is none of that name. */
const struct tensor *tensor_find(const struct tensor_set *set, const char *name);

/* Files of the set (base names), and entries of their __metadata__: the value or NULL. */
size_t tensor_file_count(const struct tensor_set *set);
const char *tensor_file_name(const struct tensor_set *set, size_t file);
const char *tensor_metadata(const struct tensor_set *set, const char *key);
/* Entry i of a file's __metadata__ in its order; false when it has fewer. */
bool tensor_metadata_at(const struct tensor_set *set, size_t file, size_t i, const char **key,
                        const char **value);

/* The tensor `name`, which must have one of `dtypes` and this shape (n_dims; NULL takes any).
   ERR_FORMAT naming the tensor, what it has and what was expected; ERR_IO when the file's size
   changed since it was opened. */
int tensor_get(const struct tensor_set *set, const char *name, unsigned dtypes, int n_dims,
               const uint64_t *shape, const struct tensor **t, struct err *e);

/* ERR_NUMERIC naming tensor and element when a BF16, F16, F32 or F64 element is NaN or infinite;
   other dtypes pass. ERR_IO when the file's size changed since it was opened. */
int tensor_finite(const struct tensor_set *set, const struct tensor *t, struct err *e);

/* Elements [lo, hi) of a BF16, F16 or F32 tensor (ASSERTed) to out (hi - lo). To the tensor's own
   dtype the bits are copied. F32 and F16 become bf16 by rounding to nearest even; a NaN that
   changes its dtype becomes the canonical one (0x7fc0, 0x7fc00000). */
void tensor_to_float(const struct tensor *t, uint64_t lo, uint64_t hi, float *out);
void tensor_to_bf16(const struct tensor *t, uint64_t lo, uint64_t hi, bf16 *out);

/* A tensor to be written. Either `data` holds all of it, or `fill` writes elements [lo, hi) to out
   when asked, in ascending pieces that cover all; it may fail, and the file is then not made. */
struct tensor_source {
    const char *name;        // Borrowed; unique in the list.
    enum tensor_dtype dtype; // Of whole bytes (ASSERTed).
    int n_dims;
    uint64_t shape[TENSOR_DIMS]; // (n_dims)
    const void *data;            // Borrowed, or NULL.
    int (*fill)(void *ctx, uint64_t lo, uint64_t hi, void *out, struct err *e);
    void *ctx;
};

/* An entry of __metadata__, which always begins with "format": "pt" as transformers wants it. */
struct tensor_meta {
    const char *key, *value; // Borrowed; UTF-8.
};

/* Writes one file, atomically: `path` has the old content or all of the new. */
int tensor_write(const char *path, const struct tensor_source *sources, size_t n_sources,
                 const struct tensor_meta *meta, size_t n_meta, struct err *e);

/* Writes a model folder's weights into `dir`, which exists and holds no weights: model.safetensors
   when all fit shard_bytes (0 = no limit), else shards filled in the order of the list, and their
   index. A tensor larger than the limit gets a shard of its own. */
int tensor_write_model(const char *dir, const struct tensor_source *sources, size_t n_sources,
                       uint64_t shard_bytes, struct err *e);
