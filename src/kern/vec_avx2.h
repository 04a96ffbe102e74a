/* vec.h on AVX2 and FMA: two registers of eight. A vector is a
 * value like a float, whatever holds it. tidy: typedef-struct, 2
 */
#pragma once

#include <immintrin.h>

typedef struct vf32 {
    __m256 lo, hi; // Lanes 0-7 and 8-15.
} vf32;

#define VA static inline __attribute__((always_inline, unused))

/* Lanes i < n as full masks, for lanes base .. base + 7. */
VA __m256i va_mask(int n, int base)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - base), lane);
}

VA vf32 v_load(const float *p)
{
    return (vf32){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

VA vf32 v_load_n(const float *p, int n)
{
    if (n >= 16)
        return v_load(p);
    return (vf32){_mm256_maskload_ps(p, va_mask(n, 0)), _mm256_maskload_ps(p + 8, va_mask(n, 8))};
}

VA void v_store(float *p, vf32 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

VA void v_store_n(float *p, vf32 a, int n)
{
    if (n >= 16) {
        v_store(p, a);
        return;
    }
    _mm256_maskstore_ps(p, va_mask(n, 0), a.lo);
    _mm256_maskstore_ps(p + 8, va_mask(n, 8), a.hi);
}

VA __m256 va_widen(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

VA vf32 v_load_bf16(const bf16 *p)
{
    return (vf32){va_widen(_mm_loadu_si128((const __m128i *)p)),
                  va_widen(_mm_loadu_si128((const __m128i *)(p + 8)))};
}

VA vf32 v_load_bf16_n(const bf16 *p, int n)
{
    if (n >= 16)
        return v_load_bf16(p);
    bf16 t[16] = {0};
    for (int i = 0; i < n; i++)
        t[i] = p[i];
    return v_load_bf16(t);
}

/* Eight floats to bf16 in the low halves of eight dwords: nearest even, NaN to 0x7fc0. */
VA __m256i va_round(__m256 v)
{
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(_mm256_srli_epi32(r, 16), _mm256_set1_epi32(0x7fc0), nan);
}

VA void v_store_bf16(bf16 *p, vf32 a)
{
    __m256i x = _mm256_packus_epi32(va_round(a.lo), va_round(a.hi));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(x, 0xd8));
}

VA void v_store_bf16_n(bf16 *p, vf32 a, int n)
{
    if (n >= 16) {
        v_store_bf16(p, a);
        return;
    }
    bf16 t[16];
    v_store_bf16(t, a);
    for (int i = 0; i < n; i++)
        p[i] = t[i];
}

VA vf32 v_set(float x)
{
    return (vf32){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

VA vf32 v_zero(void)
{
    return (vf32){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

#define VA_BINARY(name, op)                                                                        \
    VA vf32 name(vf32 a, vf32 b)                                                                   \
    {                                                                                              \
        return (vf32){op(a.lo, b.lo), op(a.hi, b.hi)};                                             \
    }
VA_BINARY(v_add, _mm256_add_ps)
VA_BINARY(v_sub, _mm256_sub_ps)
VA_BINARY(v_mul, _mm256_mul_ps)
VA_BINARY(v_div, _mm256_div_ps)
VA_BINARY(v_max, _mm256_max_ps)
VA_BINARY(v_min, _mm256_min_ps)

VA vf32 v_fma(vf32 a, vf32 b, vf32 c)
{
    return (vf32){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

VA vf32 v_fnma(vf32 a, vf32 b, vf32 c)
{
    return (vf32){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}

VA vf32 v_sqrt(vf32 a)
{
    return (vf32){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}

VA vf32 v_rint(vf32 a)
{
    return (vf32){_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                  _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

VA vf32 v_below(int n, vf32 a, vf32 b)
{
    if (n >= 16)
        return a;
    return (vf32){_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(va_mask(n, 0))),
                  _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(va_mask(n, 8)))};
}

VA __m256 va_scale(__m256 p, __m256 n)
{
    __m256i e = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), e));
}

/* p 2^n through the exponent field; any p where n is no integer of a float's range. */
VA vf32 v_scale(vf32 p, vf32 n)
{
    return (vf32){va_scale(p.lo, n.lo), va_scale(p.hi, n.hi)};
}

VA __m256 va_exp_ends(__m256 x, __m256 y, __m256 top)
{
    __m256 over = _mm256_cmp_ps(x, top, _CMP_GT_OQ);
    __m256 under = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_LT_OQ);
    return _mm256_andnot_ps(under, _mm256_blendv_ps(y, _mm256_set1_ps(__builtin_inff()), over));
}

/* The ends of exp: y inside, +inf above top, 0 below -87. */
VA vf32 v_exp_ends(vf32 x, vf32 y, vf32 top)
{
    return (vf32){va_exp_ends(x.lo, y.lo, top.lo), va_exp_ends(x.hi, y.hi, top.hi)};
}

VA float v_sum(vf32 a)
{
    __m256 s8 = _mm256_add_ps(a.lo, a.hi);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

VA float v_top(vf32 a)
{
    __m256 s8 = _mm256_max_ps(a.lo, a.hi);
    __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

VA unsigned v_equal(vf32 a, vf32 b)
{
    unsigned lo = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ));
    unsigned hi = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ));
    return lo | hi << 8;
}

typedef struct vf64 {
    __m256d q[4]; // Lanes 4i .. 4i + 3.
} vf64;

VA vf64 v_zero64(void)
{
    return (vf64){
        {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()}};
}

VA __m256d va_sumsq(__m256d s, __m128 x)
{
    __m256d d = _mm256_cvtps_pd(x);
    return _mm256_fmadd_pd(d, d, s);
}

/* s + x^2: the square of a float is exact in double. */
VA vf64 v_sumsq64(vf64 s, vf32 x)
{
    s.q[0] = va_sumsq(s.q[0], _mm256_castps256_ps128(x.lo));
    s.q[1] = va_sumsq(s.q[1], _mm256_extractf128_ps(x.lo, 1));
    s.q[2] = va_sumsq(s.q[2], _mm256_castps256_ps128(x.hi));
    s.q[3] = va_sumsq(s.q[3], _mm256_extractf128_ps(x.hi, 1));
    return s;
}

VA double v_sum64(vf64 a)
{
    __m256d s4 = _mm256_add_pd(_mm256_add_pd(a.q[0], a.q[2]), _mm256_add_pd(a.q[1], a.q[3]));
    __m128d s2 = _mm_add_pd(_mm256_castpd256_pd128(s4), _mm256_extractf128_pd(s4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s2, _mm_unpackhi_pd(s2, s2)));
}
