/* The pool gives every share once, waits for all, survives parking, and flushes denormals. */
#include "check.h"

#include "base/pool.h"

#include <stdatomic.h>

#define MOST 5

struct tally {
    atomic_int calls[MOST];
    atomic_int wrong;
    int nth;
};

static void count_share(void *ctx, int ith, int nth)
{
    struct tally *t = ctx;
    atomic_fetch_add(&t->calls[ith], 1);
    if (nth != t->nth)
        atomic_fetch_add(&t->wrong, 1);
}

static void test_every_share_runs_once_per_run(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        struct tally t = {.nth = n};
        struct pool *p = pool_new(n);
        assert_int_equal(pool_threads(p), n);
        enum { RUNS = 2000 };
        for (int i = 1; i <= RUNS; i++) {
            pool_run(p, count_share, &t);
            for (int ith = 0; ith < n; ith++)
                assert_int_equal(atomic_load(&t.calls[ith]), i);
        }
        assert_int_equal(atomic_load(&t.wrong), 0);
        pool_free(p);
    }
    pool_free(NULL);
}

static void test_parked_workers_wake(void **state)
{
    (void)state;
    struct tally t = {.nth = 2};
    struct pool *p = pool_new(2);
    for (int i = 1; i <= 5; i++) {
        usleep(2000); // longer than any spinning
        pool_run(p, count_share, &t);
        assert_int_equal(atomic_load(&t.calls[1]), i);
    }
    pool_free(p);
}

struct phases {
    struct pool *pool;
    int value[MOST]; // written by its share, read by the next one after the barrier
    atomic_int wrong;
};

static void run_phases(void *ctx, int ith, int nth)
{
    struct phases *ph = ctx;
    for (int phase = 0; phase < 500; phase++) {
        ph->value[ith] = phase;
        pool_barrier(ph->pool);
        if (ph->value[(ith + 1) % nth] != phase)
            atomic_fetch_add(&ph->wrong, 1);
        pool_barrier(ph->pool);
    }
}

static void test_barrier_separates_phases(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        struct phases ph = {.pool = pool_new(n)};
        pool_run(ph.pool, run_phases, &ph);
        assert_int_equal(atomic_load(&ph.wrong), 0);
        pool_free(ph.pool);
    }
}

struct drive {
    struct pool *pool;
    struct tally tally;
};

static void drive_runs(void *ctx)
{
    struct drive *d = ctx;
    for (int i = 0; i < 100; i++)
        pool_run(d->pool, count_share, &d->tally);
}

static void test_drivers_run_side_by_side(void **state)
{
    (void)state;
    struct drive d[3];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) {
            if (round == 0)
                d[i] = (struct drive){.pool = pool_new(2), .tally = {.nth = 2}};
            pool_start(d[i].pool, drive_runs, &d[i]);
        }
        for (int i = 0; i < 3; i++) {
            pool_wait(d[i].pool);
            pool_wait(d[i].pool);
            assert_int_equal(atomic_load(&d[i].tally.calls[0]), 100 * (round + 1));
            assert_int_equal(atomic_load(&d[i].tally.calls[1]), 100 * (round + 1));
        }
    }
    pool_start(d[0].pool, drive_runs, &d[0]); // pool_free waits for it.
    for (int i = 0; i < 3; i++)
        pool_free(d[i].pool);
    assert_int_equal(atomic_load(&d[0].tally.calls[1]), 400);
}

/* Half the smallest normal float: zero where denormals are flushed. */
static float tiny_half(void)
{
    volatile float x = 0x1p-126f;
    return x * 0.5f;
}

static void store_tiny(void *ctx, int ith, int nth)
{
    (void)nth;
    ((float *)ctx)[ith] = tiny_half();
}

static void store_tiny_first(void *ctx)
{
    *(float *)ctx = tiny_half();
}

static void test_all_threads_flush_denormals(void **state)
{
    (void)state;
    if (check_on_valgrind())
        skip();
#if defined(__x86_64__)
    float tiny[MOST + 1];
    struct pool *p = pool_new(MOST);
    assert_true(tiny_half() > 0);
    pool_run(p, store_tiny, tiny);
    pool_start(p, store_tiny_first, &tiny[MOST]);
    pool_wait(p);
    for (int i = 0; i <= MOST; i++)
        assert_true(tiny[i] == 0);
    assert_true(tiny_half() > 0); // The caller's own mode is back.
    pool_free(p);
#endif
}

static void run_inside(void *ctx, int ith, int nth)
{
    (void)nth;
    if (ith == 0)
        pool_run(ctx, run_inside, ctx);
}

static void nest(void *ctx)
{
    (void)ctx;
    struct pool *p = pool_new(1);
    pool_run(p, run_inside, p);
}

static void test_a_share_may_not_run_its_pool(void **state)
{
    (void)state;
    check_asserts(nest, NULL, "working_for != p");
}

static void test_split_covers_all_at_multiples_of_the_grain(void **state)
{
    (void)state;
    for (size_t total = 0; total < 100; total++)
        for (size_t grain = 1; grain < 20; grain += 3)
            for (int nth = 1; nth <= 6; nth++) {
                size_t at = 0;
                for (int ith = 0; ith < nth; ith++) {
                    size_t lo, hi;
                    pool_split(total, grain, ith, nth, &lo, &hi);
                    assert_int_equal(lo, at);
                    assert_true(lo <= hi && (hi == total || hi % grain == 0));
                    at = hi;
                }
                assert_int_equal(at, total);
            }
}

static void test_cpus_are_counted(void **state)
{
    (void)state;
    int cpus = pool_cpus();
    assert_true(cpus >= 1 && cpus <= sysconf(_SC_NPROCESSORS_ONLN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_share_runs_once_per_run),
        cmocka_unit_test(test_parked_workers_wake),
        cmocka_unit_test(test_barrier_separates_phases),
        cmocka_unit_test(test_drivers_run_side_by_side),
        cmocka_unit_test(test_all_threads_flush_denormals),
        cmocka_unit_test(test_a_share_may_not_run_its_pool),
        cmocka_unit_test(test_split_covers_all_at_multiples_of_the_grain),
        cmocka_unit_test(test_cpus_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
