/* A device at work: decode, prefill and training of a model folder, or of noise in the shape of a
 * small model; each beside what its matrix products alone take, and the memory beside the ledger.
 */
#include "cli/cli.h"

#include "cli/bench_int.h"
#include "base/rng.h"
#include "device/device.h"
#include "roll/roll.h"
#include "train/train.h"

#include <string.h>

enum {
    CONTEXT = 256,     // positions before the first decoded token
    SLOTS = 64,        // decoded at once, in groups
    GROUP = 8,         // samples of a prompt
    DECODE_STEPS = 8,  // of one round
    PREFILL = 512,     // rows
    TRAIN_GROUPS = 2,  // of GROUP samples
    TRAIN_PROMPT = 32, // tokens
    TRAIN_TOKENS = 64, // of a sample
    POSITIONS = PREFILL + 1,
    TRAIN_ROWS = TRAIN_GROUPS * (TRAIN_PROMPT - 1 + GROUP * TRAIN_TOKENS),
};
static const int BATCHES[] = {1, 8, SLOTS};

/* 19 million parameters in the shape of the Llama family. */
static const struct model_config BUILT_IN = {.family = MODEL_LLAMA,
                                             .V = 512,
                                             .D = 384,
                                             .F = 1536,
                                             .L = 8,
                                             .H = 6,
                                             .G = 6,
                                             .E = 64,
                                             .positions_max = 1024,
                                             .norm_eps = 1e-5f,
                                             .tied = true,
                                             .rope_theta = 10000,
                                             .bos = -1,
                                             .pad = -1};

struct work {
    const struct bench *b;
    struct device *device;
    int rc; // of the first call that failed
    struct err *e;
    int token[TRAIN_ROWS + TRAIN_GROUPS * (GROUP + 1)]; // any
    int batch;                                          // slots in use
    int handle[SLOTS / GROUP];
    struct device_emitted emitted[SLOTS * DECODE_STEPS];
    struct device_group group[TRAIN_GROUPS];
    struct device_tokens sample[TRAIN_GROUPS * GROUP];
    float coef[TRAIN_GROUPS * GROUP * TRAIN_TOKENS], logprob[TRAIN_GROUPS * GROUP * TRAIN_TOKENS];
    struct train_run train;
};

/* What one round did. */
struct done {
    const char *what;
    void (*run)(void *work);
    int batch, tokens, passes;
    struct bench_shape shape; // of one pass
    struct bench_time time;
};

/* ---- the device ---- */

static struct device_conf plan(const struct bench *b, const struct model_config *c,
                               enum conf_part part)
{
    bool all = part == CONF_PART_ALL, decode = all || part == CONF_PART_DECODE;
    struct device_conf d = {.model = *c,
                            .kern = b->kern,
                            .threads = b->threads,
                            .trainable = all || part == CONF_PART_TRAIN,
                            .slots = decode ? SLOTS : 1,
                            .positions = POSITIONS,
                            .rows = PREFILL,
                            .segments = 1};
    d.kv_blocks = decode ? roll_blocks(SLOTS, GROUP, CONTEXT, DECODE_STEPS) : 0;
    d.kv_blocks = MAX(d.kv_blocks, kv_blocks(POSITIONS));
    if (d.trainable) {
        d.rows = TRAIN_ROWS;
        d.segments = TRAIN_GROUPS * (GROUP + 1);
        d.leaf_tokens = TRAIN_ROWS;
        d.gradients = train_buffers(1, 0, 1);
    }
    return d;
}

static int fill_with_noise(struct device *d, struct err *e)
{
    enum { PIECE = 65536 };
    int rc = 0;
    bf16 *piece = mem_alloc(PIECE * sizeof *piece);
    struct device_weights pack = {.set = DEVICE_POLICY};
    for (size_t lo = 0; lo < d->n_elements; lo += PIECE) {
        struct device_weights w = {.set = DEVICE_POLICY, .lo = lo, .data = piece};
        w.hi = MIN(lo + PIECE, d->n_elements);
        bench_noise(piece, lo, w.hi - lo);
        TRY(device_weights_write(d, &w, e));
    }
    TRY(device_weights_pack(d, &pack, e));
fail:
    mem_free(piece);
    return rc;
}

