/* Private to src/data: a set's parts, and the way of a line to a row. data.c cuts the text into
 * lines and keeps the index, row.c parses a line, gold.c finds the answer in its field; order.c
 * needs the index alone, tasks.c nothing.
 */
#pragma once

#include "base/file.h"
#include "data/data.h"

#define DATA_REASONS 24 // Kinds of dropped rows: ours and the caller's.
#define DATA_FIELDS  12 // Names that messages list.

/* What is looked for in a row: lists of names, NULL-terminated, the first present counts. */
struct data_fields {
    enum data_want want;
    const char *prompt[4], *answer[4];
    enum conf_gold_rule gold_rule;
};

/* What the rows seen so far had. */
struct data_seen {
    bool object;              // Some row was parsed.
    bool prompt, answer;      // Some row has the field.
    char *field[DATA_FIELDS]; // Owned: names of fields, in the order met.
    int n_fields;
};

struct data_drop {
    const char *reason; // A literal.
    uint64_t n, first;  // Rows; line of the first one, from 1.
};

struct data {
    char *path; // Owned.
    struct file_map map;
    const char *text; // (size), the file's contents, borrowed from map.
    size_t size;
    struct data_fields fields;
    char *own_prompt, *own_answer; // Owned copies of the option's names, or NULL.
    bool shuffle;
    uint64_t key; // Of the order.

    uint64_t n_rows;  // All rows.
    uint64_t n;       // Usable rows.
    uint64_t *offset; // (n), of each usable row's line.
    uint32_t *line;   // (n), its number from 0.
    size_t offset_cap, line_cap;
    uint64_t checksum;

    struct data_drop drop[DATA_REASONS]; // (n_drops)
    int n_drops;
};

/* Parses one line (without its end) into row. Returns 0 with *reason NULL for a usable row or the
   reason why it is not; ERR_FORMAT when the line is not UTF-8 or not a JSON object, with the byte.
   `seen` may be NULL. */
int data_row_parse(struct data_row *row, const char *text, size_t n,
                   const struct data_fields *fields, struct data_seen *seen, const char **reason,
                   struct err *e);

/* Indexes the rows of n bytes of text in memory, which stay mapped or borrowed while d is used. */
int data_index(struct data *d, const char *text, size_t n, const struct data_options *options,
               struct err *e);

/* Opens nothing: fields, order and texts of the options. */
void data_init(struct data *d, const char *path, const struct data_options *options);
void data_release(struct data *d);
