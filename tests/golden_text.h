/* Replays files of token goldens: what tools/oracle/text_golden.py and text_odd.py write.
 *
 * A line is a JSON array [flags, text, ids] or [flags, text, ids, decoded]: text is a string, or
 * {"hex": ...} for bytes that are not UTF-8; decoded, what the ids decode to, is left out where it
 * equals the text. flags are enum text_flags. Or a line brings its own tokenizer: an object
 * {"tokenizer": ..., "lines": [...]}.
 */
#pragma once

#include "text/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What went by, and what failed first. */
struct golden {
    size_t lines, wrong, tokens, bytes;
    char first[2048]; // A message on the first wrong line.
};

/* The bytes of a golden's text. */
static inline void golden_bytes(const json_t *text, struct buf *out)
{
    const char *hex = json_string_value(json_object_get(text, "hex"));
    buf_clear(out);
    if (!hex) {
        buf_put(out, json_string_value(text), json_string_length(text));
        return;
    }
    for (; hex[0] && hex[1]; hex += 2) {
        unsigned byte = 0;
        sscanf(hex, "%2x", &byte);
        buf_putc(out, (char)byte);
    }
}

static inline void golden_fail(struct golden *g, const char *what, const struct buf *text,
                               const struct text_ids *got)
{
    struct buf message = {0};
    if (g->wrong++ > 0)
        return;
    buf_printf(&message, "line %zu: %s of '", g->lines, what);
    buf_terminal(&message, buf_str(text), MIN(text->len, (size_t)300), false);
    buf_puts(&message, "'; got");
    for (size_t i = 0; i < got->n; i++)
        buf_printf(&message, " %d", (int)got->id[i]);
    snprintf(g->first, sizeof g->first, "%s", buf_str(&message));
    buf_release(&message);
}

static inline bool golden_same_ids(const json_t *want, const struct text_ids *got)
{
    if (json_array_size(want) != got->n)
        return false;
    for (size_t i = 0; i < got->n; i++)
        if (json_integer_value(json_array_get(want, i)) != got->id[i])
            return false;
    return true;
}

/* Encodes and decodes one line. */
static inline void golden_line(struct golden *g, struct text *t, const json_t *line)
{
    struct buf text = {0}, raw = {0}, decoded = {0}, want = {0};
    struct text_ids got = {0};
    golden_bytes(json_array_get(line, 1), &text);
    g->lines++;
    g->bytes += text.len;
    text_encode(t, buf_str(&text), text.len, (unsigned)json_integer_value(json_array_get(line, 0)),
                &got);
    g->tokens += got.n;
    text_decode(t, got.id, got.n, false, &raw);
    buf_utf8_lossy(&decoded, buf_str(&raw), raw.len);
    golden_bytes(json_array_get(line, json_array_size(line) > 3 ? 3 : 1), &want);
    if (!golden_same_ids(json_array_get(line, 2), &got))
        golden_fail(g, "ids", &text, &got);
    else if (want.len != decoded.len || memcmp(buf_str(&want), buf_str(&decoded), want.len) != 0)
        golden_fail(g, "decoding", &text, &got);
    buf_release(&text);
    buf_release(&raw);
    buf_release(&decoded);
    buf_release(&want);
    text_ids_release(&got);
}

/* A line that brings its own tokenizer. */
static inline void golden_own(struct golden *g, const json_t *line)
{
    struct text *t;
    struct err e = {0};
    char *tokenizer = json_dumps(json_object_get(line, "tokenizer"), 0);
    const json_t *lines = json_object_get(line, "lines");
    if (text_parse(&t, tokenizer, strlen(tokenizer), &e) < 0) {
        g->lines++;
        if (g->wrong++ == 0)
            snprintf(g->first, sizeof g->first, "line %zu: %s", g->lines, e.text);
    }
    for (size_t i = 0; t && i < json_array_size(lines); i++)
        golden_line(g, t, json_array_get(lines, i));
    text_close(t);
    free(tokenizer);
}

/* Replays a whole file; t may be NULL when its lines bring their own. False when the file cannot be
   read, or a line is not JSON. */
static inline bool golden_replay(struct golden *g, struct text *t, const char *path)
{
    FILE *in = fopen(path, "rb");
    json_error_t error;
    bool good = in != NULL;
    *g = (struct golden){0};
    while (good) {
        json_t *line = json_loadf(in, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &error);
        if (!line) {
            good = feof(in) != 0;
            break;
        }
        if (json_is_object(line))
            golden_own(g, line);
        else
            golden_line(g, t, line);
        json_decref(line);
    }
    if (in)
        fclose(in);
    return good;
}
