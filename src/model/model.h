/* The model: a dense decoder-only transformer of the Llama, Qwen2 or Qwen3 family, its parameters,
 * its paged KV cache, its forward and its backward. Mathematics only: no clock, no telemetry, no
 * files but Hugging Face model folders.
 *
 * One path. Prefill, decode, scoring and training all run model_forward over packed rows; what
 * differs is whether activations are kept. So the log-probability that training computes for a
 * sampled token has the bits that sampling recorded. docs/NUMERICS.md says what is rounded where
 * and in which order sums run.
 *
 * Rows. Work comes as N rows of tokens, packed without padding and cut into segments: consecutive
 * positions of one sequence with a table of KV blocks. Decode is N segments of one row; a prompt is
 * one segment [0, P-1); a sample in training is one segment that starts with the last prompt token,
 * so its rows are exactly the rows that predict its completion.
 *
 * Parameters are one flat index space (struct model_params): trainable offsets, in elements, used
 * by gradients, moments, masters and slices alike. Matrices that multiply the same input are
 * adjacent (q, k, v; gate, up), so the fused matrix is a view of the same memory.
 *
 * Memory. Every structure here is carved from memory that the caller owns; its size comes from the
 * same function that carves it, called without an arena (struct carve). Nothing is allocated later.
 *
 * Refused by name: mixture of experts, sliding windows in use, other activations, other rope kinds,
 * quantised weights, partial rotary, logit soft-capping.
 */
#pragma once

#include "kern/kern.h"
#include "base/mem.h"
#include "base/pool.h"

enum model_family { MODEL_LLAMA, MODEL_QWEN2, MODEL_QWEN3 };

enum {
    MODEL_EOS_MAX = 16,
    MODEL_LOGIT_ROWS = 64, // rows of logits that one thread materialises, by VOCAB_CHUNK columns
};

/* config.json (and generation_config.json's eos list), checked. */
struct model_config {
    enum model_family family;
    int V, D, F, L;    // vocabulary rows, width, feed-forward width, layers
    int H, G, E;       // query heads, KV heads, head width
    int positions_max; // max_position_embeddings
    float norm_eps;
    bool tied;        // the head is the embedding
    bool qkv_bias;    // Qwen2
    bool qk_norm;     // Qwen3
    bool rope_llama3; // Llama 3 frequency scaling, with the four numbers below
    double rope_theta;
    double rope_factor, rope_low, rope_high, rope_original;
    int eos[MODEL_EOS_MAX]; // stop ids: generation_config.json's, else config.json's
    int n_eos;
    int bos, pad; // -1 when absent
};

/* Reads and checks DIR/config.json and, where present, DIR/generation_config.json. */
int model_config_load(struct model_config *c, const char *dir, struct err *e);

/* One tensor of a Hugging Face folder inside the flat index space. */
struct model_param {
    char name[72];  // "model.layers.3.self_attn.q_proj.weight"
    size_t offset;  // first element
    int rows, cols; // a vector has rows = 1
    bool is_vector; // norms and biases: shape [cols] on disk, no weight decay
};

/* One matrix product's weights: rows of the flat space, fused where the input is shared. */
struct model_matrix {
    size_t offset;
    int n, k; // W is (n, k): y[n] = W x[k]
};

enum { MATRIX_QKV, MATRIX_O, MATRIX_GATE_UP, MATRIX_DOWN, MATRICES };
enum { VECTOR_ATTN_NORM, VECTOR_MLP_NORM, VECTOR_QKV_BIAS, VECTOR_Q_NORM, VECTOR_K_NORM, VECTORS };

struct model_layer {
    struct model_matrix matrix[MATRICES];
    size_t vector[VECTORS]; // offsets
    int width[VECTORS];     // D, D, (H+2G) E, E, E; 0 where the family has none
};

struct model_params {
    int n;
    struct model_param *param; // (n) owned, ascending offsets
    struct model_layer *layer; // (L) owned
    size_t embed;              // (V, D)
    size_t final_norm;         // (D)
    struct model_matrix head;  // (V, D); its offset is embed's when tied
    size_t count;              // elements, a multiple of 16; gaps between tensors stay zero
};

void model_params_init(struct model_params *p, const struct model_config *c);
void model_params_release(struct model_params *p);
/* The tensor that holds element `at` (or the one before, in a gap). */
const struct model_param *model_param_at(const struct model_params *p, size_t at);

/* Where loaded values go and saved ones come from, piece by piece: elements [lo, lo + n) of the
   flat space. masters is NULL when only the weights are wanted. */
struct model_sink {
    void *ctx;
    int (*weights)(void *ctx, size_t lo, size_t n, const bf16 *data, struct err *e);
    int (*masters)(void *ctx, size_t lo, size_t n, const float *data, struct err *e);
};
struct model_source {
    void *ctx;
    int (*weights)(void *ctx, size_t lo, size_t n, bf16 *data, struct err *e);
};

