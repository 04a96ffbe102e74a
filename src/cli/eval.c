/* loco eval: how often a model is right on a data set. */
#include "cli/cli.h"

#include "coord/coord.h"

#include <stdio.h>

static json_t *report(const struct conf *conf, const struct coord_eval_result *r)
{
    json_t *o = json_object(), *pass = json_object();
    char name[32];
    for (int i = 0; i < r->n_pass; i++) {
        snprintf(name, sizeof name, "pass@%d", r->pass_k[i]);
        json_object_set_new(pass, name, json_real(r->pass[i]));
    }
    json_object_set_new(o, "model", json_string(conf->model));
    json_object_set_new(o, "data", json_string(conf->data));
    json_object_set_new(o, "prompts", json_integer((json_int_t)r->prompts));
    json_object_set_new(o, "samples", json_integer((json_int_t)r->samples));
    json_object_set_new(o, "temperature", json_real(conf->temperature));
    json_object_set_new(o, "accuracy", json_real(r->accuracy));
    json_object_set_new(o, "greedy_accuracy", json_real(r->greedy_accuracy));
    json_object_update(o, pass);
    snprintf(name, sizeof name, "maj@%d", (int)conf->num_generations);
    json_object_set_new(o, name, json_real(r->maj));
    json_object_set_new(o, "reward", json_real(r->reward));
    json_object_set_new(o, "mean_length", json_real(r->mean_length));
    json_object_set_new(o, "clipped_ratio", json_real(r->clipped_ratio));
    json_decref(pass);
    return o;
}

int cli_eval(const struct conf *conf, struct err *e)
{
    int rc = 0;
    struct coord c = {0};
    struct coord_needs needs = coord_needs_of(conf);
    struct coord_eval how = {.data_path = conf->data,
                             .samples = (int)conf->num_generations,
                             .temperature = (float)conf->temperature,
                             .rows_max = conf->rows_max,
                             .greedy = true};
    struct coord_eval_result result;
    struct buf out = {0};
    json_t *root = NULL;
    TRY(coord_read(&c, conf, e));
    TRY(coord_plan(&c, &needs, e));
    TRY(coord_open(&c, conf->model, e));
    TRY(coord_evaluate(&c, &how, &result, e));
    root = report(conf, &result);
    if (conf->json) {
        cli_put_json(&out, root);
        buf_putc(&out, '\n');
    } else {
        cli_put_report(&out, root);
    }
    TRY(cli_flush(&out, e));
fail:
    json_decref(root);
    buf_release(&out);
    coord_close(&c);
    return rc;
}
