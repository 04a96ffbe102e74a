/* Rollout: which sample runs in which slot of a device. Decisions only: no text, no clock, no
 * model.
 *
 * A request is a prompt and the number of samples wanted; the samples run independently, in any
 * slot, in any order, and none of that can change a token. Requests start in the order of
 * submission, as soon as a slot is free and the cache has room for the prompt and one sample at its
 * longest; a request's prompt is prefilled once and forked for each sample.
 *
 * The work goes in dispatches: roll_begin starts one call on the device (a prefill or some decode
 * steps), roll_finish takes its results in. In between the host is free: it polls rewards and
 * drives other devices. Tokens and log-probabilities are written where the request says.
 *
 *     roll_submit(r, &request);
 *     while (roll_begin(r)) {
 *         ...
 *         TRY(roll_finish(r, e));
 *         while (roll_next(r, &done)) ...
 *     }
 */
#pragma once

#include "device/device.h"

struct roll_conf {
    struct device *device;
    int dispatch_steps; // decode steps of one dispatch at most
    float temperature;  // 0: greedy
    uint64_t key;       // rng_key of the purpose
    const int *stop;    // (n_stop) borrowed
    int n_stop;
    /* Called for each token as it arrives; may be NULL. */
    void (*on_token)(void *ctx, uint64_t tag, int sample, int token, float logprob);
    void *ctx;
};

struct roll_request {
    uint64_t tag;                // the caller's name for it
    uint32_t epoch, index;       // the group's identity, for the random function
    int sample_lo, sample_hi;    // sample numbers [lo, hi)
    struct device_tokens prompt; // borrowed until all samples are done
    int tokens_max;              // per completion
    int *token;                  // (hi - lo, tokens_max) out
    float *logprob;              // (hi - lo, tokens_max) out
};

struct roll_done {
    uint64_t tag;
    int sample; // its number
    int n;      // tokens, stop token included
    enum device_stop stop;
};

struct roll;

/* Blocks of the rollout cache with which `slots` samples of groups of `samples` never wait for
   room. */
int roll_blocks(int slots, int samples, int prompt_max, int tokens_max);

struct roll *roll_new(const struct roll_conf *c);
void roll_free(struct roll *r); // Frees busy slots on the device; NULL is fine.
/* Sampling from now on; only while nothing is pending. */
void roll_sampling(struct roll *r, float temperature, uint64_t key);
void roll_submit(struct roll *r, const struct roll_request *q);
int roll_pending(const struct roll *r); // samples not yet returned by roll_next

/* Starts the next device call. False when nothing is left to run. */
bool roll_begin(struct roll *r);
/* Waits for it. ERR_* from the device. */
int roll_finish(struct roll *r, struct err *e);
/* The next finished sample; false when there is none yet. */
bool roll_next(struct roll *r, struct roll_done *done);
