/* Rewards: our table of pairs, the 68 pairs of other graders' failures, extraction order, the coin,
 * the queue, and hostile text. */
#include "check.h"

#include "reward/reward.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"

enum { COLUMNS_MAX = 8 };

static const struct reward_conf MATH = {.n = 1, .kind = {REWARD_MATH}};
static const struct reward_conf MATH_NUMBER = {.n = 1, .kind = {REWARD_MATH}, .last_number = true};

static struct reward_item item_of(const char *text, const char *gold)
{
    return (struct reward_item){
        .text = text, .gold = gold, .text_len = strlen(text), .gold_len = strlen(gold)};
}

static struct reward_result judge(const struct reward_conf *c, const char *text, const char *gold)
{
    struct reward_item item = item_of(text, gold);
    struct reward_result r;
    reward_judge(c, &item, &r);
    return r;
}

/* Calls check for each row of a table, cut at tabs, with U+23CE read as a newline. */
static int each_row(const char *path, void (*check)(char **column))
{
    static const char NEWLINE[] = "\u23ce";
    char *text, *line, *rest;
    size_t size;
    struct err e = {0};
    int rows = -1; // The header.
    assert_int_equal(file_read(path, 1 << 20, &text, &size, &e), 0);
    rest = text;
    while ((line = strsep(&rest, "\n")) != NULL && *line) {
        char *column[COLUMNS_MAX], *mark;
        for (int k = 0; k < COLUMNS_MAX; k++)
            column[k] = line ? strsep(&line, "\t") : NULL;
        for (int k = 0; k < COLUMNS_MAX && column[k]; k++) {
            while ((mark = strstr(column[k], NEWLINE)) != NULL) {
                *mark = '\n';
                memmove(mark + 1, mark + 3, strlen(mark + 3) + 1);
            }
        }
        if (rows++ >= 0)
            check(column);
    }
    mem_free(text);
    return rows;
}

/* Score of a candidate: an answer is put into a box, a response is judged as it is. */
static double score_pair(const char *kind, const char *gold, const char *candidate)
{
    struct buf text = {0};
    bool is_answer = strcmp(kind, "answer") == 0;
    buf_printf(&text, is_answer ? "\\boxed{%s}" : "%s", candidate);
    const struct reward_conf *c = strcmp(kind, "number") == 0 ? &MATH_NUMBER : &MATH;
    double score = judge(c, buf_str(&text), gold).score[0];
    buf_release(&text);
    return score;
}

static int wrong_pairs; // Counted so that one run shows them all.

/* kind, gold, candidate, expected */
static void check_pair(char **column)
{
    double want = column[3][0] == '1';
    if (score_pair(column[0], column[1], column[2]) != want) {
        print_error("%s: gold '%s', candidate '%s': expected %g\n", column[0], column[1], column[2],
                    want);
        wrong_pairs++;
    }
}

static void our_pairs_are_judged_as_the_table_says(void **state)
{
    (void)state;
    wrong_pairs = 0;
    int rows = each_row("tests/golden/reward_pairs.tsv", check_pair);
    assert_true(rows >= 200);
    assert_int_equal(wrong_pairs, 0);
}

static int handled_pairs;

/* id, category, tier, kind, gold, candidate, expected, handled */
static void check_math_pair(char **column)
{
    const char *kind = strcmp(column[1], "extract-last") == 0 ? "number" : column[3];
    double want = column[6][0] == '1', got = score_pair(kind, column[4], column[5]);
    if (want == 0.0 && got != 0.0)
        fail_msg("%s: a false positive", column[0]);
    if ((got == want) != (column[7][0] == '1'))
        fail_msg("%s: handled is %s, but the score is %g", column[0], column[7], got);
    handled_pairs += got == want;
}

static void the_68_pairs_have_no_false_positive_and_all_handled_ones_hold(void **state)
{
    (void)state;
    handled_pairs = 0;
    assert_int_equal(each_row("tests/golden/math_pairs.tsv", check_math_pair), 68);
    assert_int_equal(handled_pairs, 53);
}

static void assert_extracts(const struct reward_conf *c, const char *text, enum reward_rule rule,
                            const char *want)
{
    struct buf answer = {0};
    assert_int_equal(reward_extract(c, text, strlen(text), &answer), rule);
    assert_string_equal(buf_str(&answer), want);
    buf_release(&answer);
}

