/* The rows of conf/knobs.h as data, and looking up names in them. The short names of commands and
 * rules that the rows use are defined here and nowhere else.
 */
#include "conf/conf_int.h"

#include "base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
#define COMMAND_BIT(bit, name, text, positional) bit = 1 << CONF_##bit,
    CONF_COMMANDS(COMMAND_BIT)
#undef COMMAND_BIT
        LEARN = TRAIN | SFT,
    SAMPLE = EVAL | GENERATE,
    COMPUTE = LEARN | SAMPLE | LOGPROBS | CHECK | BENCH,
    EVERY = (1 << CONF_COMMANDS_N) - 1,
};

#define CHOICE_TEXT(value, text) text,
#define CHOICE_TEXTS(name, values)                                                                 \
    static const char *const name##_choices[] = {values(CHOICE_TEXT) NULL};
CONF_CHOICES(CHOICE_TEXTS)

#define CHOICES_TEXT(name)   NULL
#define CHOICES_INT(name)    NULL
#define CHOICES_SIZE(name)   NULL
#define CHOICES_SEED(name)   NULL
#define CHOICES_REAL(name)   NULL
#define CHOICES_BOOL(name)   NULL
#define CHOICES_NAMES(name)  NULL
#define CHOICES_REALS(name)  NULL
#define CHOICES_CHOICE(name) name##_choices

#define HEADING(title) {.name = title},
#define ROW(kind_, name_, standard_, word_, lo_, hi_, commands_, rule_, doc_)                      \
    {.name = #name_,                                                                               \
     .standard = standard_,                                                                        \
     .word = word_,                                                                                \
     .doc = doc_,                                                                                  \
     .choices = CHOICES_##kind_(name_),                                                            \
     .lo = lo_,                                                                                    \
     .hi = hi_,                                                                                    \
     .offset = offsetof(struct conf, name_),                                                       \
     .commands = commands_,                                                                        \
     .kind = kind_,                                                                                \
     .rule = rule_},

const struct conf_knob conf_knobs[CONF_KNOBS_N + 1] = {CONF_KNOBS(HEADING, ROW){.name = NULL}};

#define COMMAND_ROW(bit, name, text, positional) {name, text, positional},
const struct conf_command_row conf_command_rows[CONF_COMMANDS_N] = {CONF_COMMANDS(COMMAND_ROW)};

static const struct {
    enum conf_command command;
    const char *name, *standard;
} defaults_by_command[] = {
#define DEFAULT_ROW(bit, name, standard) {CONF_##bit, #name, standard},
    CONF_DEFAULTS(DEFAULT_ROW)};

bool conf_takes(enum conf_command command, const struct conf_knob *k)
{
    return (k->commands >> command & 1) != 0;
}

const char *conf_standard(enum conf_command command, const struct conf_knob *k)
{
    for (size_t i = 0; i < ARRAY_LEN(defaults_by_command); i++) {
        if (defaults_by_command[i].command == command &&
            strcmp(defaults_by_command[i].name, k->name) == 0)
            return defaults_by_command[i].standard;
    }
    return k->standard;
}

int conf_refuse(struct conf_place at, struct err *e, const char *fmt, ...)
{
    struct buf text = {0};
    if (at.file)
        buf_printf(&text, "%s:%d: ", at.file, at.line);
    else
        buf_puts(&text, "command line: ");
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    int rc = err_set(e, ERR_USAGE, "%s", buf_str(&text));
    buf_release(&text);
    return rc;
}

void conf_show(const char *text, struct buf *out)
{
    size_t n = strnlen(text, 60);
    buf_terminal(out, text, n, false);
    buf_puts(out, text[n] ? "..." : "");
}

static bool same_name(const char *user, const char *name)
{
    for (; *user && *name; user++, name++) {
        if ((*user == '-' ? '_' : *user) != *name)
            return false;
    }
    return *user == *name;
}

/* Appends "loco train, loco sft" for the commands in the set. */
static void put_commands(unsigned commands, struct buf *out)
{
    const char *comma = "";
    for (int i = 0; i < CONF_COMMANDS_N; i++) {
        if (commands >> i & 1) {
            buf_printf(out, "%sloco %s", comma, conf_command_rows[i].name);
            comma = ", ";
        }
    }
}

