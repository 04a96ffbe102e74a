/* Configuration: sources and their order, strict values, saved forms that read back to the same
 * bytes, what may change on resume, and docs/CONFIG.md. Refusals are in test_conf_bad.c.
 *
 * `test_conf --write` writes docs/CONFIG.md anew.
 */
#include "check_conf.h"

#include "base/file.h"
#include "base/mem.h"

#define PAGE "docs/CONFIG.md"

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
    assert_string_equal(conf_choice_text(&c, "lr_scheduler_type"), "linear");
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

static void a_seed_is_any_64_bits(void **state)
{
    (void)state;
    struct conf c = {0};
    struct err e = {0};
    struct buf saved = {0};
    assert_int_equal(PARSE(&c, CONF_TRAIN, &e, "seed=18446744073709551615", "model=m", "data=d",
                           "output_dir=o", "reward=exact"),
                     0);
    assert_true(c.seed == UINT64_MAX);
    conf_yaml(&c, &saved);
    conf_release(&c);
    assert_int_equal(conf_read_text(&c, CONF_TRAIN, "saved", saved.data, saved.len, &e), 0);
    assert_true(c.seed == UINT64_MAX);
    conf_release(&c);
    buf_release(&saved);
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
                        "command line: reward_weights: expected a number below 1e+15, or none, "
                        "got '1e300'");
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
        cmocka_unit_test(a_seed_is_any_64_bits),
        cmocka_unit_test(yaml_values_are_read_strictly),
        cmocka_unit_test(later_sources_win),
        cmocka_unit_test(a_saved_configuration_reads_back_to_the_same_bytes),
        cmocka_unit_test(every_command_takes_what_it_needs_and_has_help),
        cmocka_unit_test(resuming_names_what_may_not_differ),
        cmocka_unit_test(the_page_is_what_the_table_says),
    };
    if (argc == 2 && strcmp(argv[1], "--write") == 0)
        return write_page();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
