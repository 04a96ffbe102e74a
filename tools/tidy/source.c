/* A source file: its lines, and its code without comments and literals. */
#include "tidy.h"

#include <ctype.h>
#include <string.h>

#define SOURCE_MAX ((size_t)16 << 20)

static enum source_kind kind_of(const char *path)
{
    if (str_ends(path, ".c") || str_ends(path, ".inc"))
        return KIND_C;
    if (str_ends(path, ".h"))
        return KIND_HEADER;
    return str_ends(path, ".md") || str_ends(path, ".patch") ? KIND_TEXT : KIND_SCRIPT;
}

/* Where the comment or literal that starts at `at` ends; `at` itself when none does. */
static size_t skip_dead(const char *s, size_t at, size_t size)
{
    char c = s[at];
    if (c == '/' && at + 1 < size && s[at + 1] == '/') {
        while (at < size && s[at] != '\n')
            at++;
    } else if (c == '/' && at + 1 < size && s[at + 1] == '*') {
        const char *end = strstr(s + at + 2, "*/");
        at = end ? (size_t)(end - s) + 2 : size;
    } else if (c == '"' || c == '\'') {
        for (at++; at < size && s[at] != c && s[at] != '\n'; at++)
            at += s[at] == '\\' && at + 1 < size;
        at += at < size;
    }
    return at;
}

static void blank_code(struct source *s)
{
    for (size_t at = 0; at < s->size;) {
        size_t end = skip_dead(s->text, at, s->size);
        if (end == at) {
            at++;
            continue;
        }
        bool literal = s->text[at] != '/'; // Its quotes stay: a literal is an operand.
        for (size_t i = at + literal; i + literal < end; i++)
            if (s->code[i] != '\n')
                s->code[i] = ' ';
        at = end;
    }
}

static void find_lines(struct source *s)
{
    size_t cap = 0;
    for (size_t at = 0; at < s->size;) {
        mem_grow(&s->start, &cap, (size_t)s->n_lines + 2, sizeof *s->start);
        s->start[s->n_lines++] = at;
        const char *end = memchr(s->text + at, '\n', s->size - at);
        at = end ? (size_t)(end - s->text) + 1 : s->size;
    }
    mem_grow(&s->start, &cap, (size_t)s->n_lines + 1, sizeof *s->start);
    s->start[s->n_lines] = s->size;
}

int source_read(struct source *s, const char *root, const char *path, struct err *e)
{
    *s = (struct source){.path = path, .kind = kind_of(path)};
    char *full = file_join(root, path);
    int rc = file_read(full, SOURCE_MAX, &s->text, &s->size, e);
    mem_free(full);
    if (rc < 0)
        return rc;
    s->code = mem_strndup(s->text, s->size);
    if (s->kind == KIND_C || s->kind == KIND_HEADER)
        blank_code(s);
    find_lines(s);
    return 0;
}

void source_release(struct source *s)
{
    mem_free(s->text);
    mem_free(s->code);
    mem_free(s->start);
    *s = (struct source){0};
}

const char *source_line(const struct source *s, const char *of, int line, size_t *len)
{
    ASSERT(line < s->n_lines);
    size_t end = s->start[line + 1];
    if (end > s->start[line] && s->text[end - 1] == '\n')
        end--;
    *len = end - s->start[line];
    return of + s->start[line];
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* What follows byte `at`, blanks left out. */
static char next_mark(const struct source *s, size_t at)
{
    while (at < s->size && isspace((unsigned char)s->code[at]))
        at++;
    return at < s->size ? s->code[at] : '\0';
}

bool source_find_word(const struct source *s, const char *word, size_t *at)
{
    bool call = str_ends(word, "()"), prefix = str_ends(word, "*");
    size_t len = strlen(word) - (call ? 2 : prefix);
    for (; *at + len <= s->size; ++*at) {
        const char *p = s->code + *at;
        if (memcmp(p, word, len) != 0 || (*at > 0 && is_word(p[-1])))
            continue;
        bool member = *at > 0 && (p[-1] == '.' || (p[-1] == '>' && p[-2] == '-'));
        if ((is_word(p[len]) && !prefix) || member || (call && next_mark(s, *at + len) != '('))
            continue;
        return true;
    }
    return false;
}

int source_line_of(const struct source *s, size_t at)
{
    int line = 0;
    while (line + 1 < s->n_lines && s->start[line + 1] <= at)
        line++;
    return line;
}
