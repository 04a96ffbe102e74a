/* Sets: the file, the index of its usable rows, and the count of the others. */
#include "data/data_int.h"

#include "base/mem.h"
#include "base/rng.h"

#include <string.h>

/* A cursor over the lines of a text. */
struct lines {
    const char *text;
    size_t size, at;
    uint64_t n; // Lines read.
};

static const struct data_fields defaults = {.prompt = {"prompt", "question", "problem"},
                                            .answer = {"answer", "solution", "ground_truth"}};

static struct lines lines_of(const char *text, size_t size)
{
    bool has_mark = size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0;
    return (struct lines){.text = text, .size = size, .at = has_mark ? 3 : 0};
}

/* The next line, without its end. */
static bool next_line(struct lines *l, const char **line, size_t *n)
{
    if (l->at >= l->size)
        return false;
    *line = l->text + l->at;
    const char *end = memchr(*line, '\n', l->size - l->at);
    *n = end ? (size_t)(end - *line) : l->size - l->at;
    l->at += *n + (end != NULL);
    l->n++;
    if (*n && (*line)[*n - 1] == '\r')
        --*n;
    return true;
}

static bool is_blank(const char *line, size_t n)
{
    while (n && (line[n - 1] == ' ' || line[n - 1] == '\t' || line[n - 1] == '\r'))
        n--;
    return n == 0;
}

void data_init(struct data *d, const char *path, const struct data_options *o)
{
    *d = (struct data){.path = mem_strdup(path),
                       .fields = defaults,
                       .shuffle = o->shuffle,
                       .key = rng_key(o->seed, RNG_SHUFFLE)};
    d->fields.want = o->want;
    d->fields.gold_rule = o->gold_rule;
    if (o->want == DATA_COMPLETIONS) {
        d->fields.answer[0] = "completion";
        d->fields.answer[1] = "answer";
        d->fields.answer[2] = "solution";
    }
    if (o->prompt_field) {
        d->own_prompt = mem_strdup(o->prompt_field);
        d->fields.prompt[0] = d->own_prompt;
        d->fields.prompt[1] = NULL;
    }
    if (o->answer_field) {
        d->own_answer = mem_strdup(o->answer_field);
        d->fields.answer[0] = d->own_answer;
        d->fields.answer[1] = NULL;
    }
}

/* Counts a row that is not used; its line is the last one read. */
static void drop_row(struct data *d, const char *reason, uint64_t line)
{
    int i = 0;
    while (i < d->n_drops && strcmp(d->drop[i].reason, reason) != 0)
        i++;
    ASSERT(i < DATA_REASONS);
    if (i == d->n_drops)
        d->drop[d->n_drops++] = (struct data_drop){.reason = reason, .first = line};
    d->drop[i].n++;
}

static void add_row(struct data *d, uint64_t offset, uint32_t line)
{
    mem_grow(&d->offset, &d->offset_cap, d->n + 1, sizeof *d->offset);
    mem_grow(&d->line, &d->line_cap, d->n + 1, sizeof *d->line);
    d->offset[d->n] = offset;
    d->line[d->n++] = line;
}

static int index_lines(struct data *d, struct lines *l, const struct data_options *o,
                       struct data_seen *seen, struct err *e)
{
    struct data_row row = {0};
    const char *line, *reason;
    size_t n;
    int rc = 0;
    while (next_line(l, &line, &n)) {
        if (is_blank(line, n))
            continue;
        if (l->n > UINT32_MAX)
            TRY(err_set(e, ERR_UNSUPPORTED, "more than 2^32 lines: split the file"));
        rc = data_row_parse(&row, line, n, &d->fields, seen, &reason, e);
        TRY(err_in(e, rc, "line %llu", (unsigned long long)l->n));
        d->n_rows++;
        row.index = (uint32_t)(l->n - 1);
        if (!reason && o->reject)
            reason = o->reject(o->ctx, &row);
        if (reason)
            drop_row(d, reason, l->n);
        else
            add_row(d, (uint64_t)(line - l->text), row.index);
    }
fail:
    data_row_release(&row);
    return rc;
}

/* "'a', 'b' or 'c'" */
static void put_names(struct buf *b, const char *const *names, int n, const char *last)
{
    for (int i = 0; i < n; i++) {
        buf_puts(b, i == 0 ? "'" : i + 1 == n ? last : ", '");
        buf_terminal(b, names[i], MIN(strlen(names[i]), (size_t)40), false);
        buf_putc(b, '\'');
    }
}

