/* Weights between a Hugging Face folder and any device, by slices.
 */
#include "device/device.h"

struct traffic {
    struct device *d;
    enum device_set set;
};

static int put_weights(void *ctx, size_t lo, size_t n, const bf16 *data, struct err *e)
{
    const struct traffic *t = ctx;
    struct device_weights w = {.set = t->set, .lo = lo, .hi = lo + n, .data = (bf16 *)data};
    return device_weights_write(t->d, &w, e);
}

static int put_masters(void *ctx, size_t lo, size_t n, const float *data, struct err *e)
{
    const struct traffic *t = ctx;
    struct device_floats f = {
        .state = DEVICE_MASTER, .lo = lo, .hi = lo + n, .data = (float *)data};
    return device_state_write(t->d, &f, e);
}

static int get_weights(void *ctx, size_t lo, size_t n, bf16 *data, struct err *e)
{
    const struct traffic *t = ctx;
    struct device_weights w = {.set = t->set, .lo = lo, .hi = lo + n, .data = data};
    return device_weights_read(t->d, &w, e);
}

int device_load(struct device *d, enum device_set set, const char *dir, struct err *e)
{
    int rc = 0;
    struct traffic t = {.d = d, .set = set};
    struct model_sink sink = {.ctx = &t, .weights = put_weights};
    struct device_weights pack = {.set = set};
    struct model_params params;

    if (d->conf.trainable && set == DEVICE_POLICY)
        sink.masters = put_masters;
    model_params_init(&params, &d->conf.model);
    TRY(model_load(&params, dir, &sink, e));
    TRY(device_weights_pack(d, &pack, e));
fail:
    model_params_release(&params);
    return rc;
}

int device_save(struct device *d, const char *like, const char *dir, struct err *e)
{
    struct traffic t = {.d = d, .set = DEVICE_POLICY};
    struct model_source source = {.ctx = &t, .weights = get_weights};
    struct model_params params;
    model_params_init(&params, &d->conf.model);
    int rc = model_save(&params, like, dir, &source, e);
    model_params_release(&params);
    return rc;
}
