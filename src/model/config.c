/* config.json and generation_config.json of a Hugging Face folder. What changes the arithmetic and
 * is not implemented is refused by name; both transformers 4's rope_scaling and 5's rope_parameters
 * are read. Defaults are those of the families' own configuration classes.
 */
#include "model/model.h"

#include "model/model_int.h"
#include "base/file.h"
#include "base/str.h"

#include <jansson.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20, LAYERS_MAX = 1024 };

static const char *const FAMILY_TYPE[] = {"llama", "qwen2", "qwen3"};
static const char *const FAMILY_CLASS[] = {"LlamaForCausalLM", "Qwen2ForCausalLM",
                                           "Qwen3ForCausalLM"};

static int load_json(const char *path, json_t **root, struct err *e)
{
    char *text = NULL;
    size_t size = 0;
    struct buf tame = {0};
    json_error_t problem;
    int rc = file_read(path, CONFIG_BYTES_MAX, &text, &size, e);
    if (rc < 0)
        return rc;
    buf_json_tame(&tame, text, size);
    *root = json_loadb(buf_str(&tame), tame.len, JSON_REJECT_DUPLICATES, &problem);
    buf_release(&tame);
    mem_free(text);
    if (!*root)
        return err_set(e, ERR_FORMAT, "%s:%d: not valid JSON: %s", path, problem.line,
                       problem.text);
    if (!json_is_object(*root)) {
        json_decref(*root);
        *root = NULL;
        return err_set(e, ERR_FORMAT, "%s: expected a JSON object", path);
    }
    return 0;
}

/* ---- typed fields ---- */

static int get_int(const json_t *root, const char *key, int fallback, int *out, struct err *e)
{
    enum { LIMIT = 1 << 24 };
    const json_t *v = json_object_get(root, key);
    *out = fallback;
    if (!v || json_is_null(v)) {
        if (fallback <= 0)
            return err_set(e, ERR_FORMAT, "%s is missing; expected a positive integer", key);
        return 0;
    }
    if (!json_is_integer(v) || json_integer_value(v) <= 0 || json_integer_value(v) > LIMIT)
        return err_set(e, ERR_FORMAT, "%s: expected an integer from 1 to %d", key, LIMIT);
    *out = (int)json_integer_value(v);
    return 0;
}

static int get_real(const json_t *root, const char *key, double fallback, double *out,
                    struct err *e)
{
    const json_t *v = json_object_get(root, key);
    *out = fallback;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_number(v) || !(json_number_value(v) > 0))
        return err_set(e, ERR_FORMAT, "%s: expected a positive number", key);
    *out = json_number_value(v);
    return 0;
}

static int get_bool(const json_t *root, const char *key, bool fallback, bool *out, struct err *e)
{
    const json_t *v = json_object_get(root, key);
    *out = fallback;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_boolean(v))
        return err_set(e, ERR_FORMAT, "%s: expected true or false", key);
    *out = json_is_true(v);
    return 0;
}

/* A token id, or -1 for whatever else v is. */
static int id_of(const json_t *v)
{
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    return id >= 0 && id < INT32_MAX ? (int)id : -1;
}

/* ---- refusals ---- */

/* A field that changes the arithmetic: fine when absent, null, false, or this neutral number. */
struct neutral {
    const char *key;
    double value;
};

static const struct neutral NEUTRAL[] = {
    {"attention_dropout", 0},
    {"hidden_dropout", 0},
    {"pretraining_tp", 1},
    {"partial_rotary_factor", 1},
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"n_routed_experts", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"attention_multiplier", 0},
    {"residual_multiplier", 1},
    {"embedding_multiplier", 1},
    {"logits_scaling", 1},
    {"mlp_bias", 0},
    {"use_sliding_window", 0},
    {"attention_chunk_size", 0},
    {"embedding_scale", 1},
    {"logit_scale", 1},
    {"clip_qkv", 0},
    {"parallel_attn", 0},
};

static int refuse_extras(const json_t *root, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(NEUTRAL); i++) {
        const json_t *v = json_object_get(root, NEUTRAL[i].key);
        if (!v || json_is_null(v) || json_is_false(v) ||
            (json_is_number(v) && json_number_value(v) == NEUTRAL[i].value))
            continue;
        struct buf shown = {0};
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
        buf_json_untame(&shown, text, strlen(text));
        int rc = err_set(e, ERR_UNSUPPORTED,
                         "%s = %.60s is not supported; LoCo would compute something else",
                         NEUTRAL[i].key, buf_str(&shown));
        buf_release(&shown);
        mem_free(text);
        return rc;
    }
    static const char *const ABSENT[] = {"quantization_config", "no_rope_layers",
                                         "num_nextn_predict_layers"};
    for (size_t i = 0; i < ARRAY_LEN(ABSENT); i++) {
        const json_t *v = json_object_get(root, ABSENT[i]);
        if (v && !json_is_null(v))
            return err_set(e, ERR_UNSUPPORTED, "%s is not supported; give a model without it",
                           ABSENT[i]);
    }
    return 0;
}

