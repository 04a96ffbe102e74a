/* The scheduler of samples onto slots. State is a queue of requests and a table of slots; the rule
 * is first come, first served, under a count of cache blocks that charges every sample its longest.
 */
#include "roll/roll.h"

#include <string.h>

enum phase { IDLE, PREFILL, DECODE };

struct active {
    struct roll_request q;
    int handle;      // -1 before prefill
    int next_sample; // not yet forked
    int unfinished;  // forked or to be forked
    int blocks;      // charged for the prompt
};

struct running {
    int request, sample, n; // n: tokens so far
    int blocks;             // charged for the sample
    bool busy;
};

struct roll {
    struct roll_conf conf;
    struct active *request; // (n_requests)
    size_t requests_cap;
    int n_requests, first; // requests before `first` are forked out
    struct running *slot;  // (slots)
    int n_busy;
    int blocks_free;
    enum phase phase;
    struct device_prefill prefill;
    struct device_decode decode;
    struct roll_done *done; // (n_done) a queue
    size_t done_cap;
    int n_done, done_first;
};

static int prompt_blocks(const struct roll_request *q)
{
    return kv_blocks(q->prompt.n - 1);
}

/* Blocks of its own that a sample can need: those its prompt does not share whole. */
static int sample_blocks(int prompt, int tokens_max)
{
    return kv_blocks(prompt - 1 + tokens_max) - (prompt - 1) / KV_BLOCK;
}

int roll_blocks(int slots, int samples, int prompt_max, int tokens_max)
{
    int groups = (slots + samples - 1) / samples + 1; // one may be ending while the next begins
    int worst = MIN(prompt_max, KV_BLOCK);            // a prompt that ends inside its last block
    return groups * kv_blocks(prompt_max) + slots * sample_blocks(worst, tokens_max);
}

struct roll *roll_new(const struct roll_conf *c)
{
    struct roll *r = mem_calloc(1, sizeof *r);
    size_t slots = (size_t)c->device->conf.slots;
    ASSERT(c->dispatch_steps >= 1);
    r->conf = *c;
    r->slot = mem_calloc(slots, sizeof *r->slot);
    r->decode.out = mem_calloc(slots * (size_t)c->dispatch_steps, sizeof *r->decode.out);
    r->blocks_free = c->device->conf.kv_blocks;
    return r;
}

void roll_free(struct roll *r)
{
    if (!r)
        return;
    struct err ignored = {0};
    struct device *d = r->conf.device;
    if (r->phase != IDLE)
        roll_finish(r, &ignored);
    for (int i = 0; i < d->conf.slots; i++)
        if (r->slot[i].busy)
            device_cancel(d, &(struct device_fork){.slot = i}, &ignored);
    for (int i = 0; i < r->n_requests; i++)
        if (r->request[i].handle >= 0 && r->request[i].next_sample < r->request[i].q.sample_hi)
            device_release(d, &(struct device_prefill){.handle = r->request[i].handle}, &ignored);
    mem_free(r->slot);
    mem_free(r->decode.out);
    mem_free(r->request);
    mem_free(r->done);
    mem_free(r);
}

void roll_sampling(struct roll *r, float temperature, uint64_t key)
{
    ASSERT(roll_pending(r) == 0);
    r->conf.temperature = temperature;
    r->conf.key = key;
}

void roll_submit(struct roll *r, const struct roll_request *q)
{
    ASSERT(q->prompt.n >= 1 && q->sample_hi > q->sample_lo && q->tokens_max >= 1);
    ASSERT(prompt_blocks(q) + sample_blocks(q->prompt.n, q->tokens_max) <=
           r->conf.device->conf.kv_blocks);
    if (roll_pending(r) == 0)
        r->n_requests = r->first = 0;
    mem_grow(&r->request, &r->requests_cap, (size_t)r->n_requests + 1, sizeof *r->request);
    r->request[r->n_requests++] = (struct active){.q = *q,
                                                  .handle = -1,
                                                  .next_sample = q->sample_lo,
                                                  .unfinished = q->sample_hi - q->sample_lo};
}

int roll_pending(const struct roll *r)
{
    int n = r->n_done - r->done_first;
    for (int i = 0; i < r->n_requests; i++)
        n += r->request[i].unfinished;
    return n;
}

static int free_slot(const struct roll *r)
{
    for (int i = 0; i < r->conf.device->conf.slots; i++)
        if (!r->slot[i].busy)
            return i;
    return -1;
}

