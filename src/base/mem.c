/* Arenas over anonymous mappings, the ledger of their sizes, and the heap. Every arena object ends
 * in a gap that nobody owns, which AddressSanitizer watches where it is compiled in.
 */
#include "base/mem.h"
#include "base/base_int.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define MEM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MEM_ASAN 1
#endif
#endif

#ifdef MEM_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#define ALIGNMENT  ((size_t)64)
#define GAP        ALIGNMENT // after every object
#define PAGE       ((size_t)4096)
#define HUGE_PAGE  ((size_t)2 << 20)
#define STATUS_MAX ((size_t)1 << 20)

/* `size` anonymous bytes that start at a multiple of `align`, or NULL. */
static unsigned char *map_aligned(size_t size, size_t align)
{
    if (size > SIZE_MAX - align)
        return NULL;
    unsigned char *p =
        mmap(NULL, size + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t head = round_up((uintptr_t)p, align) - (uintptr_t)p;
    if (head > 0)
        munmap(p, head);
    if (align > head)
        munmap(p + head + size, align - head);
    return p + head;
}

int arena_init(struct arena *a, const char *name, size_t bytes, struct err *e)
{
    *a = (struct arena){.name = name};
    size_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
    size_t size = bytes <= SIZE_MAX - page ? round_up(MAX(bytes, 1), page) : 0;
    if (size > 0)
        a->base = map_aligned(size, page);
    if (!a->base) {
        char text[24];
        return err_set(e, ERR_MEMORY, "%s: the system refuses %s: %s", name, mem_text(bytes, text),
                       strerror(ENOMEM));
    }
    a->size = size;
    if (page == HUGE_PAGE) // Advice only: without huge pages all is as right, and slower.
        madvise(a->base, size, MADV_HUGEPAGE);
    ASAN_POISON_MEMORY_REGION(a->base, size);
    return 0;
}

size_t arena_cost(size_t n)
{
    ASSERT(n <= SIZE_MAX - ALIGNMENT - GAP);
    return round_up(n, ALIGNMENT) + GAP;
}

void *arena_alloc(struct arena *a, size_t n)
{
    size_t cost = arena_cost(n);
    ASSERT(cost <= a->size - a->used);
    void *p = a->base + a->used;
    a->used += cost;
    ASAN_UNPOISON_MEMORY_REGION(p, n);
    return p;
}

void arena_reset(struct arena *a, size_t mark)
{
    ASSERT(mark <= a->used);
    ASAN_POISON_MEMORY_REGION(a->base + mark, a->used - mark);
    a->used = mark;
}

void arena_release(struct arena *a)
{
    if (a->base) {
        ASAN_UNPOISON_MEMORY_REGION(a->base, a->size);
        munmap(a->base, a->size);
    }
    *a = (struct arena){0};
}

_Noreturn static void die_exhausted(size_t n)
{
    char text[24];
    err_die(ERR_MEMORY, "out of memory: the system refuses %s more", mem_text(n, text));
}

void *mem_alloc(size_t n)
{
    void *p = malloc(MAX(n, 1));
    if (!p)
        die_exhausted(n);
    return p;
}

void *mem_calloc(size_t n, size_t size)
{
    void *p = calloc(MAX(n, 1), MAX(size, 1));
    if (!p)
        die_exhausted(size > 0 && n > SIZE_MAX / size ? SIZE_MAX : n * size);
    return p;
}

void *mem_realloc(void *p, size_t n)
{
    void *q = realloc(p, MAX(n, 1));
    if (!q)
        die_exhausted(n);
    return q;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

char *mem_strndup(const char *s, size_t n)
{
    char *copy = mem_alloc(n + 1);
    if (n > 0)
        memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

void mem_free(void *p)
{
    free(p);
}

void mem_grow(void *p, size_t *cap, size_t need, size_t size)
{
    void **array = p;
    if (need <= *cap)
        return;
    size_t most = SIZE_MAX / size, next = MIN(MAX(MAX(need, *cap + *cap / 2), 8), most);
    if (next < need)
        die_exhausted(SIZE_MAX);
    *array = mem_realloc(*array, next * size);
    *cap = next;
}

void ledger_add(struct ledger *l, const char *name, size_t bytes)
{
    int i = 0;
    while (i < l->n && strcmp(l->item[i].name, name) != 0)
        i++;
    ASSERT(i < LEDGER_MAX);
    if (i == l->n)
        l->item[l->n++].name = name;
    size_t *sum = &l->item[i].bytes;
    *sum = bytes > SIZE_MAX - *sum ? SIZE_MAX : *sum + bytes;
}

size_t ledger_total(const struct ledger *l)
{
    size_t total = 0;
    for (int i = 0; i < l->n; i++)
        total = l->item[i].bytes > SIZE_MAX - total ? SIZE_MAX : total + l->item[i].bytes;
    return total;
}

int ledger_check(const struct ledger *l, size_t budget, const char *remedy, struct err *e)
{
    size_t total = ledger_total(l);
    if (total <= budget)
        return 0;
    int largest = 0;
    for (int i = 1; i < l->n; i++)
        if (l->item[i].bytes > l->item[largest].bytes)
            largest = i;
    char need[24], have[24], most[24];
    return err_set(e, ERR_MEMORY,
                   "this run needs %s of memory and may use %s; the largest part is %s with %s; %s",
                   mem_text(total, need), mem_text(budget, have), l->item[largest].name,
                   mem_text(l->item[largest].bytes, most), remedy);
}

/* "Key:  N kB" of a file in /proc, in bytes; false when it is not there. */
static bool proc_bytes(const char *path, const char *key, size_t *bytes)
{
    char *text;
    size_t size;
    uint64_t kb;
    if (file_read(path, STATUS_MAX, &text, &size, NULL) < 0)
        return false;
    bool found = base_field(text, key, &kb);
    if (found)
        *bytes = (size_t)kb * 1024;
    mem_free(text);
    return found;
}

static bool group_number(const char *folder, const char *name, const char *key, uint64_t *value)
{
    char *text = base_cgroup_text(folder, name);
    bool found = text && base_field(text, key, value);
    mem_free(text);
    return found;
}

/* Lowers *left to what this group leaves. Page cache counts as use there, yet goes when asked. */
static void take_group(void *left, const char *folder, int version)
{
    bool v2 = version == 2;
    uint64_t limit, use, active = 0, inactive = 0;
    if (!group_number(folder, v2 ? "memory.max" : "memory.limit_in_bytes", "", &limit) ||
        !group_number(folder, v2 ? "memory.current" : "memory.usage_in_bytes", "", &use))
        return;
    group_number(folder, "memory.stat", v2 ? "active_file " : "total_active_file ", &active);
    group_number(folder, "memory.stat", v2 ? "inactive_file " : "total_inactive_file ", &inactive);
    use -= MIN(use, active + inactive);
    *(size_t *)left = MIN(*(size_t *)left, (size_t)(limit - MIN(limit, use)));
}

size_t mem_available(void)
{
    size_t left = SIZE_MAX;
    proc_bytes("/proc/meminfo", "MemAvailable", &left);
    base_cgroup_walk("memory", take_group, &left);
    return left;
}

size_t mem_resident(void)
{
    size_t bytes = 0;
    proc_bytes("/proc/self/status", "RssAnon", &bytes);
    return bytes;
}

size_t mem_peak(void)
{
    size_t bytes = 0;
    proc_bytes("/proc/self/status", "VmHWM", &bytes);
    return bytes;
}

char *mem_text(size_t bytes, char out[24])
{
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) {
        snprintf(out, 24, "%zu B", bytes);
        return out;
    }
    size_t i = 0;
    double x = (double)bytes / 1024;
    for (; x >= 1024 && i + 1 < ARRAY_LEN(unit); i++)
        x /= 1024;
    snprintf(out, 24, "%.2f %s", x, unit[i]);
    return out;
}
