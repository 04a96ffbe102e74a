/* The pipeline's components by name: what is not known here is refused, with its place in the file.
 */
#include "text/text_int.h"

#include <string.h>

/* A loader of one component of a Sequence. */
typedef int (*load_fn)(struct text *t, const json_t *component, const char *at, struct err *e);

/* Calls load for each component in object[key]. */
static int load_sequence(struct text *t, const json_t *object, const char *at, const char *key,
                         load_fn load, struct err *e)
{
    int rc = 0;
    char keys[64], place[TEXT_PLACE];
    const json_t *list = json_object_get(object, key);
    snprintf(keys, sizeof keys, "type,%s", key);
    TRY(text_json_keys(object, at, keys, e));
    if (!json_is_array(list)) {
        snprintf(place, sizeof place, "%s.%s", at, key);
        return text_json_refuse(place, "an array", list, e);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        snprintf(place, sizeof place, "%s.%s[%zu]", at, key, i);
        TRY(load(t, json_array_get(list, i), place, e));
    }
fail:
    return rc;
}

static int load_normalizer(struct text *t, const json_t *object, const char *at, struct err *e)
{
    if (text_json_is_type(object, "Sequence"))
        return load_sequence(t, object, at, "normalizers", load_normalizer, e);
    if (!text_json_is_type(object, "NFC"))
        return text_json_refuse_type(object, at, e);
    t->nfc = true;
    return text_json_keys(object, at, "type", e);
}

static int add_step(struct text *t, const char *at, enum text_step_kind kind, struct err *e)
{
    if (t->byte_level)
        return err_set(e, ERR_UNSUPPORTED, "%s: stands after ByteLevel, which must be the last",
                       at);
    if (t->n_steps == TEXT_STEPS_MAX)
        return err_set(e, ERR_UNSUPPORTED, "%s: is one of more than %d splitting steps", at,
                       TEXT_STEPS_MAX);
    t->step[t->n_steps++] = kind;
    return 0;
}

static int load_split(struct text *t, const json_t *object, const char *at, struct err *e)
{
    static const struct {
        const char *pattern;
        enum text_step_kind kind;
    } known[] = {
        {text_pattern_qwen2, STEP_QWEN2},
        {text_pattern_llama3, STEP_LLAMA3},
        {text_pattern_gpt2, STEP_GPT2},
    };
    int rc = 0;
    bool invert;
    const json_t *pattern = json_object_get(object, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *behavior = json_string_value(json_object_get(object, "behavior"));
    TRY(text_json_keys(object, at, "type,pattern,behavior,invert", e));
    TRY(text_json_bool(object, at, "invert", -1, &invert, e));
    if (invert || !behavior || strcmp(behavior, "Isolated") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: LoCo takes only behavior \"Isolated\" with invert false", at);
    for (size_t i = 0; regex && json_object_size(pattern) == 1 && i < ARRAY_LEN(known); i++)
        if (strcmp(regex, known[i].pattern) == 0)
            return add_step(t, at, known[i].kind, e);
    return err_set(
        e, ERR_UNSUPPORTED,
        "%s.pattern: is not one of the patterns that LoCo has (of Qwen2, Llama-3, GPT-2)", at);
fail:
    return rc;
}

static int load_byte_level(struct text *t, const json_t *object, const char *at, struct err *e)
{
    int rc = 0;
    bool prefix, regex;
    TRY(text_json_keys(object, at, "type,add_prefix_space,trim_offsets,use_regex", e));
    TRY(text_json_bool(object, at, "add_prefix_space", -1, &prefix, e));
    TRY(text_json_bool(object, at, "use_regex", 1, &regex, e));
    if (t->byte_level)
        return err_set(e, ERR_UNSUPPORTED, "%s: is a second ByteLevel", at);
    if (prefix)
        TRY(add_step(t, at, STEP_PREFIX, e));
    if (regex)
        TRY(add_step(t, at, STEP_GPT2, e));
    t->byte_level = true;
fail:
    return rc;
}

static int load_pre_tokenizer(struct text *t, const json_t *object, const char *at, struct err *e)
{
    int rc = 0;
    if (text_json_is_type(object, "Sequence"))
        return load_sequence(t, object, at, "pretokenizers", load_pre_tokenizer, e);
    if (text_json_is_type(object, "Split"))
        return load_split(t, object, at, e);
    if (text_json_is_type(object, "ByteLevel"))
        return load_byte_level(t, object, at, e);
    if (!text_json_is_type(object, "Digits"))
        return text_json_refuse_type(object, at, e);
    bool individual;
    TRY(text_json_keys(object, at, "type,individual_digits", e));
    TRY(text_json_bool(object, at, "individual_digits", -1, &individual, e));
    return add_step(t, at, individual ? STEP_DIGITS : STEP_DIGIT_RUNS, e);
fail:
    return rc;
}

/* A decoder can only be ByteLevel; its options concern offsets, which are not made here. */
static int load_decoder(struct text *t, const json_t *object, const char *at, struct err *e)
{
    if (text_json_is_type(object, "Sequence"))
        return load_sequence(t, object, at, "decoders", load_decoder, e);
    if (!text_json_is_type(object, "ByteLevel"))
        return text_json_refuse_type(object, at, e);
    return text_json_keys(object, at, "type,add_prefix_space,trim_offsets,use_regex", e);
}

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

int text_load_pipeline(struct text *t, const json_t *root, struct err *e)
{
    int rc = 0;
    const json_t *normalizer = json_object_get(root, "normalizer");
    const json_t *pre_tokenizer = json_object_get(root, "pre_tokenizer");
    const json_t *decoder = json_object_get(root, "decoder");
    if (!is_absent(normalizer))
        TRY(load_normalizer(t, normalizer, "normalizer", e));
    if (!is_absent(pre_tokenizer))
        TRY(load_pre_tokenizer(t, pre_tokenizer, "pre_tokenizer", e));
    if (!t->byte_level)
        return err_set(e, ERR_UNSUPPORTED,
                       "pre_tokenizer: has no ByteLevel; LoCo reads only byte-level BPE");
    if (is_absent(decoder))
        return err_set(e, ERR_UNSUPPORTED, "decoder: is %s, expected ByteLevel",
                       decoder ? "null" : "missing");
    TRY(load_decoder(t, decoder, "decoder", e));
fail:
    return rc;
}

/* Appends the ids that a template's SpecialToken stands for. */
static int load_template_token(const struct text *t, const json_t *token, const json_t *specials,
                               const char *at, struct text_ids *ids, struct err *e)
{
    const char *name = json_string_value(json_object_get(token, "id"));
    const json_t *list = name ? json_object_get(json_object_get(specials, name), "ids") : NULL;
    if (!json_is_array(list))
        return err_set(e, ERR_FORMAT, "%s: names a token that special_tokens does not have", at);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t id;
        int rc = text_json_id(json_array_get(list, i), &id, e);
        if (rc == 0 && ((size_t)id >= t->size || !t->token[id].used))
            rc = err_set(e, ERR_FORMAT, "is %d, and no token has this id", (int)id);
        if (rc < 0)
            return err_in(e, rc, "%s: ids[%zu] of its special_tokens entry", at, i);
        text_ids_push(ids, id);
    }
    return 0;
}

