/* The CPU device: its memory, laid out once from the configuration, and the dispatch of its calls.
 */
#include "device/device.h"

#include "device/cpu_int.h"

/* What is carved is counted under these names. */
enum { PART_WEIGHTS, PART_KV, PART_ACTS, PART_GRADS, PART_MOMENTS, PART_TABLES, PARTS };
static const char *const PART_NAME[PARTS] = {
    "weights, bf16 and packed", "kv cache",          "activations", "gradients",
    "masters, moments",         "tables and scratch"};

static void carve_rollout(struct cpu *d, struct carve *c)
{
    const struct device_conf *conf = &d->device.conf;
    size_t slots = (size_t)conf->slots, rows = (size_t)MAX(conf->slots, conf->rows);
    size_t blocks = (size_t)kv_blocks(conf->positions);

    d->slot = carve_take(c, slots * sizeof *d->slot);
    d->handle = carve_take(c, slots * sizeof *d->handle);
    d->row_token = carve_take(c, rows * sizeof *d->row_token);
    d->row_slot = carve_take(c, rows * sizeof *d->row_slot);
    d->row_segment = carve_take(c, rows * sizeof *d->row_segment);
    d->row_drawn = carve_take(c, rows * sizeof *d->row_drawn);
    for (size_t i = 0; i < slots; i++) {
        int *slot_table = carve_take(c, blocks * sizeof *slot_table);
        int *handle_table = carve_take(c, blocks * sizeof *handle_table);
        if (!c->arena)
            continue;
        d->slot[i].seq = (struct kv_seq){.block = slot_table, .capacity = (int)blocks};
        d->handle[i].seq = (struct kv_seq){.block = handle_table, .capacity = (int)blocks};
    }
}

static void carve_batch(struct cpu *d, struct carve *c)
{
    const struct device_conf *conf = &d->device.conf;
    struct batch_space *b = &d->batch;
    size_t rows = (size_t)conf->rows, segments = (size_t)conf->segments;
    size_t blocks = (size_t)kv_blocks(conf->positions);

    b->token = carve_take(c, rows * sizeof *b->token);
    b->target = carve_take(c, rows * sizeof *b->target);
    b->stat = carve_take(c, rows * sizeof *b->stat);
    b->coef = carve_take(c, rows * sizeof *b->coef);
    b->segment = carve_take(c, segments * sizeof *b->segment);
    b->seq = carve_take(c, segments * sizeof *b->seq);
    b->prompt_of = carve_take(c, segments * sizeof *b->prompt_of);
    b->order = carve_take(c, segments * sizeof *b->order);
    b->loss_row = carve_take(c, segments * sizeof *b->loss_row);
    for (size_t i = 0; i < segments; i++) {
        int *table = carve_take(c, blocks * sizeof *table);
        if (c->arena)
            b->seq[i] = (struct kv_seq){.block = table, .capacity = (int)blocks};
    }
}

/* Blocks that a micro-batch can need: every segment may start and end inside a block. */
static int train_blocks(const struct device_conf *conf)
{
    return conf->segments > 0 ? conf->rows / KV_BLOCK + 2 * conf->segments : 0;
}

static void carve_training(struct cpu *d, struct carve *c, size_t part[PARTS])
{
    const struct device_conf *conf = &d->device.conf;
    size_t n = d->model.params.count, at = c->used;

    grads_carve(&d->grads, &d->model, conf->rows, conf->rows, conf->segments, c);
    d->embed_tokens = carve_take(c, (size_t)conf->leaf_tokens * sizeof *d->embed_tokens);
    d->embed_rows =
        carve_take(c, (size_t)conf->leaf_tokens * (size_t)conf->model.D * sizeof *d->embed_rows);
    acts_carve(&d->train_acts, &d->model, conf->rows, true, c);
    part[PART_ACTS] += c->used - at;

    at = c->used;
    d->gradient = carve_take(c, (size_t)conf->gradients * sizeof *d->gradient);
    for (int i = 0; i < conf->gradients; i++) {
        float *buffer = carve_take(c, n * sizeof *buffer);
        if (c->arena)
            d->gradient[i] = buffer;
    }
    part[PART_GRADS] += c->used - at;

    at = c->used;
    d->master = carve_take(c, n * sizeof *d->master);
    d->m = carve_take(c, n * sizeof *d->m);
    d->v = carve_take(c, n * sizeof *d->v);
    part[PART_MOMENTS] += c->used - at;
}

