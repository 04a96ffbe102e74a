/* A set of added tokens, searched for leftmost first, longest first among those at one place.
 *
 * The patterns are sorted, so at each place of the text a search narrows the range of those that
 * agree with the text so far, byte by byte; the cost is bounded by the longest pattern, whatever
 * the number of patterns (Llama-3 has 256 that start alike). */
#include "text/text_int.h"

#include <stdlib.h>
#include <string.h>

void text_set_add(struct text_set *set, const char *bytes, size_t len, int added)
{
    ASSERT(len > 0);
    mem_grow(&set->pattern, &set->cap, set->n + 1, sizeof *set->pattern);
    set->pattern[set->n++] = (struct text_pattern){mem_strndup(bytes, len), len, added};
    set->first[(unsigned char)bytes[0]] = true;
}

/* By bytes, then a prefix before what it starts, then by order of listing. */
static int compare_patterns(const void *x, const void *y)
{
    const struct text_pattern *a = x, *b = y;
    int order = memcmp(a->bytes, b->bytes, MIN(a->len, b->len));
    if (order != 0)
        return order;
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return a->added - b->added;
}

void text_set_sort(struct text_set *set)
{
    if (set->n == 0)
        return;
    qsort(set->pattern, set->n, sizeof *set->pattern, compare_patterns);
    size_t kept = 1;
    for (size_t i = 1; i < set->n; i++) {
        const struct text_pattern *last = &set->pattern[kept - 1], *p = &set->pattern[i];
        if (p->len == last->len && memcmp(p->bytes, last->bytes, p->len) == 0)
            mem_free(p->bytes);
        else
            set->pattern[kept++] = *p;
    }
    set->n = kept;
}

/* Byte `depth` of a pattern that has `depth` bytes or more; its end sorts before any byte. */
static int byte_at(const struct text_pattern *p, size_t depth)
{
    return depth < p->len ? (unsigned char)p->bytes[depth] : -1;
}

/* First pattern in [lo, hi), which agree before depth, whose byte there is at least `byte`. */
static size_t lower_bound(const struct text_set *set, size_t lo, size_t hi, size_t depth, int byte)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (byte_at(&set->pattern[mid], depth) < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest pattern that s starts with, or NULL. */
static const struct text_pattern *longest_at(const struct text_set *set, const char *s, size_t n)
{
    const struct text_pattern *longest = NULL;
    size_t lo = 0, hi = set->n;
    for (size_t depth = 0; depth < n && lo < hi; depth++) {
        int byte = (unsigned char)s[depth];
        lo = lower_bound(set, lo, hi, depth, byte);
        hi = lower_bound(set, lo, hi, depth, byte + 1);
        if (lo < hi && set->pattern[lo].len == depth + 1)
            longest = &set->pattern[lo];
    }
    return longest;
}

bool text_set_find(const struct text_set *set, const char *s, size_t n, size_t from,
                   struct text_match *m)
{
    for (size_t at = from; at < n; at++) {
        if (!set->first[(unsigned char)s[at]])
            continue;
        const struct text_pattern *p = longest_at(set, s + at, n - at);
        if (p) {
            *m = (struct text_match){at, at + p->len, p->added};
            return true;
        }
    }
    return false;
}

void text_set_release(struct text_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        mem_free(set->pattern[i].bytes);
    mem_free(set->pattern);
    *set = (struct text_set){0};
}
