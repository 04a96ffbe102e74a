/* Configuration: values are read strictly, every refusal has its exact message, what is saved reads
 * back to the same bytes, and docs/CONFIG.md is what the table says.
 *
 * `test_conf --write` writes docs/CONFIG.md anew.
 */
#include "check.h"

#include "conf/conf.h"

#include "base/file.h"
#include "base/mem.h"

#define PAGE       "docs/CONFIG.md"
#define TRAIN_ARGS "model=m", "data=d.jsonl", "output_dir=run", "reward=exact"

#define PARSE(c, command, e, ...) parse(c, command, (const char *const[]){__VA_ARGS__, NULL}, e)

static int parse(struct conf *c, enum conf_command command, const char *const *argv, struct err *e)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    return conf_parse(c, command, argc, argv, e);
}

static int read_yaml(struct conf *c, enum conf_command command, const char *text, struct err *e)
{
    return conf_read_text(c, command, "run.yaml", text, strlen(text), e);
}

static void defaults_are_those_of_trl(void **state)
{
    (void)state;
    struct conf c = {0};
    struct err e = {0};
    assert_int_equal(PARSE(&c, CONF_TRAIN, &e, TRAIN_ARGS), 0);
    assert_string_equal(c.model, "m");
    assert_int_equal(c.reward.n, 1);
    assert_string_equal(c.reward.item[0], "exact");
    assert_int_equal(c.num_generations, 8);
    assert_int_equal(c.max_completion_length, 512);
    assert_true(c.learning_rate == 1e-6);
    assert_true(c.adam_beta2 == 0.999);
    assert_int_equal(c.loss_type, CONF_LOSS_DAPO);
    assert_int_equal(c.scale_rewards, CONF_SCALE_GROUP);
    assert_int_equal(c.lr_scheduler_type, CONF_LR_LINEAR);
    assert_true(c.beta == 0.0 && c.use_bias_correction_kl && c.shuffle_dataset);
    assert_int_equal(c.seed, 42);
    assert_null(c.eval_data);
    conf_release(&c);
    conf_release(&c);
}

static void words_that_mean_other_knobs_are_resolved(void **state)
{
    (void)state;
    struct conf c = {0};
    struct err e = {0};
    assert_int_equal(PARSE(&c, CONF_TRAIN, &e, TRAIN_ARGS, "epsilon=0.25", "temperature=0.7",
                           "prompts_per_step=6", "--reward", "math,format"),
                     0);
    assert_true(c.epsilon_high == 0.25);
    assert_true(c.eval_temperature == 0.7);
    assert_int_equal(c.num_generations_eval, 8);
    assert_int_equal(c.reduction_leaves, 4);
    assert_int_equal(c.reward_weights.n, 2);
    assert_true(c.reward_weights.item[1] == 1.0);
    assert_int_equal(c.threads, 0);
    conf_release(&c);
    assert_int_equal(PARSE(&c, CONF_INIT, &e, "--out", "m", "hidden_size=96"), 0);
    assert_int_equal(c.num_key_value_heads, 4);
    assert_int_equal(c.head_dim, 24);
    assert_int_equal(c.intermediate_size, 384);
    conf_release(&c);
}

static void commands_have_defaults_of_their_own(void **state)
{
    (void)state;
    struct conf c = {0};
    struct err e = {0};
    assert_int_equal(PARSE(&c, CONF_SFT, &e, "model=m", "data=d", "output_dir=o"), 0);
    assert_true(c.learning_rate == 2e-5);
    conf_release(&c);
    assert_int_equal(PARSE(&c, CONF_EVAL, &e, "model=m", "data=d", "reward=math"), 0);
    assert_int_equal(c.num_generations, 1);
    conf_release(&c);
}

static void all_spellings_of_an_option_are_one(void **state)
{
    (void)state;
    static const char *const spelling[][3] = {
        {"--save_steps", "7"}, {"--save-steps", "7"}, {"--save_steps=7"},
        {"--save-steps=7"},    {"save_steps=7"},      {"save-steps=7"},
    };
    for (size_t i = 0; i < ARRAY_LEN(spelling); i++) {
        struct conf c = {0};
        struct err e = {0};
        assert_int_equal(PARSE(&c, CONF_TRAIN, &e, TRAIN_ARGS, spelling[i][0], spelling[i][1]), 0);
        assert_int_equal(c.save_steps, 7);
        conf_release(&c);
    }
}

