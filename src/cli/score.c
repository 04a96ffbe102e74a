/* loco score: rewards of saved completions. A row comes out as it came in, with its reward. */
#include "cli/cli.h"

#include "base/log.h"
#include "coord/coord.h"
#include "grpo/grpo.h"

#include <inttypes.h>
#include <string.h>

struct job {
    const struct conf *conf;
    struct reward_conf rewards;
    struct grpo_conf total; // weights alone
    struct buf out, number;
    double sum;
};

/* The first of the names that a row has, not null; NULL-terminated. *name is the one found. */
static const json_t *find_field(const json_t *row, const char *const names[], const char **name)
{
    for (int i = 0; names[i]; i++) {
        const json_t *v = json_object_get(row, names[i]);
        *name = names[i];
        if (v && !json_is_null(v))
            return v;
    }
    return NULL;
}

static int find_text(const struct cli_rows *rows, const char *own, const char *const standard[],
                     struct buf *number, const char **text, size_t *n, struct err *e)
{
    const char *const given[] = {own, NULL};
    const char *name;
    const json_t *v = find_field(rows->row, own ? given : standard, &name);
    if (!v)
        return cli_rows_refuse(rows, e, "no field '%s'", own ? own : standard[0]);
    if (json_is_string(v)) {
        *text = json_string_value(v);
        *n = json_string_length(v);
        return 0;
    }
    if (!json_is_number(v) || !number)
        return cli_rows_refuse(rows, e, "%s: expected a string%s", name,
                               number ? " or a number" : "");
    buf_clear(number);
    cli_put_json(number, v);
    *text = number->data;
    *n = number->len;
    return 0;
}

static int judge(struct job *j, const struct cli_rows *rows, struct reward_result *result,
                 struct err *e)
{
    static const char *const completions[] = {"completion", NULL};
    static const char *const answers[] = {"answer", "solution", "ground_truth", NULL};
    int rc = 0;
    struct reward_item item = {.index = (uint32_t)(rows->line - 1)};
    const char *answer;
    size_t n;
    TRY(find_text(rows, j->conf->completion_field, completions, NULL, &item.text, &item.text_len,
                  e));
    TRY(find_text(rows, j->conf->answer_field, answers, &j->number, &answer, &n, e));
    item.gold = data_gold(answer, n, j->conf->gold_rule, &item.gold_len);
    if (!item.gold || item.gold_len == 0)
        return cli_rows_refuse(rows, e, "no answer by gold_rule %s in the answer field",
                               conf_choice_text(j->conf, "gold_rule"));
    reward_judge(&j->rewards, &item, result);
fail:
    return rc;
}

static int answer_row(struct job *j, const struct cli_rows *rows, struct err *e)
{
    struct reward_result result;
    int rc = judge(j, rows, &result, e);
    if (rc < 0)
        return rc;
    double total = grpo_total(&j->total, result.score);
    json_object_set_new(rows->row, "reward", json_real(total));
    if (j->rewards.n > 1) {
        json_t *each = json_object();
        for (int i = 0; i < j->rewards.n; i++)
            json_object_set_new(each, reward_name(j->rewards.kind[i]), json_real(result.score[i]));
        json_object_set_new(rows->row, "rewards", each);
    }
    j->sum += total;
    cli_put_json(&j->out, rows->row);
    buf_putc(&j->out, '\n');
    return cli_flush(&j->out, e);
}

int cli_score(const struct conf *conf, struct err *e)
{
    int rc = 0;
    struct job j = {.conf = conf};
    struct cli_rows rows = {0};
    TRY(coord_rewards(conf, &j.rewards, j.total.weight, e));
    j.total.n_rewards = j.rewards.n;
    TRY(cli_rows_open(&rows, conf->rows, e));
    while ((rc = cli_rows_next(&rows, e)) > 0)
        TRY(answer_row(&j, &rows, e));
    TRY(rc);
    log_info("score: %" PRIu64 " rows, mean reward %.4f", rows.rows, j.sum / (double)rows.rows);
fail:
    cli_rows_close(&rows);
    buf_release(&j.out);
    buf_release(&j.number);
    return rc;
}
