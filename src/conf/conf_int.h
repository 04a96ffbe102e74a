/* The table as data, and the one parser and printer of values: shared by conf's own files.
 *
 * A struct conf_knob is a row of conf/knobs.h with the offset of its field. A row whose `commands`
 * is 0 is a section's heading, so that code which asks "is it a knob of this command?" never meets
 * one.
 */
#pragma once

#include "conf/conf.h"

enum conf_kind { TEXT, INT, SIZE, SEED, REAL, BOOL, CHOICE, NAMES, REALS };
enum conf_rule { SAME, SPAN, FREE, CALL };

struct conf_knob {
    const char *name;     // or a section's title
    const char *standard; // Default as a user would write it; NULL: required.
    const char *word;     // Word for absence; NULL: there is none.
    const char *doc;
    const char *const *choices; // CHOICE: values in the enum's order, NULL at the end.
    double lo, hi;
    size_t offset;     // of the field in struct conf
    unsigned commands; // bits 1 << enum conf_command; 0: a heading
    enum conf_kind kind;
    enum conf_rule rule;
};

struct conf_command_row {
    const char *name, *text;
    const char *positional; // Knob that takes the bare argument, or "".
};

#define ONE_MORE(...) +1
enum { CONF_KNOBS_N = 0 CONF_KNOBS(ONE_MORE, ONE_MORE) };
#undef ONE_MORE

extern const struct conf_knob conf_knobs[CONF_KNOBS_N + 1]; // Ends with a row without name.
extern const struct conf_command_row conf_command_rows[CONF_COMMANDS_N];

/* Where a value came from: a file's name and line, or NULL for the command line. */
struct conf_place {
    const char *file;
    int line;
};

/* Sets an error that begins with the place: "run.yaml:3: " or "command line: ". Returns ERR_USAGE.
 */
int conf_refuse(struct conf_place at, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends a user's text for a message: harmless on a terminal, cut after 60 bytes. */
void conf_show(const char *text, struct buf *out);

bool conf_takes(enum conf_command command, const struct conf_knob *k);
const char *conf_standard(enum conf_command command, const struct conf_knob *k);

/* The knob of `command` that a user calls `name`, `-` and `_` being the same. ERR_USAGE with the
   nearest name, or with the commands that have it. */
int conf_knob_find(enum conf_command command, const char *name, struct conf_place at,
                   const struct conf_knob **k, struct err *e);

/* The knob of that very name, which exists. */
const struct conf_knob *conf_knob_of(const char *name);

/* Sets k's field from a text; `quoted` when it stood in quotes in YAML, so is a text for sure. */
int conf_set(struct conf *c, const struct conf_knob *k, const char *text, bool quoted,
             struct conf_place at, struct err *e);

/* Sets a NAMES or REALS field from n texts. */
int conf_set_list(struct conf *c, const struct conf_knob *k, char *const *text, int n,
                  struct conf_place at, struct err *e);

/* Is text true or false, in YAML's or Python's spelling? *value is false when it is neither. */
bool conf_is_bool(const char *text, bool *value);

/* Appends k's value as YAML: what conf_set reads back, and one line. */
void conf_put(const struct conf *c, const struct conf_knob *k, struct buf *out);

/* Appends what k accepts: "an integer from 1 to 64, or auto". */
void conf_expected(const struct conf_knob *k, struct buf *out);

/* "name: expected an integer from 1 to 64, or auto, got 'fast'". Returns ERR_USAGE. */
int conf_refuse_value(const struct conf_knob *k, const char *text, bool quoted,
                      struct conf_place at, struct err *e);

/* The unit of a size as a power of two: K, M, G, T or KiB, MiB, GiB, TiB or none. */
bool conf_unit(const char *unit, int *shift);

/* Whether a decimal, read as value, is not 0 but nearer to it than any double. */
bool conf_is_underflow(const char *text, double value);

/* k's field in *c: what its kind says in conf/knobs.h. */
void *conf_field(const struct conf *c, const struct conf_knob *k);
void conf_field_release(struct conf *c, const struct conf_knob *k);

/* Reads YAML over *c. */
int conf_yaml_over(struct conf *c, const char *name, const char *text, size_t n, struct err *e);
int conf_yaml_file_over(struct conf *c, const char *path, struct err *e);

/* Fills *c with the command's defaults; a required knob stays NULL, empty or (CHOICE) -1. */
void conf_start(struct conf *c, enum conf_command command);

/* Checks what required knobs and several knobs together ask for, and replaces words that are
   functions of other knobs by their values. */
int conf_finish(struct conf *c, struct err *e);
