/* One value: text into a field, a field into text. Every source of configuration comes through
 * conf_set, and everything that is saved or compared through conf_put, so the two are inverse.
 */
#include "conf/conf_int.h"

#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Spellings of YAML, JSON and Python that are never a text by accident. */
static const char *const none_words[] = {"none", "None", "null", "~"};
static const char *const true_words[] = {"true", "True"};
static const char *const false_words[] = {"false", "False"};

static bool among(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, words[i]) == 0)
            return true;
    }
    return false;
}

static bool is_none(const char *text)
{
    return among(text, none_words, ARRAY_LEN(none_words));
}

bool conf_is_bool(const char *text, bool *value)
{
    *value = among(text, true_words, ARRAY_LEN(true_words));
    return *value || among(text, false_words, ARRAY_LEN(false_words));
}

/* Is text k's word for absence, in any spelling of it? */
static bool is_word(const struct conf_knob *k, const char *text)
{
    if (!k->word)
        return false;
    return strcmp(k->word, "none") == 0 ? is_none(text) : strcmp(k->word, text) == 0;
}

void *conf_field(const struct conf *c, const struct conf_knob *k)
{
    return (char *)(uintptr_t)c + k->offset;
}

void conf_field_release(struct conf *c, const struct conf_knob *k)
{
    if (k->kind == TEXT) {
        char **text = conf_field(c, k);
        mem_free(*text);
        *text = NULL;
    } else if (k->kind == NAMES) {
        struct conf_names *names = conf_field(c, k);
        for (int i = 0; i < names->n; i++)
            mem_free(names->item[i]);
        mem_free(names->item);
        *names = (struct conf_names){0};
    } else if (k->kind == REALS) {
        struct conf_reals *reals = conf_field(c, k);
        mem_free(reals->item);
        *reals = (struct conf_reals){0};
    }
}

static const struct {
    char letter;
    int shift;
} size_units[] = {{'T', 40}, {'G', 30}, {'M', 20}, {'K', 10}};

bool conf_unit(const char *unit, int *shift)
{
    *shift = 0;
    for (size_t i = 0; i < ARRAY_LEN(size_units) && *unit; i++) {
        if (*unit == size_units[i].letter) {
            *shift = size_units[i].shift;
            unit++;
            unit += strcmp(unit, "iB") == 0 ? 2 : 0;
            break;
        }
    }
    return !*unit;
}

bool conf_is_underflow(const char *text, double value)
{
    char first = text[strcspn(text, "123456789eE")];
    return value == 0 && first && first != 'e' && first != 'E';
}

/* Digits with an optional unit. */
static bool parse_size(const char *text, int64_t *bytes)
{
    char digits[24];
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n >= sizeof digits)
        return false;
    memcpy(digits, text, n);
    digits[n] = '\0';
    int shift;
    if (!conf_unit(text + n, &shift) || !str_to_int(digits, bytes) || *bytes > INT64_MAX >> shift)
        return false;
    *bytes <<= shift;
    return true;
}

static bool set_int(const struct conf_knob *k, const char *text, int64_t *field)
{
    int64_t value;
    bool ok = k->kind == SIZE ? parse_size(text, &value) : str_to_int(text, &value);
    if (!ok || (double)value < k->lo || (double)value > k->hi)
        return false;
    *field = value;
    return true;
}

static bool set_seed(const char *text, uint64_t *field)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || text[n])
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0)
        return false;
    *field = value;
    return true;
}

static bool set_real(const struct conf_knob *k, const char *text, double *field)
{
    double value;
    if (!str_to_double(text, &value) || value < k->lo || value >= k->hi ||
        conf_is_underflow(text, value))
        return false;
    *field = value;
    return true;
}

static bool set_choice(const struct conf_knob *k, const char *text, int *field)
{
    for (int i = 0; k->choices[i]; i++) {
        if (strcmp(text, k->choices[i]) == 0) {
            *field = i;
            return true;
        }
    }
    return false;
}

static bool set_text(const char *text, bool quoted, char **field)
{
    bool value;
    if (!text[0] || (!quoted && (is_none(text) || conf_is_bool(text, &value))))
        return false;
    mem_free(*field);
    *field = mem_strdup(text);
    return true;
}

static void set_absent(struct conf *c, const struct conf_knob *k)
{
    if (k->kind == REAL)
        *(double *)conf_field(c, k) = NAN;
    else if (k->kind == INT || k->kind == SIZE)
        *(int64_t *)conf_field(c, k) = 0;
    else
        conf_field_release(c, k);
}

/* "a,b,c" into its parts. */
static int set_parts(struct conf *c, const struct conf_knob *k, const char *text,
                     struct conf_place at, struct err *e)
{
    char *copy = mem_strdup(text);
    char **part = NULL;
    size_t n = 0, cap = 0;
    for (char *p = copy, *next; p; p = next) {
        next = strchr(p, ',');
        if (next)
            *next++ = '\0';
        mem_grow(&part, &cap, n + 1, sizeof *part);
        part[n++] = p;
    }
    int rc = conf_set_list(c, k, part, (int)n, at, e);
    mem_free(part);
    mem_free(copy);
    return rc;
}