/* TemplateProcessing: tokens before and after the one sequence A. */
static int load_template(struct text *t, const json_t *object, const char *at, struct err *e)
{
    int rc = 0;
    bool seen = false;
    const json_t *single = json_object_get(object, "single");
    TRY(text_json_keys(object, at, "type,single,pair,special_tokens", e));
    for (size_t i = 0; i < json_array_size(single); i++) {
        char place[TEXT_PLACE];
        const json_t *piece = json_array_get(single, i);
        const json_t *token = json_object_get(piece, "SpecialToken");
        const char *id =
            json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
        snprintf(place, sizeof place, "%s.single[%zu]", at, i);
        if (token)
            TRY(load_template_token(t, token, json_object_get(object, "special_tokens"), place,
                                    seen ? &t->suffix : &t->prefix, e));
        else if (id && strcmp(id, "A") == 0 && !seen)
            seen = true;
        else
            return err_set(e, ERR_UNSUPPORTED, "%s: expected a SpecialToken or the one Sequence A",
                           place);
    }
    if (!seen)
        return err_set(e, ERR_FORMAT, "%s.single: expected an array that has Sequence A", at);
fail:
    return rc;
}

static int load_processor(struct text *t, const json_t *object, const char *at, struct err *e)
{
    if (text_json_is_type(object, "Sequence"))
        return load_sequence(t, object, at, "processors", load_processor, e);
    if (text_json_is_type(object, "ByteLevel")) // Trims offsets, adds nothing.
        return text_json_keys(object, at, "type,add_prefix_space,trim_offsets,use_regex", e);
    if (!text_json_is_type(object, "TemplateProcessing"))
        return text_json_refuse_type(object, at, e);
    if (t->prefix.n + t->suffix.n > 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: is a second TemplateProcessing", at);
    return load_template(t, object, at, e);
}

int text_load_post(struct text *t, const json_t *post, struct err *e)
{
    return is_absent(post) ? 0 : load_processor(t, post, "post_processor", e);
}
