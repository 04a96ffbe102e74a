/* Writes safetensors files and sharded model folders, streaming, with the reference writer's bytes:
 * entries by dtype, widest first, then by name; header padded with spaces to a multiple of 8. */
#include "tensor/tensor_int.h"

#include "base/mem.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20 };

static uint64_t source_elems(const struct tensor_source *s)
{
    uint64_t n_elems, n_bits;
    ASSERT(tensor_dtype_bits(s->dtype) % 8 == 0 && s->n_dims >= 0 && s->n_dims <= TENSOR_DIMS);
    bool fits = st_shape_size(s->dtype, s->shape, s->n_dims, &n_elems, &n_bits);
    ASSERT(fits);
    return n_elems;
}

static uint64_t source_bytes(const struct tensor_source *s)
{
    return source_elems(s) * ((uint64_t)tensor_dtype_bits(s->dtype) / 8);
}

static int by_dtype_then_name(const void *a, const void *b)
{
    const struct tensor_source *s = *(const struct tensor_source *const *)a;
    const struct tensor_source *t = *(const struct tensor_source *const *)b;
    return s->dtype != t->dtype ? (int)t->dtype - (int)s->dtype : strcmp(s->name, t->name);
}

static void put_string(struct buf *b, const char *s)
{
    buf_json(b, s, strlen(s));
}

static void put_metadata(struct buf *b, const struct tensor_meta *meta, size_t n_meta)
{
    buf_puts(b, "\"__metadata__\":{\"format\":\"pt\"");
    for (size_t i = 0; i < n_meta; i++) {
        buf_putc(b, ',');
        put_string(b, meta[i].key);
        buf_putc(b, ':');
        put_string(b, meta[i].value);
    }
    buf_putc(b, '}');
}

/* {"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}: returns where the next data begins.
 */
