/* The life of a run: its folder, where it starts, its steps with evaluation, logs and checkpoints,
 * and how it ends. What one step is stands in step.c (GRPO) and sft.c (supervised).
 */
#include "coord/coord.h"

#include "coord/coord_int.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- opening ---- */

static void open_grpo(struct run *r, const double *weight)
{
    const struct conf *c = r->conf;
    r->grpo = (struct grpo_conf){.scale = c->scale_rewards == CONF_SCALE_GROUP ? GRPO_SCALE_GROUP
                                                                               : GRPO_SCALE_NONE,
                                 .kl = c->beta == 0                ? GRPO_KL_NONE
                                       : c->use_bias_correction_kl ? GRPO_KL_K3_RATIO
                                                                   : GRPO_KL_K3,
                                 .beta = c->beta,
                                 .epsilon_low = c->epsilon,
                                 .epsilon_high = c->epsilon_high,
                                 .max_completion_length = (uint32_t)c->max_completion_length,
                                 .mask_truncated = c->mask_truncated_completions,
                                 .n_rewards = r->reward_conf.n};
    bool known = grpo_objective_find(conf_choice_text(c, "loss_type"), &r->grpo.objective);
    ASSERT(known);
    for (int i = 0; i < r->grpo.n_rewards; i++) {
        r->grpo.weight[i] = weight[i];
        r->grpo.reward_name[i] = reward_name(r->reward_conf.kind[i]);
    }
}

/* An example of each reward's limits: what grpo and coord can take. */
static int check_conf(const struct conf *c, struct err *e)
{
    if (c->command == CONF_TRAIN && c->num_generations < 2)
        return err_set(e, ERR_USAGE,
                       "num_generations: expected at least 2, since a sample is compared "
                       "with the others of its prompt; got %" PRId64,
                       c->num_generations);
    if (c->command == CONF_TRAIN && c->num_generations > COORD_SAMPLES_MAX)
        return err_set(e, ERR_USAGE, "num_generations: expected at most %d, got %" PRId64,
                       COORD_SAMPLES_MAX, c->num_generations);
    if (c->command == CONF_TRAIN && c->temperature == 0)
        return err_set(e, ERR_USAGE,
                       "temperature: expected a value above 0 in training: greedy samples "
                       "do not differ");
    return 0;
}

static int open_data(struct run *r, struct err *e)
{
    const struct conf *c = r->conf;
    bool sft = c->command == CONF_SFT;
    struct data_options options = {.want = sft ? DATA_COMPLETIONS : DATA_ANSWERS,
                                   .prompt_field = c->prompt_field,
                                   .answer_field = sft ? c->completion_field : c->answer_field,
                                   .gold_rule = c->gold_rule,
                                   .shuffle = c->shuffle_dataset,
                                   .seed = (uint64_t)c->seed,
                                   .reject = sft ? coord_sft_reject : coord_reject,
                                   .ctx = &r->coord};
    int rc = data_open(&r->data, c->data, &options, e);
    if (rc < 0)
        return rc;
    double rows = (double)data_count(r->data), per_step = (double)c->prompts_per_step;
    r->steps =
        c->max_steps > 0 ? c->max_steps : (int64_t)ceil(c->num_train_epochs * rows / per_step);
    r->steps = MAX(r->steps, 1);
    return train_schedule_init(&r->schedule, conf_choice_text(c, "lr_scheduler_type"),
                               (uint64_t)r->steps, (double)c->warmup_steps, c->warmup_ratio, e);
}

/* Memory of the groups and leaves of a step: all of it, once. */
static void open_groups(struct run *r)
{
    int samples = r->coord.needs.samples, tokens = r->coord.needs.completion_max;
    r->n_groups = (int)r->conf->prompts_per_step;
    r->leaves = r->coord.needs.leaves;
    r->group = mem_calloc((size_t)r->n_groups, sizeof *r->group);
    r->leaf = mem_calloc((size_t)r->leaves, sizeof *r->leaf);
    r->groups_of = mem_calloc((size_t)r->n_groups, sizeof *r->groups_of);
    r->tokens_of = mem_calloc(4 * (size_t)r->n_groups * (size_t)samples * (size_t)tokens,
                              sizeof *r->tokens_of);
    for (int i = 0; i < r->n_groups; i++)
        group_init(&r->group[i], samples, tokens);
    for (int d = 0; d < r->coord.n_devices; d++)
        r->tree[d].device = r->coord.device[d];
}

