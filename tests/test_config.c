/* config.json and generation_config.json: what is read, and every refusal by its exact text.
 */
#include "check.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/model.h"

/* The smallest accepted configuration; %s is where a case puts its fields. */
#define BASE                                                                                       \
    "{\"model_type\": \"llama\", \"vocab_size\": 100, \"hidden_size\": 32, "                       \
    "\"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4%s%s}"

/* Loads a folder with these two files; a NULL is not written. */
static int load(struct model_config *c, const char *config, const char *generation, struct err *e)
{
    const char *dir = check_folder(), *const text[] = {config, generation};
    const char *const name[] = {"config.json", "generation_config.json"};
    for (int i = 0; i < 2; i++) {
        char *path = file_join(dir, name[i]);
        if (text[i])
            check_ok(file_write_atomic(path, text[i], strlen(text[i]), e), *e);
        mem_free(path);
    }
    *e = (struct err){0};
    int rc = model_config_load(c, dir, e);
    // What comes after the folder's name, which changes from run to run.
    if (rc < 0 && strncmp(e->text, dir, strlen(dir)) == 0)
        memmove(e->text, e->text + strlen(dir), strlen(e->text) - strlen(dir) + 1);
    check_folder_remove(dir);
    return rc;
}

/* The base with these fields added. */
static int load_with(struct model_config *c, const char *fields, struct err *e)
{
    char text[2048];
    snprintf(text, sizeof text, BASE, *fields ? ", " : "", fields);
    return load(c, text, NULL, e);
}

static void defaults_are_the_families_own(void **state)
{
    (void)state;
    struct model_config c;
    struct err e = {0};
    check_ok(load_with(&c, "", &e), e);
    assert_int_equal(c.family, MODEL_LLAMA);
    assert_int_equal(c.V, 100);
    assert_int_equal(c.D, 32);
    assert_int_equal(c.F, 48);
    assert_int_equal(c.L, 2);
    assert_int_equal(c.H, 4);
    assert_int_equal(c.G, 4);
    assert_int_equal(c.E, 8);
    assert_int_equal(c.positions_max, 2048);
    assert_true(c.norm_eps == 1e-6f && c.rope_theta == 10000);
    assert_false(c.tied || c.qkv_bias || c.qk_norm || c.rope_llama3);
    assert_int_equal(c.n_eos, 0);
    assert_int_equal(c.bos, -1);
    assert_int_equal(c.pad, -1);
    check_ok(load_with(&c, "\"head_dim\": null", &e), e);
    assert_int_equal(c.E, 8);
}

static void families_have_their_parts(void **state)
{
    (void)state;
    struct model_config c;
    struct err e = {0};
    check_ok(model_config_load(&c, "tests/golden/models/qwen2_bias", &e), e);
    assert_true(c.family == MODEL_QWEN2 && c.qkv_bias && !c.qk_norm && c.tied);
    assert_true(c.H == 6 && c.G == 2 && c.E == 12 && c.rope_theta == 1e6);
    check_ok(model_config_load(&c, "tests/golden/models/qwen3_wide", &e), e);
    assert_true(c.family == MODEL_QWEN3 && !c.qkv_bias && c.qk_norm && !c.tied && c.E == 24);
    check_ok(
        load(&c,
             "{\"model_type\": \"qwen3\", \"vocab_size\": 100, \"hidden_size\": 32, "
             "\"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
             "\"architectures\": [\"Qwen3ForCausalLM\"]}",
             NULL, &e),
        e);
    assert_int_equal(c.E, 128); // Qwen3's default, whatever the width
}

