/* The normal form of an answer: a recursive walk over LaTeX tokens, then a pass over blanks.
 *
 * Nothing is deleted by substring: a command is read as a whole, so words keep their letters. Raw $
 * is a math delimiter and goes; \$ is the currency and stays, as $.
 */
#include "reward/reward_int.h"

#include <ctype.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

struct walk {
    const char *p, *end;
    struct buf *out;
    int depth;
};

enum action { PUT, UNWRAP, ARGUMENTS };

/* What becomes of a command: PUT writes text, UNWRAP also drops the braces of its argument,
   ARGUMENTS puts braces around each of its `n` arguments. */
static const struct command {
    const char *name;
    enum action action;
    int n;
    const char *text;
} COMMAND[] = {
    {"frac", ARGUMENTS, 2, "\\frac"},
    {"dfrac", ARGUMENTS, 2, "\\frac"},
    {"tfrac", ARGUMENTS, 2, "\\frac"},
    {"cfrac", ARGUMENTS, 2, "\\frac"},
    {"sqrt", ARGUMENTS, 1, "\\sqrt"},
    {"text", UNWRAP, 0, " "},
    {"mbox", UNWRAP, 0, " "},
    {"textbf", UNWRAP, 0, " "},
    {"textit", UNWRAP, 0, " "},
    {"textrm", UNWRAP, 0, " "},
    {"mathrm", UNWRAP, 0, " "},
    {"mathbf", UNWRAP, 0, " "},
    {"mathit", UNWRAP, 0, " "},
    {"boldsymbol", UNWRAP, 0, ""},
    {"boxed", UNWRAP, 0, ""},
    {"fbox", UNWRAP, 0, ""},
    {"left", PUT, 0, ""},
    {"right", PUT, 0, ""},
    {"big", PUT, 0, ""},
    {"Big", PUT, 0, ""},
    {"bigl", PUT, 0, ""},
    {"bigr", PUT, 0, ""},
    {"Bigl", PUT, 0, ""},
    {"Bigr", PUT, 0, ""},
    {"bigg", PUT, 0, ""},
    {"Bigg", PUT, 0, ""},
    {"displaystyle", PUT, 0, ""},
    {"textstyle", PUT, 0, ""},
    {"quad", PUT, 0, " "},
    {"qquad", PUT, 0, " "},
    {"leq", PUT, 0, "\\le"},
    {"geq", PUT, 0, "\\ge"},
    {"neq", PUT, 0, "\\ne"},
    {"varnothing", PUT, 0, "\\emptyset"},
    {"degree", PUT, 0, " degrees"},
    {"circ", PUT, 0, " degrees"},
};

/* Spellings outside ASCII, and what they become. */
static const struct spelling {
    const char *from, *to;
} SPELLING[] = {
    {"\u2212", "-"},           {"\u2013", "-"},       {"\u00bd", " 1/2"},  {"\u00bc", " 1/4"},
    {"\u00be", " 3/4"},        {"\u00b2", "^{2}"},    {"\u00b3", "^{3}"},  {"\u03c0", "\\pi "},
    {"\u00d7", "\\times "},    {"\u00b7", "\\cdot "}, {"\u00f7", "/"},     {"\u221e", "\\infty "},
    {"\u2264", "\\le "},       {"\u2265", "\\ge "},   {"\u2260", "\\ne "}, {"\u00b0", " degrees "},
    {"\u2205", "\\emptyset "}, {"\u00a0", " "},       {"\u202f", " "},     {"\u2009", " "},
    {"\u2002", " "},           {"\u2003", " "},       {"\u3000", " "},     {"\u200b", ""},
};

static const char ROOT[] = "\u221a";

static bool walk_token(struct walk *w);

static bool is_wordy(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

static bool looking_at(const struct walk *w, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(w->end - w->p) >= n && memcmp(w->p, s, n) == 0;
}

static void skip_blanks(struct walk *w)
{
    while (w->p < w->end && isspace((unsigned char)*w->p))
        w->p++;
}

/* Tokens up to the closing brace, which is taken, too. */
static bool walk_group(struct walk *w)
{
    if (++w->depth > DEPTH_MAX)
        return false;
    while (w->p < w->end && *w->p != '}')
        if (!walk_token(w))
            return false;
    w->depth--;
    return w->p++ < w->end;
}

/* One argument, in braces whether the writer put them or not: \frac12, x^2. */
static bool walk_argument(struct walk *w)
{
    skip_blanks(w);
    if (w->p == w->end || ++w->depth > DEPTH_MAX)
        return false;
    bool has_brace = *w->p == '{', ok;
    w->p += has_brace;
    buf_putc(w->out, '{');
    ok = has_brace ? walk_group(w) : walk_token(w);
    buf_putc(w->out, '}');
    w->depth--;
    return ok;
}

static bool walk_named(struct walk *w, const char *name, size_t len)
{
    const struct command *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(COMMAND) && !found; i++)
        if (strlen(COMMAND[i].name) == len && memcmp(COMMAND[i].name, name, len) == 0)
            found = &COMMAND[i];
    if (!found) {
        buf_putc(w->out, '\\');
        buf_put(w->out, name, len);
        return true;
    }
    buf_puts(w->out, found->text);
    if (found->action == PUT)
        return true;
    skip_blanks(w);
    if (found->action == UNWRAP && w->p < w->end && *w->p == '{') {
        w->p++;
        return walk_group(w);
    }
    for (int i = 0; i < found->n; i++) {
        if (i == 0 && looking_at(w, "[")) // The degree of a root, as it is.
            while (w->p < w->end && w->p[-1] != ']')
                buf_putc(w->out, *w->p++);
        if (!walk_argument(w))
            return false;
    }
    return true;
}

