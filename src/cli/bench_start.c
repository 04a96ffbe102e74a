/* From nothing to the first sampled token of a model folder, as `loco generate` goes there. Files
 * come from the system's cache: a disk is not what is measured.
 */
#include "cli/cli.h"

#include "cli/bench_int.h"
#include "device/device.h"
#include "telem/telem.h"
#include "text/text.h"

#include <math.h>

static const char PROMPT[] = "What is 7 + 5?";

static int sample_one(struct device *d, const struct text_ids *prompt, struct err *e)
{
    int rc = 0;
    struct device_emitted token;
    struct device_prefill p = {.prompt = {.token = prompt->id, .n = (int)prompt->n}};
    struct device_decode one = {.steps = 1, .temperature = 1, .out = &token};
    TRY(device_prefill(d, &p, e));
    TRY(device_fork(d, &(struct device_fork){.handle = p.handle, .tokens_max = 1}, e));
    TRY(device_decode(d, &one, e));
fail:
    return rc;
}

static int start(const struct bench *b, const char *model, struct err *e)
{
    enum { POSITIONS = 512 };
    int rc = 0;
    struct text *text = NULL;
    struct text_ids prompt = {0};
    struct device *device = NULL;
    struct device_conf d = {.kern = b->kern,
                            .threads = b->threads,
                            .slots = 1,
                            .positions = POSITIONS,
                            .rows = POSITIONS,
                            .segments = 1,
                            .kv_blocks = 2 * kv_blocks(POSITIONS)};
    TRY(model_config_load(&d.model, model, e));
    TRY(text_open(&text, model, e));
    text_encode(text, PROMPT, sizeof PROMPT - 1, 0, &prompt);
    TRY(cpu_open(&device, &d, e));
    TRY(device_load(device, DEVICE_POLICY, model, e));
    TRY(sample_one(device, &prompt, e));
fail:
    device_close(device);
    text_ids_release(&prompt);
    text_close(text);
    return rc;
}

int bench_start(const struct bench *b, const char *model, json_t *o, struct err *e)
{
    int rc = 0;
    double best_s = INFINITY;
    for (int i = 0; i < BENCH_SWEEPS; i++) {
        uint64_t begin = telem_now_ns();
        TRY(start(b, model, e));
        best_s = fmin(best_s, (double)(telem_now_ns() - begin) * 1e-9);
    }
    bench_put(o, "first_token_ms", best_s * 1e3);
fail:
    return rc;
}
