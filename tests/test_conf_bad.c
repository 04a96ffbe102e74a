/* Every configuration that is refused, with its exact message. */
#include "check_conf.h"

/* Arguments that loco train gets beside those it needs. */
struct extra {
    const char *args[3];
    const char *message;
};

static const struct extra bad_arguments[] = {
    {{"top_k=5"}, "command line: no option 'top_k'; loco train --help lists all"},
    {{"--num_generation", "4"},
     "command line: no option 'num_generation'; did you mean 'num_generations'?"},
    {{"arch=qwen3"}, "command line: 'arch' is an option of loco init, not of this command"},
    {{"stray"},
     "command line: unexpected argument 'stray'; options are --name value or name=value"},
    {{"-n"}, "command line: unexpected argument '-n'; options are --name value or name=value"},
    {{"--seed"},
     "command line: seed: a value is missing, expected an integer from 0 to 18446744073709551615"},
    {{"--max_steps", "--dry_run"},
     "command line: max_steps: a value is missing, expected an integer of at least 1, or none"},
    {{"seed=1.5"},
     "command line: seed: expected an integer from 0 to 18446744073709551615, got '1.5'"},
    {{"seed=18446744073709551616"},
     "command line: seed: expected an integer from 0 to 18446744073709551615, got "
     "'18446744073709551616'"},
    {{"seed=-1"},
     "command line: seed: expected an integer from 0 to 18446744073709551615, got '-1'"},
    {{"prompt_template="}, "command line: prompt_template: expected a text, got nothing"},
    {{"seed=none"},
     "command line: seed: expected an integer from 0 to 18446744073709551615, got 'none'"},
    {{"max_steps=0"},
     "command line: max_steps: expected an integer of at least 1, or none, got '0'"},
    {{"learning_rate=nan"},
     "command line: learning_rate: expected a number from 0 to below 10, got 'nan'"},
    {{"adam_beta1=1"}, "command line: adam_beta1: expected a number from 0 to below 1, got '1'"},
    {{"shuffle_dataset=yes"}, "command line: shuffle_dataset: expected true or false, got 'yes'"},
    {{"loss_type=ppo"},
     "command line: loss_type: expected one of grpo, dapo, dr_grpo, bnpo, got 'ppo'"},
    {{"scale_rewards=False"},
     "command line: scale_rewards: expected one of group, none, got 'False'"},
    {{"model=None"}, "command line: model: expected a text, got 'None'"},
    {{"output_dir=true"}, "command line: output_dir: expected a text, got 'true'"},
    {{"reward=math,,exact"},
     "command line: reward: expected names separated by commas, got nothing"},
    {{"reward=math,math"}, "command line: reward: 'math' is named twice; name it once"},
    {{"reward_weights=1,x"},
     "command line: reward_weights: expected numbers separated by commas, or none, got 'x'"},
    {{"kv_memory=2GB"},
     "command line: kv_memory: expected a size of at least 1MiB such as "
     "512MiB or 2G, or auto, got '2GB'"},
    {{"max_steps=9223372036854775807"},
     "command line: max_steps: expected an integer of at most 1000000000000000, or none, got "
     "'9223372036854775807'"},
    {{"max_steps=99999999999999999999999"},
     "command line: max_steps: expected an integer of at most 1000000000000000, or none, got "
     "'99999999999999999999999'"},
    {{"microbatch_tokens=1000000000000001"},
     "command line: microbatch_tokens: expected an integer of at most 1000000000000000, got "
     "'1000000000000001'"},
    {{"microbatch_tokens=0"},
     "command line: microbatch_tokens: expected an integer of at least 1, got '0'"},
    {{"num_train_epochs=1e18"},
     "command line: num_train_epochs: expected a number below 1e+15, got '1e18'"},
    {{"num_train_epochs=1e999"},
     "command line: num_train_epochs: expected a number below 1e+15, got '1e999'"},
    {{"kv_memory=99999999999T"},
     "command line: kv_memory: expected a size of at most 1000000000000000 bytes, or auto, got "
     "'99999999999T'"},
    {{"reward_weights=1e300"},
     "command line: reward_weights: expected a number below 1e+15, or none, got '1e300'"},
    {{"reward_weights=-1e300"},
     "command line: reward_weights: expected a number of at least -1e+15, or none, got '-1e300'"},
    {{"learning_rate=1e-400"},
     "command line: learning_rate: expected 0 or a number of at least 5e-324, the least that a "
     "double holds, got '1e-400'"},
    {{"config=true"}, "command line: config: expected a text, or none, got 'true'"},
    {{"model=a\x1b[2J\xff"}, "command line: model: the value is not UTF-8"},
    {{"seed=\x1b[2J"},
     "command line: seed: expected an integer from 0 to 18446744073709551615, got "
     "'\\x1b[2J'"},
};

