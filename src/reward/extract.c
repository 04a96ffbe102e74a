/* Where the answer stands in a completion: the rules of reward.h, first that fires.
 *
 * Every rule is one pass over the tail of the text, so the time is linear whatever the text is.
 */
#include "reward/reward_int.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

struct span {
    const char *s;
    size_t n;
};

static bool span_starts(struct span t, size_t at, const char *word)
{
    size_t n = strlen(word);
    return t.n - at >= n && memcmp(t.s + at, word, n) == 0;
}

static bool starts_folded(struct span t, size_t at, const char *word)
{
    size_t n = strlen(word);
    return t.n - at >= n && strncasecmp(t.s + at, word, n) == 0;
}

/* The last place of word in t, or t.n. */
static size_t find_last(struct span t, const char *word)
{
    for (size_t at = t.n; at-- > 0;)
        if (t.s[at] == word[0] && span_starts(t, at, word))
            return at;
    return t.n;
}

static struct span trimmed(struct span t)
{
    while (t.n > 0 && isspace((unsigned char)t.s[0]))
        t.s++, t.n--;
    while (t.n > 0 && isspace((unsigned char)t.s[t.n - 1]))
        t.n--;
    return t;
}

/* The place of the brace that closes each open one (n), 0 where none does. */
static void match_braces(struct span t, uint16_t *close)
{
    uint16_t open[REWARD_TAIL_BYTES];
    size_t depth = 0;
    memset(close, 0, t.n * sizeof *close);
    for (size_t i = 0; i < t.n; i++) {
        if (t.s[i] == '\\' && i + 1 < t.n && strchr("{}\\", t.s[i + 1]))
            i++;
        else if (t.s[i] == '{')
            open[depth++] = (uint16_t)i;
        else if (t.s[i] == '}' && depth > 0)
            close[open[--depth]] = (uint16_t)i;
    }
}

/* The place of the open brace of a box that starts at `at`, or t.n. */
static size_t box_brace(struct span t, size_t at)
{
    if (t.s[at] != '\\')
        return t.n;
    size_t i = span_starts(t, at, "\\boxed") ? at + 6 : span_starts(t, at, "\\fbox") ? at + 5 : t.n;
    while (i < t.n && t.s[i] == ' ')
        i++;
    return i < t.n && t.s[i] == '{' ? i : t.n;
}

/* Whether only list glue lies in [lo, hi): commas, and, or, $, blanks. */
static bool is_glue(struct span t, size_t lo, size_t hi)
{
    for (size_t i = lo; i < hi; i++) {
        if (span_starts(t, i, "and"))
            i += 2;
        else if (span_starts(t, i, "or"))
            i += 1;
        else if (t.s[i] != ',' && t.s[i] != '$' && !isspace((unsigned char)t.s[i]))
            return false;
    }
    return true;
}

static bool rule_box(struct span t, struct buf *answer)
{
    uint16_t close[REWARD_TAIL_BYTES];
    match_braces(t, close);
    bool found = false;
    for (size_t i = 0, end = 0; i < t.n; i++) {
        size_t brace = box_brace(t, i);
        if (brace == t.n || close[brace] == 0)
            continue;
        if (found && is_glue(t, end, i))
            buf_puts(answer, ", ");
        else
            buf_clear(answer);
        buf_put(answer, t.s + brace + 1, close[brace] - brace - 1);
        found = true;
        i = close[brace];
        end = i + 1;
    }
    return found;
}

static bool rule_hash(struct span t, struct buf *answer)
{
    size_t at = find_last(t, "####");
    if (at == t.n)
        return false;
    size_t lo = at + 4, hi = lo;
    while (hi < t.n && t.s[hi] != '\n')
        hi++;
    struct span line = trimmed((struct span){t.s + lo, hi - lo});
    buf_put(answer, line.s, line.n);
    return line.n > 0;
}

