/* A CPU device around a golden model, and groups of random tokens for it: what the tests of model,
 * device, roll and train start from.
 */
#pragma once

#include "check.h"

#include "device/device.h"

enum { ENGINE_POSITIONS = 192, ENGINE_ROWS = 256 };

struct engine_options {
    const char *level; // kernel level; NULL: the best
    int threads, rows, segments, slots, gradients;
    bool reference;
};

/* Opens tests/golden/models/NAME. Fields that are 0 get small defaults. */
struct device *engine_open(const char *name, struct engine_options o);

/* Random tokens, a pure function of seed and i. */
void engine_tokens(uint64_t seed, int vocabulary, int *token, int n);

/* Groups with prompts and samples of random lengths; owned by the caller, engine_groups_free. */
struct engine_groups {
    int n;
    struct device_group *group;
    struct device_tokens *sample; // all groups'
    int *token;
    int n_tokens; // loss tokens
    float *coef;  // (n_tokens)
};
struct engine_groups engine_groups(uint64_t seed, int vocabulary, int n, int samples,
                                   int prompt_max, int completion_max);
void engine_groups_free(struct engine_groups *g);

/* The gradient (n_elements) of all groups, made with micro-batches of at most `rows` rows, and the
   log-probabilities (n_tokens). */
void engine_gradient(struct device *d, const struct engine_groups *g, int rows, float temperature,
                     float *gradient, float *logprob);
