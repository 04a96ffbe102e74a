/* A device: a place where tensors live and a dozen things can be asked. It is the border between
 * deciding (which samples, which leaf, which coefficient) and computing. roll and train see this
 * header, never model or kern; a device on another host or an accelerator is another implementation
 * of the same dozen calls.
 *
 * Calls are begun and finished, so that a host can drive several devices at once: device_begin
 * starts one, device_finish waits for it and gives its outcome. One call at a time per device; the
 * argument structure and all it points to stay the caller's and untouched in between. No call hands
 * out a pointer to device memory: weights, gradients and moments are read and written by offset in
 * the flat space of trainable elements.
 *
 * Rollout. A prompt is prefilled once: tokens [0, P-1) go into the KV cache, under a handle. Slots
 * are forked from it, one per sample; a slot's first input is the last prompt token. A slot whose
 * sample has ended, by a stop id or its limit, is free again and its blocks are given back. A drawn
 * token is a function of (key, epoch, index, sample, position), never of slot or neighbours.
 *
 * Training. A micro-batch is whole groups, or a part of one group: `first` and `last` say whether
 * the prompt is computed and back-propagated in this part. All loss rows are completion tokens. The
 * order of sums is the order of groups and samples given, so a leaf must be given in index order.
 */
#pragma once

#include "model/model.h"

enum device_set { DEVICE_POLICY, DEVICE_REFERENCE, DEVICE_SETS };

/* What a device is built from; every size in the ledger is a function of it. */
struct device_conf {
    struct model_config model;
    const struct kern *kern;
    int threads;
    uint64_t master_key; // of the masters' low halves (device_load); 0: left as stored
    bool trainable;      // gradients, masters, moments
    bool reference;      // a second, forward-only weight set
    int slots;           // samples decoded at once
    int positions;       // longest prompt + completion
    int kv_blocks;       // blocks of the rollout cache
    int rows;            // rows of a micro-batch or of one prefill call
    int segments;        // samples and prompts of a micro-batch; 0: there are none, no scoring
    int leaf_tokens;     // input tokens of the largest leaf: one embedding gradient row each
    int gradients;       // gradient buffers
};

/* Adds this device's arenas to the ledger. */
void device_ledger(const struct device_conf *c, struct ledger *l);

/* ---- arguments of the calls ---- */

struct device_tokens {
    const int *token;
    int n;
};

struct device_prefill {
    struct device_tokens prompt; // n >= 1
    int handle;                  // out
};

struct device_fork {
    int handle, slot;
    uint32_t epoch, index, sample; // the sample's identity in the random counter
    int tokens_max;                // completion tokens at most
};

enum device_stop { DEVICE_RUNNING, DEVICE_STOPPED, DEVICE_LENGTH };

struct device_emitted {
    int slot, token;
    float logprob;
    enum device_stop stop; // not RUNNING: the slot is free now
};

struct device_decode {
    int steps;           // at most
    bool return_on_free; // come back as soon as a slot is free
    float temperature;   // 0: greedy
    uint64_t key;        // rng_key of the purpose
    const int *stop;     // (n_stop) ids that end a sample
    int n_stop;
    struct device_emitted *out; // (steps * slots) filled by the caller's array
    int n_out;                  // out
};

/* A prompt and some of its samples' completions. */
struct device_group {
    struct device_tokens prompt;        // n >= 1
    const struct device_tokens *sample; // (n_samples) each n >= 1
    int n_samples;
};

struct device_batch {
    enum device_set set;
    const struct device_group *group; // (n_groups)
    int n_groups;
    bool first, last;  // both true unless one group is cut into several batches
    float temperature; // > 0
    float *logprob;    // (tokens) out, in the order of groups, samples, tokens
    float *entropy;    // (tokens) out, or NULL
    int *best;         // (tokens) out: the most likely token, or NULL
    const float *coef; // accumulate: (tokens) d objective / d logprob
    int gradient;      // accumulate: the buffer
};

struct device_slice {
    int buffer;    // gradient buffer
    size_t lo, hi; // elements
    float *data;   // (hi - lo)
};

struct device_fold {
    int into, from; // into = into + from, into being the left child
    size_t lo, hi;  // elements
};

struct device_sumsq {
    int buffer;
    size_t lo, hi; // element range; lo a multiple of SUMSQ_BLOCK
    double *block; // ((hi - lo + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK) out
    size_t bad;    // out: first element that is not finite, or SIZE_MAX
};

struct device_apply {
    int buffer;
    size_t lo, hi;
    struct adamw adamw; // factor multiplies the gradient
    size_t changed;     // out: bf16 weights whose bits changed
    // Sums of squares of SUMSQ_BLOCK elements from lo on: ((hi - lo) / SUMSQ_BLOCK, rounded up)
    double *master_sq; // out: of the new masters
    double *move_sq;   // out: of their change
};

