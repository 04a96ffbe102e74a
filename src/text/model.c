/* The model's part of tokenizer.json: vocabulary and merges. */
#include "text/text_int.h"

#include <string.h>

/* One entry of the vocabulary. */
static int add_entry(struct text *t, const char *content, const json_t *value, struct err *e)
{
    size_t n = strlen(content);
    int32_t id;
    int rc = text_json_id(value, &id, e);
    if (rc < 0)
        return rc;
    if ((size_t)id < t->size && t->token[id].used)
        return err_set(e, ERR_FORMAT, "is %d, which already belongs to another token", (int)id);
    map_put(&t->vocab, content, n, id);
    text_token_set(t, id, content, n);
    return 0;
}

static int load_vocab(struct text *t, const json_t *vocab, struct err *e)
{
    const char *content;
    json_t *value;
    if (!json_is_object(vocab))
        return text_json_refuse("model.vocab", "an object of token: id", vocab, e);
    json_object_foreach((json_t *)vocab, content, value)
    {
        char quoted[TEXT_QUOTED];
        int rc = add_entry(t, content, value, e);
        if (rc < 0)
            return err_in(e, rc, "model.vocab[%s]",
                          text_json_quote(content, strlen(content), quoted));
    }
    if (t->size == 0)
        return err_set(e, ERR_FORMAT, "model.vocab: is empty, expected tokens");
    return 0;
}

/* The ids of the bytes, as the vocabulary spells them. */
static void find_bytes(struct text *t)
{
    t->bpe.vocab = &t->vocab;
    for (int byte = 0; byte < 256; byte++) {
        char spelled[4];
        int64_t id = -1;
        int n = utf8_encode(text_alphabet_code((unsigned char)byte), spelled);
        map_get(&t->vocab, spelled, (size_t)n, &id);
        t->bpe.byte_id[byte] = (int32_t)id;
    }
}

/* The two parts of one merge, which is ["a", "b"] or "a b". */
struct parts {
    const char *a, *b;
    size_t a_len, b_len;
};

static int read_pair(const json_t *merge, struct parts *p, struct err *e)
{
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(a) || !json_is_string(b))
        return err_set(e, ERR_FORMAT, "expected a pair of strings, as the first merge is");
    *p = (struct parts){json_string_value(a), json_string_value(b), json_string_length(a),
                        json_string_length(b)};
    return 0;
}

static int read_string(const json_t *merge, struct parts *p, struct err *e)
{
    const char *s = json_string_value(merge);
    size_t n = json_string_length(merge);
    const char *space = s ? memchr(s, ' ', n) : NULL;
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - s)))
        return err_set(e, ERR_FORMAT,
                       "expected a string of two tokens with one space between them");
    *p = (struct parts){s, space + 1, (size_t)(space - s), n - (size_t)(space + 1 - s)};
    return 0;
}

static int find_part(const struct text *t, const char *s, size_t n, int32_t *id, struct err *e)
{
    int64_t value;
    char quoted[TEXT_QUOTED];
    if (!map_get(&t->vocab, s, n, &value))
        return err_set(e, ERR_FORMAT, "token %s is not in model.vocab",
                       text_json_quote(s, n, quoted));
    *id = (int32_t)value;
    return 0;
}

static int add_merge(struct text *t, const struct parts *p, int32_t rank, struct buf *joined,
                     struct err *e)
{
    int rc = 0;
    int32_t left = 0, right = 0, product = 0;
    buf_clear(joined);
    buf_put(joined, p->a, p->a_len);
    buf_put(joined, p->b, p->b_len);
    TRY(find_part(t, p->a, p->a_len, &left, e));
    TRY(find_part(t, p->b, p->b_len, &right, e));
    TRY(find_part(t, joined->data, joined->len, &product, e));
    text_bpe_merge(&t->bpe, left, right, rank, product);
fail:
    return rc;
}

/* Old files may start the list with a "#version" line, which counts as no merge. */
static bool is_version(const json_t *merge)
{
    return json_is_string(merge) && str_starts(json_string_value(merge), "#version");
}

