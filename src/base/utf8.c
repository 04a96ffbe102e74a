/* UTF-8: decoding by the Unicode standard's table 3-7, and text made safe for JSON and terminals.
 */
#include "base/str.h"

static const char replacement[] = "\xEF\xBF\xBD"; // U+FFFD

/* What a lead byte asks of its sequence: length, and the range of the second byte. */
struct lead {
    int len; // 0: no lead byte
    unsigned char lo, hi;
};

static struct lead lead_of(unsigned char c)
{
    if (c < 0xC2 || c > 0xF4)
        return (struct lead){0};
    if (c < 0xE0)
        return (struct lead){2, 0x80, 0xBF};
    if (c < 0xF0)
        return (struct lead){3, c == 0xE0 ? 0xA0 : 0x80, c == 0xED ? 0x9F : 0xBF};
    return (struct lead){4, c == 0xF0 ? 0x90 : 0x80, c == 0xF4 ? 0x8F : 0xBF};
}

int utf8_decode(const char *s, size_t n, uint32_t *code)
{
    ASSERT(n > 0);
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *code = u[0];
        return 1;
    }
    struct lead lead = lead_of(u[0]);
    if (lead.len == 0)
        return -1;
    uint32_t c = u[0] & (0x7Fu >> lead.len);
    for (int i = 1; i < lead.len; i++) {
        unsigned char lo = i == 1 ? lead.lo : 0x80, hi = i == 1 ? lead.hi : 0xBF;
        if ((size_t)i >= n || u[i] < lo || u[i] > hi)
            return -i;
        c = c << 6 | (u[i] & 0x3F);
    }
    *code = c;
    return lead.len;
}

int utf8_encode(uint32_t code, char out[4])
{
    ASSERT(code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF));
    int len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (char)(len == 1 ? code : (0xF00u >> len & 0xF0) | code);
    return len;
}

size_t utf8_valid(const char *s, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint32_t code;
        int len = utf8_decode(s + at, n - at, &code);
        if (len < 0)
            break;
        at += (size_t)len;
    }
    return at;
}

void buf_utf8_lossy(struct buf *b, const char *s, size_t n)
{
    for (;;) {
        size_t good = utf8_valid(s, n);
        buf_put(b, s, good);
        s += good;
        n -= good;
        if (n == 0)
            return;
        uint32_t code;
        size_t bad = (size_t)-utf8_decode(s, n, &code);
        buf_puts(b, replacement);
        s += bad;
        n -= bad;
    }
}

/* The letter after a JSON or C escape's backslash, or 0. */
static char short_escape(uint32_t code)
{
    switch (code) {
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

/* Calls put for each code point of s with its bytes; invalid parts arrive as U+FFFD. */
static void each_code(struct buf *b, const char *s, size_t n, bool flag,
                      void (*put)(struct buf *b, uint32_t code, const char *s, size_t len,
                                  bool flag))
{
    while (n > 0) {
        uint32_t code;
        int len = utf8_decode(s, n, &code);
        size_t step = (size_t)(len < 0 ? -len : len);
        if (len < 0)
            put(b, 0xFFFD, replacement, sizeof replacement - 1, flag);
        else
            put(b, code, s, step, flag);
        s += step;
        n -= step;
    }
}

static void put_json(struct buf *b, uint32_t code, const char *s, size_t len, bool flag)
{
    (void)flag;
    if (code == '"' || code == '\\')
        buf_printf(b, "\\%c", (char)code);
    else if (short_escape(code))
        buf_printf(b, "\\%c", short_escape(code));
    else if (code < 0x20)
        buf_printf(b, "\\u%04x", code);
    else
        buf_put(b, s, len);
}

void buf_json(struct buf *b, const char *s, size_t n)
{
    buf_putc(b, '"');
    each_code(b, s, n, false, put_json);
    buf_putc(b, '"');
}

/* Code points that move a terminal's cursor or turn its text around. */
static bool is_unsafe(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x200E && code <= 0x200F) ||
           (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

static void put_terminal(struct buf *b, uint32_t code, const char *s, size_t len,
                         bool keep_newlines)
{
    if (!is_unsafe(code) || (code == '\n' && keep_newlines))
        buf_put(b, s, len);
    else if (short_escape(code))
        buf_printf(b, "\\%c", short_escape(code));
    else
        buf_printf(b, code < 0x100 ? "\\x%02x" : "\\u%04x", code);
}

void buf_terminal(struct buf *b, const char *s, size_t n, bool keep_newlines)
{
    each_code(b, s, n, keep_newlines, put_terminal);
}
