/* The clock and the phases. Time is given away in one place, telem_charge, so none is lost or
 * counted twice.
 */
#include "telem/telem_int.h"

#include <string.h>
#include <time.h>

static const enum telem_share share_of[TELEM_PHASES_N] = {
#define PHASE_SHARE(id, name, share) [TELEM_##id] = TELEM_##share,
    TELEM_PHASES(PHASE_SHARE)};

static uint64_t read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t telem_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t telem_cpu_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t telem_clock(const struct telem *t)
{
    return t->o.now_ns ? t->o.now_ns(t->o.ctx) : telem_now_ns();
}

uint64_t telem_charge(struct telem *t)
{
    uint64_t now = telem_clock(t);
    enum telem_phase phase = t->depth > 0 ? t->open[t->depth - 1] : TELEM_OTHER;
    t->phase_ns[phase] += now - t->last_ns;
    t->last_ns = now;
    return now;
}

void telem_enter(struct telem *t, enum telem_phase phase)
{
    ASSERT(t->depth < DEPTH_MAX && phase < TELEM_PHASES_N);
    telem_charge(t);
    t->open[t->depth++] = phase;
}

void telem_leave(struct telem *t, enum telem_phase phase)
{
    ASSERT(t->depth > 0 && t->open[t->depth - 1] == phase);
    telem_charge(t);
    t->depth--;
}

void telem_count(struct telem *t, enum telem_counter counter, uint64_t n)
{
    t->counter[counter] += n;
}

static double seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

void telem_turn(struct telem *t, uint64_t now)
{
    ASSERT(t->depth == 0);
    t->done_step_s = seconds(now - t->begin_ns);
    for (int i = 0; i < TELEM_PHASES_N; i++)
        t->done_s[i] = seconds(t->phase_ns[i]);
    memset(t->phase_ns, 0, sizeof t->phase_ns);
    memset(t->counter, 0, sizeof t->counter);
    t->begin_ns = now;
    t->last_ns = now;
}

double telem_phase_s(const struct telem *t, enum telem_phase phase)
{
    return t->done_s[phase];
}

double telem_share_s(const struct telem *t, enum telem_share share)
{
    double sum = 0;
    for (int i = 0; i < TELEM_PHASES_N; i++)
        sum += share_of[i] == share ? t->done_s[i] : 0;
    return sum;
}

double telem_step_s(const struct telem *t)
{
    return t->done_step_s;
}