/* Hugging Face folder -> sink: weights rounded to bf16, masters as stored. Checks names, shapes,
   dtypes and finiteness; every message names file and tensor. Gaps between tensors are not sent. */
int model_load(const struct model_params *p, const char *dir, const struct model_sink *sink,
               struct err *e);
/* Writes model.safetensors, and carries over from the folder `like` the configuration (dtype set to
   bfloat16), generation configuration and tokenizer files. dir must exist. */
int model_save(const struct model_params *p, const char *like, const char *dir,
               const struct model_source *source, struct err *e);

/* Floating-point operations that a forward pass asks for, two a multiply-add: `rows` rows through
   the layers, `heads` of them through the head, and `keys` keys seen by all rows together. A
   backward pass asks for twice as many. */
double model_flops(const struct model_config *c, double rows, double heads, double keys);

/* ---- memory ---- */

/* Lays structures into an arena, or measures what they take of one when it is NULL. */
struct carve {
    struct arena *arena;
    size_t used;
};
void *carve_take(struct carve *c, size_t bytes); // 64-byte aligned; NULL when measuring

/* A model on one device: the description and the tables that every call needs. */
struct model {
    struct model_config conf;
    struct model_params params;
    const struct kern *kern;
    struct pool *pool;
    int threads;
    int positions;       // rows of the rope table: bounds every position
    int chunks;          // vocabulary chunks
    float *rope;         // (positions, E): cosines then sines
    void **scratch;      // (threads) kernel scratch
    float **logits;      // (threads) (MODEL_LOGIT_ROWS, VOCAB_CHUNK)
    const void ***table; // (threads) (kv_blocks(positions)) block pointers of one attention call
};

/* Fills m over c. `pool` may be NULL when measuring with `threads`. */
void model_carve(struct model *m, const struct model_config *conf, const struct kern *kern,
                 struct pool *pool, int threads, int positions, struct carve *c);
void model_init(struct model *m); // After carving for real: computes the rope table.
void model_release(struct model *m);

/* A weight set: flat bf16 values, the matrices packed for this level, vectors widened. */
struct model_weights {
    bf16 *flat;      // (count)
    float *wide;     // (wide_count) vectors as floats: layer l's vector v, then the final norm
    void **fwd;      // (L * MATRICES) packed for y = W x
    void **bwd;      // (L * MATRICES) packed for dx = W^T dy; NULL when forward-only
    void **head_fwd; // (chunks) VOCAB_CHUNK columns each
    void **head_bwd; // (chunks) VOCAB_CHUNK deep each; NULL when forward-only
};

void model_weights_carve(struct model_weights *w, const struct model *m, bool trainable,
                         struct carve *c);
/* Packs flat into the rest, on all threads. */
void model_weights_pack(const struct model *m, struct model_weights *w);

/* ---- paged KV cache ---- */

/* A pool of blocks; a block holds KV_BLOCK positions of all layers and KV heads. */
struct kv {
    unsigned char *data; // (n_blocks, L, G, head_bytes)
    size_t block_bytes, head_bytes;
    int n_blocks, n_free, G;
    int *refs;      // (n_blocks)
    int *free_list; // (n_blocks) a stack
};

/* One sequence's view: block i holds positions [32 i, 32 i + 32). */
struct kv_seq {
    int *block; // (capacity) the caller's array
    int n, capacity;
};

size_t kv_block_bytes(const struct model_config *c, const struct kern *k);
void kv_carve(struct kv *kv, const struct model *m, int n_blocks, struct carve *c);
void kv_init(struct kv *kv); // All blocks free.

static inline int kv_blocks(int positions)
{
    return (positions + KV_BLOCK - 1) / KV_BLOCK;
}
/* Makes room for positions [0, len): takes and zeroes blocks. False, with nothing taken, when the
   pool has too few. */
bool kv_reserve(struct kv *kv, struct kv_seq *s, int len);
/* to (empty) becomes a view of from's positions [0, len): whole blocks shared, the straddling one
   copied. False, with nothing taken, when the pool has no block for the copy. */
bool kv_fork(struct kv *kv, const struct kv_seq *from, int len, struct kv_seq *to);
void kv_drop(struct kv *kv, struct kv_seq *s); // Gives all blocks back; idempotent.
void *kv_head(const struct kv *kv, int block, int layer, int g);

/* ---- forward ---- */

struct model_segment {
    int row, n;       // rows [row, row + n)
    int pos;          // position of the first
    const int *block; // KV block table of the sequence, reserved up to pos + n
};

struct model_rows {
    int N;
    const int *token; // (N)
    int n_segments;
    const struct model_segment *segment; // ascending rows, covering [0, N)
};

