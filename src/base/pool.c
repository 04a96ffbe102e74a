/* The thread pool. The caller of pool_run takes share 0 itself and n - 1 workers the others, so n
 * CPUs are busy with n threads. Everybody waits at gates: a counter that only grows, watched for a
 * moment and then slept on by futex. Nobody watches when the pools of this process have more
 * threads than it has CPUs: whoever is awaited needs the CPU.
 */
#include "base/pool.h"
#include "base/base_int.h"
#include "base/mem.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define MXCSR_FLUSH 0x8040u // flush to zero, denormals are zero
#endif

#define SPINS       4000 // up to a tenth of a millisecond, by the CPU's pause
#define SPINS_LEAST 64
#define CACHE_LINE  64

/* Watching pays where the awaited thread runs: a gate that was often opened while it was watched is
   watched for longer, one that was not is soon slept on. */
struct gate {
    atomic_uint passed; // how often it was opened
    atomic_uint sleepers;
    atomic_int patience;                              // spins worth their time, as far as is known
    char apart[CACHE_LINE - 3 * sizeof(atomic_uint)]; // from what others write
};

struct worker {
    struct pool *pool;
    int ith;
    pthread_t thread;
};

struct pool {
    int n;
    bool driver_made, driver_busy; // touched by the caller of pool_start and pool_wait only
    atomic_bool stop;
    pool_fn fn;
    void *ctx;
    void (*driver)(void *ctx);
    void *driver_ctx;
    unsigned driver_before;              // driver_ended when it was started
    struct gate work, done;              // opened by pool_run, and by the last worker to finish
    struct gate meet;                    // opened by the last to reach pool_barrier
    struct gate driver_go, driver_ended; // opened by pool_start, and by the driver
    atomic_int unfinished;               // workers still at the current function
    atomic_int arrived;                  // threads waiting at the barrier
    pthread_t driver_thread;
    struct worker worker[]; // (n), of which 0 has no thread: it is the caller
};

static atomic_int threads_in_pools;
static _Thread_local struct pool *working_for; // the pool whose share this thread computes

#if defined(__x86_64__)
static unsigned flush_mode_get(void)
{
    return _mm_getcsr();
}

static void flush_mode_set(unsigned mode)
{
    _mm_setcsr(mode);
}

void pool_flush_denormals(void)
{
    _mm_setcsr(_mm_getcsr() | MXCSR_FLUSH);
}
#else
static unsigned flush_mode_get(void)
{
    return 0;
}

static void flush_mode_set(unsigned mode)
{
    (void)mode;
}

void pool_flush_denormals(void)
{
}
#endif

