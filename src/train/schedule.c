/* Learning-rate schedules; the formulas stand in the header. */
#include "train/train.h"

#include "base/exact.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

static const char *const NAME[TRAIN_SCHEDULES] = {
    [TRAIN_CONSTANT] = "constant",
    [TRAIN_CONSTANT_WITH_WARMUP] = "constant_with_warmup",
    [TRAIN_LINEAR] = "linear",
    [TRAIN_COSINE] = "cosine",
};

static int find_kind(const char *name, enum train_schedule_kind *out, struct err *e)
{
    for (int i = 0; i < TRAIN_SCHEDULES; i++) {
        if (strcmp(NAME[i], name) == 0) {
            *out = (enum train_schedule_kind)i;
            return 0;
        }
    }
    return err_set(e, ERR_USAGE,
                   "lr_scheduler_type: '%s' is none of constant, constant_with_warmup, linear, "
                   "cosine",
                   name);
}

int train_schedule_init(struct train_schedule *s, const char *name, uint64_t steps,
                        double warmup_steps, double warmup_ratio, struct err *e)
{
    int rc = 0;
    *s = (struct train_schedule){.steps = steps};
    TRY(find_kind(name, &s->kind, e));
    if (warmup_steps >= 1.0)
        s->warmup_steps = (uint64_t)warmup_steps;
    else
        s->warmup_steps = (uint64_t)ceil((double)steps * MAX(warmup_steps, warmup_ratio));
    if (s->kind == TRAIN_CONSTANT && s->warmup_steps > 0)
        TRY(err_set(e, ERR_USAGE,
                    "lr_scheduler_type constant has no warm-up, but %llu warm-up steps were asked "
                    "for: use constant_with_warmup",
                    (unsigned long long)s->warmup_steps));
fail:
    return rc;
}

double train_schedule_factor(const struct train_schedule *s, uint64_t step)
{
    double n = (double)s->steps, w = (double)s->warmup_steps, now = (double)step;
    if (now < w)
        return now / w;
    double rest = MAX(n - w, 1.0);
    switch (s->kind) {
    case TRAIN_LINEAR:
        return MAX((n - now) / rest, 0.0);
    case TRAIN_COSINE:
        return MAX(0.5 * (1.0 + exact_cos(PI * ((now - w) / rest))), 0.0);
    default:
        return 1.0;
    }
}