/* Whether name is what a user may have meant, with fewer than *edits (which is then set to them): a
   typing error or two, or an option's name with more words behind it. */
static bool is_nearer(const char *user, const char *name, int *edits)
{
    size_t n = strlen(name);
    int most = MAX(1, ((int)strlen(user) + 1) / 4);
    int here = str_distance(user, name);
    if (here > most && str_starts(user, name) && user[n] == '_')
        here = most + 1; // "reward_funcs": any real near miss is nearer
    else if (here > most)
        return false;
    if (here >= *edits)
        return false;
    *edits = here;
    return true;
}

/* The only knob of the command whose name begins with the user's words, or NULL. */
static const char *only_longer(enum conf_command command, const char *user)
{
    enum { SHORTEST = 4 }; // "lr" is no beginning of a name
    const char *found = NULL;
    for (const struct conf_knob *k = conf_knobs; k->name; k++) {
        if (!conf_takes(command, k) || !str_starts(k->name, user) || strlen(user) < SHORTEST)
            continue;
        if (found)
            return NULL;
        found = k->name;
    }
    return found;
}

/* What a user may have meant by name, or NULL. */
static const char *nearest_option(enum conf_command command, const char *name)
{
    const char *nearest = NULL;
    int least = INT_MAX;
    char *user = mem_strdup(name);
    for (char *s = user; *s; s++)
        *s = *s == '-' ? '_' : *s;
    if (is_nearer(user, "help", &least))
        nearest = "help";
    for (const struct conf_knob *k = conf_knobs; k->name; k++)
        if (conf_takes(command, k) && is_nearer(user, k->name, &least))
            nearest = k->name;
    if (!nearest)
        nearest = only_longer(command, user);
    mem_free(user);
    return nearest;
}

static int refuse_name(enum conf_command command, const char *name, struct conf_place at,
                       struct err *e)
{
    struct buf shown = {0}, others = {0};
    const char *nearest = nearest_option(command, name);
    conf_show(name, &shown);
    for (const struct conf_knob *k = conf_knobs; k->name; k++)
        if (k->commands && same_name(name, k->name))
            put_commands(k->commands, &others);
    int rc;
    if (others.len > 0)
        rc = conf_refuse(at, e, "'%s' is an option of %s, not of this command", buf_str(&shown),
                         buf_str(&others));
    else if (nearest)
        rc = conf_refuse(at, e, "no option '%s'; did you mean '%s'?", buf_str(&shown), nearest);
    else
        rc = conf_refuse(at, e, "no option '%s'; loco %s --help lists all", buf_str(&shown),
                         conf_command_rows[command].name);
    buf_release(&shown);
    buf_release(&others);
    return rc;
}

int conf_knob_find(enum conf_command command, const char *name, struct conf_place at,
                   const struct conf_knob **k, struct err *e)
{
    for (*k = conf_knobs; (*k)->name; ++*k) {
        if (conf_takes(command, *k) && same_name(name, (*k)->name))
            return 0;
    }
    return refuse_name(command, name, at, e);
}

const struct conf_knob *conf_knob_of(const char *name)
{
    const struct conf_knob *k = conf_knobs;
    while (k->name && (k->commands == 0 || strcmp(k->name, name) != 0))
        k++;
    ASSERT(k->name);
    return k;
}

const char *conf_command_name(enum conf_command command)
{
    ASSERT(command < CONF_COMMANDS_N);
    return conf_command_rows[command].name;
}

int conf_command_find(const char *name, enum conf_command *command, struct err *e)
{
    const char *nearest = NULL;
    int least = INT_MAX;
    for (int i = 0; i < CONF_COMMANDS_N; i++) {
        const char *known = conf_command_rows[i].name;
        if (strcmp(name, known) == 0) {
            *command = (enum conf_command)i;
            return 0;
        }
        if (is_nearer(name, known, &least))
            nearest = known;
    }
    struct buf text = {0};
    buf_puts(&text, "no command '");
    conf_show(name, &text);
    if (nearest)
        buf_printf(&text, "'; did you mean '%s'? loco --help lists all", nearest);
    else
        buf_puts(&text, "'; loco --help lists all");
    int rc = err_set(e, ERR_USAGE, "%s", buf_str(&text));
    buf_release(&text);
    return rc;
}
