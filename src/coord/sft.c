/* Supervised warm start: the same leaves, micro-batches and update as GRPO; a group is a prompt
 * with its one known completion, ended by the model's stop id, and every token's coefficient is -1.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"

#include <inttypes.h>

/* The row as tokens: prompt and completion, the first stop id at its end. */
static void encode(struct coord *c, const struct data_row *row, struct text_ids *prompt,
                   struct text_ids *completion)
{
    coord_prompt(c, buf_str(&row->prompt), row->prompt.len, prompt);
    completion->n = 0;
    text_encode(c->text, buf_str(&row->answer), row->answer.len, 0, completion);
    if (c->model.n_eos > 0)
        text_ids_push(completion, c->model.eos[0]);
}

const char *coord_sft_reject(void *ctx, const struct data_row *row)
{
    struct coord *c = ctx;
    struct text_ids prompt = {0}, completion = {0};
    const char *reason = NULL;
    encode(c, row, &prompt, &completion);
    if (prompt.n == 0 || completion.n == 0)
        reason = "no token";
    else if (prompt.n > (size_t)c->needs.prompt_max)
        reason = "longer than max_prompt_length";
    else if (completion.n > (size_t)c->needs.completion_max)
        reason = "longer than max_completion_length";
    text_ids_release(&prompt);
    text_ids_release(&completion);
    return reason;
}

static int read_groups(struct run *r, struct err *e)
{
    int rc = 0;
    struct text_ids completion = {0};
    for (int i = 0; i < r->n_groups; i++) {
        struct group *g = &r->group[i];
        g->draw = data_next(r->data, &r->cursor);
        TRY(data_read(r->data, g->draw.slot, &g->row, e));
        encode(&r->coord, &g->row, &g->prompt, &completion);
        for (size_t t = 0; t < completion.n; t++)
            g->token[t] = completion.id[t];
        g->sample[0] = (struct sample){.n = (int)completion.n};
        g->completion[0] = (struct device_tokens){.token = g->token, .n = (int)completion.n};
    }
    coord_leaves(r);
    coord_leaf_tokens(r);
fail:
    text_ids_release(&completion);
    return rc;
}

static int step(struct run *r, struct err *e)
{
    int rc = 0;
    struct grpo_tally loss = {0}, entropy = {0};
    uint64_t tokens = 0;

    telem_enter(r->telem, TELEM_DATA);
    rc = read_groups(r, e);
    telem_leave(r->telem, TELEM_DATA);
    TRY(rc);
    for (int i = 0; i < r->leaves; i++) {
        for (size_t t = 0; t < r->leaf[i].n_tokens; t++)
            r->leaf[i].coef[t] = -1;
        tokens += r->leaf[i].n_tokens;
    }
    telem_enter(r->telem, TELEM_UPDATE);
    rc = coord_backward(r, e);
    telem_leave(r->telem, TELEM_UPDATE);
    TRY(rc);
    for (int i = 0; i < r->leaves; i++) {
        for (size_t t = 0; t < r->leaf[i].n_tokens; t++) {
            grpo_tally_add(&loss, -r->leaf[i].logprob[t]);
            grpo_tally_add(&entropy, r->leaf[i].entropy[t]);
        }
    }
    telem_enter(r->telem, TELEM_APPLY);
    rc = coord_apply(r, MAX(tokens, 1), e);
    telem_leave(r->telem, TELEM_APPLY);
    telem_put(&r->metrics, grpo_tally_mean(&loss), "loss");
    telem_put(&r->metrics, grpo_tally_mean(&entropy), "entropy");
fail:
    return rc;
}

int coord_sft(const struct conf *conf, const struct coord_sink *sink, struct err *e)
{
    return run_all(conf, sink, step, e);
}