/* Lays the whole device over c (or measures it), counting bytes by part. */
static void carve_device(struct cpu *d, struct carve *c, size_t part[PARTS])
{
    const struct device_conf *conf = &d->device.conf;
    size_t at = c->used;
    model_carve(&d->model, &conf->model, conf->kern, d->pool, conf->threads, conf->positions, c);
    carve_rollout(d, c);
    carve_batch(d, c);
    part[PART_TABLES] += c->used - at;

    at = c->used;
    model_weights_carve(&d->set[DEVICE_POLICY], &d->model, conf->trainable, c);
    if (conf->reference)
        model_weights_carve(&d->set[DEVICE_REFERENCE], &d->model, false, c);
    part[PART_WEIGHTS] += c->used - at;

    at = c->used;
    kv_carve(&d->kv, &d->model, conf->kv_blocks, c);
    kv_carve(&d->train_kv, &d->model, train_blocks(conf), c);
    part[PART_KV] += c->used - at;

    at = c->used;
    acts_carve(&d->acts, &d->model, MAX(conf->rows, conf->slots), false, c);
    part[PART_ACTS] += c->used - at;
    if (conf->trainable)
        carve_training(d, c, part);
}

void device_ledger(const struct device_conf *conf, struct ledger *l)
{
    struct cpu d = {.device = {.conf = *conf}};
    struct carve measure = {0};
    size_t part[PARTS] = {0};
    carve_device(&d, &measure, part);
    model_release(&d.model);
    for (int i = 0; i < PARTS; i++)
        if (part[i] > 0)
            ledger_add(l, PART_NAME[i], part[i]);
}

/* ---- dispatch ---- */

static void run_call(void *ctx)
{
    struct cpu *d = ctx;
    d->error = (struct err){0};
    switch (d->call.op) {
#define X(NAME, name, type)                                                                        \
    case DEVICE_##NAME:                                                                            \
        d->rc = cpu_##name(d, d->call.arg.name, &d->error);                                        \
        break;
        DEVICE_CALLS(X)
#undef X
    }
}

static void cpu_begin(struct device *device, struct device_call call)
{
    struct cpu *d = (struct cpu *)device;
    d->call = call;
    pool_start(d->pool, run_call, d);
}

static int cpu_finish(struct device *device, struct err *e)
{
    struct cpu *d = (struct cpu *)device;
    pool_wait(d->pool);
    return d->rc < 0 ? err_set(e, d->rc, "%s", d->error.text) : d->rc;
}

static void cpu_close(struct device *device)
{
    struct cpu *d = (struct cpu *)device;
    pool_free(d->pool);
    model_release(&d->model);
    arena_release(&d->arena);
    mem_free(d);
}

static const struct device_ops CPU_OPS = {
    .name = "cpu", .begin = cpu_begin, .finish = cpu_finish, .close = cpu_close};

int cpu_open(struct device **out, const struct device_conf *conf, struct err *e)
{
    int rc = 0;
    struct cpu *d = mem_calloc(1, sizeof *d);
    struct carve c = {0};
    size_t part[PARTS] = {0};

    *out = NULL;
    d->device = (struct device){.ops = &CPU_OPS, .conf = *conf};
    carve_device(d, &c, part);
    model_release(&d->model);
    TRY(arena_init(&d->arena, "device", c.used, e));
    d->pool = pool_new(conf->threads);
    c = (struct carve){.arena = &d->arena};
    carve_device(d, &c, part);
    model_init(&d->model);
    kv_init(&d->kv);
    kv_init(&d->train_kv);
    d->device.n_elements = d->model.params.count;
    *out = &d->device;
    return 0;
fail:
    mem_free(d);
    return rc;
}
