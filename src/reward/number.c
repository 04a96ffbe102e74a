/* Numbers as people write them, to exact rationals.
 *
 *     answer    = [name "="] {product "="} value
 *     value     = ["-" | "+"] [currency] ["-"] magnitude ["%"] [scale] [unit]
 *     magnitude = whole " " whole "/" whole | whole frac | frac | decimal "/" decimal
 *               | decimal ["\times10^{" whole "}"]
 *     frac      = "\frac{" decimal "}{" decimal "}"
 *     decimal   = digits, in groups of three by "," or " " or in one, and a point
 *
 * The input is in normal form (normal.c). A mixed number needs a proper fraction. What has more
 * than DIGITS_MAX digits or an exponent beyond EXPONENT_MAX is not computed with.
 */
#include "reward/reward_int.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { EXPONENT_MAX = 4000, DIGITS_MAX = 4096 };

struct decimal {
    mpq_t value;
    int decimals, digits; // After the point; significant ones.
    bool is_whole;        // Written without a point.
};

static bool skip(const char **p, const char *s)
{
    size_t n = strlen(s);
    if (strncmp(*p, s, n) != 0)
        return false;
    *p += n;
    return true;
}

static size_t digits_at(const char *s)
{
    return strspn(s, "0123456789");
}

/* Appends the digits of a whole part, separators left out, and moves p behind it. */
static void read_whole(const char **p, char *digits, size_t *n)
{
    size_t run = digits_at(*p);
    memcpy(digits + *n, *p, run);
    *n += run;
    *p += run;
    char separator = **p;
    if (run == 0 || run > 3 || digits[0] == '0' || (separator != ',' && separator != ' '))
        return;
    // A blank before the numerator of a mixed number parts, it does not group.
    while (**p == separator && digits_at(*p + 1) == 3 && (separator == ',' || (*p)[4] != '/')) {
        memcpy(digits + *n, *p + 1, 3);
        *n += 3;
        *p += 4;
    }
}

/* d must be initialised. False, with p anywhere, when there is no decimal at p. */
static bool read_decimal(const char **p, struct decimal *d)
{
    char digits[DIGITS_MAX + 1];
    size_t n = 0;
    read_whole(p, digits, &n);
    d->is_whole = **p != '.';
    d->decimals = 0;
    if (!d->is_whole) {
        size_t run = digits_at(*p + 1);
        memcpy(digits + n, *p + 1, run);
        n += run;
        *p += 1 + run;
        d->decimals = (int)run;
    }
    digits[n] = 0;
    if (n == 0)
        return false;
    d->digits = (int)(n - strspn(digits, "0"));
    mpz_set_str(mpq_numref(d->value), digits, 10);
    mpz_ui_pow_ui(mpq_denref(d->value), 10, (unsigned long)d->decimals);
    mpq_canonicalize(d->value);
    return true;
}

/* value / by, or DEGENERATE. */
static enum reward_parse divide(mpq_t value, const mpq_t by)
{
    if (mpq_sgn(by) == 0)
        return REWARD_DEGENERATE;
    mpq_div(value, value, by);
    return REWARD_NUMBER;
}

/* What stands in one brace of \frac: a decimal with a sign. */
static bool read_braced(const char **p, struct decimal *d)
{
    if (!skip(p, "{"))
        return false;
    bool minus = skip(p, "-");
    if (!read_decimal(p, d) || !skip(p, "}"))
        return false;
    if (minus)
        mpq_neg(d->value, d->value);
    return true;
}

static enum reward_parse read_frac(const char **p, mpq_t value)
{
    struct decimal top, bottom;
    enum reward_parse kind = REWARD_NOT_NUMBER;
    mpq_init(top.value);
    mpq_init(bottom.value);
    if (skip(p, "\\frac") && read_braced(p, &top) && read_braced(p, &bottom)) {
        mpq_set(value, top.value);
        kind = divide(value, bottom.value);
    }
    mpq_clear(top.value);
    mpq_clear(bottom.value);
    return kind;
}

static enum reward_parse read_slash(const char **p, mpq_t value)
{
    struct decimal bottom;
    mpq_init(bottom.value);
    enum reward_parse kind = REWARD_NOT_NUMBER;
    if (skip(p, "/") && read_decimal(p, &bottom))
        kind = divide(value, bottom.value);
    mpq_clear(bottom.value);
    return kind;
}

