/* A hash map from byte strings to 64-bit integers: open addressing, insertion only, keys copied.
 * Iteration order is insertion order. {0} is an empty map.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>

struct map_entry {
    const char *key; // Owned by the map, NUL-terminated after len bytes.
    uint32_t len;
    uint32_t hash;
    int64_t value;
};

struct map {
    struct map_entry *entry; // (n), insertion order.
    uint32_t *slot;          // (slots), index into entry plus one, 0 = empty.
    size_t n, cap, slots;
};

/* Inserts or overwrites. Returns true when the key was new. */
bool map_put(struct map *m, const char *key, size_t len, int64_t value);

/* Finds key; *value untouched when absent. value may be NULL. */
bool map_get(const struct map *m, const char *key, size_t len, int64_t *value);

void map_release(struct map *m);
