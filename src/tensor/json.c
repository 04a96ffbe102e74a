/* Walks long JSON objects member by member; jansson reads the keys and the values. */
#include "tensor/tensor_int.h"

#include "base/str.h"

#include <string.h>

static const size_t flags = JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES;

static void skip_blanks(struct st_walk *w)
{
    while (w->at < w->size && memchr(" \t\r\n", w->text[w->at], 4))
        w->at++;
}

/* The next byte that is not blank, 0 at the end. */
static char peek(struct st_walk *w)
{
    skip_blanks(w);
    return w->at < w->size ? w->text[w->at] : '\0';
}

static int refuse_syntax(const struct st_walk *w, const char *expected, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s, byte %zu: expected %s: " ST_REMEDY, w->what, w->at,
                   expected);
}

int st_walk_open(struct st_walk *w, const char *what, const char *text, size_t size, struct err *e)
{
    *w = (struct st_walk){.text = text, .size = size, .what = what};
    size_t valid = utf8_valid(text, size);
    if (valid < size) {
        w->at = valid;
        return refuse_syntax(w, "UTF-8", e);
    }
    return st_walk_enter(w, NULL, e);
}

int st_walk_enter(struct st_walk *w, const char *name, struct err *e)
{
    if (peek(w) != '{') {
        char shown[ST_NAME_TEXT];
        if (name)
            return err_set(e, ERR_FORMAT, "%s, byte %zu: '%s' is not an object: " ST_REMEDY,
                           w->what, w->at, st_name(name, shown));
        return refuse_syntax(w, "a JSON object", e);
    }
    w->at++;
    w->is_first = true;
    return 0;
}

/* Reads one JSON value from the next `size` bytes and moves past it. */
static int read_value(struct st_walk *w, size_t size, json_t **value, struct err *e)
{
    json_error_t error;
    *value = json_loadb(w->text + w->at, size, flags, &error);
    if (!*value) {
        w->at += (size_t)MAX(error.position, 0);
        return err_set(e, ERR_FORMAT, "%s, byte %zu: %s: " ST_REMEDY, w->what, w->at, error.text);
    }
    w->at += (size_t)error.position;
    return 0;
}

int st_walk_key(struct st_walk *w, json_t **key, struct err *e)
{
    char c = peek(w);
    if (c == '}') {
        w->at++;
        w->is_first = false; // Of the object around this one.
        return 0;
    }
    if (!w->is_first) {
        if (c != ',')
            return refuse_syntax(w, "',' or '}'", e);
        w->at++;
        c = peek(w);
    }
    w->is_first = false;
    if (c != '"')
        return refuse_syntax(w, "a name in quotes", e);
    int rc = read_value(w, w->size - w->at, key, e);
    if (rc < 0)
        return rc;
    if (peek(w) != ':') {
        json_decref(*key);
        *key = NULL;
        return refuse_syntax(w, "':'", e);
    }
    w->at++;
    return 1;
}

int st_walk_value(struct st_walk *w, const char *name, json_t **value, struct err *e)
{
    bool is_string = peek(w) == '"';
    size_t left = w->size - w->at;
    if (is_string || left <= ST_VALUE_BYTES)
        return read_value(w, left, value, e);
    size_t start = w->at;
    struct err cut = {0};
    int rc = read_value(w, ST_VALUE_BYTES, value, &cut);
    char shown[ST_NAME_TEXT];
    if (rc < 0 && w->at - start >= ST_VALUE_BYTES)
        return err_set(e, rc, "%s, byte %zu: '%s' takes more than %d bytes: " ST_REMEDY, w->what,
                       start, st_name(name, shown), ST_VALUE_BYTES);
    return rc < 0 ? err_set(e, rc, "%s", cut.text) : rc;
}

int st_walk_close(struct st_walk *w, struct err *e)
{
    skip_blanks(w);
    return w->at == w->size ? 0 : refuse_syntax(w, "nothing after the object", e);
}

const char *st_name(const char *name, char out[ST_NAME_TEXT])
{
    struct buf b = {0};
    buf_terminal(&b, name, strlen(name), false);
    size_t n = MIN(b.len, (size_t)ST_NAME_TEXT - 4);
    while (n < b.len && n > 0 && ((unsigned char)b.data[n] & 0xC0) == 0x80)
        n--; // Not inside a code point.
    memcpy(out, buf_str(&b), n);
    memcpy(out + n, n < b.len ? "..." : "", n < b.len ? 4 : 1);
    buf_release(&b);
    return out;
}
