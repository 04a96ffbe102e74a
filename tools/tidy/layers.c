/* src/LAYERS: reading it, and the rules it states: who includes whom, who opens which door, and
 * what the names of global symbols begin with.
 */
#include "tidy.h"

#include <stdio.h>
#include <string.h>

#define LAYERS_MAX ((size_t)1 << 20)
#define NM_MAX     ((size_t)64 << 20)

static void words_release(struct words *w)
{
    for (int i = 0; i < w->n; i++)
        mem_free(w->word[i]);
    *w = (struct words){0};
}

static bool words_have(const struct words *w, const char *word, size_t len)
{
    for (int i = 0; i < w->n; i++)
        if (strlen(w->word[i]) == len && memcmp(w->word[i], word, len) == 0)
            return true;
    return false;
}

/* Takes words from *s, to the line's end or to `stop`; *s is left behind them. */
static int take_words(struct words *w, const char **s, const char *stop, struct err *e)
{
    for (;;) {
        *s += strspn(*s, " \t");
        size_t len = strcspn(*s, " \t\n");
        if (len == 0)
            return 0;
        const char *word = *s;
        *s += len;
        if (stop && strlen(stop) == len && memcmp(word, stop, len) == 0)
            return 0;
        if (w->n == WORDS_MAX)
            return err_set(e, ERR_FORMAT, "src/LAYERS: more than %d words in a list", WORDS_MAX);
        w->word[w->n++] = mem_strndup(word, len);
    }
}

/* "door NAME owners : words", "banned : words" or "MODULE LAYER : modules sym prefixes". */
static int read_rule(struct layers *l, const char *line, struct err *e)
{
    struct words head = {0}, tail = {0}, more = {0};
    int rc = 0;
    TRY(take_words(&head, &line, ":", e));
    TRY(take_words(&tail, &line, "sym", e));
    TRY(take_words(&more, &line, NULL, e));
    bool full = l->n_doors == DOORS_MAX || l->n_modules == MODULES_MAX;
    if (head.n == 0 || full)
        TRY(err_set(e, ERR_FORMAT, "src/LAYERS: a rule without a name, or too many rules"));
    if (strcmp(head.word[0], "banned") == 0) {
        l->banned = tail;
    } else if (strcmp(head.word[0], "door") == 0 && head.n >= 2) {
        int i = l->n_doors++;
        l->door[i].name = mem_strdup(head.word[1]);
        for (int k = 2; k < head.n; k++)
            l->door[i].owners.word[l->door[i].owners.n++] = mem_strdup(head.word[k]);
        l->door[i].opens = tail;
    } else {
        int i = l->n_modules++;
        l->module[i].name = mem_strdup(head.word[0]);
        l->module[i].below = tail;
        l->module[i].prefix = more;
        more = (struct words){0};
    }
    tail = (struct words){0};
fail:
    words_release(&head);
    words_release(&tail);
    words_release(&more);
    return rc;
}

int layers_read(struct layers *l, const char *root, struct err *e)
{
    *l = (struct layers){0};
    char *path = file_join(root, "src/LAYERS"), *text = NULL;
    size_t size;
    int rc = 0;
    TRY(file_read(path, LAYERS_MAX, &text, &size, e));
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");
        if (len > 0 && line[0] != '#')
            TRY(read_rule(l, line, e));
        line += len + (line[len] == '\n');
    }
fail:
    mem_free(path);
    mem_free(text);
    return rc;
}

void layers_release(struct layers *l)
{
    for (int i = 0; i < l->n_modules; i++) {
        mem_free(l->module[i].name);
        words_release(&l->module[i].below);
        words_release(&l->module[i].prefix);
    }
    for (int i = 0; i < l->n_doors; i++) {
        mem_free(l->door[i].name);
        words_release(&l->door[i].owners);
        words_release(&l->door[i].opens);
    }
    words_release(&l->banned);
    *l = (struct layers){0};
}

/* The index of the module named by the first `len` bytes, or -1. */
static int find_module(const struct layers *l, const char *name, size_t len)
{
    for (int i = 0; i < l->n_modules; i++)
        if (strlen(l->module[i].name) == len && memcmp(l->module[i].name, name, len) == 0)
            return i;
    return -1;
}

/* The name of an include in quotes or angles on this line, or NULL. */
static const char *included(const struct source *s, int line, size_t *len)
{
    size_t n;
    const char *p = source_line(s, s->code, line, &n);
    if (n < 9 || memcmp(p, "#include", 8) != 0)
        return NULL;
    const char *text = source_line(s, s->text, line, &n), *name = text + 8;
    name += strspn(name, " \"<");
    *len = strcspn(name, "\">\n");
    return name;
}

/* One include, "mod/file.h", of a file of module `own`. */
static void check_include(struct tidy *t, int own, int line, const char *name, size_t len)
{
    const char *slash = memchr(name, '/', len);
    int mod = slash ? find_module(&t->layers, name, (size_t)(slash - name)) : -1;
    if (mod < 0 || mod == own)
        return;
    const char *own_name = t->layers.module[own].name, *mod_name = t->layers.module[mod].name;
    if (!words_have(&t->layers.module[own].below, mod_name, strlen(mod_name)))
        tidy_complain(t, line, "layer", "%s may not include %s (src/LAYERS)", own_name, mod_name);
    if (len > 6 && memcmp(name + len - 6, "_int.h", 6) == 0)
        tidy_complain(t, line, "layer", "%.*s is private to %s", (int)len, name, mod_name);
}