int conf_set(struct conf *c, const struct conf_knob *k, const char *text, bool quoted,
             struct conf_place at, struct err *e)
{
    void *field = conf_field(c, k);
    bool ok = !quoted;
    if (utf8_valid(text, strlen(text)) < strlen(text))
        return conf_refuse(at, e, "%s: the value is not UTF-8", k->name);
    if (!quoted && is_word(k, text)) {
        set_absent(c, k);
        return 0;
    }
    switch (k->kind) {
    case TEXT:
        ok = set_text(text, quoted, field);
        break;
    case INT:
    case SIZE:
        ok = ok && set_int(k, text, field);
        break;
    case SEED:
        ok = ok && set_seed(text, field);
        break;
    case REAL:
        ok = ok && set_real(k, text, field);
        break;
    case BOOL:
        ok = ok && conf_is_bool(text, field);
        break;
    case CHOICE:
        ok = set_choice(k, text, field);
        break;
    case NAMES:
    case REALS:
        return set_parts(c, k, text, at, e);
    }
    return ok ? 0 : conf_refuse_value(k, text, quoted, at, e);
}

static bool is_named(const struct conf_names *names, const char *text)
{
    for (int i = 0; i < names->n; i++)
        if (strcmp(text, names->item[i]) == 0)
            return true;
    return false;
}

/* A name of a list is something, no bare word, and not there before. */
static int set_names(struct conf_names *names, const struct conf_knob *k, char *const *text, int n,
                     struct conf_place at, struct err *e)
{
    names->item = mem_calloc((size_t)n, sizeof *names->item);
    for (; names->n < n; names->n++) {
        const char *name = text[names->n];
        bool value;
        if (!name[0] || is_none(name) || conf_is_bool(name, &value))
            return conf_refuse_value(k, name, false, at, e);
        if (is_named(names, name))
            return conf_refuse(at, e, "%s: '%.60s' is named twice; name it once", k->name, name);
        names->item[names->n] = mem_strdup(name);
    }
    return 0;
}

static int set_reals(struct conf_reals *reals, const struct conf_knob *k, char *const *text, int n,
                     struct conf_place at, struct err *e)
{
    reals->item = mem_calloc((size_t)n, sizeof *reals->item);
    for (; reals->n < n; reals->n++) {
        if (!set_real(k, text[reals->n], &reals->item[reals->n]))
            return conf_refuse_value(k, text[reals->n], false, at, e);
    }
    return 0;
}

int conf_set_list(struct conf *c, const struct conf_knob *k, char *const *text, int n,
                  struct conf_place at, struct err *e)
{
    if (n == 0)
        return conf_refuse_value(k, "", false, at, e);
    conf_field_release(c, k);
    return k->kind == NAMES ? set_names(conf_field(c, k), k, text, n, at, e)
                            : set_reals(conf_field(c, k), k, text, n, at, e);
}

/* A double-quoted YAML scalar on one line: everything that YAML reads otherwise is escaped. */
static void put_quoted(const char *text, struct buf *out)
{
    size_t n = strlen(text);
    buf_putc(out, '"');
    while (n > 0) {
        uint32_t code;
        int len = utf8_decode(text, n, &code);
        ASSERT(len > 0);
        if (code == '"' || code == '\\')
            buf_printf(out, "\\%c", (char)code);
        else if (code == '\n')
            buf_puts(out, "\\n");
        else if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
                 code == 0xfeff || code == 0xfffe || code == 0xffff)
            buf_printf(out, "\\u%04X", code);
        else
            buf_put(out, text, (size_t)len);
        text += len;
        n -= (size_t)len;
    }
    buf_putc(out, '"');
}

const char *conf_choice_text(const struct conf *c, const char *knob)
{
    const struct conf_knob *k = conf_knob_of(knob);
    ASSERT(k->kind == CHOICE && conf_takes(c->command, k));
    return k->choices[*(const int *)conf_field(c, k)];
}

static void put_size(int64_t bytes, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(size_units); i++) {
        int64_t unit = (int64_t)1 << size_units[i].shift;
        if (bytes > 0 && bytes % unit == 0) {
            buf_printf(out, "%" PRId64 "%ciB", bytes / unit, size_units[i].letter);
            return;
        }
    }
    buf_printf(out, "%" PRId64, bytes);
}

static bool is_absent(const struct conf *c, const struct conf_knob *k)
{
    const void *field = conf_field(c, k);
    if (!k->word)
        return false;
    switch (k->kind) {
    case TEXT:
        return !*(char *const *)field;
    case INT:
    case SIZE:
        return *(const int64_t *)field == 0;
    case REAL:
        return isnan(*(const double *)field);
    case NAMES:
        return ((const struct conf_names *)field)->n == 0;
    case REALS:
        return ((const struct conf_reals *)field)->n == 0;
    default:
        return false;
    }
}

void conf_put(const struct conf *c, const struct conf_knob *k, struct buf *out)
{
    const void *field = conf_field(c, k);
    if (is_absent(c, k)) {
        buf_puts(out, k->word);
        return;
    }
    switch (k->kind) {
    case TEXT:
        put_quoted(*(char *const *)field, out);
        break;
    case INT:
        buf_printf(out, "%" PRId64, *(const int64_t *)field);
        break;
    case SIZE:
        put_size(*(const int64_t *)field, out);
        break;
    case SEED:
        buf_printf(out, "%" PRIu64, *(const uint64_t *)field);
        break;
    case REAL:
        buf_double(out, *(const double *)field);
        break;
    case BOOL:
        buf_puts(out, *(const bool *)field ? "true" : "false");
        break;
    case CHOICE:
        buf_puts(out, conf_choice_text(c, k->name));
        break;
    case NAMES: {
        const struct conf_names *names = field;
        for (int i = 0; i < names->n; i++) {
            buf_puts(out, i > 0 ? ", " : "[");
            put_quoted(names->item[i], out);
        }
        buf_putc(out, ']');
        break;
    }
    case REALS: {
        const struct conf_reals *reals = field;
        for (int i = 0; i < reals->n; i++) {
            buf_puts(out, i > 0 ? ", " : "[");
            buf_double(out, reals->item[i]);
        }
        buf_putc(out, ']');
        break;
    }
    }
}