static void both_styles_of_rope_are_read(void **state)
{
    (void)state;
    struct model_config c;
    struct err e = {0};
    static const char *const style[] = {
        "\"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32, "
        "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
        "\"original_max_position_embeddings\": 8192}",
        "\"rope_scaling\": null, \"rope_parameters\": {\"rope_type\": \"llama3\", "
        "\"rope_theta\": 500000.0, \"factor\": 32.0, \"low_freq_factor\": 1.0, "
        "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}",
        "\"rope_theta\": 5e5, \"rope_parameters\": null, \"rope_scaling\": {\"type\": \"llama3\", "
        "\"factor\": 32, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
        "\"original_max_position_embeddings\": 8192}",
    };
    for (size_t i = 0; i < ARRAY_LEN(style); i++) {
        check_ok(load_with(&c, style[i], &e), e);
        assert_true(c.rope_llama3 && c.rope_theta == 5e5 && c.rope_factor == 32);
        assert_true(c.rope_low == 1 && c.rope_high == 4 && c.rope_original == 8192);
    }
    check_ok(
        load_with(&c, "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 7}", &e),
        e);
    assert_true(!c.rope_llama3 && c.rope_theta == 7);
}

static void stop_ids_come_from_the_generation_config(void **state)
{
    (void)state;
    struct model_config c;
    struct err e = {0};
    char base[1024];
    snprintf(base, sizeof base, BASE, ", ",
             "\"eos_token_id\": 7, \"bos_token_id\": 5, \"pad_token_id\": 6");
    check_ok(load(&c, base, NULL, &e), e);
    assert_true(c.n_eos == 1 && c.eos[0] == 7 && c.bos == 5 && c.pad == 6);
    check_ok(load(&c, base, "{\"temperature\": 0.6}", &e), e);
    assert_true(c.n_eos == 1 && c.eos[0] == 7);
    check_ok(load(&c, base, "{\"eos_token_id\": [99, 0, 3]}", &e), e);
    assert_true(c.n_eos == 3 && c.eos[0] == 99 && c.eos[1] == 0 && c.eos[2] == 3);
    assert_true(load(&c, base, "{\"eos_token_id\": [99, 100]}", &e) < 0);
    check_error(
        e, ERR_FORMAT,
        "/generation_config.json: eos_token_id: expected ids from 0 to 99, below vocab_size");
    assert_true(load(&c, base, "{\"eos_token_id\": ", &e) < 0);
    check_error(e, ERR_FORMAT,
                "/generation_config.json:1: not valid JSON: unexpected token near end of file");
}

/* What is neutral may be there; a model that is not, is refused. */
static void neutral_fields_are_accepted(void **state)
{
    (void)state;
    struct model_config c;
    struct err e = {0};
    check_ok(load_with(&c,
                       "\"attention_dropout\": 0.0, \"mlp_bias\": false, \"pretraining_tp\": 1, "
                       "\"sliding_window\": 4096, \"use_sliding_window\": false, "
                       "\"layer_types\": [\"full_attention\", \"full_attention\"], "
                       "\"hidden_act\": \"silu\", \"quantization_config\": null, "
                       "\"rope_scaling\": null, \"attention_bias\": false, \"num_experts\": 0, "
                       "\"rope_interleaved\": false, \"is_causal\": true, "
                       "\"is_llama_config\": true, \"rope_theta\": 7, "
                       "\"rope_parameters\": {\"rope_type\": \"default\", \"type\": "
                       "\"default\", \"rope_theta\": 7, \"factor\": null}",
                       &e),
             e);
}

static void odd_numbers_pass_where_they_do_not_matter(void **state)
{
    (void)state;
    struct model_config c;
    struct err e = {0};
    check_ok(load_with(&c,
                       "\"summary_length\": 1000000000000000019884624838656, \"loss\": NaN, "
                       "\"task_specific_params\": {\"max_length\": [Infinity, -Infinity, 1e999]}",
                       &e),
             e);
    assert_int_equal(c.V, 100);
}

struct refusal {
    const char *fields;
    int code;
    const char *text; // after "/config.json: "
};

