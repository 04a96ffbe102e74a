/* Weights from and to Hugging Face folders: the flat parameter space, round trips to the byte, and
 * folders that do not hold the model they claim.
 */
#include "check.h"

#include "base/file.h"
#include "base/mem.h"
#include "golden.h"
#include "model/model.h"
#include "tensor/tensor.h"

/* ---- the flat space ---- */

static void parameters_are_laid_out_once_each(void **state)
{
    (void)state;
    for (const char *const *name = golden_models; *name; name++) {
        char dir[128];
        struct model_config c;
        struct model_params p;
        struct err e = {0};
        snprintf(dir, sizeof dir, "tests/golden/models/%s", *name);
        check_ok(model_config_load(&c, dir, &e), e);
        model_params_init(&p, &c);
        size_t end = 0;
        for (int i = 0; i < p.n; i++) {
            const struct model_param *q = &p.param[i];
            size_t size = (size_t)q->rows * (size_t)q->cols;
            assert_true(q->offset >= end && q->offset < end + 16); // gaps only to align
            assert_true(q->is_vector == (q->rows == 1));
            assert_ptr_equal(model_param_at(&p, q->offset), q);
            assert_ptr_equal(model_param_at(&p, q->offset + size - 1), q);
            end = q->offset + size;
        }
        assert_int_equal(p.count, round_up(end, 16));
        assert_int_equal(p.head.offset == p.embed, c.tied);
        for (int l = 0; l < c.L; l++) {
            const struct model_layer *layer = &p.layer[l];
            for (int m = 0; m < MATRICES; m++)
                assert_int_equal(layer->matrix[m].offset % 16, 0);
            assert_int_equal(layer->matrix[MATRIX_QKV].n, (c.H + 2 * c.G) * c.E);
            assert_int_equal(layer->matrix[MATRIX_GATE_UP].n, 2 * c.F);
            assert_int_equal(layer->width[VECTOR_QKV_BIAS], c.qkv_bias ? (c.H + 2 * c.G) * c.E : 0);
            assert_int_equal(layer->width[VECTOR_Q_NORM], c.qk_norm ? c.E : 0);
        }
        model_params_release(&p);
    }
}

/* ---- a model in memory ---- */

struct loaded {
    struct model_params params;
    bf16 *weight;
    float *master;
};

static int take_weights(void *ctx, size_t lo, size_t n, const bf16 *data, struct err *e)
{
    (void)e;
    memcpy(((struct loaded *)ctx)->weight + lo, data, n * sizeof *data);
    return 0;
}

static int take_masters(void *ctx, size_t lo, size_t n, const float *data, struct err *e)
{
    (void)e;
    memcpy(((struct loaded *)ctx)->master + lo, data, n * sizeof *data);
    return 0;
}

static int give_weights(void *ctx, size_t lo, size_t n, bf16 *data, struct err *e)
{
    (void)e;
    memcpy(data, ((struct loaded *)ctx)->weight + lo, n * sizeof *data);
    return 0;
}

static int load(struct loaded *m, const char *dir, struct err *e)
{
    struct model_config c;
    check_ok(model_config_load(&c, dir, e), *e);
    model_params_init(&m->params, &c);
    m->weight = mem_calloc(m->params.count, sizeof *m->weight);
    m->master = mem_calloc(m->params.count, sizeof *m->master);
    return model_load(
        &m->params, dir,
        &(struct model_sink){.ctx = m, .weights = take_weights, .masters = take_masters}, e);
}

static void unload(struct loaded *m)
{
    model_params_release(&m->params);
    mem_free(m->weight);
    mem_free(m->master);
    *m = (struct loaded){0};
}

static void save(struct loaded *m, const char *like, const char *dir)
{
    struct err e = {0};
    check_ok(file_mkdirs(dir, &e), e);
    struct model_source source = {.ctx = m, .weights = give_weights};
    check_ok(model_save(&m->params, like, dir, &source, &e), e);
}

