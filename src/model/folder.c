/* A model's weights from and to a Hugging Face folder. The set of tensors must be exactly the
 * family's; a head that is stored although it is tied must equal the embedding, and is written
 * back.
 */
#include "model/model.h"

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "tensor/tensor.h"

#include <jansson.h>
#include <string.h>

static const char TIED_HEAD[] = "lm_head.weight";
enum { PIECE = 1 << 20 }; // elements moved at a time

static int get_param(const struct tensor_set *set, const struct model_param *q,
                     const struct tensor **t, struct err *e)
{
    uint64_t shape[2] = {(uint64_t)q->rows, (uint64_t)q->cols};
    return tensor_get(set, q->name, TENSOR_WEIGHTS, q->is_vector ? 1 : 2,
                      q->is_vector ? shape + 1 : shape, t, e);
}

static bool is_known(const struct model_params *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->param[i].name, name) == 0)
            return true;
    return false;
}

/* Old Llama folders carry the rope frequencies as a buffer; they follow from the configuration. */
static bool is_buffer(const char *name)
{
    return str_ends(name, ".self_attn.rotary_emb.inv_freq");
}

static int check_extras(const struct model_params *p, const struct tensor_set *set, const char *dir,
                        struct err *e)
{
    bool tied = p->head.offset == p->embed;
    if (tensor_count(set) == (size_t)p->n)
        return 0; // all were found, so there is nothing else
    for (size_t i = 0; i < tensor_count(set); i++) {
        const char *name = tensor_at(set, i)->name;
        if (is_known(p, name) || is_buffer(name) || (tied && strcmp(name, TIED_HEAD) == 0))
            continue;
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: tensor '%s' does not belong to this model; LoCo would ignore it", dir,
                       name);
    }
    return 0;
}

/* A tied head that is stored all the same must be the embedding, else one of the two is lost. */
static int check_tied_head(const struct model_params *p, const struct tensor_set *set,
                           const char *dir, struct err *e)
{
    const struct tensor *head = tensor_find(set, TIED_HEAD), *embed;
    int rc = 0;
    if (!head || p->head.offset != p->embed)
        return 0;
    TRY(tensor_get(set, TIED_HEAD, TENSOR_WEIGHTS, 2,
                   (uint64_t[]){(uint64_t)p->head.n, (uint64_t)p->head.k}, &head, e));
    TRY(get_param(set, &p->param[0], &embed, e));
    if (head->dtype != embed->dtype || memcmp(head->data, embed->data, embed->n_bytes) != 0)
        rc = err_set(e, ERR_FORMAT,
                     "%s: tensor '%s' differs from the embedding, but tie_word_embeddings is true; "
                     "set it to false",
                     dir, TIED_HEAD);
fail:
    return rc;
}

/* One tensor to the sink, a piece at a time. */
static int load_param(const struct tensor *t, size_t offset, const struct model_sink *sink,
                      float *buffer, struct err *e)
{
    int rc = 0;
    for (uint64_t lo = 0; lo < t->n_elems; lo += PIECE) {
        uint64_t hi = MIN(lo + PIECE, t->n_elems);
        tensor_to_bf16(t, lo, hi, (bf16 *)buffer);
        TRY(sink->weights(sink->ctx, offset + lo, hi - lo, (bf16 *)buffer, e));
        if (!sink->masters)
            continue;
        tensor_to_float(t, lo, hi, buffer);
        TRY(sink->masters(sink->ctx, offset + lo, hi - lo, buffer, e));
    }
fail:
    return rc;
}

int model_load(const struct model_params *p, const char *dir, const struct model_sink *sink,
               struct err *e)
{
    int rc = 0;
    struct tensor_set *set = NULL;
    float *buffer = mem_alloc(PIECE * sizeof *buffer);
    TRY(tensor_open(&set, dir, e));
    for (int i = 0; i < p->n; i++) {
        const struct tensor *t;
        TRY(get_param(set, &p->param[i], &t, e));
        TRY(tensor_finite(set, t, e));
        TRY(load_param(t, p->param[i].offset, sink, buffer, e));
    }
    TRY(check_extras(p, set, dir, e));
    TRY(check_tied_head(p, set, dir, e));
fail:
    tensor_close(set);
    mem_free(buffer);
    return rc;
}

/* ---- writing ---- */

static bool stores_tied_head(const struct model_params *p, const char *like)
{
    struct tensor_set *set;
    struct err ignored = {0};
    bool stored = false;
    if (p->head.offset != p->embed || tensor_open(&set, like, &ignored) < 0)
        return false;
    stored = tensor_find(set, TIED_HEAD) != NULL;
    tensor_close(set);
    return stored;
}

