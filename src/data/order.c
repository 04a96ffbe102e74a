/* The order of draws: a pure function of seed, epoch and position, so a cursor is two numbers. */
#include "data/data_int.h"

#include "base/rng.h"

struct data_draw data_next(const struct data *set, struct data_cursor *cursor)
{
    ASSERT(cursor->position < set->n);
    uint64_t slot = cursor->position;
    if (set->shuffle)
        slot = rng_permute(set->key, cursor->epoch, set->n, slot);
    struct data_draw draw = {.epoch = cursor->epoch, .index = set->line[slot], .slot = slot};
    if (++cursor->position == set->n) {
        cursor->position = 0;
        cursor->epoch++;
    }
    return draw;
}
