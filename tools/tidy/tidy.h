/* tidy: the style of this repository as a program.
 *
 * It walks the tree, reads every text file once and applies rules that need no compiler: layering
 * and doors as src/LAYERS states them, lengths, banned words, openings. With the output of nm on
 * the module libraries it also judges the names that modules export. A complaint is one line in a
 * compiler's format, "path:line: rule: what is wrong", and any complaint fails the run.
 *
 * Rules see a struct source: the text, and a copy `code` of the same size in which comments and the
 * insides of literals are blanks, so that a word found there is a word of the program.
 *
 * A file may excuse itself by a comment: "tidy:", the rule, a comma and a number. The number must
 * be the exact count of complaints of that rule in that file; an excuse that is not used up fails
 * as well, so excuses can only become fewer.
 *
 *     struct tidy t = {.root = "."};
 *     layers_read(&t.layers, ".", &e);
 *     ... source_read, the rules, tidy_settle for each file ...
 */
#pragma once

#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

#define WORDS_MAX   32
#define MODULES_MAX 32
#define DOORS_MAX   32

/* A list of words on one line of LAYERS, owned. */
struct words {
    int n;
    char *word[WORDS_MAX];
};

struct layers {
    int n_modules, n_doors;
    struct {
        char *name;          // Owned.
        struct words below;  // modules whose header it may include
        struct words prefix; // of its global symbols, besides its name
    } module[MODULES_MAX];
    struct {
        char *name;          // Owned.
        struct words owners; // files or folders/ below src/
        struct words opens;  // the words that open it
    } door[DOORS_MAX];
    struct words banned;
};

enum source_kind { KIND_C, KIND_HEADER, KIND_SCRIPT, KIND_TEXT };

struct source {
    const char *path; // Borrowed: from the root of the tree.
    enum source_kind kind;
    char *text, *code; // Owned: (size) each, followed by a NUL.
    size_t size;
    size_t *start; // Owned: (n_lines + 1), where lines begin.
    int n_lines;
};

struct complaint {
    int line;
    const char *rule; // Borrowed.
    char *what;       // Owned.
};

struct tidy {
    const char *root; // Borrowed.
    struct layers layers;
    struct complaint *complaint; // of the file at hand; owned
    size_t n, cap;
    int total; // complaints printed
    int files;
};

/* Reads root/src/LAYERS. */
int layers_read(struct layers *l, const char *root, struct err *e);
void layers_release(struct layers *l);

/* Reads root/path, finds its lines and blanks what is not code. */
int source_read(struct source *s, const char *root, const char *path, struct err *e);
void source_release(struct source *s);

/* The line with this number, from 0, without its newline; *len is its length. */
const char *source_line(const struct source *s, const char *of, int line, size_t *len);

/* Finds `word` (name, name(), name*) in s->code at or after *at. True when found; *at is its place.
 */
bool source_find_word(const struct source *s, const char *word, size_t *at);

/* The line, from 0, that holds byte `at`. */
int source_line_of(const struct source *s, size_t at);

/* Holds "line N: rule: text" against s; lines count from 0 here and from 1 in print. */
void tidy_complain(struct tidy *t, int line, const char *rule, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Prints what the file's excuses do not cover. */
void tidy_settle(struct tidy *t, const struct source *s);

/* The rules. */
void rules_of_text(struct tidy *t, const struct source *s);
void rules_of_code(struct tidy *t, const struct source *s);
void rules_of_layers(struct tidy *t, const struct source *s);

/* Judges the lines of `nm -g --defined-only` over the module libraries. */
int rule_symbols(struct tidy *t, const char *nm_path, struct err *e);
