/* Byte pair encoding of one piece, in the order of the reference.
 *
 * Candidates for a merge wait in a heap by (rank, position). One that comes up is stale, and
 * dropped, when its left symbol is gone or last, or when the pair that stands there now makes
 * another product; ranks are not compared again. Pieces repeat, so a small direct-mapped cache
 * stands before it all. */
#include "text/text_int.h"

#include <string.h>

#define CACHE_BITS 16
#define CACHE_KEY  22 // bytes
#define CACHE_IDS  10
#define FREE_SLOT  UINT64_MAX
#define NONE       (-1)

struct text_symbol {
    int32_t id; // NONE: merged into the symbol before.
    int32_t before, after;
};

struct text_candidate {
    uint64_t key; // rank << 32 | position of the left symbol
    int32_t product;
};

struct text_cached {
    uint8_t len, n; // len 0: free
    char key[CACHE_KEY];
    int32_t id[CACHE_IDS];
};

void text_bpe_init(struct text_bpe *b, size_t n_merges)
{
    b->unk = NONE;
    b->slots = 16;
    while (b->slots < 2 * n_merges)
        b->slots *= 2;
    b->slot = mem_alloc(b->slots * sizeof *b->slot);
    for (size_t i = 0; i < b->slots; i++)
        b->slot[i].pair = FREE_SLOT;
    b->cache = mem_calloc((size_t)1 << CACHE_BITS, sizeof *b->cache);
}

/* The slot that holds the pair, or the free one where it belongs. */
static struct text_merge *find_merge(const struct text_bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t hash = pair * UINT64_C(0x9E3779B97F4A7C15);
    for (size_t i = (size_t)(hash >> 32);; i++) {
        struct text_merge *m = &b->slot[i & (b->slots - 1)];
        if (m->pair == pair || m->pair == FREE_SLOT)
            return m;
    }
}

void text_bpe_merge(struct text_bpe *b, int32_t left, int32_t right, int32_t rank, int32_t product)
{
    struct text_merge *m = find_merge(b, left, right);
    b->n_merges += m->pair == FREE_SLOT;
    ASSERT(b->n_merges < b->slots);
    *m = (struct text_merge){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, rank, product};
}

static void heap_push(struct text_bpe *b, struct text_candidate c)
{
    mem_grow(&b->heap, &b->heap_cap, b->n_heap + 1, sizeof *b->heap);
    size_t at = b->n_heap++;
    for (; at > 0 && c.key < b->heap[(at - 1) / 2].key; at = (at - 1) / 2)
        b->heap[at] = b->heap[(at - 1) / 2];
    b->heap[at] = c;
}

static struct text_candidate heap_pop(struct text_bpe *b)
{
    struct text_candidate top = b->heap[0], last = b->heap[--b->n_heap];
    size_t at = 0;
    for (size_t child = 1; child < b->n_heap; child = 2 * at + 1) {
        child += child + 1 < b->n_heap && b->heap[child + 1].key < b->heap[child].key;
        if (last.key <= b->heap[child].key)
            break;
        b->heap[at] = b->heap[child];
        at = child;
    }
    b->heap[at] = last;
    return top;
}

/* Queues the merge of the symbol at `left` with the one after it, if there is such a merge. */
static void propose(struct text_bpe *b, int32_t left)
{
    if (left == NONE || b->symbol[left].after == NONE)
        return;
    const struct text_merge *m =
        find_merge(b, b->symbol[left].id, b->symbol[b->symbol[left].after].id);
    if (m->pair != FREE_SLOT)
        heap_push(b, (struct text_candidate){(uint64_t)m->rank << 32 | (uint32_t)left, m->product});
}

/* Makes the piece's symbols; bytes that the vocabulary lacks are dropped or become unk. */
static int32_t make_symbols(struct text_bpe *b, const char *piece, size_t n)
{
    int32_t count = 0;
    bool after_unk = false;
    mem_grow(&b->symbol, &b->symbol_cap, n, sizeof *b->symbol);
    for (size_t i = 0; i < n; i++) {
        int32_t id = b->byte_id[(unsigned char)piece[i]];
        bool missing = id == NONE;
        if (missing && (b->unk == NONE || (b->fuse_unk && after_unk)))
            continue;
        b->symbol[count] = (struct text_symbol){missing ? b->unk : id, count - 1, count + 1};
        after_unk = missing;
        count++;
    }
    if (count > 0)
        b->symbol[count - 1].after = NONE;
    return count;
}

static void merge_all(struct text_bpe *b, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        propose(b, i);
    while (b->n_heap > 0) {
        struct text_candidate c = heap_pop(b);
        int32_t at = (int32_t)(uint32_t)c.key;
        struct text_symbol *left = &b->symbol[at];
        if (left->id == NONE || left->after == NONE)
            continue;
        struct text_symbol *right = &b->symbol[left->after];
        const struct text_merge *now = find_merge(b, left->id, right->id);
        if (now->pair == FREE_SLOT || now->product != c.product)
            continue;
        left->id = c.product;
        left->after = right->after;
        right->id = NONE;
        if (left->after != NONE)
            b->symbol[left->after].before = at;
        propose(b, left->before);
        propose(b, at);
    }
}

/* The id of a piece that is a token as a whole, or NONE. */
static int32_t whole_token(struct text_bpe *b, const char *piece, size_t n)
{
    int64_t id = NONE;
    buf_clear(&b->spelling);
    text_alphabet_spell(piece, n, &b->spelling);
    map_get(b->vocab, b->spelling.data, b->spelling.len, &id);
    return (int32_t)id;
}

static void encode_uncached(struct text_bpe *b, const char *piece, size_t n, struct text_ids *out)
{
    if (b->ignore_merges) {
        int32_t id = whole_token(b, piece, n);
        if (id != NONE) {
            text_ids_push(out, id);
            return;
        }
    }
    int32_t count = make_symbols(b, piece, n);
    merge_all(b, count);
    for (int32_t i = 0; i < count; i++)
        if (b->symbol[i].id != NONE)
            text_ids_push(out, b->symbol[i].id);
}

static struct text_cached *cache_slot(const struct text_bpe *b, const char *piece, size_t n)
{
    uint32_t h = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)piece[i]) * 0x01000193u;
    return &b->cache[(h ^ h >> 16) & ((1u << CACHE_BITS) - 1)];
}

void text_bpe_encode(struct text_bpe *b, const char *piece, size_t n, struct text_ids *out)
{
    if (n > CACHE_KEY) {
        encode_uncached(b, piece, n, out);
        return;
    }
    struct text_cached *c = cache_slot(b, piece, n);
    if (c->len == n && memcmp(c->key, piece, n) == 0) {
        for (int i = 0; i < c->n; i++)
            text_ids_push(out, c->id[i]);
        return;
    }
    size_t start = out->n;
    encode_uncached(b, piece, n, out);
    size_t made = out->n - start;
    if (made > CACHE_IDS)
        return;
    c->len = (uint8_t)n;
    c->n = (uint8_t)made;
    memcpy(c->key, piece, n);
    if (made > 0)
        memcpy(c->id, out->id + start, made * sizeof *c->id);
}

void text_bpe_release(struct text_bpe *b)
{
    mem_free(b->slot);
    mem_free(b->symbol);
    mem_free(b->heap);
    mem_free(b->cache);
    buf_release(&b->spelling);
    *b = (struct text_bpe){0};
}
