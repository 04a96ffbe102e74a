/* Fuzz target: gold, NUL, completion. Scores are 0 or 1 and repeat; an unusable gold earns nothing,
 * a usable one answers itself.
 */
#include "reward/reward.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct reward_conf CONF = {
    .n = 2, .kind = {REWARD_MATH, REWARD_FORMAT}, .last_number = true};

static double math_score(const char *text, size_t text_len, const char *gold, size_t gold_len)
{
    struct reward_item item = {
        .text = text, .gold = gold, .text_len = text_len, .gold_len = gold_len};
    struct reward_result first, again;
    reward_judge(&CONF, &item, &first);
    reward_judge(&CONF, &item, &again);
    ASSERT(first.score[0] == 0.0 || first.score[0] == 1.0);
    ASSERT(memcmp(&first, &again, sizeof first) == 0);
    return first.score[0];
}

/* "#### gold" must score, if the line really is what the hash rule finds. */
static void check_gold_answers_itself(const char *gold, size_t len)
{
    struct buf text = {0}, found = {0};
    buf_puts(&text, "#### ");
    buf_put(&text, gold, len);
    enum reward_rule rule = reward_extract(&CONF, buf_str(&text), text.len, &found);
    if (rule == REWARD_RULE_HASH && found.len == len && memcmp(buf_str(&found), gold, len) == 0) {
        double score = math_score(buf_str(&text), text.len, gold, len);
        ASSERT(score == 1.0);
    }
    buf_release(&text);
    buf_release(&found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *gold = (const char *)data;
    const char *cut = n > 0 ? memchr(gold, 0, n) : NULL;
    if (!cut)
        return 0;
    size_t gold_len = (size_t)(cut - gold);
    double score = math_score(cut + 1, n - gold_len - 1, gold, gold_len);
    if (reward_gold_ok(gold, gold_len, NULL))
        check_gold_answers_itself(gold, gold_len);
    else
        ASSERT(score == 0.0);
    return 0;
}
