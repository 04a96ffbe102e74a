/* loco init: a fresh model folder, of random weights that are a function of the seed. It is written
 * beside its place and renamed, so it is there whole or not at all.
 */
#include "cli/cli.h"

#include "base/exact.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "model/model.h"
#include "tensor/tensor.h"
#include "text/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What the tokenizer gives the configuration; -1: none. The vocabulary is not padded, so that every
   id that the model can draw has a token. */
struct vocabulary {
    int size, bos, eos, pad;
};

/* ---- tokenizer ---- */

static const char *const TOKENIZER_FILES[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
};

/* The id of a token that tokenizer_config.json names, as a text or as {"content": text}. */
static int named_id(const struct text *t, const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);
    if (json_is_object(v))
        v = json_object_get(v, "content");
    return json_is_string(v) ? text_token_id(t, json_string_value(v)) : -1;
}

static int read_special(const char *from, const struct text *t, struct vocabulary *v, struct err *e)
{
    enum { BYTES_MAX = 1 << 26 };
    int rc = 0;
    char *path = file_join(from, "tokenizer_config.json"), *data = NULL;
    size_t size;
    struct buf tame = {0};
    json_error_t problem;
    json_t *config = NULL;
    if (file_exists(path)) {
        TRY(file_read(path, BYTES_MAX, &data, &size, e));
        buf_json_tame(&tame, data, size); // its lengths of 1e30
        config = json_loadb(buf_str(&tame), tame.len, 0, &problem);
        if (!config)
            TRY(err_set(e, ERR_FORMAT, "%s:%d: not JSON (%s); fetch the file again", path,
                        problem.line, problem.text));
    }
    v->bos = named_id(t, config, "bos_token");
    v->eos = named_id(t, config, "eos_token");
    v->pad = named_id(t, config, "pad_token");
    if (v->eos < 0)
        rc = err_set(e, ERR_DATA,
                     "%s: no eos_token that is in the vocabulary, so no sample could end; "
                     "name one",
                     path);
fail:
    json_decref(config);
    buf_release(&tame);
    mem_free(data);
    mem_free(path);
    return rc;
}

static int copy_tokenizer(const char *from, const char *dir, struct vocabulary *v, struct err *e)
{
    int rc = 0;
    struct text *t = NULL;
    rc = text_open(&t, from, e);
    if (rc < 0)
        return err_in(e, rc, "tokenizer");
    v->size = text_size(t);
    TRY(read_special(from, t, v, e));
    for (size_t i = 0; i < ARRAY_LEN(TOKENIZER_FILES) && rc == 0; i++) {
        char *source = file_join(from, TOKENIZER_FILES[i]),
             *to = file_join(dir, TOKENIZER_FILES[i]);
        if (file_exists(source))
            rc = file_copy(source, to, e);
        mem_free(source);
        mem_free(to);
    }
fail:
    text_close(t);
    return rc;
}

static int write_tokenizer(const struct conf *conf, const char *dir, struct vocabulary *v,
                           struct err *e)
{
    if (strcmp(conf->tokenizer, "bytes") != 0)
        return copy_tokenizer(conf->tokenizer, dir, v, e);
    *v = (struct vocabulary){
        .size = TEXT_BYTES_SIZE, .bos = -1, .eos = TEXT_BYTES_END, .pad = TEXT_BYTES_PAD};
    return text_write_bytes(dir, e);
}

/* ---- configuration ---- */

/* Writes an object, a key a line. */
static int write_object(const char *dir, const char *name, json_t *object, struct err *e)
{
    struct buf b = {0};
    const char *key, *before = "{\n  ";
    const json_t *v;
    json_object_foreach(object, key, v)
    {
        buf_puts(&b, before);
        buf_json(&b, key, strlen(key));
        buf_puts(&b, ": ");
        cli_put_json(&b, v);
        before = ",\n  ";
    }
    buf_puts(&b, "\n}\n");
    char *path = file_join(dir, name);
    int rc = file_write_atomic(path, buf_str(&b), b.len, e);
    mem_free(path);
    buf_release(&b);
    return rc;
}

static void set_id(json_t *o, const char *key, int id)
{
    json_object_set_new(o, key, id >= 0 ? json_integer(id) : json_null());
}

