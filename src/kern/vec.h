/* Sixteen floats, the unit of every row kernel, and what may be done with them.
 *
 * A level defines VEC_AVX2 or nothing. Both give the same bits: each function is one IEEE operation
 * per lane in the same order. Names:
 *
 *   v_load v_store          sixteen floats        v_load_n v_store_n     the first n <= 16, rest
 * zero v_load_bf16 v_store_bf16 (_n)                 widened exactly; rounded to even, NaN to
 * 0x7fc0 v_set v_zero v_add v_sub v_mul v_div          v_fma(a, b, c) = a b + c, v_fnma = c - a b
 *   v_max v_min             a > b ? a : b and a < b ? a : b, so b when either is NaN
 *   v_neg v_exp             exp as docs/NUMERICS.md section 2
 *   v_below(n, a, b)        lane i < n ? a : b (n may be <= 0 or >= 16)
 *   v_equal(a, b)           bit i says whether lane i is equal
 *   v_sum v_top             fold of the lanes, 8+8, 4+4, 2+2, 1+1, by + and by v_max
 *   vf64 v_zero64 v_sumsq64 v_sum64               sixteen doubles: s + x^2 per lane, and their fold
 */
#pragma once

#include "kern/kern.h"

#ifdef VEC_AVX2
#include "kern/vec_avx2.h"
#else
#include "kern/vec_portable.h"
#endif

#define VEC static inline __attribute__((always_inline, unused))

VEC vf32 v_neg(vf32 a)
{
    return v_mul(a, v_set(-1.0f));
}

/* exp by Cephes' expf: x = n ln 2 + r, a polynomial of degree 5 + 2 in r, then 2^n by the exponent
   field. n = 128 only where the polynomial is below 1, so the field cannot overflow. */
VEC vf32 v_exp(vf32 x)
{
    const vf32 top = v_set(88.72f);
    vf32 t = v_min(top, x);
    vf32 n = v_rint(v_mul(t, v_set(1.44269504088896341f)));
    vf32 r = v_fma(n, v_set(-0.693359375f), t);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    vf32 p = v_set(1.9875691500e-4f);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    p = v_fma(p, v_mul(r, r), v_add(r, v_set(1.0f)));
    return v_exp_ends(x, v_scale(p, n), top);
}
