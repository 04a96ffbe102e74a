/* A run from inside: the groups of a step, and the state that steps, evaluation and checkpoints
 * share. step.c is the page to read first.
 */
#pragma once

#include "coord/coord.h"
#include "grpo/grpo.h"
#include "telem/telem.h"
#include "base/file.h"
#include "base/rng.h"

#include <jansson.h>

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
/* Bytes of a group with prompts of up to prompt_max tokens, texts not counted. */
size_t group_bytes(int samples, int tokens_max, int prompt_max);

/* Log-probabilities of sample s as it was drawn. */
static inline float *group_logprobs(const struct group *g, int s)
{
    return g->logprob + (size_t)s * (size_t)g->tokens_max;
}

/* Groups of `samples` that an evaluation holds at once, on so many slots of all devices. */
int coord_eval_groups(int slots, int samples);

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
    size_t n_tokens;
    float *coef, *logprob, *ref, *entropy; // (n_tokens): views of the run's arrays
    struct device_group *group;            // (hi - lo)
};
enum { LEAF_FLOATS = 4 }; // of each loss token

enum { RUN_ID = 17 };

struct run {
    struct coord coord;
    const struct conf *conf;
    const struct coord_sink *sink;
    struct telem *telem;
    struct telem_record metrics, perf;
    struct file_lock lock; // of output_dir
    bool made_folder;      // output_dir was not there before
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
    double learning_rate; // of the last update
    struct group *group;  // (prompts_per_step)
    int n_groups;
    struct leaf *leaf; // (leaves)
    int leaves;
    float *tokens_of;               // memory of the leaves' arrays, LEAF_FLOATS a token
    struct device_group *groups_of; // the same
    struct grpo_stats stats;
    uint64_t num_tokens;  // prompt and completion tokens so far
    uint32_t samples_crc; // CRC-32 of the step's samples file
    float temperature;    // of the policy: 1 in supervised training
    int64_t step, steps;  // finished, and of the whole run
    bool stopping;        // it was asked to, as seen once a step: what that step saves and says
    double best_metric;   // of evaluations after a step so far; NaN before the first
    int64_t best_step;
    char run_id[RUN_ID];     // what the run is a function of, hashed
    uint32_t model_checksum; // of the model that the run began with
};

/* step.c: one optimizer step. On ERR_NUMERIC the groups hold the samples that led to it. */
int coord_step(struct run *r, struct err *e);

/* leaf.c. Cuts the step's groups into leaves, each leaf's groups sorted by identity; lays the
   leaves' token arrays once samples are there. */
void coord_leaves(struct run *r);
void coord_leaf_tokens(struct run *r);
/* Reference log-probabilities of all leaves; the gradient of all leaves; the update. */
int coord_reference(struct run *r, struct err *e);
int coord_backward(struct run *r, struct err *e);
int coord_apply(struct run *r, uint64_t denominator, struct err *e);

/* samples.c */
int coord_write_samples(struct run *r, struct err *e);
/* Whether output_dir has the samples files that the first `bytes` of its metrics.jsonl count on. */
int coord_check_samples(const struct run *r, uint64_t bytes, struct err *e);
int coord_cut_samples(const struct run *r, struct err *e); // Removes files after r->step.
void coord_show_samples(const struct run *r);              // log_completions

/* metrics.c */
void coord_step_metrics(struct run *r);
void coord_header(const struct run *r, struct buf *out);

/* checkpoint.c. Saves r->step; on failure nothing is left of it. */
int coord_save(struct run *r, struct err *e);
/* Removes what a killed run left half-written, and checkpoints that this run will write again or
   that save_total_limit does not allow. */
int coord_tidy_checkpoints(const struct run *r, struct err *e);
/* Steps of all folders named like checkpoints, ascending; owned by the caller. */
int coord_checkpoint_steps(const struct run *r, int64_t **step, size_t *n, struct err *e);
char *coord_checkpoint_path(const struct run *r, int64_t step);
int64_t coord_checkpoint_step(const char *dir); // The step that its name says; -1: none.

/* verify.c. Reads dir/name, an object of LoCo's with "format": 1; the caller owns *root. */
int coord_read_json(const char *dir, const char *name, json_t **root, struct err *e);
/* The run_id in it. */
int coord_read_run_id(const char *dir, const char *name, char id[RUN_ID], struct err *e);

/* The same of a model folder that is a checkpoint: the files that make it a model. Whatever has no
   COMPLETE is a plain one. */
int coord_verify_model(const char *dir, struct err *e);

/* resume.c. The checkpoint that the configuration asks for, whole and with all that it counts on in
   output_dir; *dir NULL: start anew. */
int coord_find_checkpoint(const struct run *r, char **dir, struct err *e);
/* Puts its state back, when it is of this run; model_checksum is known. */
int coord_restore(struct run *r, const char *dir, struct err *e);

/* sft.c: why a supervised row cannot be used. */
const char *coord_sft_reject(void *coord, const struct data_row *row);

/* start.c: plan and data; then the folder, the devices, and where the run starts. */
int run_plan(struct run *r, const struct conf *conf, const struct coord_sink *sink, struct err *e);
/* Whether the run may start in output_dir, and from where: *from is a checkpoint that the caller
   owns, or NULL. Writes nothing. */
int run_find_start(const struct run *r, char **from, struct err *e);
int run_open(struct run *r, const struct conf *conf, const struct coord_sink *sink, struct err *e);
void run_close(struct run *r);

/* run.c. A whole run: opened, its steps taken, closed. */
typedef int (*run_step_fn)(struct run *r, struct err *e);
int run_all(const struct conf *conf, const struct coord_sink *sink, run_step_fn step,
            struct err *e);

/* Epochs of the data drawn so far. */
static inline double run_epoch(const struct run *r)
{
    return (double)r->cursor.epoch + (double)r->cursor.position / (double)data_count(r->data);
}
