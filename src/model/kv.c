/* The paged KV cache: a pool of blocks with reference counts. A block is zeroed when it is taken,
 * so what a kernel reads behind a sequence's last key is zero; a block that a prompt and its
 * completion straddle is copied when the prompt is forked.
 */
#include "model/model.h"

#include "model/model_int.h"

#include <string.h>

size_t kv_block_bytes(const struct model_config *c, const struct kern *k)
{
    return (size_t)c->L * (size_t)c->G * round_up(k->kv_bytes(c->E), 64);
}

void kv_carve(struct kv *kv, const struct model *m, int n_blocks, struct carve *c)
{
    *kv = (struct kv){.n_blocks = n_blocks, .G = m->conf.G};
    kv->block_bytes = kv_block_bytes(&m->conf, m->kern);
    kv->head_bytes = round_up(m->kern->kv_bytes(m->conf.E), 64);
    kv->refs = carve_take(c, (size_t)n_blocks * sizeof *kv->refs);
    kv->free_list = carve_take(c, (size_t)n_blocks * sizeof *kv->free_list);
    kv->data = carve_take(c, (size_t)n_blocks * kv->block_bytes);
}

void kv_init(struct kv *kv)
{
    kv->n_free = kv->n_blocks;
    for (int i = 0; i < kv->n_blocks; i++) {
        kv->refs[i] = 0;
        kv->free_list[i] = kv->n_blocks - 1 - i;
    }
}

void *kv_head(const struct kv *kv, int block, int layer, int g)
{
    return kv->data + (size_t)block * kv->block_bytes +
           ((size_t)layer * (size_t)kv->G + (size_t)g) * kv->head_bytes;
}

static int take(struct kv *kv)
{
    ASSERT(kv->n_free > 0);
    int block = kv->free_list[--kv->n_free];
    ASSERT(kv->refs[block] == 0);
    kv->refs[block] = 1;
    return block;
}

bool kv_reserve(struct kv *kv, struct kv_seq *s, int len)
{
    int need = kv_blocks(len);
    ASSERT(need <= s->capacity);
    if (need - s->n > kv->n_free)
        return false;
    while (s->n < need) {
        int block = take(kv);
        memset(kv->data + (size_t)block * kv->block_bytes, 0, kv->block_bytes);
        s->block[s->n++] = block;
    }
    return true;
}

bool kv_fork(struct kv *kv, const struct kv_seq *from, int len, struct kv_seq *to)
{
    int whole = len / KV_BLOCK, blocks = kv_blocks(len);
    ASSERT(to->n == 0 && blocks <= from->n && blocks <= to->capacity);
    if (blocks > whole && kv->n_free == 0)
        return false;
    for (int i = 0; i < whole; i++) {
        to->block[i] = from->block[i];
        kv->refs[to->block[i]]++;
    }
    if (blocks > whole) {
        int copy = take(kv);
        memcpy(kv->data + (size_t)copy * kv->block_bytes,
               kv->data + (size_t)from->block[whole] * kv->block_bytes, kv->block_bytes);
        to->block[whole] = copy;
    }
    to->n = blocks;
    return true;
}

void kv_drop(struct kv *kv, struct kv_seq *s)
{
    for (int i = 0; i < s->n; i++) {
        int block = s->block[i];
        ASSERT(kv->refs[block] > 0);
        if (--kv->refs[block] == 0)
            kv->free_list[kv->n_free++] = block;
    }
    s->n = 0;
}
