/* One metric of a run's JSONL file, read back as a curve. */
#include "telem/telem_int.h"

#include "base/mem.h"

#include <jansson.h>
#include <string.h>

void telem_series_release(struct telem_series *s)
{
    mem_free(s->x);
    mem_free(s->y);
    *s = (struct telem_series){0};
}

static void add_point(struct telem_series *s, double x, double y)
{
    size_t cap = s->cap;
    mem_grow(&s->x, &cap, s->n + 1, sizeof *s->x);
    mem_grow(&s->y, &s->cap, s->n + 1, sizeof *s->y);
    s->x[s->n] = x;
    s->y[s->n++] = y;
}

/* Adds the line's point, if it has one. *last is the step of the line before. */
static int read_line(struct telem_series *s, const char *line, size_t n, const char *name,
                     double *last, struct err *e)
{
    json_error_t problem;
    json_t *object = json_loadb(line, n, JSON_DECODE_INT_AS_REAL, &problem);
    if (!object)
        return err_set(e, ERR_FORMAT, "not JSON: %s", problem.text);
    const json_t *step = json_object_get(object, "step"), *value = json_object_get(object, name);
    bool rises = json_is_real(step) && json_real_value(step) > *last;
    if (rises) {
        *last = json_real_value(step);
        if (json_is_real(value))
            add_point(s, *last, json_real_value(value));
    }
    json_decref(object);
    return rises ? 0 : err_set(e, ERR_FORMAT, "expected a step above that of the line before");
}

/* A last line without its newline is what a killed run left unfinished: no line. */
int telem_series_read_head(struct telem_series *s, const char *path, uint64_t bytes,
                           const char *name, struct err *e)
{
    int rc = 0, line = 1;
    double last = -1;
    struct file_map m = {0};
    *s = (struct telem_series){0};
    TRY(file_map(&m, path, e));
    const size_t size = MIN(m.size, bytes);
    for (size_t at = 0; at < size; line++) {
        const char *text = (const char *)m.data + at;
        const char *end = memchr(text, '\n', size - at);
        if (!end)
            break;
        rc = read_line(s, text, (size_t)(end - text), name, &last, e);
        if (rc < 0)
            TRY(err_in(e, rc, "%s:%d", path, line));
        at += (size_t)(end - text) + 1;
    }
    file_unmap(&m);
    return 0;
fail:
    file_unmap(&m);
    telem_series_release(s);
    return rc;
}

int telem_series_read(struct telem_series *s, const char *path, const char *name, struct err *e)
{
    return telem_series_read_head(s, path, UINT64_MAX, name, e);
}
