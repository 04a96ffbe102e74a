/* Growable byte buffers, and numbers and names in text. The program never calls setlocale, so the
 * C locale holds and strtod and printf are what JSON asks for.
 */
#include "base/str.h"
#include "base/mem.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_MAX_DEFAULT ((size_t)1 << 30)
#define NAME_MAX_LEN    64 // Longer names are never "meant".
#define DISTANCE_CAP    99

static void buf_reserve(struct buf *b, size_t n)
{
    size_t max = b->max ? b->max : BUF_MAX_DEFAULT;
    ASSERT(n <= max && b->len <= max - n);
    mem_grow(&b->data, &b->cap, b->len + n + 1, 1);
}

void buf_put(struct buf *b, const void *data, size_t n)
{
    buf_reserve(b, n);
    if (n > 0)
        memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void buf_putc(struct buf *b, char c)
{
    buf_put(b, &c, 1);
}

void buf_puts(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    ASSERT(n >= 0);
    buf_reserve(b, (size_t)n);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    b->len += (size_t)n;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

void buf_release(struct buf *b)
{
    mem_free(b->data);
    *b = (struct buf){.max = b->max};
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}

/* The fewest significant digits that are read back as the same float (narrow) or double. What has
   FLT_DIG or DBL_DIG digits is printed with no more by that precision, so the search begins there;
   only numbers with a shortened significand may need fewer than it prints. */
static void put_shortest(struct buf *b, double x, bool narrow)
{
    int most = narrow ? 9 : 17, least = narrow ? FLT_DIG : DBL_DIG;

    if (!isfinite(x)) {
        buf_puts(b, "null");
        return;
    }
    if (x == floor(x) && fabs(x) < 1e15) { // 100, not 1e+02
        buf_printf(b, "%.0f", x);
        return;
    }
    if (fabs(x) < (narrow ? (double)FLT_MIN : DBL_MIN))
        least = 1;
    char text[40];
    for (int digits = least; digits <= most; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        double back = narrow ? (double)strtof(text, NULL) : strtod(text, NULL);
        if (memcmp(&back, &x, sizeof x) == 0)
            break;
    }
    buf_puts(b, text);
}

void buf_float(struct buf *b, float x)
{
    put_shortest(b, (double)x, true);
}

void buf_double(struct buf *b, double x)
{
    put_shortest(b, x, false);
}

int str_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    if (na > NAME_MAX_LEN || nb > NAME_MAX_LEN)
        return DISTANCE_CAP;
    int row[3][NAME_MAX_LEN + 1]; // [i % 3][j]: distance of a's first i bytes to b's first j
    for (size_t j = 0; j <= nb; j++)
        row[0][j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            now[j] = MIN(last[j - 1] + (a[i - 1] != b[j - 1]), MIN(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = MIN(now[j], before[j - 2] + 1);
        }
    }
    return MIN(row[na % 3][nb], DISTANCE_CAP);
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

static size_t count_digits(const char *s)
{
    return strspn(s, "0123456789");
}

bool str_to_int(const char *s, int64_t *out)
{
    const char *digits = s + (*s == '-');
    size_t n = count_digits(digits);
    if (n == 0 || digits[n] != '\0')
        return false;
    errno = 0;
    long long value = strtoll(s, NULL, 10);
    if (errno != 0)
        return false;
    *out = value;
    return true;
}

/* [-] digits [. digits] [e [+-] digits], with a digit beside the point. */
bool str_is_decimal(const char *s)
{
    s += *s == '-';
    size_t whole = count_digits(s), fraction = 0;
    s += whole;
    if (*s == '.') {
        fraction = count_digits(s + 1);
        s += 1 + fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        size_t n = count_digits(s);
        if (n == 0)
            return false;
        s += n;
    }
    return *s == '\0';
}

bool str_to_double(const char *s, double *out)
{
    if (!str_is_decimal(s))
        return false;
    double value = strtod(s, NULL);
    if (!isfinite(value))
        return false;
    *out = value;
    return true;
}
