/* The hash map: linear probing over a table of indices at most half full, entries in a list. */
#include "base/map.h"
#include "base/mem.h"

#include <string.h>

#define SLOTS_MIN 16

/* FNV-1a with 64 bits, folded. */
static uint32_t hash_bytes(const char *key, size_t len)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)key[i]) * UINT64_C(0x100000001b3);
    return (uint32_t)(h ^ (h >> 32));
}

/* The slot that holds key, or the free one where it belongs. */
static uint32_t *find_slot(const struct map *m, const char *key, size_t len, uint32_t hash)
{
    for (size_t i = hash;; i++) {
        uint32_t *slot = &m->slot[i & (m->slots - 1)];
        if (*slot == 0)
            return slot;
        const struct map_entry *en = &m->entry[*slot - 1];
        if (en->hash == hash && en->len == len && memcmp(en->key, key, len) == 0)
            return slot;
    }
}

static void grow_slots(struct map *m)
{
    m->slots = MAX(m->slots * 2, SLOTS_MIN);
    mem_free(m->slot);
    m->slot = mem_calloc(m->slots, sizeof *m->slot);
    for (size_t i = 0; i < m->n; i++) {
        size_t at = m->entry[i].hash & (m->slots - 1);
        while (m->slot[at] != 0)
            at = (at + 1) & (m->slots - 1);
        m->slot[at] = (uint32_t)i + 1;
    }
}

bool map_put(struct map *m, const char *key, size_t len, int64_t value)
{
    ASSERT(len <= UINT32_MAX && m->n < UINT32_MAX);
    if (m->slots < 2 * (m->n + 1))
        grow_slots(m);
    uint32_t hash = hash_bytes(key, len);
    uint32_t *slot = find_slot(m, key, len, hash);
    if (*slot != 0) {
        m->entry[*slot - 1].value = value;
        return false;
    }
    mem_grow(&m->entry, &m->cap, m->n + 1, sizeof *m->entry);
    m->entry[m->n++] = (struct map_entry){
        .key = mem_strndup(key, len),
        .len = (uint32_t)len,
        .hash = hash,
        .value = value,
    };
    *slot = (uint32_t)m->n;
    return true;
}

bool map_get(const struct map *m, const char *key, size_t len, int64_t *value)
{
    if (m->n == 0)
        return false;
    uint32_t slot = *find_slot(m, key, len, hash_bytes(key, len));
    if (slot != 0 && value)
        *value = m->entry[slot - 1].value;
    return slot != 0;
}

void map_release(struct map *m)
{
    for (size_t i = 0; i < m->n; i++)
        mem_free((void *)m->entry[i].key);
    mem_free(m->entry);
    mem_free(m->slot);
    *m = (struct map){0};
}
