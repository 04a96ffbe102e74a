/* vec.h in plain C: an array and loops. fmaf is exact with or without the CPU's instruction. A
 * vector is a value like a float, whatever holds it. tidy: typedef-struct, 2
 */
#pragma once

typedef struct vf32 {
    float f[16];
} vf32;

// Not inlined: sixteen-fold loops everywhere would make the compiler, not the program, slow.
#define VP     static __attribute__((noinline, unused))
#define V_EACH for (int i = 0; i < 16; i++)

VP vf32 v_load_n(const float *p, int n)
{
    vf32 r;
    V_EACH r.f[i] = i < n ? p[i] : 0;
    return r;
}

VP vf32 v_load(const float *p)
{
    return v_load_n(p, 16);
}

VP void v_store_n(float *p, vf32 a, int n)
{
    for (int i = 0; i < n && i < 16; i++)
        p[i] = a.f[i];
}

VP void v_store(float *p, vf32 a)
{
    v_store_n(p, a, 16);
}

VP vf32 v_load_bf16_n(const bf16 *p, int n)
{
    vf32 r;
    V_EACH r.f[i] = i < n ? bf16_to(p[i]) : 0;
    return r;
}

VP vf32 v_load_bf16(const bf16 *p)
{
    return v_load_bf16_n(p, 16);
}

VP void v_store_bf16_n(bf16 *p, vf32 a, int n)
{
    for (int i = 0; i < n && i < 16; i++)
        p[i] = bf16_from(a.f[i]);
}

VP void v_store_bf16(bf16 *p, vf32 a)
{
    v_store_bf16_n(p, a, 16);
}

VP vf32 v_set(float x)
{
    vf32 r;
    V_EACH r.f[i] = x;
    return r;
}

VP vf32 v_zero(void)
{
    return v_set(0);
}

#define VP_BINARY(name, expr)                                                                      \
    VP vf32 name(vf32 a, vf32 b)                                                                   \
    {                                                                                              \
        vf32 r;                                                                                    \
        V_EACH r.f[i] = (expr);                                                                    \
        return r;                                                                                  \
    }
VP_BINARY(v_add, a.f[i] + b.f[i])
VP_BINARY(v_sub, a.f[i] - b.f[i])
VP_BINARY(v_mul, a.f[i] * b.f[i])
VP_BINARY(v_div, a.f[i] / b.f[i])
VP_BINARY(v_max, a.f[i] > b.f[i] ? a.f[i] : b.f[i])
VP_BINARY(v_min, a.f[i] < b.f[i] ? a.f[i] : b.f[i])

VP vf32 v_fma(vf32 a, vf32 b, vf32 c)
{
    vf32 r;
    V_EACH r.f[i] = __builtin_fmaf(a.f[i], b.f[i], c.f[i]);
    return r;
}

VP vf32 v_fnma(vf32 a, vf32 b, vf32 c)
{
    vf32 r;
    V_EACH r.f[i] = __builtin_fmaf(-a.f[i], b.f[i], c.f[i]);
    return r;
}

VP vf32 v_sqrt(vf32 a)
{
    vf32 r;
    V_EACH r.f[i] = __builtin_sqrtf(a.f[i]);
    return r;
}

VP vf32 v_rint(vf32 a)
{
    vf32 r;
    V_EACH r.f[i] = __builtin_rintf(a.f[i]);
    return r;
}

VP vf32 v_below(int n, vf32 a, vf32 b)
{
    vf32 r;
    V_EACH r.f[i] = i < n ? a.f[i] : b.f[i];
    return r;
}

/* p 2^n through the exponent field; any p where n is no integer of a float's range. */
VP vf32 v_scale(vf32 p, vf32 n)
{
    vf32 r;
    V_EACH
    {
        uint32_t u;
        __builtin_memcpy(&u, &p.f[i], 4);
        if (n.f[i] >= -128 && n.f[i] <= 128)
            u += (uint32_t)(int32_t)n.f[i] << 23;
        __builtin_memcpy(&r.f[i], &u, 4);
    }
    return r;
}

/* The ends of exp: y inside, +inf above top, 0 below -87. */
VP vf32 v_exp_ends(vf32 x, vf32 y, vf32 top)
{
    V_EACH
    {
        y.f[i] = x.f[i] > top.f[i] ? __builtin_inff() : y.f[i];
        y.f[i] = x.f[i] < -87.0f ? 0.0f : y.f[i];
    }
    return y;
}

VP float v_sum(vf32 a)
{
    for (int w = 8; w; w /= 2)
        for (int i = 0; i < w; i++)
            a.f[i] = a.f[i] + a.f[i + w];
    return a.f[0];
}

VP float v_top(vf32 a)
{
    for (int w = 8; w; w /= 2)
        for (int i = 0; i < w; i++)
            a.f[i] = a.f[i] > a.f[i + w] ? a.f[i] : a.f[i + w];
    return a.f[0];
}

VP unsigned v_equal(vf32 a, vf32 b)
{
    unsigned r = 0;
    V_EACH r |= (unsigned)(a.f[i] == b.f[i]) << i;
    return r;
}

typedef struct vf64 {
    double f[16];
} vf64;

VP vf64 v_zero64(void)
{
    return (vf64){{0}};
}

/* s + x^2: the square of a float is exact in double. */
VP vf64 v_sumsq64(vf64 s, vf32 x)
{
    V_EACH s.f[i] += (double)x.f[i] * (double)x.f[i];
    return s;
}

VP double v_sum64(vf64 a)
{
    for (int w = 8; w; w /= 2)
        for (int i = 0; i < w; i++)
            a.f[i] = a.f[i] + a.f[i + w];
    return a.f[0];
}