/* What tensor_write asks for: a parameter's elements from the source. */
struct fill {
    const struct model_source *source;
    size_t offset;
};

static int fill_param(void *ctx, uint64_t lo, uint64_t hi, void *out, struct err *e)
{
    const struct fill *f = ctx;
    return f->source->weights(f->source->ctx, f->offset + lo, hi - lo, out, e);
}

static int write_weights(const struct model_params *p, const char *like, const char *dir,
                         const struct model_source *source, struct err *e)
{
    static const uint64_t SHARD_BYTES = (uint64_t)5000 * 1000 * 1000; // transformers' own limit
    size_t n = 0;
    struct tensor_source *list = mem_calloc((size_t)p->n + 1, sizeof *list);
    struct fill *fills = mem_calloc((size_t)p->n + 1, sizeof *fills);

    for (int i = 0; i < p->n; i++) {
        const struct model_param *q = &p->param[i];
        fills[n] = (struct fill){.source = source, .offset = q->offset};
        list[n] = (struct tensor_source){
            .name = q->name,
            .dtype = TENSOR_BF16,
            .n_dims = q->is_vector ? 1 : 2,
            .shape = {(uint64_t)(q->is_vector ? q->cols : q->rows), (uint64_t)q->cols},
            .fill = fill_param,
            .ctx = &fills[n]};
        n++;
    }
    if (stores_tied_head(p, like)) {
        fills[n] = (struct fill){.source = source, .offset = p->embed};
        list[n] = list[0];
        list[n].name = TIED_HEAD;
        list[n].ctx = &fills[n];
        n++;
    }
    int rc = tensor_write_model(dir, list, n, SHARD_BYTES, e);
    mem_free(list);
    mem_free(fills);
    return rc;
}

/* Makes every dtype of the configuration say bfloat16. True when that changed something. */
static bool set_dtype(json_t *root)
{
    static const char *const KEY[] = {"dtype", "torch_dtype"}; // transformers 5, 4
    bool named = false, changed = false;
    for (size_t i = 0; i < ARRAY_LEN(KEY); i++) {
        const json_t *v = json_object_get(root, KEY[i]);
        bool right = json_is_string(v) && strcmp(json_string_value(v), "bfloat16") == 0;
        named |= v != NULL;
        changed |= v && !right;
        if (v && !right)
            json_object_set_new(root, KEY[i], json_string("bfloat16"));
    }
    if (!named)
        json_object_set_new(root, "torch_dtype", json_string("bfloat16"));
    return changed || !named;
}

/* config.json with its dtype set to what the weights are; byte for byte when it already says so. */
static int write_config(const char *like, const char *dir, struct err *e)
{
    enum { BYTES_MAX = 16 << 20, DIGITS = 15 };
    int rc = 0;
    char *text = NULL;
    struct buf tame = {0}, out = {0};
    size_t size;
    char *from = file_join(like, "config.json"), *to = file_join(dir, "config.json");
    json_t *root = NULL;
    json_error_t problem;

    TRY(file_read(from, BYTES_MAX, &text, &size, e));
    buf_json_tame(&tame, text, size);
    root = json_loadb(buf_str(&tame), tame.len, 0, &problem);
    if (!root)
        TRY(err_set(e, ERR_FORMAT, "%s:%d: not valid JSON: %s", from, problem.line, problem.text));
    if (set_dtype(root)) {
        mem_free(text);
        text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(DIGITS));
        buf_json_untame(&out, text, strlen(text));
    } else {
        buf_put(&out, text, size);
    }
    TRY(file_write_atomic(to, buf_str(&out), out.len, e));
fail:
    buf_release(&tame);
    buf_release(&out);
    json_decref(root);
    mem_free(text);
    mem_free(from);
    mem_free(to);
    return rc;
}

int model_save(const struct model_params *p, const char *like, const char *dir,
               const struct model_source *source, struct err *e)
{
    static const char *const CARRIED[] = {
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "tokenizer.model",
        "chat_template.jinja",
        "chat_template.json",
    };
    int rc = 0;
    TRY(write_weights(p, like, dir, source, e));
    TRY(write_config(like, dir, e));
    for (size_t i = 0; i < ARRAY_LEN(CARRIED); i++) {
        char *from = file_join(like, CARRIED[i]), *to = file_join(dir, CARRIED[i]);
        if (file_exists(from))
            rc = file_copy(from, to, e);
        mem_free(from);
        mem_free(to);
        if (rc < 0)
            goto fail;
    }
fail:
    return rc;
}
