/* Threads: one pool per device, static partition, no stealing. Thread count changes speed, never
 * bits: whoever splits work does it by sizes only, and no reduction crosses a split.
 *
 * pool_run gives n threads the same function and returns when all are done: the caller takes share
 * 0, n - 1 workers of the pool the others. pool_start returns at once, so that a host can drive
 * several devices ahead; pool_wait joins it. Waiting threads spin briefly, then park; they park at
 * once when the process has more pool threads than CPUs. Every share and every driver runs with
 * denormals flushed, and on the pool's own threads with all signals blocked but SIGBUS, which hits
 * the thread that reads. pthreads are used nowhere else.
 */
#pragma once

#include "base/err.h"

struct pool;

/* Work of thread ith of nth; ctx is shared and read-only unless split by ith. */
typedef void (*pool_fn)(void *ctx, int ith, int nth);

struct pool *pool_new(int n_threads); // Dies when threads cannot be made.
void pool_free(struct pool *p);       // NULL is fine.
int pool_threads(const struct pool *p);

/* Runs all n shares of fn; returns when all are done. No share may call it for the same pool. */
void pool_run(struct pool *p, pool_fn fn, void *ctx);

/* Starts driver(ctx) on a thread of the pool's own that may itself call pool_run. One at a time. */
void pool_start(struct pool *p, void (*driver)(void *ctx), void *ctx);
void pool_wait(struct pool *p); // Returns at once when nothing was started.

/* Waits until all shares of the current pool_run arrive. Every one of the nth must call it. */
void pool_barrier(struct pool *p);

/* Sets flush-to-zero and denormals-are-zero for the calling thread (MXCSR; elsewhere nothing). The
   main thread calls it at start; threads of pools have done so. */
void pool_flush_denormals(void);

/* Online CPUs this process may run on (affinity and cgroup quota). */
int pool_cpus(void);

/* [lo, hi) of `total` units for thread ith of nth, cut at multiples of `grain`. */
static inline void pool_split(size_t total, size_t grain, int ith, int nth, size_t *lo, size_t *hi)
{
    size_t units = (total + grain - 1) / grain;
    *lo = units * (size_t)ith / (size_t)nth * grain;
    *hi = units * ((size_t)ith + 1) / (size_t)nth * grain;
    *lo = MIN(*lo, total);
    *hi = MIN(*hi, total);
}
