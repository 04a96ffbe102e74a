/* Level "avx2": AVX2 and FMA; compiled with those flags, entered only where the CPU has them. */
#include "kern/kern.h"
#include "kern/level.h"
#define VEC_AVX2
#include "kern/vec.h"

#include <string.h>

#define LV_NAME  "avx2"
#define LV_TABLE kern_avx2

#include "kern/gemm_avx2.inc"
#include "kern/gemm.inc"
#include "kern/rows.inc"
#include "kern/attn.inc"
#include "kern/attn_grad.inc"
#include "kern/table.inc"
