/* Data sets: JSONL files of any size, their order over epochs, and generated tasks.
 *
 * A struct data is a mapped file and an index of its usable rows, 12 bytes a row; rows are parsed
 * when they are read, so memory does not grow with texts. A row is a line that holds a JSON object;
 * blank lines, CRLF ends, a byte order mark and a missing last newline are fine, and only \n ends a
 * line (U+2028 does not). A row's number is that of its line, from 0: with the epoch it names the
 * row's one draw in a run, and keys its random numbers.
 *
 * data_open reads every row once. A line that is not UTF-8 or not a JSON object, a field that no
 * row has, and a set without rows are refused. A single row that cannot be used is dropped and
 * counted by reason: longer than DATA_ROW_BYTES, field missing or neither text nor (for answers) a
 * number, empty, a conversation, no answer by the gold rule, or a reason of the caller's, who may
 * know tokens and rewards. When none is left, the set is refused with the counts.
 *
 * Of several field names the first that a row has, not null, counts for it. The prompt is taken as
 * it stands; a list of messages only when it is one user message of text. The gold answer is taken
 * from its field by conf's gold_rule, and trimmed:
 * - hashes: what follows the last "####" on its line (GSM8K);
 * - boxed: the contents of the complete \boxed{} or \fbox{} that begins last, braces counted;
 * - field: all of it;
 * - auto: of the last line that begins with "####" and that box, whichever stands later; without
 *   either, all of it.
 *
 * Order: the set is an endless sequence of epochs; position k of epoch e is usable row
 * rng_permute(key, e, n, k), or k when not shuffled. A step takes the next prompts_per_step of the
 * sequence and may straddle epochs, so nothing is lost or repeated, and a cursor saved anywhere
 * goes on from there.
 *
 * The file must stay as it is while the set is open: a row that an edit spoiled is refused, and a
 * file cut short ends the process with a message and ERR_IO's status (file_standard).
 *
 *     struct data *set;
 *     struct data_cursor cursor = {0};
 *     struct data_row row = {0};
 *     TRY(data_open(&set, "train.jsonl", &(struct data_options){.want = DATA_ANSWERS}, e));
 *     struct data_draw draw = data_next(set, &cursor);
 *     TRY(data_read(set, draw.slot, &row, e));
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "conf/conf.h"

#include <stdbool.h>

#define DATA_ROW_BYTES ((size_t)16 << 20) // The longest usable line.

enum data_want {
    DATA_PROMPTS,     // Prompts alone: answers are not looked for.
    DATA_ANSWERS,     // Prompts and gold answers.
    DATA_COMPLETIONS, // Prompts and completions as they stand: supervised rows.
};

/* {0} is a row without memory. Texts may hold NUL: use their len. */
struct data_row {
    uint32_t index;    // Its line in the file, from 0.
    struct buf prompt; // Owned, as the next one; kept for reuse by the next data_read.
    struct buf answer; // Gold answer or completion; empty for DATA_PROMPTS.
};

struct data_options {
    enum data_want want;
    const char *prompt_field; // NULL: prompt, question, problem.
    const char *answer_field; // NULL: answer, solution, ground_truth, or for completions:
                              // completion, answer, solution.
    enum conf_gold_rule gold_rule;
    bool shuffle;
    uint64_t seed; // Of the order.

    /* Why the caller cannot use a row, a string literal such as "longer than max_prompt_length";
       NULL to take it. Asked once for each otherwise usable row, in order. May be NULL itself. */
    const char *(*reject)(void *ctx, const struct data_row *row);
    void *ctx;
};

/* The next draw, in a form that trainer_state.json keeps. {0} is the beginning. */
struct data_cursor {
    uint32_t epoch;
    uint64_t position; // In [0, data_count).
};

/* One draw: a group is named (epoch, index). */
struct data_draw {
    uint32_t epoch, index; // index: the row's own number, as in struct data_row.
    uint64_t slot;         // For data_read.
};

struct data;

/* Opens and indexes a set. *set is NULL on failure, else the caller closes it. ERR_IO for the file,
   ERR_FORMAT naming line and byte, ERR_DATA when no row has a field or none is usable. */
int data_open(struct data **set, const char *path, const struct data_options *options,
              struct err *e);
void data_close(struct data *set); // NULL is fine.

uint64_t data_count(const struct data *set); // Usable rows, at least 1.
uint64_t data_rows(const struct data *set);  // All rows.

/* Appends "7473 rows, 7470 usable; dropped: 2 empty answer (first on line 7), 1 ...". */
void data_report(const struct data *set, struct buf *out);

/* Depends on every byte of the file and on which rows are usable: equal on resume or refused. */
uint64_t data_checksum(const struct data *set);

/* Parses usable row `slot` in [0, data_count), the slot-th of the file. ERR_STATE when the file is
   no longer what was opened. */
int data_read(const struct data *set, uint64_t slot, struct data_row *row, struct err *e);
void data_row_release(struct data_row *row);

/* Parses one line, without its end, as every reader of rows does. Returns 0 with *object owned by
   the caller (json_decref), or with it NULL and *reason a literal: why such a row is dropped
   whatever its fields mean ("a field given twice"). ERR_FORMAT when the line is not UTF-8 or not a
   JSON object, with the byte. */
struct json_t; // jansson's
int data_object(const char *text, size_t n, struct json_t **object, const char **reason,
                struct err *e);

/* The part of text that is the gold answer by the rule, trimmed; *n is its length. NULL when the
   rule finds nothing. */
const char *data_gold(const char *text, size_t size, enum conf_gold_rule rule, size_t *n);

/* The draw at the cursor, which moves on. */
struct data_draw data_next(const struct data *set, struct data_cursor *cursor);

/* Rows of each file of a generated task. */
struct data_task_rows {
    uint64_t train, test, sft;
};

/* Writes train.jsonl and test.jsonl (prompt, answer) and sft.jsonl (prompt, completion) of task
   `name` into folder `dir`, made when absent; fixed by seed. *rows says how many are wanted and is
   set to how many there are: a task has a fixed number of prompts, no prompt stands twice in a
   file, test has at most a fifth of them and shares none with the others; sft shares train's only
   where the rest is too few. No sft.jsonl is written for 0 rows. ERR_USAGE for an unknown task,
   ERR_IO. */
int data_task_write(const char *name, const char *dir, uint64_t seed, struct data_task_rows *rows,
                    struct err *e);
