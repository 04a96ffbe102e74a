/* A configuration's start and end: defaults first; at last what knobs ask of each other, and the
 * values behind words that are functions of other knobs.
 */
#include "conf/conf_int.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void conf_start(struct conf *c, enum conf_command command)
{
    *c = (struct conf){.command = command};
    for (const struct conf_knob *k = conf_knobs; k->name; k++) {
        if (!conf_takes(command, k))
            continue;
        const char *standard = conf_standard(command, k);
        int rc = 0;
        if (standard)
            rc = conf_set(c, k, standard, false, (struct conf_place){0}, NULL);
        else if (k->kind == CHOICE)
            *(int *)conf_field(c, k) = -1;
        ASSERT(rc == 0);
    }
}

void conf_release(struct conf *c)
{
    for (const struct conf_knob *k = conf_knobs; k->name; k++) {
        if (k->commands)
            conf_field_release(c, k);
    }
    *c = (struct conf){0};
}

static bool is_missing(const struct conf *c, const struct conf_knob *k)
{
    const void *field = conf_field(c, k);
    switch (k->kind) {
    case TEXT:
        return !*(char *const *)field;
    case NAMES:
        return ((const struct conf_names *)field)->n == 0;
    case CHOICE:
        return *(const int *)field < 0;
    default:
        return false;
    }
}

static int check_required(const struct conf *c, struct err *e)
{
    const struct conf_command_row *row = &conf_command_rows[c->command];
    for (const struct conf_knob *k = conf_knobs; k->name; k++) {
        if (!conf_takes(c->command, k) || conf_standard(c->command, k) || !is_missing(c, k))
            continue;
        bool bare = strcmp(k->name, row->positional) == 0;
        return err_set(e, ERR_USAGE, "%s%s is missing: %s", bare ? "" : "--", k->name, k->doc);
    }
    return 0;
}

static int check_rewards(struct conf *c, struct err *e)
{
    if (c->reward_weights.n == 0) {
        c->reward_weights.item = mem_calloc((size_t)c->reward.n, sizeof(double));
        for (; c->reward_weights.n < c->reward.n; c->reward_weights.n++)
            c->reward_weights.item[c->reward_weights.n] = 1.0;
    }
    if (c->reward_weights.n != c->reward.n)
        return err_set(e, ERR_USAGE,
                       "reward_weights: got %d for %d reward%s; give one for each, in their order, "
                       "or none for 1 each",
                       c->reward_weights.n, c->reward.n, c->reward.n == 1 ? "" : "s");
    return 0;
}

static int check_template(const struct conf *c, struct err *e)
{
    const char *mark = strstr(c->prompt_template, "{prompt}");
    if (mark && !strstr(mark + 1, "{prompt}"))
        return 0;
    struct buf shown = {0};
    conf_show(c->prompt_template, &shown);
    int rc = err_set(e, ERR_USAGE, "prompt_template: expected {prompt} in it once, got '%s'",
                     buf_str(&shown));
    buf_release(&shown);
    return rc;
}

/* Leaves are at least one group each, and fold by a binary tree. */
static int check_leaves(struct conf *c, struct err *e)
{
    int64_t leaves = c->reduction_leaves;
    if (leaves == 0) {
        for (leaves = 1; leaves < 8 && leaves * 2 <= c->prompts_per_step;)
            leaves *= 2;
        c->reduction_leaves = leaves;
    }
    if ((leaves & (leaves - 1)) != 0 || leaves > c->prompts_per_step)
        return err_set(e, ERR_USAGE,
                       "reduction_leaves: expected a power of two of at most prompts_per_step "
                       "(%" PRId64 "), got %" PRId64,
                       c->prompts_per_step, leaves);
    return 0;
}

/* Below it logits over temperature leave the range of floats. */
static int check_temperature(const char *name, double t, struct err *e)
{
    static const double LEAST = 1e-6;
    if (t == 0 || !(t < LEAST))
        return 0;
    return err_set(e, ERR_USAGE,
                   "%s: expected 0, which takes the most likely token, or at least %g, got %g",
                   name, LEAST, t);
}