/* Gives one sample of request i a slot. */
static int start_sample(struct roll *r, int i, int slot, struct err *e)
{
    struct active *a = &r->request[i];
    struct device_fork fork = {.handle = a->handle,
                               .slot = slot,
                               .epoch = a->q.epoch,
                               .index = a->q.index,
                               .sample = (uint32_t)a->next_sample,
                               .tokens_max = a->q.tokens_max};
    int rc = device_fork(r->conf.device, &fork, e);
    if (rc < 0)
        return rc;
    r->slot[slot] = (struct running){.request = i,
                                     .sample = a->next_sample++,
                                     .busy = true,
                                     .blocks = sample_blocks(a->q.prompt.n, a->q.tokens_max)};
    r->blocks_free -= r->slot[slot].blocks;
    r->n_busy++;
    if (a->next_sample == a->q.sample_hi)
        return device_release(r->conf.device, &(struct device_prefill){.handle = a->handle}, e);
    return 0;
}

/* Fills slots from prefilled requests; stops at the first that must be prefilled or must wait. */
static int fill_slots(struct roll *r, struct err *e)
{
    while (r->first < r->n_requests) {
        struct active *a = &r->request[r->first];
        int slot = free_slot(r);
        if (a->next_sample == a->q.sample_hi) {
            r->first++;
            continue;
        }
        if (a->handle < 0 || slot < 0 ||
            sample_blocks(a->q.prompt.n, a->q.tokens_max) > r->blocks_free)
            return 0;
        int rc = start_sample(r, r->first, slot, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static bool should_prefill(const struct roll *r)
{
    if (r->first == r->n_requests || free_slot(r) < 0)
        return false;
    const struct active *a = &r->request[r->first];
    return a->handle < 0 &&
           prompt_blocks(&a->q) + sample_blocks(a->q.prompt.n, a->q.tokens_max) <= r->blocks_free;
}

bool roll_begin(struct roll *r)
{
    ASSERT(r->phase == IDLE);
    if (should_prefill(r)) {
        struct active *a = &r->request[r->first];
        a->blocks = prompt_blocks(&a->q);
        r->blocks_free -= a->blocks;
        r->prefill = (struct device_prefill){.prompt = a->q.prompt};
        r->phase = PREFILL;
        device_begin_prefill(r->conf.device, &r->prefill);
        return true;
    }
    if (r->n_busy == 0)
        return false;
    r->decode = (struct device_decode){.steps = r->conf.dispatch_steps,
                                       .return_on_free = r->first < r->n_requests,
                                       .temperature = r->conf.temperature,
                                       .key = r->conf.key,
                                       .stop = r->conf.stop,
                                       .n_stop = r->conf.n_stop,
                                       .out = r->decode.out};
    r->phase = DECODE;
    device_begin_decode(r->conf.device, &r->decode);
    return true;
}

static void end_sample(struct roll *r, struct running *s, enum device_stop stop)
{
    struct active *a = &r->request[s->request];
    if (r->done_first == r->n_done)
        r->done_first = r->n_done = 0;
    mem_grow(&r->done, &r->done_cap, (size_t)r->n_done + 1, sizeof *r->done);
    r->done[r->n_done++] =
        (struct roll_done){.tag = a->q.tag, .sample = s->sample, .n = s->n, .stop = stop};
    r->blocks_free += s->blocks;
    if (--a->unfinished == 0)
        r->blocks_free += a->blocks;
    s->busy = false;
    r->n_busy--;
}

static void take_token(struct roll *r, const struct device_emitted *t)
{
    struct running *s = &r->slot[t->slot];
    const struct roll_request *q = &r->request[s->request].q;
    size_t at = (size_t)(s->sample - q->sample_lo) * (size_t)q->tokens_max + (size_t)s->n++;
    ASSERT(s->busy && s->n <= q->tokens_max);
    q->token[at] = t->token;
    q->logprob[at] = t->logprob;
    if (r->conf.on_token)
        r->conf.on_token(r->conf.ctx, q->tag, s->sample, t->token, t->logprob);
    if (t->stop != DEVICE_RUNNING)
        end_sample(r, s, t->stop);
}

int roll_finish(struct roll *r, struct err *e)
{
    enum phase was = r->phase;
    int rc = device_finish(r->conf.device, e);
    r->phase = IDLE;
    if (rc < 0)
        return rc;
    if (was == PREFILL)
        r->request[r->first].handle = r->prefill.handle;
    for (int i = 0; was == DECODE && i < r->decode.n_out; i++)
        take_token(r, &r->decode.out[i]);
    return fill_slots(r, e);
}

bool roll_next(struct roll *r, struct roll_done *done)
{
    if (r->done_first == r->n_done)
        return false;
    *done = r->done[r->done_first++];
    return true;
}