/* Fused multiply-adds in registers alone, on all of the device's threads: its ceiling. */
struct device_peak {
    int64_t rounds;
    double flops; // out: operations done
};

enum device_state { DEVICE_MASTER, DEVICE_MOMENT1, DEVICE_MOMENT2 };

struct device_floats {
    enum device_state state;
    size_t lo, hi;
    float *data; // (hi - lo)
};

struct device_weights {
    enum device_set set;
    size_t lo, hi;
    bf16 *data;        // (hi - lo)
    uint32_t checksum; // out of DEVICE_CHECKSUM
};

/* Every call: enumerator, argument. */
#define DEVICE_CALLS(X)                                                                            \
    X(PREFILL, prefill, struct device_prefill)                                                     \
    X(FORK, fork, struct device_fork)                                                              \
    X(RELEASE, release, struct device_prefill) /* gives the handle's blocks back */                \
    X(CANCEL, cancel, struct device_fork)      /* frees the slot, whatever it holds */             \
    X(DECODE, decode, struct device_decode)                                                        \
    X(SCORE, score, struct device_batch)                                                           \
    X(ACCUMULATE, accumulate, struct device_batch)                                                 \
    X(LEAF_END, leaf_end, struct device_slice) /* embedding rows join the buffer's gradient */     \
    X(GRAD_ZERO, grad_zero, struct device_slice)                                                   \
    X(GRAD_FOLD, grad_fold, struct device_fold)                                                    \
    X(GRAD_READ, grad_read, struct device_slice)                                                   \
    X(GRAD_WRITE, grad_write, struct device_slice)                                                 \
    X(SUMSQ, sumsq, struct device_sumsq)                                                           \
    X(APPLY, apply, struct device_apply)                                                           \
    X(STATE_READ, state_read, struct device_floats)                                                \
    X(STATE_WRITE, state_write, struct device_floats)                                              \
    X(WEIGHTS_READ, weights_read, struct device_weights)                                           \
    X(WEIGHTS_WRITE, weights_write, struct device_weights)                                         \
    X(WEIGHTS_PACK, weights_pack, struct device_weights) /* after writes or apply, before use */   \
    X(CHECKSUM, checksum, struct device_weights)                                                   \
    X(PEAK, peak, struct device_peak)

enum device_op {
#define X(NAME, name, type) DEVICE_##NAME,
    DEVICE_CALLS(X)
#undef X
};

struct device_call {
    enum device_op op;
    union {
#define X(NAME, name, type) type *name;
        DEVICE_CALLS(X)
#undef X
        void *any;
    } arg;
};

struct device;

struct device_ops {
    const char *name; // "cpu"
    void (*begin)(struct device *d, struct device_call call);
    int (*finish)(struct device *d, struct err *e);
    void (*close)(struct device *d);
};

/* Implementations embed this first. */
struct device {
    const struct device_ops *ops;
    struct device_conf conf;
    size_t n_elements; // trainable elements: the flat space
};

/* A device on this host's CPU, with a pool of conf->threads. ERR_MEMORY when it does not fit. */
int cpu_open(struct device **d, const struct device_conf *conf, struct err *e);

/* A model folder into a weight set, and into the masters of a trainable policy; then packs it.

   Masters of bf16 weights would all start in the middle of their rounding interval, and an update
   smaller than half of it would change no weight for many steps, then many at once. So a master
   whose low half is zero gets a random one that rounds to the same weight: the weights start as
   stored, and from then on a small update changes the right share of them. */
int device_load(struct device *d, enum device_set set, const char *dir, struct err *e);
/* The policy as a Hugging Face folder; all but the weights is carried over from folder `like`. */
int device_save(struct device *d, const char *like, const char *dir, struct err *e);

static inline void device_close(struct device *d)
{
    if (d)
        d->ops->close(d);
}
static inline int device_finish(struct device *d, struct err *e)
{
    return d->ops->finish(d, e);
}

/* device_begin_NAME(d, arg) and the two in one, device_NAME(d, arg, e), for each call. */
#define X(NAME, name, type)                                                                        \
    static inline void device_begin_##name(struct device *d, type *arg)                            \
    {                                                                                              \
        d->ops->begin(d, (struct device_call){.op = DEVICE_##NAME, .arg = {.name = arg}});         \
    }                                                                                              \
    static inline int device_##name(struct device *d, type *arg, struct err *e)                    \
    {                                                                                              \
        device_begin_##name(d, arg);                                                               \
        return device_finish(d, e);                                                                \
    }
DEVICE_CALLS(X)
#undef X
