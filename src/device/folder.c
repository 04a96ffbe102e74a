/* Weights between a Hugging Face folder and any device, by slices.
 */
#include "device/device.h"

#include "base/rng.h"

#include <string.h>

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

/* Gives masters with an empty low half a random one: uniform in [-0x7fff, 0x7fff] units of the
   last place, so that they still round to the same bf16. Zeros and subnormals stay as they are. A
   block of random numbers serves eight elements of the flat space. */
static void spread(uint64_t key, size_t lo, size_t n, float *data)
{
    uint32_t word[4];
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        uint64_t block = (uint64_t)(lo + i) / 8, at = (uint64_t)(lo + i) % 8;
        if (i == 0 || at == 0)
            rng_block(key, (uint32_t)block, (uint32_t)(block >> 32), 0, 0, word);
        uint32_t half = word[at / 2] >> (at % 2 ? 16 : 0) & 0xffffu;
        memcpy(&bits, &data[i], sizeof bits);
        if ((bits & 0xffffu) == 0 && (bits & 0x7f800000u) > 0x00800000u)
            bits += (half * 0xffffu >> 16) - 0x7fffu;
        memcpy(&data[i], &bits, sizeof bits);
    }
}

static int put_masters(void *ctx, size_t lo, size_t n, const float *data, struct err *e)
{
    enum { PIECE = 4096 };
    const struct traffic *t = ctx;
    float piece[PIECE];
    for (size_t at = 0; at < n; at += PIECE) {
        size_t m = MIN((size_t)PIECE, n - at);
        struct device_floats f = {
            .state = DEVICE_MASTER, .lo = lo + at, .hi = lo + at + m, .data = piece};
        memcpy(piece, data + at, m * sizeof *piece);
        if (t->d->conf.master_key != 0)
            spread(t->d->conf.master_key, lo + at, m, piece);
        int rc = device_state_write(t->d, &f, e);
        if (rc < 0)
            return rc;
    }
    return 0;
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
