/* NFC (Unicode Standard Annex 15) by utf8proc's data, as the reference has it.
 *
 * The reference knows Unicode 9. So a decomposition or composition counts only for code points of
 * CLASS_COMPOSITE, and a combining class only for those of CLASS_MARK: both sets were probed from
 * it, and Unicode never changes these values once given, so any newer utf8proc does. */
#include "text/text_int.h"

#include <string.h>
#include <utf8proc.h>

#define DECOMPOSED_MAX 4 // code points from one (U+1F82 and its like)

static unsigned combining_class(const uint8_t *classes, uint32_t code)
{
    if (!(classes[code] & CLASS_MARK))
        return 0;
    return (unsigned)utf8proc_get_property((utf8proc_int32_t)code)->combining_class;
}

/* Canonical decomposition of s into w->code; returns the number of code points. */
static size_t decompose(struct text_nfc *w, const uint8_t *classes, const char *s, size_t n)
{
    size_t n_codes = 0;
    for (size_t at = 0; at < n;) {
        mem_grow(&w->code, &w->cap, n_codes + DECOMPOSED_MAX, sizeof *w->code);
        uint32_t code = 0;
        at += (size_t)utf8_decode(s + at, n - at, &code);
        if (!(classes[code] & CLASS_COMPOSITE)) {
            w->code[n_codes++] = code;
            continue;
        }
        int boundary = 0;
        utf8proc_int32_t parts[DECOMPOSED_MAX];
        utf8proc_ssize_t got =
            utf8proc_decompose_char((utf8proc_int32_t)code, parts, DECOMPOSED_MAX,
                                    UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
        ASSERT(got > 0 && got <= DECOMPOSED_MAX);
        for (utf8proc_ssize_t i = 0; i < got; i++)
            w->code[n_codes++] = (uint32_t)parts[i];
    }
    return n_codes;
}

/* Sorts code[0..n) by combining class, stably: counting, so that long runs stay cheap. */
static void sort_marks(const uint8_t *classes, uint32_t *code, uint32_t *sorted, size_t n)
{
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[combining_class(classes, code[i]) + 1]++;
    for (int c = 0; c < 256; c++)
        start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++)
        sorted[start[combining_class(classes, code[i])]++] = code[i];
    memcpy(code, sorted, n * sizeof *code);
}

/* Puts each run of marks in canonical order. */
static void reorder(struct text_nfc *w, const uint8_t *classes, size_t n)
{
    for (size_t lo = 0; lo < n; lo++) {
        unsigned last = combining_class(classes, w->code[lo]);
        if (last == 0)
            continue;
        size_t hi = lo + 1;
        bool in_order = true;
        for (; hi < n; hi++) {
            unsigned next = combining_class(classes, w->code[hi]);
            if (next == 0)
                break;
            in_order = in_order && last <= next;
            last = next;
        }
        if (!in_order)
            sort_marks(classes, w->code + lo, w->sort, hi - lo);
        lo = hi;
    }
}

/* What a and b compose to, or 0. No composition has its second part below U+0300. */
static uint32_t compose_pair(const uint8_t *classes, uint32_t a, uint32_t b)
{
    if (b < 0x300)
        return 0;
    utf8proc_int32_t pair[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    if (utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) != 1)
        return 0;
    return classes[pair[0]] & CLASS_COMPOSITE ? (uint32_t)pair[0] : 0;
}

/* Canonical composition in place; returns the new number of code points. */
static size_t compose(struct text_nfc *w, const uint8_t *classes, size_t n)
{
    size_t out = 0, starter = SIZE_MAX;
    unsigned last = 0; // Class of the code point before, when it stands after the starter.
    for (size_t i = 0; i < n; i++) {
        uint32_t code = w->code[i];
        unsigned class = combining_class(classes, code);
        bool adjacent = starter != SIZE_MAX && starter + 1 == out;
        if (starter != SIZE_MAX && (adjacent || last < class)) {
            uint32_t composed = compose_pair(classes, w->code[starter], code);
            if (composed) {
                w->code[starter] = composed;
                continue;
            }
        }
        if (class == 0)
            starter = out;
        last = class;
        w->code[out++] = code;
    }
    return out;
}

/* Text whose code points all lie below U+0300 is in NFC: its lead bytes lie below 0xCC. */
static bool is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0xCC)
            return false;
    return true;
}

void text_nfc(struct text_nfc *w, const uint8_t *classes, const char *s, size_t n, struct buf *out)
{
    if (is_plain(s, n)) {
        buf_put(out, s, n);
        return;
    }
    size_t n_codes = decompose(w, classes, s, n);
    mem_grow(&w->sort, &w->sort_cap, n_codes, sizeof *w->sort);
    reorder(w, classes, n_codes);
    n_codes = compose(w, classes, n_codes);
    for (size_t i = 0; i < n_codes; i++) {
        char bytes[4];
        buf_put(out, bytes, (size_t)utf8_encode(w->code[i], bytes));
    }
}

void text_nfc_release(struct text_nfc *w)
{
    mem_free(w->code);
    mem_free(w->sort);
    *w = (struct text_nfc){0};
}