/* The first include in quotes of a .c file is of its own module. */
static void check_includes(struct tidy *t, const struct source *s, int own)
{
    bool first = true;
    for (int line = 0; line < s->n_lines; line++) {
        size_t len;
        const char *name = included(s, line, &len);
        if (!name)
            continue;
        check_include(t, own, line, name, len);
        size_t own_len = strlen(t->layers.module[own].name);
        bool ours = name[-1] == '"' && len > own_len && name[own_len] == '/' &&
                    memcmp(name, t->layers.module[own].name, own_len) == 0;
        if (first && str_ends(s->path, ".c") && !ours)
            tidy_complain(t, line, "first-include", "the first include is not %s's own header",
                          t->layers.module[own].name);
        first = false;
    }
}

/* Complains of each use of one word: name(), name*, name or name.h. */
static void check_word(struct tidy *t, const struct source *s, const char *word, const char *rule,
                       const char *why)
{
    if (str_ends(word, ".h")) {
        for (int line = 0; line < s->n_lines; line++) {
            size_t len;
            const char *name = included(s, line, &len);
            if (name && len == strlen(word) && memcmp(name, word, len) == 0)
                tidy_complain(t, line, rule, "%s %s", word, why);
        }
        return;
    }
    for (size_t at = 0; source_find_word(s, word, &at); at++)
        tidy_complain(t, source_line_of(s, at), rule, "%s %s", word, why);
}

static bool owns(const struct words *owners, const char *path)
{
    for (int i = 0; i < owners->n; i++) {
        const char *owner = owners->word[i];
        if (str_ends(owner, "/") ? str_starts(path, owner) : strcmp(path, owner) == 0)
            return true;
    }
    return false;
}

void rules_of_layers(struct tidy *t, const struct source *s)
{
    const struct layers *l = &t->layers;
    for (int i = 0; i < l->banned.n; i++)
        check_word(t, s, l->banned.word[i], "banned", "is banned (src/LAYERS)");
    if (!str_starts(s->path, "src/"))
        return;
    const char *below = s->path + strlen("src/"), *slash = strchr(below, '/');
    int own = slash ? find_module(l, below, (size_t)(slash - below)) : -1;
    if (own < 0)
        tidy_complain(t, 0, "layer", "no module of src/LAYERS holds this file");
    else
        check_includes(t, s, own);
    for (int i = 0; i < l->n_doors; i++) {
        char why[128];
        snprintf(why, sizeof why, "goes through the door '%s' of %s", l->door[i].name,
                 l->door[i].owners.n > 0 ? l->door[i].owners.word[0] : "nobody");
        for (int k = 0; k < l->door[i].opens.n && !owns(&l->door[i].owners, below); k++)
            check_word(t, s, l->door[i].opens.word[k], "door", why);
    }
}

/* Does symbol begin with one of the module's prefixes and an underscore, or is it its name? */
static bool is_named_well(const struct layers *l, int mod, const char *symbol)
{
    for (int i = -1; i < l->module[mod].prefix.n; i++) {
        const char *prefix = i < 0 ? l->module[mod].name : l->module[mod].prefix.word[i];
        size_t len = strlen(prefix);
        if (strncmp(symbol, prefix, len) == 0 && (symbol[len] == '_' || symbol[len] == '\0'))
            return true;
    }
    return false;
}

/* "DIR/libloco_MOD.a:OBJECT:ADDRESS TYPE SYMBOL", as nm -A prints. */
static void check_symbol(struct tidy *t, char *line, int number, struct map *levels)
{
    char *lib = strstr(line, "libloco_"), *dot = lib ? strstr(lib, ".a:") : NULL;
    char *symbol = strrchr(line, ' ');
    if (!dot || !symbol)
        return;
    const char *mod_name = lib + strlen("libloco_"), *object = dot + strlen(".a:");
    size_t mod_len = (size_t)(dot - mod_name), object_len = strcspn(object, ":");
    int mod = find_module(&t->layers, mod_name, mod_len);
    symbol++;
    if (mod < 0 || !is_named_well(&t->layers, mod, symbol))
        tidy_complain(t, number, "symbol", "%s of module %.*s lacks its prefix (src/LAYERS)",
                      symbol, (int)mod_len, mod_name);
    char *level = strstr(line, "level_");
    bool is_level = level && level < object + object_len;
    if (is_level && !map_put(levels, object, object_len, 1))
        tidy_complain(t, number, "symbol", "%.*s exports %s besides its table", (int)object_len,
                      object, symbol);
}

int rule_symbols(struct tidy *t, const char *nm_path, struct err *e)
{
    struct source s = {.path = nm_path};
    struct map levels = {0};
    int rc = file_read(nm_path, NM_MAX, &s.text, &s.size, e);
    if (rc < 0)
        return rc;
    int number = 0;
    for (char *line = s.text; *line; number++) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        check_symbol(t, line, number, &levels);
        line = end ? end + 1 : line + strlen(line);
    }
    tidy_settle(t, &s);
    map_release(&levels);
    source_release(&s);
    return 0;
}
