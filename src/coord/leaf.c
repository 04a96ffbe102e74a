/* Leaves: the step's groups in fixed sets, passed through the devices that own them, all devices at
 * once, and the update that follows.
 */
#include "coord/coord.h"

#include "coord/coord_int.h"

#include "base/exact.h"

#include <stdlib.h>
#include <string.h>

static int by_identity(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    if (x->draw.epoch != y->draw.epoch)
        return x->draw.epoch < y->draw.epoch ? -1 : 1;
    return x->draw.index < y->draw.index ? -1 : x->draw.index > y->draw.index;
}

void coord_leaves(struct run *r)
{
    for (int i = 0; i < r->leaves; i++) {
        struct leaf *l = &r->leaf[i];
        l->lo = (int)((int64_t)r->n_groups * i / r->leaves);
        l->hi = (int)((int64_t)r->n_groups * (i + 1) / r->leaves);
        qsort(r->group + l->lo, (size_t)(l->hi - l->lo), sizeof *r->group, by_identity);
    }
}

void coord_leaf_tokens(struct run *r)
{
    size_t at = 0;
    for (int i = 0; i < r->leaves; i++) {
        struct leaf *l = &r->leaf[i];
        float *memory = r->tokens_of + LEAF_FLOATS * at;
        l->group = r->groups_of + l->lo;
        l->n_tokens = 0;
        for (int k = l->lo; k < l->hi; k++) {
            struct group *g = &r->group[k];
            r->groups_of[k] = (struct device_group){.prompt = {g->prompt.id, (int)g->prompt.n},
                                                    .sample = g->completion,
                                                    .n_samples = g->S};
            for (int s = 0; s < g->S; s++)
                l->n_tokens += (size_t)g->sample[s].n;
        }
        l->coef = memory;
        l->logprob = memory + l->n_tokens;
        l->ref = memory + 2 * l->n_tokens;
        l->entropy = memory + 3 * l->n_tokens;
        at += l->n_tokens;
    }
}

/* ---- a pass of all leaves through their devices ---- */

enum pass { PASS_REFERENCE, PASS_TRAIN };

static int start_leaf(struct run *r, enum pass pass, int d, int leaf, struct err *e)
{
    const struct leaf *l = &r->leaf[leaf];
    bool trains = pass == PASS_TRAIN;
    struct train_leaf t = {.group = l->group,
                           .n_groups = l->hi - l->lo,
                           .coef = trains ? l->coef : NULL,
                           .logprob = trains ? l->logprob : l->ref,
                           .entropy = trains ? l->entropy : NULL};
    int buffer = -1, rc = trains ? train_tree_leaf(&r->tree[d], leaf, &buffer, e) : 0;
    if (rc == 0)
        train_start(&r->lane[d], r->coord.device[d], r->coord.limits,
                    trains ? DEVICE_POLICY : DEVICE_REFERENCE, r->temperature, &t, buffer);
    return rc;
}

/* Leaves of a device that are not started. */
struct rest {
    int leaf, hi;
};

/* Moves device d on: the next micro-batch of its leaf, or its next leaf. */
static int begin_next(struct run *r, enum pass pass, int d, struct rest *rest, bool *busy,
                      struct err *e)
{
    int rc = 0;
    while (!(*busy = train_begin(&r->lane[d]))) {
        if (pass == PASS_TRAIN)
            TRY(train_tree_fold(&r->tree[d], e));
        if (rest->leaf == rest->hi)
            break;
        TRY(start_leaf(r, pass, d, rest->leaf++, e));
    }
fail:
    return rc;
}

static int pass_leaves(struct run *r, enum pass pass, struct err *e)
{
    int rc = 0, n = r->coord.n_devices;
    struct rest rest[COORD_DEVICES_MAX];
    bool busy[COORD_DEVICES_MAX];
    for (int d = 0; d < n; d++) {
        rest[d] =
            (struct rest){train_first_leaf(r->leaves, d, n), train_first_leaf(r->leaves, d + 1, n)};
        TRY(start_leaf(r, pass, d, rest[d].leaf++, e));
    }
    for (bool any = true; any && rc == 0;) {
        any = false;
        for (int d = 0; d < n; d++) {
            busy[d] = false;
            if (rc == 0)
                rc = begin_next(r, pass, d, &rest[d], &busy[d], e);
            any |= busy[d];
        }
        for (int d = 0; d < n; d++) { // whatever was begun is finished, also after an error
            int here = busy[d] ? train_finish(&r->lane[d], rc < 0 ? NULL : e) : 0;
            rc = rc < 0 ? rc : here;
        }
    }
fail:
    return rc;
}

int coord_reference(struct run *r, struct err *e)
{
    return pass_leaves(r, PASS_REFERENCE, e);
}

int coord_backward(struct run *r, struct err *e)
{
    int rc = pass_leaves(r, PASS_TRAIN, e);
    for (int i = 0; i < r->leaves && rc == 0; i++)
        telem_count(r->telem, TELEM_TRAIN_TOKENS, r->leaf[i].n_tokens);
    return rc;
}

int coord_apply(struct run *r, uint64_t denominator, struct err *e)
{
    const struct conf *c = r->conf;
    double t = (double)r->step + 1;
    r->learning_rate = c->learning_rate * train_schedule_factor(&r->schedule, (uint64_t)r->step);
    r->update = (struct train_update){.denominator = (double)denominator,
                                      .max_grad_norm = c->max_grad_norm,
                                      .adamw = {.lr = (float)r->learning_rate,
                                                .beta1 = (float)c->adam_beta1,
                                                .beta2 = (float)c->adam_beta2,
                                                .eps = (float)c->adam_epsilon,
                                                .decay = (float)c->weight_decay,
                                                .bias1 = (float)(1 - exact_pow(c->adam_beta1, t)),
                                                .bias2 = (float)(1 - exact_pow(c->adam_beta2, t))}};
    return train_apply(r->tree, r->coord.n_devices, &r->update, e);
}