/* The fraction of a mixed number, added to the whole in value. */
static enum reward_parse read_mixed(const char **p, mpq_t value)
{
    struct decimal top;
    enum reward_parse kind = REWARD_NOT_NUMBER;
    mpq_init(top.value);
    if (**p == '\\')
        kind = read_frac(p, top.value);
    else if (skip(p, " ") && read_decimal(p, &top) && **p == '/')
        kind = read_slash(p, top.value);
    if (kind == REWARD_NUMBER) {
        bool is_proper = mpq_sgn(top.value) > 0 && mpq_cmp_ui(top.value, 1, 1) < 0;
        mpq_add(value, value, top.value);
        kind = is_proper ? REWARD_NUMBER : REWARD_NOT_NUMBER;
    }
    mpq_clear(top.value);
    return kind;
}

/* Times 10^exponent; the digits as written say nothing about precision then. */
static enum reward_parse read_power(const char **p, struct reward_number *x)
{
    char *end;
    bool has_brace = skip(p, "{");
    if (!isdigit((unsigned char)**p) && **p != '-')
        return REWARD_NOT_NUMBER;
    long exponent = strtol(*p, &end, 10);
    *p = end;
    if (has_brace && !skip(p, "}"))
        return REWARD_NOT_NUMBER;
    if (exponent > EXPONENT_MAX || exponent < -EXPONENT_MAX)
        return REWARD_BEYOND;
    mpq_t power;
    mpq_init(power);
    mpz_ui_pow_ui(mpq_numref(power), 10, (unsigned long)labs(exponent));
    if (exponent >= 0)
        mpq_mul(x->value, x->value, power);
    else
        mpq_div(x->value, x->value, power);
    mpq_clear(power);
    x->decimals = -1;
    return REWARD_NUMBER;
}

/* Whether a blank and a fraction follow: the whole before them is part of a mixed number. */
static bool mixed_follows(const char *p)
{
    return *p == ' ' && digits_at(p + 1) > 0 && p[1 + digits_at(p + 1)] == '/';
}

static enum reward_parse read_magnitude(const char **p, struct reward_number *x)
{
    x->decimals = -1;
    if (**p == '\\')
        return read_frac(p, x->value);
    struct decimal d;
    mpq_init(d.value);
    enum reward_parse kind = read_decimal(p, &d) ? REWARD_NUMBER : REWARD_NOT_NUMBER;
    mpq_set(x->value, d.value);
    mpq_clear(d.value);
    if (kind != REWARD_NUMBER)
        return kind;
    if (d.is_whole && (strncmp(*p, "\\frac", 5) == 0 || mixed_follows(*p)))
        return read_mixed(p, x->value);
    if (**p == '/' && isdigit((unsigned char)(*p)[1]))
        return read_slash(p, x->value);
    if (skip(p, "\\times10^") || skip(p, "\\cdot10^") || skip(p, "*10^") || skip(p, " x 10^"))
        return read_power(p, x);
    if ((**p == 'e' || **p == 'E') && (isdigit((unsigned char)(*p)[1]) || (*p)[1] == '-')) {
        ++*p;
        return read_power(p, x);
    }
    x->decimals = d.decimals;
    x->digits = d.digits;
    return REWARD_NUMBER;
}

static bool skip_word(const char **p, const char *word)
{
    const char *s = *p + (**p == ' ');
    size_t n = strlen(word);
    if (strncasecmp(s, word, n) != 0 || isalpha((unsigned char)s[n]))
        return false;
    *p = s + n;
    return true;
}

/* Words that multiply the number before them. */
static void read_scale(const char **p, mpq_t value)
{
    static const struct {
        const char *word;
        unsigned long factor;
    } SCALE[] = {{"hundred", 100},
                 {"thousand", 1000},
                 {"million", 1000000},
                 {"billion", 1000000000},
                 {"trillion", 1000000000000}};
    for (size_t i = 0; i < ARRAY_LEN(SCALE); i++) {
        if (skip_word(p, SCALE[i].word)) {
            mpq_t factor;
            mpq_init(factor);
            mpq_set_ui(factor, SCALE[i].factor, 1);
            mpq_mul(value, value, factor);
            mpq_clear(factor);
            return;
        }
    }
}

/* Everything behind the magnitude must be a percent sign, a scale, or a unit. */
static bool read_suffix(const char *p, struct reward_number *x)
{
    x->is_percent = skip(&p, "%") || skip_word(&p, "percent") || skip_word(&p, "pct");
    if (!x->is_percent)
        read_scale(&p, x->value);
    bool is_apart = *p == ' ' || x->is_percent;
    p += *p == ' ';
    size_t n = strlen(p);
    int unit = n > 1 || is_apart ? reward_unit_find(p, n) : 0;
    if (unit > 0)
        x->unit = unit;
    return unit > 0 || reward_unit_ok(p, n, is_apart);
}