static void rules_fire_in_order(void **state)
{
    (void)state;
    const struct reward_conf *c = &MATH_NUMBER;
    assert_extracts(c, "The answer is 1. #### 2\n\\boxed{3} 4", REWARD_RULE_BOX, "3");
    assert_extracts(c, "The answer is 1.\n#### 2\n4", REWARD_RULE_HASH, "2");
    assert_extracts(c, "The answer is 1. Or 4", REWARD_RULE_PHRASE, "1");
    assert_extracts(c, "1 then 4 it is", REWARD_RULE_NUMBER, "4");
    assert_extracts(&MATH, "1 then 4 it is", REWARD_RULE_NONE, "");
    assert_extracts(c, "none", REWARD_RULE_NONE, "");
}

static void boxes_are_matched_and_joined(void **state)
{
    (void)state;
    assert_extracts(&MATH, "\\boxed{\\frac{1}{2}}", REWARD_RULE_BOX, "\\frac{1}{2}");
    assert_extracts(&MATH, "\\boxed{\\{1,2\\}}", REWARD_RULE_BOX, "\\{1,2\\}");
    assert_extracts(&MATH, "\\boxed{1} and $\\boxed{2}$, \\fbox{3}", REWARD_RULE_BOX, "1, 2, 3");
    assert_extracts(&MATH, "\\boxed{1}. No: \\boxed{2}", REWARD_RULE_BOX, "2");
    assert_extracts(&MATH, "\\boxed{2} but \\boxed{", REWARD_RULE_BOX, "2");
    assert_extracts(&MATH, "\\boxed{ open {\\boxed{7}", REWARD_RULE_BOX, "7");
}

static void a_phrase_ends_with_its_sentence(void **state)
{
    (void)state;
    assert_extracts(&MATH, "The answer is 3.5 m. Or so.", REWARD_RULE_PHRASE, "3.5 m");
    assert_extracts(&MATH, "**Answer:** 7\nmore", REWARD_RULE_PHRASE, "7");
    assert_extracts(&MATH, "answer is", REWARD_RULE_NONE, "");
    assert_extracts(&MATH, "the answer island 7", REWARD_RULE_NONE, "");
}

static void numbers_are_taken_whole(void **state)
{
    (void)state;
    const struct reward_conf *c = &MATH_NUMBER;
    assert_extracts(c, "so 1,234.50 kg.", REWARD_RULE_NUMBER, "1,234.50");
    assert_extracts(c, "so -3", REWARD_RULE_NUMBER, "-3");
    assert_extracts(c, "5-3", REWARD_RULE_NUMBER, "3");
    assert_extracts(c, "it is \\frac{3}{4}!", REWARD_RULE_NUMBER, "\\frac{3}{4}");
    assert_extracts(c, "5 1/2 cakes", REWARD_RULE_NUMBER, "5 1/2");
    assert_extracts(c, "62\\% of it", REWARD_RULE_NUMBER, "62\\%");
}

static void only_text_after_the_thought_counts(void **state)
{
    (void)state;
    struct reward_conf c = MATH;
    assert_extracts(&c, "<think>#### 1</think> #### 2", REWARD_RULE_HASH, "2");
    assert_extracts(&c, "<think>#### 1", REWARD_RULE_NONE, "");
    assert_extracts(&c, "#### 1", REWARD_RULE_HASH, "1");
    c.think = true; // The prompt opened it.
    assert_extracts(&c, "#### 1", REWARD_RULE_NONE, "");
    assert_extracts(&c, "hm </think>\n#### 2", REWARD_RULE_HASH, "2");
}

static void answers_are_looked_for_in_the_last_32_kib(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_puts(&text, "<think> </think>\\boxed{5}");
    for (int i = 0; i < 32768 - 9; i++)
        buf_putc(&text, '.');
    struct reward_item item = item_of(buf_str(&text), "5");
    struct reward_result r;
    reward_judge(&MATH, &item, &r);
    assert_true(r.score[0] == 1.0);
    buf_putc(&text, '.');
    item = item_of(buf_str(&text), "5");
    reward_judge(&MATH, &item, &r);
    assert_true(r.score[0] == 0.0 && r.rule == REWARD_RULE_NONE);
    buf_release(&text);
}

