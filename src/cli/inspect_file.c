/* Single files, for loco inspect: safetensors and JSONL. */
#include "cli/cli.h"

#include "base/map.h"
#include "base/mem.h"
#include "tensor/tensor.h"

#include <string.h>

/* ---- safetensors ---- */

static json_t *tensor_row(const struct tensor_set *set, const struct tensor *t)
{
    char shape[128];
    tensor_shape_text(t->shape, t->n_dims, shape, sizeof shape);
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:I}", "name", t->name, "dtype", tensor_dtype_name(t->dtype),
                  "shape", shape, "size_bytes", (json_int_t)t->n_bytes);
    if (tensor_file_count(set) > 1)
        json_object_set_new(row, "file", json_string(tensor_file_name(set, t->file)));
    return row;
}

static void put_metadata(const struct tensor_set *set, json_t *report)
{
    json_t *all = json_object();
    const char *key, *value;
    for (size_t f = 0; f < tensor_file_count(set); f++)
        for (size_t i = 0; tensor_metadata_at(set, f, i, &key, &value); i++)
            json_object_set_new(all, key, json_string(value));
    json_object_set_new(report, "metadata", all);
}

int cli_inspect_tensors(const char *path, json_t *report, struct err *e)
{
    int rc = 0;
    struct tensor_set *set = NULL;
    json_t *list = json_array();
    uint64_t bytes = 0, elements = 0;
    TRY(tensor_open(&set, path, e));
    for (size_t i = 0; i < tensor_count(set); i++) {
        const struct tensor *t = tensor_at(set, i);
        json_array_append_new(list, tensor_row(set, t));
        bytes += t->n_bytes;
        elements += t->n_elems;
    }
    json_object_set_new(report, "kind", json_string("safetensors"));
    json_object_set_new(report, "tensors", json_integer((json_int_t)tensor_count(set)));
    json_object_set_new(report, "elements", json_integer((json_int_t)elements));
    json_object_set_new(report, "total_bytes", json_integer((json_int_t)bytes));
    put_metadata(set, report);
    json_object_set(report, "tensor", list);
    for (size_t i = 0; i < tensor_count(set); i++)
        TRY(tensor_finite(set, tensor_at(set, i), e));
fail:
    json_decref(list);
    tensor_close(set);
    return rc;
}

/* ---- JSONL ---- */

struct column {
    uint64_t rows, texts, length, longest;
    unsigned types; // bits 1 << json_type
};

struct columns {
    struct map names; // Name to number.
    struct column *column;
    size_t cap;
};

static void see_value(struct columns *all, const char *key, const json_t *v)
{
    int64_t i = (int64_t)all->names.n;
    if (!map_get(&all->names, key, strlen(key), &i)) {
        map_put(&all->names, key, strlen(key), i);
        mem_grow(&all->column, &all->cap, all->names.n, sizeof *all->column);
        all->column[i] = (struct column){0};
    }
    struct column *c = &all->column[i];
    c->rows++;
    c->types |= 1u << json_typeof(v);
    if (json_is_string(v)) {
        c->texts++;
        c->length += json_string_length(v);
        c->longest = MAX(c->longest, json_string_length(v));
    }
}

static json_t *column_row(const char *name, const struct column *c)
{
    static const char *const types[] = {
        [JSON_OBJECT] = "object",   [JSON_ARRAY] = "list", [JSON_STRING] = "text",
        [JSON_INTEGER] = "integer", [JSON_REAL] = "real",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",     [JSON_NULL] = "null",
    };
    struct buf list = {0};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (c->types >> i & 1)
            buf_printf(&list, "%s%s", list.len ? " or " : "", types[i]);
    json_t *row = json_pack("{s:s, s:I, s:s}", "name", name, "rows", (json_int_t)c->rows, "type",
                            buf_str(&list));
    if (c->texts > 0) {
        json_object_set_new(row, "mean_length", json_real((double)c->length / (double)c->texts));
        json_object_set_new(row, "longest", json_integer((json_int_t)c->longest));
    } else {
        json_object_set_new(row, "mean_length", json_null());
        json_object_set_new(row, "longest", json_null());
    }
    buf_release(&list);
    return row;
}

/* Counts the current row, which has no use, under its reason. */
static void count_drop(json_t *drops, const struct cli_rows *rows)
{
    json_t *drop;
    size_t i;
    json_array_foreach(drops, i, drop)
    {
        if (strcmp(json_string_value(json_object_get(drop, "reason")), rows->unusable) != 0)
            continue;
        json_t *n = json_object_get(drop, "rows");
        json_integer_set(n, json_integer_value(n) + 1);
        return;
    }
    json_array_append_new(drops, json_pack("{s:s, s:i, s:I}", "reason", rows->unusable, "rows", 1,
                                           "first_line", (json_int_t)rows->line));
}

int cli_inspect_rows(const char *path, json_t *report, struct err *e)
{
    int rc = 0;
    struct cli_rows rows;
    struct columns all = {0};
    const char *key;
    const json_t *v;
    json_t *list = json_array(), *drops = json_array();
    json_object_set_new(report, "kind", json_string("JSONL"));
    TRY(cli_rows_open(&rows, path, e));
    rows.tolerant = true;
    while ((rc = cli_rows_next(&rows, e)) > 0) {
        if (rows.unusable)
            count_drop(drops, &rows);
        json_object_foreach(rows.row, key, v) see_value(&all, key, v);
    }
    TRY(rc);
    json_object_set_new(report, "rows", json_integer((json_int_t)rows.rows));
    if (json_array_size(drops) > 0)
        json_object_set(report, "dropped_in_training", drops);
    for (size_t i = 0; i < all.names.n; i++)
        json_array_append_new(list, column_row(all.names.entry[i].key, &all.column[i]));
    json_object_set(report, "columns", list);
fail:
    cli_rows_close(&rows);
    json_decref(list);
    json_decref(drops);
    map_release(&all.names);
    mem_free(all.column);
    return rc;
}