static int check_schedule(const struct conf *c, struct err *e)
{
    if (c->warmup_steps > 0 && c->warmup_ratio > 0)
        return err_set(e, ERR_USAGE,
                       "warmup_steps and warmup_ratio: expected one of them, got %" PRId64
                       " and %g",
                       c->warmup_steps, c->warmup_ratio);
    if (c->lr_scheduler_type == CONF_LR_CONSTANT && (c->warmup_steps > 0 || c->warmup_ratio > 0))
        return err_set(e, ERR_USAGE,
                       "lr_scheduler_type: constant has no warm-up; expected constant_with_warmup");
    if (c->max_steps == 0 && !(c->num_train_epochs > 0))
        return err_set(e, ERR_USAGE,
                       "num_train_epochs: expected more than 0 where max_steps is none");
    return 0;
}

static int check_evaluation(struct conf *c, struct err *e)
{
    bool evaluates = c->eval_steps > 0 || c->eval_on_start;
    if (evaluates && !c->eval_data)
        return err_set(e, ERR_USAGE, "eval_data: expected a file, since %s is set",
                       c->eval_steps > 0 ? "eval_steps" : "eval_on_start");
    if (c->eval_data && !evaluates)
        return err_set(e, ERR_USAGE,
                       "eval_data: nothing would use it; set eval_steps or eval_on_start");
    if (c->load_best_model_at_end && c->eval_steps == 0)
        return err_set(e, ERR_USAGE, "load_best_model_at_end: expected eval_steps to be set");
    if (c->num_generations_eval == 0)
        c->num_generations_eval = c->num_generations;
    if (isnan(c->eval_temperature))
        c->eval_temperature = c->temperature;
    return 0;
}

static int check_train(struct conf *c, struct err *e)
{
    int rc = 0;
    if (c->num_generations < 2)
        TRY(err_set(e, ERR_USAGE,
                    "num_generations: expected at least 2, since an advantage compares samples of "
                    "one prompt, got %" PRId64,
                    c->num_generations));
    if (!(c->temperature > 0))
        TRY(err_set(e, ERR_USAGE,
                    "temperature: expected more than 0 in training, since all samples of a prompt "
                    "would be the same"));
    if (isnan(c->epsilon_high))
        c->epsilon_high = c->epsilon;
    TRY(check_evaluation(c, e));
    TRY(check_temperature("eval_temperature", c->eval_temperature, e));
fail:
    return rc;
}

static int check_shape(struct conf *c, struct err *e)
{
    int64_t heads = c->num_attention_heads;
    if (c->num_key_value_heads == 0)
        c->num_key_value_heads = heads;
    if (c->intermediate_size == 0)
        c->intermediate_size = 4 * c->hidden_size;
    if (heads % c->num_key_value_heads != 0)
        return err_set(e, ERR_USAGE,
                       "num_key_value_heads: expected a divisor of num_attention_heads (%" PRId64
                       "), got %" PRId64,
                       heads, c->num_key_value_heads);
    if (c->head_dim == 0 && c->hidden_size % heads != 0)
        return err_set(e, ERR_USAGE,
                       "head_dim: hidden_size (%" PRId64 ") is no multiple of num_attention_heads "
                       "(%" PRId64 "), so it must be given",
                       c->hidden_size, heads);
    if (c->head_dim == 0)
        c->head_dim = c->hidden_size / heads;
    if (c->head_dim % 2 != 0)
        return err_set(e, ERR_USAGE, "head_dim: expected an even number, got %" PRId64,
                       c->head_dim);
    return 0;
}

int conf_finish(struct conf *c, struct err *e)
{
    int rc = 0;
    bool learns = c->command == CONF_TRAIN || c->command == CONF_SFT;
    TRY(check_required(c, e));
    TRY(check_temperature("temperature", c->temperature, e));
    if (c->prompt_template)
        TRY(check_template(c, e));
    if (c->reward.n > 0)
        TRY(check_rewards(c, e));
    if (learns) {
        TRY(check_schedule(c, e));
        TRY(check_leaves(c, e));
    }
    if (c->command == CONF_TRAIN)
        TRY(check_train(c, e));
    if (c->command == CONF_GENERATE && !c->prompt == !c->prompts)
        TRY(err_set(e, ERR_USAGE, "give one of --prompt and --prompts"));
    if (c->command == CONF_INIT)
        TRY(check_shape(c, e));
fail:
    return rc;
}
