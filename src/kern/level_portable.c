/* Level "portable": plain C, exact and slow; the oracle that every other level must equal. */
#include "kern/kern.h"
#include "kern/level.h"
#include "kern/vec.h"

#include <string.h>

#define LV_NAME  "portable"
#define LV_TABLE kern_portable

#include "kern/gemm_portable.inc"
#include "kern/gemm.inc"
#include "kern/rows.inc"
#include "kern/attn.inc"
#include "kern/attn_grad.inc"
#include "kern/table.inc"
