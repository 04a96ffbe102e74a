/* One metric of a step by its name, for the tests of grpo.
 *
 * metric_of fails the test when the name is missing or comes twice.
 */
#pragma once

#include "check.h"

#include "grpo/grpo.h"

#include <stdbool.h>

struct found_metric {
    const char *name;
    double value;
    bool seen;
};

static inline void find_metric(void *ctx, const char *name, double value)
{
    struct found_metric *f = ctx;
    if (strcmp(name, f->name) == 0) {
        assert_false(f->seen);
        f->seen = true;
        f->value = value;
    }
}

static inline double metric_of(const struct grpo_conf *c, const struct grpo_stats *s,
                               const char *name)
{
    struct found_metric f = {.name = name};
    grpo_metrics(c, s, find_metric, &f);
    if (!f.seen)
        fail_msg("no metric %s", name);
    return f.value;
}
