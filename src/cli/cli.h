/* The command line: one file for each subcommand, and what they share with the terminal.
 *
 * main.c finds the command, reads its options by conf and calls its function; what a command finds
 * wrong it returns as a struct err, and main prints it as one line, "loco eval: error: ...", and
 * exits with the code's status (err.h; `loco --help` lists them). A command that ran and whose
 * answer is no, such as a check that failed, returns 1, which is then the exit status.
 *
 * stdout is a command's result and belongs to this module; all else said to a person goes to
 * stderr. Text that comes from models or data is made harmless when stdout is a terminal, and goes
 * out as it is otherwise. When stdout closes early (loco eval | head), commands end quietly; a run
 * (train, sft) saves and leaves, as at the first Ctrl-C.
 *
 * Tools that work row by row read JSONL through struct cli_rows, from a file or from stdin, and
 * answer in order all rows that are there before they wait for more; a row they cannot use stops
 * them with its line. They never change their input; files are only ever written whole.
 *
 *     struct cli_rows rows;
 *     TRY(cli_rows_open(&rows, conf->rows, e));
 *     while ((rc = cli_rows_next(&rows, e)) > 0) {
 *         ... json_object_get(rows.row, "text") ...
 *         TRY(cli_flush(&out, e));
 *     }
 *     fail:
 *     cli_rows_close(&rows);
 */
#pragma once

#include "base/file.h"
#include "base/str.h"
#include "conf/conf.h"

#include <jansson.h>
#include <stdbool.h>

/* The commands. Each returns 0, an enum err_code with e set, or 1. */
int cli_train(const struct conf *conf, struct err *e); // also sft
int cli_generate(const struct conf *conf, struct err *e);
int cli_eval(const struct conf *conf, struct err *e);
int cli_score(const struct conf *conf, struct err *e);
int cli_logprobs(const struct conf *conf, struct err *e);
int cli_tokenize(const struct conf *conf, struct err *e);
int cli_init(const struct conf *conf, struct err *e);
int cli_data(const struct conf *conf, struct err *e);
int cli_inspect(const struct conf *conf, struct err *e);
int cli_check(const struct conf *conf, struct err *e);
int cli_bench(const struct conf *conf, struct err *e);

/* ---- term.c: stdout ---- */

bool cli_is_terminal(void); // stdout is one.
int cli_columns(void);      // Its width; 80 when it is none.

/* Writes to stdout at once. ERR_IO. */
int cli_write(const char *text, size_t n, struct err *e);
int cli_flush(struct buf *b, struct err *e); // The same with b's text; b is empty afterwards.

/* Appends text of a model or of data for stdout: harmless on a terminal, as it is otherwise. */
void cli_put_foreign(struct buf *b, const char *text, size_t n);

/* ---- rows.c: JSON lines in ---- */

struct cli_rows {
    const char *name;    // for messages: the path, or "standard input"
    struct file_map map; // of a plain file
    struct buf held;     // of anything else: what was read and not yet used
    const char *text;    // (size): map's or held's
    size_t size, at;
    bool more;     // stdin may have more
    bool tolerant; // set after opening: rows that training would drop do not stop the reading
    uint64_t line; // of the current row, from 1
    uint64_t rows; // so far
    json_t *row;   // the current one, an object; borrowed until the next call
    const char *unusable; // or why it is none, a literal: only where tolerant
};

/* path NULL or "-": stdin. ERR_IO. */
int cli_rows_open(struct cli_rows *r, const char *path, struct err *e);
/* Reads the next row: 1, or 0 at the end. Blank lines are passed over. ERR_FORMAT for a line that
   is not UTF-8 or not a JSON object, ERR_DATA when there is no row at all or the row is one that
   training would drop. */
int cli_rows_next(struct cli_rows *r, struct err *e);
/* Whether a next line is here already, so that it pays to wait for it and answer both at once. */
bool cli_rows_ready(const struct cli_rows *r);
void cli_rows_close(struct cli_rows *r); // Idempotent.

/* Sets an error about the current row, "rows.jsonl:3: ...". Returns ERR_DATA. */
int cli_rows_refuse(const struct cli_rows *r, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads all of path (NULL or "-": stdin) into b, byte for byte. *name is for messages. */
int cli_read_all(const char *path, struct buf *b, const char **name, struct err *e);

/* ---- init.c: a folder to write into ---- */

/* Refuses a file and a folder that is not empty; what is not there is fine. ERR_USAGE, ERR_IO. */
int cli_refuse_used(const char *dir, struct err *e);

/* ---- inspect_*.c: each adds to the report what it finds at path ---- */

int cli_inspect_model(const char *path, json_t *report, struct err *e);      // model folder
int cli_inspect_checkpoint(const char *path, json_t *report, struct err *e); // and its state
/* A run folder; the curve of its reward (or loss) goes to `curve`. */
int cli_inspect_run(const char *path, json_t *report, struct buf *curve, struct err *e);
int cli_inspect_tensors(const char *path, json_t *report, struct err *e); // a file, or an index
/* A tokenizer: of a model's folder with its vocab_size, or a file with 0. */
int cli_inspect_tokenizer(const char *path, int vocab_size, json_t *report, struct err *e);
int cli_inspect_rows(const char *path, json_t *report, struct err *e); // JSONL

/* ---- json.c: values out ---- */

/* Appends a value on one line, keys in their order, floats so that they read back to the bit. */
void cli_put_json(struct buf *b, const json_t *v);

/* Appends a report for a person: "name  value" lines, indented by depth; a list of objects is a
   table. Keys that end in _bytes are shown as sizes, other underscores as blanks. */
void cli_put_report(struct buf *b, const json_t *object);

/* Appends "[1,2,3]". */
void cli_put_ids(struct buf *b, const int *id, size_t n);
void cli_put_floats(struct buf *b, const float *x, size_t n);

/* Reads a list of token ids in [0, limit) from a JSON value; *n is its length and *id is owned by
   the caller. An error about the row says what gives the limit. */
int cli_get_ids(const struct cli_rows *r, const json_t *list, int limit, const char *limit_text,
                int **id, size_t *n, struct err *e);
