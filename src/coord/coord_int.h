/* A run from inside: the groups of a step, and the state that steps, evaluation and checkpoints
 * share. step.c is the page to read first.
 */
#pragma once

#include "coord/coord.h"
#include "grpo/grpo.h"
#include "telem/telem.h"
#include "base/file.h"
#include "base/rng.h"

/* One completion of a prompt. */
struct sample {
    int n;          // tokens, the stop token included
    bool truncated; // it hit the limit
    struct reward_result result;
    double total;
    float advantage;
};

/* A prompt and its samples; token and log-probability arrays are (S, tokens_max). */
struct group {
    struct data_draw draw; // its identity: epoch, index
    struct data_row row;   // prompt and gold texts
    struct text_ids prompt;
    int S, tokens_max;
    struct sample *sample;            // (S)
    struct device_tokens *completion; // (S) views of token
    int *token;
    float *logprob;
};

void group_init(struct group *g, int samples, int tokens_max);
void group_release(struct group *g);

/* Draws all groups' samples on all devices, each group's on one device, in the order given. A
   finished sample is sent to `rewards` (may be NULL), which is polled between dispatches. */
struct sampling {
    float temperature;
    uint64_t key;
    struct reward *rewards;
    struct telem *telem; // may be NULL
};
int coord_draw(struct coord *c, struct roll *const *roll, struct group *group, int n,
               const struct sampling *how, struct err *e);
/* Judges what is left in the queue; every sample has its scores then. */
void coord_judge(struct reward *rewards, struct group *group);

/* One leaf of a step: its groups, and arrays over its loss tokens, in order. */
struct leaf {
    int lo, hi; // groups
    int n_tokens;
    float *coef, *logprob, *ref, *entropy; // (n_tokens): views of the run's arrays
    struct device_group *group;            // (hi - lo)
};

struct run {
    struct coord coord;
    const struct conf *conf;
    const struct coord_sink *sink;
    struct telem *telem;
    struct telem_record metrics, perf;
    struct file_lock lock;
    struct data *data;
    struct data_cursor cursor;
    struct roll *roll[COORD_DEVICES_MAX];
    struct reward *rewards;
    struct reward_conf reward_conf;
    struct reward_counts reward_counts;
    struct grpo_conf grpo;
    struct train_schedule schedule;
    struct train_tree tree[COORD_DEVICES_MAX];
    struct train_run lane[COORD_DEVICES_MAX];
    struct train_update update;
    struct group *group; // (prompts_per_step)
    int n_groups;
    struct leaf *leaf; // (leaves)
    int leaves;
    float *tokens_of;               // memory of the leaves' arrays
    struct device_group *groups_of; // the same
    struct grpo_stats stats;
    uint64_t num_tokens; // prompt and completion tokens so far
    float temperature;   // of the policy: 1 in supervised training
    int64_t step, steps; // finished, and of the whole run
    double best_metric;  // of evaluations so far; NaN before the first
    int64_t best_step;
    char run_id[17];         // what the run is a function of, hashed
    uint32_t model_checksum; // of the weights that the run began with
};

/* step.c: one optimizer step. On ERR_NUMERIC the groups hold the samples that led to it. */
int coord_step(struct run *r, struct err *e);
/* The gradient of all leaves and the update: shared with supervised steps. */
int coord_backward(struct run *r, struct err *e);
int coord_update(struct run *r, uint64_t denominator, struct err *e);
/* Cuts the step's groups into leaves, each leaf's groups sorted by identity. */
void coord_leaves(struct run *r);
void coord_leaf_tokens(struct run *r); // Lays the leaves' token arrays once samples are there.

/* samples.c */
int coord_write_samples(const struct run *r, struct err *e);
int coord_cut_samples(const struct run *r, struct err *e); // Removes files after r->step.
void coord_show_samples(const struct run *r);              // log_completions

/* metrics.c */
void coord_step_metrics(struct run *r);
void coord_header(const struct run *r, struct buf *out);

/* checkpoint.c */
int coord_save(struct run *r, struct err *e);
int coord_find_checkpoint(struct run *r, char **dir, struct err *e); // *dir NULL: start anew.
int coord_restore(struct run *r, const char *dir, struct err *e);

/* sft.c: why a supervised row cannot be used. */
const char *coord_sft_reject(void *coord, const struct data_row *row);

/* run.c: plan and data; then the folder, the devices, and where the run starts; then its steps. */
typedef int (*run_step_fn)(struct run *r, struct err *e);
int run_plan(struct run *r, const struct conf *conf, const struct coord_sink *sink, struct err *e);
int run_open(struct run *r, const struct conf *conf, const struct coord_sink *sink, struct err *e);
int run_dry(struct run *r, const struct conf *conf, const struct coord_sink *sink, struct err *e);
int run_steps(struct run *r, run_step_fn step, struct err *e);
void run_close(struct run *r);
