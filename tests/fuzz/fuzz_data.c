/* Fuzz target: a byte of options, then any bytes as JSONL. Each row that is accepted must read
 * again to a prompt and an answer, and an epoch must draw it once.
 */
#include "base/mem.h"
#include "data/data_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_epoch(const struct data *d)
{
    struct data_cursor cursor = {0};
    struct data_row row = {0};
    bool *drawn = mem_calloc(d->n, sizeof *drawn);
    for (uint64_t i = 0; i < d->n; i++) {
        struct err e = {0};
        struct data_draw draw = data_next(d, &cursor);
        ASSERT(draw.epoch == 0 && !drawn[draw.slot]);
        drawn[draw.slot] = true;
        int rc = data_read(d, draw.slot, &row, &e);
        ASSERT(rc == 0 && row.index == draw.index && row.prompt.len > 0);
        ASSERT((row.answer.len > 0) == (d->fields.want != DATA_PROMPTS));
    }
    ASSERT(cursor.epoch == 1 && cursor.position == 0);
    data_row_release(&row);
    mem_free(drawn);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return 0;
    struct data d;
    struct err e = {0};
    struct data_options options = {.want = bytes[0] % 3,
                                   .gold_rule = bytes[0] / 4 % 4,
                                   .shuffle = bytes[0] & 128,
                                   .seed = bytes[0]};
    data_init(&d, "fuzz.jsonl", &options);
    int rc = data_index(&d, (const char *)bytes + 1, n - 1, &options, &e);
    ASSERT((rc < 0) == (e.code != 0));
    if (rc == 0)
        read_epoch(&d);
    data_release(&d);
    return 0;
}
