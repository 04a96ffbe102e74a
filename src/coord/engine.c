/* Opening a model for a command: plan the memory of every device from the configuration, refuse
 * what does not fit, then make the devices and load the weights.
 */
#include "coord/coord.h"

#include "base/rng.h"

#include "coord/coord_int.h"
#include "base/log.h"

#include <inttypes.h>
#include <string.h>

/* This process's threads, dealt to devices. */
static int device_threads(const struct conf *conf, int device, int n)
{
    int total = conf->threads > 0 ? (int)conf->threads : pool_cpus();
    return MAX(1, total * (device + 1) / n - total * device / n);
}

/* Input tokens of the largest leaf. */
static int64_t leaf_rows(const struct coord_needs *n)
{
    return n->leaf_groups * (n->prompt_max - 1 + (int64_t)n->samples * n->completion_max);
}

static struct device_conf plan_device(const struct coord *c, int i, int slots)
{
    const struct coord_needs *n = &c->needs;
    struct device_conf d = {.model = c->model,
                            .kern = c->kern,
                            .master_key = rng_key(c->conf->seed, RNG_MASTER),
                            .trainable = n->training,
                            .reference = n->reference,
                            .threads = device_threads(c->conf, i, c->n_devices),
                            .slots = MAX(slots, 1),
                            .positions = n->prompt_max + n->completion_max,
                            .rows = c->limits.rows,
                            .segments = c->limits.segments};
    if (slots > 0)
        d.kv_blocks = roll_blocks(slots, n->samples, n->prompt_max, n->completion_max);
    if (n->training) {
        d.leaf_tokens = (int)leaf_rows(n);
        d.gradients = train_buffers(n->leaves, i, c->n_devices);
    }
    return d;
}

/* Groups of a step and their leaves' arrays, and groups of an evaluation: memory of the host. */
static size_t group_memory(const struct coord *c, int slots)
{
    const struct coord_needs *n = &c->needs;
    size_t groups = (size_t)n->groups, samples = (size_t)n->samples;
    size_t bytes = groups * group_bytes(n->samples, n->completion_max, n->prompt_max);
    if (n->training)
        bytes += groups * samples * (size_t)n->completion_max * LEAF_FLOATS * sizeof(float);
    if (n->eval_samples > 0)
        bytes += (size_t)coord_eval_groups(slots * c->n_devices, n->eval_samples) *
                 group_bytes(n->eval_samples, n->completion_max, n->prompt_max);
    return bytes;
}

static void fill_ledger(struct coord *c, int slots)
{
    c->ledger = (struct ledger){0};
    for (int i = 0; i < c->n_devices; i++) {
        struct device_conf d = plan_device(c, i, slots);
        device_ledger(&d, &c->ledger);
    }
    ledger_add(&c->ledger, "samples", group_memory(c, slots));
}

/* Slots of one device: what is asked for, cut to kv_memory, and halved until the plan fits when the
   user left it open. */
static int choose_slots(struct coord *c, size_t budget)
{
    const struct conf *conf = c->conf;
    const struct coord_needs *n = &c->needs;
    int slots = (n->slots + c->n_devices - 1) / c->n_devices;
    size_t block = kv_block_bytes(&c->model, c->kern);
    size_t limit = conf->kv_memory > 0 ? (size_t)conf->kv_memory / (size_t)c->n_devices : SIZE_MAX;

    while (slots > 1 &&
           (size_t)roll_blocks(slots, n->samples, n->prompt_max, n->completion_max) * block > limit)
        slots--;
    fill_ledger(c, slots);
    while (conf->decode_slots == 0 && slots > 1 && ledger_total(&c->ledger) > budget) {
        slots = (slots + 1) / 2;
        fill_ledger(c, slots);
    }
    return slots;
}

static int check_positions(const struct coord *c, struct err *e)
{
    const struct coord_needs *n = &c->needs;
    if (n->prompt_max + n->completion_max <= c->model.positions_max)
        return 0;
    return err_set(e, ERR_USAGE,
                   "max_prompt_length %d + max_completion_length %d is more than the "
                   "model's max_position_embeddings %d; lower one of them",
                   n->prompt_max, n->completion_max, c->model.positions_max);
}

/* Tokens of a leaf are counted in an int; no memory holds as many. */
static int check_leaf(const struct coord_needs *n, struct err *e)
{
    if (!n->training || leaf_rows(n) <= INT32_MAX)
        return 0;
    return err_set(e, ERR_USAGE,
                   "a leaf of up to %" PRId64
                   " tokens is too large; raise reduction_leaves, or lower "
                   "prompts_per_step, num_generations or max_completion_length",
                   leaf_rows(n));
}

static void warn_of_template(const struct conf *c)
{
    if (c->prompt_template && strcmp(c->prompt_template, "{prompt}") == 0 &&
        text_has_chat_template(c->model))
        log_warn(
            "%s has a chat template, but prompt_template is plain: the model sees bare prompts, "
            "without the turns that it was trained on; give prompt_template",
            c->model);
}

/* Log-probabilities of ids need no tokenizer. */
static bool needs_text(const struct conf *conf)
{
    char *path = file_join(conf->model, "tokenizer.json");
    bool found = file_exists(path);
    mem_free(path);
    return found || conf->command != CONF_LOGPROBS;
}

