/* loco check: every operator of every kernel level that this CPU has, against the portable level to
 * the bit and against double precision within its bound.
 */
#include "cli/cli.h"

#include "kern/kern.h"
#include "telem/telem.h"

#include <inttypes.h>

struct tally {
    struct buf out;
    const char *level;
    int checks, failed;
    int rc;
    struct err *e;
};

static void report(void *ctx, const struct kern_verdict *v)
{
    struct tally *t = ctx;
    bool is_right = v->unequal == 0 && v->wrong == 0;
    t->checks++;
    t->failed += !is_right;
    buf_printf(&t->out, "%-10s%-14s%10" PRId64 "%10" PRId64 "%10" PRId64 "%12.3f  %s\n", t->level,
               v->op, v->compared, v->unequal, v->wrong, v->worst, is_right ? "ok" : "FAILED");
    if (t->rc == 0)
        t->rc = cli_flush(&t->out, t->e);
}

int cli_check(const struct conf *conf, struct err *e)
{
    (void)conf;
    struct tally t = {.e = e};
    uint64_t start = telem_now_ns();
    buf_printf(&t.out, "%-10s%-14s%10s%10s%10s%12s\n", "level", "operator", "outputs", "unequal",
               "wrong", "worst/bound");
    for (const struct kern *const *k = kern_levels(); *k; k++) {
        t.level = (*k)->name;
        if (kern_usable(*k))
            kern_check(*k, report, &t);
        else
            buf_printf(&t.out, "%-10sthis CPU does not have it\n", t.level);
    }
    buf_printf(&t.out, "check: %d checks, %d failed, %.1f s; the best level here is %s\n", t.checks,
               t.failed, (double)(telem_now_ns() - start) * 1e-9, kern_best()->name);
    if (t.rc == 0)
        t.rc = cli_flush(&t.out, e);
    buf_release(&t.out);
    return t.rc < 0 ? t.rc : t.failed > 0;
}
