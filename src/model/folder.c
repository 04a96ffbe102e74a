/* A model's weights from and to a Hugging Face folder. The set of tensors must be exactly the
 * family's; a head that is stored although it is tied must equal the embedding, and is written back.
 */
#include "model/model.h"

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "tensor/tensor.h"

#include <jansson.h>
#include <string.h>

static const char TIED_HEAD[] = "lm_head.weight";

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

static int check_extras(const struct model_params *p, const struct tensor_set *set, struct err *e)
{
    bool tied = p->head.offset == p->embed;
    if (tensor_count(set) == (size_t)p->n)
        return 0; // all were found, so there is nothing else
    for (size_t i = 0; i < tensor_count(set); i++) {
        const char *name = tensor_at(set, i)->name;
        if (is_known(p, name) || is_buffer(name) || (tied && strcmp(name, TIED_HEAD) == 0))
            continue;
        return err_set(e, ERR_UNSUPPORTED, "tensor '%s' does not belong to this model; LoCo would "
                       "ignore it", name);
    }
    return 0;
}

static int check_tied_head(const struct model_params *p, const struct tensor_set *set,
                           const bf16 *flat, struct err *e)
{
    const struct tensor *t = tensor_find(set, TIED_HEAD);
    size_t cols = (size_t)p->head.k;
    int rc = 0;
    if (!t || p->head.offset != p->embed)
        return 0;
    bf16 *row = mem_alloc(cols * sizeof *row);
    TRY(tensor_get(set, TIED_HEAD, TENSOR_WEIGHTS, 2, (uint64_t[]){(uint64_t)p->head.n, cols}, &t, e));
    for (int r = 0; r < p->head.n && rc == 0; r++) {
        tensor_to_bf16(t, (uint64_t)r * cols, (uint64_t)(r + 1) * cols, row);
        if (memcmp(row, flat + p->embed + (size_t)r * cols, cols * sizeof *row) != 0)
            rc = err_set(e, ERR_FORMAT, "tensor '%s' differs from the embedding in row %d, but "
                         "tie_word_embeddings is true; set it to false", TIED_HEAD, r);
    }
fail:
    mem_free(row);
    return rc;
}

int model_load(const struct model_params *p, const char *dir, bf16 *flat, float *masters,
               struct err *e)
{
    int rc = 0;
    struct tensor_set *set = NULL;
    TRY(tensor_open(&set, dir, e));
    memset(flat, 0, p->count * sizeof *flat);
    if (masters)
        memset(masters, 0, p->count * sizeof *masters);
    for (int i = 0; i < p->n; i++) {
        const struct model_param *q = &p->param[i];
        const struct tensor *t;
        TRY(get_param(set, q, &t, e));
        TRY(tensor_finite(set, t, e));
        tensor_to_bf16(t, 0, t->n_elems, flat + q->offset);
        if (masters)
            tensor_to_float(t, 0, t->n_elems, masters + q->offset);
    }
    TRY(check_extras(p, set, e));
    TRY(check_tied_head(p, set, flat, e));
fail:
    tensor_close(set);
    return rc < 0 ? err_in(e, rc, "%s", dir) : 0;
}

/* ---- writing ---- */

static bool stores_tied_head(const struct model_params *p, const char *source)
{
    struct tensor_set *set;
    struct err ignored = {0};
    bool stored = false;
    if (p->head.offset != p->embed || tensor_open(&set, source, &ignored) < 0)
        return false;
    stored = tensor_find(set, TIED_HEAD) != NULL;
    tensor_close(set);
    return stored;
}

static int write_weights(const struct model_params *p, const char *source, const char *dir,
                         const bf16 *flat, struct err *e)
{
    static const uint64_t SHARD_BYTES = (uint64_t)5000 * 1000 * 1000; // transformers' own limit
    size_t n = 0;
    struct tensor_source *list = mem_calloc((size_t)p->n + 1, sizeof *list);
    struct tensor_written *written = NULL;
    size_t n_written = 0;

    for (int i = 0; i < p->n; i++) {
        const struct model_param *q = &p->param[i];
        list[n++] = (struct tensor_source){
            .name = q->name, .dtype = TENSOR_BF16, .n_dims = q->is_vector ? 1 : 2,
            .shape = {(uint64_t)(q->is_vector ? q->cols : q->rows), (uint64_t)q->cols},
            .data = flat + q->offset};
    }
    if (stores_tied_head(p, source))
        list[n++] = (struct tensor_source){
            .name = TIED_HEAD, .dtype = TENSOR_BF16, .n_dims = 2,
            .shape = {(uint64_t)p->head.n, (uint64_t)p->head.k}, .data = flat + p->embed};
    int rc = tensor_write_model(dir, list, n, SHARD_BYTES, &written, &n_written, e);
    mem_free(written);
    mem_free(list);
    return rc;
}

/* config.json with its dtype set to what the weights are; byte for byte when it already says so. */
static int write_config(const char *source, const char *dir, struct err *e)
{
    enum { BYTES_MAX = 16 << 20, DIGITS = 15 };
    int rc = 0;
    bool changed = false, named = false;
    char *text = NULL, *out = NULL;
    size_t size;
    char *from = file_join(source, "config.json"), *to = file_join(dir, "config.json");
    json_t *root = NULL;
    json_error_t problem;

    TRY(file_read(from, BYTES_MAX, &text, &size, e));
    root = json_loadb(text, size, 0, &problem);
    if (!root) {
        rc = err_set(e, ERR_FORMAT, "%s:%d: not valid JSON: %s", from, problem.line, problem.text);
        goto fail;
    }
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "torch_dtype" : "dtype";
        const json_t *v = json_object_get(root, key);
        if (!v)
            continue;
        named = true;
        if (!json_is_string(v) || strcmp(json_string_value(v), "bfloat16") != 0) {
            json_object_set_new(root, key, json_string("bfloat16"));
            changed = true;
        }
    }
    if (!named)
        json_object_set_new(root, "torch_dtype", json_string("bfloat16"));
    if (!named || changed) {
        out = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(DIGITS));
        TRY(file_write_atomic(to, out, strlen(out), e));
    } else {
        TRY(file_write_atomic(to, text, size, e));
    }
fail:
    json_decref(root);
    free(out);
    mem_free(text);
    mem_free(from);
    mem_free(to);
    return rc;
}

int model_save(const struct model_params *p, const char *source, const char *dir, const bf16 *flat,
               struct err *e)
{
    static const char *const CARRIED[] = {
        "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
        "tokenizer.model", "chat_template.jinja", "chat_template.json",
    };
    int rc = 0;
    TRY(write_weights(p, source, dir, flat, e));
    TRY(write_config(source, dir, e));
    for (size_t i = 0; i < ARRAY_LEN(CARRIED); i++) {
        char *from = file_join(source, CARRIED[i]), *to = file_join(dir, CARRIED[i]);
        if (file_exists(from))
            rc = file_copy(from, to, e);
        mem_free(from);
        mem_free(to);
        if (rc < 0)
            goto fail;
    }
    return 0;
fail:
    return err_in(e, rc, "%s", dir);
}

uint32_t model_checksum(const struct model_params *p, const bf16 *flat)
{
    return file_crc32(0, flat, p->count * sizeof *flat);
}
