/* Configuration: every knob once, in one table (conf/knobs.h).
 *
 * A command's options come from three sources, later ones winning: the table's defaults, a YAML
 * file
 * (--config run.yaml), the command line (--name value, --name=value, name=value; `-` and `_` are
 * the same in names; a BOOL flag alone means true). All three go through one parser of values,
 * which is strict: an integer is digits, a size is 512MiB or 2G, `none` and `auto` mean absence
 * only where the table says so, and a text is never silently made of a word such as None or False.
 * What is refused names file and line (or "command line"), key, what was expected and what stood
 * there; an unknown key comes with the nearest known one.
 *
 * A parsed configuration is complete and resolved: `none` and `auto` that are functions of other
 * knobs (epsilon_high, reduction_leaves ...) are replaced by their values. conf_yaml writes it so
 * that conf_read gives the same struct back, and writing that again gives the same bytes.
 *
 * On resume a knob must agree or may change, by the table's rule column. What must agree is a
 * function's argument in the promise that metrics, samples and weights are functions of the
 * configuration; what may change is where and how fast it runs.
 *
 * The struct owns its texts and lists. {0} is a released configuration.
 *
 *     struct conf c = {0};
 *     TRY(conf_parse(&c, CONF_TRAIN, argc - 2, argv + 2, e));
 *     if (c.help) { conf_help(CONF_TRAIN, &text); ... }
 *     ... c.learning_rate, c.loss_type == CONF_LOSS_DAPO ...
 *     conf_release(&c);
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "conf/knobs.h"

#include <stdbool.h>

enum conf_command {
#define COMMAND_ENUM(bit, name, text, positional) CONF_##bit,
    CONF_COMMANDS(COMMAND_ENUM)
#undef COMMAND_ENUM
        CONF_COMMANDS_N
};

#define CHOICE_VALUE(value, text) value,
#define CHOICE_ENUM(name, values) enum conf_##name{values(CHOICE_VALUE)};
CONF_CHOICES(CHOICE_ENUM)
#undef CHOICE_ENUM
#undef CHOICE_VALUE

struct conf_names {
    char **item; // Owned, each item too.
    int n;
};

struct conf_reals {
    double *item; // Owned.
    int n;
};

/* One field for each knob, whatever the command; those it does not take stay zero. */
struct conf {
    enum conf_command command;
    bool help; // --help or -h stood there: print conf_help; nothing else is valid.
#define CONF_FIELD_TEXT(name)   char *name;
#define CONF_FIELD_INT(name)    int64_t name;
#define CONF_FIELD_SIZE(name)   int64_t name;
#define CONF_FIELD_SEED(name)   uint64_t name;
#define CONF_FIELD_REAL(name)   double name;
#define CONF_FIELD_BOOL(name)   bool name;
#define CONF_FIELD_CHOICE(name) enum conf_##name name;
#define CONF_FIELD_NAMES(name)  struct conf_names name;
#define CONF_FIELD_REALS(name)  struct conf_reals name;
#define SECTION(title)
#define FIELD(kind, name, standard, word, lo, hi, commands, rule, doc) CONF_FIELD_##kind(name)
    CONF_KNOBS(SECTION, FIELD)
#undef SECTION
#undef FIELD
};

/* The command called `name`. ERR_USAGE with the nearest name. */
int conf_command_find(const char *name, enum conf_command *command, struct err *e);
const char *conf_command_name(enum conf_command command);

/* Fills *c (released or {0} before) from defaults, the YAML file of --config, and argv[0, argc).
   ERR_USAGE for what is wrong in either, ERR_FORMAT where the file is not YAML, ERR_IO. On failure
   *c is released. */
int conf_parse(struct conf *c, enum conf_command command, int argc, const char *const argv[],
               struct err *e);

/* Fills *c from defaults and a YAML file alone: a saved config.yaml. Errors as above. */
int conf_read(struct conf *c, enum conf_command command, const char *path, struct err *e);

/* The same from n bytes in memory; `name` stands for the file in messages. */
int conf_read_text(struct conf *c, enum conf_command command, const char *name, const char *text,
                   size_t n, struct err *e);

void conf_release(struct conf *c); // Idempotent.

/* The text of a CHOICE knob's value, for modules that find their own enum by name:
   conf_choice_text(&c, "loss_type") is "dapo". */
const char *conf_choice_text(const struct conf *c, const char *knob);

/* Appends the command's help: its options by section with default, type, range and meaning. */
void conf_help(enum conf_command command, struct buf *out);

/* Appends one line for each command: `loco --help`. */
void conf_commands_help(struct buf *out);

/* Appends docs/CONFIG.md. */
void conf_markdown(struct buf *out);

/* Appends the complete configuration as YAML: config.yaml. Knobs of one invocation are left out. */
void conf_yaml(const struct conf *c, struct buf *out);

/* Appends "name: value" lines, in the table's order, of the knobs that must agree on resume: two
   configurations with the same text are the same run. For hashes and checkpoints. */
void conf_canonical(const struct conf *c, struct buf *out);

/* ERR_STATE naming each knob of the configuration `saved` in a checkpoint that may not be what it
   is in `now`. Both are of the same command. */
int conf_resume_check(const struct conf *saved, const struct conf *now, struct err *e);
