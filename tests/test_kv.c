/* The paged cache: no block is lost or shared wrongly over thousands of random operations, what is
 * taken is zero, and a fork sees its parent's past and nobody else's future.
 */
#include "check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "model/model.h"

enum { BLOCKS = 40, SEQS = 12, CAPACITY = 8, OPERATIONS = 10000 };

static const struct model_config CONFIG = {.V = 8,
                                           .D = 8,
                                           .F = 8,
                                           .L = 2,
                                           .H = 2,
                                           .G = 2,
                                           .E = 4,
                                           .positions_max = 256,
                                           .rope_theta = 1e4};

/* A cache and sequences, and what a model of them in plain arrays says: the label of each position
   written, 0 for none. */
struct rig {
    struct model m;
    struct kv kv;
    struct arena arena;
    struct kv_seq seq[SEQS];
    int table[SEQS][CAPACITY];
    int label[SEQS][CAPACITY * KV_BLOCK];
    int len[SEQS];
    int next_label;
};

static void rig_open(struct rig *r)
{
    struct carve c = {0};
    struct err e = {0};
    *r = (struct rig){0};
    r->m = (struct model){.conf = CONFIG, .kern = &kern_portable};
    kv_carve(&r->kv, &r->m, BLOCKS, &c);
    check_ok(arena_init(&r->arena, "kv", c.used, &e), e);
    c = (struct carve){.arena = &r->arena};
    kv_carve(&r->kv, &r->m, BLOCKS, &c);
    memset(r->kv.data, 0xa5, BLOCKS * r->kv.block_bytes); // not zero, so that zeroing shows
    kv_init(&r->kv);
    for (int i = 0; i < SEQS; i++)
        r->seq[i] = (struct kv_seq){.block = r->table[i], .capacity = CAPACITY};
}

/* The place of position pos in sequence i: four bytes of its block that stand for its K and V. */
static unsigned char *place(const struct rig *r, int i, int pos)
{
    unsigned char *block = kv_head(&r->kv, r->seq[i].block[pos / KV_BLOCK], 0, 0);
    return block + (size_t)(pos % KV_BLOCK) * sizeof(int);
}

static void write_to(struct rig *r, int i, int len)
{
    for (int pos = r->len[i]; pos < len; pos++) {
        r->label[i][pos] = ++r->next_label;
        memcpy(place(r, i, pos), &r->label[i][pos], sizeof(int));
    }
    r->len[i] = len;
}

/* Every sequence reads what was written to it; what it did not write reads zero. */
static void check_content(const struct rig *r, int i)
{
    for (int pos = 0; pos < r->seq[i].n * KV_BLOCK; pos++) {
        int found;
        memcpy(&found, place(r, i, pos), sizeof found);
        assert_int_equal(found, pos < r->len[i] ? r->label[i][pos] : 0);
    }
}

/* References are what the tables say, and the free ones are the rest. */
static void check_counts(const struct rig *r)
{
    int refs[BLOCKS] = {0}, used = 0;
    for (int i = 0; i < SEQS; i++)
        for (int k = 0; k < r->seq[i].n; k++)
            refs[r->seq[i].block[k]]++;
    for (int b = 0; b < BLOCKS; b++) {
        assert_int_equal(refs[b], r->kv.refs[b]);
        used += refs[b] > 0;
    }
    assert_int_equal(used + r->kv.n_free, BLOCKS);
    for (int k = 0; k < r->kv.n_free; k++)
        assert_int_equal(refs[r->kv.free_list[k]], 0);
}

static void grow(struct rig *r, int i, int more)
{
    int len = MIN(r->len[i] + more, CAPACITY * KV_BLOCK), need = kv_blocks(len) - r->seq[i].n;
    int before = r->kv.n_free, had = r->seq[i].n;
    bool fits = need <= before;
    assert_true(kv_reserve(&r->kv, &r->seq[i], len) == fits);
    if (!fits) {
        assert_true(r->kv.n_free == before && r->seq[i].n == had);
        return;
    }
    check_content(r, i); // new blocks are zero
    write_to(r, i, len);
}

