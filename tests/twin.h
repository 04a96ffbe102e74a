/* The twin: the whole model once more, in double precision and textbook loops.
 *
 * It is the oracle of the engine's forward and backward, so it shares no arithmetic with the
 * engine: no tiles, no packing, no chunks of the vocabulary, every value materialised, each
 * backward written by hand under its forward. It is never optimised. Two modes:
 *
 *   TWIN_EXACT    the mathematics, no rounding: compared with finite differences and with PyTorch
 *   TWIN_ROUNDED  bf16 roundings at the places that docs/NUMERICS.md sections 3 to 5 name, forward
 *                 and backward, all else in double. On few rows the engine agrees with it
 *                 tightly; on many, ties that float breaks otherwise part them (section 6)
 *
 * Two readings of NUMERICS matter to the rounded mode: attention weights are rounded as
 * exp(score - running maximum) over blocks of 32 absolute positions; and a bias sees the same
 * rounded gradient as the matrix it belongs to.
 *
 * Rows. A group is a prompt with completions. Its rows are the prompt's tokens but the last, then,
 * per sample, the last prompt token and the completion but its last token; a row predicts the next
 * token. A sample's rows see the prompt's rows and their own past, so prompt rows are computed
 * once, and so are the roundings of their gradients. A plain sequence is a group with a prompt of
 * one token and one sample. Loss = sum over rows of coef * logprob.
 *
 * Families: Llama, Qwen2 (qkv_bias), Qwen3 (qk_norm). Tensors have their Hugging Face names; a tied
 * head has no tensor, its gradient is in the embedding's.
 *
 *     struct twin t;
 *     twin_init(&t, &config);
 *     memcpy(twin_find(&t, "model.norm.weight")->w, ...);   // for every tensor
 *     struct twin_rows r = {.temperature = 1};
 *     twin_rows_prompt(&r, prompt, n_prompt);
 *     twin_rows_sample(&r, completion, n, coef);
 *     double loss = twin_run(&t, TWIN_ROUNDED, &r, logprob, NULL);   // adds to every g
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct twin_config {
    int vocab, hidden, ffn, layers, heads, kv_heads, head_dim;
    double eps, rope_theta;
    struct { // rope_type "llama3"; factor 0: none
        double factor, low_freq_factor, high_freq_factor, original_positions;
    } llama3;
    bool qkv_bias, qk_norm, tied;
};

struct twin_tensor {
    char name[64];
    int rows, cols; // a vector has cols 1
    double *w, *g;  // (rows, cols) value and gradient
};

struct twin_layer {
    struct twin_tensor *attn_norm, *q, *k, *v, *o;
    struct twin_tensor *q_bias, *k_bias, *v_bias; // NULL without qkv_bias
    struct twin_tensor *q_norm, *k_norm;          // NULL without qk_norm
    struct twin_tensor *ffn_norm, *gate, *up, *down;
};

struct twin {
    struct twin_config config;
    struct twin_tensor *tensor; // (n_tensors)
    int n_tensors;
    struct twin_layer *layer; // (config.layers)
    struct twin_tensor *embed, *norm, *head;
};

enum twin_mode { TWIN_EXACT, TWIN_ROUNDED };

struct twin_rows {
    double temperature;
    int n, prompt; // rows; the first `prompt` of them are the shared prompt's
    int last;      // last prompt token: every sample's first input
    int *token;    // (n)
    int *first;    // (n) first row of this row's segment
    int *target;   // (n) the token to predict, -1 in the prompt
    double *coef;  // (n) 0 in the prompt
    size_t cap;
};

/* Lays out the tensors of a model, all zero. */
void twin_init(struct twin *t, const struct twin_config *c);
void twin_release(struct twin *t);

/* Lays out and fills the model of a Hugging Face folder: config.json in either style, and
   model.safetensors in any float dtype. Fails the calling test when the folder is not whole. */
void twin_load(struct twin *t, const char *folder);

/* The tensor of that name, or NULL. */
struct twin_tensor *twin_find(const struct twin *t, const char *name);

void twin_zero_grad(struct twin *t);

/* Starts a group: prompt (n >= 1). r holds nothing but its temperature. */
void twin_rows_prompt(struct twin_rows *r, const int *prompt, int n);

/* Adds a sample: its n completion tokens and the coefficient of each. */
void twin_rows_sample(struct twin_rows *r, const int *completion, int n, const double *coef);
void twin_rows_release(struct twin_rows *r);

/* Forward and backward of one group. logprob and entropy (rows.n) may be NULL; prompt rows get 0.
   Adds the loss's gradient to every tensor's g and returns the loss. */
double twin_run(struct twin *t, enum twin_mode mode, const struct twin_rows *r, double *logprob,
                double *entropy);

/* What bf16 roundings may do to log-probabilities (docs/NUMERICS.md section 6): the bound on the
   root mean square over many tokens of |rounded - exact|; the largest keeps 5 times that. gain: of
   attention, 1 where scores spread by about 1; spread: standard deviation of a row's
   log-probabilities over the vocabulary, in nats. */
double twin_logprob_bound(int layers, double gain, double spread);