/* A currency sign; its unit goes into *unit. */
static void skip_currency(const char **p, int *unit)
{
    static const char *const SIGN[] = {"$", "\u20ac", "\u00a3", "\u00a5"};
    for (size_t i = 0; i < ARRAY_LEN(SIGN); i++)
        if (skip(p, SIGN[i]))
            *unit = reward_unit_find(SIGN[i], strlen(SIGN[i]));
}

static enum reward_parse read_value(const char *p, struct reward_number *x)
{
    if (strcasecmp(p, "nan") == 0)
        return REWARD_DEGENERATE;
    bool minus = skip(&p, "-");
    if (!minus)
        (void)skip(&p, "+");
    skip_currency(&p, &x->unit);
    if (!minus && x->unit > 0)
        minus = skip(&p, "-");
    enum reward_parse kind = read_magnitude(&p, x);
    if (kind != REWARD_NUMBER)
        return kind;
    if (minus)
        mpq_neg(x->value, x->value);
    return read_suffix(p, x) ? REWARD_NUMBER : REWARD_NOT_NUMBER;
}

/* Words, with subscripts or an argument: x, x_{1}, f(x), Total cost. */
static bool is_name(const char *s, size_t n)
{
    if (n == 0 || !isalpha((unsigned char)s[0]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("_{}() ", s[i]))
            return false;
    return true;
}

/* A calculation without variables, as in 40*34. */
static bool is_product(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strncmp(s + i, "\\times", 6) == 0 || strncmp(s + i, "\\cdot", 5) == 0)
            i += s[i + 1] == 't' ? 5 : 4;
        else if (!isdigit((unsigned char)s[i]) && !strchr("+-*/().,$% ", s[i]))
            return false;
    }
    return n > 0;
}

static bool has_many_digits(const char *s)
{
    size_t n = 0;
    for (; *s && n <= DIGITS_MAX; s++)
        n += isdigit((unsigned char)*s) != 0;
    return n > DIGITS_MAX;
}

enum reward_parse reward_number_parse(const char *s, bool is_gold, struct reward_number *x)
{
    *x = (struct reward_number){.decimals = -1};
    mpq_init(x->value);
    if (has_many_digits(s))
        return REWARD_BEYOND;
    const char *equals = strchr(s, '=');
    if (equals && is_name(s, (size_t)(equals - s))) {
        x->name = s;
        x->name_len = (size_t)(equals - s);
        s = equals + 1;
    }
    while (!is_gold && (equals = strchr(s, '=')) && is_product(s, (size_t)(equals - s)))
        s = equals + 1;
    return read_value(s, x);
}

void reward_number_release(struct reward_number *x)
{
    mpq_clear(x->value);
}

static bool is_digit_at(const char *s, size_t n, size_t i)
{
    return i < n && isdigit((unsigned char)s[i]);
}

/* Length of a plain decimal at s[i]: digits, commas between digits, one point before a digit. */
static size_t plain_span(const char *s, size_t n, size_t i)
{
    size_t first = i;
    bool has_point = false;
    while (i < n) {
        bool inner = is_digit_at(s, n, i + 1);
        if (s[i] == '.' && inner && !has_point)
            has_point = true;
        else if (!isdigit((unsigned char)s[i]) && !(s[i] == ',' && inner && i > first))
            break;
        i++;
    }
    return i - first;
}

static size_t frac_span(const char *s, size_t n)
{
    size_t i = n > 5 && memcmp(s, "\\frac", 5) == 0 ? 5 : 0;
    if (n > 6 && (memcmp(s, "\\dfrac", 6) == 0 || memcmp(s, "\\tfrac", 6) == 0))
        i = 6;
    for (int braces = i > 0 ? 2 : 0; braces > 0; braces--) {
        if (i >= n || s[i] != '{')
            return 0;
        i += 1 + plain_span(s, n, i + 1);
        if (i >= n || s[i++] != '}')
            return 0;
    }
    return i;
}

size_t reward_number_span(const char *s, size_t n)
{
    if (s[0] == '\\')
        return frac_span(s, n);
    size_t i = plain_span(s, n, 0);
    if (i == 0)
        return 0;
    size_t after = i + (i < n && s[i] == ' '), top = plain_span(s, n, after);
    if (after > i && top > 0 && after + top < n && s[after + top] == '/' &&
        is_digit_at(s, n, after + top + 1))
        i = after + top; // The whole of a mixed number goes along.
    if (i < n && s[i] == '/' && is_digit_at(s, n, i + 1))
        i += 1 + plain_span(s, n, i + 1);
    if (i < n && (s[i] == '%' || (s[i] == '\\' && i + 1 < n && s[i + 1] == '%')))
        i += s[i] == '%' ? 1 : 2;
    return i;
}
