/* The CPU device, for its own files: one arena of carved structures and a pool of threads. A begun
 * call runs on the pool's driver thread; the calls themselves are plain functions of the device.
 */
#pragma once

#include "device/device.h"

/* What a slot is decoding. */
struct slot {
    bool busy;
    struct kv_seq seq;
    int token;                     // next input
    int pos;                       // its position
    uint32_t epoch, index, sample; // counter of the random function
    int drawn, tokens_max;         // completion tokens so far, and at most
};

/* A prompt in the cache, waiting to be forked. */
struct handle {
    bool used;
    struct kv_seq seq;
    int last_token, len; // the last prompt token and the positions before it
};

/* Everything a training micro-batch is laid out in. */
struct batch_space {
    int *token;                    // (rows)
    int *target;                   // (rows)
    struct model_segment *segment; // (segments)
    struct kv_seq *seq;            // (segments)
    int *prompt_of, *order;        // (segments)
    int *loss_row;                 // (segments) first loss token of a sample
    struct token_stat *stat;       // (rows)
    float *coef;                   // (rows)
};

struct cpu {
    struct device device;
    struct arena arena;
    struct pool *pool;
    struct model model;
    struct model_weights set[DEVICE_SETS];
    struct kv kv;          // rollout
    struct acts acts;      // rollout and scoring: one layer's worth
    struct slot *slot;     // (slots)
    struct handle *handle; // (slots)
    // Rows of one prefill or decode call.
    int *row_token, *row_slot;
    struct model_segment *row_segment;
    struct drawn *row_drawn;
    // Training.
    struct kv train_kv;
    struct acts train_acts;
    struct grads grads;
    struct batch_space batch;
    float **gradient;      // (gradients) (n_elements)
    float *master, *m, *v; // (n_elements)
    int *embed_tokens;     // (leaf_tokens)
    float *embed_rows;     // (leaf_tokens, D)
    size_t n_embed;
    // The call in flight.
    struct device_call call;
    int rc;
    struct err error;
};

/* The calls: device.h says what they do. */
#define X(NAME, name, type) int cpu_##name(struct cpu *c, type *arg, struct err *e);
DEVICE_CALLS(X)
#undef X

static inline struct model_weights *cpu_set(struct cpu *c, enum device_set set)
{
    ASSERT(set == DEVICE_POLICY || c->device.conf.reference);
    return &c->set[set];
}
