/* JSON lines from a file or from stdin, one at a time. Reading waits only when no whole line is
 * here, so a program may drive a command through two pipes.
 */
#include "cli/cli.h"

#include "base/mem.h"
#include "data/data.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static const char STDIN_NAME[] = "standard input";

static bool is_stdin(const char *path)
{
    return !path || strcmp(path, "-") == 0;
}

/* Reads once from stdin, waiting for something; *more is false at its end. */
static int read_some(struct buf *b, bool *more, struct err *e)
{
    char step[1 << 16];
    ssize_t n;
    do
        n = read(STDIN_FILENO, step, sizeof step);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_set(e, ERR_IO, "%s: cannot read: %s", STDIN_NAME, strerror(errno));
    *more = n > 0;
    buf_put(b, step, (size_t)n);
    return 0;
}

int cli_read_all(const char *path, struct buf *b, const char **name, struct err *e)
{
    int rc = 0;
    struct file_map map = {0};
    char *data = NULL;
    size_t size;
    b->max = SIZE_MAX / 2;
    *name = is_stdin(path) ? STDIN_NAME : path;
    if (is_stdin(path)) {
        for (bool more = true; more;)
            TRY(read_some(b, &more, e));
        return 0;
    }
    if (!file_is_stream(path))
        TRY(file_map(&map, path, e));
    buf_put(b, map.data, map.size);
    if (map.size == 0) { // a stream, or a file of /proc, which has no size
        TRY(file_read(path, b->max, &data, &size, e));
        buf_put(b, data, size);
    }
fail:
    file_unmap(&map);
    mem_free(data);
    return rc;
}

int cli_rows_open(struct cli_rows *r, const char *path, struct err *e)
{
    int rc = 0;
    *r = (struct cli_rows){.name = STDIN_NAME, .more = true, .held.max = SIZE_MAX / 2};
    if (is_stdin(path))
        return 0;
    r->more = false;
    r->name = path;
    if (!file_is_stream(path))
        TRY(file_map(&r->map, path, e));
    r->text = (const char *)r->map.data;
    r->size = r->map.size;
    if (r->size == 0) {
        TRY(cli_read_all(path, &r->held, &r->name, e));
        r->text = r->held.data;
        r->size = r->held.len;
    }
fail:
    return rc;
}

bool cli_rows_ready(const struct cli_rows *r)
{
    return r->at < r->size && (!r->more || memchr(r->text + r->at, '\n', r->size - r->at));
}

void cli_rows_close(struct cli_rows *r)
{
    json_decref(r->row);
    file_unmap(&r->map);
    buf_release(&r->held);
    *r = (struct cli_rows){0};
}

int cli_rows_refuse(const struct cli_rows *r, struct err *e, const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    int rc = err_set(e, ERR_DATA, "%s:%" PRIu64 ": %s", r->name, r->line, buf_str(&text));
    buf_release(&text);
    return rc;
}

/* The end of the line that starts at r->at, reading on as needed: its newline, or that of all. */
static int find_end(struct cli_rows *r, size_t *end, struct err *e)
{
    for (size_t seen = r->at;;) {
        const char *newline = seen < r->size ? memchr(r->text + seen, '\n', r->size - seen) : NULL;
        *end = newline ? (size_t)(newline - r->text) : r->size;
        if (newline || !r->more)
            return 0;
        if (!r->tolerant && *end - r->at > DATA_ROW_BYTES) // It will be refused for that.
            return 0;
        r->held.len = seen = r->size - r->at;
        if (r->held.len > 0)
            memmove(r->held.data, r->held.data + r->at, r->held.len);
        r->at = 0;
        int rc = read_some(&r->held, &r->more, e);
        if (rc < 0)
            return rc;
        r->text = r->held.data;
        r->size = r->held.len;
    }
}

static int parse_row(struct cli_rows *r, const char *line, size_t n, struct err *e)
{
    json_decref(r->row);
    int rc = data_object(line, n, &r->row, &r->unusable, e);
    if (rc < 0)
        return err_in(e, rc, "%s:%" PRIu64, r->name, r->line);
    if (r->unusable && !r->tolerant)
        rc = cli_rows_refuse(r, e, "%s: mend or remove the line", r->unusable);
    return rc;
}

int cli_rows_next(struct cli_rows *r, struct err *e)
{
    int rc = 0;
    size_t end;
    for (;;) {
        TRY(find_end(r, &end, e));
        if (end == r->size && r->at == end)
            break;
        const char *line = r->text + r->at;
        size_t n = end - r->at;
        r->at = MIN(end + 1, r->size);
        r->line++;
        if (r->line == 1 && n >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) { // a byte order mark
            line += 3;
            n -= 3;
        }
        while (n > 0 && strchr(" \t\r", line[n - 1]))
            n--;
        if (n == 0)
            continue;
        TRY(parse_row(r, line, n, e));
        r->rows++;
        return 1;
    }
    if (r->rows == 0)
        rc = err_set(e, ERR_DATA, "%s: no row; expected one JSON object {...} a line", r->name);
fail:
    return rc;
}
