/* Level "avx2": AVX2 and FMA; compiled with those flags, entered only where the CPU has them. */
#include "kern/kern.h"
#include "kern/level.h"
#define VEC_AVX2
#include "kern/vec.h"

#include <string.h>

#include "kern/gemm_avx2.inc"