/* Behind "answer" at `at`: the place after "is" or ":", or t.n. Bold marks may stand between. */
static size_t phrase_end(struct span t, size_t at)
{
    size_t i = at + strlen("answer");
    if (at > 0 && isalpha((unsigned char)t.s[at - 1]))
        return t.n;
    while (i < t.n && (t.s[i] == ' ' || t.s[i] == '*'))
        i++;
    if (i < t.n && t.s[i] == ':')
        return i + 1;
    bool has_is = starts_folded(t, i, "is") && i + 2 < t.n && !isalpha((unsigned char)t.s[i + 2]);
    return has_is ? i + 2 : t.n;
}

/* Up to the end of the line or of the sentence: a point that no digit follows. */
static struct span sentence(struct span t, size_t lo)
{
    while (lo < t.n && (isspace((unsigned char)t.s[lo]) || strchr(":*", t.s[lo])))
        lo++;
    size_t hi = lo;
    while (hi < t.n && t.s[hi] != '\n') {
        bool is_decimal = hi + 1 < t.n && isdigit((unsigned char)t.s[hi + 1]);
        if (t.s[hi] == '.' && !is_decimal)
            break;
        hi++;
    }
    return trimmed((struct span){t.s + lo, hi - lo});
}

static bool rule_phrase(struct span t, struct buf *answer)
{
    for (size_t at = t.n; at-- > 0;) {
        if ((t.s[at] | 0x20) != 'a' || !starts_folded(t, at, "answer"))
            continue;
        struct span found = sentence(t, phrase_end(t, at));
        if (found.n > 0) {
            buf_put(answer, found.s, found.n);
            return true;
        }
    }
    return false;
}

/* A minus belongs to the number unless an operand stands before it. */
static bool has_sign(struct span t, size_t at)
{
    if (at == 0 || t.s[at - 1] != '-')
        return false;
    return at == 1 || !(isalnum((unsigned char)t.s[at - 2]) || strchr(")}", t.s[at - 2]));
}

static bool rule_number(struct span t, struct buf *answer)
{
    struct span last = {0};
    for (size_t i = 0; i < t.n; i++) {
        bool may_start = isdigit((unsigned char)t.s[i]) || t.s[i] == '.' || t.s[i] == '\\';
        size_t n = may_start ? reward_number_span(t.s + i, t.n - i) : 0;
        if (n == 0)
            continue;
        bool sign = has_sign(t, i);
        last = (struct span){t.s + i - sign, n + sign};
        i += n - 1;
    }
    buf_put(answer, last.s, last.n);
    return last.n > 0;
}

/* The part after the thought; false when a thought is open at the end. */
static bool after_thought(const struct reward_conf *c, struct span *t)
{
    static const char END[] = "</think>";
    size_t at = find_last(*t, END);
    if (at == t->n)
        return !c->think && find_last(*t, "<think>") == t->n;
    at += strlen(END);
    *t = (struct span){t->s + at, t->n - at};
    return true;
}

void reward_trim(const char **text, size_t *len)
{
    struct span t = trimmed((struct span){*text, *len});
    *text = t.s;
    *len = t.n;
}

bool reward_body(const struct reward_conf *c, const char **text, size_t *len)
{
    struct span t = {*text, *len};
    bool closed = after_thought(c, &t);
    *text = t.s;
    *len = t.n;
    reward_trim(text, len);
    return closed;
}

enum reward_rule reward_extract(const struct reward_conf *c, const char *text, size_t len,
                                struct buf *answer)
{
    static bool (*const RULE[REWARD_RULES])(struct span, struct buf *) = {
        [REWARD_RULE_BOX] = rule_box,
        [REWARD_RULE_HASH] = rule_hash,
        [REWARD_RULE_PHRASE] = rule_phrase,
        [REWARD_RULE_NUMBER] = rule_number,
    };
    if (!reward_body(c, &text, &len))
        return REWARD_RULE_NONE;
    struct span tail = {text, len};
    if (len > REWARD_TAIL_BYTES)
        tail = (struct span){text + len - REWARD_TAIL_BYTES, REWARD_TAIL_BYTES};
    for (int r = REWARD_RULE_BOX; r < REWARD_RULES; r++) {
        buf_clear(answer);
        if ((r != REWARD_RULE_NUMBER || c->last_number) && RULE[r](tail, answer))
            return (enum reward_rule)r;
    }
    return REWARD_RULE_NONE;
}