static const struct extra bad_together[] = {
    {{"num_generations=1"},
     "num_generations: expected at least 2, since an advantage compares samples of one prompt, "
     "got 1"},
    {{"temperature=0"},
     "temperature: expected more than 0 in training, since all samples of a "
     "prompt would be the same"},
    {{"prompt_template=Q:"}, "prompt_template: expected {prompt} in it once, got 'Q:'"},
    {{"reward_weights=1,2"},
     "reward_weights: got 2 for 1 reward; give one for each, in their order, or none for 1 each"},
    {{"reduction_leaves=3"},
     "reduction_leaves: expected a power of two of at most prompts_per_step (8), got 3"},
    {{"reduction_leaves=16"},
     "reduction_leaves: expected a power of two of at most prompts_per_step (8), got 16"},
    {{"warmup_steps=3", "warmup_ratio=0.1"},
     "warmup_steps and warmup_ratio: expected one of them, got 3 and 0.1"},
    {{"warmup_steps=3", "lr_scheduler_type=constant"},
     "lr_scheduler_type: constant has no warm-up; expected constant_with_warmup"},
    {{"num_train_epochs=0"}, "num_train_epochs: expected more than 0 where max_steps is none"},
    {{"eval_steps=5"}, "eval_data: expected a file, since eval_steps is set"},
    {{"eval_on_start=true"}, "eval_data: expected a file, since eval_on_start is set"},
    {{"eval_data=t.jsonl"}, "eval_data: nothing would use it; set eval_steps or eval_on_start"},
    {{"--load_best_model_at_end"}, "load_best_model_at_end: expected eval_steps to be set"},
};

static const struct {
    enum conf_command command;
    const char *args[4];
    const char *message;
} bad_calls[] = {
    {CONF_TRAIN, {"data=d"}, "--model is missing: Hugging Face model folder"},
    {CONF_TRAIN,
     {"model=m", "data=d", "output_dir=o"},
     "--reward is missing: rewards by name: exact, format, math, random; several "
     "separated "
     "by commas"},
    {CONF_INSPECT, {NULL}, "path is missing: folder or file to look at"},
    {CONF_INSPECT, {"--xath", "p"}, "command line: no option 'xath'; did you mean 'path'?"},
    {CONF_GENERATE, {"model=m"}, "give one of --prompt and --prompts"},
    {CONF_GENERATE, {"model=m", "prompt=a", "prompts=b"}, "give one of --prompt and --prompts"},
    {CONF_INIT,
     {"out=o", "hidden_size=30"},
     "head_dim: hidden_size (30) is no multiple of num_attention_heads (4), so it must be "
     "given"},
    {CONF_INIT, {"out=o", "hidden_size=12"}, "head_dim: expected an even number, got 3"},
    {CONF_INIT,
     {"out=o", "num_key_value_heads=3"},
     "num_key_value_heads: expected a divisor of num_attention_heads (4), got 3"},
};

static const struct {
    const char *text;
    int code;
    const char *message;
} bad_yaml[] = {
    {"model: m\nlearning_rate: fast\n", ERR_USAGE,
     "run.yaml:2: learning_rate: expected a number from 0 to below 10, got 'fast'"},
    {"\n\nlearning_rate: '1e-6'\n", ERR_USAGE,
     "run.yaml:3: learning_rate: expected a number from 0 to below 10, got the text '1e-6'"},
    {"seed: 1\nbeta: 0\nseed: 2\n", ERR_USAGE, "run.yaml:3: seed: given twice, first in line 1"},
    {"save-steps: 1\nsave_steps: 2\n", ERR_USAGE,
     "run.yaml:2: save_steps: given twice, first in line 1"},
    {"modle: m\n", ERR_USAGE, "run.yaml:1: no option 'modle'; did you mean 'model'?"},
    {"config: x.yaml\n", ERR_USAGE,
     "run.yaml:1: config: a file does not name another; give --config twice"},
    {"model:\n  name: m\n", ERR_USAGE, "run.yaml:2: model: expected one value, got a mapping"},
    {"model: [m]\n", ERR_USAGE, "run.yaml:1: model: expected one value, got a list"},
    {"reward: [math, [format]]\n", ERR_USAGE, "run.yaml:1: reward: expected one value, got a list"},
    {"reward: []\n", ERR_USAGE,
     "run.yaml:1: reward: expected names separated by commas, got nothing"},
    {"reward: {math: 1}\n", ERR_USAGE, "run.yaml:1: reward: expected one value, got a mapping"},
    {"model:\n", ERR_USAGE, "run.yaml:1: model: expected a text, got nothing"},
    {"model: null\n", ERR_USAGE, "run.yaml:1: model: expected a text, got 'null'"},
    {"model: \"a\\0b\"\n", ERR_USAGE, "run.yaml:1: model: a NUL inside a value"},
    {"model: &a m\ndata: *a\n", ERR_USAGE,
     "run.yaml:1: model: anchors and tags have no meaning here"},
    {"data: *a\n", ERR_USAGE, "run.yaml:1: data: expected one value, got an alias"},
    {"seed: !!str 3\n", ERR_USAGE, "run.yaml:1: seed: anchors and tags have no meaning here"},
    {"- a\n- b\n", ERR_USAGE, "run.yaml:1: expected lines of 'name: value', got a list"},
    {"just text\n", ERR_USAGE, "run.yaml:1: expected lines of 'name: value', got a value"},
    {"seed: 1\n---\nseed: 2\n", ERR_USAGE, "run.yaml:2: a second document; a configuration is one"},
    {"seed: 1\nmodel: m: n\n", ERR_FORMAT,
     "run.yaml:2: not YAML: mapping values are not allowed in this context"},
    {"model: \"abc\n", ERR_FORMAT, "run.yaml:2: not YAML: found unexpected end of stream"},
    {"model: \xff\n", ERR_FORMAT, "run.yaml:1: not YAML: invalid leading UTF-8 octet"},
    {"", ERR_USAGE, "--model is missing: Hugging Face model folder"},
};

