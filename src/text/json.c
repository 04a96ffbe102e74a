/* Checked access to parsed JSON. Messages name the place: "model.vocab: is null, expected an
 * object". */
#include "text/text_int.h"

#include <string.h>

const char *text_json_quote(const char *s, size_t n, char out[TEXT_QUOTED])
{
    enum { SHOWN = TEXT_QUOTED - 8 }; // bytes, beside quotes and dots
    struct buf safe = {0};
    buf_terminal(&safe, s, MIN(n, (size_t)SHOWN), false);
    size_t shown = MIN(safe.len, (size_t)SHOWN);
    shown = utf8_valid(buf_str(&safe), shown);
    bool whole = n <= SHOWN && shown == safe.len;
    snprintf(out, TEXT_QUOTED, "'%.*s%s'", (int)shown, buf_str(&safe), whole ? "" : "...");
    buf_release(&safe);
    return out;
}

/* What a value is, for "is ..., expected ...". */
static const char *name_of(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array",     [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a real number", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };
    return value ? names[json_typeof(value)] : "missing";
}

int text_json_refuse(const char *at, const char *expected, const json_t *found, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: is %s, expected %s", at, name_of(found), expected);
}

/* Whether the comma-separated list has the word. */
static bool lists(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    }
    return false;
}

int text_json_keys(const json_t *object, const char *at, const char *keys, struct err *e)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return text_json_refuse(at, "an object", object, e);
    json_object_foreach((json_t *)object, key, value)
    {
        char quoted[TEXT_QUOTED];
        if (!lists(keys, key))
            return err_set(e, ERR_UNSUPPORTED, "%s: key %s is unknown; LoCo knows %s", at,
                           text_json_quote(key, strlen(key), quoted), keys);
    }
    return 0;
}

bool text_json_is_type(const json_t *object, const char *type)
{
    const char *is = json_string_value(json_object_get(object, "type"));
    return is && strcmp(is, type) == 0;
}

int text_json_refuse_type(const json_t *object, const char *at, struct err *e)
{
    const json_t *type = json_object_get(object, "type");
    char quoted[TEXT_QUOTED];
    if (!json_is_string(type))
        return err_set(e, ERR_FORMAT, "%s.type: is %s, expected a string", at, name_of(type));
    return err_set(e, ERR_UNSUPPORTED,
                   "%s.type: %s is not supported; LoCo reads the byte-level BPE of Qwen2, Llama-3, "
                   "SmolLM2 and GPT-2",
                   at, text_json_quote(json_string_value(type), json_string_length(type), quoted));
}

int text_json_bool(const json_t *object, const char *at, const char *key, int fallback, bool *out,
                   struct err *e)
{
    const json_t *value = json_object_get(object, key);
    bool absent = !value || json_is_null(value);
    if (json_is_boolean(value) || (absent && fallback >= 0)) {
        *out = absent ? fallback : json_is_true(value);
        return 0;
    }
    return err_set(e, ERR_FORMAT, "%s.%s: is %s, expected true or false", at, key, name_of(value));
}

int text_json_id(const json_t *value, int32_t *id, struct err *e)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value))
        return err_set(e, ERR_FORMAT, "is %s, expected an integer id", name_of(value));
    if (number < 0 || number >= TEXT_SIZE_MAX)
        return err_set(e, ERR_FORMAT, "is %lld, expected an id in 0..%d", (long long)number,
                       TEXT_SIZE_MAX - 1);
    *id = (int32_t)number;
    return 0;
}
