/* Conversion of elements: every half, rounding to bf16, odd addresses, ranges. */
#include "check.h"

#include "base/rng.h"
#include "tensor/tensor.h"

/* Data at an odd address, as a foreign writer that does not pad leaves it. */
static struct tensor odd_tensor(enum tensor_dtype dtype, const void *data, size_t n_elems)
{
    static unsigned char memory[1 << 16];
    size_t n = n_elems * (size_t)tensor_dtype_bits(dtype) / 8;
    memcpy(memory + 1, data, n);
    return (struct tensor){.name = "t",
                           .dtype = dtype,
                           .n_dims = 1,
                           .shape = {n_elems},
                           .n_elems = n_elems,
                           .n_bytes = n,
                           .data = memory + 1};
}

/* The value of an IEEE half by its definition. */
static double half_value(uint32_t h)
{
    int exponent = (int)(h >> 10 & 31);
    double fraction = h & 1023;
    double x = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -x : x;
}

static void every_half_becomes_its_value(void **state)
{
    (void)state;
    uint16_t halves[4096];
    float out[4096];
    for (uint32_t base = 0; base < 65536; base += 4096) {
        for (uint32_t i = 0; i < 4096; i++)
            halves[i] = (uint16_t)(base + i);
        struct tensor t = odd_tensor(TENSOR_F16, halves, 4096);
        tensor_to_float(&t, 0, 4096, out);
        for (uint32_t i = 0; i < 4096; i++) {
            uint32_t bits, h = base + i;
            memcpy(&bits, &out[i], 4);
            if ((h & 0x7c00) == 0x7c00 && (h & 1023))
                assert_int_equal(bits, 0x7fc00000);
            else if ((h & 0x7c00) == 0x7c00)
                assert_int_equal(bits, h & 0x8000 ? 0xff800000 : 0x7f800000);
            else
                assert_true((double)out[i] == half_value(h) && !signbit(out[i]) == !(h & 0x8000));
        }
    }
}

static void floats_round_to_the_nearest_bf16_ties_to_even(void **state)
{
    (void)state;
    const struct {
        uint32_t from;
        bf16 to;
    } cases[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
        {0xbf818000, 0xbf82}, {0x3f817fff, 0x3f81}, {0x7f7fffff, 0x7f80}, {0xff7f8000, 0xff80},
        {0x00008000, 0x0000}, {0x00018000, 0x0002}, {0x80000000, 0x8000}, {0x7f800000, 0x7f80},
        {0x7f800001, 0x7fc0}, {0xffffffff, 0x7fc0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bf16 out;
        struct tensor t = odd_tensor(TENSOR_F32, &cases[i].from, 1);
        tensor_to_bf16(&t, 0, 1, &out);
        assert_int_equal(out, cases[i].to);
    }
    uint16_t third = 0x3555, nan = 0x7e01; // 0.333251953125 lies between 0x3eaa and 0x3eab.
    bf16 out;
    struct tensor t = odd_tensor(TENSOR_F16, &third, 1);
    tensor_to_bf16(&t, 0, 1, &out);
    assert_int_equal(out, 0x3eab);
    t = odd_tensor(TENSOR_F16, &nan, 1);
    tensor_to_bf16(&t, 0, 1, &out);
    assert_int_equal(out, 0x7fc0);
}

static void any_range_converts_as_the_whole_does(void **state)
{
    (void)state;
    enum { N = 3000 };
    uint32_t bits[N];
    bf16 all[N], part[N];
    uint64_t seed = check_seed();
    for (uint32_t i = 0; i < N; i++)
        bits[i] = rng_below(seed, 0, 0, i, 0, UINT32_MAX);
    struct tensor t = odd_tensor(TENSOR_F32, bits, N);
    tensor_to_bf16(&t, 0, N, all);
    for (uint32_t k = 0; k < 100; k++) {
        uint32_t lo = rng_below(seed, 1, 0, k, 0, N), hi = lo + rng_below(seed, 2, 0, k, 0, N - lo);
        tensor_to_bf16(&t, lo, hi, part);
        assert_memory_equal(part, all + lo, (hi - lo) * sizeof *part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_becomes_its_value),
        cmocka_unit_test(floats_round_to_the_nearest_bf16_ties_to_even),
        cmocka_unit_test(any_range_converts_as_the_whole_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
