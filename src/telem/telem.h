/* Telemetry: where the time of a step went, what it measured, and where that is written.
 *
 * This module owns the clock. A host is always in exactly one phase: telem_enter and telem_leave
 * nest, time goes to the innermost phase alone, and to OTHER where none is open. So the phases of a
 * step add up to its wall time by construction (`time-adds-up`), and with them the four shares that
 * each phase belongs to: compute, network, waiting, host. One thread calls it; work on other
 * threads is inside the phase of the thread that waits for it.
 *
 * A step's values are ordered records of names and numbers. metrics.jsonl gets what is a function
 * of the configuration and nothing else, so that it is byte-identical however a run was stopped and
 * resumed; perf.jsonl gets time, memory and bytes. Each is one line a step, `step` first, handed to
 * the kernel before telem_step returns. A step's line is written before its checkpoint, which
 * records length and checksum of metrics.jsonl (struct telem_mark); what happens after the line
 * counts to the next one.
 *
 * Nothing here writes to a terminal: text goes to the function that cli hands in.
 *
 *     telem_enter(t, TELEM_ROLLOUT);
 *     ... telem_count(t, TELEM_DECODE_TOKENS, n); telem_progress(t, "%d/%d samples", done, all);
 *     telem_leave(t, TELEM_ROLLOUT);
 *     telem_put(&metrics, mean, "rewards/%s/mean", name);
 *     TRY(telem_step(t, step, &metrics, NULL, e));
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

/* Enumerator, name. */
#define TELEM_SHARES(X)                                                                            \
    X(COMPUTE, "compute")                                                                          \
    X(NETWORK, "network")                                                                          \
    X(WAITING, "waiting")                                                                          \
    X(HOST, "host")

/* Enumerator, name, share. */
#define TELEM_PHASES(X)                                                                            \
    X(DATA, "data", HOST)            /* prompts read, tokenized, packed */                         \
    X(ROLLOUT, "rollout", COMPUTE)   /* prefill and decode */                                      \
    X(REWARD, "reward", HOST)        /* scores made or waited for */                               \
    X(REF_LOGP, "ref_logp", COMPUTE) /* reference model */                                         \
    X(ADV, "adv", HOST)              /* advantages and coefficients */                             \
    X(UPDATE, "update", COMPUTE)     /* forward and backward */                                    \
    X(CHECK, "check", HOST)          /* training's log-probabilities against sampling's */         \
    X(APPLY, "apply", COMPUTE)       /* fold, clip, AdamW, packing of new weights */               \
    X(SYNC, "sync", NETWORK)         /* gradients and weights between hosts */                     \
    X(WAIT, "wait", WAITING)         /* for another host */                                        \
    X(LOG, "log", HOST)              /* a step's samples, written, and its metrics */              \
    X(EVAL, "eval", COMPUTE)                                                                       \
    X(SAVE, "save", HOST)                                                                          \
    X(OTHER, "other", HOST) /* no phase is open */

/* Enumerator, name. */
#define TELEM_COUNTERS(X)                                                                          \
    X(DECODE_TOKENS, "decode_tokens")   /* completion tokens sampled */                            \
    X(LONGEST_SAMPLE, "longest_sample") /* tokens of a step's longest completion */                \
    X(TRAIN_TOKENS, "train_tokens")     /* tokens through forward and backward */                  \
    X(FLOPS, "flops")                   /* that the model asks for: model_flops */                 \
    X(BYTES_SENT, "net/bytes_sent")                                                                \
    X(BYTES_RECEIVED, "net/bytes_received")

enum telem_share {
#define SHARE_ENUM(id, name) TELEM_##id,
    TELEM_SHARES(SHARE_ENUM) TELEM_SHARES_N
#undef SHARE_ENUM
};

enum telem_phase {
#define PHASE_ENUM(id, name, share) TELEM_##id,
    TELEM_PHASES(PHASE_ENUM) TELEM_PHASES_N
#undef PHASE_ENUM
};

enum telem_counter {
#define COUNTER_ENUM(id, name) TELEM_##id,
    TELEM_COUNTERS(COUNTER_ENUM) TELEM_COUNTERS_N
#undef COUNTER_ENUM
};

/* A step's values in the order in which they are put. {0} is an empty record. */
struct telem_metric {
    char name[96];
    double value;
};

struct telem_record {
    struct telem_metric *item; // Owned.
    size_t n, cap;
};

/* Appends a value under a formatted name, cut at 95 bytes, which the record does not have yet. A
   value that is not finite is written as null. */
void telem_put(struct telem_record *r, double value, const char *name, ...)
    __attribute__((format(printf, 3, 4)));

