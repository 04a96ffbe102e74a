/* The rewards themselves, their counters, and the queue in front of them. */
#include "reward/reward_int.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

static const char *const KIND_NAME[REWARD_KINDS] = {
    [REWARD_EXACT] = "exact",
    [REWARD_FORMAT] = "format",
    [REWARD_MATH] = "math",
    [REWARD_RANDOM] = "random",
};

/* An item of the queue: both texts in one block of its own. */
struct waiting {
    uint64_t ticket;
    struct reward_item item;
    char *block; // Owned.
};

struct reward {
    struct reward_conf conf;
    struct waiting *queue; // (tail), of which [head, tail) wait
    size_t head, tail, cap;
};

bool reward_find(const char *name, enum reward_kind *out)
{
    for (int k = 0; k < REWARD_KINDS; k++) {
        if (strcmp(KIND_NAME[k], name) == 0) {
            *out = (enum reward_kind)k;
            return true;
        }
    }
    return false;
}

const char *reward_name(enum reward_kind kind)
{
    return KIND_NAME[kind];
}

static bool extracts(const struct reward_conf *c)
{
    for (int k = 0; k < c->n; k++)
        if (c->kind[k] == REWARD_MATH || c->kind[k] == REWARD_FORMAT)
            return true;
    return false;
}

static double judge_exact(const struct reward_conf *c, const struct reward_item *item)
{
    const char *text = item->text, *gold = item->gold;
    size_t text_len = item->text_len, gold_len = item->gold_len;
    if (!reward_body(c, &text, &text_len))
        return 0.0;
    reward_trim(&gold, &gold_len);
    return text_len == gold_len && memcmp(text, gold, gold_len) == 0;
}

static double judge_format(enum reward_rule rule)
{
    return rule != REWARD_RULE_NONE && rule != REWARD_RULE_NUMBER;
}

static double judge_math(const struct reward_item *item, const struct buf *answer,
                         struct reward_result *out)
{
    enum reward_verdict verdict = REWARD_UNPARSED_ANSWER;
    if (out->rule != REWARD_RULE_NONE)
        verdict = reward_answer_check(item->gold, item->gold_len, buf_str(answer), answer->len);
    else if (!reward_gold_ok(item->gold, item->gold_len, NULL))
        verdict = REWARD_UNPARSED_GOLD;
    out->unparsed_completion = verdict == REWARD_UNPARSED_ANSWER;
    out->unparsed_gold = verdict == REWARD_UNPARSED_GOLD;
    return verdict == REWARD_EQUAL;
}

static double judge_random(const struct reward_conf *c, const struct reward_item *item)
{
    uint64_t key = rng_key(c->seed, RNG_REWARD);
    return rng_uniform(key, 0, item->sample, item->index, item->epoch) < 0.5;
}

void reward_judge(const struct reward_conf *c, const struct reward_item *item,
                  struct reward_result *out)
{
    struct buf answer = {0};
    *out = (struct reward_result){0};
    if (extracts(c))
        out->rule = reward_extract(c, item->text, item->text_len, &answer);
    for (int k = 0; k < c->n; k++) {
        switch (c->kind[k]) {
        case REWARD_EXACT:
            out->score[k] = judge_exact(c, item);
            break;
        case REWARD_FORMAT:
            out->score[k] = judge_format(out->rule);
            break;
        case REWARD_MATH:
            out->score[k] = judge_math(item, &answer, out);
            break;
        case REWARD_RANDOM:
            out->score[k] = judge_random(c, item);
            break;
        case REWARD_KINDS:
            ASSERT(c->kind[k] < REWARD_KINDS);
        }
    }
    buf_release(&answer);
}

struct reward *reward_new(const struct reward_conf *c)
{
    ASSERT(c->n > 0 && c->n <= REWARD_MAX);
    struct reward *r = mem_calloc(1, sizeof *r);
    r->conf = *c;
    return r;
}

void reward_free(struct reward *r)
{
    if (!r)
        return;
    for (size_t i = r->head; i < r->tail; i++)
        mem_free(r->queue[i].block);
    mem_free(r->queue);
    mem_free(r);
}

void reward_submit(struct reward *r, uint64_t ticket, const struct reward_item *item)
{
    if (r->head == r->tail)
        r->head = r->tail = 0;
    mem_grow(&r->queue, &r->cap, r->tail + 1, sizeof *r->queue);
    struct waiting *w = &r->queue[r->tail++];
    *w = (struct waiting){ticket, *item, mem_alloc(item->text_len + item->gold_len + 1)};
    memcpy(w->block, item->text, item->text_len);
    memcpy(w->block + item->text_len, item->gold, item->gold_len);
    w->item.text = w->block;
    w->item.gold = w->block + item->text_len;
}

size_t reward_pending(const struct reward *r)
{
    return r->tail - r->head;
}

size_t reward_poll(struct reward *r, struct reward_result *out, size_t max)
{
    size_t n = MIN(max, reward_pending(r));
    for (size_t i = 0; i < n; i++) {
        struct waiting *w = &r->queue[r->head++];
        reward_judge(&r->conf, &w->item, &out[i]);
        out[i].ticket = w->ticket;
        mem_free(w->block);
    }
    return n;
}

void reward_counts_add(struct reward_counts *n, const struct reward_result *r)
{
    n->judged++;
    n->unparsed_completion += r->unparsed_completion;
    n->unparsed_gold += r->unparsed_gold;
    n->rule[r->rule]++;
}

void reward_metrics(const struct reward_conf *c, const struct reward_counts *n, reward_metric_fn fn,
                    void *ctx)
{
    static const char *const SHARE[REWARD_RULES] = {
        [REWARD_RULE_NONE] = "reward/rule/none",     [REWARD_RULE_BOX] = "reward/rule/box",
        [REWARD_RULE_HASH] = "reward/rule/hash",     [REWARD_RULE_PHRASE] = "reward/rule/phrase",
        [REWARD_RULE_NUMBER] = "reward/rule/number",
    };
    if (!extracts(c))
        return;
    fn(ctx, "reward/unparsed_completion", (double)n->unparsed_completion);
    fn(ctx, "reward/unparsed_gold", (double)n->unparsed_gold);
    for (int r = 0; r < REWARD_RULES; r++)
        fn(ctx, SHARE[r], n->judged ? (double)n->rule[r] / (double)n->judged : (double)NAN);
}
