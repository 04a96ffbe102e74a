/* Groups of samples: their memory, their drawing on all devices, their judgement.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"

#include <string.h>

void group_init(struct group *g, int samples, int tokens_max)
{
    size_t S = (size_t)samples, T = (size_t)tokens_max;
    *g = (struct group){.S = samples, .tokens_max = tokens_max};
    g->sample = mem_calloc(S, sizeof *g->sample);
    g->completion = mem_calloc(S, sizeof *g->completion);
    g->token = mem_calloc(S * T, sizeof *g->token);
    g->logprob = mem_calloc(S * T, sizeof *g->logprob);
}

void group_release(struct group *g)
{
    data_row_release(&g->row);
    text_ids_release(&g->prompt);
    mem_free(g->sample);
    mem_free(g->completion);
    mem_free(g->token);
    mem_free(g->logprob);
    *g = (struct group){0};
}

size_t group_bytes(int samples, int tokens_max, int prompt_max)
{
    size_t S = (size_t)samples, T = (size_t)tokens_max;
    struct group g;
    return sizeof g + S * (sizeof *g.sample + sizeof *g.completion) +
           S * T * (sizeof *g.token + sizeof *g.logprob) + (size_t)prompt_max * sizeof *g.prompt.id;
}

static void submit_group(struct roll *roll, struct group *g, uint64_t tag)
{
    memset(g->sample, 0, (size_t)g->S * sizeof *g->sample);
    roll_submit(roll, &(struct roll_request){.tag = tag,
                                             .epoch = g->draw.epoch,
                                             .index = g->draw.index,
                                             .sample_hi = g->S,
                                             .prompt = {g->prompt.id, (int)g->prompt.n},
                                             .tokens_max = g->tokens_max,
                                             .token = g->token,
                                             .logprob = g->logprob});
}

/* A ticket names group and sample. */
static uint64_t ticket_of(uint64_t group, int sample)
{
    return group << 32 | (uint32_t)sample;
}

static void send_to_judge(const struct coord *c, struct reward *rewards, struct group *g,
                          uint64_t tag, int sample)
{
    struct buf text = {0};
    const struct sample *s = &g->sample[sample];
    coord_completion(c, g->completion[sample].token, s->n, !s->truncated, &text);
    reward_submit(rewards, ticket_of(tag, sample),
                  &(struct reward_item){.text = buf_str(&text),
                                        .text_len = text.len,
                                        .gold = buf_str(&g->row.answer),
                                        .gold_len = g->row.answer.len,
                                        .epoch = g->draw.epoch,
                                        .index = g->draw.index,
                                        .sample = (uint32_t)sample});
    buf_release(&text);
}

static void take_done(const struct coord *c, struct group *group, const struct roll_done *done,
                      const struct sampling *how)
{
    struct group *g = &group[done->tag];
    struct sample *s = &g->sample[done->sample];
    s->n = done->n;
    s->truncated = done->stop == DEVICE_LENGTH;
    g->completion[done->sample] = (struct device_tokens){
        .token = g->token + (size_t)done->sample * (size_t)g->tokens_max, .n = done->n};
    if (how->telem)
        telem_count(how->telem, TELEM_DECODE_TOKENS, (uint64_t)done->n);
    if (how->rewards)
        send_to_judge(c, how->rewards, g, done->tag, done->sample);
}

static size_t poll_rewards(struct reward *rewards, struct group *group)
{
    enum { AT_ONCE = 32 };
    struct reward_result result[AT_ONCE];
    size_t n = reward_poll(rewards, result, AT_ONCE);
    for (size_t i = 0; i < n; i++) {
        struct group *g = &group[result[i].ticket >> 32];
        g->sample[result[i].ticket & 0xffffffffu].result = result[i];
    }
    return n;
}

void coord_judge(struct reward *rewards, struct group *group)
{
    while (reward_pending(rewards) > 0)
        poll_rewards(rewards, group);
}

int coord_draw(struct coord *c, struct roll *const *roll, struct group *group, int n,
               const struct sampling *how, struct err *e)
{
    int rc = 0, total = 0, finished = 0;
    bool busy[COORD_DEVICES_MAX];
    for (int i = 0; i < n; i++) {
        // Contiguous, as leaves are: a device draws what it trains, save at the leaves' borders.
        submit_group(roll[(int64_t)i * c->n_devices / n], &group[i], (uint64_t)i);
        total += group[i].S;
    }
    for (bool any = true; any;) {
        any = false;
        for (int d = 0; d < c->n_devices; d++)
            any |= busy[d] = roll_begin(roll[d]);
        if (how->rewards)
            poll_rewards(how->rewards, group);
        for (int d = 0; d < c->n_devices; d++) {
            struct roll_done done;
            int here = busy[d] ? roll_finish(roll[d], rc < 0 ? NULL : e) : 0;
            rc = rc < 0 ? rc : here;
            while (rc == 0 && roll_next(roll[d], &done)) {
                take_done(c, group, &done, how);
                finished++;
            }
        }
        if (rc < 0)
            return rc;
        if (how->telem && any)
            telem_progress(how->telem, "rollout %d/%d samples", finished, total);
    }
    ASSERT(finished == total);
    return 0;
}
