/* Which level runs, and the arithmetic of packed operands that all levels share. */
#include "kern/kern.h"

#include "base/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

enum { GEMM_SPLIT_ROWS = 128 }; // Rows per thread from which rows are split, not columns.

static const struct kern *const levels[] = {
    &kern_portable,
#if defined __x86_64__
    &kern_avx2,
#endif
    NULL,
};

const struct kern *const *kern_levels(void)
{
    return levels;
}

#if defined __x86_64__
/* The register sets whose state the system saves (XCR0). */
static unsigned saved_state(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

static bool cpu_has_avx2(void)
{
    const unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, avx2 = 1u << 5, ymm = 6;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (fma | osxsave | avx)) != (fma | osxsave | avx))
        return false;
    return (saved_state() & ymm) == ymm && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & avx2);
}
#endif

bool kern_usable(const struct kern *k)
{
#if defined __x86_64__
    if (k == &kern_avx2)
        return cpu_has_avx2();
#endif
    return k == &kern_portable;
}

const struct kern *kern_best(void)
{
    const struct kern *best = levels[0];
    for (int i = 0; levels[i]; i++)
        if (kern_usable(levels[i]))
            best = levels[i];
    return best;
}

const struct kern *kern_find(const char *name)
{
    for (int i = 0; levels[i]; i++)
        if (strcmp(levels[i]->name, name) == 0)
            return levels[i];
    return NULL;
}

/* "portable, avx2": the levels that this CPU runs. */
static void usable_names(char *out, size_t size)
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; levels[i] && at < size; i++)
        if (kern_usable(levels[i]))
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", levels[i]->name);
}

const struct kern *kern_choose(struct err *e)
{
    const char *name = getenv("LOCO_KERN");
    if (!name || !*name)
        return kern_best();
    const struct kern *k = kern_find(name);
    if (k && kern_usable(k))
        return k;
    char names[64];
    usable_names(names, sizeof names);
    err_set(e, ERR_USAGE, "LOCO_KERN=%s: %s; this CPU runs: %s (unset it to take the best)", name,
            k ? "this CPU cannot run that kernel level" : "no such kernel level", names);
    return NULL;
}

static size_t panel_bytes(const struct kern *k, int depth)
{
    return (size_t)k->panel * round_up((size_t)depth, GEMM_STEP) * sizeof(bf16);
}

int kern_panels(const struct kern *k, int n)
{
    return (n + k->panel - 1) / k->panel;
}

size_t kern_packed_bytes(const struct kern *k, int n, int depth)
{
    return (size_t)kern_panels(k, n) * panel_bytes(k, depth) + KERN_GUARD;
}

const void *kern_panel(const struct kern *k, const void *packed, int depth, int n0)
{
    ASSERT(n0 % k->panel == 0);
    return (const char *)packed + (size_t)(n0 / k->panel) * panel_bytes(k, depth);
}

void kern_gemm_part(const struct kern *k, const struct gemm *g, int ith, int nth)
{
    struct gemm part = *g;
    size_t lo, hi;
    if (g->m >= GEMM_SPLIT_ROWS * nth) {
        pool_split((size_t)g->m, 4, ith, nth, &lo, &hi);
        part.a += lo * g->lda;
        part.c += lo * g->ldc;
        part.m = (int)(hi - lo);
    } else {
        pool_split((size_t)g->n, (size_t)k->panel, ith, nth, &lo, &hi);
        part.b = kern_panel(k, g->b, g->k, (int)lo);
        part.c += lo;
        part.n = (int)(hi - lo);
    }
    if (part.m > 0 && part.n > 0)
        k->gemm(&part);
}