int run_plan(struct run *r, const struct conf *conf, const struct coord_sink *sink, struct err *e)
{
    int rc = 0;
    double weight[REWARD_MAX];
    struct coord_needs needs = coord_needs_of(conf);
    *r = (struct run){
        .conf = conf, .sink = sink, .temperature = 1, .best_metric = NAN, .best_step = -1};
    TRY(check_conf(conf, e));
    if (conf->command == CONF_TRAIN) {
        TRY(coord_rewards(conf, &r->reward_conf, weight, e));
        open_grpo(r, weight);
        r->temperature = (float)conf->temperature;
    }
    TRY(coord_read(&r->coord, conf, e));
    TRY(coord_plan(&r->coord, &needs, e));
    TRY(open_data(r, e));
    r->n_groups = (int)conf->prompts_per_step;
    r->leaves = needs.leaves;
fail:
    return rc;
}

/* ---- the folder ---- */

static bool has_run(const struct conf *c)
{
    static const char *const SIGNS[] = {"metrics.jsonl", "config.yaml"};
    bool found = false;
    for (size_t i = 0; i < ARRAY_LEN(SIGNS); i++) {
        char *path = file_join(c->output_dir, SIGNS[i]);
        found |= file_exists(path);
        mem_free(path);
    }
    return found;
}

static int write_text(const struct run *r, const char *name, const struct buf *text, struct err *e)
{
    char *path = file_join(r->conf->output_dir, name);
    int rc = file_write_atomic(path, buf_str(text), text->len, e);
    mem_free(path);
    return rc;
}

/* config.yaml, and env.json: where and with what the run was started last. */
static int write_start(const struct run *r, struct err *e)
{
    struct buf out = {0};
    conf_yaml(r->conf, &out);
    int rc = write_text(r, "config.yaml", &out, e);
    buf_clear(&out);
    buf_printf(&out,
               "{\"format\": 1, \"version\": \"%s\", \"kernel_level\": \"%s\", \"devices\": %d, "
               "\"cpus\": %d, \"compiler\": ",
               COORD_VERSION, r->coord.kern->name, r->coord.n_devices, pool_cpus());
    buf_json(&out, __VERSION__, strlen(__VERSION__));
    buf_puts(&out, "}\n");
    if (rc == 0)
        rc = write_text(r, "env.json", &out, e);
    buf_release(&out);
    return rc;
}

/* What a run is a function of, as 16 hex digits (FNV-1a). */
static void set_run_id(struct run *r)
{
    struct buf text = {0};
    uint64_t hash = 0xcbf29ce484222325u;
    conf_canonical(r->conf, &text);
    buf_printf(&text, "data %016" PRIx64 "\nmodel %08" PRIx32 "\n", data_checksum(r->data),
               r->model_checksum);
    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ (unsigned char)text.data[i]) * 0x100000001b3u;
    snprintf(r->run_id, sizeof r->run_id, "%016" PRIx64, hash);
    buf_release(&text);
}

static int start_anew(struct run *r, struct err *e)
{
    int rc = 0;
    struct device_weights w = {.set = DEVICE_POLICY};
    TRY(device_checksum(r->coord.device[0], &w, e));
    r->model_checksum = w.checksum;
    set_run_id(r);
    TRY(telem_resume(r->telem, 0, -1, e));
    TRY(coord_cut_samples(r, e));
fail:
    return rc;
}

