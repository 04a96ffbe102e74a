/* Coordination: what runs where and when. It binds text, data, rewards, rollout and training into
 * runs; every other module is a part, this is the plan. coord/step.c is one GRPO step on one page.
 *
 * A struct coord is an opened model: configuration, tokenizer, devices with weights. Commands that
 * only sample or score use it as it is; coord_train and coord_sft make a run of it, with a folder,
 * checkpoints and resume.
 *
 * Placement. A host has D devices; the leaves of a step are dealt to them in order, and each device
 * rolls out, scores and trains its leaves whole. Devices meet once a step, to fold gradients and to
 * spread weights. Which device owns a leaf cannot change a bit (device-invariance).
 *
 * Checks that every run makes, because results rest on them: each log-probability of a sampled
 * token is the same float in training as in sampling; the gradient is finite. The run stops when
 * one breaks, with the step's samples saved.
 *
 * Output goes to the sinks the caller gives: stdout belongs to cli.
 */
#pragma once

#include "conf/conf.h"
#include "device/device.h"
#include "data/data.h"
#include "reward/reward.h"
#include "roll/roll.h"
#include "text/text.h"
#include "train/train.h"

#define COORD_VERSION "0.1.0"

enum { COORD_DEVICES_MAX = 64, COORD_SAMPLES_MAX = 1024 };

/* What a command needs of its devices. */
struct coord_needs {
    bool training;                  // gradients, masters, moments
    bool scoring;                   // log-probabilities of given tokens, as training too asks for
    bool reference;                 // the reference weight set
    int slots;                      // samples decoded at once; 0: nothing is sampled
    int prompt_max, completion_max; // tokens
    int rows;                       // rows of a micro-batch
    int groups, samples;            // of a step; samples of a group
    int leaf_groups, leaves;        // groups of the largest leaf
    int eval_samples;               // of an evaluation's group; 0: there is none
};

struct coord {
    const struct conf *conf; // borrowed
    struct model_config model;
    const struct kern *kern;
    struct coord_needs needs;
    struct train_limits limits;
    int slots; // of each device
    struct text *text;
    int n_devices;
    struct device *device[COORD_DEVICES_MAX];
    struct ledger ledger; // of all devices
};

/* Reads configuration and tokenizer of conf->model, first verified where it is a checkpoint (for
   logprobs c->text is NULL when the folder has none). Warns when a model with a chat template is to
   be prompted without one. */
int coord_read(struct coord *c, const struct conf *conf, struct err *e);
/* Plans memory after coord_read; starts nothing. */
int coord_plan(struct coord *c, const struct coord_needs *needs, struct err *e);
/* Makes the devices and loads the weights of conf->model, or of `weights`, another folder of that
   shape. */
int coord_open(struct coord *c, const char *weights, struct err *e);
void coord_close(struct coord *c); // Idempotent.

/* The needs of a configuration, from its knobs. */
struct coord_needs coord_needs_of(const struct conf *conf);

/* Tokens of a prompt, inside conf->prompt_template; special tokens of the template are read as
   such. */
void coord_prompt(struct coord *c, const char *prompt, size_t n, struct text_ids *out);
/* Why a row cannot be used ("longer than max_prompt_length"), or NULL: for data_options.reject. */
const char *coord_reject(void *coord, const struct data_row *row);
/* The text of a completion: without its stop token, special tokens left out, valid UTF-8. */
void coord_completion(const struct coord *c, const int *token, int n, bool stopped,
                      struct buf *out);
/* Rewards and their weights as the configuration names them. */
int coord_rewards(const struct conf *conf, struct reward_conf *rewards, double weight[REWARD_MAX],
                  struct err *e);

/* A scheduler on device d with the model's stop ids; roll_sampling sets how it draws. */
struct roll *coord_roll(const struct coord *c, int d);

/* ---- evaluation ---- */

struct coord_eval {
    const char *data_path;
    int samples;       // per prompt
    float temperature; // 0: greedy
    int64_t rows_max;  // 0: all
    bool greedy;       // also one greedy sample per prompt
};

enum { COORD_PASS_MAX = 8 };

struct coord_eval_result {
    uint64_t prompts, samples;
    double reward;          // mean total
    double accuracy;        // mean of (first reward == 1) over all samples
    double greedy_accuracy; // NaN when not asked for
    int n_pass;
    int pass_k[COORD_PASS_MAX];  // 1, 2, 4 ... up to samples
    double pass[COORD_PASS_MAX]; // unbiased: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, eq. 1)
    double maj;                  // majority of extracted answers is right
    double mean_length, clipped_ratio;
};
int coord_evaluate(struct coord *c, const struct coord_eval *how, struct coord_eval_result *out,
                   struct err *e);

/* ---- runs ---- */

/* Whether a checkpoint has COMPLETE and all files that it lists, with their sizes and checksums.
   ERR_STATE naming the first that is wrong. */
int coord_verify_checkpoint(const char *dir, struct err *e);

/* Where a run speaks and what it listens to. */
struct coord_sink {
    void (*print)(void *ctx, const char *text, size_t n); // whole lines, live lines, curves
    void *ctx;
    bool live; // the terminal can rewrite its last line
    int columns;
    const volatile int *stop; // set by a signal: save and leave; may be NULL
};

/* GRPO, and supervised warm start. With conf->dry_run: prints configuration and ledger, starts
   nothing. ERR_STOPPED after *stop, with a checkpoint saved. */
int coord_train(const struct conf *conf, const struct coord_sink *sink, struct err *e);
int coord_sft(const struct conf *conf, const struct coord_sink *sink, struct err *e);