static void check_extra(const struct extra *bad)
{
    struct conf c = {0};
    struct err e = {0};
    PARSE(&c, CONF_TRAIN, &e, TRAIN_ARGS, bad->args[0], bad->args[1], bad->args[2]);
    check_error(e, ERR_USAGE, bad->message);
    assert_null(c.model);
}

/* What is said of a misspelt option: the right one, or none where nothing is near. */
static const char *const misspelt[][2] = {
    {"moedl", "model"},
    {"temprature", "temperature"},
    {"max_completion_len", "max_completion_length"},
    {"max-completion", "max_completion_length"},
    {"seeds", "seed"},
    {"model_name_or_path", "model"},
    {"output", "output_dir"},
    {"learningrate", "learning_rate"},
    {"hlep", "help"},
    {"lr", NULL},
    {"max", NULL},
    {"save", NULL}, // save_steps, save_total_limit
    {"reward_funcs", "reward"},
    {"batch_size", NULL},
    {"dataset", NULL},
    {"per_device_train_batch_size", NULL},
    {"xyzzy", NULL},
    {"", NULL},
};

static void only_near_names_are_suggested(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(misspelt); i++) {
        struct conf c = {0};
        struct err e = {0};
        char arg[64], want[200];
        snprintf(arg, sizeof arg, "--%s", misspelt[i][0]);
        PARSE(&c, CONF_TRAIN, &e, arg, "1");
        if (misspelt[i][1])
            snprintf(want, sizeof want, "command line: no option '%s'; did you mean '%s'?",
                     misspelt[i][0], misspelt[i][1]);
        else
            snprintf(want, sizeof want, "command line: no option '%s'; loco train --help lists all",
                     misspelt[i][0]);
        check_error(e, ERR_USAGE, want);
    }
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad_arguments); i++)
        check_extra(&bad_arguments[i]);
}

static void knobs_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad_together); i++)
        check_extra(&bad_together[i]);
}

static void calls_without_what_they_need_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad_calls); i++) {
        struct conf c = {0};
        struct err e = {0};
        parse(&c, bad_calls[i].command, bad_calls[i].args, &e);
        check_error(e, ERR_USAGE, bad_calls[i].message);
    }
}

static void unknown_commands_are_refused(void **state)
{
    (void)state;
    enum conf_command command;
    struct err e = {0};
    assert_int_equal(conf_command_find("trian", &command, &e), ERR_USAGE);
    check_error(e, ERR_USAGE, "no command 'trian'; did you mean 'train'? loco --help lists all");
    assert_int_equal(conf_command_find("sft", &command, &e), 0);
    assert_int_equal(command, CONF_SFT);
}

static void bad_yaml_is_refused_with_its_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad_yaml); i++) {
        struct conf c = {0};
        struct err e = {0};
        read_yaml(&c, CONF_TRAIN, bad_yaml[i].text, &e);
        check_error(e, bad_yaml[i].code, bad_yaml[i].message);
        assert_null(c.model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(only_near_names_are_suggested),
        cmocka_unit_test(knobs_that_contradict_each_other_are_refused),
        cmocka_unit_test(calls_without_what_they_need_are_refused),
        cmocka_unit_test(unknown_commands_are_refused),
        cmocka_unit_test(bad_yaml_is_refused_with_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