static uint64_t put_entry(struct buf *b, const struct tensor_source *s, uint64_t begin)
{
    uint64_t end = begin + source_bytes(s);
    buf_putc(b, ',');
    put_string(b, s->name);
    buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", tensor_dtype_name(s->dtype));
    for (int i = 0; i < s->n_dims; i++)
        buf_printf(b, "%s%" PRIu64, i ? "," : "", s->shape[i]);
    buf_printf(b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
    return end;
}

/* Length, header and padding in b, for sources in the file's order. */
static void put_header(struct buf *b, const struct tensor_source *const *sources, size_t n_sources,
                       const struct tensor_meta *meta, size_t n_meta)
{
    uint64_t length = 0, end = 0;
    struct map names = {0};
    buf_put(b, &length, sizeof length);
    buf_putc(b, '{');
    put_metadata(b, meta, n_meta);
    for (size_t i = 0; i < n_sources; i++) {
        bool is_new = map_put(&names, sources[i]->name, strlen(sources[i]->name), 0);
        ASSERT(is_new);
        end = put_entry(b, sources[i], end);
    }
    map_release(&names);
    buf_putc(b, '}');
    while (b->len % 8)
        buf_putc(b, ' ');
    length = b->len - sizeof length;
    ASSERT(length <= ST_HEADER_BYTES);
    memcpy(b->data, &length, sizeof length);
}

static int write_data(struct file_out *f, const struct tensor_source *s, void *piece, struct err *e)
{
    if (s->data)
        return file_out_write(f, s->data, source_bytes(s), e);
    size_t elem_bytes = (size_t)tensor_dtype_bits(s->dtype) / 8;
    uint64_t n_elems = source_elems(s), step = PIECE_BYTES / elem_bytes;
    int rc = 0;
    for (uint64_t lo = 0; lo < n_elems && rc == 0; lo += step) {
        uint64_t hi = MIN(lo + step, n_elems);
        rc = s->fill(s->ctx, lo, hi, piece, e);
        if (rc == 0)
            rc = file_out_write(f, piece, (hi - lo) * elem_bytes, e);
    }
    return rc;
}

/* Writes sources, which are sorted here. */
static int write_sorted(const char *path, const struct tensor_source **sources, size_t n_sources,
                        const struct tensor_meta *meta, size_t n_meta, struct err *e)
{
    struct file_out f = {0};
    struct buf header = {0};
    void *piece = mem_alloc(PIECE_BYTES);
    int rc = 0;
    if (n_sources)
        qsort(sources, n_sources, sizeof *sources, by_dtype_then_name);
    put_header(&header, sources, n_sources, meta, n_meta);
    TRY(file_out_open(&f, path, e));
    TRY(file_out_write(&f, header.data, header.len, e));
    for (size_t i = 0; i < n_sources; i++)
        TRY(write_data(&f, sources[i], piece, e));
    TRY(file_out_commit(&f, e));
fail:
    file_out_abort(&f);
    buf_release(&header);
    mem_free(piece);
    return rc;
}

int tensor_write(const char *path, const struct tensor_source *sources, size_t n_sources,
                 const struct tensor_meta *meta, size_t n_meta, struct err *e)
{
    const struct tensor_source **order = mem_alloc((n_sources + 1) * sizeof *order);
    for (size_t i = 0; i < n_sources; i++)
        order[i] = &sources[i];
    int rc = write_sorted(path, order, n_sources, meta, n_meta, e);
    mem_free(order);
    return rc;
}

/* Gives each source its shard, filled in the order of the list; returns the number of shards. */
static size_t assign_shards(const struct tensor_source *sources, size_t n_sources,
                            uint64_t shard_bytes, size_t *shard)
{
    size_t current = 0;
    uint64_t filled = 0;
    for (size_t i = 0; i < n_sources; i++) {
        uint64_t n = source_bytes(&sources[i]);
        if (filled > 0 && shard_bytes > 0 && filled + n > shard_bytes) {
            current++;
            filled = 0;
        }
        shard[i] = current;
        filled += n;
    }
    return current + 1;
}

static void shard_name(size_t i, size_t n, char out[64])
{
    if (n == 1)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(out, 64, "model-%05zu-of-%05zu.safetensors", i + 1, n);
}

static int by_name(const void *a, const void *b)
{
    const struct tensor_source *s = *(const struct tensor_source *const *)a;
    const struct tensor_source *t = *(const struct tensor_source *const *)b;
    return strcmp(s->name, t->name);
}

/* The index as transformers writes it: keys sorted, two spaces of indent. */
static int write_index(const char *dir, const struct tensor_source *sources, size_t n_sources,
                       const size_t *shard, size_t n_shards, struct err *e)
{
    struct buf b = {0};
    uint64_t total = 0;
    char name[64];
    const struct tensor_source **order = mem_alloc((n_sources + 1) * sizeof *order);
    for (size_t i = 0; i < n_sources; i++) {
        order[i] = &sources[i];
        total += source_bytes(&sources[i]);
    }
    qsort(order, n_sources, sizeof *order, by_name);
    buf_printf(&b, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n", total);
    buf_puts(&b, "  \"weight_map\": {");
    for (size_t i = 0; i < n_sources; i++) {
        buf_puts(&b, i ? ",\n    " : "\n    ");
        put_string(&b, order[i]->name);
        shard_name(shard[order[i] - sources], n_shards, name);
        buf_printf(&b, ": \"%s\"", name);
    }
    buf_puts(&b, "\n  }\n}\n");
    char *path = file_join(dir, "model.safetensors.index.json");
    int rc = file_write_atomic(path, b.data, b.len, e);
    mem_free(path);
    mem_free(order);
    buf_release(&b);
    return rc;
}

/* Writes shard i of n: the sources that were given to it. */
static int write_shard(const char *dir, const struct tensor_source *sources, size_t n_sources,
                       const size_t *shard, size_t i, size_t n, struct err *e)
{
    const struct tensor_source **chosen = mem_alloc((n_sources + 1) * sizeof *chosen);
    size_t n_chosen = 0;
    char name[64];
    for (size_t k = 0; k < n_sources; k++)
        if (shard[k] == i)
            chosen[n_chosen++] = &sources[k];
    shard_name(i, n, name);
    char *path = file_join(dir, name);
    int rc = write_sorted(path, chosen, n_chosen, NULL, 0, e);
    mem_free(path);
    mem_free(chosen);
    return rc;
}

int tensor_write_model(const char *dir, const struct tensor_source *sources, size_t n_sources,
                       uint64_t shard_bytes, struct err *e)
{
    int rc = 0;
    size_t *shard = mem_alloc((n_sources + 1) * sizeof *shard);
    size_t n_shards = assign_shards(sources, n_sources, shard_bytes, shard);
    for (size_t i = 0; i < n_shards; i++)
        TRY(write_shard(dir, sources, n_sources, shard, i, n_shards, e));
    if (n_shards > 1)
        TRY(write_index(dir, sources, n_sources, shard, n_shards, e));
fail:
    mem_free(shard);
    return rc;
}
