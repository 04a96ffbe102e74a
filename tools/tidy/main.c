/* tidy ROOT [NM]: walks the tree, applies the rules, settles excuses, counts. NM is the output of
 * `nm -A -g --defined-only` on the module libraries.
 */
#include "tidy.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULE_NAME_MAX 32

/* Text files by the end of their names, and folders that hold none of ours. */
static const char *const text_ends[] = {".c",     ".h",      ".inc",        ".sh",
                                        ".md",    ".py",     "meson.build", "Makefile",
                                        "LAYERS", ".ci/run", ".yaml"};
static const char *const other_folders[] = {".git", "out", ".venv", "golden", "corpus"};

void tidy_complain(struct tidy *t, int line, const char *rule, const char *fmt, ...)
{
    struct buf what = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&what, fmt, ap);
    va_end(ap);
    mem_grow(&t->complaint, &t->cap, t->n + 1, sizeof *t->complaint);
    t->complaint[t->n++] = (struct complaint){line, rule, what.data};
}

/* Reads "tidy: RULE, N" at p into rule and *n. False when it is no excuse. */
static bool read_excuse(const char *p, char rule[RULE_NAME_MAX], int *n)
{
    int used = 0;
    return sscanf(p, "tidy: %31[a-z-], %d%n", rule, n, &used) == 2 && used > 0;
}

/* Drops the complaints of one rule when their count is the excused one; otherwise says so. */
static void apply_excuse(struct tidy *t, int line, const char *rule, int excused)
{
    int count = 0;
    for (size_t i = 0; i < t->n; i++)
        count += strcmp(t->complaint[i].rule, rule) == 0;
    if (count < excused || excused < 1)
        tidy_complain(t, line, "unused-excuse", "excuses %d of %s, found %d", excused, rule, count);
    if (count != excused)
        return;
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->complaint[i].rule, rule) != 0)
            t->complaint[kept++] = t->complaint[i];
        else
            mem_free(t->complaint[i].what);
    t->n = kept;
}

/* Excuses stand in comments: in text, and blank in code. */
static void apply_excuses(struct tidy *t, const struct source *s)
{
    if (!s->code || (s->kind != KIND_C && s->kind != KIND_HEADER))
        return;
    const char *p = s->text;
    while ((p = strstr(p, "tidy: "))) {
        char rule[RULE_NAME_MAX];
        int n;
        size_t at = (size_t)(p - s->text);
        if (s->code[at] == ' ' && read_excuse(p, rule, &n))
            apply_excuse(t, source_line_of(s, at), rule, n);
        p++;
    }
}

static int compare_lines(const void *a, const void *b)
{
    const struct complaint *x = a, *y = b;
    return (x->line > y->line) - (x->line < y->line);
}

void tidy_settle(struct tidy *t, const struct source *s)
{
    apply_excuses(t, s);
    if (t->n > 1)
        qsort(t->complaint, t->n, sizeof *t->complaint, compare_lines);
    for (size_t i = 0; i < t->n; i++) {
        const struct complaint *c = &t->complaint[i];
        printf("%s:%d: %s: %s\n", s->path, c->line + 1, c->rule, c->what);
        mem_free(c->what);
    }
    t->total += (int)t->n;
    t->n = 0;
}

static int check_file(struct tidy *t, const char *path, struct err *e)
{
    struct source s;
    int rc = source_read(&s, t->root, path, e);
    if (rc < 0)
        return rc;
    rules_of_text(t, &s);
    if (s.kind == KIND_C || s.kind == KIND_HEADER) {
        rules_of_code(t, &s);
        rules_of_layers(t, &s);
    }
    tidy_settle(t, &s);
    source_release(&s);
    t->files++;
    return 0;
}

static bool is_text(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(text_ends); i++)
        if (str_ends(path, text_ends[i]))
            return true;
    return false;
}

static bool is_other(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(other_folders); i++)
        if (strcmp(name, other_folders[i]) == 0)
            return true;
    return str_starts(name, "build");
}

/* Checks `path`, relative to the root ("" is the root), and all below it. */
static int walk(struct tidy *t, const char *path, struct err *e)
{
    char *full = file_join(t->root, path), **names = NULL;
    size_t n = 0;
    int rc = 0;
    if (!file_is_dir(full)) {
        rc = is_text(path) ? check_file(t, path, e) : 0;
        goto fail;
    }
    TRY(file_list(full, &names, &n, e));
    for (size_t i = 0; i < n; i++) {
        char *below = *path ? file_join(path, names[i]) : mem_strdup(names[i]);
        if (!is_other(names[i]))
            rc = walk(t, below, e);
        mem_free(below);
        TRY(rc);
    }
fail:
    for (size_t i = 0; i < n; i++)
        mem_free(names[i]);
    mem_free(names);
    mem_free(full);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: tidy ROOT [NM-OUTPUT]\n");
        return 2;
    }
    struct tidy t = {.root = argv[1]};
    struct err e = {0};
    int rc = 0;
    TRY(layers_read(&t.layers, t.root, &e));
    TRY(walk(&t, "", &e));
    if (argc == 3)
        TRY(rule_symbols(&t, argv[2], &e));
    printf("tidy: %d files, %d complaints\n", t.files, t.total);
fail:
    if (rc < 0)
        fprintf(stderr, "tidy: %s\n", e.text);
    layers_release(&t.layers);
    mem_free(t.complaint);
    return rc < 0 ? err_exit_status(rc) : t.total > 0;
}
