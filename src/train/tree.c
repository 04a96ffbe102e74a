/* The fixed binary tree over leaves: on each device a stack of subtree roots, and across devices the
 * fold of all roots, slice by slice, with the update at its top. DESIGN: results do not depend on how
 * leaves are spread.
 */
#include "train/train.h"

#include <math.h>
#include <stdio.h>

static int free_buffer(const struct train_tree *t)
{
    for (int b = 0; b < t->device->conf.gradients; b++) {
        bool used = false;
        for (int i = 0; i < t->n; i++)
            used |= t->node[i].buffer == b;
        if (!used)
            return b;
    }
    ASSERT(t->n < t->device->conf.gradients); // train_buffers counted them
    return -1;
}

int train_tree_leaf(struct train_tree *t, int leaf, int *buffer, struct err *e)
{
    ASSERT(t->n < TRAIN_ROOTS_MAX);
    *buffer = free_buffer(t);
    t->node[t->n++] = (struct train_node){.level = 0, .index = leaf, .buffer = *buffer};
    struct device_slice all = {.buffer = *buffer, .hi = t->device->n_elements};
    return device_grad_zero(t->device, &all, e);
}

static bool are_siblings(const struct train_node *left, const struct train_node *right)
{
    return left->level == right->level && left->index % 2 == 0 && right->index == left->index + 1;
}

static struct train_node parent(const struct train_node *left)
{
    return (struct train_node){
        .level = left->level + 1, .index = left->index / 2, .buffer = left->buffer};
}

int train_tree_fold(struct train_tree *t, struct err *e)
{
    while (t->n >= 2 && are_siblings(&t->node[t->n - 2], &t->node[t->n - 1])) {
        struct train_node *left = &t->node[t->n - 2];
        struct device_fold f = {
            .into = left->buffer, .from = t->node[t->n - 1].buffer, .hi = t->device->n_elements};
        int rc = device_grad_fold(t->device, &f, e);
        if (rc < 0)
            return rc;
        *left = parent(left);
        t->n--;
    }
    return 0;
}

/* ---- how many buffers that takes ---- */

void train_leaves(int leaves, int i, int n, int *lo, int *hi)
{
    *lo = (int)((int64_t)leaves * i / n);
    *hi = (int)((int64_t)leaves * (i + 1) / n);
}

/* Pushes a root and folds. A node's buffer is here whether it counts: 1 when it is a new one. */
static void push_counted(struct train_tree *t, struct train_node node, int *peak)
{
    int counted = 0;
    ASSERT(t->n < TRAIN_ROOTS_MAX);
    t->node[t->n++] = node;
    for (int k = 0; k < t->n; k++)
        counted += t->node[k].buffer;
    *peak = MAX(*peak, counted);
    for (; t->n >= 2 && are_siblings(&t->node[t->n - 2], &t->node[t->n - 1]); t->n--)
        t->node[t->n - 2] = parent(&t->node[t->n - 2]);
}

int train_buffers(int leaves, int i, int n)
{
    struct train_tree all = {0};
    int making = 0, folding = 0, own = 0;
    for (int d = 0; d < n; d++) {
        struct train_tree roots = {0};
        int lo, hi, peak = 0;
        train_leaves(leaves, d, n, &lo, &hi);
        for (int leaf = lo; leaf < hi; leaf++)
            push_counted(&roots, (struct train_node){.index = leaf, .buffer = 1}, &peak);
        if (d == i) {
            making = peak;
            own = roots.n;
        }
        for (int k = 0; k < roots.n; k++) {
            struct train_node node = roots.node[k];
            node.buffer = d != i; // its own roots stay where they are
            push_counted(&all, node, &folding);
        }
    }
    return MAX(making, own + folding);
}

void train_owned(size_t n_elements, int i, int n, size_t *lo, size_t *hi)
{
    pool_split(n_elements, SUMSQ_BLOCK, i, n, lo, hi);
}

enum { MOVE_PIECE = 1 << 20 }; // elements between devices at a time

/* Copies [lo, hi) of a buffer on one device to a buffer on another. */
static int move_gradient(struct device *from, int source, struct device *to, int target, size_t lo,
                         size_t hi, float *piece, struct err *e)
{
    int rc = 0;
    for (size_t at = lo; at < hi; at += MOVE_PIECE) {
        size_t limit = MIN(at + MOVE_PIECE, hi);
        struct device_slice s = {.buffer = source, .lo = at, .hi = limit, .data = piece};
        TRY(device_grad_read(from, &s, e));
        s.buffer = target;
        TRY(device_grad_write(to, &s, e));
    }
fail:
    return rc;
}

