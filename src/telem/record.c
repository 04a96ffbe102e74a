/* Records of named numbers, and their line of JSON. */
#include "telem/telem_int.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool telem_get(const struct telem_record *r, const char *name, double *value)
{
    for (size_t i = 0; i < r->n; i++) {
        if (strcmp(r->item[i].name, name) == 0) {
            *value = r->item[i].value;
            return true;
        }
    }
    return false;
}

void telem_put(struct telem_record *r, double value, const char *name, ...)
{
    mem_grow(&r->item, &r->cap, r->n + 1, sizeof *r->item);
    struct telem_metric *m = &r->item[r->n];
    va_list ap;
    va_start(ap, name);
    vsnprintf(m->name, sizeof m->name, name, ap);
    va_end(ap);
    m->value = value;
    double other;
    ASSERT(!telem_get(r, m->name, &other));
    r->n++;
}

void telem_record_clear(struct telem_record *r)
{
    r->n = 0;
}

void telem_record_release(struct telem_record *r)
{
    mem_free(r->item);
    *r = (struct telem_record){0};
}

void telem_json(struct buf *out, int64_t step, const struct telem_record *r)
{
    buf_printf(out, "{\"step\": %" PRId64, step);
    for (size_t i = 0; i < r->n; i++) {
        buf_puts(out, ", ");
        buf_json(out, r->item[i].name, strlen(r->item[i].name));
        buf_puts(out, ": ");
        buf_double(out, r->item[i].value);
    }
    buf_puts(out, "}\n");
}
