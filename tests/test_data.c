/* Data sets: what counts as a row, what is dropped and counted, every refusal with its message, and
 * the order of draws. */
#include "check.h"

#include "base/file.h"
#include "base/mem.h"
#include "data/data.h"

static const char *folder;
static const char *file; // folder/train.jsonl

static int make_folder(void **state)
{
    (void)state;
    static char path[512];
    folder = check_folder();
    snprintf(path, sizeof path, "%s/train.jsonl", folder);
    file = path;
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    check_folder_remove(folder);
    return 0;
}

static void write_bytes(const char *data, size_t n)
{
    struct err e = {0};
    check_ok(file_write_atomic(file, data, n, &e), e);
}

/* A set from this text. */
static struct data *open_text(const char *text, const struct data_options *options)
{
    struct err e = {0};
    struct data *set;
    write_bytes(text, strlen(text));
    check_ok(data_open(&set, file, options, &e), e);
    return set;
}

/* Opening this text fails with exactly "FILE: text". */
static void check_refused(const char *text, const struct data_options *options, int code,
                          const char *message)
{
    struct err e = {0};
    struct data *set;
    char want[1024];
    write_bytes(text, strlen(text));
    assert_int_equal(data_open(&set, file, options, &e), code);
    assert_null(set);
    snprintf(want, sizeof want, "%s: %s", file, message);
    check_error(e, code, want);
}

/* Row `slot` has this number, prompt and answer. */
static void check_row(const struct data *set, uint64_t slot, uint32_t index, const char *prompt,
                      const char *answer)
{
    struct err e = {0};
    struct data_row row = {0};
    check_ok(data_read(set, slot, &row, &e), e);
    assert_int_equal(row.index, index);
    assert_string_equal(buf_str(&row.prompt), prompt);
    assert_string_equal(buf_str(&row.answer), answer);
    data_row_release(&row);
}

static void check_report(const struct data *set, const char *want)
{
    struct buf report = {0};
    data_report(set, &report);
    assert_string_equal(buf_str(&report), want);
    buf_release(&report);
}

static const struct data_options answers = {.want = DATA_ANSWERS};
static const struct data_options prompts = {.want = DATA_PROMPTS};
static const struct data_options completions = {.want = DATA_COMPLETIONS};

static void line_ends_blank_lines_and_marks_do_not_matter(void **state)
{
    (void)state;
    struct data *set = open_text("\xEF\xBB\xBF{\"prompt\": \"a\", \"answer\": \"1\"}\r\n"
                                 "\r\n \t\n"
                                 "{\"prompt\": \"b\xE2\x80\xA8"
                                 "c\", \"answer\": \"2\xE2\x80\xA8"
                                 "3\"}\n"
                                 "{\"prompt\": \"d\", \"answer\": \"4\"}",
                                 &answers);
    assert_int_equal(data_count(set), 3);
    assert_int_equal(data_rows(set), 3);
    check_row(set, 0, 0, "a", "1");
    check_row(set, 1, 3,
              "b\xE2\x80\xA8"
              "c",
              "2\xE2\x80\xA8"
              "3");
    check_row(set, 2, 4, "d", "4");
    check_report(set, "3 rows, 3 usable");
    data_close(set);
}

static void the_first_known_field_that_is_not_null_counts(void **state)
{
    (void)state;
    struct data *set = open_text("{\"question\": \"q\", \"solution\": \"s\"}\n"
                                 "{\"problem\": \"p\", \"question\": \"q\", \"answer\": null, "
                                 "\"ground_truth\": \"g\"}\n"
                                 "{\"prompt\": \"x\", \"answer\": 12, \"solution\": \"s\"}\n"
                                 "{\"prompt\": \"y\", \"answer\": -0.5}\n",
                                 &answers);
    check_row(set, 0, 0, "q", "s");
    check_row(set, 1, 1, "q", "g");
    check_row(set, 2, 2, "x", "12");
    check_row(set, 3, 3, "y", "-0.5");
    data_close(set);
    set = open_text(
        "{\"prompt\": \"no\", \"in\": \"i\", \"answer\": \"no\", \"out\": \"o\"}\n",
        &(struct data_options){.want = DATA_ANSWERS, .prompt_field = "in", .answer_field = "out"});
    check_row(set, 0, 0, "i", "o");
    data_close(set);
}

