/* One safetensors file: u64 header length n, n bytes of JSON, then the tensors' data, which must
 * cover the rest of the file without hole or overlap (github.com/huggingface/safetensors, README
 * and the checks of its reader). Entries come in any order; tensors are kept in that of their data.
 */
#include "tensor/tensor_int.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Where data lies, while entries are read. */
struct area {
    const unsigned char *base;
    uint64_t size; // bytes
};

static int refuse(const char *name, struct err *e, const char *why, ...)
    __attribute__((format(printf, 3, 4)));

/* "tensor 'NAME': why: remedy" */
static int refuse(const char *name, struct err *e, const char *why, ...)
{
    char text[256], shown[ST_NAME_TEXT];
    va_list ap;
    va_start(ap, why);
    vsnprintf(text, sizeof text, why, ap);
    va_end(ap);
    return err_set(e, ERR_FORMAT, "tensor '%s': %s: " ST_REMEDY, st_name(name, shown), text);
}

/* A list of at most `max` non-negative integers into out; returns their number, -1 otherwise, or
   max + 1 when there are more. */
static int read_sizes(const json_t *list, int max, uint64_t *out)
{
    if (!json_is_array(list))
        return -1;
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0)
            return -1;
        if (i < (size_t)max)
            out[i] = (uint64_t)json_integer_value(item);
    }
    return (int)MIN(n, (size_t)max + 1);
}

/* Dtype and shape of an entry into t, with the sizes that follow from them. */
static int read_type(struct tensor *t, const char *name, const json_t *entry, struct err *e)
{
    const char *dtype_name = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype_name)
        return refuse(name, e, "'dtype' is not a string");
    int dtype = st_dtype(dtype_name);
    char shown[ST_NAME_TEXT];
    if (dtype < 0)
        return err_set(
            e, ERR_UNSUPPORTED,
            "tensor '%s': dtype '%.20s' is unknown: convert the file to BF16, F16 or F32",
            st_name(name, shown), dtype_name);
    t->dtype = (enum tensor_dtype)dtype;
    t->n_dims = read_sizes(json_object_get(entry, "shape"), TENSOR_DIMS, t->shape);
    if (t->n_dims < 0)
        return refuse(name, e, "'shape' is not a list of non-negative integers");
    if (t->n_dims > TENSOR_DIMS)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor '%s' has more than %d dimensions: merge some before saving it",
                       st_name(name, shown), TENSOR_DIMS);
    uint64_t n_bits;
    if (!st_shape_size(t->dtype, t->shape, t->n_dims, &t->n_elems, &n_bits))
        return refuse(name, e, "the size of its shape exceeds 64 bits");
    if (n_bits % 8)
        return refuse(name, e, "its %llu elements of %s are not a whole number of bytes",
                      (unsigned long long)t->n_elems, dtype_name);
    t->n_bytes = n_bits / 8;
    return 0;
}

/* Where the tensor's bytes lie: offsets count from the data's start. */
static int read_place(struct tensor *t, const char *name, const json_t *entry,
                      const struct area *area, struct err *e)
{
    uint64_t at[2];
    if (read_sizes(json_object_get(entry, "data_offsets"), 2, at) != 2)
        return refuse(name, e, "'data_offsets' is not a pair of non-negative integers");
    unsigned long long begin = at[0], end = at[1];
    if (end < begin)
        return refuse(name, e, "data_offsets [%llu, %llu] end before they begin", begin, end);
    if (end - begin != t->n_bytes) {
        char shape[256];
        return refuse(name, e,
                      "data_offsets [%llu, %llu] hold %llu bytes, %s of shape %s takes %llu", begin,
                      end, end - begin, tensor_dtype_name(t->dtype),
                      tensor_shape_text(t->shape, t->n_dims, shape, sizeof shape),
                      (unsigned long long)t->n_bytes);
    }
    if (end > area->size)
        return refuse(name, e, "data_offsets [%llu, %llu] reach past the file's %llu bytes of data",
                      begin, end, (unsigned long long)area->size);
    t->data = area->base + begin;
    return 0;
}

static int add_tensor(struct st_header *h, const char *name, const json_t *entry,
                      const struct area *area, struct err *e)
{
    if (!map_put(&h->names, name, strlen(name), (int64_t)h->n))
        return refuse(name, e, "the header lists it twice");
    mem_grow(&h->tensor, &h->cap, h->n + 1, sizeof *h->tensor);
    struct tensor *t = &h->tensor[h->n++];
    *t = (struct tensor){0};
    if (!json_is_object(entry))
        return refuse(name, e, "its entry is not an object");
    int rc = read_type(t, name, entry, e);
    return rc < 0 ? rc : read_place(t, name, entry, area, e);
}

