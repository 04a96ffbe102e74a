/* What telem's files share: the state of the current step, and the terminal's memory of past ones.
 */
#pragma once

#include "telem/telem.h"

#include "base/file.h"

enum { DEPTH_MAX = 8, RECENT_MAX = 10 };

/* The last few values of something, for means. */
struct recent {
    double value[RECENT_MAX];
    int64_t n; // ever added
};

struct telem {
    struct telem_options o;
    struct file_log metrics, perf; // Owned; closed when o.dir is NULL.
    uint32_t metrics_crc;          // of what is in metrics
    struct buf line;               // Owned scratch.

    /* The step under way. */
    uint64_t begin_ns, last_ns; // start of the step; up to when time is given to phases
    uint64_t phase_ns[TELEM_PHASES_N];
    uint64_t counter[TELEM_COUNTERS_N];
    enum telem_phase open[DEPTH_MAX];
    int depth;

    /* The last finished step. */
    double done_s[TELEM_PHASES_N], done_step_s;

    /* The terminal. */
    struct recent rewards, seconds;
    bool live_line; // A live line stands there.
    bool printed;   // A step's line was printed.
    uint64_t live_ns;
};

uint64_t telem_clock(const struct telem *t);

/* Gives the time since the last call to the innermost phase. Returns now. */
uint64_t telem_charge(struct telem *t);

/* Moves the step under way to the last finished one and begins the next at `now`. */
void telem_turn(struct telem *t, uint64_t now);

/* Appends the record as one line of JSON, `step` first. */
void telem_json(struct buf *out, int64_t step, const struct telem_record *r);

/* Prints the step's line where it is due, and remembers what the next lines need. */
void telem_terminal_step(struct telem *t, int64_t step, const struct telem_record *metrics,
                         double tokens_per_s);