static const struct refusal REFUSALS[] = {
    {"\"attention_dropout\": 0.1", ERR_UNSUPPORTED,
     "attention_dropout = 0.1 is not supported; LoCo would compute something else"},
    {"\"num_local_experts\": 8", ERR_UNSUPPORTED,
     "num_local_experts = 8 is not supported; LoCo would compute something else"},
    {"\"use_sliding_window\": true", ERR_UNSUPPORTED,
     "use_sliding_window = true is not supported; LoCo would compute something else"},
    {"\"final_logit_softcapping\": 30", ERR_UNSUPPORTED,
     "final_logit_softcapping = 30 is not supported; LoCo would compute something else"},
    {"\"partial_rotary_factor\": 0.5", ERR_UNSUPPORTED,
     "partial_rotary_factor = 0.5 is not supported; LoCo would compute something else"},
    {"\"mlp_bias\": true", ERR_UNSUPPORTED,
     "mlp_bias = true is not supported; LoCo would compute something else"},
    {"\"quantization_config\": {\"bits\": 4}", ERR_UNSUPPORTED,
     "quantization_config is not supported; give a model without it"},
    {"\"layer_types\": [\"full_attention\", \"sliding_attention\"]", ERR_UNSUPPORTED,
     "layer_types[1] = 'sliding_attention' is not supported; every layer must be full_attention"},
    {"\"hidden_act\": \"gelu\"", ERR_UNSUPPORTED,
     "hidden_act 'gelu' is not supported; expected silu"},
    {"\"attention_bias\": true", ERR_UNSUPPORTED,
     "attention_bias = true is not supported for llama"},
    {"\"attention_bias\": 1", ERR_FORMAT, "attention_bias: expected true or false"},
    {"\"architectures\": [\"LlamaForSequenceClassification\"]", ERR_UNSUPPORTED,
     "architectures names 'LlamaForSequenceClassification'; expected LlamaForCausalLM"},
    {"\"num_key_value_heads\": 3", ERR_FORMAT,
     "num_attention_heads 4 is no multiple of num_key_value_heads 3"},
    {"\"num_key_value_heads\": 0", ERR_FORMAT,
     "num_key_value_heads: expected an integer from 1 to 16777216"},
    {"\"max_position_embeddings\": 2048.0", ERR_FORMAT,
     "max_position_embeddings: expected an integer from 1 to 16777216"},
    {"\"head_dim\": 7", ERR_UNSUPPORTED,
     "head_dim 7 is not supported; expected an even number up to 1024"},
    {"\"head_dim\": 2048", ERR_UNSUPPORTED,
     "head_dim 2048 is not supported; expected an even number up to 1024"},
    {"\"rms_norm_eps\": 0", ERR_FORMAT, "rms_norm_eps: expected a positive number"},
    {"\"rope_theta\": \"big\"", ERR_FORMAT, "rope_theta: expected a positive number"},
    {"\"rms_norm_eps\": 1e300", ERR_FORMAT,
     "rms_norm_eps: 1e+300 is out of range; expected a number of float32"},
    {"\"rms_norm_eps\": 1e-60", ERR_FORMAT,
     "rms_norm_eps: 1e-60 is out of range; expected a number of float32"},
    {"\"rope_theta\": 1e300", ERR_FORMAT,
     "rope_theta: 1e+300 is out of range; expected a number of float32"},
    {"\"rope_theta\": -1", ERR_FORMAT, "rope_theta: expected a positive number"},
    {"\"hidden_act\": 1", ERR_FORMAT, "hidden_act: expected a string"},
    {"\"layer_types\": [\"full_attention\"]", ERR_FORMAT,
     "layer_types has 1 entries, but num_hidden_layers is 2"},
    {"\"layer_types\": \"full_attention\"", ERR_FORMAT, "layer_types: expected a list"},
    {"\"is_causal\": false", ERR_UNSUPPORTED,
     "is_causal = false is not supported; LoCo would compute something else"},
    {"\"rope_interleaved\": true", ERR_UNSUPPORTED,
     "rope_interleaved = true is not supported; LoCo would compute something else"},
    {"\"dual_chunk_attention_config\": {\"chunk_size\": 8}", ERR_UNSUPPORTED,
     "dual_chunk_attention_config is not supported; give a model without it"},
    {"\"architectures\": \"LlamaForCausalLM\"", ERR_FORMAT,
     "architectures: expected a list of strings"},
    {"\"architectures\": [5]", ERR_FORMAT, "architectures: expected a list of strings"},
    {"\"rope_scaling\": {\"factor\": 8}", ERR_UNSUPPORTED,
     "rope_scaling: rope type 'default' has no 'factor'"},
    {"\"rope_scaling\": {\"rope_type\": 5, \"factor\": 8}", ERR_FORMAT,
     "rope_scaling: rope_type: expected a string"},
    {"\"rope_scaling\": {\"type\": {}}", ERR_FORMAT, "rope_scaling: type: expected a string"},
    {"\"rope_parameters\": {\"rope_type\": \"default\", \"factor\": 8}", ERR_UNSUPPORTED,
     "rope_parameters: rope type 'default' has no 'factor'"},
    {"\"rope_scaling\": {\"type\": \"yarn\", \"rope_type\": \"default\"}", ERR_FORMAT,
     "rope_scaling: rope_type 'default' and type 'yarn' disagree"},
    {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
     "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}, "
     "\"rope_parameters\": {\"rope_type\": \"default\"}",
     ERR_FORMAT, "rope_scaling and rope_parameters disagree; leave one"},
    {"\"rope_theta\": 5e5, \"rope_parameters\": {\"rope_theta\": 1e6}", ERR_FORMAT,
     "rope_theta is 500000, but 1000000 in rope_parameters"},
    {"\"rope_scaling\": 8", ERR_FORMAT, "rope_scaling: expected an object or null"},
    {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", ERR_UNSUPPORTED,
     "rope_scaling: rope type 'linear' is not supported; expected default or llama3"},
    {"\"rope_parameters\": {\"rope_type\": \"yarn\"}", ERR_UNSUPPORTED,
     "rope_parameters: rope type 'yarn' is not supported; expected default or llama3"},
    {"\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e6}}", ERR_UNSUPPORTED,
     "rope_parameters: an object per kind of layer is not supported; expected one for all"},
    {"\"rope_parameters\": {\"partial_rotary_factor\": 0.25}", ERR_UNSUPPORTED,
     "rope_parameters: partial_rotary_factor 0.25 is not supported; expected 1"},
    {"\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
     "\"high_freq_factor\": 1, \"original_max_position_embeddings\": 64}",
     ERR_FORMAT,
     "rope_parameters: llama3 needs factor, low_freq_factor < high_freq_factor and "
     "original_max_position_embeddings"},
    {"\"final_logit_softcapping\": Infinity", ERR_UNSUPPORTED,
     "final_logit_softcapping = Infinity is not supported; LoCo would compute something else"},
    {"\"max_position_embeddings\": 100000000000000000000", ERR_FORMAT,
     "max_position_embeddings: expected an integer from 1 to 16777216"},
    {"\"rope_theta\": NaN", ERR_FORMAT, "rope_theta: expected a positive number"},
    {"\"eos_token_id\": \"</s>\"", ERR_FORMAT,
     "eos_token_id: expected an integer or a list of at most 16"},
    {"\"eos_token_id\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]", ERR_FORMAT,
     "eos_token_id: expected an integer or a list of at most 16"},
    {"\"eos_token_id\": [2, -1]", ERR_FORMAT,
     "eos_token_id: expected ids from 0 to 99, below vocab_size"},
    {"\"eos_token_id\": 4294967298", ERR_FORMAT, // 2 in its lower half
     "eos_token_id: expected ids from 0 to 99, below vocab_size"},
};