static void exact_compares_trimmed_text(void **state)
{
    (void)state;
    const struct reward_conf c = {.n = 1, .kind = {REWARD_EXACT}};
    assert_true(judge(&c, "  12345\n", "12345 ").score[0] == 1.0);
    assert_true(judge(&c, "12 345", "12345").score[0] == 0.0);
    assert_true(judge(&c, "5.0", "5").score[0] == 0.0);
    assert_true(judge(&c, "<think>x</think>\n7", "7").score[0] == 1.0);
    assert_int_equal(judge(&c, "#### 7", "7").rule, REWARD_RULE_NONE);
}

static void format_wants_a_marked_answer(void **state)
{
    (void)state;
    const struct reward_conf c = {.n = 1, .kind = {REWARD_FORMAT}, .last_number = true};
    assert_true(judge(&c, "#### wrong", "7").score[0] == 1.0);
    assert_true(judge(&c, "\\boxed{7}", "7").score[0] == 1.0);
    assert_true(judge(&c, "Answer: 7", "7").score[0] == 1.0);
    assert_true(judge(&c, "it is 7", "7").score[0] == 0.0);
}

static void several_rewards_keep_their_own_scores(void **state)
{
    (void)state;
    const struct reward_conf c = {.n = 3, .kind = {REWARD_FORMAT, REWARD_MATH, REWARD_EXACT}};
    struct reward_result r = judge(&c, "#### 8", "7");
    assert_true(r.score[0] == 1.0 && r.score[1] == 0.0 && r.score[2] == 0.0);
}

static void unparsed_is_not_the_same_as_wrong(void **state)
{
    (void)state;
    struct reward_result r = judge(&MATH, "#### 8", "7");
    assert_false(r.unparsed_completion || r.unparsed_gold);
    r = judge(&MATH, "no idea", "7");
    assert_true(r.unparsed_completion && !r.unparsed_gold);
    r = judge(&MATH, "#### 7 or 8", "7");
    assert_true(r.unparsed_completion && !r.unparsed_gold);
    r = judge(&MATH, "#### 7", "1/0");
    assert_true(!r.unparsed_completion && r.unparsed_gold);
    r = judge(&MATH, "no idea", "");
    assert_true(!r.unparsed_completion && r.unparsed_gold);
}

static void assert_gold_dropped(const char *gold, const char *want)
{
    const char *reason = NULL;
    assert_false(reward_gold_ok(gold, strlen(gold), &reason));
    assert_string_equal(reason, want);
}