/* Activations of up to rows_max rows: one layer's worth, or all layers' for a backward. */
struct acts {
    int rows_max;
    bool keep;
    float *x;             // (keep ? L+1 : 1, N, D) residual entering a layer; the last one's output
    float *x_mid;         // (keep ? L : 0, N, D) residual between attention and feed-forward
    float *qkv;           // (keep && qk_norm ? L : 1, N, (H+2G) E) before norm and rope
    bf16 *q;              // (keep ? L : 1, N, H E) roped
    bf16 *o;              // (keep ? L : 1, N, H E) attention output
    float *gate_up;       // (keep ? L : 1, N, 2F)
    float *max, *inv_sum; // (keep ? L : 0, G, N, H/G) softmax of each query row and head
    bf16 *a;              // (N, D) normed rows, input of the next matrix
    bf16 *h;     // (N, F) output of SwiGLU; threads are not in step, so it is not a's place
    bf16 *f;     // (N, D) final normed rows
    float *rstd; // (N) of the final norm
    struct chunk_stat *stat; // (N, chunks)
};
void acts_carve(struct acts *a, const struct model *m, int rows_max, bool keep, struct carve *c);

/* Runs rows [row_lo, N) through all layers, writing their K and V into the cache; rows below row_lo
   were run by an earlier call. row_lo is a segment's first row. Rows [head_lo, N) also get the
   final norm; with none (head_lo == N) the last layer stops after its K and V. */
void model_forward(const struct model *m, const struct model_weights *w, const struct kv *kv,
                   const struct model_rows *r, int row_lo, int head_lo, struct acts *a);

/* Chunk statistics of rows [head_lo, N); target (N) or NULL. */
void model_head(const struct model *m, const struct model_weights *w, const struct acts *a,
                int head_lo, int N, const int *target, float inv_temperature);

struct token_stat {
    float logprob, entropy; // of the target; of the distribution
    float lse;              // log-sum-exp of the scaled logits
};
/* Combines a row's chunk statistics (NUMERICS section 5). target < 0: logprob is 0. */
struct token_stat model_combine(const struct chunk_stat *stat, int chunks, int target);

struct drawn {
    int token;
    float logprob;
};
/* Draws a token for a row from its statistics: inverse CDF at `uniform` in [0, 1), or the most
   likely one when greedy. Uses thread ith's scratch. */
struct drawn model_draw(const struct model *m, const struct model_weights *w, const struct acts *a,
                        int row, double uniform, float inv_temperature, bool greedy, int ith);

/* ---- backward ---- */

/* One micro-batch: segments of prompts first (rows [0, prompt_rows)), then samples, all of them
   loss rows. Micro-batches of one group too large for one share its prompt's rows. */
struct model_batch {
    struct model_rows rows;
    int prompt_rows;
    const int *prompt_of; // (n_segments) the prompt segment of a sample, or -1; -1 for prompts
    bool is_first;        // the first part of its groups: their prompts' K, V gradients start at 0
    bool is_last;         // the last: prompts are back-propagated here
    const int *order;     // (n_order) segments in the order of gradient sums: all samples, and
    int n_order;          //   each prompt after its last sample when is_last
    const int *target;    // (N) next token; used from prompt_rows on
    float inv_temperature;
};

struct grads {
    float *dx;      // (N, D)
    float *wide;    // (N, max(D, F, (H+2G) E)) float gradients of the moment
    bf16 *dy;       // (N, D) the same as a matrix input, where the residual stream is the output
    bf16 *dy_wide;  // (N, max(2F, (H+2G) E)) and of the other matrices
    bf16 *dout;     // (N, H E)
    float *dprompt; // (L, prompts_max, 2 G E) K, V gradients of prompt rows, over micro-batches
    bf16 *dlogits;  // (N, VOCAB_CHUNK)
    void *packed;   // wgrad's packed x
    float *steps;   // (steps_max, step_width) vector gradients per 32-row step
    struct segment *order; // (segments_max) rows in the order of sums
    int rows_max, prompts_max, segments_max, steps_max, step_width;
};
void grads_carve(struct grads *g, const struct model *m, int rows_max, int prompts_max,
                 int segments_max, struct carve *c);

/* Forward of a micro-batch's samples, whose prompts' rows went through model_forward before, and
   their statistics: stat (N), from prompt_rows on. */
void model_batch_forward(const struct model *m, const struct model_weights *w, const struct kv *kv,
                         const struct model_batch *b, struct acts *a, struct token_stat *stat);

/* Adds d(sum of coef * logprob)/d(parameter) to grad (count), except the embedding rows' share: one
   row per token goes to embed_rows, in the order's order, for model_embed_scatter. coef (N) and
   stat (N) are used from prompt_rows on. Returns the rows written. */
int model_batch_backward(const struct model *m, const struct model_weights *w, const struct kv *kv,
                         const struct model_batch *b, struct acts *a, const struct token_stat *stat,
                         const float *coef, struct grads *g, float *grad, int *embed_tokens,
                         float *embed_rows);

/* grad's embedding row of token[i] += d[i], i ascending: a leaf's last act. */
void model_embed_scatter(const struct model *m, const int *token, const float *d, size_t n,
                         float *grad);