/* Walks the __metadata__ object: strings to strings. */
static int read_metadata(struct st_header *h, struct st_walk *w, struct err *e)
{
    json_t *key = NULL, *value = NULL;
    int rc = 0;
    if (h->metadata.n)
        return err_set(e, ERR_FORMAT, "__metadata__ stands twice in the header: " ST_REMEDY);
    TRY(st_walk_enter(w, "__metadata__", e));
    while ((rc = st_walk_key(w, &key, e)) > 0) {
        const char *name = json_string_value(key);
        char shown[ST_NAME_TEXT];
        TRY(st_walk_value(w, name, &value, e));
        if (!json_is_string(value))
            TRY(err_set(e, ERR_FORMAT, "__metadata__ '%s' is not a string: " ST_REMEDY,
                        st_name(name, shown)));
        if (!map_put(&h->metadata, name, strlen(name), (int64_t)h->n_values))
            TRY(err_set(e, ERR_FORMAT, "__metadata__ lists '%s' twice: " ST_REMEDY,
                        st_name(name, shown)));
        mem_grow(&h->values, &h->values_cap, h->n_values + 1, sizeof *h->values);
        h->values[h->n_values++] = mem_strdup(json_string_value(value));
        json_decref(key);
        json_decref(value);
        key = value = NULL;
    }
fail:
    json_decref(key);
    json_decref(value);
    return rc;
}

static int read_members(struct st_header *h, struct st_walk *w, const struct area *area,
                        struct err *e)
{
    json_t *key = NULL, *entry = NULL;
    int rc = 0;
    while ((rc = st_walk_key(w, &key, e)) > 0) {
        const char *name = json_string_value(key);
        if (strcmp(name, "__metadata__") == 0) {
            TRY(read_metadata(h, w, e));
        } else {
            TRY(st_walk_value(w, name, &entry, e));
            TRY(add_tensor(h, name, entry, area, e));
        }
        json_decref(key);
        json_decref(entry);
        key = entry = NULL;
    }
fail:
    json_decref(key);
    json_decref(entry);
    return rc;
}

static int by_place(const void *a, const void *b)
{
    const struct tensor *s = a, *t = b;
    if (s->data != t->data)
        return s->data < t->data ? -1 : 1;
    return (s->n_bytes > t->n_bytes) - (s->n_bytes < t->n_bytes);
}

/* Puts tensors in the order of their data and checks that they cover it. */
static int check_cover(struct st_header *h, const struct area *area, struct err *e)
{
    for (size_t i = 0; i < h->n; i++)
        h->tensor[i].name = h->names.entry[i].key; // Both in the order of the header.
    if (h->n)
        qsort(h->tensor, h->n, sizeof *h->tensor, by_place);
    uint64_t covered = 0;
    for (size_t i = 0; i < h->n; i++) {
        const struct tensor *t = &h->tensor[i];
        unsigned long long begin = (uint64_t)(t->data - area->base), before = covered;
        if (begin < before)
            return refuse(t->name, e,
                          "its data begins at %llu, inside the data before it, "
                          "which ends at %llu",
                          begin, before);
        if (begin > before)
            return refuse(t->name, e,
                          "its data begins at %llu, a hole after the data before it, "
                          "which ends at %llu",
                          begin, before);
        covered += t->n_bytes;
        map_put(&h->names, t->name, strlen(t->name), (int64_t)i);
    }
    if (covered != area->size)
        return err_set(e, ERR_FORMAT, "%llu bytes follow the last tensor's data: " ST_REMEDY,
                       (unsigned long long)(area->size - covered));
    return 0;
}

/* The header's length, checked against the file's size. */
static int read_length(const unsigned char *data, size_t size, uint64_t *length, struct err *e)
{
    if (size < 8)
        return err_set(e, ERR_FORMAT, "%zu bytes, expected at least 8 and a header: " ST_REMEDY,
                       size);
    memcpy(length, data, sizeof *length);
    if (*length > ST_HEADER_BYTES)
        return err_set(e, ERR_FORMAT,
                       "the first 8 bytes give a header of %llu bytes, at most %u are allowed: "
                       "this is not a safetensors file",
                       (unsigned long long)*length, ST_HEADER_BYTES);
    if (*length > size - 8)
        return err_set(e, ERR_FORMAT,
                       "the header takes %llu bytes, but only %zu follow its length: " ST_REMEDY,
                       (unsigned long long)*length, size - 8);
    return 0;
}

int st_header_parse(struct st_header *h, const unsigned char *data, size_t size, struct err *e)
{
    int rc = 0;
    struct st_walk w;
    uint64_t length = 0;
    *h = (struct st_header){0};
    TRY(read_length(data, size, &length, e));
    struct area area = {.base = data + 8 + length, .size = size - 8 - length};
    TRY(st_walk_open(&w, "header", (const char *)data + 8, length, e));
    TRY(read_members(h, &w, &area, e));
    TRY(st_walk_close(&w, e));
    TRY(check_cover(h, &area, e));
    return 0;
fail:
    st_header_release(h);
    return rc;
}

void st_header_release(struct st_header *h)
{
    for (size_t i = 0; i < h->n_values; i++)
        mem_free(h->values[i]);
    mem_free(h->values);
    mem_free(h->tensor);
    map_release(&h->names);
    map_release(&h->metadata);
    *h = (struct st_header){0};
}
