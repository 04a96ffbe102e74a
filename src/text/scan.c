/* Splitting text into pieces: the families' regular expressions as hand-written scanners, and
 * digits.
 *
 * A scanner returns the length of the first match at s. All three patterns match at every position,
 * so there are no gaps, and none looks behind, so a piece needs only what follows it. */
#include "text/text_int.h"

#include <string.h>

#define QWEN2_NUMBER  "\\p{N}"
#define LLAMA3_NUMBER "\\p{N}{1,3}"
#define MODERN(number)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" number                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char text_pattern_qwen2[] = MODERN(QWEN2_NUMBER);
const char text_pattern_llama3[] = MODERN(LLAMA3_NUMBER);
const char text_pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define KINDS (CLASS_LETTER | CLASS_NUMBER | CLASS_SPACE) // At most one of them is set.

/* Text under a scanner. */
struct scan {
    const uint8_t *classes;
    const char *s;
    size_t n;
};

/* End of the run from `at` on of at most `max` code points whose bits under mask equal want. */
static size_t run_end(const struct scan *in, size_t at, unsigned mask, unsigned want, size_t max)
{
    for (; at < in->n && max > 0; max--) {
        size_t len;
        if ((text_class_at(in->classes, in->s + at, in->n - at, &len) & mask) != want)
            break;
        at += len;
    }
    return at;
}

static bool is_break(char c)
{
    return c == '\r' || c == '\n';
}

/* 's|'t|'re|'ve|'m|'ll|'d at an apostrophe: its length or 0. In any case, long s is an s too. */
static size_t contraction(const struct scan *in, bool any_case)
{
    const char fold = any_case ? 0x20 : 0;
    if (in->n < 2)
        return 0;
    char a = (char)(in->s[1] | fold);
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (in->n < 3)
        return 0;
    if (any_case && memcmp(in->s + 1, "\u017F", 2) == 0)
        return 3;
    char b = (char)(in->s[2] | fold);
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* \s*[\r\n]+ (when breaks count), \s+(?!\S), \s+ at a space. */
static size_t spaces(const struct scan *in, bool breaks)
{
    size_t end = 0, last = 0, after_break = 0;
    while (end < in->n) {
        size_t len;
        if (!(text_class_at(in->classes, in->s + end, in->n - end, &len) & CLASS_SPACE))
            break;
        if (is_break(in->s[end]))
            after_break = end + 1;
        last = end;
        end += len;
    }
    if (breaks && after_break > 0)
        return after_break;
    return end == in->n || last == 0 ? end : last;
}

/* Qwen2's and Llama-3's pattern; they differ in how many numbers go together. */
static size_t scan_modern(const struct scan *in, size_t numbers)
{
    size_t len;
    unsigned class = text_class_at(in->classes, in->s, in->n, &len);
    size_t taken = in->s[0] == '\'' ? contraction(in, true) : 0;
    if (taken > 0)
        return taken;
    if (class & CLASS_NUMBER)
        return run_end(in, 0, CLASS_NUMBER, CLASS_NUMBER, numbers);
    size_t letters = class & CLASS_LETTER ? 0 : len; // One character may stand before them.
    size_t end =
        is_break(in->s[0]) ? 0 : run_end(in, letters, CLASS_LETTER, CLASS_LETTER, SIZE_MAX);
    if (end > letters)
        return end;
    size_t others = in->s[0] == ' ';
    end = run_end(in, others, KINDS, 0, SIZE_MAX);
    if (end == others)
        return spaces(in, true);
    while (end < in->n && is_break(in->s[end]))
        end++;
    return end;
}

static size_t scan_gpt2(const struct scan *in)
{
    size_t taken = in->s[0] == '\'' ? contraction(in, false) : 0;
    if (taken > 0)
        return taken;
    size_t from = in->s[0] == ' ';
    if (from == in->n)
        return from;
    size_t len;
    unsigned kind = text_class_at(in->classes, in->s + from, in->n - from, &len) & KINDS;
    if (kind == CLASS_SPACE)
        return spaces(in, false);
    return run_end(in, from, KINDS, kind, SIZE_MAX);
}

static size_t scan_digits(const struct scan *in, size_t together)
{
    size_t len;
    unsigned numeric = text_class_at(in->classes, in->s, in->n, &len) & CLASS_NUMERIC;
    return run_end(in, 0, CLASS_NUMERIC, numeric, numeric ? together : SIZE_MAX);
}

size_t text_scan(enum text_step_kind kind, const uint8_t *classes, const char *s, size_t n)
{
    struct scan in = {classes, s, n};
    ASSERT(kind != STEP_PREFIX);
    switch (kind) {
    case STEP_DIGITS:
        return scan_digits(&in, 1);
    case STEP_DIGIT_RUNS:
        return scan_digits(&in, SIZE_MAX);
    case STEP_GPT2:
        return scan_gpt2(&in);
    case STEP_QWEN2:
        return scan_modern(&in, 1);
    default:
        return scan_modern(&in, 3);
    }
}