/* The value called `name`; *value is untouched when there is none. */
bool telem_get(const struct telem_record *r, const char *name, double *value);

void telem_record_clear(struct telem_record *r); // n = 0, memory kept.
void telem_record_release(struct telem_record *r);

/* Nanoseconds of a clock that only goes forward; its zero means nothing. */
uint64_t telem_now_ns(void);

/* Nanoseconds of CPU time that all threads of this process have used together. */
uint64_t telem_cpu_ns(void);

struct telem_options {
    const char *dir;       // Run folder, which exists; NULL: nothing is written to files.
    int64_t steps;         // of the whole run, for the time left; 0: unknown
    int64_t logging_steps; // steps from one terminal line to the next
    int devices;           // 0: one
    double peak_flops_s;   // of all devices; 0: unknown, and mfu is null
    bool live;             // The terminal can rewrite its last line.
    int columns;           // of the terminal, for the live line

    /* Takes terminal text; NULL: none is made. */
    void (*print)(void *ctx, const char *text, size_t n);
    uint64_t (*now_ns)(void *ctx); // NULL: telem_now_ns. Emulation and tests bring their own.
    void *ctx;
};

struct telem;

/* Opens dir's metrics.jsonl and perf.jsonl for appending and starts the first step's time. Errors:
   ERR_IO. */
int telem_new(struct telem **t, const struct telem_options *options, struct err *e);
void telem_free(struct telem *t); // NULL is fine. Ends a live line.

/* The beginning of a metrics.jsonl: what a checkpoint records of it, kept as lines are written. */
struct telem_mark {
    uint64_t bytes;
    uint32_t crc; // of these (file_crc32)
};
struct telem_mark telem_mark(const struct telem *t); // All so far; {0} without a folder.

/* Whether dir's metrics.jsonl begins as the mark says; it may go on. ERR_STATE when it does not. */
int telem_check(const char *dir, struct telem_mark mark, struct err *e);

/* Cuts metrics.jsonl at a mark that telem_check found to hold, and perf.jsonl after the line of
   `step`; ({0}, -1) empties both. */
int telem_resume(struct telem *t, struct telem_mark mark, int64_t step, struct err *e);

/* Flushes both files to disk: a checkpoint that counts on them comes after. Errors: ERR_IO. */
int telem_sync(struct telem *t, struct err *e);

void telem_enter(struct telem *t, enum telem_phase phase); // Phases nest, at most 8 deep.
void telem_leave(struct telem *t, enum telem_phase phase); // The innermost one.
void telem_count(struct telem *t, enum telem_counter counter, uint64_t n);

/* Ends a step: writes its lines, `perf` (may be NULL) after the values that telem has itself,
   prints one line where logging_steps says so, and starts the next step's time. No phase is open.
 */
int telem_step(struct telem *t, int64_t step, const struct telem_record *metrics,
               const struct telem_record *perf, struct err *e);

/* Seconds of the last finished step: of one phase alone, of a share, of all. */
double telem_phase_s(const struct telem *t, enum telem_phase phase);
double telem_share_s(const struct telem *t, enum telem_share share);
double telem_step_s(const struct telem *t);

/* Shows a line that the next one overwrites, at most ten times a second, when the terminal is live.
   Texts of models or data do not belong in it. */
void telem_progress(struct telem *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Takes the live line away, before somebody else writes to the terminal. */
void telem_progress_clear(struct telem *t);

/* Appends "42 s", "6m10s" or "2h05m". */
void telem_duration(struct buf *out, double seconds);

/* Points of a curve: y over x, x rising. */
struct telem_series {
    double *x, *y; // (n), owned
    size_t n, cap;
};

/* Reads one metric of a metrics.jsonl or perf.jsonl: x is the step, lines without a number under
   that name are left out. Errors: ERR_IO; ERR_FORMAT naming the line. */
int telem_series_read(struct telem_series *s, const char *path, const char *name, struct err *e);
/* The same of the file's first `bytes`. */
int telem_series_read_head(struct telem_series *s, const char *path, uint64_t bytes,
                           const char *name, struct err *e);
void telem_series_release(struct telem_series *s);

struct telem_plot {
    const char *title;
    int width, height; // character cells of the drawing, axes not counted; at least 2
    double lo, hi;     // range of y; hi <= lo: that of the points
    bool ascii;        // '*' in place of braille dots
};

/* Appends a curve with axes: `height` + 3 lines. Where points are denser than dots, a dot is their
   mean; where they are sparser, they are joined. */
void telem_plot(struct buf *out, const struct telem_plot *plot, const struct telem_series *s);
