/* A CPU device around a small model, and groups of random tokens for it: what the tests of model,
 * device, roll and train start from.
 */
#pragma once

#include "check.h"

#include "device/device.h"

enum { ENGINE_POSITIONS = 192, ENGINE_ROWS = 256 };

struct engine_options {
    const char *level; // kernel level; NULL: the best
    int threads, rows, segments, slots, kv_blocks, gradients;
    bool reference;
};

/* Opens tests/golden/models/NAME. Fields that are 0 get small defaults. */
struct device *engine_open(const char *name, struct engine_options o);
/* A device for a model of this shape, its weights zero; and random ones that keep activations near
   1, masters included. */
struct device *engine_make(const struct model_config *c, struct engine_options o);
void engine_fill(struct device *d, uint64_t seed);

/* Two-layer models of the three families, odd in every size; ENGINE_MODELS of them. */
enum { ENGINE_MODELS = 5 };
extern const struct model_config engine_model[ENGINE_MODELS];
extern const char *const engine_model_name[ENGINE_MODELS];

/* Random tokens, a pure function of seed and i. */
void engine_tokens(uint64_t seed, int vocabulary, int *token, int n);

/* Groups of random tokens, coefficients in [-1, 1). Lengths are drawn from [min, max], so min = max
   fixes them. Owned by the caller: engine_groups_free. */
struct engine_shape {
    int groups, samples;
    int prompt_min, prompt_max; // from 1
    int length_min, length_max; // of a sample, from 1
};
struct engine_groups {
    int n;
    struct device_group *group;
    struct device_tokens *sample; // all groups'
    int *token;
    int n_tokens; // loss tokens
    float *coef;  // (n_tokens)
};
struct engine_groups engine_groups(uint64_t seed, int vocabulary, struct engine_shape shape);
void engine_groups_free(struct engine_groups *g);

/* The gradient (n_elements) of all groups, made with micro-batches of at most `rows` rows, and the
   log-probabilities (n_tokens). */
void engine_gradient(struct device *d, const struct engine_groups *g, int rows, float temperature,
                     float *gradient, float *logprob);
/* Log-probabilities alone, of either weight set; entropy and best may be NULL. */
void engine_score(struct device *d, enum device_set set, const struct engine_groups *g, int rows,
                  float temperature, float *logprob, float *entropy, int *best);