/* All devices' roots of slice [lo, hi), folded on device `owner`; *buffer holds the sum. */
static int gather_slice(const struct train_tree *tree, int n, int owner, size_t lo, size_t hi,
                        float *piece, int *buffer, struct err *e)
{
    int rc = 0;
    struct train_tree work = {.device = tree[owner].device};
    for (int d = 0; d < n; d++) {
        for (int i = 0; i < tree[d].n; i++) {
            struct train_node node = tree[d].node[i];
            ASSERT(work.n < TRAIN_ROOTS_MAX);
            if (d != owner) {
                struct train_tree used = tree[owner]; // its own roots stay until their turn
                for (int k = 0; k < work.n; k++)
                    used.node[used.n++] = work.node[k];
                node.buffer = free_buffer(&used);
                TRY(move_gradient(tree[d].device, tree[d].node[i].buffer, work.device, node.buffer,
                                  lo, hi, piece, e));
            }
            work.node[work.n++] = node;
            while (work.n >= 2 && are_siblings(&work.node[work.n - 2], &work.node[work.n - 1])) {
                struct train_node *left = &work.node[work.n - 2];
                struct device_fold f = {
                    .into = left->buffer, .from = work.node[work.n - 1].buffer, .lo = lo, .hi = hi};
                TRY(device_grad_fold(work.device, &f, e));
                *left = parent(left);
                work.n--;
            }
        }
    }
    ASSERT(work.n == 1);
    *buffer = work.node[0].buffer;
fail:
    return rc;
}

void train_element_name(const struct device *d, size_t element, char name[TRAIN_NAME])
{
    struct model_params p;
    model_params_init(&p, &d->conf.model);
    const struct model_param *q = model_param_at(&p, element);
    snprintf(name, TRAIN_NAME, "%s, element %zu", q->name, element - q->offset);
    model_params_release(&p);
}

/* Sums of squares of all blocks, in order; names the first element that is not finite. */
static int square_norm(const struct train_tree *tree, int n, const int *buffer, double *sum,
                       struct err *e)
{
    int rc = 0;
    size_t count = tree[0].device->n_elements, blocks = (count + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;
    double *block = mem_calloc(blocks, sizeof *block);
    size_t bad = SIZE_MAX;
    *sum = 0;
    for (int d = 0; d < n; d++) {
        struct device_sumsq s = {.buffer = buffer[d]};
        train_owned(count, d, n, &s.lo, &s.hi);
        s.block = block + s.lo / SUMSQ_BLOCK;
        TRY(device_sumsq(tree[d].device, &s, e));
        bad = MIN(bad, s.bad);
    }
    for (size_t i = 0; i < blocks; i++)
        *sum += block[i];
    if (bad != SIZE_MAX) {
        char name[TRAIN_NAME];
        train_element_name(tree[0].device, bad, name);
        TRY(err_set(e, ERR_NUMERIC, "the gradient is not finite at %s", name));
    }
fail:
    mem_free(block);
    return rc;
}

/* New weights of every owner to every other device; then all pack. */
static int spread_weights(const struct train_tree *tree, int n, bf16 *piece, struct err *e)
{
    int rc = 0;
    for (int d = 0; d < n; d++) {
        size_t lo, hi;
        train_owned(tree[0].device->n_elements, d, n, &lo, &hi);
        for (size_t at = lo; at < hi && n > 1; at += MOVE_PIECE) {
            struct device_weights w = {.lo = at, .hi = MIN(at + MOVE_PIECE, hi), .data = piece};
            TRY(device_weights_read(tree[d].device, &w, e));
            for (int other = 0; other < n; other++)
                if (other != d)
                    TRY(device_weights_write(tree[other].device, &w, e));
        }
    }
    for (int d = 0; d < n; d++)
        TRY(device_weights_pack(tree[d].device, &(struct device_weights){0}, e));
fail:
    return rc;
}

int train_apply(struct train_tree *tree, int n, struct train_update *u, struct err *e)
{
    int rc = 0, buffer[64];
    size_t count = tree[0].device->n_elements;
    double sum = 0;
    float *piece = mem_alloc(MOVE_PIECE * sizeof *piece);

    ASSERT(n <= (int)ARRAY_LEN(buffer));
    u->changed = 0;
    for (int d = 0; d < n; d++) {
        size_t lo, hi;
        train_owned(count, d, n, &lo, &hi);
        TRY(gather_slice(tree, n, d, lo, hi, piece, &buffer[d], e));
    }
    TRY(square_norm(tree, n, buffer, &sum, e));
    u->grad_norm = sqrt(sum) / u->denominator;
    double clip = 1;
    if (u->max_grad_norm > 0 && u->grad_norm > u->max_grad_norm)
        clip = u->max_grad_norm / (u->grad_norm + 1e-6); // torch.nn.utils.clip_grad_norm_
    u->adamw.factor = (float)(clip / u->denominator);
    for (int d = 0; d < n; d++) {
        struct device_apply a = {.buffer = buffer[d], .adamw = u->adamw};
        train_owned(count, d, n, &a.lo, &a.hi);
        TRY(device_apply(tree[d].device, &a, e));
        u->changed += a.changed;
    }
    TRY(spread_weights(tree, n, (bf16 *)piece, e));
fail:
    for (int d = 0; d < n; d++)
        tree[d].n = 0;
    mem_free(piece);
    return rc;
}