bool bench_is_folder(const struct conf *conf)
{
    return strcmp(conf->model, "built-in") != 0;
}

/* ---- rounds ---- */

static void note(struct work *w, int rc)
{
    w->rc = w->rc < 0 ? w->rc : rc;
}

static int prefill(struct work *w, int tokens)
{
    struct device_prefill p = {.prompt = {.token = w->token, .n = tokens}};
    note(w, device_prefill(w->device, &p, w->e));
    return p.handle;
}

static void release(struct work *w, int handle)
{
    struct device_prefill p = {.handle = handle};
    note(w, device_release(w->device, &p, w->e));
}

static void run_prefill(void *ctx)
{
    struct work *w = ctx;
    release(w, prefill(w, PREFILL + 1));
}

/* Forks the slots from their prompts and decodes; the last step frees them. */
static void run_decode(void *ctx)
{
    struct work *w = ctx;
    struct device_decode d = {.steps = DECODE_STEPS, .temperature = 1, .out = w->emitted};
    for (int i = 0; i < w->batch; i++) {
        struct device_fork f = {.handle = w->handle[i / GROUP],
                                .slot = i,
                                .sample = (uint32_t)i,
                                .tokens_max = DECODE_STEPS};
        note(w, device_fork(w->device, &f, w->e));
    }
    note(w, device_decode(w->device, &d, w->e));
}

/* A step of one leaf: forward, backward, clipping, AdamW and the packing of new weights. */
static void run_train(void *ctx)
{
    struct work *w = ctx;
    struct train_limits limits = {.rows = w->device->conf.rows,
                                  .segments = w->device->conf.segments};
    struct train_leaf leaf = {
        .group = w->group, .n_groups = TRAIN_GROUPS, .coef = w->coef, .logprob = w->logprob};
    struct train_tree tree = {.device = w->device};
    struct train_update update = {.denominator = TRAIN_ROWS,
                                  .max_grad_norm = 1,
                                  .adamw = {.lr = 1e-6f,
                                            .beta1 = 0.9f,
                                            .beta2 = 0.999f,
                                            .eps = 1e-8f,
                                            .bias1 = 0.1f,
                                            .bias2 = 1e-3f}};
    int buffer = 0;
    note(w, train_tree_leaf(&tree, 0, &buffer, w->e));
    train_start(&w->train, w->device, limits, DEVICE_POLICY, 1, &leaf, buffer);
    note(w, train_all(&w->train, w->e));
    note(w, train_tree_fold(&tree, w->e));
    note(w, train_apply(&tree, 1, &update, w->e));
}

static void lay_out_groups(struct work *w)
{
    const int *token = w->token;
    for (int g = 0; g < TRAIN_GROUPS; g++) {
        struct device_tokens *sample = w->sample + g * GROUP;
        w->group[g] = (struct device_group){
            .prompt = {.token = token, .n = TRAIN_PROMPT}, .sample = sample, .n_samples = GROUP};
        token += TRAIN_PROMPT;
        for (int s = 0; s < GROUP; s++, token += TRAIN_TOKENS)
            sample[s] = (struct device_tokens){.token = token, .n = TRAIN_TOKENS};
    }
    for (size_t i = 0; i < ARRAY_LEN(w->coef); i++)
        w->coef[i] = i % 2 ? 1 : -1;
}

/* ---- parts ---- */

enum { DONE_MAX = ARRAY_LEN(BATCHES) + 2 };

/* The parts to do, none done yet; returns how many. */
static int list_parts(enum conf_part part, struct done *done)
{
    bool all = part == CONF_PART_ALL;
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(BATCHES) && (all || part == CONF_PART_DECODE); i++)
        done[n++] = (struct done){.what = "decode",
                                  .run = run_decode,
                                  .batch = BATCHES[i],
                                  .tokens = BATCHES[i] * DECODE_STEPS,
                                  .passes = DECODE_STEPS,
                                  .shape = {.rows = BATCHES[i], .head_rows = BATCHES[i]}};
    if (all || part == CONF_PART_PREFILL)
        done[n++] = (struct done){.what = "prefill",
                                  .run = run_prefill,
                                  .batch = 1,
                                  .tokens = PREFILL,
                                  .passes = 1,
                                  .shape = {.rows = PREFILL}};
    if (all || part == CONF_PART_TRAIN)
        done[n++] = (struct done){.what = "train",
                                  .run = run_train,
                                  .batch = TRAIN_GROUPS * GROUP,
                                  .tokens = TRAIN_ROWS,
                                  .passes = 1,
                                  .shape = {.rows = TRAIN_ROWS,
                                            .head_rows = TRAIN_GROUPS * GROUP * TRAIN_TOKENS,
                                            .backward = true}};
    return n;
}

