/* Rewards: what a completion is worth, judged from its text alone.
 *
 * A reward is a pure function of (configuration, completion, gold answer, key): no clock, no
 * signal, no program, no thread of its own, and text is never executed. So scores do not depend on
 * order, threads or hosts. Every path is bounded: answers are looked for in the last 32 KiB; what
 * is nested deeper than 64 counts as unparsed, and so does what differs from its counterpart where
 * either has more than 4,096 digits or an exponent beyond 4,000.
 *
 *   exact    1 when the trimmed text equals the trimmed gold
 *   format   1 when one of the extraction rules box, hash or phrase fires
 *   math     1 when the extracted answer equals the gold as a number (exact rationals), or else in
 *            normal form; what cannot be parsed is never equal, not even to itself
 *   random   a fair coin keyed like the sample: the control that must teach nothing
 *
 * Extraction looks after the last </think> (a thought that was opened and not closed hides the
 * answer: no rule fires) and takes the first rule that fires:
 *
 *   box      the last complete \boxed{} or \fbox{}. Earlier boxes join it, with commas, when only
 *            commas, "and", "or", $ and blanks lie between: hedging makes a list, which fails.
 *   hash     the rest of the line after the last ####
 *   phrase   after the last "answer is" or "answer:", up to the end of the sentence
 *   number   the last number, only when last_number is set
 *
 * Scoring never blocks the devices: reward_submit copies a completion into a queue, reward_poll
 * judges a bounded number (each takes microseconds) between two dispatches. Results come in the
 * order of submission. Weights and sums are grpo's matter.
 *
 *     struct reward *r = reward_new(&conf);
 *     reward_submit(r, ticket, &item);
 *     while (reward_pending(r) > 0)
 *         n = reward_poll(r, results, 16);
 *     reward_free(r);
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

#define REWARD_MAX 8

enum reward_kind { REWARD_EXACT, REWARD_FORMAT, REWARD_MATH, REWARD_RANDOM, REWARD_KINDS };

enum reward_rule {
    REWARD_RULE_NONE,
    REWARD_RULE_BOX,
    REWARD_RULE_HASH,
    REWARD_RULE_PHRASE,
    REWARD_RULE_NUMBER,
    REWARD_RULES
};

struct reward_conf {
    int n;                             // rewards, at most REWARD_MAX
    enum reward_kind kind[REWARD_MAX]; // (n)
    bool last_number;                  // Rule `number` may fire.
    bool think;                        // The prompt opens a thought: </think> must come.
    uint64_t seed;                     // of `random`
};

/* What is judged. Texts are borrowed; the key names the sample as the sampler does. */
struct reward_item {
    const char *text, *gold;
    size_t text_len, gold_len;     // bytes
    uint32_t epoch, index, sample; // of the prompt; within the group
};

struct reward_result {
    uint64_t ticket;          // As submitted.
    double score[REWARD_MAX]; // (n)
    enum reward_rule rule;    // NONE too when neither format nor math is asked for.
    bool unparsed_completion; // math: no rule fired, or what it found is not an answer.
    bool unparsed_gold;       // math: see reward_gold_ok; or beyond computing with, and unlike.
};

/* Counters of a step. {0} is empty. */
struct reward_counts {
    uint64_t judged, unparsed_completion, unparsed_gold;
    uint64_t rule[REWARD_RULES];
};

/* The reward of that name; false when there is none. */
bool reward_find(const char *name, enum reward_kind *out);
const char *reward_name(enum reward_kind kind);

/* Judges one item at once. Thread-safe. The ticket is left 0. */
void reward_judge(const struct reward_conf *c, const struct reward_item *item,
                  struct reward_result *out);

/* Which rule fires on a text, and the answer that it finds, put into `answer`. Thread-safe. */
enum reward_rule reward_extract(const struct reward_conf *c, const char *text, size_t len,
                                struct buf *answer);

/* Whether `math` can ever reward an answer to this gold; otherwise *reason (may be NULL) says why
   not, in words to count dropped rows by. */
bool reward_gold_ok(const char *gold, size_t len, const char **reason);

/* A queue of items to judge. Opaque; one thread at a time. */
struct reward;
struct reward *reward_new(const struct reward_conf *c);
void reward_free(struct reward *r); // NULL is fine.
void reward_submit(struct reward *r, uint64_t ticket, const struct reward_item *item);
size_t reward_pending(const struct reward *r);

/* Judges and returns at most max items. Returns how many. */
size_t reward_poll(struct reward *r, struct reward_result *out, size_t max);

void reward_counts_add(struct reward_counts *n, const struct reward_result *r);

/* Calls fn for reward/unparsed_completion, reward/unparsed_gold (counts) and reward/rule/NAME
   (shares), in a fixed order; for nothing when neither format nor math is asked for. */
typedef void (*reward_metric_fn)(void *ctx, const char *name, double value);
void reward_metrics(const struct reward_conf *c, const struct reward_counts *n, reward_metric_fn fn,
                    void *ctx);