static int refuse_windows(const json_t *root, struct err *e)
{
    const json_t *types = json_object_get(root, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || strcmp(type, "full_attention") != 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "layer_types[%zu] = '%.40s' is not supported; every layer must be "
                           "full_attention",
                           i, type ? type : "?");
    }
    return 0;
}

static int read_family(struct model_config *c, const json_t *root, struct err *e)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const json_t *classes = json_object_get(root, "architectures");
    if (!type)
        return err_set(e, ERR_FORMAT, "model_type is missing; expected llama, qwen2 or qwen3");
    for (size_t i = 0; i < ARRAY_LEN(FAMILY_TYPE); i++) {
        if (strcmp(type, FAMILY_TYPE[i]) != 0)
            continue;
        const char *class = json_string_value(json_array_get(classes, 0));
        if (class && strcmp(class, FAMILY_CLASS[i]) != 0)
            return err_set(e, ERR_UNSUPPORTED, "architectures names '%s'; expected %s", class,
                           FAMILY_CLASS[i]);
        c->family = (enum model_family)i;
        return 0;
    }
    return err_set(e, ERR_UNSUPPORTED,
                   "model_type '%.40s' is not supported; LoCo trains llama, qwen2 and qwen3", type);
}

/* ---- rope ---- */

/* Llama 3's four numbers; transformers' _compute_llama3_parameters says what they do. */
static int read_llama3(struct model_config *c, const json_t *rope, struct err *e)
{
    int rc = 0;
    c->rope_llama3 = true;
    TRY(get_real(rope, "factor", 0, &c->rope_factor, e));
    TRY(get_real(rope, "low_freq_factor", 0, &c->rope_low, e));
    TRY(get_real(rope, "high_freq_factor", 0, &c->rope_high, e));
    TRY(get_real(rope, "original_max_position_embeddings", 0, &c->rope_original, e));
    if (c->rope_factor <= 0 || c->rope_low <= 0 || c->rope_original <= 0 ||
        c->rope_high <= c->rope_low)
        rc = err_set(e, ERR_FORMAT,
                     "llama3 needs factor, low_freq_factor < high_freq_factor and "
                     "original_max_position_embeddings");
fail:
    return rc;
}

static int read_rope_object(struct model_config *c, const json_t *rope, struct err *e)
{
    int rc = 0;
    double partial;
    const char *kind = json_string_value(json_object_get(rope, "rope_type"));
    if (!kind)
        kind = json_string_value(json_object_get(rope, "type"));
    if (!json_is_object(rope))
        return err_set(e, ERR_FORMAT, "expected an object or null");
    if (json_object_get(rope, "full_attention") || json_object_get(rope, "sliding_attention"))
        return err_set(e, ERR_UNSUPPORTED,
                       "an object per kind of layer is not supported; expected one for all");
    TRY(get_real(rope, "rope_theta", c->rope_theta, &c->rope_theta, e));
    TRY(get_real(rope, "partial_rotary_factor", 1, &partial, e));
    if (partial != 1)
        return err_set(e, ERR_UNSUPPORTED, "partial_rotary_factor %g is not supported; expected 1",
                       partial);
    if (!kind || strcmp(kind, "default") == 0)
        return 0;
    if (strcmp(kind, "llama3") == 0)
        return read_llama3(c, rope, e);
    rc = err_set(e, ERR_UNSUPPORTED, "rope type '%s' is not supported; expected default or llama3",
                 kind);
fail:
    return rc;
}

/* transformers 5 has all in rope_parameters; 4 has rope_theta apart, the rest in rope_scaling. */
static int read_rope(struct model_config *c, const json_t *root, struct err *e)
{
    const char *key = "rope_parameters";
    const json_t *rope = json_object_get(root, key);
    int rc = get_real(root, "rope_theta", 10000, &c->rope_theta, e);
    if (rc < 0)
        return rc;
    if (!rope || json_is_null(rope))
        rope = json_object_get(root, key = "rope_scaling");
    if (!rope || json_is_null(rope))
        return 0;
    rc = read_rope_object(c, rope, e);
    return rc < 0 ? err_in(e, rc, "%s", key) : 0;
}

/* ---- the whole ---- */

