/* The life of a run: its steps, with evaluation, logs and checkpoints after each, and how it ends.
 * What one step is stands in step.c (GRPO) and sft.c (supervised), how a run starts in start.c.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool trains_by_rewards(const struct run *r)
{
    return r->conf->command == CONF_TRAIN;
}

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
        return err_in(e, rc, "evaluation");
    file_fault_point("eval");
    telem_put(&r->metrics, out.reward, "eval/reward");
    telem_put(&r->metrics, out.accuracy, "eval/acc");
    for (int i = 0; i < out.n_pass; i++)
        telem_put(&r->metrics, out.pass[i], "eval/pass@%d", out.pass_k[i]);
    telem_put(&r->metrics, out.maj, "eval/maj@%d", how.samples);
    telem_put(&r->metrics, out.mean_length, "eval/mean_length");
    telem_put(&r->metrics, out.clipped_ratio, "eval/clipped_ratio");
    // As transformers has it, the best is one of the run's steps: not the model it began with.
    if (r->step > 0 && (isnan(r->best_metric) || out.reward > r->best_metric)) {
        r->best_metric = out.reward;
        r->best_step = r->step;
    }
    return 0;
}

/* An evaluation before the first step: the line of step 0. */
static int evaluate_start(struct run *r, struct err *e)
{
    int rc = 0;
    telem_record_clear(&r->metrics);
    TRY(evaluate(r, e));
    TRY(telem_step(r->telem, 0, &r->metrics, NULL, e));
fail:
    return rc;
}

static bool wants_eval(const struct run *r)
{
    const struct conf *c = r->conf;
    return trains_by_rewards(r) && c->eval_data &&
           ((c->eval_steps > 0 && r->step % c->eval_steps == 0) || r->step == r->steps);
}

/* Looks whether the run is to stop. Only here: whoever acts on it acts on the same look. */
static void look_for_stop(struct run *r)
{
    r->stopping = r->sink->stop && *r->sink->stop;
}

static bool wants_save(const struct run *r)
{
    const struct conf *c = r->conf;
    return (c->save_steps > 0 && r->step % c->save_steps == 0) || r->step == r->steps ||
           (c->load_best_model_at_end && r->step == r->best_step) || r->stopping;
}

/* A step that broke is told with the samples that led to it; nothing of it is saved. */
static int tell_broken(struct run *r, int rc, struct err *e)
{
    struct err why = {0}, ignored = {0};
    if (rc != ERR_NUMERIC || !trains_by_rewards(r) || coord_write_samples(r, &ignored) < 0)
        return rc;
    why = *e;
    *e = (struct err){0};
    return err_set(e, rc, "%s; its samples are in %s/samples/step-%" PRId64 ".jsonl", why.text,
                   r->conf->output_dir, r->step + 1);
}

/* The step's samples, on disk, and its metrics; with them it is done. */
static int log_step(struct run *r, struct err *e)
{
    int rc = 0;
    telem_enter(r->telem, TELEM_LOG);
    if (trains_by_rewards(r))
        TRY(coord_write_samples(r, e));
    file_fault_point("samples");
    r->step++;
    coord_step_metrics(r);
fail:
    telem_leave(r->telem, TELEM_LOG);
    return rc;
}

/* What follows a step: its samples, evaluation, lines and checkpoint. */
static int conclude(struct run *r, struct err *e)
{
    int rc = 0;
    TRY(log_step(r, e));
    if (wants_eval(r))
        TRY(evaluate(r, e));
    if (trains_by_rewards(r) && r->conf->log_completions && r->step % r->conf->logging_steps == 0)
        coord_show_samples(r);
    TRY(telem_step(r->telem, r->step, &r->metrics, &r->perf, e));
    file_fault_point("logged");
    look_for_stop(r);
    if (wants_save(r)) {
        telem_enter(r->telem, TELEM_SAVE);
        rc = coord_save(r, e);
        telem_leave(r->telem, TELEM_SAVE);
    }
    file_fault_point("concluded");
fail:
    return rc;
}

static int advance(struct run *r, run_step_fn step, struct err *e)
{
    int64_t number = r->step + 1;
    telem_record_clear(&r->metrics);
    telem_record_clear(&r->perf);
    int rc = step(r, e);
    file_fault_point("step");
    rc = rc < 0 ? tell_broken(r, rc, e) : conclude(r, e);
    return err_in(e, rc, "step %" PRId64, number);
}

static void print_end(const struct run *r)
{
    struct buf out = {0};
    char *last = coord_checkpoint_path(r, r->step), *best = coord_checkpoint_path(r, r->best_step);
    buf_printf(&out, "done: %s\n", last);
    if (r->best_step >= 0)
        buf_printf(&out, "best evaluation: reward %.4f after step %" PRId64 "%s%s\n",
                   r->best_metric, r->best_step, file_is_dir(best) ? ", which is " : "",
                   file_is_dir(best) ? best : "");
    r->sink->print(r->sink->ctx, buf_str(&out), out.len);
    buf_release(&out);
    mem_free(last);
    mem_free(best);
}

static bool wants_eval_on_start(const struct run *r)
{
    const struct conf *c = r->conf;
    return r->step == 0 && trains_by_rewards(r) && c->eval_data && c->eval_on_start;
}

static int tell_stopped(const struct run *r, int64_t began, struct err *e)
{
    static const char REMEDY[] = "go on with resume_from_checkpoint=auto";
    if (r->step == 0)
        return err_set(e, ERR_STOPPED, "stopped before step 1; %s", REMEDY);
    return err_set(e, ERR_STOPPED, "stopped after step %" PRId64 ", which is %s; %s", r->step,
                   r->step > began ? "saved" : "where it began", REMEDY);
}

static int run_steps(struct run *r, run_step_fn step, struct err *e)
{
    int rc = 0;
    int64_t began = r->step;
    look_for_stop(r);
    if (wants_eval_on_start(r) && !r->stopping) {
        TRY(evaluate_start(r, e));
        look_for_stop(r);
    }
    while (r->step < r->steps) {
        if (r->stopping)
            return tell_stopped(r, began, e);
        TRY(advance(r, step, e));
    }
    telem_progress_clear(r->telem);
    print_end(r);
fail:
    return rc;
}

static int dry_run(struct run *r, const struct conf *conf, const struct coord_sink *sink,
                   struct err *e)
{
    int rc = 0;
    char *from = NULL;
    struct buf out = {0};
    TRY(run_plan(r, conf, sink, e));
    TRY(run_find_start(r, &from, e));
    conf_yaml(conf, &out);
    buf_puts(&out, "\n");
    coord_header(r, &out);
    if (from)
        buf_printf(&out, "resume     %s\n", from);
    sink->print(sink->ctx, buf_str(&out), out.len);
fail:
    buf_release(&out);
    mem_free(from);
    return rc;
}

int run_all(const struct conf *conf, const struct coord_sink *sink, run_step_fn step, struct err *e)
{
    int rc = 0;
    struct run r;
    if (conf->dry_run) {
        rc = dry_run(&r, conf, sink, e);
    } else {
        TRY(run_open(&r, conf, sink, e));
        TRY(run_steps(&r, step, e));
    }
fail:
    run_close(&r);
    return rc;
}

int coord_train(const struct conf *conf, const struct coord_sink *sink, struct err *e)
{
    return run_all(conf, sink, coord_step, e);
}
