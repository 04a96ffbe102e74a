/* loco tokenize: text to token ids and back, as the model sees it. A plain text is taken whole, a
 * newline at its end included, and becomes one line of ids; the way back writes the bytes alone.
 */
#include "cli/cli.h"

#include "base/log.h"
#include "model/model.h"
#include "text/text.h"

#include <string.h>

struct job {
    const struct conf *conf;
    struct text *text;
    struct text_ids ids;
    struct buf out;
};

static void encode(struct job *j, const char *s, size_t n)
{
    j->ids.n = 0;
    text_encode(j->text, s, n, j->conf->add_special_tokens ? TEXT_WRAP : 0, &j->ids);
}

static void warn_of_gaps(const struct job *j, const char *name)
{
    size_t n;
    for (size_t i = 0; i < j->ids.n; i++)
        if (!text_token_bytes(j->text, j->ids.id[i], &n)) {
            log_warn("%s: id %d has no token and was left out, as others may be", name,
                     j->ids.id[i]);
            return;
        }
}

/* text_encode reads what is no UTF-8 as U+FFFD: the ids do not lead back to the same bytes. */
static void warn_of_bytes(const char *name, const char *s, size_t n)
{
    size_t valid = utf8_valid(s, n);
    if (valid < n)
        log_warn("%s: byte %zu: not UTF-8; this was read as U+FFFD, as others may be", name,
                 valid + 1);
}

static int encode_row(struct job *j, const struct cli_rows *rows, struct err *e)
{
    const json_t *text = json_object_get(rows->row, "text");
    if (!json_is_string(text))
        return cli_rows_refuse(rows, e, "text: expected a string");
    encode(j, json_string_value(text), json_string_length(text));
    buf_puts(&j->out, "{\"ids\": ");
    cli_put_ids(&j->out, j->ids.id, j->ids.n);
    buf_puts(&j->out, "}\n");
    return 0;
}

static int decode_row(struct job *j, const struct cli_rows *rows, struct err *e)
{
    struct buf text = {0};
    const json_t *list = json_object_get(rows->row, "ids");
    int rc =
        cli_get_ids(rows, list, INT32_MAX, "an id is never negative", &j->ids.id, &j->ids.n, e);
    if (rc < 0)
        return rc;
    j->ids.cap = j->ids.n;
    warn_of_gaps(j, rows->name);
    text_decode(j->text, j->ids.id, j->ids.n, j->conf->skip_special_tokens, &text);
    buf_puts(&j->out, "{\"text\": ");
    buf_json(&j->out, buf_str(&text), text.len);
    buf_puts(&j->out, "}\n");
    buf_release(&text);
    return 0;
}

static int each_row(struct job *j, struct err *e)
{
    int rc = 0;
    struct cli_rows rows;
    TRY(cli_rows_open(&rows, j->conf->rows, e));
    while ((rc = cli_rows_next(&rows, e)) > 0) {
        TRY(j->conf->decode ? decode_row(j, &rows, e) : encode_row(j, &rows, e));
        TRY(cli_flush(&j->out, e));
    }
fail:
    cli_rows_close(&rows);
    return rc;
}

/* Ids separated by blanks, commas or brackets: what encoding prints, and what Python prints. */
static int read_ids(struct job *j, const char *name, char *s, struct err *e)
{
    static const char between[] = " \t\r\n,[]";
    for (char *end; *(s += strspn(s, between)); s = end) {
        int64_t id;
        end = s + strcspn(s, between);
        bool is_last = *end == '\0';
        *end = '\0';
        if (!str_to_int(s, &id) || id < 0 || id > INT32_MAX) {
            struct buf shown = {0};
            buf_terminal(&shown, s, strnlen(s, 40), false);
            int rc = err_set(e, ERR_DATA,
                             "%s: '%s' is no token id; expected numbers from 0 on, such as "
                             "'12 7'",
                             name, buf_str(&shown));
            buf_release(&shown);
            return rc;
        }
        text_ids_push(&j->ids, (int32_t)id);
        end += !is_last;
    }
    return 0;
}

static int whole_text(struct job *j, struct err *e)
{
    int rc = 0;
    struct buf in = {0}, raw = {0};
    const char *name;
    TRY(cli_read_all(j->conf->rows, &in, &name, e));
    if (!j->conf->decode) {
        warn_of_bytes(name, buf_str(&in), in.len);
        encode(j, buf_str(&in), in.len);
        for (size_t i = 0; i < j->ids.n; i++)
            buf_printf(&j->out, "%s%d", i ? " " : "", j->ids.id[i]);
        buf_putc(&j->out, '\n');
    } else {
        if (memchr(buf_str(&in), '\0', in.len))
            TRY(err_set(e, ERR_DATA, "%s: a NUL byte; expected token ids as text", name));
        buf_put(&in, "", 0);
        TRY(read_ids(j, name, in.data, e));
        warn_of_gaps(j, name);
        text_decode(j->text, j->ids.id, j->ids.n, j->conf->skip_special_tokens, &raw);
        cli_put_foreign(&j->out, buf_str(&raw), raw.len);
        if (cli_is_terminal())
            buf_putc(&j->out, '\n');
    }
    TRY(cli_flush(&j->out, e));
fail:
    buf_release(&in);
    buf_release(&raw);
    return rc;
}

/* The tokenizer of a folder, which fits the model there; a model that cannot be read does not
   matter here. */
static int open_text(struct text **t, const char *path, struct err *e)
{
    struct model_config model;
    int rc = text_open(t, path, e);
    if (rc == 0 && file_is_dir(path) && model_config_load(&model, path, NULL) == 0)
        rc = text_fits(*t, path, model.V, e);
    return rc;
}

int cli_tokenize(const struct conf *conf, struct err *e)
{
    int rc = 0;
    struct job j = {.conf = conf, .out.max = SIZE_MAX / 2};
    TRY(open_text(&j.text, conf->model, e));
    TRY(conf->jsonl ? each_row(&j, e) : whole_text(&j, e));
fail:
    buf_release(&j.out);
    text_ids_release(&j.ids);
    text_close(j.text);
    return rc;
}
