/* Between texts and tokens: prompts in their template, completions back to text, rows that cannot
 * be used, and the rewards that a configuration names.
 */
#include "coord/coord.h"

#include <string.h>

static const char HOLE[] = "{prompt}";

/* The template with every {prompt} replaced. */
static void render(const char *form, const char *prompt, size_t n, struct buf *out)
{
    const char *hole;
    while ((hole = strstr(form, HOLE)) != NULL) {
        buf_put(out, form, (size_t)(hole - form));
        buf_put(out, prompt, n);
        form = hole + strlen(HOLE);
    }
    buf_puts(out, form);
}

/* A template that prints the first special token itself must not get it twice. */
static bool starts_wrapped(const struct coord *c, const struct buf *text)
{
    size_t n = 0;
    const char *bos = c->model.bos >= 0 ? text_token_bytes(c->text, c->model.bos, &n) : NULL;
    return bos && n > 0 && text->len >= n && memcmp(text->data, bos, n) == 0;
}

void coord_prompt(struct coord *c, const char *prompt, size_t n, struct text_ids *out)
{
    struct buf text = {0};
    const char *form = c->conf->prompt_template;
    if (form)
        render(form, prompt, n, &text);
    else
        buf_put(&text, prompt, n);
    out->n = 0;
    text_encode(c->text, buf_str(&text), text.len, starts_wrapped(c, &text) ? 0 : TEXT_WRAP, out);
    if (out->n == 0 && c->model.bos >= 0)
        text_ids_push(out, c->model.bos); // an empty prompt still needs a token to go on from
    buf_release(&text);
}

const char *coord_reject(void *ctx, const struct data_row *row)
{
    struct coord *c = ctx;
    struct text_ids ids = {0};
    const char *reason = NULL;
    coord_prompt(c, buf_str(&row->prompt), row->prompt.len, &ids);
    if (ids.n == 0)
        reason = "prompt without a token";
    else if (ids.n > (size_t)c->needs.prompt_max)
        reason = "longer than max_prompt_length";
    text_ids_release(&ids);
    for (int i = 0; i < c->conf->reward.n && !reason; i++)
        if (strcmp(c->conf->reward.item[i], "math") == 0)
            reward_gold_ok(buf_str(&row->answer), row->answer.len, &reason);
    return reason;
}

void coord_completion(const struct coord *c, const int *token, int n, bool stopped, struct buf *out)
{
    struct buf raw = {0};
    text_decode(c->text, token, (size_t)(n - stopped), true, &raw);
    buf_utf8_lossy(out, buf_str(&raw), raw.len);
    buf_release(&raw);
}

int coord_rewards(const struct conf *conf, struct reward_conf *rewards, double weight[REWARD_MAX],
                  struct err *e)
{
    const struct conf_names *names = &conf->reward;
    *rewards = (struct reward_conf){
        .n = names->n, .last_number = conf->math_last_number, .seed = conf->seed};
    if (names->n > REWARD_MAX)
        return err_set(e, ERR_USAGE, "reward: expected at most %d names, got %d", REWARD_MAX,
                       names->n);
    for (int i = 0; i < names->n; i++) {
        if (!reward_find(names->item[i], &rewards->kind[i]))
            return err_set(e, ERR_USAGE,
                           "reward: '%s' is not known; expected exact, format, math or "
                           "random",
                           names->item[i]);
        weight[i] = conf->reward_weights.item[i];
    }
    return 0;
}
