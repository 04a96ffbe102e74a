/* config.json and generation_config.json of a Hugging Face folder. What changes the arithmetic and
 * is not implemented is refused by name; both transformers 4's rope_scaling and 5's rope_parameters
 * are read. Defaults are those of the families' own configuration classes.
 */
#include "model/model.h"

#include "model/model_int.h"
#include "base/file.h"
#include "base/str.h"

#include <jansson.h>
#include <math.h>
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
    if (strlen(text) < size)
        rc = err_set(e, ERR_FORMAT, "%s: not valid JSON: a NUL at byte %zu", path, strlen(text));
    buf_json_tame(&tame, text, size);
    *root = rc < 0 ? NULL : json_loadb(buf_str(&tame), tame.len, JSON_REJECT_DUPLICATES, &problem);
    buf_release(&tame);
    mem_free(text);
    if (rc < 0)
        return rc;
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

/* Not there, or null. */
static bool is_absent(const json_t *root, const char *key)
{
    const json_t *v = json_object_get(root, key);
    return !v || json_is_null(v);
}

static int get_real(const json_t *root, const char *key, double fallback, double *out,
                    struct err *e)
{
    const json_t *v = json_object_get(root, key);
    *out = fallback;
    if (is_absent(root, key))
        return 0;
    if (!json_is_number(v) || !(json_number_value(v) > 0))
        return err_set(e, ERR_FORMAT, "%s: expected a positive number", key);
    *out = json_number_value(v);
    if (!((float)*out > 0) || isinf((float)*out))
        return err_set(e, ERR_FORMAT, "%s: %g is out of range; expected a number of float32", key,
                       *out);
    return 0;
}

/* *out is NULL when the field is not there. */
static int get_text(const json_t *root, const char *key, const char **out, struct err *e)
{
    *out = json_string_value(json_object_get(root, key));
    return *out || is_absent(root, key) ? 0 : err_set(e, ERR_FORMAT, "%s: expected a string", key);
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

/* A field that changes the arithmetic: fine when absent, null, or this neutral number, where false
   is 0 and true is 1. */
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
    {"is_causal", 1},
    {"rope_interleaved", 0},
};

static bool is_neutral(const json_t *v, double value)
{
    if (json_is_boolean(v))
        return value == (json_is_true(v) ? 1 : 0);
    return !v || json_is_null(v) || (json_is_number(v) && json_number_value(v) == value);
}

static int refuse_extras(const json_t *root, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(NEUTRAL); i++) {
        const json_t *v = json_object_get(root, NEUTRAL[i].key);
        if (is_neutral(v, NEUTRAL[i].value))
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
                                         "num_nextn_predict_layers", "dual_chunk_attention_config"};
    for (size_t i = 0; i < ARRAY_LEN(ABSENT); i++) {
        if (!is_absent(root, ABSENT[i]))
            return err_set(e, ERR_UNSUPPORTED, "%s is not supported; give a model without it",
                           ABSENT[i]);
    }
    return 0;
}

/* Of L layers. */
static int refuse_windows(const json_t *root, int L, struct err *e)
{
    const json_t *types = json_object_get(root, "layer_types");
    if (is_absent(root, "layer_types"))
        return 0;
    if (!json_is_array(types))
        return err_set(e, ERR_FORMAT, "layer_types: expected a list");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || strcmp(type, "full_attention") != 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "layer_types[%zu] = '%.40s' is not supported; every layer must be "
                           "full_attention",
                           i, type ? type : "?");
    }
    if (json_array_size(types) != (size_t)L)
        return err_set(e, ERR_FORMAT, "layer_types has %zu entries, but num_hidden_layers is %d",
                       json_array_size(types), L);
    return 0;
}

/* The first of architectures; NULL when there is none. */
static int get_class(const json_t *root, const char **class, struct err *e)
{
    const json_t *classes = json_object_get(root, "architectures");
    bool ok = is_absent(root, "architectures") || json_is_array(classes);
    for (size_t i = 0; i < json_array_size(classes); i++)
        ok = ok && json_is_string(json_array_get(classes, i));
    *class = json_string_value(json_array_get(classes, 0));
    return ok ? 0 : err_set(e, ERR_FORMAT, "architectures: expected a list of strings");
}

