/* What a knob accepts, in words: for help and documentation, and for the refusal of a value. There
 * a number that is too large or too small is told the bound that it broke.
 */
#include "conf/conf_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void put_limits(const struct conf_knob *k, const char *noun, struct buf *out)
{
    buf_puts(out, noun);
    if (k->hi < MANY)
        buf_printf(out, k->kind == REAL ? " from %g to below %g" : " from %.15g to %.15g", k->lo,
                   k->hi);
    else if (k->kind != SIZE)
        buf_printf(out, " of at least %g", k->lo);
}

static void put_word(const struct conf_knob *k, struct buf *out)
{
    if (k->word)
        buf_printf(out, ", or %s", k->word);
}

void conf_expected(const struct conf_knob *k, struct buf *out)
{
    switch (k->kind) {
    case TEXT:
        buf_puts(out, "a text");
        break;
    case INT:
        put_limits(k, "an integer", out);
        break;
    case SEED:
        buf_printf(out, "an integer from 0 to %" PRIu64, UINT64_MAX);
        break;
    case REAL:
        put_limits(k, "a number", out);
        break;
    case SIZE:
        buf_puts(out, "a size of at least 1MiB such as 512MiB or 2G");
        break;
    case BOOL:
        buf_puts(out, "true or false");
        break;
    case NAMES:
        buf_puts(out, "names separated by commas");
        break;
    case REALS:
        buf_puts(out, "numbers separated by commas");
        break;
    case CHOICE:
        for (int i = 0; k->choices[i]; i++)
            buf_printf(out, "%s%s", i > 0 ? ", " : "one of ", k->choices[i]);
        break;
    }
    put_word(k, out);
}

/* What a number says, however large, where k asks for one. */
static bool read_number(const struct conf_knob *k, const char *text, double *value)
{
    const char *digits = text + (*text == '-');
    size_t n = strspn(digits, "0123456789");
    int shift = 0;
    bool is_number = false;
    if (k->kind == REAL || k->kind == REALS)
        is_number = str_is_decimal(text);
    else if (k->kind == SIZE)
        is_number = n > 0 && conf_unit(digits + n, &shift);
    else if (k->kind == INT)
        is_number = n > 0 && !digits[n];
    if (is_number)
        *value = strtod(text, NULL) * (double)((int64_t)1 << shift);
    return is_number;
}

/* The bound that a number broke, where conf_expected does not say it. */
static bool put_bound(const struct conf_knob *k, const char *text, struct buf *out)
{
    double value;
    bool is_whole = k->kind == INT || k->kind == SIZE;
    if (!read_number(k, text, &value))
        return false;
    if (value >= k->hi && k->hi >= MANY && is_whole)
        buf_printf(out, "%s of at most %.0f%s", k->kind == INT ? "an integer" : "a size", k->hi,
                   k->kind == SIZE ? " bytes" : "");
    else if (value >= k->hi && k->hi >= MANY)
        buf_printf(out, "a number below %g", k->hi);
    else if (value < k->lo && k->lo <= -MANY)
        buf_printf(out, "a number of at least %g", k->lo);
    else if (!is_whole && k->lo <= 0 && conf_is_underflow(text, value))
        buf_puts(out, "0 or a number of at least 5e-324, the least that a double holds");
    else
        return false;
    put_word(k, out);
    return true;
}

int conf_refuse_value(const struct conf_knob *k, const char *text, bool quoted,
                      struct conf_place at, struct err *e)
{
    struct buf expected = {0}, got = {0};
    if (quoted || !put_bound(k, text, &expected))
        conf_expected(k, &expected);
    conf_show(text, &got);
    const char *mark = text[0] ? "'" : "";
    int rc = conf_refuse(at, e, "%s: expected %s, got %s%s%s%s", k->name, buf_str(&expected),
                         quoted && text[0] ? "the text " : "", mark,
                         text[0] ? buf_str(&got) : "nothing", mark);
    buf_release(&expected);
    buf_release(&got);
    return rc;
}