static void a_conversation_counts_only_as_one_user_message(void **state)
{
    (void)state;
    struct data *set = open_text("{\"prompt\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n"
                                 "{\"prompt\": [{\"role\": \"system\", \"content\": \"s\"}, "
                                 "{\"role\": \"user\", \"content\": \"hi\"}]}\n"
                                 "{\"prompt\": [{\"role\": \"system\", \"content\": \"s\"}]}\n"
                                 "{\"prompt\": [{\"role\": \"user\", \"content\": [1]}]}\n"
                                 "{\"prompt\": []}\n",
                                 &prompts);
    check_row(set, 0, 0, "hi", "");
    check_report(set, "5 rows, 1 usable; dropped: 4 conversational prompt (first on line 2)");
    data_close(set);
}

static void completions_are_taken_as_they_stand(void **state)
{
    (void)state;
    struct data *set = open_text("{\"prompt\": \" p \", \"completion\": \" c\\n#### 1 \"}\n"
                                 "{\"prompt\": \"p\", \"completion\": \"\"}\n"
                                 "{\"question\": \"q\", \"answer\": \"a\\n#### 1\"}\n",
                                 &completions);
    check_row(set, 0, 0, " p ", " c\n#### 1 ");
    check_row(set, 1, 2, "q", "a\n#### 1");
    check_report(set, "3 rows, 2 usable; dropped: 1 empty completion (first on line 2)");
    data_close(set);
}

/* What the rule makes of an answer field; NULL when the row is dropped. */
static void check_gold(enum conf_gold_rule rule, const char *field, const char *want)
{
    struct buf line = {0};
    buf_puts(&line, "{\"prompt\": \"p\", \"answer\": \"sure\\n#### \\\\boxed{sure}\"}\n"
                    "{\"prompt\": \"p\", \"answer\": ");
    buf_json(&line, field, strlen(field));
    buf_puts(&line, "}\n");
    struct data *set =
        open_text(line.data, &(struct data_options){.want = DATA_ANSWERS, .gold_rule = rule});
    assert_int_equal(data_count(set), want ? 2 : 1);
    if (want)
        check_row(set, 1, 1, "p", want);
    data_close(set);
    buf_release(&line);
}

