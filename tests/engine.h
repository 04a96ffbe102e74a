/* A CPU device around a small model, and groups of random tokens for it: what the tests of model,
 * device, roll and train start from.
 */
#pragma once

#include "check.h"

#include "device/device.h"
#include "train/train.h"

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

/* Two-layer models of the three families, odd in every size; ENGINE_MODELS of them, of which a test
   takes engine_models(): fewer where all is slow. */
enum { ENGINE_MODELS = 5 };
extern const struct model_config engine_model[ENGINE_MODELS];
static inline int engine_models(void)
{
    return check_on_valgrind() ? 1 : ENGINE_MODELS;
}
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

/* Rolls out `samples` completions of every group's prompt on d, samples numbered from 0, and makes
   them the groups' samples, with their log-probabilities in `logprob` (n_tokens). What was there is
   given back. */
struct engine_sampling {
    float temperature;
    int samples, tokens_max;
    int dispatch_steps; // 0: some
    int n_stop;         // ids 0 .. n_stop - 1 end a sample
    bool apart;         // each sample a request of its own: no prompt is shared
    bool backwards;     // submitted in the reverse order
};
struct engine_rollout {
    struct engine_groups groups;
    float *logprob; // (groups.n_tokens)
};
struct engine_rollout engine_roll(struct device *d, const struct engine_groups *prompts,
                                  struct engine_sampling s);
void engine_rollout_free(struct engine_rollout *r);
/* Same tokens, lengths and log-probabilities, to the bit. */
void engine_check_rollouts(const struct engine_rollout *a, const struct engine_rollout *b,
                           const char *what);

/* The gradient (n_elements) of all groups, made with micro-batches of at most `rows` rows, and the
   log-probabilities (n_tokens). */
void engine_gradient(struct device *d, const struct engine_groups *g, int rows, float temperature,
                     float *gradient, float *logprob);
/* Log-probabilities alone, of either weight set; entropy and best may be NULL. */
void engine_score(struct device *d, enum device_set set, const struct engine_groups *g, int rows,
                  float temperature, float *logprob, float *entropy, int *best);

/* One training step over n devices: leaf i is leaf[i] of `leaves`, dealt in order; then the update,
   number `step` from 1. Rows of a micro-batch: the device's. */
struct train_update engine_step(struct device *const *device, int n,
                                const struct engine_groups *leaf, int leaves, int step);

/* What training leaves behind: weights, master, both moments, each (n_elements), gathered from the
   devices that own them. Fails when the devices' weights are not the same. */
struct engine_state {
    size_t n;
    bf16 *weight;
    float *master, *moment1, *moment2;
};
struct engine_state engine_state(struct device *const *device, int n);
void engine_state_free(struct engine_state *s);
void engine_check_states(const struct engine_state *a, const struct engine_state *b,
                         const char *what);