static void what_changes_the_arithmetic_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(REFUSALS); i++) {
        struct model_config c;
        struct err e = {0};
        char want[512];
        snprintf(want, sizeof want, "/config.json: %s", REFUSALS[i].text);
        assert_true(load_with(&c, REFUSALS[i].fields, &e) < 0);
        check_error(e, REFUSALS[i].code, want);
    }
}

static const struct refusal TEXTS[] = {
    {"{\"model_type\": 5}", ERR_FORMAT, "/config.json: model_type: expected a string"},
    {NULL, ERR_IO,
     "/config.json: not found; expected a Hugging Face model folder with config.json, "
     "*.safetensors and tokenizer.json"},
    {"{\"model_type\": \"llama\",", ERR_FORMAT,
     "/config.json:1: not valid JSON: string or '}' expected near end of file"},
    {"[]", ERR_FORMAT, "/config.json: expected a JSON object"},
    {"{\"vocab_size\": 1, \"vocab_size\": 2}", ERR_FORMAT,
     "/config.json:1: not valid JSON: duplicate object key near '\"vocab_size\"'"},
    {"{}", ERR_FORMAT, "/config.json: model_type is missing; expected llama, qwen2 or qwen3"},
    {"{\"model_type\": \"gpt2\"}", ERR_UNSUPPORTED,
     "/config.json: model_type 'gpt2' is not supported; LoCo trains llama, qwen2 and qwen3"},
    {"{\"model_type\": \"llama\"}", ERR_FORMAT,
     "/config.json: vocab_size is missing; expected a positive integer"},
    {"{\"model_type\": \"llama\", \"vocab_size\": 100, \"hidden_size\": 32, "
     "\"intermediate_size\": 48, \"num_hidden_layers\": 5000, \"num_attention_heads\": 4}",
     ERR_UNSUPPORTED, "/config.json: num_hidden_layers 5000 is not supported; expected up to 1024"},
    {"{\"model_type\": \"llama\", \"vocab_size\": 100, \"hidden_size\": 65536, "
     "\"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 512}",
     ERR_UNSUPPORTED,
     "/config.json: num_attention_heads 512 and num_key_value_heads 512 of head_dim 128 are not "
     "supported; q, k and v of a token may have 65536 numbers"},
};

