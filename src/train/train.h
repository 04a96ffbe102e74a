/* Training on one device and the update: micro-batches, the tree of leaf gradients, clipping,
 * AdamW, the learning-rate schedule, and the optimizer's state on disk. Knows nothing of prompts as
 * text, of rewards, or of other hosts.
 *
 * A leaf (grpo.h) is trained whole and in index order: its groups are cut into micro-batches by a
 * budget of rows, only between samples, and the bits do not depend on the cut. Its gradient goes
 * into a buffer of its own; leaves are summed by a fixed binary tree over their index: a device
 * folds sibling subtrees as soon as both are whole (a binary counter), so it holds at most
 * log2(leaves) + 1 buffers and ends with the roots of the maximal aligned subtrees of what it owns.
 * Several devices' roots are then folded by the same tree, slice by slice, by the slice's owner,
 * which also applies AdamW to it (ZeRO-1); the new weights are copied to all.
 *
 * No global denominator is in the coefficients: it is folded into the factor of the update, with
 * the clipping, so nothing here waits for a global count.
 */
#pragma once

#include "device/device.h"

#include <stdbool.h>

/* ---- a leaf on a device ---- */

/* The groups of one leaf and what the device is to know and to say of their tokens. Loss tokens are
   numbered through: groups in order, their samples in order, completion tokens in order. */
struct train_leaf {
    const struct device_group *group; // (n_groups) borrowed
    int n_groups;
    const float *coef; // (tokens) d objective / d logprob; NULL when only scored
    float *logprob;    // (tokens) out
    float *entropy;    // (tokens) out, or NULL
    int *best;         // (tokens) out: the most likely token, or NULL
};

struct train_limits {
    int rows;     // rows of a micro-batch: as the device was built
    int segments; // its prompts and samples
};

/* What a device needs for a budget of rows, raised so that one sample with its prompt fits. */
struct train_limits train_limits(int row_budget, int prompt_max, int completion_max);

/* How full micro-batches were: sums over all of them. */
struct train_packing {
    size_t rows, rows_padded; // and with every segment filled to whole GEMM_STEPs
    size_t samples, batches;
};

/* A leaf going through a device, one call at a time. {0}, then train_start. */
struct train_run {
    struct device *device;
    struct train_limits limits;
    struct train_leaf leaf;
    enum device_set set;
    float temperature;
    int gradient;                // buffer, or -1 to score only
    int group, sample;           // where the next micro-batch starts
    size_t token;                // the loss token it starts at
    bool ended;                  // LEAF_END is in flight or done
    bool scored;                 // every group went through
    struct device_batch batch;   // in flight
    struct device_slice closing; // in flight
    struct device_group *part;   // (cap) its groups; kept for reuse
    size_t part_cap;
    struct train_packing packing; // kept from leaf to leaf; the caller clears it
};

void train_start(struct train_run *r, struct device *d, struct train_limits limits,
                 enum device_set set, float temperature, const struct train_leaf *leaf,
                 int gradient);
/* Begins the next micro-batch on the device; false when the leaf is done. */
bool train_begin(struct train_run *r);
int train_finish(struct train_run *r, struct err *e);
/* Both to the end. */
int train_all(struct train_run *r, struct err *e);
void train_run_release(struct train_run *r);

/* ---- the tree of gradients on one device ---- */

enum { TRAIN_ROOTS_MAX = 32 }; // 2 log2(leaves) + 1 at most, so leaves up to 2^15

struct train_node {
    int level, index; // leaves [index << level, (index + 1) << level)
    int buffer;
};

struct train_tree {
    struct device *device;
    int n; // roots on the stack, ascending leaves
    struct train_node node[TRAIN_ROOTS_MAX];
};

/* The first leaf of device i of n, which owns the leaves up to device i + 1's. */
static inline int train_first_leaf(int leaves, int i, int n)
{
    return (int)((int64_t)leaves * i / n);
}
/* Gradient buffers that device i of n needs, for its own leaves and to gather the others' roots. */
int train_buffers(int leaves, int i, int n);
/* A zeroed buffer for the next leaf, whose index ascends from call to call. */
int train_tree_leaf(struct train_tree *t, int leaf, int *buffer, struct err *e);
/* The leaf is in its buffer: folds what became whole. */
int train_tree_fold(struct train_tree *t, struct err *e);

/* ---- the update over one or several devices ---- */

struct train_update {
    double denominator;   // the step's one integer or constant (grpo.h)
    double max_grad_norm; // 0: no clipping
    struct adamw adamw;   // factor is filled in
    double grad_norm;     // out: of the averaged gradient, before clipping
    double param_norm;    // out: of the new masters
    double update_norm;   // out: of the masters' change
    size_t changed;       // out: bf16 weights whose bits changed
};

/* Folds all devices' roots to the one of all leaves, clips, updates masters and weights on their
   owners, copies weights to the other devices and packs them. ERR_NUMERIC when a gradient is not
   finite: then nothing was updated. The trees are empty afterwards. */
int train_apply(struct train_tree *tree, int n_devices, struct train_update *u, struct err *e);
/* "model.norm.weight, element 3" for an element of the flat space. */
enum { TRAIN_NAME = 96 };
void train_element_name(const struct device *d, size_t element, char name[TRAIN_NAME]);
/* Elements that device i of n owns: [lo, hi), cut at SUMSQ_BLOCK. */
void train_owned(size_t n_elements, int i, int n, size_t *lo, size_t *hi);

/* ---- the learning-rate schedule ---- */

/* A factor on learning_rate, a pure function of the number of finished updates; the same numbers as
   transformers' (LambdaLR), where the first update of a warm-up has factor 0.

       warm-up (step < W)     step / W
       constant               1, and no warm-up
       constant_with_warmup   1
       linear                 (N - step) / (N - W)
       cosine                 (1 + cos(pi (step - W) / (N - W))) / 2

   N is the run's number of steps and W that of warm-up. Factors are never below 0, past N too. */
enum train_schedule_kind {
    TRAIN_CONSTANT,
    TRAIN_CONSTANT_WITH_WARMUP,
    TRAIN_LINEAR,
    TRAIN_COSINE,
    TRAIN_SCHEDULES
};

struct train_schedule {
    enum train_schedule_kind kind;
    uint64_t steps;        // N
    uint64_t warmup_steps; // W
};

/* Finds the schedule of that name (lr_scheduler_type). W is warmup_steps when it is 1 or more, else
   the larger share of warmup_steps and warmup_ratio, of N, rounded up. ERR_USAGE for an unknown
   name and for warm-up with `constant`, which has none. */
int train_schedule_init(struct train_schedule *s, const char *name, uint64_t steps,
                        double warmup_steps, double warmup_ratio, struct err *e);

/* The factor on learning_rate for the update made after `step` finished ones. */
double train_schedule_factor(const struct train_schedule *s, uint64_t step);

/* ---- the optimizer's state on disk ---- */

/* Writes DIR/optimizer-0000I-of-0000N.safetensors for each of n devices: tensors master, exp_avg
   and exp_avg_sq of its slice, with metadata lo, hi, count. ERR_NUMERIC naming tensor and element
   when a value is not finite, as a weight in bf16 or as a moment: such a state cannot be gone on
   from. */
int train_state_save(struct device *const *device, int n, const char *dir, struct err *e);
/* Reads them, whatever their cut, into all n devices. ERR_STATE when a slice is missing. */
int train_state_load(struct device *const *device, int n, const char *dir, struct err *e);