static void golds_without_an_answer_are_named(void **state)
{
    (void)state;
    static char longer[32768 + 2];
    memset(longer, '7', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_gold_dropped("", "empty");
    assert_gold_dropped(" $ $ ", "empty");
    assert_gold_dropped("\\frac{1}{0}", "no number");
    assert_gold_dropped("nan", "no number");
    assert_gold_dropped("\\frac{1}{", "braces do not match");
    assert_gold_dropped(longer, "too long");
    assert_true(reward_gold_ok("1,360", 5, NULL));
    assert_true(reward_gold_ok(longer, 32768, NULL));
    assert_false(reward_gold_ok("1\0002", 3, NULL));
}

static void check_same_and_other(const char *gold, bool gold_unparsed, bool answer_unparsed)
{
    struct buf text = {0};
    buf_printf(&text, "\\boxed{%s}", gold);
    struct reward_result r = judge(&MATH, buf_str(&text), gold);
    assert_true(r.score[0] == 1.0 && !r.unparsed_completion && !r.unparsed_gold);
    r = judge(&MATH, "#### 7", gold);
    assert_true(r.score[0] == 0.0 && !r.unparsed_completion && r.unparsed_gold == gold_unparsed);
    r = judge(&MATH, buf_str(&text), "7");
    assert_true(r.score[0] == 0.0 && !r.unparsed_gold && r.unparsed_completion == answer_unparsed);
    buf_release(&text);
}

static void equal_texts_are_equal_whatever_their_length(void **state)
{
    (void)state;
    struct buf text = {0};
    for (int i = 0; i < 5000; i++) {
        buf_putc(&text, '9');
        if (text.len == 2000)
            check_same_and_other(buf_str(&text), false, false);
    }
    check_same_and_other(buf_str(&text), true, true); // More digits than are computed with.
    buf_clear(&text);
    for (int i = 0; i < 1000; i++)
        buf_printf(&text, "%sx_{%d}", i ? "+" : "", i);
    check_same_and_other(buf_str(&text), false, true);
    check_same_and_other("10^{1000000}", false, true);
    check_same_and_other("1e1000000", true, true);
    check_same_and_other("3\\times10^{-99999999999999999999}", true, true);
    buf_release(&text);
}

static void the_coin_is_fair_and_keyed_like_the_sample(void **state)
{
    (void)state;
    const struct reward_conf c = {.n = 1, .kind = {REWARD_RANDOM}, .seed = 3};
    int heads = 0;
    for (uint32_t i = 0; i < 4000; i++) {
        struct reward_item item = {"a", "b", 1, 1, i / 2000, i / 8 % 250, i % 8};
        struct reward_item other = item;
        struct reward_result r, again;
        other.text = "c"; // The text does not matter, only the key does.
        reward_judge(&c, &item, &r);
        reward_judge(&c, &other, &again);
        assert_true(r.score[0] == again.score[0]);
        uint64_t key = rng_key(3, RNG_REWARD);
        assert_true(r.score[0] == (rng_uniform(key, 0, item.sample, item.index, item.epoch) < 0.5));
        heads += r.score[0] == 1.0;
    }
    assert_in_range(heads, 1874, 2126); // Four standard deviations.
}

static const char *const TEXTS[] = {"#### 1", "\\boxed{1}", "it is 1", "The answer is 2.", "1"};

static void the_queue_returns_in_order_and_in_slices(void **state)
{
    (void)state;
    struct reward *r = reward_new(&MATH);
    struct reward_result out[4];
    uint64_t next = 0;
    for (uint64_t i = 0; i < 10; i++) {
        char text[32]; // The queue keeps its own copy.
        snprintf(text, sizeof text, "%s", TEXTS[i % ARRAY_LEN(TEXTS)]);
        struct reward_item item = item_of(text, "1");
        reward_submit(r, i, &item);
    }
    assert_int_equal(reward_pending(r), 10);
    for (size_t n; (n = reward_poll(r, out, 4)) > 0;) {
        assert_true(n <= 4);
        for (size_t i = 0; i < n; i++, next++) {
            struct reward_result direct = judge(&MATH, TEXTS[next % ARRAY_LEN(TEXTS)], "1");
            assert_int_equal(out[i].ticket, next);
            assert_true(out[i].score[0] == direct.score[0] && out[i].rule == direct.rule);
        }
    }
    assert_int_equal(next, 10);
    struct reward_item item = item_of("left behind", "1");
    reward_submit(r, 10, &item);
    reward_free(r);
    reward_free(NULL);
}

struct many {
    struct reward_result result[64];
};

static void judge_some(void *ctx, int ith, int nth)
{
    struct many *m = ctx;
    size_t lo, hi;
    pool_split(ARRAY_LEN(m->result), 1, ith, nth, &lo, &hi);
    for (size_t i = lo; i < hi; i++)
        m->result[i] = judge(&MATH_NUMBER, TEXTS[i % ARRAY_LEN(TEXTS)], "1");
}

static void threads_change_no_score(void **state)
{
    (void)state;
    static struct many one, four;
    struct pool *p = pool_new(4);
    judge_some(&one, 0, 1);
    pool_run(p, judge_some, &four);
    pool_free(p);
    assert_memory_equal(&one, &four, sizeof one);
}

static void find_metric(void *ctx, const char *name, double value)
{
    struct buf *b = ctx;
    buf_printf(b, "%s %g\n", name, value);
}

static void counters_become_metrics(void **state)
{
    (void)state;
    struct reward_counts a = {0};
    struct buf text = {0};
    for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) {
        struct reward_result r = judge(&MATH, TEXTS[i], "1");
        reward_counts_add(&a, &r);
    }
    reward_metrics(&MATH, &a, find_metric, &text);
    assert_string_equal(buf_str(&text), "reward/unparsed_completion 2\n"
                                        "reward/unparsed_gold 0\n"
                                        "reward/rule/none 0.4\n"
                                        "reward/rule/box 0.2\n"
                                        "reward/rule/hash 0.2\n"
                                        "reward/rule/phrase 0.2\n"
                                        "reward/rule/number 0\n");
    buf_clear(&text);
    const struct reward_conf plain = {.n = 1, .kind = {REWARD_EXACT}};
    reward_metrics(&plain, &a, find_metric, &text);
    assert_string_equal(buf_str(&text), "");
    buf_release(&text);
}