static int write_configs(const struct conf *c, const char *dir, const struct vocabulary *v,
                         struct err *e)
{
    static const char *const classes[] = {[CONF_ARCH_LLAMA] = "LlamaForCausalLM",
                                          [CONF_ARCH_QWEN2] = "Qwen2ForCausalLM",
                                          [CONF_ARCH_QWEN3] = "Qwen3ForCausalLM"};
    json_t *o = json_pack(
        "{s:[s], s:s, s:b, s:f, s:s, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "architectures",
        classes[c->arch], "model_type", conf_choice_text(c, "arch"), "attention_bias",
        c->arch == CONF_ARCH_QWEN2, "attention_dropout", 0.0, "hidden_act", "silu", "hidden_size",
        (json_int_t)c->hidden_size, "initializer_range", c->initializer_range, "intermediate_size",
        (json_int_t)c->intermediate_size, "max_position_embeddings",
        (json_int_t)c->max_position_embeddings, "num_attention_heads",
        (json_int_t)c->num_attention_heads, "num_hidden_layers", (json_int_t)c->num_hidden_layers,
        "num_key_value_heads", (json_int_t)c->num_key_value_heads, "head_dim",
        (json_int_t)c->head_dim);
    json_t *rest = json_pack("{s:f, s:n, s:f, s:b, s:s, s:b, s:i}", "rms_norm_eps", c->rms_norm_eps,
                             "rope_scaling", "rope_theta", c->rope_theta, "tie_word_embeddings",
                             c->tie_word_embeddings, "torch_dtype", "bfloat16", "use_cache", true,
                             "vocab_size", v->size);
    json_t *generation = json_object();
    ASSERT(o && rest);
    json_object_update(o, rest);
    if (c->arch != CONF_ARCH_LLAMA)
        json_object_set_new(o, "use_sliding_window", json_false());
    set_id(o, "bos_token_id", v->bos);
    set_id(o, "eos_token_id", v->eos);
    set_id(o, "pad_token_id", v->pad);
    set_id(generation, "bos_token_id", v->bos);
    set_id(generation, "eos_token_id", v->eos);
    set_id(generation, "pad_token_id", v->pad);
    int rc = write_object(dir, "config.json", o, e);
    if (rc == 0)
        rc = write_object(dir, "generation_config.json", generation, e);
    json_decref(o);
    json_decref(rest);
    json_decref(generation);
    return rc;
}

/* ---- weights ---- */

/* One tensor and a piece of it that is being filled by all threads. */
struct filling {
    const struct model_param *param;
    uint32_t tensor; // its number in the model's order
    uint64_t key;
    double std;
    struct pool *pool;
    uint64_t lo, hi;
    bf16 *out;
};

/* A normal deviate (Box and Muller 1958) of the element's own random block. */
static double normal(uint64_t key, uint64_t element, uint32_t tensor)
{
    const double pi = 3.141592653589793, unit = 0x1p-53;
    uint32_t r[4];
    rng_block(key, (uint32_t)element, (uint32_t)(element >> 32), tensor, 0, r);
    uint64_t a = ((uint64_t)r[0] << 32 | r[1]) >> 11, b = ((uint64_t)r[2] << 32 | r[3]) >> 11;
    double radius = sqrt(-2 * exact_log(((double)a + 1) * unit)); // from (0, 1]
    return radius * exact_cos(2 * pi * ((double)b * unit));
}

/* Norms are 1, biases 0, the rest is random. */
static double initial(const struct filling *f, uint64_t element)
{
    if (!f->param->is_vector)
        return f->std * normal(f->key, element, f->tensor);
    return str_ends(f->param->name, ".bias") ? 0 : 1;
}

static void fill_share(void *ctx, int ith, int nth)
{
    const struct filling *f = ctx;
    size_t lo, hi;
    pool_split(f->hi - f->lo, 16, ith, nth, &lo, &hi);
    for (size_t i = lo; i < hi; i++)
        f->out[i] = bf16_from((float)initial(f, f->lo + i));
}

static int fill(void *ctx, uint64_t lo, uint64_t hi, void *out, struct err *e)
{
    struct filling *f = ctx;
    (void)e;
    f->lo = lo;
    f->hi = hi;
    f->out = out;
    pool_run(f->pool, fill_share, f);
    return 0;
}

/* Reads config.json just written: what it refuses is an option of the same name. */
static int read_back(struct model_config *c, const char *dir, struct err *e)
{
    struct err inner = {0};
    if (model_config_load(c, dir, &inner) == 0)
        return 0;
    const char *text = inner.text + strlen(dir);
    const char *field = strstr(text, ".json: ");
    return err_set(e, ERR_USAGE, "%s", field ? field + strlen(".json: ") : text);
}