/* By hand: of one row, 6 + 2 + 9 columns of 2 in the layer; of one key, a score and a value. */
static void operations_are_counted(void **state)
{
    (void)state;
    struct model_config c = {.L = 1, .D = 2, .H = 1, .G = 1, .E = 2, .F = 3, .V = 5};
    assert_true(model_flops(&c, 1, 0, 0) == 2 * 2 * 17);
    assert_true(model_flops(&c, 0, 1, 0) == 2 * 2 * 5);
    assert_true(model_flops(&c, 0, 0, 1) == 2 * 2 * 2);
    c.L = 3;
    assert_true(model_flops(&c, 7, 4, 5) == 7 * 3 * 68 + 4 * 20 + 5 * 3 * 8);
}

static void a_nul_among_the_numbers_is_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"vocab_size\": 256\0}";
    const char *dir = check_folder();
    char *path = file_join(dir, "config.json");
    struct model_config c;
    struct err e = {0};
    struct buf want = {0};
    buf_printf(&want, "%s: not valid JSON: a NUL at byte 18", path);
    check_ok(file_write_atomic(path, text, sizeof text - 1, &e), e);
    assert_true(model_config_load(&c, dir, &e) < 0);
    check_error(e, ERR_FORMAT, buf_str(&want));
    buf_release(&want);
    mem_free(path);
    check_folder_remove(dir);
}

static void files_that_are_no_configuration_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) {
        struct model_config c;
        struct err e = {0};
        assert_true(load(&c, TEXTS[i].fields, NULL, &e) < 0);
        check_error(e, TEXTS[i].code, TEXTS[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_families_own),
        cmocka_unit_test(families_have_their_parts),
        cmocka_unit_test(both_styles_of_rope_are_read),
        cmocka_unit_test(stop_ids_come_from_the_generation_config),
        cmocka_unit_test(neutral_fields_are_accepted),
        cmocka_unit_test(odd_numbers_pass_where_they_do_not_matter),
        cmocka_unit_test(what_changes_the_arithmetic_is_refused_by_name),
        cmocka_unit_test(operations_are_counted),
        cmocka_unit_test(a_nul_among_the_numbers_is_refused),
        cmocka_unit_test(files_that_are_no_configuration_are_refused),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
