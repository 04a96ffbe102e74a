/* Private to src/tensor: a reader of JSON objects one member at a time, and one file's header.
 *
 * jansson builds a tree of about thirty times the size of its input, too much for a header of 100
 * MB that a stranger wrote. So objects that may be long are walked here member by member, with
 * jansson reading each key and each value; a value is a small thing of at most ST_VALUE_BYTES, or a
 * string, or again an object to be walked.
 */
#pragma once

#include "base/file.h"
#include "base/map.h"
#include "tensor/tensor.h"

#include <jansson.h>

#define ST_HEADER_BYTES (100u * 1000 * 1000) // The format's own bound.
#define ST_VALUE_BYTES  4096                 // A tensor's entry, far above what eight dims need.
#define ST_NAME_TEXT    96                   // Bytes of a name that a message shows.

struct st_walk {
    const char *text; // Borrowed.
    size_t size, at;  // Bytes; the place of the next token.
    const char *what; // What messages call this text: "header", "index".
    bool is_first;    // No member of the innermost object was read yet.
};

/* Checks that the text is UTF-8 and enters its object. */
int st_walk_open(struct st_walk *w, const char *what, const char *text, size_t size, struct err *e);

/* Enters the object that starts here. ERR_FORMAT when something else does; `name` is for messages.
 */
int st_walk_enter(struct st_walk *w, const char *name, struct err *e);

/* Reads the next key (a JSON string, owned by the caller) and leaves the walk at its value; returns
   1, or 0 at the end of the object. */
int st_walk_key(struct st_walk *w, json_t **key, struct err *e);

/* Reads the value that starts here (owned by the caller). A string may have any length. */
int st_walk_value(struct st_walk *w, const char *name, json_t **value, struct err *e);

/* Checks that nothing but white space follows. */
int st_walk_close(struct st_walk *w, struct err *e);

/* name, shortened and made harmless for a terminal, in out. */
const char *st_name(const char *name, char out[ST_NAME_TEXT]);

/* The tensors of one file. Zero is a released state. */
struct st_header {
    struct tensor *tensor; // (n), in the order of data; names are owned by `names`.
    size_t n, cap;
    struct map names;    // Name to index into tensor.
    struct map metadata; // Key to index into values.
    char **values;       // (n_values), owned
    size_t n_values, values_cap;
};

/* Parses and validates a whole file image. Tensors' data points into it. */
int st_header_parse(struct st_header *h, const unsigned char *data, size_t size, struct err *e);
void st_header_release(struct st_header *h);

/* Ends most messages about a file's bytes. */
#define ST_REMEDY "the file is damaged, fetch or write it again"

/* The dtype of that name, or -1. */
int st_dtype(const char *name);

/* Number of elements and bits of a shape. False when either exceeds 64 bits. */
bool st_shape_size(enum tensor_dtype dtype, const uint64_t *shape, int n_dims, uint64_t *n_elems,
                   uint64_t *n_bits);

/* Index of the first NaN or infinite element, n_elems when there is none. */
uint64_t st_first_nonfinite(const struct tensor *t);