/* After the backslash. */
static bool walk_command(struct walk *w)
{
    const char *name = w->p;
    while (w->p < w->end && isalpha((unsigned char)*w->p))
        w->p++;
    if (w->p > name)
        return walk_named(w, name, (size_t)(w->p - name));
    if (w->p == w->end)
        return false;
    char c = *w->p++;
    if (strchr(",:; ", c))
        buf_putc(w->out, ' ');
    else if (c == '%' || c == '$')
        buf_putc(w->out, c);
    else if (!strchr("!()[]", c))
        buf_printf(w->out, "\\%c", c);
    return true;
}

static bool walk_foreign(struct walk *w)
{
    if (looking_at(w, ROOT)) {
        w->p += strlen(ROOT);
        return walk_named(w, "sqrt", 4);
    }
    for (size_t i = 0; i < ARRAY_LEN(SPELLING); i++) {
        if (looking_at(w, SPELLING[i].from)) {
            w->p += strlen(SPELLING[i].from);
            buf_puts(w->out, SPELLING[i].to);
            return true;
        }
    }
    buf_putc(w->out, *w->p++);
    return true;
}

/* The argument of ^ or _; a raised ring is the unit. */
static bool walk_script(struct walk *w, char c)
{
    skip_blanks(w);
    if (c == '^' && (looking_at(w, "{\\circ}") || looking_at(w, "\\circ"))) {
        w->p += *w->p == '{' ? strlen("{\\circ}") : strlen("\\circ");
        buf_puts(w->out, " degrees ");
        return true;
    }
    buf_putc(w->out, c);
    return walk_argument(w);
}

/* Whether ** stands between operands, as in 2**3; elsewhere it is Markdown's bold. */
static bool is_power(const struct walk *w)
{
    const struct buf *b = w->out;
    bool before = b->len > 0 && (is_wordy(b->data[b->len - 1]) || b->data[b->len - 1] == ')');
    return before && w->end - w->p > 2 && (is_wordy(w->p[2]) || strchr("-(\\", w->p[2]));
}

static bool walk_token(struct walk *w)
{
    if ((unsigned char)*w->p >= 0x80)
        return walk_foreign(w);
    if (looking_at(w, "{,}")) {
        w->p += 3;
        buf_putc(w->out, ',');
        return true;
    }
    if (looking_at(w, "**") && !is_power(w)) {
        w->p += 2;
        return true;
    }
    char c = *w->p++;
    switch (c) {
    case '\\':
        return walk_command(w);
    case '{':
        buf_putc(w->out, '{');
        if (!walk_group(w))
            return false;
        buf_putc(w->out, '}');
        return true;
    case '}':
        return false;
    case '^':
    case '_':
        return walk_script(w, c);
    case '$':
        return true;
    default:
        buf_putc(w->out, isspace((unsigned char)c) || c == '~' ? ' ' : c);
        return true;
    }
}

static bool ends_in_command(const char *out, size_t n)
{
    while (n > 0 && isalpha((unsigned char)out[n - 1]))
        n--;
    return n > 0 && out[n - 1] == '\\';
}

/* Whether the blank between out's end and s parts something: words, digits, or a comma that would
   otherwise read as a thousands separator (1, 234). */
static bool blank_matters(const char *out, size_t n, const char *s)
{
    if (n == 0 || !*s)
        return false;
    if (out[n - 1] == ',')
        return n > 1 && isdigit((unsigned char)out[n - 2]) && strspn(s, "0123456789") == 3;
    if (isdigit((unsigned char)*s) && ends_in_command(out, n))
        return false;
    if (out[n - 1] == '}') // A word behind a fraction is apart from it; a variable is not.
        return isalpha((unsigned char)s[0]) && isalpha((unsigned char)s[1]);
    return is_wordy(out[n - 1]) && is_wordy(*s);
}

/* In place: only blanks that matter, one each; then no stop at the end. */
static void squeeze(struct buf *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->len; i++) {
        if (b->data[i] != ' ') {
            b->data[n++] = b->data[i];
            continue;
        }
        while (i + 1 < b->len && b->data[i + 1] == ' ')
            i++;
        if (blank_matters(b->data, n, b->data + i + 1))
            b->data[n++] = ' ';
    }
    while (n > 0 && strchr(".,;", b->data[n - 1]))
        n--;
    if (b->data)
        b->data[n] = 0;
    b->len = n;
}

static bool refuse(const char **reason, const char *text)
{
    if (reason)
        *reason = text;
    return false;
}

bool reward_normalise(const char *s, size_t n, struct buf *out, const char **reason)
{
    buf_clear(out);
    if (n > REWARD_TAIL_BYTES)
        return refuse(reason, "too long");
    if (memchr(s, 0, n))
        return refuse(reason, "has a NUL");
    struct walk w = {.p = s, .end = s + n, .out = out};
    while (w.p < w.end)
        if (!walk_token(&w))
            return refuse(reason, "braces do not match");
    squeeze(out);
    return out->len > 0 || refuse(reason, "empty");
}
