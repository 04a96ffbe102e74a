/* Level "portable": plain C, exact and slow; the oracle that every other level must equal. */
#include "kern/kern.h"
#include "kern/level.h"
#include "kern/vec.h"

#include <string.h>

#include "kern/gemm_portable.inc"
