/* Memory: named arenas of planned size, a ledger of them, and a heap for the rest.
 *
 * An arena is one anonymous mapping, reserved once from a byte count that a pure function of the
 * configuration gave; objects inside it are 64-byte aligned and never freed singly. The ledger
 * lists every planned arena before anything starts, and is refused there when it exceeds the
 * budget: the smaller of the cgroup's limit and what is available. Small and unplanned things
 * (configuration, tables, text) come from mem_alloc, which dies when the system has no memory:
 * no caller could go on. malloc and mmap are called nowhere else.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>

struct arena {
    unsigned char *base; // Owned mapping, NULL when released.
    size_t size, used;   // bytes
    const char *name;    // Borrowed; a string literal.
};

/* Maps `bytes` (rounded up to 2 MiB pages when large), zero-filled, huge pages advised. */
int arena_init(struct arena *a, const char *name, size_t bytes, struct err *e);

/* n bytes, 64-byte aligned, zero-filled unless reset before. ASSERTs that they fit. */
void *arena_alloc(struct arena *a, size_t n);

/* What arena_alloc takes for n bytes: sizes add up as sums of this. */
size_t arena_cost(size_t n);

/* Scratch use: goes back to an earlier `used`; 0 frees all. */
void arena_reset(struct arena *a, size_t mark);

void arena_release(struct arena *a);

/* Heap. Zero-filled where it says calloc. These die on exhaustion, so never return NULL. */
void *mem_alloc(size_t n);
void *mem_calloc(size_t n, size_t size);
void *mem_realloc(void *p, size_t n);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
void mem_free(void *p); // NULL is fine.

/* Grows the array behind *p to hold at least `need` items of `size` bytes; *cap is in items. */
void mem_grow(void *p, size_t *cap, size_t need, size_t size);

#define LEDGER_MAX 32

struct ledger {
    int n;
    struct {
        const char *name; // Borrowed.
        size_t bytes;
    } item[LEDGER_MAX];
};

/* Adds bytes to the item of that name, which is made when there is none. */
void ledger_add(struct ledger *l, const char *name, size_t bytes);
size_t ledger_total(const struct ledger *l);

/* Bytes this process may use: min(cgroup limit minus use, MemAvailable). */
size_t mem_available(void);

/* Resident anonymous bytes of this process now, and the peak of all resident bytes. */
size_t mem_resident(void);
size_t mem_peak(void);

/* ERR_MEMORY naming total, budget, largest item and `remedy` when the total exceeds budget. */
int ledger_check(const struct ledger *l, size_t budget, const char *remedy, struct err *e);

/* "1.25 GiB": writes into out[24] and returns it. */
char *mem_text(size_t bytes, char out[24]);
