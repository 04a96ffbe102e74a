/* The answer checker: numbers by value, anything else by normal form.
 *
 * The gold decides the shape: only a gold that is a number is compared by value. One that is beyond
 * computing with equals its own text and nothing else.
 */
#include "reward/reward_int.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Significant digits from which on a decimal may stand for the number it rounds. */
enum { ROUND_DIGITS = 6 };

static void hundredth(mpq_t out, const mpq_t x)
{
    mpq_t hundred;
    mpq_init(hundred);
    mpq_set_ui(hundred, 100, 1);
    mpq_div(out, x, hundred);
    mpq_clear(hundred);
}

/* Equal values; where one side alone has a percent sign, equal digits do as well. */
static bool same_value(const struct reward_number *a, const struct reward_number *b)
{
    if (mpq_equal(a->value, b->value))
        return true;
    if (a->is_percent == b->is_percent)
        return false;
    mpq_t share;
    mpq_init(share);
    hundredth(share, a->is_percent ? a->value : b->value);
    bool same = mpq_equal(share, a->is_percent ? b->value : a->value);
    mpq_clear(share);
    return same;
}

/* Whether a decimal of enough digits is the gold, rounded: 2 |a - gold| 10^decimals <= 1. */
static bool rounds_to(const struct reward_number *gold, const struct reward_number *a)
{
    if (a->decimals < 1 || a->digits < ROUND_DIGITS || gold->is_percent != a->is_percent)
        return false;
    mpq_t gap, scale;
    mpq_init(gap);
    mpq_init(scale);
    mpq_sub(gap, a->value, gold->value);
    mpq_abs(gap, gap);
    mpz_ui_pow_ui(mpq_numref(scale), 10, (unsigned long)a->decimals);
    mpq_mul(gap, gap, scale);
    bool near = mpq_cmp_ui(gap, 1, 2) <= 0;
    mpq_clear(gap);
    mpq_clear(scale);
    return near;
}

static bool same_number(const struct reward_number *gold, const struct reward_number *a)
{
    if (gold->unit > 0 && a->unit > 0 && gold->unit != a->unit)
        return false;
    if (gold->name && a->name &&
        (gold->name_len != a->name_len || memcmp(gold->name, a->name, a->name_len) != 0))
        return false;
    return same_value(gold, a) || rounds_to(gold, a);
}

/* Two letters or more and blanks: then case does not matter. */
static bool is_words(const char *s)
{
    size_t letters = 0;
    for (; *s; s++) {
        if (!isalpha((unsigned char)*s) && *s != ' ')
            return false;
        letters += *s != ' ';
    }
    return letters >= 2;
}

/* The letter of a choice: E, (E), E), or 0. */
static char choice_of(const char *s)
{
    s += *s == '(';
    bool is_choice = isupper((unsigned char)*s) && (!s[1] || (s[1] == ')' && !s[2]));
    return is_choice ? *s : (char)0;
}

/* Of two that are not the same to the letter. */
static bool same_text(const char *gold, const char *answer)
{
    if (choice_of(gold) && choice_of(gold) == choice_of(answer))
        return true;
    return is_words(gold) && is_words(answer) && strcasecmp(gold, answer) == 0;
}

/* Both in normal form. */
static enum reward_verdict check_normal(const char *gold, const char *answer)
{
    struct reward_number want, got;
    enum reward_verdict verdict = REWARD_DIFFERENT;
    enum reward_parse gold_kind = reward_number_parse(gold, true, &want);
    enum reward_parse answer_kind = reward_number_parse(answer, false, &got);
    if (gold_kind == REWARD_DEGENERATE)
        verdict = REWARD_UNPARSED_GOLD;
    else if (strcmp(gold, answer) == 0)
        verdict = REWARD_EQUAL;
    else if (gold_kind == REWARD_BEYOND)
        verdict = REWARD_UNPARSED_GOLD;
    else if (answer_kind == REWARD_DEGENERATE || answer_kind == REWARD_BEYOND)
        verdict = REWARD_UNPARSED_ANSWER;
    else if (gold_kind == REWARD_NUMBER && answer_kind == REWARD_NUMBER)
        verdict = same_number(&want, &got) ? REWARD_EQUAL : REWARD_DIFFERENT;
    else if (gold_kind == REWARD_NUMBER)
        verdict = REWARD_UNPARSED_ANSWER;
    else if (same_text(gold, answer))
        verdict = REWARD_EQUAL;
    reward_number_release(&want);
    reward_number_release(&got);
    return verdict;
}

enum reward_verdict reward_answer_check(const char *gold, size_t gold_len, const char *answer,
                                        size_t answer_len)
{
    struct buf want = {0}, got = {0};
    enum reward_verdict verdict;
    if (!reward_normalise(gold, gold_len, &want, NULL))
        verdict = REWARD_UNPARSED_GOLD;
    else if (!reward_normalise(answer, answer_len, &got, NULL))
        verdict = REWARD_UNPARSED_ANSWER;
    else
        verdict = check_normal(buf_str(&want), buf_str(&got));
    buf_release(&want);
    buf_release(&got);
    return verdict;
}

bool reward_gold_ok(const char *gold, size_t len, const char **reason)
{
    struct buf normal = {0};
    const char *text = NULL;
    if (reward_normalise(gold, len, &normal, &text)) {
        struct reward_number x;
        if (reward_number_parse(buf_str(&normal), true, &x) == REWARD_DEGENERATE)
            text = "no number";
        reward_number_release(&x);
    }
    buf_release(&normal);
    if (reason)
        *reason = text;
    return text == NULL;
}