static void names_are_found(void **state)
{
    (void)state;
    enum reward_kind kind;
    for (int k = 0; k < REWARD_KINDS; k++) {
        assert_true(reward_find(reward_name((enum reward_kind)k), &kind));
        assert_int_equal(kind, k);
    }
    assert_false(reward_find("maths", &kind));
}

/* Random texts over the alphabet that the parsers branch on, as answer and as gold. */
static void hostile_text_is_judged_and_its_mirror_is_never_worth_more(void **state)
{
    (void)state;
    static const char *const PIECE[] = {
        "\\frac", "{",  "}", "\\boxed{",   "####",     "answer is ", "1",      "23",
        "456",    ",",  ".", " ",          "-",        "/",          "%",      "^",
        "_",      "\\", "$", "=",          "x",        "\\text{",    "\\sqrt", "\u00bd",
        "\xff",   "e9", "0", "\\times10^", "</think>", "km",         "\n",     "or"};
    const uint64_t seed = check_seed();
    struct buf text = {0};
    for (uint32_t round = 0; round < 20000; round++) {
        buf_clear(&text);
        uint32_t pieces = rng_below(seed, 0, round, 0, 0, 24);
        for (uint32_t i = 0; i < pieces; i++)
            buf_puts(&text, PIECE[rng_below(seed, i + 1, round, 0, 0, ARRAY_LEN(PIECE))]);
        struct reward_result r = judge(&MATH_NUMBER, buf_str(&text), "23");
        assert_true(r.score[0] == 0.0 || r.score[0] == 1.0);
        bool gold_ok = reward_gold_ok(buf_str(&text), text.len, NULL);
        r = judge(&MATH_NUMBER, "#### 23", buf_str(&text));
        assert_true(gold_ok || r.score[0] == 0.0);
    }
    buf_release(&text);
}

static void deep_nesting_is_refused_not_followed(void **state)
{
    (void)state;
    static const char *const OPEN[] = {"{", "^", "\\frac", "\\sqrt", "\\text{", "_{"};
    for (size_t k = 0; k < ARRAY_LEN(OPEN); k++) {
        struct buf text = {0};
        buf_puts(&text, "#### ");
        for (int i = 0; i < 200 && text.len < 1000; i++)
            buf_puts(&text, OPEN[k]);
        struct reward_result r = judge(&MATH, buf_str(&text), "1");
        assert_true(r.score[0] == 0.0 && r.unparsed_completion);
        buf_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_pairs_are_judged_as_the_table_says),
        cmocka_unit_test(the_68_pairs_have_no_false_positive_and_all_handled_ones_hold),
        cmocka_unit_test(rules_fire_in_order),
        cmocka_unit_test(boxes_are_matched_and_joined),
        cmocka_unit_test(a_phrase_ends_with_its_sentence),
        cmocka_unit_test(numbers_are_taken_whole),
        cmocka_unit_test(only_text_after_the_thought_counts),
        cmocka_unit_test(answers_are_looked_for_in_the_last_32_kib),
        cmocka_unit_test(exact_compares_trimmed_text),
        cmocka_unit_test(format_wants_a_marked_answer),
        cmocka_unit_test(several_rewards_keep_their_own_scores),
        cmocka_unit_test(unparsed_is_not_the_same_as_wrong),
        cmocka_unit_test(golds_without_an_answer_are_named),
        cmocka_unit_test(equal_texts_are_equal_whatever_their_length),
        cmocka_unit_test(the_coin_is_fair_and_keyed_like_the_sample),
        cmocka_unit_test(the_queue_returns_in_order_and_in_slices),
        cmocka_unit_test(threads_change_no_score),
        cmocka_unit_test(counters_become_metrics),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(hostile_text_is_judged_and_its_mirror_is_never_worth_more),
        cmocka_unit_test(deep_nesting_is_refused_not_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
