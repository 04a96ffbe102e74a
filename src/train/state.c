/* Masters and moments on disk: one safetensors file per owner, each a slice with its global
 * offsets, so that any number of devices can read what any other number wrote.
 */
#include "train/train.h"

#include "base/file.h"
#include "base/str.h"
#include "tensor/tensor.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STATES = 3, PIECE = 1 << 20 };
static const char *const STATE_NAME[STATES] = {"master", "exp_avg", "exp_avg_sq"};

struct fill {
    struct device *device;
    enum device_state state;
    size_t offset;
};

static int check_state(const struct device_floats *s, const struct device *d, struct err *e)
{
    static const char *const NOUN[STATES] = {"weight", "first moment", "second moment"};
    static const float BF16_MAX = 0x1.FEp127F; // a larger master rounds to an infinite weight
    float limit = s->state == DEVICE_MASTER ? BF16_MAX : FLT_MAX;
    for (size_t i = s->lo; i < s->hi; i++) {
        char name[TRAIN_NAME];
        if (fabsf(s->data[i - s->lo]) <= limit)
            continue;
        train_element_name(d, i, name);
        return err_set(e, ERR_NUMERIC, "the %s is not finite at %s", NOUN[s->state], name);
    }
    return 0;
}

static int fill_state(void *ctx, uint64_t lo, uint64_t hi, void *out, struct err *e)
{
    const struct fill *f = ctx;
    struct device_floats s = {
        .state = f->state, .lo = f->offset + lo, .hi = f->offset + hi, .data = out};
    int rc = device_state_read(f->device, &s, e);
    return rc < 0 ? rc : check_state(&s, f->device, e);
}

static char *state_path(const char *dir, int i, int n)
{
    char name[64];
    snprintf(name, sizeof name, "optimizer-%05d-of-%05d.safetensors", i + 1, n);
    return file_join(dir, name);
}

static int save_slice(struct device *d, const char *path, size_t lo, size_t hi, struct err *e)
{
    struct fill fill[STATES];
    struct tensor_source source[STATES];
    char text[3][24];
    struct tensor_meta meta[] = {{"lo", text[0]}, {"hi", text[1]}, {"count", text[2]}};
    snprintf(text[0], sizeof text[0], "%zu", lo);
    snprintf(text[1], sizeof text[1], "%zu", hi);
    snprintf(text[2], sizeof text[2], "%zu", d->n_elements);
    for (int s = 0; s < STATES; s++) {
        fill[s] = (struct fill){.device = d, .state = (enum device_state)s, .offset = lo};
        source[s] = (struct tensor_source){.name = STATE_NAME[s],
                                           .dtype = TENSOR_F32,
                                           .n_dims = 1,
                                           .shape = {hi - lo},
                                           .fill = fill_state,
                                           .ctx = &fill[s]};
    }
    return tensor_write(path, source, STATES, meta, ARRAY_LEN(meta), e);
}

int train_state_save(struct device *const *device, int n, const char *dir, struct err *e)
{
    for (int i = 0; i < n; i++) {
        size_t lo, hi;
        char *path = state_path(dir, i, n);
        train_owned(device[i]->n_elements, i, n, &lo, &hi);
        int rc = save_slice(device[i], path, lo, hi, e);
        mem_free(path);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- reading ---- */

static int read_offset(const struct tensor_set *set, const char *path, const char *key, size_t *out,
                       struct err *e)
{
    const char *text = tensor_metadata(set, key);
    int64_t value;
    if (!text || !str_to_int(text, &value) || value < 0)
        return err_set(e, ERR_FORMAT,
                       "%s: __metadata__ has no offset '%s'; expected a file that LoCo wrote", path,
                       key);
    *out = (size_t)value;
    return 0;
}

static int load_tensor(struct device *const *device, int n, const struct tensor *t,
                       enum device_state state, size_t offset, float *piece, struct err *e)
{
    int rc = 0;
    for (uint64_t lo = 0; lo < t->n_elems; lo += PIECE) {
        uint64_t hi = MIN(lo + PIECE, t->n_elems);
        tensor_to_float(t, lo, hi, piece);
        for (int d = 0; d < n; d++) {
            struct device_floats s = {
                .state = state, .lo = offset + lo, .hi = offset + hi, .data = piece};
            TRY(device_state_write(device[d], &s, e));
        }
    }
fail:
    return rc;
}

/* Reads one file whose slice must start at *at; moves *at to its end. */
static int load_slice(struct device *const *device, int n, const char *path, size_t *at,
                      float *piece, struct err *e)
{
    int rc = 0;
    size_t lo = 0, hi = 0, count = 0;
    struct tensor_set *set = NULL;
    TRY(tensor_open(&set, path, e));
    TRY(read_offset(set, path, "lo", &lo, e));
    TRY(read_offset(set, path, "hi", &hi, e));
    TRY(read_offset(set, path, "count", &count, e));
    if (lo != *at || hi < lo || count != device[0]->n_elements || hi > count)
        TRY(err_set(e, ERR_STATE,
                    "%s: holds elements [%zu, %zu) of %zu; expected to go on from %zu of %zu", path,
                    lo, hi, count, *at, device[0]->n_elements));
    for (int s = 0; s < STATES; s++) {
        const struct tensor *t;
        TRY(tensor_get(set, STATE_NAME[s], TENSOR_ONLY(TENSOR_F32), 1, (uint64_t[]){hi - lo}, &t,
                       e));
        TRY(tensor_finite(set, t, e));
        TRY(load_tensor(device, n, t, (enum device_state)s, lo, piece, e));
    }
    *at = hi;
fail:
    tensor_close(set);
    return rc;
}

int train_state_load(struct device *const *device, int n, const char *dir, struct err *e)
{
    int rc = 0;
    size_t at = 0, n_names = 0;
    char **name = NULL;
    float *piece = mem_alloc(PIECE * sizeof *piece);
    TRY(file_list(dir, &name, &n_names, e));
    for (size_t i = 0; i < n_names; i++) { // sorted, so slices ascend
        if (!str_starts(name[i], "optimizer-") || !str_ends(name[i], ".safetensors"))
            continue;
        char *path = file_join(dir, name[i]);
        rc = load_slice(device, n, path, &at, piece, e);
        mem_free(path);
        if (rc < 0)
            goto fail;
    }
    if (at != device[0]->n_elements)
        rc = err_set(e, ERR_STATE,
                     "%s: optimizer files end at element %zu of %zu; a file is missing", dir, at,
                     device[0]->n_elements);
fail:
    for (size_t i = 0; i < n_names; i++)
        mem_free(name[i]);
    mem_free(name);
    mem_free(piece);
    return rc;
}