static int open_telem(struct run *r, struct err *e)
{
    struct telem_options options = {.dir = r->conf->output_dir,
                                    .steps = r->steps,
                                    .logging_steps = r->conf->logging_steps,
                                    .live = r->sink->live,
                                    .columns = r->sink->columns,
                                    .print = r->sink->print,
                                    .ctx = r->sink->ctx};
    return telem_new(&r->telem, &options, e);
}

static void print_header(const struct run *r, const char *from)
{
    struct buf out = {0};
    coord_header(r, &out);
    if (from)
        buf_printf(&out, "resume     %s, step %" PRId64 "\n", from, r->step);
    r->sink->print(r->sink->ctx, buf_str(&out), out.len);
    buf_release(&out);
}

int run_open(struct run *r, const struct conf *conf, const struct coord_sink *sink, struct err *e)
{
    int rc = 0;
    char *from = NULL, *lock = NULL;
    TRY(run_plan(r, conf, sink, e));
    if (!conf->resume_from_checkpoint && has_run(conf))
        TRY(err_set(e, ERR_STATE,
                    "output_dir: %s holds a run already; give another folder, or "
                    "resume_from_checkpoint=auto to go on with it",
                    conf->output_dir));
    TRY(file_mkdirs(conf->output_dir, e));
    lock = file_join(conf->output_dir, ".lock");
    TRY(file_lock(&r->lock, lock, e));
    TRY(coord_find_checkpoint(r, &from, e));
    TRY(coord_open(&r->coord, from ? from : conf->model, e));
    open_groups(r);
    TRY(open_telem(r, e));
    TRY(from ? coord_restore(r, from, e) : start_anew(r, e));
    TRY(write_start(r, e));
    print_header(r, from);
fail:
    mem_free(from);
    mem_free(lock);
    return rc;
}

void run_close(struct run *r)
{
    for (int d = 0; d < COORD_DEVICES_MAX; d++) {
        roll_free(r->roll[d]);
        train_run_release(&r->lane[d]);
    }
    for (int i = 0; r->group && i < r->n_groups; i++)
        group_release(&r->group[i]);
    mem_free(r->group);
    mem_free(r->leaf);
    mem_free(r->groups_of);
    mem_free(r->tokens_of);
    reward_free(r->rewards);
    telem_record_release(&r->metrics);
    telem_record_release(&r->perf);
    telem_free(r->telem);
    data_close(r->data);
    coord_close(&r->coord);
    file_unlock(&r->lock);
    *r = (struct run){0};
}

/* ---- steps ---- */

static int evaluate(struct run *r, struct err *e)
{
    const struct conf *c = r->conf;
    struct coord_eval how = {.data_path = c->eval_data,
                             .samples = (int)c->num_generations_eval,
                             .temperature = (float)c->eval_temperature};
    struct coord_eval_result out;
    telem_enter(r->telem, TELEM_EVAL);
    int rc = coord_evaluate(&r->coord, &how, &out, e);
    telem_leave(r->telem, TELEM_EVAL);
    if (rc < 0)
        return err_in(e, rc, "evaluation after step %" PRId64, r->step);
    telem_put(&r->metrics, out.reward, "eval/reward");
    telem_put(&r->metrics, out.accuracy, "eval/acc");
    for (int i = 0; i < out.n_pass; i++)
        telem_put(&r->metrics, out.pass[i], "eval/pass@%d", out.pass_k[i]);
    telem_put(&r->metrics, out.maj, "eval/maj@%d", how.samples);
    telem_put(&r->metrics, out.mean_length, "eval/mean_length");
    telem_put(&r->metrics, out.clipped_ratio, "eval/clipped_ratio");
    if (isnan(r->best_metric) || out.reward > r->best_metric) {
        r->best_metric = out.reward;
        r->best_step = r->step;
    }
    return 0;
}

static bool wants_eval(const struct run *r)
{
    const struct conf *c = r->conf;
    if (c->command != CONF_TRAIN || !c->eval_data)
        return false;
    return (c->eval_steps > 0 && r->step % c->eval_steps == 0) || r->step == r->steps;
}

