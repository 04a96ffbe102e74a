/* Philox4x32-10 with the constants of the SC'11 paper (Random123), and what is drawn from it. */
#include "base/rng.h"

#define PHILOX_M0     0xD2511F53u
#define PHILOX_M1     0xCD9E8D57u
#define PHILOX_W0     0x9E3779B9u // golden ratio
#define PHILOX_W1     0xBB67AE85u // sqrt(3) - 1
#define PHILOX_ROUNDS 10

#define FEISTEL_ROUNDS 6

uint64_t rng_key(uint64_t seed, enum rng_purpose purpose)
{
    uint64_t z = seed + (uint64_t)purpose * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

void rng_block(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static uint64_t first_word(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    uint32_t out[4];
    rng_block(key, c0, c1, c2, c3, out);
    return (uint64_t)out[0] << 32 | out[1];
}

double rng_uniform(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    return (double)(first_word(key, c0, c1, c2, c3) >> 11) * 0x1p-53;
}

uint32_t rng_below(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t n)
{
    ASSERT(n >= 1);
    uint64_t x = first_word(key, c0, c1, c2, c3);
    uint64_t low = (x & UINT32_MAX) * n; // The product's upper 32 of 96 bits, by halves.
    return (uint32_t)(((x >> 32) * n + (low >> 32)) >> 32);
}

/* One pass of the Feistel network over 2 * half_bits bits. */
static uint64_t feistel(uint64_t key, uint32_t epoch, int half_bits, uint64_t i)
{
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = i >> half_bits, right = i & mask;
    for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t mixed = first_word(key, (uint32_t)right, round, 0, epoch);
        uint64_t next = left ^ (mixed & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t rng_permute(uint64_t key, uint32_t epoch, uint64_t n, uint64_t i)
{
    ASSERT(i < n);
    int bits = n > 1 ? 64 - __builtin_clzll(n - 1) : 1;
    int half_bits = (bits + 1) / 2;
    do // The network permutes up to 4 n values: follow its cycle back into [0, n).
        i = feistel(key, epoch, half_bits, i);
    while (i >= n);
    return i;
}