static void check_same_file(const char *a, const char *b, const char *name)
{
    struct err e = {0};
    char *path[2] = {file_join(a, name), file_join(b, name)}, *text[2];
    size_t size[2];
    for (int i = 0; i < 2; i++)
        check_ok(file_read(path[i], 64 << 20, &text[i], &size[i], &e), e);
    if (size[0] != size[1] || memcmp(text[0], text[1], size[0]) != 0)
        fail_msg("%s and %s differ", path[0], path[1]);
    for (int i = 0; i < 2; i++) {
        mem_free(path[i]);
        mem_free(text[i]);
    }
}

static void what_is_loaded_is_saved_to_the_byte(void **state)
{
    (void)state;
    for (const char *const *name = golden_models; *name; name++) {
        char dir[128], out[300];
        const char *folder = check_folder();
        struct loaded m;
        struct err e = {0};
        snprintf(dir, sizeof dir, "tests/golden/models/%s", *name);
        snprintf(out, sizeof out, "%s/out", folder);
        check_ok(load(&m, dir, &e), e);
        for (size_t i = 0; i < m.params.count; i++)
            assert_true(bf16_to(m.weight[i]) == m.master[i]);
        save(&m, dir, out);
        check_same_file(dir, out, "model.safetensors");
        check_same_file(dir, out, "config.json");
        check_same_file(dir, out, "generation_config.json");
        unload(&m);
        check_folder_remove(folder);
    }
}

/* ---- changed folders ---- */

enum { TENSORS_MAX = 64 };

/* A golden model's tensors, to be changed and written to a folder beside its configuration. */
struct draft {
    struct tensor_set *set;
    struct tensor_source list[TENSORS_MAX];
    size_t n;
    unsigned char *memory; // of the first tensor, when it was changed
};

static void draft_open(struct draft *d, const char *model)
{
    char path[160];
    snprintf(path, sizeof path, "tests/golden/models/%s/model.safetensors", model);
    *d = (struct draft){0};
    assert_int_equal(tensor_open(&d->set, path, NULL), 0);
    for (size_t i = 0; i < tensor_count(d->set); i++) {
        const struct tensor *t = tensor_at(d->set, i);
        struct tensor_source *s = &d->list[d->n++];
        assert_true(d->n < TENSORS_MAX);
        *s = (struct tensor_source){
            .name = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .data = t->data};
        memcpy(s->shape, t->shape, sizeof t->shape);
    }
}

