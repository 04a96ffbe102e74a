/* Opening a tokenizer, and everything from ids back to text. */
#include "text/text_int.h"

#include "base/file.h"

#include <string.h>

#define FILE_MAX ((size_t)1 << 29) // bytes of a tokenizer.json; the largest known has 33 MB

/* What would change every encoding in a way that LoCo has its own knobs for. */
static int refuse_shaping(const json_t *root, struct err *e)
{
    static const char *const blocks[] = {"truncation", "padding"};
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        const json_t *block = json_object_get(root, blocks[i]);
        if (block && !json_is_null(block))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: is set; make it null (LoCo cuts and pads by its own options)",
                           blocks[i]);
    }
    const json_t *version = json_object_get(root, "version");
    const char *is = json_string_value(version);
    if (version && (!is || strcmp(is, "1.0") != 0))
        return err_set(e, ERR_UNSUPPORTED, "version: expected \"1.0\"");
    return 0;
}

static int load(struct text *t, const json_t *root, struct err *e)
{
    int rc = 0;
    TRY(text_json_keys(root, "tokenizer",
                       "version,truncation,padding,added_tokens,normalizer,pre_tokenizer,"
                       "post_processor,decoder,model",
                       e));
    TRY(refuse_shaping(root, e));
    TRY(text_load_pipeline(t, root, e));
    TRY(text_load_model(t, json_object_get(root, "model"), e));
    TRY(text_load_added(t, json_object_get(root, "added_tokens"), e));
    TRY(text_load_post(t, json_object_get(root, "post_processor"), e));
fail:
    return rc;
}

int text_parse(struct text **t, const char *json, size_t n, struct err *e)
{
    json_error_t error;
    *t = NULL;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root)
        return err_set(e, ERR_FORMAT, "line %d, column %d: %s; expected JSON", error.line,
                       error.column, error.text);
    struct text *fresh = mem_calloc(1, sizeof *fresh);
    fresh->classes = text_classes_new();
    int rc = load(fresh, root, e);
    json_decref(root);
    if (rc < 0) {
        text_close(fresh);
        return rc;
    }
    *t = fresh;
    return 0;
}

int text_open(struct text **t, const char *path, struct err *e)
{
    int rc = 0;
    char *data = NULL, *inside = NULL;
    size_t size;
    *t = NULL;
    if (file_is_dir(path)) {
        inside = file_join(path, "tokenizer.json");
        if (!file_exists(inside)) {
            rc = err_set(e, ERR_IO,
                         "%s: has no tokenizer.json; save its tokenizer with transformers, which "
                         "writes one",
                         path);
            goto fail;
        }
        path = inside;
    }
    TRY(file_read(path, FILE_MAX, &data, &size, e));
    rc = text_parse(t, data, size, e);
    if (rc < 0)
        err_in(e, rc, "%s", path);
fail:
    mem_free(data);
    mem_free(inside);
    return rc;
}

void text_close(struct text *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_added; i++)
        mem_free(t->added[i].content);
    mem_free(t->added);
    mem_free(t->token);
    map_release(&t->vocab);
    map_release(&t->added_index);
    buf_release(&t->bytes);
    text_set_release(&t->raw);
    text_set_release(&t->normalized);
    text_bpe_release(&t->bpe);
    text_ids_release(&t->prefix);
    text_ids_release(&t->suffix);
    text_nfc_release(&t->work);
    buf_release(&t->valid);
    buf_release(&t->normal);
    buf_release(&t->spaced);
    mem_free(t->classes);
    mem_free(t);
}

void text_ids_push(struct text_ids *ids, int32_t id)
{
    if (ids->n == ids->cap)
        mem_grow(&ids->id, &ids->cap, ids->n + 1, sizeof *ids->id);
    ids->id[ids->n++] = id;
}

void text_ids_release(struct text_ids *ids)
{
    mem_free(ids->id);
    *ids = (struct text_ids){0};
}

/* The token of an id, or NULL. */
static const struct text_token *token_of(const struct text *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->size && t->token[id].used ? &t->token[id] : NULL;
}

const char *text_token_bytes(const struct text *t, int32_t id, size_t *n)
{
    const struct text_token *token = token_of(t, id);
    *n = token ? token->len : 0;
    return token ? buf_str(&t->bytes) + token->at : NULL;
}

int32_t text_token_id(const struct text *t, const char *content)
{
    int64_t found;
    if (map_get(&t->added_index, content, strlen(content), &found))
        return t->added[found].id;
    return map_get(&t->vocab, content, strlen(content), &found) ? (int32_t)found : -1;
}

int32_t text_size(const struct text *t)
{
    return (int32_t)t->size;
}

int text_fits(const struct text *t, const char *dir, int vocab_size, struct err *e)
{
    if (text_size(t) <= vocab_size)
        return 0;
    return err_set(e, ERR_FORMAT,
                   "%s/tokenizer.json: has ids up to %d, but vocab_size in config.json is %d; the "
                   "folder mixes two models",
                   dir, text_size(t) - 1, vocab_size);
}

bool text_is_special(const struct text *t, int32_t id)
{
    const struct text_token *token = token_of(t, id);
    return token && token->special;
}

void text_decode(const struct text *t, const int32_t *ids, size_t n, bool skip_special,
                 struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        const struct text_token *token = token_of(t, ids[i]);
        if (token && !(skip_special && token->special))
            buf_put(out, t->bytes.data + token->at, token->len);
    }
}

/* Bytes at the end of s that begin a code point whose rest may still come. */
static size_t unfinished(const char *s, size_t n)
{
    for (size_t back = 1; back <= MIN(n, (size_t)3); back++) {
        unsigned char lead = (unsigned char)s[n - back];
        uint32_t code;
        if ((lead & 0xC0) == 0x80)
            continue;
        bool starts_code = lead >= 0xC2 && lead <= 0xF4;
        return starts_code && utf8_decode(s + n - back, back, &code) == -(int)back ? back : 0;
    }
    return 0;
}

void text_stream_put(struct text_stream *s, const char *bytes, size_t n, struct buf *out)
{
    struct buf all = {0};
    buf_put(&all, s->held, s->n);
    buf_put(&all, bytes, n);
    s->n = unfinished(buf_str(&all), all.len);
    buf_utf8_lossy(out, buf_str(&all), all.len - s->n);
    memcpy(s->held, buf_str(&all) + all.len - s->n, s->n);
    buf_release(&all);
}

void text_stream_end(struct text_stream *s, struct buf *out)
{
    buf_utf8_lossy(out, s->held, s->n);
    s->n = 0;
}