int coord_read(struct coord *c, const struct conf *conf, struct err *e)
{
    int rc = 0;
    *c = (struct coord){.conf = conf, .n_devices = MAX(1, (int)conf->devices)};
    c->kern = kern_choose(e);
    if (!c->kern)
        return ERR_USAGE;
    TRY(coord_verify_model(conf->model, e));
    TRY(model_config_load(&c->model, conf->model, e));
    if (needs_text(conf))
        TRY(text_open(&c->text, conf->model, e));
    if (c->text)
        TRY(text_fits(c->text, conf->model, c->model.V, e));
    warn_of_template(conf);
    return 0;
fail:
    coord_close(c);
    return rc;
}

/* A micro-batch has never more rows than a leaf; who only samples has none, but reads prompts by as
   many rows. */
static struct train_limits plan_limits(const struct coord_needs *n)
{
    enum { PREFILL_ROWS = 512 };
    if (!n->scoring)
        return (struct train_limits){.rows = MIN(n->prompt_max, PREFILL_ROWS)};
    int64_t rows = n->rows;
    if (n->training)
        rows = MIN(rows, leaf_rows(n));
    return train_limits((int)rows, n->prompt_max, n->completion_max);
}

/* Against a plan that is too large: knobs that the command has. */
static const char *remedy(const struct coord_needs *n)
{
    if (!n->scoring)
        return "lower decode_slots, max_completion_length or devices";
    if (!n->training)
        return "lower microbatch_tokens";
    return n->slots > 0 ? "lower microbatch_tokens, decode_slots, max_completion_length or devices"
                        : "lower microbatch_tokens, max_completion_length or devices";
}

int coord_plan(struct coord *c, const struct coord_needs *needs, struct err *e)
{
    int rc = 0;
    size_t budget = c->conf->memory_budget > 0 ? (size_t)c->conf->memory_budget : mem_available();

    c->needs = *needs;
    TRY(check_positions(c, e));
    TRY(check_leaf(needs, e));
    if (needs->training && c->n_devices > needs->leaves) {
        rc = err_set(e, ERR_USAGE,
                     "devices %d is more than reduction_leaves %d; lower devices or raise "
                     "reduction_leaves and prompts_per_step",
                     c->n_devices, needs->leaves);
        goto fail;
    }
    c->limits = plan_limits(needs);
    c->slots = needs->slots > 0 ? choose_slots(c, budget) : 0;
    fill_ledger(c, c->slots);
    TRY(ledger_check(&c->ledger, budget, remedy(needs), e));
    return 0;
fail:
    coord_close(c);
    return rc;
}

int coord_open(struct coord *c, const char *weights, struct err *e)
{
    int rc = 0;
    pool_flush_denormals();
    for (int i = 0; i < c->n_devices; i++) {
        struct device_conf d = plan_device(c, i, c->slots);
        TRY(cpu_open(&c->device[i], &d, e));
        TRY(device_load(c->device[i], DEVICE_POLICY, weights, e));
        if (c->needs.reference)
            TRY(device_load(c->device[i], DEVICE_REFERENCE, c->conf->model, e));
    }
fail:
    return rc;
}

void coord_close(struct coord *c)
{
    for (int i = 0; i < COORD_DEVICES_MAX; i++)
        device_close(c->device[i]);
    text_close(c->text);
    *c = (struct coord){0};
}

struct roll *coord_roll(const struct coord *c, int d)
{
    enum { DISPATCH_STEPS = 16 };
    return roll_new(&(struct roll_conf){.device = c->device[d],
                                        .dispatch_steps = DISPATCH_STEPS,
                                        .temperature = 1,
                                        .stop = c->model.eos,
                                        .n_stop = c->model.n_eos});
}

struct coord_needs coord_needs_of(const struct conf *conf)
{
    enum { SLOTS = 64, SLOTS_MAX = 65536 }; // where decode_slots is auto
    bool train = conf->command == CONF_TRAIN, sft = conf->command == CONF_SFT;
    struct coord_needs n = {.training = train || sft,
                            .scoring = train || sft || conf->command == CONF_LOGPROBS,
                            .reference = train && conf->beta > 0,
                            .prompt_max = MAX(1, (int)conf->max_prompt_length),
                            .completion_max = MAX(1, (int)conf->max_completion_length),
                            .rows = MAX(1, (int)conf->microbatch_tokens),
                            .samples = 1,
                            .leaves = 1,
                            .leaf_groups = 1};
    if (n.training) {
        n.groups = (int)conf->prompts_per_step;
        n.leaves = (int)conf->reduction_leaves;
        n.leaf_groups = ((int)conf->prompts_per_step + n.leaves - 1) / n.leaves;
    }
    if (!sft) {
        n.samples = MAX(1, (int)conf->num_generations);
        n.slots = (int)conf->decode_slots;
        if (n.slots == 0)
            n.slots = train ? (int)MIN(conf->prompts_per_step * n.samples, SLOTS_MAX) : SLOTS;
        if (conf->command == CONF_EVAL)
            n.eval_samples = n.samples;
        else if (train && conf->eval_data)
            n.eval_samples = (int)conf->num_generations_eval;
    }
    return n;
}