static struct tensor_source *draft_find(struct draft *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->list[i].name, name) == 0)
            return &d->list[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* A tensor's data as memory of the draft's own: one at a time. */
static void *draft_own(struct draft *d, struct tensor_source *s)
{
    size_t bytes = tensor_find(d->set, s->name)->n_bytes;
    d->memory = mem_alloc(bytes);
    memcpy(d->memory, s->data, bytes);
    s->data = d->memory;
    return d->memory;
}

/* Writes the draft as a folder, config.json as `model` has it. */
static void draft_write(struct draft *d, const char *model, const char *dir)
{
    struct err e = {0};
    char from[160];
    char *to = file_join(dir, "config.json"), *weights = file_join(dir, "model.safetensors");
    snprintf(from, sizeof from, "tests/golden/models/%s/config.json", model);
    check_ok(file_copy(from, to, &e), e);
    check_ok(tensor_write(weights, d->list, d->n, NULL, 0, &e), e);
    mem_free(to);
    mem_free(weights);
    mem_free(d->memory);
    tensor_close(d->set);
}

static void a_tied_head_is_stored_where_it_was(void **state)
{
    (void)state;
    char out[300];
    const char *dir = check_folder();
    struct draft d;
    struct loaded m;
    struct err e = {0};
    draft_open(&d, "llama_tied");
    d.list[d.n] = *draft_find(&d, "model.embed_tokens.weight");
    d.list[d.n++].name = "lm_head.weight";
    draft_write(&d, "llama_tied", dir);
    check_ok(load(&m, dir, &e), e);
    snprintf(out, sizeof out, "%s/out", dir);
    save(&m, dir, out);
    check_same_file(dir, out, "model.safetensors");
    unload(&m);
    check_folder_remove(dir);
}

static void wider_weights_are_masters_and_rounded_once(void **state)
{
    (void)state;
    char out[300], path[320];
    const char *dir = check_folder();
    struct draft d;
    struct loaded m;
    struct err e = {0};
    draft_open(&d, "llama_tied");
    struct tensor_source *norm = draft_find(&d, "model.norm.weight");
    float value[36];
    for (int i = 0; i < 36; i++)
        value[i] = 1 + 0.001f * (float)i;
    assert_int_equal(norm->shape[0], 36);
    norm->dtype = TENSOR_F32;
    norm->data = value;
    draft_write(&d, "llama_tied", dir);
    check_ok(load(&m, dir, &e), e);
    for (size_t i = 0; i < 36; i++) {
        assert_true(m.master[m.params.final_norm + i] == value[i]);
        assert_int_equal(m.weight[m.params.final_norm + i], bf16_from(value[i]));
    }
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    save(&m, dir, out);
    struct tensor_set *set;
    check_ok(tensor_open(&set, path, &e), e);
    for (size_t i = 0; i < tensor_count(set); i++)
        assert_int_equal(tensor_at(set, i)->dtype, TENSOR_BF16);
    tensor_close(set);
    unload(&m);
    check_folder_remove(dir);
}

/* The dtype in config.json becomes that of the weights; the rest stays, in its order. */
static void the_saved_configuration_says_bfloat16(void **state)
{
    (void)state;
    static const char *const before[] = {"\"dtype\": \"float32\", ",
                                         "\"torch_dtype\": \"float16\", ",
                                         "\"dtype\": \"float32\", \"torch_dtype\": null, ", "",
                                         "\"loss\": NaN, \"length\": 1000000000000000000000, "};
    static const char *const after[] = {
        "  \"dtype\": \"bfloat16\",\n", "  \"torch_dtype\": \"bfloat16\",\n",
        "  \"dtype\": \"bfloat16\",\n  \"torch_dtype\": \"bfloat16\",\n",
        "\"rms_norm_eps\": 1e-6,\n  \"torch_dtype\": \"bfloat16\"\n}",
        "{\n  \"loss\": NaN,\n  \"length\": 1000000000000000000000,\n"};
    for (size_t i = 0; i < ARRAY_LEN(before); i++) {
        const char *dir = check_folder();
        char config[512], out[300], *text;
        size_t size;
        struct loaded m;
        struct err e = {0};
        snprintf(out, sizeof out, "%s/out", dir);
        snprintf(config, sizeof config,
                 "{%s\"model_type\": \"llama\", \"vocab_size\": 97, \"head_dim\": 16, "
                 "\"hidden_size\": 36, \"intermediate_size\": 52, \"num_attention_heads\": 3, "
                 "\"num_hidden_layers\": 2, \"num_key_value_heads\": 1, "
                 "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-06}",
                 before[i]);
        char *path = file_join(dir, "config.json"), *weights = file_join(dir, "model.safetensors");
        check_ok(file_write_atomic(path, config, strlen(config), &e), e);
        check_ok(file_copy("tests/golden/models/llama_tied/model.safetensors", weights, &e), e);
        check_ok(load(&m, dir, &e), e);
        save(&m, dir, out);
        mem_free(path);
        path = file_join(out, "config.json");
        check_ok(file_read(path, 4096, &text, &size, &e), e);
        if (!strstr(text, after[i]))
            fail_msg("'%s' not in %s", after[i], text);
        mem_free(path);
        mem_free(weights);
        mem_free(text);
        unload(&m);
        check_folder_remove(dir);
    }
}

/* ---- refusals ---- */

static void drop(struct draft *d)
{
    struct tensor_source *s = draft_find(d, "model.layers.1.mlp.up_proj.weight");
    *s = d->list[--d->n];
}

static void add(struct draft *d)
{
    d->list[d->n] = d->list[0];
    d->list[d->n++].name = "model.layers.0.self_attn.q_proj.bias";
}

static void another_head(struct draft *d)
{
    struct tensor_source *embed = draft_find(d, "model.embed_tokens.weight");
    d->list[d->n] = *embed;
    d->list[d->n++].name = "lm_head.weight";
    ((bf16 *)draft_own(d, embed))[7] ^= 1;
}

static void reshape(struct draft *d)
{
    struct tensor_source *s = draft_find(d, "model.layers.0.self_attn.k_proj.weight");
    s->shape[0] *= 2;
    s->shape[1] /= 2;
}

static void integers(struct draft *d)
{
    draft_find(d, "model.norm.weight")->dtype = TENSOR_I16;
}

static void not_a_number(struct draft *d)
{
    ((bf16 *)draft_own(d, draft_find(d, "model.layers.1.mlp.down_proj.weight")))[5] = 0x7fc0;
}

static void infinite(struct draft *d)
{
    ((bf16 *)draft_own(d, draft_find(d, "model.embed_tokens.weight")))[9] = 0xff80;
}

static const struct {
    void (*change)(struct draft *d);
    int code;
    const char *text; // after the folder's name
} REFUSALS[] = {
    {drop, ERR_FORMAT,
     "/model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight' is missing: the weights do "
     "not belong to this configuration"},
    {add, ERR_UNSUPPORTED,
     ": tensor 'model.layers.0.self_attn.q_proj.bias' does not belong to this model; LoCo would "
     "ignore it"},
    {another_head, ERR_FORMAT,
     ": tensor 'lm_head.weight' differs from the embedding, but tie_word_embeddings is true; set "
     "it to false"},
    {reshape, ERR_FORMAT,
     "/model.safetensors: tensor 'model.layers.0.self_attn.k_proj.weight' has shape [32, 18], "
     "expected [16, 36]: the weights do not belong to this configuration"},
    {integers, ERR_UNSUPPORTED,
     "/model.safetensors: tensor 'model.norm.weight' is I16, expected F16, BF16 or F32: convert "
     "the weights to one of these"},
    {not_a_number, ERR_NUMERIC,
     "/model.safetensors: tensor 'model.layers.1.mlp.down_proj.weight' is NaN or infinite at "
     "element 5: these weights cannot be used, fetch them again or go back to an older checkpoint"},
    {infinite, ERR_NUMERIC,
     "/model.safetensors: tensor 'model.embed_tokens.weight' is NaN or infinite at element 9: "
     "these weights cannot be used, fetch them again or go back to an older checkpoint"},
};

static void folders_of_another_model_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(REFUSALS); i++) {
        const char *dir = check_folder();
        char want[600];
        struct draft d;
        struct loaded m;
        struct err e = {0};
        draft_open(&d, "llama_tied");
        REFUSALS[i].change(&d);
        draft_write(&d, "llama_tied", dir);
        snprintf(want, sizeof want, "%s%s", dir, REFUSALS[i].text);
        assert_true(load(&m, dir, &e) < 0);
        check_error(e, REFUSALS[i].code, want);
        unload(&m);
        check_folder_remove(dir);
    }
}

static void old_rope_buffers_are_let_go(void **state)
{
    (void)state;
    const char *dir = check_folder();
    struct draft d;
    struct loaded m;
    struct err e = {0};
    draft_open(&d, "llama_tied");
    d.list[d.n] = *draft_find(&d, "model.norm.weight");
    d.list[d.n++].name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    draft_write(&d, "llama_tied", dir);
    check_ok(load(&m, dir, &e), e);
    unload(&m);
    check_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_laid_out_once_each),
        cmocka_unit_test(what_is_loaded_is_saved_to_the_byte),
        cmocka_unit_test(a_tied_head_is_stored_where_it_was),
        cmocka_unit_test(wider_weights_are_masters_and_rounded_once),
        cmocka_unit_test(the_saved_configuration_says_bfloat16),
        cmocka_unit_test(folders_of_another_model_are_refused),
        cmocka_unit_test(old_rope_buffers_are_let_go),
    };
    return cmocka_run_group_tests_name("folder", tests, NULL, NULL);
}