static void run_parts(struct work *w, struct done *done, int n)
{
    bool decodes = done->run == run_decode; // decoding comes first
    for (int i = 0; decodes && i < SLOTS / GROUP; i++)
        w->handle[i] = prefill(w, CONTEXT + 1);
    for (int i = 0; i < BENCH_SWEEPS * n; i++) {
        struct done *d = &done[i % n];
        w->batch = d->batch;
        bench_improve(w->b, &d->time, d->run, w);
    }
    for (int i = 0; decodes && i < SLOTS / GROUP; i++)
        release(w, w->handle[i]);
}

/* The row of what was done, and of what its products alone take now that the device is gone. */
static int put_done(const struct bench *b, const struct model_config *c, const struct done *d,
                    json_t *rows, struct err *e)
{
    struct bench_shape shape = d->shape;
    struct bench_products alone;
    json_t *row = json_object();
    double seconds = bench_s(b, d->time) / d->passes, floor_s;
    shape.segment = TRAIN_TOKENS;
    int rc = bench_products(b, c, shape, &alone, e);
    if (rc == 0) {
        floor_s = MAX(alone.flops / b->flops, alone.bytes / b->bytes);
        json_object_set_new(row, "what", json_string(d->what));
        json_object_set_new(row, "batch", json_integer(d->batch));
        json_object_set_new(row, "rows", json_integer(d->shape.rows));
        bench_put(row, "tokens_per_s", d->tokens / bench_s(b, d->time));
        bench_put(row, "of_ceiling", floor_s / seconds);
        bench_put(row, "products_ms", bench_s(b, alone.time) * 1e3);
        bench_put(row, "over_products", seconds / bench_s(b, alone.time));
        bench_put_ms(row, (struct bench_time){.wall_s = d->time.wall_s / d->passes,
                                              .cpu_s = d->time.cpu_s / d->passes});
    }
    json_array_append_new(rows, row);
    return rc;
}

static void put_memory(json_t *o, const struct device_conf *d)
{
    struct ledger ledger = {0};
    size_t held = mem_resident();
    device_ledger(d, &ledger);
    json_object_set_new(o, "ledger_bytes", json_integer((json_int_t)ledger_total(&ledger)));
    json_object_set_new(o, "anonymous_bytes", json_integer((json_int_t)held));
    bench_put(o, "of_ledger", (double)held / (double)ledger_total(&ledger));
}

int bench_model(const struct bench *b, const struct conf *conf, json_t *rows, json_t *memory,
                struct err *e)
{
    int rc = 0, n;
    struct model_config c = BUILT_IN;
    struct device_conf d;
    struct done done[DONE_MAX];
    struct work *w = mem_calloc(1, sizeof *w);
    *w = (struct work){.b = b, .e = e};
    if (bench_is_folder(conf))
        TRY(model_config_load(&c, conf->model, e));
    d = plan(b, &c, conf->part);
    TRY(cpu_open(&w->device, &d, e));
    TRY(bench_is_folder(conf) ? device_load(w->device, DEVICE_POLICY, conf->model, e)
                              : fill_with_noise(w->device, e));
    for (size_t i = 0; i < ARRAY_LEN(w->token); i++)
        w->token[i] = (int)rng_below(rng_key(0, RNG_DATA), (uint32_t)i, 0, 0, 0, (uint32_t)c.V);
    lay_out_groups(w);
    n = list_parts(conf->part, done);
    run_parts(w, done, n);
    TRY(w->rc);
    put_memory(memory, &d);
    device_close(w->device);
    w->device = NULL;
    for (int i = 0; i < n; i++)
        TRY(put_done(b, &c, &done[i], rows, e));
fail:
    device_close(w->device);
    train_run_release(&w->train);
    mem_free(w);
    return rc;
}