static bool stop_asked(const struct run *r)
{
    return r->sink->stop && *r->sink->stop;
}

static bool wants_save(const struct run *r)
{
    const struct conf *c = r->conf;
    return (c->save_steps > 0 && r->step % c->save_steps == 0) || r->step == r->steps ||
           stop_asked(r);
}

/* One step and all that follows it. */
static int advance(struct run *r, run_step_fn step, struct err *e)
{
    int rc = 0;
    int64_t number = r->step + 1;
    telem_record_clear(&r->metrics);
    telem_record_clear(&r->perf);
    rc = step(r, e);
    if (rc == ERR_NUMERIC && r->conf->command == CONF_TRAIN) {
        struct err ignored = {0};
        coord_write_samples(r, &ignored); // what led to it
    }
    TRY(rc);
    file_fault_point("step");
    if (r->conf->command == CONF_TRAIN)
        TRY(coord_write_samples(r, e));
    r->step++;
    coord_step_metrics(r);
    if (wants_eval(r))
        TRY(evaluate(r, e));
    if (r->conf->command == CONF_TRAIN && r->conf->log_completions &&
        r->step % r->conf->logging_steps == 0)
        coord_show_samples(r);
    TRY(telem_step(r->telem, r->step, &r->metrics, &r->perf, e));
    file_fault_point("logged");
    if (wants_save(r)) {
        telem_enter(r->telem, TELEM_SAVE);
        rc = coord_save(r, e);
        telem_leave(r->telem, TELEM_SAVE);
    }
fail:
    return rc < 0 && rc != ERR_STOPPED ? err_in(e, rc, "step %" PRId64, number) : rc;
}

static void print_end(const struct run *r)
{
    struct buf out = {0};
    buf_printf(&out, "done: %s/checkpoint-%" PRId64 "\n", r->conf->output_dir, r->step);
    if (r->conf->command == CONF_TRAIN && r->best_step >= 0)
        buf_printf(&out, "best evaluation: reward %.4f after step %" PRId64 "\n", r->best_metric,
                   r->best_step);
    r->sink->print(r->sink->ctx, buf_str(&out), out.len);
    buf_release(&out);
}

int run_steps(struct run *r, run_step_fn step, struct err *e)
{
    int rc = 0;
    if (r->step == 0 && r->conf->command == CONF_TRAIN && r->conf->eval_data &&
        r->conf->eval_on_start) {
        telem_record_clear(&r->metrics);
        TRY(evaluate(r, e));
        TRY(telem_step(r->telem, 0, &r->metrics, NULL, e));
    }
    while (r->step < r->steps) {
        TRY(advance(r, step, e));
        if (stop_asked(r) && r->step < r->steps)
            return err_set(e, ERR_STOPPED,
                           "stopped after step %" PRId64 ", which is saved; go on with "
                           "resume_from_checkpoint=auto",
                           r->step);
    }
    telem_progress_clear(r->telem);
    print_end(r);
fail:
    return rc;
}

int run_dry(struct run *r, const struct conf *conf, const struct coord_sink *sink, struct err *e)
{
    int rc = run_plan(r, conf, sink, e);
    if (rc == 0) {
        struct buf out = {0};
        conf_yaml(conf, &out);
        buf_puts(&out, "\n");
        coord_header(r, &out);
        sink->print(sink->ctx, buf_str(&out), out.len);
        buf_release(&out);
    }
    return rc;
}

int coord_train(const struct conf *conf, const struct coord_sink *sink, struct err *e)
{
    int rc = 0;
    struct run r;
    if (conf->dry_run) {
        rc = run_dry(&r, conf, sink, e);
        run_close(&r);
        return rc;
    }
    TRY(run_open(&r, conf, sink, e));
    r.rewards = reward_new(&r.reward_conf);
    for (int d = 0; d < r.coord.n_devices; d++)
        r.roll[d] = coord_roll(&r.coord, d);
    TRY(run_steps(&r, coord_step, e));
fail:
    run_close(&r);
    return rc;
}
