/* Masters of a bf16 folder are spread over the interval that rounds to their weight: so that small
 * updates change weights from the first step on, and nothing else changes.
 */
#include "engine.h"

#include "base/mem.h"
#include "base/rng.h"

/* Masters (n_elements) and weights of a golden model loaded under a key. */
static float *load(uint64_t key, bf16 **weights, size_t *n)
{
    struct err e = {0};
    struct device *d = engine_open("qwen3_tied", (struct engine_options){.threads = 1});
    d->conf.master_key = key;
    check_ok(device_load(d, DEVICE_POLICY, "tests/golden/models/qwen3_tied", &e), e);
    *n = d->n_elements;
    float *master = mem_calloc(*n, sizeof *master);
    *weights = mem_calloc(*n, sizeof **weights);
    struct device_floats f = {.state = DEVICE_MASTER, .hi = *n, .data = master};
    struct device_weights w = {.set = DEVICE_POLICY, .hi = *n, .data = *weights};
    check_ok(device_state_read(d, &f, &e), e);
    check_ok(device_weights_read(d, &w, &e), e);
    device_close(d);
    return master;
}

static void spread_masters_round_to_their_weights(void **state)
{
    (void)state;
    bf16 *weights;
    size_t n, moved = 0;
    double mean = 0, square = 0;
    float *master = load(rng_key(1, RNG_MASTER), &weights, &n);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits, stored = (uint32_t)weights[i] << 16;
        memcpy(&bits, &master[i], sizeof bits);
        double offset = (double)(int32_t)(bits - stored) / 32768;
        assert_int_equal(bf16_from(master[i]), weights[i]);
        moved += bits != stored;
        mean += offset;
        square += offset * offset;
    }
    // Uniform in (-1, 1): mean 0 and mean square 1/3, within six deviations.
    assert_true(moved > n * 9 / 10);
    assert_true(fabs(mean / (double)moved) < 6 * sqrt(1.0 / 3 / (double)moved));
    assert_true(fabs(square / (double)moved - 1.0 / 3) < 6 * sqrt(4.0 / 45 / (double)moved));
    mem_free(master);
    mem_free(weights);
}

static void masters_are_a_function_of_the_key(void **state)
{
    (void)state;
    bf16 *weights[4];
    size_t n, differ = 0;
    float *same = load(7, &weights[0], &n), *again = load(7, &weights[1], &n);
    float *other = load(8, &weights[2], &n), *plain = load(0, &weights[3], &n);
    assert_memory_equal(same, again, n * sizeof *same);
    for (size_t i = 0; i < n; i++) {
        differ += same[i] != other[i];
        assert_true(plain[i] == bf16_to(weights[3][i]));
    }
    assert_true(differ > n * 9 / 10);
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(weights[i], weights[0], n * sizeof(bf16));
        mem_free(i == 0 ? same : i == 1 ? again : i == 2 ? other : plain);
    }
    for (int i = 0; i < 4; i++)
        mem_free(weights[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread_masters_round_to_their_weights),
        cmocka_unit_test(masters_are_a_function_of_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
