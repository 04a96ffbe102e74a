/* Rules of C: openings, function length, dead code, ASSERT without effects, struct names. They
 * lean on clang-format: a function's braces stand alone in the first column.
 */
#include "tidy.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define FUNCTION_MAX 70
#define ESSAY_MIN    10 // lines that open a module's public header
#define HEADER_MIN   2  // lines that open another header

static bool line_is(const struct source *s, int line, const char *want)
{
    size_t len;
    const char *p = source_line(s, s->code, line, &len);
    while (len > 0 && p[len - 1] == ' ')
        len--;
    return len == strlen(want) && memcmp(p, want, len) == 0;
}

static bool is_blank(const struct source *s, int line)
{
    size_t len;
    const char *p = source_line(s, s->code, line, &len);
    for (size_t i = 0; i < len; i++)
        if (!isspace((unsigned char)p[i]))
            return false;
    return true;
}

/* src/MOD/MOD.h */
static bool is_public_header(const char *path)
{
    const char *mod = str_starts(path, "src/") ? path + 4 : NULL,
               *slash = mod ? strchr(mod, '/') : NULL;
    size_t len = slash ? (size_t)(slash - mod) : 0;
    return slash && strncmp(slash + 1, mod, len) == 0 && strcmp(slash + 1 + len, ".h") == 0;
}

static void check_opening(struct tidy *t, const struct source *s)
{
    if (!str_starts(s->text, "/*")) {
        tidy_complain(t, 0, "opening", "a file opens with a comment that says what it holds");
        return;
    }
    const char *end = strstr(s->text, "*/");
    int lines = end ? source_line_of(s, (size_t)(end - s->text)) + 1 : s->n_lines;
    int least = s->kind != KIND_HEADER ? 1 : is_public_header(s->path) ? ESSAY_MIN : HEADER_MIN;
    if (lines < least)
        tidy_complain(t, 0, "opening", "the essay has %d lines, expected at least %d", lines,
                      least);
    if (s->kind == KIND_HEADER && !strstr(s->code, "#pragma once"))
        tidy_complain(t, 0, "opening", "no #pragma once");
}

/* Lines of the signature that ends before `brace`. */
static int signature_lines(const struct source *s, int brace)
{
    int n = 0;
    while (n < brace) {
        size_t len;
        const char *p = source_line(s, s->code, brace - 1 - n, &len);
        if (is_blank(s, brace - 1 - n) || p[0] == '}' || p[0] == '#' || p[len - 1] == ';')
            break;
        n++;
    }
    return n;
}

static void check_functions(struct tidy *t, const struct source *s)
{
    for (int line = 0; line < s->n_lines; line++) {
        if (!line_is(s, line, "{"))
            continue;
        int end = line;
        while (end + 1 < s->n_lines && !line_is(s, end, "}"))
            end++;
        int head = signature_lines(s, line), n = end - line + 1 + head;
        if (n > FUNCTION_MAX)
            tidy_complain(t, line - head, "long-function", "%d lines, at most %d", n, FUNCTION_MAX);
        line = end;
    }
}

/* A remark that is a statement: ends like one and holds a call or an assignment. */
static bool is_dead_code(const char *p, size_t len)
{
    while (len > 0 && p[len - 1] == ' ')
        len--;
    if (len < 3 || (p[len - 1] != ';' && p[len - 1] != '{' && p[len - 1] != '}'))
        return false;
    return memchr(p, '(', len) || memchr(p, '=', len) || len <= 4;
}

static void check_dead_code(struct tidy *t, const struct source *s)
{
    for (int line = 0; line < s->n_lines; line++) {
        size_t len;
        const char *p = source_line(s, s->text, line, &len);
        if (len >= 5 && memcmp(p, "#if 0", 5) == 0)
            tidy_complain(t, line, "dead-code", "#if 0");
        while (len > 0 && *p == ' ') {
            p++;
            len--;
        }
        if (len > 2 && memcmp(p, "//", 2) == 0 && is_dead_code(p + 2, len - 2))
            tidy_complain(t, line, "dead-code", "this remark looks like code");
    }
}

/* Does the argument of an ASSERT do something: assign, count, or call what takes an err? */
static bool has_effect(const char *p, size_t len)
{
    for (size_t i = 1; i + 1 < len; i++) {
        if (p[i] == '=' && p[i + 1] != '=' && !strchr("=!<>", p[i - 1]))
            return true;
        if ((p[i] == '+' && p[i + 1] == '+') || (p[i] == '-' && p[i + 1] == '-'))
            return true;
        if (i + 3 < len && (memcmp(p + i, ", e)", 4) == 0 || memcmp(p + i, " &e)", 4) == 0))
            return true;
    }
    return false;
}

static void check_asserts(struct tidy *t, const struct source *s)
{
    for (size_t at = 0; source_find_word(s, "ASSERT()", &at);) {
        size_t from = at + strlen("ASSERT"), to = from;
        int depth = 0;
        do {
            depth += s->code[to] == '(';
            depth -= s->code[to] == ')';
            to++;
        } while (to < s->size && depth > 0);
        if (has_effect(s->code + from, to - from))
            tidy_complain(t, source_line_of(s, at), "assert-effect",
                          "what ASSERT judges may have no effect");
        at = to;
    }
}

static void check_typedefs(struct tidy *t, const struct source *s)
{
    for (size_t at = 0; source_find_word(s, "typedef", &at); at++)
        if (str_starts(s->code + at, "typedef struct"))
            tidy_complain(t, source_line_of(s, at), "typedef-struct", "a struct keeps its name");
}

void rules_of_code(struct tidy *t, const struct source *s)
{
    check_opening(t, s);
    check_functions(t, s);
    check_dead_code(t, s);
    check_asserts(t, s);
    check_typedefs(t, s);
}