/* Refuses a field that no row has, naming those that are there and the option that names it. */
static int refuse_field(const struct data_seen *seen, const char *const names[4],
                        const char *option, struct err *e)
{
    struct buf b = {0};
    int n = 0;
    while (n < 4 && names[n])
        n++;
    buf_puts(&b, "no row has a field ");
    put_names(&b, names, n, " or '");
    buf_puts(&b, seen->n_fields ? "; there are " : "; there are none");
    put_names(&b, (const char *const *)seen->field, seen->n_fields, " and '");
    if (seen->n_fields == DATA_FIELDS)
        buf_puts(&b, " and perhaps more");
    int rc = err_set(e, ERR_DATA, "%s: name the right one with %s", buf_str(&b), option);
    buf_release(&b);
    return rc;
}

static void put_drops(const struct data *d, struct buf *out)
{
    for (int i = 0; i < d->n_drops; i++)
        buf_printf(out, "%s%llu %s (first on line %llu)", i ? ", " : "",
                   (unsigned long long)d->drop[i].n, d->drop[i].reason,
                   (unsigned long long)d->drop[i].first);
}

/* A set without usable rows is refused with what is wrong with it. */
static int check_rows(const struct data *d, const struct data_seen *seen, struct err *e)
{
    if (d->n_rows == 0)
        return err_set(e, ERR_DATA, "the file has no rows: give JSONL, one object {...} a line");
    if (seen->object && !seen->prompt)
        return refuse_field(seen, d->fields.prompt, "prompt_field", e);
    if (seen->object && !seen->answer && d->fields.want != DATA_PROMPTS)
        return refuse_field(seen, d->fields.answer,
                            d->fields.want == DATA_ANSWERS ? "answer_field" : "completion_field",
                            e);
    if (d->n > 0)
        return 0;
    struct buf drops = {0};
    put_drops(d, &drops);
    int rc = err_set(e, ERR_DATA, "no usable row among %llu: %s: mend the rows or the options",
                     (unsigned long long)d->n_rows, buf_str(&drops));
    buf_release(&drops);
    return rc;
}

int data_index(struct data *d, const char *text, size_t n, const struct data_options *options,
               struct err *e)
{
    struct lines lines = lines_of(text, n);
    struct data_seen seen = {0};
    d->text = text;
    d->size = n;
    int rc = index_lines(d, &lines, options, &seen, e);
    if (rc == 0)
        rc = check_rows(d, &seen, e);
    if (rc == 0)
        d->checksum = (uint64_t)file_crc32(0, text, n) << 32 |
                      file_crc32(0, d->line, (size_t)d->n * sizeof *d->line);
    for (int i = 0; i < seen.n_fields; i++)
        mem_free(seen.field[i]);
    return rc;
}

int data_open(struct data **set, const char *path, const struct data_options *options,
              struct err *e)
{
    struct data *d = mem_alloc(sizeof *d);
    data_init(d, path, options);
    int rc = 0;
    if (strcmp(path, "-") == 0 && !file_exists(path))
        rc = err_set(e, ERR_IO,
                     "-: standard input cannot be read more than once, which is needed here; save "
                     "the rows to a file and give its name");
    if (rc == 0)
        rc = file_map(&d->map, path, e);
    if (rc == 0) {
        rc = data_index(d, (const char *)d->map.data, d->map.size, options, e);
        err_in(e, rc, "%s", path);
    }
    if (rc < 0) {
        data_close(d);
        d = NULL;
    }
    *set = d;
    return rc;
}

void data_release(struct data *d)
{
    file_unmap(&d->map);
    mem_free(d->path);
    mem_free(d->own_prompt);
    mem_free(d->own_answer);
    mem_free(d->offset);
    mem_free(d->line);
    *d = (struct data){0};
}

void data_close(struct data *set)
{
    if (!set)
        return;
    data_release(set);
    mem_free(set);
}

uint64_t data_count(const struct data *set)
{
    return set->n;
}

uint64_t data_rows(const struct data *set)
{
    return set->n_rows;
}

uint64_t data_checksum(const struct data *set)
{
    return set->checksum;
}

void data_report(const struct data *set, struct buf *out)
{
    buf_printf(out, "%llu rows, %llu usable", (unsigned long long)set->n_rows,
               (unsigned long long)set->n);
    if (set->n_drops) {
        buf_puts(out, "; dropped: ");
        put_drops(set, out);
    }
}

int data_read(const struct data *set, uint64_t slot, struct data_row *row, struct err *e)
{
    ASSERT(slot < set->n);
    struct lines l = {.text = set->text, .size = set->size, .at = (size_t)set->offset[slot]};
    const char *line = NULL, *reason = NULL;
    size_t n = 0;
    struct err changed = {0};
    next_line(&l, &line, &n);
    row->index = set->line[slot];
    int rc = data_row_parse(row, line, n, &set->fields, NULL, &reason, &changed);
    if (rc < 0 || reason)
        return err_set(e, ERR_STATE,
                       "%s: line %llu changed while in use: start again and leave the file alone",
                       set->path, (unsigned long long)row->index + 1);
    return 0;
}
