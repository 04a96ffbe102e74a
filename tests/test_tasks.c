/* Generated tasks: right answers, disjoint prompts, the teachers' shares, the same bytes by seed.
 */
#include "check.h"

#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/data.h"

static const char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = check_folder();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    check_folder_remove(folder);
    return 0;
}

static const char *in_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static struct data_task_rows write_task(const char *name, uint64_t seed, struct data_task_rows rows)
{
    struct err e = {0};
    check_ok(data_task_write(name, folder, seed, &rows, &e), e);
    return rows;
}

/* What a file of a task holds, read as a user would. */
struct split {
    struct data *set;
    struct map prompts; // Prompt to slot.
    struct data_row *row;
};

static struct split read_split(const char *name, enum data_want want)
{
    struct err e = {0};
    struct split s = {0};
    check_ok(data_open(&s.set, in_folder(name), &(struct data_options){.want = want}, &e), e);
    assert_int_equal(data_count(s.set), data_rows(s.set));
    s.row = mem_calloc(data_count(s.set), sizeof *s.row);
    for (uint64_t i = 0; i < data_count(s.set); i++) {
        struct data_row *r = &s.row[i];
        check_ok(data_read(s.set, i, r, &e), e);
        assert_true(map_put(&s.prompts, r->prompt.data, r->prompt.len, (int64_t)i)); // Once.
    }
    return s;
}

static void release_split(struct split *s)
{
    for (uint64_t i = 0; i < data_count(s->set); i++)
        data_row_release(&s->row[i]);
    mem_free(s->row);
    map_release(&s->prompts);
    data_close(s->set);
}

static bool share_prompts(const struct split *a, const struct split *b)
{
    for (size_t i = 0; i < a->prompts.n; i++)
        if (map_get(&b->prompts, a->prompts.entry[i].key, a->prompts.entry[i].len, NULL))
            return true;
    return false;
}

/* 1 when s is digits in ascending order, -1 when descending, 0 otherwise. */
static int direction(const char *s)
{
    bool up = true, down = true;
    for (; s[0] && s[1]; s++) {
        up &= s[0] <= s[1];
        down &= s[0] >= s[1];
    }
    return up ? 1 : down ? -1 : 0;
}

static void count_digits(const char *s, int count[10])
{
    for (; *s >= '0' && *s <= '9'; s++)
        count[*s - '0']++;
}

static void sort_amb_has_the_sorted_answer_and_a_teacher_of_three_minds(void **state)
{
    (void)state;
    struct data_task_rows rows = write_task("sort-amb", 7, (struct data_task_rows){500, 100, 3000});
    assert_true(rows.train == 500 && rows.test == 100 && rows.sft == 3000);
    struct split train = read_split("train.jsonl", DATA_ANSWERS);
    struct split test = read_split("test.jsonl", DATA_ANSWERS);
    struct split sft = read_split("sft.jsonl", DATA_COMPLETIONS);
    assert_false(share_prompts(&train, &test));
    assert_false(share_prompts(&train, &sft));
    assert_false(share_prompts(&sft, &test));
    for (size_t i = 0; i < 500; i++) {
        int have[10] = {0}, want[10] = {0};
        const char *prompt = train.row[i].prompt.data, *answer = train.row[i].answer.data;
        count_digits(prompt, want);
        count_digits(answer, have);
        assert_string_equal(prompt + 6, "=");
        assert_memory_equal(have, want, sizeof have);
        assert_int_equal(direction(answer), 1);
    }
    int up = 0, down = 0;
    for (size_t i = 0; i < 3000; i++) {
        up += direction(sft.row[i].answer.data) == 1;
        down += direction(sft.row[i].answer.data) == -1;
    }
    assert_in_range(up, 900, 1110); // 1000, standard deviation 26, and rare sorted copies.
    assert_in_range(down, 900, 1110);
    release_split(&train);
    release_split(&test);
    release_split(&sft);
}