static int read_family(struct model_config *c, const json_t *root, struct err *e)
{
    const char *type, *class;
    int rc = 0;
    TRY(get_text(root, "model_type", &type, e));
    TRY(get_class(root, &class, e));
    if (!type)
        return err_set(e, ERR_FORMAT, "model_type is missing; expected llama, qwen2 or qwen3");
    for (size_t i = 0; i < ARRAY_LEN(FAMILY_TYPE); i++) {
        if (strcmp(type, FAMILY_TYPE[i]) != 0)
            continue;
        if (class && strcmp(class, FAMILY_CLASS[i]) != 0)
            return err_set(e, ERR_UNSUPPORTED, "architectures names '%s'; expected %s", class,
                           FAMILY_CLASS[i]);
        c->family = (enum model_family)i;
        return 0;
    }
    return err_set(e, ERR_UNSUPPORTED,
                   "model_type '%.40s' is not supported; LoCo trains llama, qwen2 and qwen3", type);
fail:
    return rc;
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

/* The kind of rope, NULL when the object names none. transformers wrote it as type, then rope_type,
   for a while both. */
static int get_rope_type(const json_t *rope, const char **kind, struct err *e)
{
    const char *old;
    int rc = 0;
    TRY(get_text(rope, "rope_type", kind, e));
    TRY(get_text(rope, "type", &old, e));
    if (*kind && old && strcmp(*kind, old) != 0)
        return err_set(e, ERR_FORMAT, "rope_type '%.40s' and type '%.40s' disagree", *kind, old);
    *kind = *kind ? *kind : old;
fail:
    return rc;
}

/* What is in the object must mean something to its kind. */
static int refuse_rope_extras(json_t *rope, const char *kind, struct err *e)
{
    static const char *const KNOWN[] = {
        "rope_type",        "type",
        "rope_theta",       "partial_rotary_factor", // of every kind
        "factor",           "low_freq_factor",
        "high_freq_factor", "original_max_position_embeddings"};
    size_t n = strcmp(kind, "llama3") == 0 ? ARRAY_LEN(KNOWN) : 4;
    const char *key;
    json_t *v;
    json_object_foreach(rope, key, v)
    {
        bool known = json_is_null(v);
        for (size_t i = 0; i < n; i++)
            known = known || strcmp(key, KNOWN[i]) == 0;
        if (!known)
            return err_set(e, ERR_UNSUPPORTED, "rope type '%s' has no '%.40s'", kind, key);
    }
    return 0;
}

static int read_rope_object(struct model_config *c, json_t *rope, struct err *e)
{
    int rc = 0;
    double partial;
    const char *kind;
    if (!json_is_object(rope))
        return err_set(e, ERR_FORMAT, "expected an object or null");
    if (json_object_get(rope, "full_attention") || json_object_get(rope, "sliding_attention"))
        return err_set(e, ERR_UNSUPPORTED,
                       "an object per kind of layer is not supported; expected one for all");
    TRY(get_rope_type(rope, &kind, e));
    TRY(get_real(rope, "rope_theta", c->rope_theta, &c->rope_theta, e));
    TRY(get_real(rope, "partial_rotary_factor", 1, &partial, e));
    if (partial != 1)
        return err_set(e, ERR_UNSUPPORTED, "partial_rotary_factor %g is not supported; expected 1",
                       partial);
    if (kind && strcmp(kind, "default") != 0 && strcmp(kind, "llama3") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "rope type '%s' is not supported; expected default or llama3", kind);
    TRY(refuse_rope_extras(rope, kind ? kind : "default", e));
    if (kind && strcmp(kind, "llama3") == 0)
        return read_llama3(c, rope, e);
fail:
    return rc;
}

static bool same_rope(const struct model_config *a, const struct model_config *b)
{
    return a->rope_theta == b->rope_theta && a->rope_llama3 == b->rope_llama3 &&
           a->rope_factor == b->rope_factor && a->rope_low == b->rope_low &&
           a->rope_high == b->rope_high && a->rope_original == b->rope_original;
}

/* transformers 5 has all in rope_parameters; 4 has rope_theta apart, the rest in rope_scaling. What
   is said twice must agree. */
static int read_rope(struct model_config *c, const json_t *root, struct err *e)
{
    static const char *const KEY[] = {"rope_scaling", "rope_parameters"};
    int rc = get_real(root, "rope_theta", 10000, &c->rope_theta, e);
    const struct model_config plain = *c;
    bool read = false;
    for (size_t i = 0; i < ARRAY_LEN(KEY) && rc == 0; i++) {
        if (is_absent(root, KEY[i]))
            continue;
        struct model_config other = plain;
        rc = read_rope_object(&other, json_object_get(root, KEY[i]), e);
        if (rc < 0)
            return err_in(e, rc, "%s", KEY[i]);
        if (!is_absent(root, "rope_theta") && other.rope_theta != plain.rope_theta)
            return err_set(e, ERR_FORMAT, "rope_theta is %.15g, but %.15g in %s", plain.rope_theta,
                           other.rope_theta, KEY[i]);
        if (read && !same_rope(c, &other))
            return err_set(e, ERR_FORMAT, "rope_scaling and rope_parameters disagree; leave one");
        *c = other;
        read = true;
    }
    return rc;
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
                       "num_attention_heads %d and num_key_value_heads %d of head_dim %d are not "
                       "supported; q, k and v of a token may have %d numbers",
                       c->H, c->G, c->E, MODEL_TMP);
fail:
    return rc;
}

static int read_biases(struct model_config *c, const json_t *root, struct err *e)
{
    int rc = 0;
    bool bias;
    const char *act;
    TRY(get_text(root, "hidden_act", &act, e));
    TRY(get_bool(root, "attention_bias", c->family == MODEL_QWEN2, &bias, e));
    if (bias && c->family != MODEL_QWEN2)
        return err_set(e, ERR_UNSUPPORTED, "attention_bias = true is not supported for %s",
                       FAMILY_TYPE[c->family]);
    if (act && strcmp(act, "silu") != 0)
        return err_set(e, ERR_UNSUPPORTED, "hidden_act '%s' is not supported; expected silu", act);
    c->qkv_bias = c->family == MODEL_QWEN2;
    c->qk_norm = c->family == MODEL_QWEN3;
fail:
    return rc;
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
    TRY(read_shape(c, root, e));
    TRY(refuse_windows(root, c->L, e));
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
