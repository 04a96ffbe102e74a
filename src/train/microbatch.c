/* A leaf cut into micro-batches. Whole groups are taken while they fit; a group that does not fit
 * alone is cut between its samples, its prompt kept on the device from part to part.
 */
#include "train/train.h"

/* Each segment costs up to two blocks of cache beyond its rows, so there are as many as samples of
   some thirty tokens need, and some for shorter ones. A prompt of one token counts as a segment. */
struct train_limits train_limits(int row_budget, int prompt_max, int completion_max)
{
    int rows = MAX(row_budget, prompt_max - 1 + completion_max);
    return (struct train_limits){.rows = rows, .segments = MIN(rows + 1, 64 + rows / KV_BLOCK)};
}

void train_start(struct train_run *r, struct device *d, struct train_limits limits,
                 enum device_set set, float temperature, const struct train_leaf *leaf,
                 int gradient)
{
    struct device_group *part = r->part;
    size_t cap = r->part_cap;
    struct train_packing packing = r->packing;
    *r = (struct train_run){.device = d,
                            .limits = limits,
                            .leaf = *leaf,
                            .set = set,
                            .temperature = temperature,
                            .gradient = gradient,
                            .part = part,
                            .part_cap = cap,
                            .packing = packing};
    r->scored = leaf->n_groups == 0;
}

static int prompt_rows(const struct device_group *g)
{
    return g->prompt.n - 1;
}

static int group_rows(const struct device_group *g)
{
    int rows = prompt_rows(g);
    for (int i = 0; i < g->n_samples; i++)
        rows += g->sample[i].n;
    return rows;
}

static void add_part(struct train_run *r, struct device_group g)
{
    struct device_batch *b = &r->batch;
    mem_grow(&r->part, &r->part_cap, (size_t)b->n_groups + 1, sizeof *r->part);
    r->part[b->n_groups++] = g;
    b->group = r->part;
    r->packing.samples += (size_t)g.n_samples;
    for (int i = 0; i < g.n_samples; i++) {
        r->packing.rows += (size_t)g.sample[i].n;
        r->packing.rows_padded += round_up((size_t)g.sample[i].n, GEMM_STEP);
        r->token += (size_t)g.sample[i].n;
    }
    if (b->first) {
        r->packing.rows += (size_t)prompt_rows(&g);
        r->packing.rows_padded += round_up((size_t)prompt_rows(&g), GEMM_STEP);
    }
}

/* Whole groups from r->group on. */
static void take_groups(struct train_run *r)
{
    int rows = 0, segments = 0;
    while (r->group < r->leaf.n_groups) {
        const struct device_group *g = &r->leaf.group[r->group];
        rows += group_rows(g);
        segments += g->n_samples + 1;
        if (rows > r->limits.rows || segments > r->limits.segments)
            return;
        add_part(r, *g);
        r->group++;
    }
}

/* The next samples of a group too large for one micro-batch. Training keeps the prompt on the
   device until its gradient is whole; scoring has none, so every part brings its own. */
static void take_samples(struct train_run *r)
{
    const struct device_group *g = &r->leaf.group[r->group];
    int rows = prompt_rows(g), first = r->sample, segments = 1;
    r->batch.first = first == 0 || r->gradient < 0;
    while (r->sample < g->n_samples) {
        rows += g->sample[r->sample].n;
        segments++;
        if (rows > r->limits.rows || segments > r->limits.segments)
            break;
        r->sample++;
    }
    ASSERT(r->sample > first);
    bool whole = r->sample == g->n_samples;
    r->batch.last = whole || r->gradient < 0;
    add_part(r, (struct device_group){.prompt = g->prompt,
                                      .sample = g->sample + first,
                                      .n_samples = r->sample - first});
    if (whole) {
        r->group++;
        r->sample = 0;
    }
}

bool train_begin(struct train_run *r)
{
    if (r->scored) {
        if (r->ended || r->gradient < 0)
            return false;
        r->ended = true;
        r->closing = (struct device_slice){.buffer = r->gradient};
        device_begin_leaf_end(r->device, &r->closing);
        return true;
    }
    size_t at = r->token;
    r->batch = (struct device_batch){.set = r->set,
                                     .first = true,
                                     .last = true,
                                     .temperature = r->temperature,
                                     .logprob = r->leaf.logprob + at,
                                     .entropy = r->leaf.entropy ? r->leaf.entropy + at : NULL,
                                     .best = r->leaf.best ? r->leaf.best + at : NULL,
                                     .coef = r->leaf.coef ? r->leaf.coef + at : NULL,
                                     .gradient = r->gradient};
    if (r->sample == 0)
        take_groups(r);
    if (r->batch.n_groups == 0)
        take_samples(r);
    r->scored = r->group == r->leaf.n_groups;
    r->packing.batches++;
    if (r->gradient < 0)
        device_begin_score(r->device, &r->batch);
    else
        device_begin_accumulate(r->device, &r->batch);
    return true;
}

int train_finish(struct train_run *r, struct err *e)
{
    return device_finish(r->device, e);
}

int train_all(struct train_run *r, struct err *e)
{
    int rc = 0;
    while (train_begin(r))
        TRY(train_finish(r, e));
fail:
    return rc;
}

void train_run_release(struct train_run *r)
{
    mem_free(r->part);
    *r = (struct train_run){0};
}