static void sums_covers_all_81_prompts_and_caps_its_files(void **state)
{
    (void)state;
    struct data_task_rows rows = write_task("sums", 1, (struct data_task_rows){4096, 256, 16384});
    assert_true(rows.test == 16 && rows.train == 65 && rows.sft == 65);
    struct split train = read_split("train.jsonl", DATA_ANSWERS);
    struct split test = read_split("test.jsonl", DATA_ANSWERS);
    struct split sft = read_split("sft.jsonl", DATA_COMPLETIONS);
    assert_false(share_prompts(&train, &test));
    assert_false(share_prompts(&sft, &test));
    for (size_t i = 0; i < 65; i++) {
        int a, b, sum;
        assert_int_equal(sscanf(train.row[i].prompt.data, "What is %d + %d?", &a, &b), 2);
        assert_int_equal(sscanf(train.row[i].answer.data, "%d", &sum), 1);
        assert_int_equal(sum, a + b);
    }
    release_split(&train);
    release_split(&test);
    release_split(&sft);
}

static void add_noisy_errs_in_one_digit_in_about_two_rows_of_three(void **state)
{
    (void)state;
    write_task("add-noisy", 1, (struct data_task_rows){100, 10, 2000});
    struct split sft = read_split("sft.jsonl", DATA_COMPLETIONS);
    int wrong = 0;
    for (size_t i = 0; i < 2000; i++) {
        int a, b, n_wrong = 0;
        assert_int_equal(sscanf(sft.row[i].prompt.data, "%2d+%2d=", &a, &b), 2);
        for (int k = 0, sum = a + b; k < 3; k++, sum /= 10)
            n_wrong += sft.row[i].answer.data[k] != '0' + sum % 10;
        assert_in_range(n_wrong, 0, 1);
        wrong += n_wrong;
    }
    assert_in_range(wrong, 1240, 1460); // 3/4 * 9/10 of 2000 = 1350, standard deviation 21.
    release_split(&sft);
}

static void reverse_fixed_and_format_then_answer_are_right(void **state)
{
    (void)state;
    write_task("reverse-fixed", 1, (struct data_task_rows){50, 10, 0});
    struct split train = read_split("train.jsonl", DATA_ANSWERS);
    assert_false(file_exists(in_folder("sft.jsonl")));
    for (size_t i = 0; i < 50; i++)
        for (size_t k = 0; k < 6; k++)
            assert_int_equal(train.row[i].prompt.data[k], train.row[i].answer.data[5 - k]);
    release_split(&train);
    write_task("format-then-answer", 1, (struct data_task_rows){50, 10, 2000});
    struct split sft = read_split("sft.jsonl", DATA_COMPLETIONS);
    int marked = 0;
    for (size_t i = 0; i < 2000; i++) {
        int a, b, answer;
        const char *completion = sft.row[i].answer.data;
        bool is_marked = str_starts(completion, "#### ");
        marked += is_marked;
        assert_int_equal(sscanf(sft.row[i].prompt.data, "%d mod %d=", &a, &b), 2);
        assert_int_equal(sscanf(completion + (is_marked ? 5 : 0), "%d", &answer), 1);
        assert_int_equal(answer, a % b);
    }
    assert_in_range(marked, 500, 700); // 600, standard deviation 20.
    release_split(&sft);
}

static void the_seed_fixes_every_byte(void **state)
{
    (void)state;
    struct err e = {0};
    char *text[3];
    size_t size[3];
    for (int i = 0; i < 3; i++) {
        write_task("sort-amb", i < 2 ? 5 : 6, (struct data_task_rows){20, 5, 20});
        check_ok(file_read(in_folder("sft.jsonl"), 1 << 20, &text[i], &size[i], &e), e);
    }
    assert_string_equal(text[0], text[1]);
    assert_string_not_equal(text[0], text[2]);
    for (int i = 0; i < 3; i++)
        mem_free(text[i]);
}

static void an_unknown_task_is_refused_with_the_known_ones(void **state)
{
    (void)state;
    struct err e = {0};
    struct data_task_rows rows = {1, 1, 1};
    assert_int_equal(data_task_write("sort", folder, 1, &rows, &e), ERR_USAGE);
    check_error(e, ERR_USAGE,
                "task 'sort' is unknown: one of sort-amb, sums, add-noisy, reverse-fixed, "
                "format-then-answer");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sort_amb_has_the_sorted_answer_and_a_teacher_of_three_minds),
        TEST(sums_covers_all_81_prompts_and_caps_its_files),
        TEST(add_noisy_errs_in_one_digit_in_about_two_rows_of_three),
        TEST(reverse_fixed_and_format_then_answer_are_right),
        TEST(the_seed_fixes_every_byte),
        TEST(an_unknown_task_is_refused_with_the_known_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
