/* One line of JSONL to a row: JSON by jansson, fields by name, the answer by its rule. */
#include "data/data_int.h"

#include "base/mem.h"

#include <jansson.h>
#include <string.h>

/* Longest text of a parser's message that is passed on. */
#define PARSER_TEXT 160

static int refuse_json(const char *text, int byte, struct err *e)
{
    struct buf shown = {0};
    buf_terminal(&shown, text, strnlen(text, PARSER_TEXT), false);
    int rc = err_set(e, ERR_FORMAT, "byte %d: not JSON (%s): mend or remove the line", byte,
                     buf_str(&shown));
    buf_release(&shown);
    return rc;
}

int data_object(const char *text, size_t n, json_t **object, const char **reason, struct err *e)
{
    json_error_t error;
    *object = NULL;
    *reason = NULL;
    if (n > DATA_ROW_BYTES) {
        *reason = "longer than 16 MiB";
        return 0;
    }
    size_t valid = utf8_valid(text, n);
    if (valid < n)
        return err_set(e, ERR_FORMAT, "byte %zu: not UTF-8: save the file as UTF-8", valid + 1);
    *object = json_loadb(text, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (*object && !json_is_object(*object)) {
        json_decref(*object);
        *object = NULL;
        return err_set(e, ERR_FORMAT, "byte 1: not a JSON object: one object {...} a line");
    }
    if (*object)
        return 0;
    switch (json_error_code(&error)) {
    case json_error_numeric_overflow:
        *reason = "a number beyond 64 bits";
        return 0;
    case json_error_null_byte_in_key:
        *reason = "NUL in a field's name";
        return 0;
    case json_error_duplicate_key:
        *reason = "a field given twice";
        return 0;
    default:
        return refuse_json(error.text, error.position, e);
    }
}

/* The first of the names that the row has and is not null. */
static const json_t *find_field(const json_t *object, const char *const names[4], bool *seen)
{
    const json_t *found = NULL;
    for (int i = 0; i < 4 && names[i] && !found; i++) {
        found = json_object_get(object, names[i]);
        *seen |= found != NULL;
        if (json_is_null(found))
            found = NULL;
    }
    return found;
}

/* A string, or the content of a conversation that is one user message of text. */
static const json_t *prompt_text(const json_t *prompt)
{
    if (!json_is_array(prompt))
        return prompt;
    const json_t *message = json_array_get(prompt, 0);
    const char *role = json_string_value(json_object_get(message, "role"));
    bool is_single = json_array_size(prompt) == 1 && role && strcmp(role, "user") == 0;
    return is_single ? json_object_get(message, "content") : NULL;
}

static void put_text(struct buf *b, const json_t *text)
{
    buf_clear(b);
    if (json_is_string(text))
        buf_put(b, json_string_value(text), json_string_length(text));
    else if (json_is_integer(text))
        buf_printf(b, "%lld", (long long)json_integer_value(text));
    else
        buf_double(b, json_real_value(text));
}

static const char *read_prompt(struct data_row *row, const json_t *field)
{
    size_t n;
    if (!field)
        return "no prompt field";
    const json_t *text = prompt_text(field);
    if (json_is_array(field) && !json_is_string(text))
        return "conversational prompt";
    if (!json_is_string(text))
        return "prompt is not text";
    put_text(&row->prompt, text);
    data_gold(buf_str(&row->prompt), row->prompt.len, CONF_GOLD_FIELD, &n);
    return n == 0 ? "empty prompt" : NULL;
}

static const char *read_answer(struct data_row *row, const json_t *field,
                               const struct data_fields *fields)
{
    bool is_gold = fields->want == DATA_ANSWERS;
    if (!field)
        return is_gold ? "no answer field" : "no completion field";
    if (!json_is_string(field) && !json_is_number(field))
        return is_gold ? "answer is neither text nor a number" : "completion is not text";
    put_text(&row->answer, field);
    if (!is_gold)
        return row->answer.len == 0 ? "empty completion" : NULL;
    size_t n;
    const char *gold = data_gold(buf_str(&row->answer), row->answer.len, fields->gold_rule, &n);
    if (!gold)
        return fields->gold_rule == CONF_GOLD_HASHES ? "no #### in the answer"
                                                     : "no box in the answer";
    memmove(row->answer.data, gold, n);
    row->answer.data[n] = '\0';
    row->answer.len = n;
    return n == 0 ? "empty answer" : NULL;
}

static void note_fields(struct data_seen *seen, json_t *object)
{
    const char *name;
    json_t *value;
    seen->object = true;
    json_object_foreach(object, name, value)
    {
        bool is_new = seen->n_fields < DATA_FIELDS;
        for (int i = 0; i < seen->n_fields && is_new; i++)
            is_new = strcmp(seen->field[i], name) != 0;
        if (is_new)
            seen->field[seen->n_fields++] = mem_strdup(name);
    }
}

int data_row_parse(struct data_row *row, const char *text, size_t n,
                   const struct data_fields *fields, struct data_seen *seen, const char **reason,
                   struct err *e)
{
    struct data_seen unseen = {0};
    json_t *object = NULL;
    int rc = data_object(text, n, &object, reason, e);
    if (rc < 0 || *reason)
        return rc;
    if (seen)
        note_fields(seen, object);
    else
        seen = &unseen;
    const json_t *prompt = find_field(object, fields->prompt, &seen->prompt);
    const json_t *answer = find_field(object, fields->answer, &seen->answer);
    *reason = read_prompt(row, prompt);
    buf_clear(&row->answer);
    if (!*reason && fields->want != DATA_PROMPTS)
        *reason = read_answer(row, answer, fields);
    json_decref(object);
    return 0;
}

void data_row_release(struct data_row *row)
{
    buf_release(&row->prompt);
    buf_release(&row->answer);
    *row = (struct data_row){0};
}
