/* The gold answer inside its field: after ####, in the last box, or all of it. */
#include "data/data_int.h"

#include <string.h>

struct span {
    const char *at; // NULL: nothing there.
    size_t n;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static struct span trim(struct span s)
{
    while (s.n && is_blank(s.at[0])) {
        s.at++;
        s.n--;
    }
    while (s.n && is_blank(s.at[s.n - 1]))
        s.n--;
    return s;
}

/* Whether only blanks stand between the line's begin and byte i. */
static bool begins_line(const char *text, size_t i)
{
    while (i > 0 && (text[i - 1] == ' ' || text[i - 1] == '\t'))
        i--;
    return i == 0 || text[i - 1] == '\n';
}

/* What follows the last "####" to the end of its line. */
static struct span after_hashes(const char *text, size_t size, bool on_own_line)
{
    for (size_t i = size; i >= 4;) {
        if (memcmp(text + i - 4, "####", 4) != 0) {
            i--;
            continue;
        }
        size_t first = i - 4;
        while (first > 0 && text[first - 1] == '#')
            first--;
        if (!on_own_line || begins_line(text, first)) {
            const char *end = memchr(text + i, '\n', size - i);
            return (struct span){text + i, end ? (size_t)(end - text) - i : size - i};
        }
        i = first;
    }
    return (struct span){0};
}

/* The byte of the brace that opens a box whose command begins at byte i, or 0. */
static size_t box_opens(const char *text, size_t size, size_t i)
{
    static const char *const commands[] = {"\\boxed", "\\fbox"};
    for (size_t k = 0; k < ARRAY_LEN(commands); k++) {
        size_t n = strlen(commands[k]);
        if (size - i <= n || memcmp(text + i, commands[k], n) != 0)
            continue;
        for (i += n; i < size && is_blank(text[i]);)
            i++;
        return i < size && text[i] == '{' ? i : 0;
    }
    return 0;
}

/* The contents of the complete box that begins last. One pass, one box pending: when a box opens in
   a pending one, the outer can only close after the inner, which begins later. */
static struct span last_box(const char *text, size_t size)
{
    struct span box = {0};
    size_t depth = 0, pending = 0, pending_depth = 0; // Byte of the box's brace; depth inside it.
    for (size_t i = 0; i < size; i++) {
        size_t open = text[i] == '\\' ? box_opens(text, size, i) : 0;
        if (open) {
            i = pending = open;
            pending_depth = ++depth;
        } else if (text[i] == '\\' && i + 1 < size && strchr("{}", text[i + 1])) {
            i++; // An escaped brace.
        } else if (text[i] == '{') {
            depth++;
        } else if (text[i] == '}' && depth > 0) {
            if (pending && depth == pending_depth) {
                box = (struct span){text + pending + 1, i - pending - 1};
                pending = 0;
            }
            depth--;
        }
    }
    return box;
}

const char *data_gold(const char *text, size_t size, enum conf_gold_rule rule, size_t *n)
{
    struct span gold = {text, size};
    if (rule == CONF_GOLD_HASHES) {
        gold = after_hashes(text, size, false);
    } else if (rule == CONF_GOLD_BOXED) {
        gold = last_box(text, size);
    } else if (rule == CONF_GOLD_AUTO) {
        struct span hashes = after_hashes(text, size, true), box = last_box(text, size);
        if (hashes.at || box.at) // NULL is before everything.
            gold = (uintptr_t)hashes.at > (uintptr_t)box.at ? hashes : box;
    }
    if (!gold.at)
        return NULL;
    gold = trim(gold);
    *n = gold.n;
    return gold.at;
}
