/* The fixed binary tree over leaves: on each device a stack of subtree roots, and across devices
 * the fold of all roots, slice by slice, with the update at its top. DESIGN: results do not depend
 * on how leaves are spread.
 */
#include "train/train.h"

#include <math.h>
#include <stdio.h>

/* The lowest buffer that no node of either tree is in; b may be NULL. */
static int free_buffer(const struct train_tree *a, const struct train_tree *b)
{
    for (int buffer = 0;; buffer++) {
        bool used = false;
        for (int i = 0; i < a->n; i++)
            used |= a->node[i].buffer == buffer;
        for (int i = 0; b && i < b->n; i++)
            used |= b->node[i].buffer == buffer;
        if (!used)
            return buffer;
    }
}

static void push(struct train_tree *t, struct train_node node)
{
    ASSERT(t->n < TRAIN_ROOTS_MAX);
    t->node[t->n++] = node;
}

/* When the two topmost nodes are siblings: makes them their parent, in the left one's buffer. */
static bool merge_top(struct train_tree *t, struct device_fold *f)
{
    if (t->n < 2)
        return false;
    struct train_node *left = &t->node[t->n - 2], *right = &t->node[t->n - 1];
    if (left->level != right->level || left->index % 2 != 0 || right->index != left->index + 1)
        return false;
    f->into = left->buffer;
    f->from = right->buffer;
    left->level++;
    left->index /= 2;
    t->n--;
    return true;
}

/* The roots of leaves [lo, hi), made on one device that has all buffers it asks for. */
static struct train_tree plan_roots(int lo, int hi, int *buffers)
{
    struct train_tree t = {0};
    struct device_fold f;
    for (int leaf = lo; leaf < hi; leaf++) {
        push(&t, (struct train_node){.index = leaf, .buffer = free_buffer(&t, NULL)});
        for (int i = 0; i < t.n; i++)
            *buffers = MAX(*buffers, t.node[i].buffer + 1);
        while (merge_top(&t, &f))
            continue;
    }
    return t;
}

int train_buffers(int leaves, int device, int n_devices)
{
    int buffers = 0, elsewhere = 0;
    struct train_tree work = {0};
    struct device_fold f;
    const struct train_tree own =
        plan_roots(train_first_leaf(leaves, device, n_devices),
                   train_first_leaf(leaves, device + 1, n_devices), &buffers);
    for (int d = 0; d < n_devices; d++) { // as gather_slice goes
        const struct train_tree roots =
            plan_roots(train_first_leaf(leaves, d, n_devices),
                       train_first_leaf(leaves, d + 1, n_devices), &elsewhere);
        for (int i = 0; i < roots.n; i++) {
            struct train_node node = roots.node[i];
            if (d != device)
                node.buffer = free_buffer(&own, &work);
            buffers = MAX(buffers, node.buffer + 1);
            push(&work, node);
            while (merge_top(&work, &f))
                continue;
        }
    }
    return buffers;
}

int train_tree_leaf(struct train_tree *t, int leaf, int *buffer, struct err *e)
{
    *buffer = free_buffer(t, NULL);
    ASSERT(*buffer < t->device->conf.gradients); // train_buffers counted them
    push(t, (struct train_node){.index = leaf, .buffer = *buffer});
    struct device_slice all = {.buffer = *buffer, .hi = t->device->n_elements};
    return device_grad_zero(t->device, &all, e);
}

int train_tree_fold(struct train_tree *t, struct err *e)
{
    int rc = 0;
    struct device_fold f = {.hi = t->device->n_elements};
    while (merge_top(t, &f))
        TRY(device_grad_fold(t->device, &f, e));
fail:
    return rc;
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

/* All devices' roots of slice [lo, hi), folded on device `owner`; *buffer holds the sum. The
   owner's own roots stay in their buffers: other owners will ask for other slices of them. */
static int gather_slice(const struct train_tree *tree, int n, int owner, size_t lo, size_t hi,
                        float *piece, int *buffer, struct err *e)
{
    int rc = 0;
    struct device *home = tree[owner].device;
    struct train_tree work = {0};
    struct device_fold f = {.lo = lo, .hi = hi};
    for (int d = 0; d < n; d++) {
        for (int i = 0; i < tree[d].n; i++) {
            struct train_node node = tree[d].node[i];
            if (d != owner) {
                node.buffer = free_buffer(&tree[owner], &work);
                ASSERT(node.buffer < home->conf.gradients); // train_buffers counted them
                TRY(move_gradient(tree[d].device, tree[d].node[i].buffer, home, node.buffer, lo, hi,
                                  piece, e));
            }
            push(&work, node);
            while (merge_top(&work, &f))
                TRY(device_grad_fold(home, &f, e));
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

static double norm(const double *block, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += block[i];
    return sqrt(sum);
}

/* AdamW on every owner's slice, and the norms over all. */
static int apply_slices(const struct train_tree *tree, int n, const int *buffer,
                        struct train_update *u, struct err *e)
{
    int rc = 0;
    size_t count = tree[0].device->n_elements, blocks = (count + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;
    double *master_sq = mem_calloc(blocks, sizeof *master_sq);
    double *move_sq = mem_calloc(blocks, sizeof *move_sq);
    u->changed = 0;
    for (int d = 0; d < n; d++) {
        struct device_apply a = {.buffer = buffer[d], .adamw = u->adamw};
        train_owned(count, d, n, &a.lo, &a.hi);
        a.master_sq = master_sq + a.lo / SUMSQ_BLOCK;
        a.move_sq = move_sq + a.lo / SUMSQ_BLOCK;
        TRY(device_apply(tree[d].device, &a, e));
        u->changed += a.changed;
    }
    u->param_norm = norm(master_sq, blocks);
    u->update_norm = norm(move_sq, blocks);
fail:
    mem_free(master_sq);
    mem_free(move_sq);
    return rc;
}

int train_apply(struct train_tree *tree, int n, struct train_update *u, struct err *e)
{
    int rc = 0, buffer[64];
    size_t count = tree[0].device->n_elements;
    double sum = 0;
    float *piece = mem_alloc(MOVE_PIECE * sizeof *piece);

    ASSERT(n <= (int)ARRAY_LEN(buffer));
    for (int d = 0; d < n; d++) {
        size_t lo, hi;
        train_owned(count, d, n, &lo, &hi);
        TRY(gather_slice(tree, n, d, lo, hi, piece, &buffer[d], e));
    }
    TRY(square_norm(tree, n, buffer, &sum, e));
    u->grad_norm = sqrt(sum) / u->denominator;
    double clip = 1;
    if (u->max_grad_norm > 0) // as torch.nn.utils.clip_grad_norm_
        clip = MIN(1, u->max_grad_norm / (u->grad_norm + 1e-6));
    u->adamw.factor = (float)(clip / u->denominator);
    TRY(apply_slices(tree, n, buffer, u, e));
    TRY(spread_weights(tree, n, (bf16 *)piece, e));
fail:
    for (int d = 0; d < n; d++)
        tree[d].n = 0;
    mem_free(piece);
    return rc;
}
