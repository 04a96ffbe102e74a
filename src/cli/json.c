/* JSON values as text: on one line for programs, as an indented report for people. */
#include "cli/cli.h"

#include "base/mem.h"

#include <string.h>

static void put_real(struct buf *b, double x)
{
    size_t at = b->len;
    buf_double(b, x);
    if (!strpbrk(b->data + at, ".en")) // stays a real number when it is read again
        buf_puts(b, ".0");
}

void cli_put_json(struct buf *b, const json_t *v)
{
    const char *key, *comma = "";
    const json_t *item;
    size_t i;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        buf_putc(b, '{');
        json_object_foreach((json_t *)v, key, item)
        {
            buf_puts(b, comma);
            buf_json(b, key, strlen(key));
            buf_puts(b, ": ");
            cli_put_json(b, item);
            comma = ", ";
        }
        buf_putc(b, '}');
        break;
    case JSON_ARRAY:
        buf_putc(b, '[');
        json_array_foreach(v, i, item)
        {
            buf_puts(b, i ? ", " : "");
            cli_put_json(b, item);
        }
        buf_putc(b, ']');
        break;
    case JSON_STRING:
        buf_json(b, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        buf_printf(b, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JSON_REAL:
        put_real(b, json_real_value(v));
        break;
    default:
        buf_puts(b, json_is_null(v) ? "null" : json_is_true(v) ? "true" : "false");
    }
}

/* ---- reports ---- */

/* A name for people: "weight_bytes" is "weight". */
static void put_name(struct buf *b, const char *key)
{
    size_t n = strlen(key) - (str_ends(key, "_bytes") ? strlen("_bytes") : 0);
    size_t at = b->len;
    buf_terminal(b, key, n, false);
    for (size_t i = at; i < b->len; i++)
        if (b->data[i] == '_')
            b->data[i] = ' ';
}

/* A value on one line. Texts go without quotes. */
static void put_value(struct buf *b, const char *key, const json_t *v)
{
    enum { TEXT_MAX = 200 };
    const json_t *item;
    size_t i;
    char size[24];
    if (json_is_integer(v) && str_ends(key, "_bytes")) {
        buf_puts(b, mem_text((size_t)json_integer_value(v), size));
    } else if (json_is_string(v)) {
        size_t n = json_string_length(v);
        buf_terminal(b, json_string_value(v), MIN(n, TEXT_MAX), false);
        buf_puts(b, n > TEXT_MAX ? " ..." : "");
    } else if (json_is_boolean(v)) {
        buf_puts(b, json_is_true(v) ? "yes" : "no");
    } else if (json_is_real(v)) {
        buf_printf(b, "%.6g", json_real_value(v));
    } else if (json_is_array(v)) {
        json_array_foreach(v, i, item)
        {
            buf_puts(b, i ? ", " : "");
            put_value(b, "", item);
        }
    } else {
        cli_put_json(b, v);
    }
}

static void pad(struct buf *b, size_t from, int width)
{
    while (b->len < from + (size_t)width)
        buf_putc(b, ' ');
}

/* Ends a line, whose last cell may be padded. */
static void end_line(struct buf *b)
{
    while (b->len > 0 && b->data[b->len - 1] == ' ')
        b->len--;
    buf_putc(b, '\n');
}

static void indent(struct buf *b, int depth)
{
    pad(b, b->len, 2 * depth);
}

/* The length of one cell of a table; with `value` NULL of its heading. */
static int cell_width(const char *key, const json_t *value)
{
    struct buf cell = {0};
    if (value)
        put_value(&cell, key, value);
    else
        put_name(&cell, key);
    int width = (int)cell.len;
    buf_release(&cell);
    return width;
}

/* Rows of objects that have the keys of the first one. */
static void put_table(struct buf *b, const json_t *rows, int depth)
{
    enum { COLUMNS = 16 };
    int width[COLUMNS], n = 0;
    const char *key;
    const json_t *row, *value;
    size_t i;
    json_t *head = json_array_get(rows, 0);
    indent(b, depth);
    json_object_foreach(head, key, value)
    {
        if (n == COLUMNS)
            break;
        width[n] = cell_width(key, NULL);
        json_array_foreach(rows, i, row)
        {
            const json_t *cell = json_object_get(row, key);
            width[n] = MAX(width[n], cell ? cell_width(key, cell) : 0);
        }
        size_t from = b->len;
        put_name(b, key);
        pad(b, from, width[n++] + 2);
    }
    json_array_foreach(rows, i, row)
    {
        end_line(b);
        indent(b, depth);
        n = 0;
        json_object_foreach(head, key, value)
        {
            size_t from = b->len;
            const json_t *cell = json_object_get(row, key);
            if (n == COLUMNS)
                break;
            if (cell)
                put_value(b, key, cell);
            pad(b, from, width[n++] + 2);
        }
    }
    end_line(b);
}

static void put_object(struct buf *b, const json_t *object, int depth)
{
    const char *key;
    const json_t *v;
    int width = 0;
    json_object_foreach((json_t *)object, key, v)
    {
        bool is_line = !json_is_object(v) && !json_is_object(json_array_get(v, 0));
        width = is_line ? MAX(width, cell_width(key, NULL)) : width;
    }
    json_object_foreach((json_t *)object, key, v)
    {
        indent(b, depth);
        size_t from = b->len;
        put_name(b, key);
        if (json_is_object(v)) {
            buf_putc(b, '\n');
            put_object(b, v, depth + 1);
        } else if (json_is_object(json_array_get(v, 0))) {
            buf_putc(b, '\n');
            put_table(b, v, depth + 1);
        } else {
            pad(b, from, width + 2);
            put_value(b, key, v);
            buf_putc(b, '\n');
        }
    }
}

void cli_put_report(struct buf *b, const json_t *object)
{
    put_object(b, object, 0);
}

/* ---- lists of numbers ---- */

void cli_put_ids(struct buf *b, const int *id, size_t n)
{
    buf_putc(b, '[');
    for (size_t i = 0; i < n; i++)
        buf_printf(b, "%s%d", i ? ", " : "", id[i]);
    buf_putc(b, ']');
}

void cli_put_floats(struct buf *b, const float *x, size_t n)
{
    buf_putc(b, '[');
    for (size_t i = 0; i < n; i++) {
        buf_puts(b, i ? ", " : "");
        buf_float(b, x[i]);
    }
    buf_putc(b, ']');
}

int cli_get_ids(const struct cli_rows *r, const json_t *list, int limit, const char *limit_text,
                int **id, size_t *n, struct err *e)
{
    const json_t *item;
    size_t i;
    if (!json_is_array(list))
        return cli_rows_refuse(r, e, "ids: expected a list of token ids");
    *n = json_array_size(list);
    *id = mem_realloc(*id, (*n + 1) * sizeof **id);
    json_array_foreach(list, i, item)
    {
        if (!json_is_integer(item) || json_integer_value(item) < 0 ||
            json_integer_value(item) >= limit) {
            struct buf shown = {0};
            cli_put_json(&shown, item);
            int rc =
                cli_rows_refuse(r, e, "ids[%zu]: expected an integer from 0 to %d (%s), got %.40s",
                                i, limit - 1, limit_text, buf_str(&shown));
            buf_release(&shown);
            return rc;
        }
        (*id)[i] = (int)json_integer_value(item);
    }
    return 0;
}
