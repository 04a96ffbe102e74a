/* The table of tokens by id, and added tokens, numbered as the reference numbers them. */
#include "text/text_int.h"

#include "base/log.h"

#include <string.h>

void text_token_set(struct text *t, int32_t id, const char *content, size_t n)
{
    size_t size = (size_t)id + 1;
    if (size > t->size) {
        mem_grow(&t->token, &t->token_cap, size, sizeof *t->token);
        memset(t->token + t->size, 0, (size - t->size) * sizeof *t->token);
        t->size = size;
    }
    struct text_token *token = &t->token[id];
    token->at = (uint32_t)t->bytes.len;
    text_alphabet_bytes(content, n, &t->bytes);
    token->len = (uint32_t)(t->bytes.len - token->at);
    token->used = true;
}

/* Enters an added token. Its id is the model's own where that has the content, else the next after
   the largest added one, never below the size of the model's vocabulary; what the file says is not
   asked. Listed again it keeps its id, takes the new flags, and stays special. */
static int enter_added(struct text *t, const struct text_added *a, struct err *e)
{
    int64_t index;
    if (map_get(&t->added_index, a->content, a->len, &index)) {
        struct text_added *old = &t->added[index];
        old->single_word = a->single_word;
        old->lstrip = a->lstrip;
        old->rstrip = a->rstrip;
        old->normalized = a->normalized;
        old->special = old->special || a->special;
        old->decodes_normal = old->decodes_normal || a->normalized;
        t->token[old->id].special = old->special;
        return 0;
    }
    int64_t known = t->next_added;
    bool in_vocab = map_get(&t->vocab, a->content, a->len, &known);
    int32_t id = (int32_t)known;
    if (id >= TEXT_SIZE_MAX || (!in_vocab && (size_t)id < t->size && t->token[id].used))
        return err_set(e, ERR_FORMAT, "would be id %d, which belongs to another token", (int)id);
    if (id != a->id) {
        char quoted[TEXT_QUOTED];
        log_warn("tokenizer.json: added token %s says id %d, and is %d as Hugging Face counts",
                 text_json_quote(a->content, a->len, quoted), (int)a->id, (int)id);
    }
    if (!in_vocab)
        text_token_set(t, id, a->content, a->len);
    t->token[id].special = a->special;
    t->next_added = MAX(t->next_added, id + 1);
    map_put(&t->added_index, a->content, a->len, (int64_t)t->n_added);
    mem_grow(&t->added, &t->added_cap, t->n_added + 1, sizeof *t->added);
    t->added[t->n_added] = *a;
    t->added[t->n_added].content = mem_strndup(a->content, a->len);
    t->added[t->n_added++].id = id;
    return 0;
}

/* Reads one entry of added_tokens; a->content stays the JSON's. */
static int read_added(const json_t *entry, const char *at, struct text_added *a, struct err *e)
{
    int rc = 0;
    const json_t *content = json_object_get(entry, "content");
    TRY(text_json_keys(entry, at, "id,content,single_word,lstrip,rstrip,normalized,special", e));
    if (json_string_length(content) == 0)
        return err_set(e, ERR_FORMAT, "%s.content: expected a string%s", at,
                       json_is_string(content) ? " that is not empty" : "");
    a->content = (char *)json_string_value(content);
    a->len = json_string_length(content);
    rc = text_json_id(json_object_get(entry, "id"), &a->id, e);
    if (rc < 0)
        return err_in(e, rc, "%s.id", at);
    TRY(text_json_bool(entry, at, "single_word", -1, &a->single_word, e));
    TRY(text_json_bool(entry, at, "lstrip", -1, &a->lstrip, e));
    TRY(text_json_bool(entry, at, "rstrip", -1, &a->rstrip, e));
    TRY(text_json_bool(entry, at, "normalized", -1, &a->normalized, e));
    TRY(text_json_bool(entry, at, "special", -1, &a->special, e));
    a->decodes_normal = a->normalized;
fail:
    return rc;
}

/* Sorts the added tokens into what is searched in raw and in normalised text. */
static void build_sets(struct text *t)
{
    struct buf normal = {0};
    for (size_t i = 0; i < t->n_added; i++) {
        const struct text_added *a = &t->added[i];
        if (!a->normalized)
            text_set_add(&t->raw, a->content, a->len, (int)i);
        buf_clear(&normal);
        if (t->nfc)
            text_nfc(&t->work, t->classes, a->content, a->len, &normal);
        else
            buf_put(&normal, a->content, a->len);
        if (a->normalized)
            text_set_add(&t->normalized, normal.data, normal.len, (int)i);
        if (a->decodes_normal)
            text_token_set(t, a->id, normal.data, normal.len);
    }
    buf_release(&normal);
    text_set_sort(&t->raw);
    text_set_sort(&t->normalized);
}

/* No two contents claim the same id. said: id in the file -> index of the first entry that says it.
 */
static int claim_id(struct map *said, const json_t *entries, size_t i, const struct text_added *a,
                    struct err *e)
{
    int64_t first;
    const char *key = (const char *)&a->id;
    if (!map_get(said, key, sizeof a->id, &first)) {
        map_put(said, key, sizeof a->id, (int64_t)i);
        return 0;
    }
    const json_t *content = json_object_get(json_array_get(entries, (size_t)first), "content");
    if (json_string_length(content) == a->len &&
        memcmp(json_string_value(content), a->content, a->len) == 0)
        return 0;
    return err_set(e, ERR_FORMAT, "id %d already belongs to added_tokens[%d]", (int)a->id,
                   (int)first);
}

int text_load_added(struct text *t, const json_t *added, struct err *e)
{
    int rc = 0;
    struct map said = {0};
    if (added && !json_is_null(added) && !json_is_array(added))
        return text_json_refuse("added_tokens", "an array", added, e);
    t->next_added = (int32_t)t->vocab.n;
    for (size_t i = 0; i < json_array_size(added); i++) {
        struct text_added a;
        char at[TEXT_PLACE];
        snprintf(at, sizeof at, "added_tokens[%zu]", i);
        TRY(read_added(json_array_get(added, i), at, &a, e));
        rc = claim_id(&said, added, i, &a, e);
        if (rc == 0)
            rc = enter_added(t, &a, e);
        if (rc < 0) {
            err_in(e, rc, "%s", at);
            goto fail;
        }
    }
    build_sets(t);
fail:
    map_release(&said);
    return rc;
}