static void a_flag_alone_is_true_and_takes_only_truth_values(void **state)
{
    (void)state;
    struct conf c = {0};
    struct err e = {0};
    assert_int_equal(PARSE(&c, CONF_LOGPROBS, &e, "--model", "m", "rows.jsonl"), 0);
    assert_string_equal(c.rows, "rows.jsonl");
    conf_release(&c);
    assert_int_equal(PARSE(&c, CONF_TOKENIZE, &e, "--model", "m", "--jsonl", "a/x=y.txt"), 0);
    assert_true(c.jsonl);
    assert_string_equal(c.rows, "a/x=y.txt");
    conf_release(&c);
    assert_int_equal(PARSE(&c, CONF_TOKENIZE, &e, "--model", "m", "--jsonl", "False"), 0);
    assert_false(c.jsonl);
    conf_release(&c);
}

static void help_wins_over_everything(void **state)
{
    (void)state;
    struct conf c = {0};
    struct err e = {0};
    struct buf text = {0};
    assert_int_equal(PARSE(&c, CONF_TRAIN, &e, "nonsense", "--help"), 0);
    assert_true(c.help);
    conf_release(&c);
    conf_help(CONF_TRAIN, &text);
    assert_non_null(strstr(buf_str(&text),
                           "\nObjective\n  --loss_type  one of grpo, dapo, dr_grpo, "
                           "bnpo (default dapo)\n"));
    assert_non_null(strstr(buf_str(&text), "  --model  a text (required)\n"));
    assert_null(strstr(buf_str(&text), "--arch"));
    buf_clear(&text);
    conf_help(CONF_SFT, &text);
    assert_non_null(strstr(buf_str(&text), "(default 2e-5)"));
    buf_clear(&text);
    conf_commands_help(&text);
    assert_non_null(strstr(buf_str(&text), "  sft        supervised warm start\n"));
    buf_release(&text);
}

static void sizes_are_powers_of_1024(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"memory_budget=2G", 2ll << 30},
                {"memory_budget=512MiB", 512ll << 20},
                {"memory_budget=1048577", 1048577},
                {"memory_budget=3TiB", 3ll << 40},
                {"memory_budget=auto", 0}};
    static const char *const bad[] = {"2GB", "1.5G",    "G",  "-1G",  "2g",
                                      "",    "512 MiB", "1K", "none", "99999999999T"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct conf c = {0};
        struct err e = {0};
        assert_int_equal(PARSE(&c, CONF_TRAIN, &e, TRAIN_ARGS, good[i].text), 0);
        assert_int_equal(c.memory_budget, good[i].bytes);
        conf_release(&c);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct conf c = {0};
        struct err e = {0};
        assert_int_equal(PARSE(&c, CONF_TRAIN, &e, TRAIN_ARGS, "--memory_budget", bad[i]),
                         ERR_USAGE);
    }
}

static void yaml_values_are_read_strictly(void **state)
{
    (void)state;
    struct conf c = {0};
    struct err e = {0};
    int rc = read_yaml(&c, CONF_TRAIN,
                       "# a comment\n"
                       "model: \"None\"\n"
                       "data: d.jsonl\n"
                       "output-dir: 'run'\n"
                       "reward: [math, format]\n"
                       "reward_weights: [1, 0.5]\n"
                       "prompt_template: \"Q: {prompt}\\nA:\\u00A0\"\n"
                       "learning_rate: 1e-6\n"
                       "max_steps: null\n"
                       "shuffle_dataset: False\n"
                       "kv_memory: 64MiB\n",
                       &e);
    check_ok(rc, e);
    assert_string_equal(c.model, "None");
    assert_string_equal(c.prompt_template, "Q: {prompt}\nA:\u00a0");
    assert_true(c.reward_weights.item[1] == 0.5);
    assert_int_equal(c.max_steps, 0);
    assert_false(c.shuffle_dataset);
    assert_int_equal(c.kv_memory, 64 << 20);
    conf_release(&c);
}

static void later_sources_win(void **state)
{
    (void)state;
    struct conf c = {0};
    struct err e = {0};
    const char *folder = check_folder();
    char *yaml = file_join(folder, "run.yaml");
    static const char text[] = "model: from-file\nseed: 7\noutput_dir: run\n";
    assert_int_equal(file_write_atomic(yaml, text, strlen(text), &e), 0);
    assert_int_equal(
        PARSE(&c, CONF_TRAIN, &e, "seed=9", "--config", yaml, "data=d", "reward=exact"), 0);
    assert_string_equal(c.model, "from-file");
    assert_int_equal(c.seed, 9);
    conf_release(&c);
    check_folder_remove(folder);
    assert_int_equal(PARSE(&c, CONF_TRAIN, &e, "--config", yaml), ERR_IO);
    mem_free(yaml);
}

