/* The CPU device's rollout: prompts into the KV cache, slots forked from them, tokens drawn.
 */
#include "device/device.h"

#include "device/cpu_int.h"
#include "base/rng.h"

int cpu_prefill(struct cpu *d, struct device_prefill *p, struct err *e)
{
    (void)e;
    int len = p->prompt.n - 1, i = 0;
    while (i < d->device.conf.slots && d->handle[i].used)
        i++;
    ASSERT(i < d->device.conf.slots && p->prompt.n >= 1 && len < d->model.positions);
    struct handle *h = &d->handle[i];
    bool room = kv_reserve(&d->kv, &h->seq, len);
    ASSERT(room); // whoever admits samples counts blocks
    for (int pos = 0; pos < len; pos += d->acts.rows_max) {
        int n = MIN(d->acts.rows_max, len - pos);
        struct model_segment s = {.n = n, .pos = pos, .block = h->seq.block};
        struct model_rows rows = {
            .N = n, .token = p->prompt.token + pos, .n_segments = 1, .segment = &s};
        model_forward(&d->model, &d->set[DEVICE_POLICY], &d->kv, &rows, 0, n, &d->acts);
    }
    h->used = true;
    h->len = len;
    h->last_token = p->prompt.token[len];
    p->handle = i;
    return 0;
}

int cpu_release(struct cpu *d, struct device_prefill *p, struct err *e)
{
    (void)e;
    struct handle *h = &d->handle[p->handle];
    ASSERT(h->used);
    kv_drop(&d->kv, &h->seq);
    h->used = false;
    return 0;
}

int cpu_fork(struct cpu *d, struct device_fork *f, struct err *e)
{
    (void)e;
    const struct handle *h = &d->handle[f->handle];
    struct slot *s = &d->slot[f->slot];
    ASSERT(h->used && !s->busy && f->tokens_max >= 1);
    bool room = kv_fork(&d->kv, &h->seq, h->len, &s->seq);
    ASSERT(room);
    s->busy = true;
    s->token = h->last_token;
    s->pos = h->len;
    s->epoch = f->epoch;
    s->index = f->index;
    s->sample = f->sample;
    s->drawn = 0;
    s->tokens_max = f->tokens_max;
    return 0;
}

static void free_slot(struct cpu *d, struct slot *s)
{
    kv_drop(&d->kv, &s->seq);
    s->busy = false;
}

int cpu_cancel(struct cpu *d, struct device_fork *f, struct err *e)
{
    (void)e;
    free_slot(d, &d->slot[f->slot]);
    return 0;
}

/* The busy slots as rows of one position each. */
static int gather(struct cpu *d, struct model_rows *rows)
{
    int n = 0;
    for (int i = 0; i < d->device.conf.slots; i++) {
        struct slot *s = &d->slot[i];
        if (!s->busy)
            continue;
        bool room = kv_reserve(&d->kv, &s->seq, s->pos + 1);
        ASSERT(room);
        d->row_slot[n] = i;
        d->row_token[n] = s->token;
        d->row_segment[n] =
            (struct model_segment){.row = n, .n = 1, .pos = s->pos, .block = s->seq.block};
        n++;
    }
    *rows = (struct model_rows){
        .N = n, .token = d->row_token, .n_segments = n, .segment = d->row_segment};
    return n;
}

struct draw_job {
    struct cpu *d;
    const struct device_decode *a;
    int n;
    float inv_temperature;
};

static void draw_share(void *ctx, int ith, int nth)
{
    const struct draw_job *j = ctx;
    struct cpu *d = j->d;
    size_t lo, hi;
    pool_split((size_t)j->n, 1, ith, nth, &lo, &hi);
    for (int row = (int)lo; row < (int)hi; row++) {
        const struct slot *s = &d->slot[d->row_slot[row]];
        double u = rng_uniform(j->a->key, (uint32_t)s->drawn, s->sample, s->index, s->epoch);
        d->row_drawn[row] = model_draw(&d->model, &d->set[DEVICE_POLICY], &d->acts, row, u,
                                       j->inv_temperature, j->a->temperature == 0, ith);
    }
}

static bool is_stop(const struct device_decode *a, int token)
{
    for (int i = 0; i < a->n_stop; i++)
        if (a->stop[i] == token)
            return true;
    return false;
}

/* Moves a slot on by its drawn token. True when the sample ended. */
static bool advance(struct cpu *d, struct device_decode *a, int row)
{
    struct slot *s = &d->slot[d->row_slot[row]];
    struct drawn drawn = d->row_drawn[row];
    enum device_stop stop = DEVICE_RUNNING;

    s->drawn++;
    s->pos++;
    s->token = drawn.token;
    if (is_stop(a, drawn.token))
        stop = DEVICE_STOPPED;
    else if (s->drawn == s->tokens_max)
        stop = DEVICE_LENGTH;
    a->out[a->n_out++] = (struct device_emitted){
        .slot = d->row_slot[row], .token = drawn.token, .logprob = drawn.logprob, .stop = stop};
    if (stop != DEVICE_RUNNING)
        free_slot(d, s);
    return stop != DEVICE_RUNNING;
}

int cpu_decode(struct cpu *d, struct device_decode *a, struct err *e)
{
    (void)e;
    struct draw_job job = {.d = d, .a = a};
    job.inv_temperature = a->temperature == 0 ? 1 : 1 / a->temperature;
    a->n_out = 0;
    for (int step = 0; step < a->steps; step++) {
        struct model_rows rows;
        bool freed = false;
        job.n = gather(d, &rows);
        if (job.n == 0)
            break;
        model_forward(&d->model, &d->set[DEVICE_POLICY], &d->kv, &rows, 0, 0, &d->acts);
        model_head(&d->model, &d->set[DEVICE_POLICY], &d->acts, 0, job.n, NULL,
                   job.inv_temperature);
        pool_run(d->pool, draw_share, &job);
        for (int row = 0; row < job.n; row++)
            freed |= advance(d, a, row);
        if (freed && a->return_on_free)
            break;
    }
    return 0;
}
