/* Random numbers are functions, not streams.
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11) maps a
 * 128-bit counter under a 64-bit key to 128 random bits. The key is mix64(seed, purpose) and the
 * counter says what the number is for, so host count, slots, threads, restarts and modes cannot
 * change a sample. Test vectors stand in docs/FORMATS.md.
 */
#pragma once

#include "base/err.h"

enum rng_purpose {
    RNG_INIT = 1,     // fresh weights:    counter {element, 0, tensor, 0}
    RNG_SHUFFLE = 2,  // prompt order:     counter {half, round, 0, epoch}
    RNG_DATA = 3,     // generated tasks:  counter {draw, 0, row, split}
    RNG_ROLLOUT = 4,  // sampling:         counter {position, sample, index, epoch}
    RNG_REWARD = 5,   // random reward:    counter {0, sample, index, epoch}
    RNG_EVAL = 6,     // eval sampling:    as rollout
    RNG_GENERATE = 7, // loco generate:    as rollout
    RNG_MASTER = 8,   // masters' low halves: counter {element / 8, the same's high word, 0, 0}
};

/* SplitMix64's finaliser over seed and purpose: the Philox key. */
uint64_t rng_key(uint64_t seed, enum rng_purpose purpose);

/* One Philox4x32-10 block: out[0..3] from counter c0..c3 (c0 = position) under key. */
void rng_block(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t out[4]);

/* Uniform double in [0, 1) with 53 bits from out[0] (high) and out[1] of that block. */
double rng_uniform(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3);

/* Uniform integer in [0, n), n >= 1, without bias beyond 2^-64 (64-bit multiply-shift). */
uint32_t rng_below(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t n);

/* The image of i under a pseudo-random permutation of [0, n): a 6-round Feistel network over
   Philox with cycle walking, so an epoch's order needs no memory. Purpose RNG_SHUFFLE. */
uint64_t rng_permute(uint64_t key, uint32_t epoch, uint64_t n, uint64_t i);
