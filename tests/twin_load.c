/* Fills a twin from a Hugging Face folder. Reads what the tests' own folders hold; judging foreign
 * ones is the model module's business. */
#include "twin.h"
#include "base/file.h"
#include "base/mem.h"
#include "tensor/tensor.h"

#include <jansson.h>
#include <string.h>

static double number(const json_t *o, const char *key, double otherwise)
{
    const json_t *x = json_object_get(o, key);
    return json_is_number(x) ? json_number_value(x) : otherwise;
}

static int integer(const json_t *o, const char *key, int otherwise)
{
    return (int)number(o, key, otherwise);
}

static const char *string(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* transformers 5: all in rope_parameters; 4: rope_theta apart, the rest in rope_scaling or null. */
static void read_rope(struct twin_config *c, const json_t *config)
{
    const json_t *rope = json_object_get(config, "rope_parameters");
    if (!rope)
        rope = json_object_get(config, "rope_scaling");
    c->rope_theta = number(rope, "rope_theta", number(config, "rope_theta", 10000));
    if (strcmp(string(rope, "rope_type"), "llama3") != 0)
        return;
    c->llama3.factor = number(rope, "factor", 0);
    c->llama3.low_freq_factor = number(rope, "low_freq_factor", 0);
    c->llama3.high_freq_factor = number(rope, "high_freq_factor", 0);
    c->llama3.original_positions = number(rope, "original_max_position_embeddings", 0);
}

static struct twin_config read_config(const char *folder)
{
    char *path = file_join(folder, "config.json");
    json_t *config = json_load_file(path, 0, NULL);
    ASSERT(config != NULL);
    int hidden = integer(config, "hidden_size", 0),
        heads = integer(config, "num_attention_heads", 0);
    struct twin_config c = {
        .vocab = integer(config, "vocab_size", 0),
        .hidden = hidden,
        .ffn = integer(config, "intermediate_size", 0),
        .layers = integer(config, "num_hidden_layers", 0),
        .heads = heads,
        .kv_heads = integer(config, "num_key_value_heads", heads),
        .head_dim = integer(config, "head_dim", hidden / heads),
        .eps = number(config, "rms_norm_eps", 1e-6),
        .qkv_bias = strcmp(string(config, "model_type"), "qwen2") == 0,
        .qk_norm = strcmp(string(config, "model_type"), "qwen3") == 0,
        .tied = json_is_true(json_object_get(config, "tie_word_embeddings")),
    };
    read_rope(&c, config);
    json_decref(config);
    mem_free(path);
    return c;
}

static void fill(struct twin_tensor *x, const struct tensor_set *set)
{
    const struct tensor *t = tensor_find(set, x->name);
    ASSERT(t != NULL && t->n_elems == (uint64_t)x->rows * (uint64_t)x->cols);
    float *value = mem_alloc(t->n_elems * sizeof *value);
    tensor_to_float(t, 0, t->n_elems, value);
    for (uint64_t i = 0; i < t->n_elems; i++)
        x->w[i] = (double)value[i];
    mem_free(value);
}

void twin_load(struct twin *t, const char *folder)
{
    struct twin_config c = read_config(folder);
    struct tensor_set *set;
    ASSERT(tensor_open(&set, folder, NULL) == 0);
    twin_init(t, &c);
    for (int i = 0; i < t->n_tensors; i++)
        fill(&t->tensor[i], set);
    tensor_close(set);
}