static int read_shape(struct model_config *c, const json_t *root, struct err *e)
{
    int rc = 0;
    double eps;
    TRY(get_int(root, "vocab_size", 0, &c->V, e));
    TRY(get_int(root, "hidden_size", 0, &c->D, e));
    TRY(get_int(root, "intermediate_size", 0, &c->F, e));
    TRY(get_int(root, "num_hidden_layers", 0, &c->L, e));
    TRY(get_int(root, "num_attention_heads", 0, &c->H, e));
    TRY(get_int(root, "num_key_value_heads", c->H, &c->G, e));
    TRY(get_int(root, "head_dim", c->family == MODEL_QWEN3 ? 128 : MAX(c->D / c->H, 1), &c->E, e));
    TRY(get_int(root, "max_position_embeddings", 2048, &c->positions_max, e));
    TRY(get_real(root, "rms_norm_eps", 1e-6, &eps, e));
    TRY(get_bool(root, "tie_word_embeddings", false, &c->tied, e));
    c->norm_eps = (float)eps;
    if (c->H % c->G != 0)
        return err_set(e, ERR_FORMAT,
                       "num_attention_heads %d is no multiple of num_key_value_heads %d", c->H,
                       c->G);
    if (c->E % 2 != 0 || c->E > 1024)
        return err_set(e, ERR_UNSUPPORTED,
                       "head_dim %d is not supported; expected an even number up to 1024", c->E);
    if (c->L > LAYERS_MAX)
        return err_set(e, ERR_UNSUPPORTED,
                       "num_hidden_layers %d is not supported; expected up to %d", c->L,
                       LAYERS_MAX);
    if (((int64_t)c->H + 2 * c->G + 1) * c->E > MODEL_TMP)
        return err_set(e, ERR_UNSUPPORTED,
                       "%d query heads and %d key heads of width %d are not supported; q, k and v "
                       "of a token may have %d numbers",
                       c->H, c->G, c->E, MODEL_TMP);
fail:
    return rc;
}

static int read_biases(struct model_config *c, const json_t *root, struct err *e)
{
    bool bias;
    int rc = get_bool(root, "attention_bias", c->family == MODEL_QWEN2, &bias, e);
    if (rc < 0)
        return rc;
    if (bias && c->family != MODEL_QWEN2)
        return err_set(e, ERR_UNSUPPORTED, "attention_bias = true is not supported for %s",
                       FAMILY_TYPE[c->family]);
    c->qkv_bias = c->family == MODEL_QWEN2;
    c->qk_norm = c->family == MODEL_QWEN3;
    const char *act = json_string_value(json_object_get(root, "hidden_act"));
    if (act && strcmp(act, "silu") != 0)
        return err_set(e, ERR_UNSUPPORTED, "hidden_act '%s' is not supported; expected silu", act);
    return 0;
}

/* eos_token_id is an integer or a list of them. */
static int read_eos(struct model_config *c, const json_t *root, struct err *e)
{
    const json_t *v = json_object_get(root, "eos_token_id");
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v) && !(json_is_array(v) && json_array_size(v) <= MODEL_EOS_MAX))
        return err_set(e, ERR_FORMAT, "eos_token_id: expected an integer or a list of at most %d",
                       MODEL_EOS_MAX);
    c->n_eos = json_is_array(v) ? (int)json_array_size(v) : 1;
    for (int i = 0; i < c->n_eos; i++) {
        c->eos[i] = id_of(json_is_array(v) ? json_array_get(v, (size_t)i) : v);
        if (c->eos[i] < 0 || c->eos[i] >= c->V)
            return err_set(e, ERR_FORMAT,
                           "eos_token_id: expected ids from 0 to %d, below vocab_size", c->V - 1);
    }
    return 0;
}

static int read_config(struct model_config *c, const json_t *root, struct err *e)
{
    int rc = 0;
    TRY(read_family(c, root, e));
    TRY(refuse_extras(root, e));
    TRY(refuse_windows(root, e));
    TRY(read_shape(c, root, e));
    TRY(read_biases(c, root, e));
    TRY(read_rope(c, root, e));
    TRY(read_eos(c, root, e));
    c->bos = id_of(json_object_get(root, "bos_token_id"));
    c->pad = id_of(json_object_get(root, "pad_token_id"));
fail:
    return rc;
}

int model_config_load(struct model_config *c, const char *dir, struct err *e)
{
    int rc = 0;
    json_t *root = NULL, *generation = NULL;
    char *path = file_join(dir, "config.json"), *more = file_join(dir, "generation_config.json");

    *c = (struct model_config){.bos = -1, .pad = -1};
    if (!file_exists(path)) {
        rc = err_set(e, ERR_IO,
                     "%s: not found; expected a Hugging Face model folder with config.json, "
                     "*.safetensors and tokenizer.json",
                     path);
        goto fail;
    }
    TRY(load_json(path, &root, e));
    rc = read_config(c, root, e);
    if (rc < 0) {
        err_in(e, rc, "%s", path);
        goto fail;
    }
    if (file_exists(more)) {
        TRY(load_json(more, &generation, e));
        rc = read_eos(c, generation, e);
        if (rc < 0)
            err_in(e, rc, "%s", more);
    }
fail:
    json_decref(root);
    json_decref(generation);
    mem_free(path);
    mem_free(more);
    return rc;
}

double model_flops(const struct model_config *c, double rows, double heads, double keys)
{
    double D = c->D, F = c->F, q = model_q_width(c), qkv = model_qkv_width(c);
    double layer = D * (qkv + q + 3 * F) * rows + 2 * q * keys; // scores, and their sum of values
    return 2 * (c->L * layer + D * c->V * heads);
}
