/* Learning-rate schedules: pure functions of the optimizer step, with transformers' numbers.
 *
 * A schedule is a factor on learning_rate. Step counts finished updates, so the first update of a
 * run is made at step 0; with warm-up its factor is 0, as in transformers (LambdaLR).
 *
 *     warm-up (step < W)     step / W
 *     constant               1, and no warm-up
 *     constant_with_warmup   1
 *     linear                 (N - step) / (N - W)
 *     cosine                 (1 + cos(pi (step - W) / (N - W))) / 2
 *
 * N is the run's number of steps and W that of warm-up. Factors are never below 0, past N too.
 * Cosine goes through base/exact.h: the rate enters the weights, so its bits are promised.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>

enum train_schedule_kind {
    TRAIN_CONSTANT,
    TRAIN_CONSTANT_WITH_WARMUP,
    TRAIN_LINEAR,
    TRAIN_COSINE,
    TRAIN_SCHEDULES
};

struct train_schedule {
    enum train_schedule_kind kind;
    uint64_t steps;        // N
    uint64_t warmup_steps; // W
};

/* Finds the schedule of that name (lr_scheduler_type). W is warmup_steps when it is 1 or more,
   else the larger share of warmup_steps and warmup_ratio, of N, rounded up. ERR_USAGE for an
   unknown name and for warm-up with `constant`, which has none. */
int train_schedule_init(struct train_schedule *s, const char *name, uint64_t steps,
                        double warmup_steps, double warmup_ratio, struct err *e);

/* The factor on learning_rate for the update made after `step` finished ones. */
double train_schedule_factor(const struct train_schedule *s, uint64_t step);