/* Each refusal of a value, a name or a line, with its exact message. */
static void refusals_of_the_command_line(void **state)
{
    (void)state;
    static const struct {
        const char *args[4];
        const char *message;
    } bad[] = {
        {{"top_k=5"}, "command line: loco train has no option 'top_k'; the nearest is 'model'"},
        {{"--num_generation", "4"},
         "command line: loco train has no option 'num_generation'; the nearest is "
         "'num_generations'"},
        {{"arch=qwen3"}, "command line: 'arch' is an option of loco init, not of loco train"},
        {{"stray"},
         "command line: unexpected argument 'stray'; options are --name value or name=value"},
        {{"-n"}, "command line: unexpected argument '-n'; options are --name value or name=value"},
        {{"--seed"}, "command line: seed: a value is missing, expected an integer of at least 0"},
        {{"--max_steps", "--dry_run"},
         "command line: max_steps: a value is missing, expected an integer of at least 1, or none"},
        {{"seed=1.5"}, "command line: seed: expected an integer of at least 0, got '1.5'"},
        {{"seed=none"}, "command line: seed: expected an integer of at least 0, got 'none'"},
        {{"max_steps=0"},
         "command line: max_steps: expected an integer of at least 1, or none, got '0'"},
        {{"learning_rate=nan"},
         "command line: learning_rate: expected a number from 0 to below 10, got 'nan'"},
        {{"adam_beta1=1"},
         "command line: adam_beta1: expected a number from 0 to below 1, got '1'"},
        {{"shuffle_dataset=yes"},
         "command line: shuffle_dataset: expected true or false, got 'yes'"},
        {{"loss_type=ppo"},
         "command line: loss_type: expected one of grpo, dapo, dr_grpo, bnpo, got 'ppo'"},
        {{"scale_rewards=False"},
         "command line: scale_rewards: expected one of group, none, got 'False'"},
        {{"model=None"}, "command line: model: expected a text, got 'None'"},
        {{"output_dir=true"}, "command line: output_dir: expected a text, got 'true'"},
        {{"reward=math,,exact"},
         "command line: reward: expected names separated by commas, each once, got ''"},
        {{"reward=math,math"},
         "command line: reward: expected names separated by commas, each once, got 'math'"},
        {{"reward_weights=1,x"},
         "command line: reward_weights: expected numbers separated by commas, or none, got 'x'"},
        {{"kv_memory=2GB"},
         "command line: kv_memory: expected a size of at least 1MiB such as "
         "512MiB or 2G, or auto, got '2GB'"},
        {{"model=a\x1b[2J\xff"}, "command line: model: the value is not UTF-8"},
        {{"seed=\x1b[2J"},
         "command line: seed: expected an integer of at least 0, got "
         "'\\x1b[2J'"},
        {{"num_generations=1"},
         "num_generations: expected at least 2, since an advantage compares samples of one prompt, "
         "got 1"},
        {{"temperature=0"},
         "temperature: expected more than 0 in training, since all samples of a "
         "prompt would be the same"},
        {{"prompt_template=Q:"}, "prompt_template: expected {prompt} in it once, got 'Q:'"},
        {{"reward_weights=1,2"}, "reward_weights: expected one for each reward, 1, got 2"},
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
        {{"--load_best_model_at_end", "eval_data=t", "eval_steps=3"},
         "load_best_model_at_end: expected save_steps (500) to be a multiple of eval_steps (3), so "
         "that what is saved was evaluated"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct conf c = {0};
        struct err e = {0};
        PARSE(&c, CONF_TRAIN, &e, TRAIN_ARGS, bad[i].args[0], bad[i].args[1], bad[i].args[2]);
        check_error(e, ERR_USAGE, bad[i].message);
        assert_null(c.model);
    }
}

static void refusals_of_other_commands(void **state)
{
    (void)state;
    static const struct {
        enum conf_command command;
        const char *args[4];
        const char *message;
    } bad[] = {
        {CONF_TRAIN, {"data=d"}, "loco train needs --model: Hugging Face model folder"},
        {CONF_TRAIN,
         {"model=m", "data=d", "output_dir=o"},
         "loco train needs --reward: rewards by name: exact, format, math, random; several "
         "separated "
         "by commas"},
        {CONF_INSPECT, {NULL}, "loco inspect needs path: folder or file to look at"},
        {CONF_INSPECT,
         {"--xath", "p"},
         "command line: loco inspect has no option 'xath'; the nearest is 'path'"},
        {CONF_GENERATE, {"model=m"}, "loco generate needs --prompt or --prompts: one of them"},
        {CONF_GENERATE,
         {"model=m", "prompt=a", "prompts=b"},
         "loco generate needs --prompt or --prompts: one of them"},
        {CONF_INIT,
         {"out=o", "hidden_size=30"},
         "head_dim: hidden_size (30) is no multiple of num_attention_heads (4), so it must be "
         "given"},
        {CONF_INIT, {"out=o", "hidden_size=12"}, "head_dim: expected an even number, got 3"},
        {CONF_INIT,
         {"out=o", "num_key_value_heads=3"},
         "num_key_value_heads: expected a divisor of num_attention_heads (4), got 3"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct conf c = {0};
        struct err e = {0};
        assert_int_equal(parse(&c, bad[i].command, bad[i].args, &e), ERR_USAGE);
        assert_string_equal(e.text, bad[i].message);
    }
    enum conf_command command;
    struct err e = {0};
    assert_int_equal(conf_command_find("trian", &command, &e), ERR_USAGE);
    assert_string_equal(
        e.text, "loco has no command 'trian'; the nearest is 'train', all are in loco --help");
    assert_int_equal(conf_command_find("sft", &command, &e), 0);
    assert_int_equal(command, CONF_SFT);
}

static void refusals_of_yaml(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        const char *message;
    } bad[] = {
        {"model: m\nlearning_rate: fast\n", ERR_USAGE,
         "run.yaml:2: learning_rate: expected a number from 0 to below 10, got 'fast'"},
        {"\n\nlearning_rate: '1e-6'\n", ERR_USAGE,
         "run.yaml:3: learning_rate: expected a number from 0 to below 10, got the text '1e-6'"},
        {"seed: 1\nbeta: 0\nseed: 2\n", ERR_USAGE,
         "run.yaml:3: seed: given twice, first in line 1"},
        {"save-steps: 1\nsave_steps: 2\n", ERR_USAGE,
         "run.yaml:2: save_steps: given twice, first in line 1"},
        {"modle: m\n", ERR_USAGE,
         "run.yaml:1: loco train has no option 'modle'; the nearest is 'model'"},
        {"config: x.yaml\n", ERR_USAGE,
         "run.yaml:1: config: a file does not name another; give --config twice"},
        {"model:\n  name: m\n", ERR_USAGE, "run.yaml:2: model: expected one value, got a mapping"},
        {"model: [m]\n", ERR_USAGE, "run.yaml:1: model: expected one value, got a list"},
        {"reward: [math, [format]]\n", ERR_USAGE,
         "run.yaml:1: reward: expected one value, got a list"},
        {"reward: []\n", ERR_USAGE,
         "run.yaml:1: reward: expected names separated by commas, each once, got ''"},
        {"reward: {math: 1}\n", ERR_USAGE, "run.yaml:1: reward: expected one value, got a mapping"},
        {"model:\n", ERR_USAGE, "run.yaml:1: model: expected a text, got ''"},
        {"model: null\n", ERR_USAGE, "run.yaml:1: model: expected a text, got 'null'"},
        {"model: \"a\\0b\"\n", ERR_USAGE, "run.yaml:1: model: a NUL inside a value"},
        {"model: &a m\ndata: *a\n", ERR_USAGE,
         "run.yaml:1: model: anchors and tags have no meaning here"},
        {"data: *a\n", ERR_USAGE, "run.yaml:1: data: expected one value, got an alias"},
        {"seed: !!str 3\n", ERR_USAGE, "run.yaml:1: seed: anchors and tags have no meaning here"},
        {"- a\n- b\n", ERR_USAGE, "run.yaml:1: expected lines of 'name: value', got a list"},
        {"just text\n", ERR_USAGE, "run.yaml:1: expected lines of 'name: value', got a value"},
        {"seed: 1\n---\nseed: 2\n", ERR_USAGE,
         "run.yaml:2: a second document; a configuration is one"},
        {"seed: 1\nmodel: m: n\n", ERR_FORMAT,
         "run.yaml:2: not YAML: mapping values are not allowed in this context"},
        {"model: \"abc\n", ERR_FORMAT, "run.yaml:2: not YAML: found unexpected end of stream"},
        {"model: \xff\n", ERR_FORMAT, "run.yaml:1: not YAML: invalid leading UTF-8 octet"},
        {"", ERR_USAGE, "loco train needs --model: Hugging Face model folder"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct conf c = {0};
        struct err e = {0};
        read_yaml(&c, CONF_TRAIN, bad[i].text, &e);
        check_error(e, bad[i].rc, bad[i].message);
    }
}

static void a_saved_configuration_reads_back_to_the_same_bytes(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "model=a \"b\"\\ \x01\x7f\t\u00e9\u2028\ufeff\U0001f600 # : x",
        "prompt_template= {prompt}\n\n'- ",
        "learning_rate=3.3333333333333335e-05",
        "epsilon_high=0.1",
        "memory_budget=1025K",
        "reward=a,b: c",
        "reward_weights=-0.1,1e300",
        "max_steps=123456789",
        "gold_rule=boxed",
        "num_train_epochs=10",
        "eval_steps=100",
        "eval_data=none.jsonl",
        "log_completions=true",
        NULL};
    const char *args[32] = {TRAIN_ARGS};
    for (size_t n = 4, i = 0; odd[i]; i++)
        args[n++] = odd[i];
    struct conf first = {0}, second = {0};
    struct err e = {0};
    struct buf a = {0}, b = {0};
    assert_int_equal(parse(&first, CONF_TRAIN, args, &e), ERR_USAGE);
    assert_string_equal(e.text,
                        "command line: reward_weights: expected numbers separated by commas, "
                        "or none, got '1e300'");
    args[10] = "reward_weights=-0.1,12345678.9";
    e = (struct err){0};
    assert_int_equal(parse(&first, CONF_TRAIN, args, &e), 0);
    conf_yaml(&first, &a);
    int rc = read_yaml(&second, CONF_TRAIN, buf_str(&a), &e);
    check_ok(rc, e);
    conf_yaml(&second, &b);
    assert_string_equal(buf_str(&a), buf_str(&b));
    assert_string_equal(first.model, second.model);
    assert_string_equal(second.prompt_template, " {prompt}\n\n'- ");
    assert_string_equal(second.reward.item[1], "b: c");
    assert_non_null(strstr(buf_str(&a), "\nmemory_budget: 1025KiB\n"));
    assert_non_null(strstr(buf_str(&a), "\nreduction_leaves: 8\n"));
    assert_null(strstr(buf_str(&a), "dry_run"));
    conf_release(&first);
    conf_release(&second);
    buf_release(&a);
    buf_release(&b);
}

static void every_command_takes_what_it_needs_and_has_help(void **state)
{
    (void)state;
    static const char *const args[CONF_COMMANDS_N][5] = {
        [CONF_TRAIN] = {TRAIN_ARGS},
        [CONF_SFT] = {"model=m", "data=d", "output_dir=o"},
        [CONF_GENERATE] = {"model=m", "prompt=p"},
        [CONF_EVAL] = {"model=m", "data=d", "reward=exact"},
        [CONF_SCORE] = {"reward=exact"},
        [CONF_LOGPROBS] = {"model=m"},
        [CONF_TOKENIZE] = {"model=m"},
        [CONF_INIT] = {"out=o"},
        [CONF_DATA] = {"sort-amb", "out=o"},
        [CONF_INSPECT] = {"p"},
    };
    for (int i = 0; i < CONF_COMMANDS_N; i++) {
        struct conf c = {0};
        struct err e = {0};
        struct buf help = {0};
        int rc = parse(&c, (enum conf_command)i, args[i], &e);
        check_ok(rc, e);
        conf_help((enum conf_command)i, &help);
        assert_non_null(strstr(buf_str(&help), conf_command_name((enum conf_command)i)));
        buf_release(&help);
        conf_release(&c);
    }
}

static int resume(const char *change, struct err *e)
{
    struct conf saved = {0}, now = {0};
    const char *base[] = {TRAIN_ARGS, "lr_scheduler_type=constant", NULL};
    const char *args[16] = {TRAIN_ARGS, "lr_scheduler_type=constant"};
    char copy[256];
    size_t n = 5;
    snprintf(copy, sizeof copy, "%s", change);
    for (char *p = copy, *next; p; p = next) {
        next = strchr(p, ' ');
        if (next)
            *next++ = '\0';
        args[n++] = p;
    }
    assert_int_equal(parse(&saved, CONF_TRAIN, base, e), 0);
    assert_int_equal(parse(&now, CONF_TRAIN, args, e), 0);
    int rc = conf_resume_check(&saved, &now, e);
    struct buf a = {0}, b = {0};
    conf_canonical(&saved, &a);
    conf_canonical(&now, &b);
    if (rc < 0)
        assert_string_not_equal(buf_str(&a), buf_str(&b));
    buf_release(&a);
    buf_release(&b);
    conf_release(&saved);
    conf_release(&now);
    return rc;
}

static void resuming_names_what_may_not_differ(void **state)
{
    (void)state;
    static const char *const may_change[] = {
        "seed=42 output_dir=elsewhere threads=2 devices=2 logging_steps=10 save_steps=1",
        "save_total_limit=none microbatch_tokens=64 decode_slots=3 kv_memory=1G memory_budget=4G",
        "max_steps=40 epsilon_high=0.2 reduction_leaves=8 resume_from_checkpoint=auto dry_run=true",
        "num_train_epochs=4 log_completions=true",
    };
    for (size_t i = 0; i < ARRAY_LEN(may_change); i++) {
        struct err e = {0};
        int rc = resume(may_change[i], &e);
        check_ok(rc, e);
    }
    struct err e = {0};
    assert_int_equal(resume("seed=7", &e), ERR_STATE);
    assert_string_equal(e.text,
                        "resuming needs the options the run began with: seed was 42, is 7. Give "
                        "these, or start a new run in another output_dir");
    e = (struct err){0};
    assert_int_equal(resume("model=n data=e loss_type=grpo beta=0.04 seed=1", &e), ERR_STATE);
    assert_string_equal(
        e.text, "resuming needs the options the run began with: model was \"m\", is \"n\"; "
                "seed was 42, is 1; data was \"d.jsonl\", is \"e\"; and 2 more. Give these, "
                "or start a new run in another output_dir");
    e = (struct err){0};
    assert_int_equal(resume("lr_scheduler_type=linear max_steps=9", &e), ERR_STATE);
    assert_non_null(strstr(e.text, "max_steps was none, is 9; lr_scheduler_type was constant"));
}

static void the_page_is_what_the_table_says(void **state)
{
    (void)state;
    struct buf page = {0};
    struct err e = {0};
    char *committed = NULL;
    size_t n = 0;
    conf_markdown(&page);
    assert_int_equal(file_read(PAGE, 1 << 20, &committed, &n, &e), 0);
    if (strcmp(committed, buf_str(&page)) != 0)
        fail_msg(PAGE " is stale: run test_conf --write from the repository's root");
    mem_free(committed);
    buf_release(&page);
}

static int write_page(void)
{
    struct buf page = {0};
    struct err e = {0};
    conf_markdown(&page);
    int rc = file_write_atomic(PAGE, buf_str(&page), page.len, &e);
    if (rc < 0)
        print_error("%s\n", e.text);
    buf_release(&page);
    return err_exit_status(rc);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_trl),
        cmocka_unit_test(words_that_mean_other_knobs_are_resolved),
        cmocka_unit_test(commands_have_defaults_of_their_own),
        cmocka_unit_test(all_spellings_of_an_option_are_one),
        cmocka_unit_test(a_flag_alone_is_true_and_takes_only_truth_values),
        cmocka_unit_test(help_wins_over_everything),
        cmocka_unit_test(sizes_are_powers_of_1024),
        cmocka_unit_test(yaml_values_are_read_strictly),
        cmocka_unit_test(later_sources_win),
        cmocka_unit_test(refusals_of_the_command_line),
        cmocka_unit_test(refusals_of_other_commands),
        cmocka_unit_test(refusals_of_yaml),
        cmocka_unit_test(a_saved_configuration_reads_back_to_the_same_bytes),
        cmocka_unit_test(every_command_takes_what_it_needs_and_has_help),
        cmocka_unit_test(resuming_names_what_may_not_differ),
        cmocka_unit_test(the_page_is_what_the_table_says),
    };
    if (argc == 2 && strcmp(argv[1], "--write") == 0)
        return write_page();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