static int write_weights(const struct conf *conf, const char *dir, uint64_t *count, struct err *e)
{
    int rc = 0;
    struct model_config config;
    struct model_params params = {0};
    struct tensor_source *source = NULL;
    struct filling *filling = NULL;
    struct pool *pool = pool_new(pool_cpus());
    TRY(read_back(&config, dir, e));
    model_params_init(&params, &config);
    source = mem_calloc((size_t)params.n, sizeof *source);
    filling = mem_calloc((size_t)params.n, sizeof *filling);
    *count = 0;
    for (int i = 0; i < params.n; i++) {
        const struct model_param *p = &params.param[i];
        filling[i] = (struct filling){.param = p,
                                      .tensor = (uint32_t)i,
                                      .pool = pool,
                                      .key = rng_key(conf->seed, RNG_INIT),
                                      .std = conf->initializer_range};
        source[i] = (struct tensor_source){.name = p->name,
                                           .dtype = TENSOR_BF16,
                                           .n_dims = p->is_vector ? 1 : 2,
                                           .fill = fill,
                                           .ctx = &filling[i]};
        source[i].shape[0] = (uint64_t)(p->is_vector ? p->cols : p->rows);
        source[i].shape[1] = (uint64_t)p->cols;
        *count += (uint64_t)p->rows * (uint64_t)p->cols;
    }
    TRY(tensor_write_model(dir, source, (size_t)params.n, 0, e));
fail:
    mem_free(source);
    mem_free(filling);
    model_params_release(&params);
    pool_free(pool);
    return rc;
}

/* ---- the folder ---- */

int cli_refuse_used(const char *dir, struct err *e)
{
    char **names = NULL;
    size_t n = 0;
    int rc = 0;
    if (!file_exists(dir))
        return 0;
    if (!file_is_dir(dir))
        return err_set(e, ERR_USAGE, "out: %s is a file; give another name", dir);
    rc = file_list(dir, &names, &n, e);
    for (size_t i = 0; i < n; i++)
        mem_free(names[i]);
    mem_free(names);
    if (rc == 0 && n > 0)
        rc = err_set(e, ERR_USAGE,
                     "out: %s exists and is not empty; remove it or give another folder", dir);
    return rc;
}

static int write_folder(const struct conf *conf, const char *dir, uint64_t *count, struct err *e)
{
    int rc = 0;
    struct vocabulary v = {0};
    TRY(write_tokenizer(conf, dir, &v, e));
    TRY(write_configs(conf, dir, &v, e));
    file_fault_point("init");
    TRY(write_weights(conf, dir, count, e));
fail:
    return rc;
}

/* Of several calls at once, one makes the folder and the others stop here. */
static int make_new(const char *dir, struct err *e)
{
    int rc = file_mkdir_new(dir, e);
    if (rc > 0)
        rc = err_set(e, ERR_USAGE,
                     "out: %s is in the way: another call is writing it, or one was killed; remove "
                     "it or give another folder",
                     dir);
    return rc;
}

int cli_init(const struct conf *conf, struct err *e)
{
    int rc = 0;
    uint64_t count = 0;
    struct buf out = {0}, dir = {0}, tmp = {0};
    size_t n = strlen(conf->out);
    while (n > 1 && conf->out[n - 1] == '/')
        n--;
    buf_put(&dir, conf->out, n);
    buf_printf(&tmp, "%s.tmp", buf_str(&dir));
    TRY(cli_refuse_used(dir.data, e));
    TRY(make_new(tmp.data, e));
    rc = cli_refuse_used(dir.data, e); // again: another call may have made it just now
    if (rc == 0)
        rc = write_folder(conf, tmp.data, &count, e);
    if (rc == 0)
        rc = file_rename(tmp.data, dir.data, e);
    if (rc < 0) {
        file_remove_dir(tmp.data, NULL);
        goto fail;
    }
    buf_printf(&out, "%s: %s, %" PRIu64 " parameters\n", dir.data, conf_choice_text(conf, "arch"),
               count);
    TRY(cli_flush(&out, e));
fail:
    buf_release(&out);
    buf_release(&dir);
    buf_release(&tmp);
    return rc;
}