static unsigned gate_passed(struct gate *g)
{
    return atomic_load(&g->passed);
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->passed, 1);
    if (atomic_load(&g->sleepers) > 0)
        syscall(SYS_futex, &g->passed, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Spins until the gate is opened, `limit` times at most; returns how many were needed, or -1. */
static int gate_watch(struct gate *g, unsigned seen, int limit)
{
    for (int i = 0; i < limit; i++) {
        if (gate_passed(g) != seen)
            return i;
#if defined(__x86_64__)
        _mm_pause();
#endif
    }
    return -1;
}

/* Watching with what patience the gate has. One wait in 16 is watched to the end, so that patience
   can grow again. What threads learn at once may get lost: it is no more than a guess. */
static bool gate_opens_soon(struct gate *g, unsigned seen)
{
    int patience = atomic_load_explicit(&g->patience, memory_order_relaxed);
    bool is_probe = seen % 16 == 0;
    int spins = gate_watch(g, seen, is_probe ? SPINS : patience);
    int aim = spins < 0 ? SPINS_LEAST : MIN(SPINS, SPINS_LEAST + 4 * spins);
    if (spins >= 0 || is_probe)
        patience += (aim - patience) / 4;
    else
        patience -= patience / 16;
    atomic_store_explicit(&g->patience, MAX(patience, SPINS_LEAST), memory_order_relaxed);
    return spins >= 0;
}

static bool may_watch(void)
{
    static atomic_int cpus;
    int n = atomic_load(&cpus);
    if (n == 0)
        atomic_store(&cpus, n = pool_cpus());
    return atomic_load(&threads_in_pools) <= n;
}

/* Returns when the gate was opened since `seen` was read from it. */
static void gate_sleep(struct gate *g, unsigned seen)
{
    atomic_fetch_add(&g->sleepers, 1);
    while (gate_passed(g) == seen)
        syscall(SYS_futex, &g->passed, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

/* The same, watching it first where that may pay. */
static void gate_await(struct gate *g, unsigned seen)
{
    if (!may_watch() || !gate_opens_soon(g, seen))
        gate_sleep(g, seen);
}

static void *run_worker(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    pool_flush_denormals();
    working_for = p;
    for (unsigned seen = 0;; seen++) {
        gate_await(&p->work, seen);
        if (atomic_load(&p->stop))
            return NULL;
        p->fn(p->ctx, w->ith, p->n);
        if (atomic_fetch_sub(&p->unfinished, 1) == 1)
            gate_open(&p->done);
    }
}

static void *run_driver(void *arg)
{
    struct pool *p = arg;
    pool_flush_denormals();
    for (unsigned seen = 0;; seen++) {
        gate_sleep(&p->driver_go, seen);
        if (atomic_load(&p->stop))
            return NULL;
        p->driver(p->driver_ctx);
        gate_open(&p->driver_ended);
    }
}

/* Signals belong to the program's own threads: ours are born with all of them blocked but SIGBUS,
   which says that a mapped file became shorter (file_map.c). */
static void make_thread(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int reason = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (reason != 0)
        err_die(ERR_MEMORY, "cannot make a thread: %s; use fewer threads", strerror(reason));
}

struct pool *pool_new(int n_threads)
{
    ASSERT(n_threads >= 1);
    struct pool *p = mem_calloc(1, sizeof *p + (size_t)n_threads * sizeof p->worker[0]);
    p->n = n_threads;
    atomic_fetch_add(&threads_in_pools, n_threads);
    for (int i = 1; i < n_threads; i++) {
        p->worker[i] = (struct worker){.pool = p, .ith = i};
        make_thread(&p->worker[i].thread, run_worker, &p->worker[i]);
    }
    return p;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pool_wait(p);
    atomic_store(&p->stop, true);
    gate_open(&p->work);
    gate_open(&p->driver_go);
    for (int i = 1; i < p->n; i++)
        pthread_join(p->worker[i].thread, NULL);
    if (p->driver_made)
        pthread_join(p->driver_thread, NULL);
    atomic_fetch_sub(&threads_in_pools, p->n);
    mem_free(p);
}

int pool_threads(const struct pool *p)
{
    return p->n;
}

static void run_share_0(struct pool *p, pool_fn fn, void *ctx)
{
    struct pool *outer = working_for;
    unsigned mode = flush_mode_get();
    pool_flush_denormals();
    working_for = p;
    fn(ctx, 0, p->n);
    working_for = outer;
    flush_mode_set(mode);
}

void pool_run(struct pool *p, pool_fn fn, void *ctx)
{
    ASSERT(working_for != p);
    if (p->n == 1) {
        run_share_0(p, fn, ctx);
        return;
    }
    unsigned seen = gate_passed(&p->done);
    p->fn = fn;
    p->ctx = ctx;
    atomic_store(&p->unfinished, p->n - 1);
    gate_open(&p->work);
    run_share_0(p, fn, ctx);
    gate_await(&p->done, seen);
}

void pool_start(struct pool *p, void (*driver)(void *ctx), void *ctx)
{
    ASSERT(!p->driver_busy);
    if (!p->driver_made) {
        make_thread(&p->driver_thread, run_driver, p);
        p->driver_made = true;
    }
    p->driver = driver;
    p->driver_ctx = ctx;
    p->driver_busy = true;
    p->driver_before = gate_passed(&p->driver_ended);
    gate_open(&p->driver_go);
}

void pool_wait(struct pool *p)
{
    if (p->driver_busy)
        gate_sleep(&p->driver_ended, p->driver_before);
    p->driver_busy = false;
}

void pool_barrier(struct pool *p)
{
    ASSERT(working_for == p);
    unsigned seen = gate_passed(&p->meet);
    if (atomic_fetch_add(&p->arrived, 1) == p->n - 1) {
        atomic_store(&p->arrived, 0);
        gate_open(&p->meet);
    } else {
        gate_await(&p->meet, seen);
    }
}

/* Lowers *cpus to the quota of one group, rounded up: "max 100000" or "150000 100000" in version 2,
   two files in version 1, where -1 is no quota. */
static void take_quota(void *cpus, const char *folder, int version)
{
    char *quota = base_cgroup_text(folder, version == 2 ? "cpu.max" : "cpu.cfs_quota_us");
    char *period = version == 2 ? NULL : base_cgroup_text(folder, "cpu.cfs_period_us");
    uint64_t q = 0, per = 0;
    if (quota && base_field(quota, "", &q)) {
        const char *blank = strchr(quota, ' ');
        const char *text = version == 2 ? blank : period;
        if (text && base_field(text, "", &per) && per > 0)
            *(int *)cpus = (int)MIN((uint64_t) * (int *)cpus, MAX((q + per - 1) / per, 1));
    }
    mem_free(quota);
    mem_free(period);
}

int pool_cpus(void)
{
    cpu_set_t set;
    int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                           : (int)sysconf(_SC_NPROCESSORS_ONLN);
    cpus = MAX(cpus, 1);
    base_cgroup_walk("cpu", take_quota, &cpus);
    return cpus;
}