static void gold_answers_follow_their_rule(void **state)
{
    (void)state;
    const struct {
        enum conf_gold_rule rule;
        const char *field, *want;
    } cases[] = {
        {CONF_GOLD_HASHES, "48/2 = 24\n#### 1,234", "1,234"},
        {CONF_GOLD_HASHES, "#### 1\n#### 2 \nthen", "2"},
        {CONF_GOLD_HASHES, "so it is #### 3", "3"},
        {CONF_GOLD_HASHES, "3", NULL},
        {CONF_GOLD_HASHES, "###", NULL},
        {CONF_GOLD_HASHES, "a\n####\n", NULL}, // An empty answer.
        {CONF_GOLD_BOXED, "\\boxed{1} or \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"},
        {CONF_GOLD_BOXED, "\\fbox {5}", "5"},
        {CONF_GOLD_BOXED, "\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"},
        {CONF_GOLD_BOXED, "\\boxed{\\boxed{7}}", "7"},
        {CONF_GOLD_BOXED, "\\boxed{8} and \\boxed{9", "8"},
        {CONF_GOLD_BOXED, "a}} \\boxed{8} {", "8"},
        {CONF_GOLD_BOXED, "\\boxed 8", NULL},
        {CONF_GOLD_BOXED, "8", NULL},
        {CONF_GOLD_FIELD, " #### 4\n\\boxed{5} \n", "#### 4\n\\boxed{5}"},
        {CONF_GOLD_FIELD, " \n", NULL},
        {CONF_GOLD_AUTO, "x\n#### 72", "72"},
        {CONF_GOLD_AUTO, "\\boxed{5}\n #### 6", "6"},
        {CONF_GOLD_AUTO, "#### Step 1\nadd\n#### Step 2\n\\boxed{5}", "5"},
        {CONF_GOLD_AUTO, "not #### marked", "not #### marked"},
        {CONF_GOLD_AUTO, " 42 ", "42"},
        {CONF_GOLD_AUTO, "##### 42", "42"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_gold(cases[i].rule, cases[i].field, cases[i].want);
}

static void a_box_that_never_closes_a_million_times_takes_no_time(void **state)
{
    (void)state;
    struct buf field = {0};
    buf_puts(&field, "\\boxed{first} ");
    for (int i = 0; i < 1000000; i++)
        buf_puts(&field, "\\boxed{");
    check_gold(CONF_GOLD_BOXED, buf_str(&field), "first");
    buf_release(&field);
}

static const char *reject_long(void *ctx, const struct data_row *row)
{
    return row->prompt.len > *(size_t *)ctx ? "longer than max_prompt_length" : NULL;
}

static void rows_that_cannot_be_used_are_dropped_and_counted(void **state)
{
    (void)state;
    size_t limit = 8;
    struct data_options options = {.want = DATA_ANSWERS, .reject = reject_long, .ctx = &limit};
    struct data *set = open_text("{\"prompt\": \"ok\", \"answer\": \"1\"}\n"
                                 "{\"answer\": \"1\"}\n"
                                 "{\"prompt\": 5, \"answer\": \"1\"}\n"
                                 "{\"prompt\": null, \"answer\": \"1\"}\n"
                                 "{\"prompt\": \" \\n\", \"answer\": \"1\"}\n"
                                 "{\"prompt\": \"p\"}\n"
                                 "{\"prompt\": \"p\", \"answer\": true}\n"
                                 "{\"prompt\": \"p\", \"answer\": [\"1\"]}\n"
                                 "{\"prompt\": \"p\", \"answer\": \" \"}\n"
                                 "{\"prompt\": \"p\", \"answer\": 123456789012345678901}\n"
                                 "{\"prompt\": \"p\", \"prompt\": \"q\", \"answer\": \"1\"}\n"
                                 "{\"prompt\": \"p\", \"a\\u0000\": 1, \"answer\": \"1\"}\n"
                                 "{\"prompt\": \"far too long\", \"answer\": \"1\"}\n",
                                 &options);
    check_row(set, 0, 0, "ok", "1");
    check_report(set, "13 rows, 1 usable; dropped: 2 no prompt field (first on line 2), "
                      "1 prompt is not text (first on line 3), "
                      "1 empty prompt (first on line 5), 1 no answer field (first on line 6), "
                      "2 answer is neither text nor a number (first on line 7), "
                      "1 empty answer (first on line 9), "
                      "1 a number beyond 64 bits (first on line 10), "
                      "1 a field given twice (first on line 11), "
                      "1 NUL in a field's name (first on line 12), "
                      "1 longer than max_prompt_length (first on line 13)");
    data_close(set);
}

static void nul_in_a_prompt_is_kept(void **state)
{
    (void)state;
    struct err e = {0};
    struct data_row row = {0};
    struct data *set = open_text("{\"prompt\": \"a\\u0000b\"}\n", &prompts);
    check_ok(data_read(set, 0, &row, &e), e);
    assert_int_equal(row.prompt.len, 3);
    assert_memory_equal(row.prompt.data, "a\0b", 4);
    data_row_release(&row);
    data_close(set);
}

static void a_row_of_50_megabytes_is_dropped_and_counted(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf text = {0};
    struct data *set;
    enum { N = 50 << 20 };
    buf_puts(&text, "{\"prompt\": \"a\"}\n{\"prompt\": \"");
    char *xs = mem_alloc(N);
    memset(xs, 'x', N);
    buf_put(&text, xs, N);
    buf_puts(&text, "\"}\n{\"prompt\": \"b\"}\n");
    write_bytes(text.data, text.len);
    check_ok(data_open(&set, file, &prompts, &e), e);
    check_row(set, 1, 2, "b", "");
    check_report(set, "3 rows, 2 usable; dropped: 1 longer than 16 MiB (first on line 2)");
    data_close(set);
    mem_free(xs);
    buf_release(&text);
}

static void lines_that_are_not_json_are_refused_with_their_place(void **state)
{
    (void)state;
    const char *row = "{\"prompt\": \"a\", \"answer\": \"1\"}\n";
    const struct {
        const char *line, *text;
    } cases[] = {
        {"{\"prompt\": \"\xff\"}", "line 2: byte 13: not UTF-8: save the file as UTF-8"},
        {"{\"prompt\": \"\xed\xa0\x80\"}", "line 2: byte 13: not UTF-8: save the file as UTF-8"},
        {"{\"prompt\": 'a'}",
         "line 2: byte 12: not JSON (invalid token near '''): mend or remove the line"},
        {"{\"prompt\": \"a\"",
         "line 2: byte 14: not JSON ('}' expected near end of file): mend or remove the line"},
        {"{\"prompt\": \"a\"} {}",
         "line 2: byte 17: not JSON (end of file expected near '{'): mend or remove the line"},
        {"plain text",
         "line 2: byte 5: not JSON ('[' or '{' expected near 'plain'): mend or remove the line"},
        {"{\"prompt\": \"\\ud800\"}", "line 2: byte 19: not JSON (invalid Unicode '\\uD800' near "
                                      "'\"\\ud800\"'): mend or remove the line"},
        {"[\"a\", \"b\"]", "line 2: byte 1: not a JSON object: one object {...} a line"},
        {"{\"a\": \"\x1b[31m",
         "line 2: byte 7: not JSON (control character 0x1b near '\"'): mend or remove the line"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s\n%s", row, cases[i].line, row);
        check_refused(text, &answers, ERR_FORMAT, cases[i].text);
    }
}

static void a_line_nested_100000_deep_is_refused(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_puts(&text, "{\"a\": ");
    for (int i = 0; i < 100000; i++)
        buf_putc(&text, '[');
    check_refused(text.data, &prompts, ERR_FORMAT,
                  "line 1: byte 2054: not JSON (maximum parsing depth reached near '['): mend or "
                  "remove the line");
    buf_release(&text);
}

static void a_set_that_cannot_be_used_is_refused(void **state)
{
    (void)state;
    const char *none = "the file has no rows: give JSONL, one object {...} a line";
    check_refused("", &prompts, ERR_DATA, none);
    check_refused("\xEF\xBB\xBF", &prompts, ERR_DATA, none);
    check_refused("\n \r\n", &prompts, ERR_DATA, none);
    check_refused("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\"}\n", &answers, ERR_DATA,
                  "no row has a field 'prompt', 'question' or 'problem'; there are 'text' and "
                  "'label': name the right one with prompt_field");
    check_refused("{\"prompt\": \"a\"}\n", &answers, ERR_DATA,
                  "no row has a field 'answer', 'solution' or 'ground_truth'; there are 'prompt': "
                  "name the right one with answer_field");
    check_refused("{\"prompt\": \"a\"}\n", &completions, ERR_DATA,
                  "no row has a field 'completion', 'answer' or 'solution'; there are 'prompt': "
                  "name the right one with completion_field");
    check_refused("{}\n", &answers, ERR_DATA,
                  "no row has a field 'prompt', 'question' or 'problem'; there are none: name the "
                  "right one with prompt_field");
    check_refused("{\"prompt\": \"a\"}\n",
                  &(struct data_options){.want = DATA_PROMPTS, .prompt_field = "te\033xt"},
                  ERR_DATA,
                  "no row has a field 'te\\x1bxt'; there are 'prompt': name the right one with "
                  "prompt_field");
    check_refused("{\"prompt\": \"\", \"answer\": 1}\n{\"prompt\": 1}\n", &answers, ERR_DATA,
                  "no usable row among 2: 1 empty prompt (first on line 1), 1 prompt is not text "
                  "(first on line 2): mend the rows or the options");
}

static void a_file_that_changes_in_use_is_noticed(void **state)
{
    (void)state;
    struct err e = {0};
    struct data_row row = {0};
    char want[1024];
    struct data *set = open_text("{\"prompt\": \"a\"}\n", &prompts);
    FILE *f = fopen(file, "r+"); // In place, unlike what a careful program would do.
    assert_non_null(f);
    fputs("garbage", f);
    fclose(f);
    assert_int_equal(data_read(set, 0, &row, &e), ERR_STATE);
    snprintf(want, sizeof want,
             "%s: line 1 changed while in use: start again and leave the file alone", file);
    check_error(e, ERR_STATE, want);
    data_row_release(&row);
    data_close(set);
}

/* n rows with prompts "0", "1", ... */
static struct data *open_counted(int n, bool shuffle, uint64_t seed)
{
    struct buf text = {0};
    for (int i = 0; i < n; i++)
        buf_printf(&text, "{\"prompt\": \"%d\"}\n", i);
    struct data *set =
        open_text(buf_str(&text),
                  &(struct data_options){.want = DATA_PROMPTS, .shuffle = shuffle, .seed = seed});
    buf_release(&text);
    return set;
}

static void every_epoch_draws_each_row_once(void **state)
{
    (void)state;
    uint64_t seed = check_seed();
    for (int n = 1; n < 40; n += 3) {
        struct data *set = open_counted(n, true, seed);
        struct data_cursor cursor = {0};
        uint32_t first[40];
        bool differs = false;
        for (uint32_t epoch = 0; epoch < 6; epoch++) {
            bool seen[40] = {false};
            for (int i = 0; i < n; i++) {
                struct data_draw draw = data_next(set, &cursor);
                assert_int_equal(draw.epoch, epoch);
                assert_in_range(draw.index, 0, n - 1);
                assert_false(seen[draw.index]);
                seen[draw.index] = true;
                if (epoch == 0)
                    first[i] = draw.index;
                differs |= draw.index != first[i];
            }
        }
        assert_true(n == 1 || differs);
        data_close(set);
    }
}

static void a_resumed_cursor_goes_on_as_if_never_stopped(void **state)
{
    (void)state;
    struct data *set = open_counted(7, true, 3), *again = open_counted(7, true, 3);
    struct data_cursor whole = {0}, saved = {0};
    for (int step = 0; step < 10; step++) { // Steps of 3 of 7 rows straddle epochs.
        struct data_cursor resumed = {.epoch = saved.epoch, .position = saved.position};
        for (int i = 0; i < 3; i++) {
            struct data_draw a = data_next(set, &whole), b = data_next(again, &resumed);
            assert_true(a.epoch == b.epoch && a.index == b.index && a.slot == b.slot);
        }
        saved = resumed;
    }
    assert_int_equal(whole.epoch, 4);
    assert_int_equal(whole.position, 2);
    data_close(set);
    data_close(again);
}

static void without_shuffling_rows_come_in_the_file_s_order(void **state)
{
    (void)state;
    struct data *set = open_counted(5, false, 1);
    struct data_cursor cursor = {0};
    for (uint32_t i = 0; i < 12; i++) {
        struct data_draw draw = data_next(set, &cursor);
        assert_int_equal(draw.index, i % 5);
        assert_int_equal(draw.epoch, i / 5);
    }
    data_close(set);
}

static uint64_t checksum_of(const char *text, size_t limit)
{
    struct data_options options = {.want = DATA_PROMPTS, .reject = reject_long, .ctx = &limit};
    struct data *set = open_text(text, &options);
    uint64_t checksum = data_checksum(set);
    data_close(set);
    return checksum;
}

static void the_checksum_tells_sets_and_usable_rows_apart(void **state)
{
    (void)state;
    const char *text = "{\"prompt\": \"a\"}\n{\"prompt\": \"bb\"}\n{\"prompt\": \"ccc\"}\n";
    assert_true(checksum_of(text, 3) == checksum_of(text, 4));
    assert_true(checksum_of(text, 3) != checksum_of(text, 2));
    assert_true(checksum_of(text, 3) !=
                checksum_of("{\"prompt\": \"a\"}\n{\"prompt\": \"bb\"}\n", 3));
    assert_true(checksum_of("{\"prompt\": \"a\"}\n", 3) != checksum_of("{\"prompt\": \"b\"}\n", 3));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(line_ends_blank_lines_and_marks_do_not_matter),
        TEST(the_first_known_field_that_is_not_null_counts),
        TEST(a_conversation_counts_only_as_one_user_message),
        TEST(completions_are_taken_as_they_stand),
        TEST(gold_answers_follow_their_rule),
        TEST(a_box_that_never_closes_a_million_times_takes_no_time),
        TEST(rows_that_cannot_be_used_are_dropped_and_counted),
        TEST(nul_in_a_prompt_is_kept),
        TEST(a_row_of_50_megabytes_is_dropped_and_counted),
        TEST(lines_that_are_not_json_are_refused_with_their_place),
        TEST(a_line_nested_100000_deep_is_refused),
        TEST(a_set_that_cannot_be_used_is_refused),
        TEST(a_file_that_changes_in_use_is_noticed),
        TEST(every_epoch_draws_each_row_once),
        TEST(a_resumed_cursor_goes_on_as_if_never_stopped),
        TEST(without_shuffling_rows_come_in_the_file_s_order),
        TEST(the_checksum_tells_sets_and_usable_rows_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
