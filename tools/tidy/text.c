/* Rules of any text: columns, blanks, line ends, size, marks of unfinished work, private paths. */
#include "tidy.h"

#include <ctype.h>
#include <string.h>

#define COLUMNS_MAX 100
#define LINES_MAX   500

/* Spelt in two halves so that this file obeys its own rule. */
static const char *const marks[] = {"TO"
                                    "DO",
                                    "FIX"
                                    "ME",
                                    "XX"
                                    "X"};
static const char *const private_paths[] = {"/wo"
                                            "rk/",
                                            "/ho"
                                            "me/",
                                            "/ro"
                                            "ot/",
                                            "/Us"
                                            "ers/",
                                            "/tm"
                                            "p/"};

static bool is_lax(const struct source *s)
{
    return s->kind == KIND_TEXT;
}

static int count_columns(const char *p, size_t len)
{
    int columns = 0;
    for (size_t i = 0; i < len; i++)
        columns += (p[i] & 0xC0) != 0x80;
    return columns;
}

/* A whole word, so that a template of mkdtemp is none. */
static bool has_mark(const char *p, size_t len, const char *mark)
{
    size_t n = strlen(mark);
    for (size_t i = 0; i + n <= len; i++) {
        bool starts = i == 0 || !isalnum((unsigned char)p[i - 1]);
        bool ends = i + n == len || !isalnum((unsigned char)p[i + n]);
        if (starts && ends && memcmp(p + i, mark, n) == 0)
            return true;
    }
    return false;
}

/* A path of somebody's machine: at the start of a word, so that a URL's part is none. */
static bool has_path(const char *p, size_t len, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i + n <= len; i++) {
        char before = i > 0 ? p[i - 1] : ' ';
        bool starts = !isalnum((unsigned char)before) && !strchr("._-~}*/", before);
        if (starts && memcmp(p + i, path, n) == 0)
            return true;
    }
    return false;
}

static void check_line(struct tidy *t, const struct source *s, int line)
{
    size_t len;
    const char *p = source_line(s, s->text, line, &len);
    int columns = count_columns(p, len);
    if (columns > COLUMNS_MAX && !is_lax(s) && !str_ends(s->path, "LAYERS"))
        tidy_complain(t, line, "long-line", "%d columns, at most %d", columns, COLUMNS_MAX);
    if (!str_ends(s->path, ".patch")) {
        if (len > 0 && isspace((unsigned char)p[len - 1]))
            tidy_complain(t, line, "trailing-space", "a blank or carriage return ends the line");
        if (memchr(p, '\t', len) && !str_ends(s->path, "Makefile"))
            tidy_complain(t, line, "tab", "a tab");
    }
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (has_mark(p, len, marks[i]))
            tidy_complain(t, line, "mark", "%s does not survive a merge", marks[i]);
    for (size_t i = 0; i < ARRAY_LEN(private_paths); i++)
        if (has_path(p, len, private_paths[i]))
            tidy_complain(t, line, "private-path", "%s is a path of one machine", private_paths[i]);
}

void rules_of_text(struct tidy *t, const struct source *s)
{
    for (int line = 0; line < s->n_lines; line++)
        check_line(t, s, line);
    if (s->size > 0 && s->text[s->size - 1] != '\n')
        tidy_complain(t, s->n_lines - 1, "no-newline", "the last line has no newline");
    if (s->n_lines > LINES_MAX && !is_lax(s))
        tidy_complain(t, LINES_MAX, "long-file", "%d lines, at most %d", s->n_lines, LINES_MAX);
}
