/* Growable byte buffers and UTF-8.
 *
 * A buf is always followed by a NUL that is not counted in len, so data is a C string when the
 * bytes hold no NUL. {0} is an empty buf. Every buf may state a ceiling at birth (max, 0 = 1 GiB):
 * exceeding it is our mistake, so callers that read foreign data check first.
 */
#pragma once

#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>

struct buf {
    char *data; // Owned. NULL when empty and never grown: use buf_str.
    size_t len, cap, max;
};

void buf_put(struct buf *b, const void *data, size_t n);
void buf_putc(struct buf *b, char c);
void buf_puts(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap);
void buf_clear(struct buf *b); // len = 0, memory kept.
void buf_release(struct buf *b);
const char *buf_str(const struct buf *b); // Never NULL.

/* Appends s as a JSON string with quotes: escapes ", \, controls; invalid UTF-8 becomes U+FFFD. */
void buf_json(struct buf *b, const char *s, size_t n);

/* Appends a JSON text in which every number that neither an int64_t nor a finite double holds (NaN
   and Infinity as Python writes them among them) is a string with a mark: no number where its key
   matters, and no reason to refuse the text where it does not. The other way, such strings become
   the numbers that they were. Lines stay as they are. */
void buf_json_tame(struct buf *b, const char *text, size_t n);
void buf_json_untame(struct buf *b, const char *text, size_t n);

/* Appends a float or double so that strtof/strtod gives the same bits back ("%.9g" / "%.17g"),
   shortest of those forms, whole numbers below 1e15 without an exponent; non-finite values become
   null. Locale-independent. */
void buf_float(struct buf *b, float x);
void buf_double(struct buf *b, double x);

/* Appends s with control characters and invalid UTF-8 made harmless for a terminal (\n kept when
   keep_newlines). Model text goes through here before it reaches a terminal. */
void buf_terminal(struct buf *b, const char *s, size_t n, bool keep_newlines);

/* Decodes one code point at s (n bytes left, n > 0). Returns its length 1..4 and stores it, or
   returns -k: the maximal invalid subpart has k bytes (Unicode 15, section 3.9, table 3-8). */
int utf8_decode(const char *s, size_t n, uint32_t *code);
int utf8_encode(uint32_t code, char out[4]); // Returns 1..4.

/* Offset of the first invalid byte, or n when all is valid. */
size_t utf8_valid(const char *s, size_t n);

/* Appends s, each maximal invalid subpart replaced by U+FFFD (as Rust's from_utf8_lossy). */
void buf_utf8_lossy(struct buf *b, const char *s, size_t n);

/* Edit distance of two short names (for "did you mean"), capped at 99. Two neighbours swapped are
   one edit. */
int str_distance(const char *a, const char *b);

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Strict number parsing of a whole string: no blanks, no trailing bytes, C locale. True on success.
 */
bool str_to_int(const char *s, int64_t *out);
bool str_is_decimal(const char *s);             // The form of a double, whatever its range.
bool str_to_double(const char *s, double *out); // Accepts 1e-6; refuses nan, inf, hex.