static void fork_to(struct rig *r, int from, int to, int len)
{
    int before = r->kv.n_free;
    bool fits = len % KV_BLOCK == 0 || before > 0;
    assert_true(kv_fork(&r->kv, &r->seq[from], len, &r->seq[to]) == fits);
    assert_int_equal(before - r->kv.n_free, fits && len % KV_BLOCK != 0);
    if (!fits) {
        assert_int_equal(r->seq[to].n, 0);
        return;
    }
    for (int k = 0; k < len / KV_BLOCK; k++)
        assert_int_equal(r->seq[to].block[k], r->seq[from].block[k]);
    memcpy(r->label[to], r->label[from], (size_t)len * sizeof(int));
    r->len[to] = len;
}

static void random_operations_lose_no_block(void **state)
{
    (void)state;
    struct rig r;
    uint64_t key = rng_key(check_seed(), RNG_DATA);
    rig_open(&r);
    for (uint32_t n = 0; n < OPERATIONS; n++) {
        int i = (int)rng_below(key, n, 0, 0, 0, SEQS), j = (int)rng_below(key, n, 1, 0, 0, SEQS);
        uint32_t what = rng_below(key, n, 2, 0, 0, 8);
        if (what < 4) {
            grow(&r, i, 1 + (int)rng_below(key, n, 3, 0, 0, 40));
        } else if (what < 6 && i != j && r.seq[j].n == 0) {
            fork_to(&r, i, j, r.len[i]);
        } else if (what >= 6) {
            kv_drop(&r.kv, &r.seq[i]);
            kv_drop(&r.kv, &r.seq[i]); // twice is once
            r.len[i] = 0;
        }
        check_counts(&r);
        check_content(&r, i);
        check_content(&r, j);
    }
    for (int i = 0; i < SEQS; i++)
        kv_drop(&r.kv, &r.seq[i]);
    assert_int_equal(r.kv.n_free, BLOCKS);
    arena_release(&r.arena);
}

static void forks_share_whole_blocks_and_copy_the_last(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r);
    grow(&r, 0, KV_BLOCK + 5);
    fork_to(&r, 0, 1, r.len[0]);
    fork_to(&r, 0, 2, KV_BLOCK); // an end on a border: nothing to copy
    fork_to(&r, 0, 3, 0);
    assert_int_equal(r.kv.n_free, BLOCKS - 3);
    assert_int_equal(r.seq[3].n, 0);
    grow(&r, 1, 4);
    grow(&r, 2, 9);
    for (int i = 0; i < 4; i++)
        check_content(&r, i); // each has its own continuation
    kv_drop(&r.kv, &r.seq[0]);
    check_content(&r, 1);
    assert_int_equal(r.kv.refs[r.seq[1].block[0]], 2);
    arena_release(&r.arena);
}

static void a_full_cache_takes_nothing(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r);
    for (int i = 0; i < BLOCKS / CAPACITY; i++)
        grow(&r, i, CAPACITY * KV_BLOCK);
    assert_int_equal(r.kv.n_free, 0);
    assert_false(kv_reserve(&r.kv, &r.seq[10], 1));
    assert_false(kv_fork(&r.kv, &r.seq[0], 33, &r.seq[10]));
    assert_true(kv_fork(&r.kv, &r.seq[0], 64, &r.seq[10])); // shares alone
    check_counts(&r);
    kv_drop(&r.kv, &r.seq[3]);
    assert_true(kv_reserve(&r.kv, &r.seq[11], CAPACITY * KV_BLOCK));
    check_content(&r, 11);
    arena_release(&r.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_lose_no_block),
        cmocka_unit_test(forks_share_whole_blocks_and_copy_the_last),
        cmocka_unit_test(a_full_cache_takes_nothing),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
