/* How a run starts: its plan, its folder, its devices, and from where it goes on. Nothing is
 * written before everything that can be refused was looked at; what a refused start made is taken
 * away.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the plan ---- */

static void plan_grpo(struct run *r, const double *weight)
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
    r->temperature = (float)c->temperature;
}

static int plan_data(struct run *r, struct err *e)
{
    const struct conf *c = r->conf;
    bool sft = c->command == CONF_SFT;
    struct data_options options = {.want = sft ? DATA_COMPLETIONS : DATA_ANSWERS,
                                   .prompt_field = c->prompt_field,
                                   .answer_field = sft ? c->completion_field : c->answer_field,
                                   .gold_rule = c->gold_rule,
                                   .shuffle = c->shuffle_dataset,
                                   .seed = c->seed,
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

/* A run's files lie in a folder, and never among a model's. */
static int check_output(const struct conf *conf, struct err *e)
{
    int rc = 0;
    char *path = file_join(conf->output_dir, "config.json");
    if (file_exists(conf->output_dir) && !file_is_dir(conf->output_dir))
        rc = err_set(e, ERR_USAGE, "output_dir: %s is not a folder; give another name",
                     conf->output_dir);
    else if (file_exists(path))
        rc = err_set(e, ERR_USAGE,
                     "output_dir: %s is a model folder, since it holds config.json; give a folder "
                     "of the run's own",
                     conf->output_dir);
    mem_free(path);
    return rc;
}

int run_plan(struct run *r, const struct conf *conf, const struct coord_sink *sink, struct err *e)
{
    int rc = 0;
    double weight[REWARD_MAX];
    struct coord_needs needs = coord_needs_of(conf);
    *r = (struct run){
        .conf = conf, .sink = sink, .temperature = 1, .best_metric = NAN, .best_step = -1};
    TRY(check_output(conf, e));
    if (conf->command == CONF_TRAIN) {
        ASSERT(conf->num_generations <= COORD_SAMPLES_MAX); // the knob's own range
        TRY(coord_rewards(conf, &r->reward_conf, weight, e));
        plan_grpo(r, weight);
    }
    TRY(coord_read(&r->coord, conf, e));
    TRY(coord_plan(&r->coord, &needs, e));
    TRY(plan_data(r, e));
    r->n_groups = (int)conf->prompts_per_step;
    r->leaves = needs.leaves;
fail:
    return rc;
}

/* ---- the folder ---- */

/* Whether output_dir holds a run, or what is left of one. */
static int find_run(const struct run *r, bool *found, struct err *e)
{
    static const char *const SIGNS[] = {"config.yaml", "metrics.jsonl", "samples"};
    int64_t *step = NULL;
    size_t n = 0;
    int rc = coord_checkpoint_steps(r, &step, &n, e);
    *found = n > 0;
    for (size_t i = 0; i < ARRAY_LEN(SIGNS); i++) {
        char *path = file_join(r->conf->output_dir, SIGNS[i]);
        *found |= file_exists(path);
        mem_free(path);
    }
    mem_free(step);
    return rc;
}

/* metrics.jsonl and samples that no run of LoCo's made would be cut, so they are refused. A run
   makes an empty metrics.jsonl before its env.json, and samples after it. */
static int check_foreign(const struct run *r, struct err *e)
{
    struct err ignored = {0};
    const char *dir = r->conf->output_dir;
    char id[RUN_ID], *metrics = file_join(dir, "metrics.jsonl"),
                     *samples = file_join(dir, "samples");
    uint64_t size = 0;
    bool full = file_exists(metrics) && (file_size(metrics, &size, &ignored) < 0 || size > 0);
    int rc = 0;
    if ((full || file_exists(samples)) && coord_read_run_id(dir, "env.json", id, &ignored) < 0)
        rc = err_set(e, ERR_STATE,
                     "%s: is not of a LoCo run, since that run's env.json is not beside it; give "
                     "another output_dir, or move it away",
                     full ? metrics : samples);
    mem_free(metrics);
    mem_free(samples);
    return rc;
}

/* Steps that the lines of metrics.jsonl are of; an evaluation before the first is none. */
static int count_logged(const char *path, int64_t *steps, struct err *e)
{
    static const char START[] = "{\"step\": 0,";
    struct file_map map = {0};
    *steps = 0;
    if (!file_exists(path))
        return 0;
    int rc = file_map(&map, path, e);
    for (size_t i = 0; i < map.size; i++)
        *steps += map.data[i] == '\n';
    if (*steps > 0 && map.size > strlen(START) && memcmp(map.data, START, strlen(START)) == 0)
        --*steps;
    file_unmap(&map);
    return rc;
}

/* Steps without a checkpoint are made again, unless so many that there must have been one. */
static int check_logged(const struct run *r, const struct conf *saved, struct err *e)
{
    int64_t steps;
    char *path = file_join(r->conf->output_dir, "metrics.jsonl");
    int rc = count_logged(path, &steps, e);
    if (rc == 0 && saved->save_steps > 0 && steps > saved->save_steps)
        rc = err_set(e, ERR_STATE,
                     "%s: has %" PRId64 " steps, of which one in %" PRId64
                     " was saved, but there is no whole checkpoint; put one back, or start anew in "
                     "another output_dir",
                     path, steps, saved->save_steps);
    else if (rc == 0 && steps > 0)
        log_warn("%s: has %" PRId64 " steps and no checkpoint, so they are made again", path,
                 steps);
    mem_free(path);
    return rc;
}

/* A run that was killed before its first checkpoint starts anew, but only as the same run. */
static int check_former(const struct run *r, struct err *e)
{
    int rc = 0;
    struct conf saved = {0};
    char *path = file_join(r->conf->output_dir, "config.yaml");
    TRY(check_foreign(r, e));
    if (file_exists(path)) {
        TRY(conf_read(&saved, r->conf->command, path, e));
        TRY(conf_resume_check(&saved, r->conf, e));
        TRY(check_logged(r, &saved, e));
    }
fail:
    conf_release(&saved);
    mem_free(path);
    return rc;
}

int run_find_start(const struct run *r, char **from, struct err *e)
{
    int rc = 0;
    bool found = false;
    const struct conf *c = r->conf;
    TRY(find_run(r, &found, e));
    if (found && !c->resume_from_checkpoint)
        TRY(err_set(e, ERR_STATE,
                    "output_dir: %s holds a run already; give another folder, or "
                    "resume_from_checkpoint=auto to go on with it",
                    c->output_dir));
    TRY(coord_find_checkpoint(r, from, e));
    if (!*from)
        TRY(check_former(r, e));
fail:
    return rc;
}

/* Takes output_dir for this process and finds where to start. */
static int take_folder(struct run *r, char **from, struct err *e)
{
    int rc = 0;
    char *lock = file_join(r->conf->output_dir, ".lock");
    r->made_folder = !file_exists(r->conf->output_dir);
    TRY(file_mkdirs(r->conf->output_dir, e));
    TRY(file_lock(&r->lock, lock, e));
    TRY(run_find_start(r, from, e));
fail:
    mem_free(lock);
    return rc;
}

/* A start that was refused leaves no folder that was not there. */
static void leave_folder(struct run *r)
{
    struct err ignored = {0};
    if (r->made_folder && r->lock.held)
        file_remove_dir(r->conf->output_dir, &ignored);
}

static int write_text(const struct run *r, const char *name, const struct buf *text, struct err *e)
{
    char *path = file_join(r->conf->output_dir, name);
    int rc = file_write_atomic(path, buf_str(text), text->len, e);
    mem_free(path);
    return rc;
}

/* config.yaml, and env.json: which run this is, where and with what it was started last. */
static int write_start(const struct run *r, struct err *e)
{
    struct buf out = {0};
    conf_yaml(r->conf, &out);
    int rc = write_text(r, "config.yaml", &out, e);
    buf_clear(&out);
    buf_printf(&out,
               "{\"format\": 1, \"run_id\": \"%s\", \"version\": \"%s\", \"kernel_level\": \"%s\", "
               "\"devices\": %d, \"cpus\": %d, \"compiler\": ",
               r->run_id, COORD_VERSION, r->coord.kern->name, r->coord.n_devices, pool_cpus());
    buf_json(&out, __VERSION__, strlen(__VERSION__));
    buf_puts(&out, "}\n");
    if (rc == 0)
        rc = write_text(r, "env.json", &out, e);
    buf_release(&out);
    return rc;
}

/* ---- the model it is about ---- */

static void add_file(const char *dir, const char *name, uint32_t *crc)
{
    struct err ignored = {0};
    struct file_map map;
    char *path = file_join(dir, name);
    if (file_map(&map, path, &ignored) == 0) {
        *crc = file_crc32(*crc, map.data, map.size);
        file_unmap(&map);
    }
    mem_free(path);
}

/* What the run begins with: the weights, now on the devices, and the files that say what they mean.
 */
static int set_model_checksum(struct run *r, struct err *e)
{
    static const char *const MEANING[] = {"config.json", "generation_config.json",
                                          "tokenizer.json"};
    struct device_weights w = {.set = DEVICE_POLICY};
    int rc = device_checksum(r->coord.device[0], &w, e);
    for (size_t i = 0; i < ARRAY_LEN(MEANING); i++)
        add_file(r->conf->model, MEANING[i], &w.checksum);
    r->model_checksum = w.checksum;
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

/* ---- opening and closing ---- */

/* Memory of the groups and leaves of a step: all of it, once. The ledger has it as `samples`. */
static void open_groups(struct run *r)
{
    int samples = r->coord.needs.samples, tokens = r->coord.needs.completion_max;
    size_t n_tokens = (size_t)r->n_groups * (size_t)samples * (size_t)tokens;
    r->group = mem_calloc((size_t)r->n_groups, sizeof *r->group);
    r->leaf = mem_calloc((size_t)r->leaves, sizeof *r->leaf);
    r->groups_of = mem_calloc((size_t)r->n_groups, sizeof *r->groups_of);
    r->tokens_of = mem_calloc(LEAF_FLOATS * n_tokens, sizeof *r->tokens_of);
    for (int i = 0; i < r->n_groups; i++)
        group_init(&r->group[i], samples, tokens);
    for (int d = 0; d < r->coord.n_devices; d++) {
        r->tree[d].device = r->coord.device[d];
        if (r->conf->command == CONF_TRAIN)
            r->roll[d] = coord_roll(&r->coord, d);
    }
    if (r->conf->command == CONF_TRAIN)
        r->rewards = reward_new(&r->reward_conf);
}

/* Operations a second of all devices at once: the best of a few short rounds. */
static int measure_peak(struct run *r, double *flops_s, struct err *e)
{
    enum { TRIES = 5, ROUNDS = 100000 };
    struct device_peak peak[COORD_DEVICES_MAX];
    int rc = 0;
    *flops_s = 0;
    for (int i = 0; i < TRIES; i++) {
        double flops = 0;
        uint64_t begin = telem_now_ns();
        for (int d = 0; d < r->coord.n_devices; d++) {
            peak[d] = (struct device_peak){.rounds = ROUNDS};
            device_begin_peak(r->coord.device[d], &peak[d]);
        }
        for (int d = 0; d < r->coord.n_devices; d++) {
            int here = device_finish(r->coord.device[d], rc < 0 ? NULL : e);
            rc = rc < 0 ? rc : here;
            flops += peak[d].flops;
        }
        uint64_t ns = MAX(telem_now_ns() - begin, 1);
        *flops_s = MAX(*flops_s, flops * 1e9 / (double)ns);
    }
    return rc;
}

static int open_telem(struct run *r, struct err *e)
{
    double peak_flops_s;
    int rc = measure_peak(r, &peak_flops_s, e);
    if (rc < 0)
        return rc;
    struct telem_options options = {.dir = r->conf->output_dir,
                                    .steps = r->steps,
                                    .logging_steps = r->conf->logging_steps,
                                    .devices = r->coord.n_devices,
                                    .peak_flops_s = peak_flops_s,
                                    .live = r->sink->live,
                                    .columns = r->sink->columns,
                                    .print = r->sink->print,
                                    .ctx = r->sink->ctx};
    return telem_new(&r->telem, &options, e);
}

static int start_anew(struct run *r, struct err *e)
{
    set_run_id(r);
    return telem_resume(r->telem, (struct telem_mark){0}, -1, e);
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
    char *from = NULL;
    TRY(run_plan(r, conf, sink, e));
    TRY(take_folder(r, &from, e));
    TRY(coord_open(&r->coord, conf->model, e)); // also on resume: is it still the same model?
    TRY(set_model_checksum(r, e));
    open_groups(r);
    TRY(open_telem(r, e));
    TRY(from ? coord_restore(r, from, e) : start_anew(r, e));
    TRY(coord_cut_samples(r, e));
    TRY(coord_tidy_checkpoints(r, e));
    TRY(write_start(r, e));
    file_fault_point("start");
    print_header(r, from);
fail:
    if (rc < 0)
        leave_folder(r);
    mem_free(from);
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