static int load_merges(struct text *t, const json_t *merges, struct err *e)
{
    int rc = 0;
    struct buf joined = {0};
    size_t n = json_array_size(merges);
    if (!json_is_array(merges))
        return text_json_refuse("model.merges", "an array", merges, e);
    if (n > INT32_MAX / 2)
        return err_set(e, ERR_UNSUPPORTED, "model.merges: has %zu merges, more than LoCo takes", n);
    bool pairs = json_is_array(json_array_get(merges, 0));
    text_bpe_init(&t->bpe, n);
    int32_t rank = 0;
    size_t i = 0;
    for (; i < n; i++) {
        const json_t *merge = json_array_get(merges, i);
        struct parts p = {0};
        if (is_version(merge))
            continue;
        TRY(pairs ? read_pair(merge, &p, e) : read_string(merge, &p, e));
        TRY(add_merge(t, &p, rank++, &joined, e));
    }
fail:
    buf_release(&joined);
    return rc < 0 ? err_in(e, rc, "model.merges[%zu]", i) : 0;
}

/* unk_token, which stands for bytes without a token. */
static int load_unk(struct text *t, const json_t *unk, struct err *e)
{
    int64_t id = -1;
    if (!unk || json_is_null(unk))
        return 0;
    if (!json_is_string(unk))
        return text_json_refuse("model.unk_token", "a string or null", unk, e);
    char quoted[TEXT_QUOTED];
    const char *content = json_string_value(unk);
    size_t n = json_string_length(unk);
    if (!map_get(&t->vocab, content, n, &id))
        return err_set(e, ERR_FORMAT, "model.unk_token: %s is not in model.vocab",
                       text_json_quote(content, n, quoted));
    t->bpe.unk = (int32_t)id;
    return 0;
}

static int refuse_extras(const json_t *model, struct err *e)
{
    const json_t *dropout = json_object_get(model, "dropout");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    if (dropout && !json_is_null(dropout) && !json_is_number(dropout))
        return text_json_refuse("model.dropout", "null", dropout, e);
    if (json_number_value(dropout) != 0)
        return err_set(e, ERR_UNSUPPORTED, "model.dropout: is set; LoCo takes only null");
    for (size_t i = 0; i < ARRAY_LEN(affixes); i++) {
        const json_t *affix = json_object_get(model, affixes[i]);
        if (affix && !json_is_null(affix) && !json_is_string(affix)) {
            char at[64];
            snprintf(at, sizeof at, "model.%s", affixes[i]);
            return text_json_refuse(at, "a string or null", affix, e);
        }
        if (json_string_length(affix) != 0)
            return err_set(e, ERR_UNSUPPORTED, "model.%s: is set; LoCo takes only null or \"\"",
                           affixes[i]);
    }
    return 0;
}

int text_load_model(struct text *t, const json_t *model, struct err *e)
{
    int rc = 0;
    bool byte_fallback;
    if (!json_is_object(model))
        return text_json_refuse("model", "a BPE model", model, e);
    if (json_object_get(model, "type") && !text_json_is_type(model, "BPE"))
        return text_json_refuse_type(model, "model", e);
    TRY(text_json_keys(model, "model",
                       "type,dropout,unk_token,continuing_subword_prefix,end_of_word_suffix,"
                       "fuse_unk,byte_fallback,ignore_merges,vocab,merges",
                       e));
    TRY(refuse_extras(model, e));
    TRY(text_json_bool(model, "model", "byte_fallback", 0, &byte_fallback, e));
    if (byte_fallback)
        return err_set(e, ERR_UNSUPPORTED, "model.byte_fallback: is true; LoCo takes only false");
    TRY(load_vocab(t, json_object_get(model, "vocab"), e));
    find_bytes(t);
    TRY(load_merges(t, json_object_get(model, "merges"), e));
    TRY(text_json_bool(model, "model", "fuse_unk", 0, &t->bpe.fuse_unk, e));
    TRY(text_json_bool(model, "model", "ignore_merges", 0, &t->bpe.ignore_merges, e));
    TRY(load_unk(t, json_object_get(model, "unk_token"), e));
    return 0;
fail:
    return rc;
}
