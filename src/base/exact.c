/* Elementary functions with fixed bits. Where one double is not enough, a value is the unevaluated
 * sum hi + lo of two (Dekker 1971); products are split by fma, which is exact by definition.
 * Polynomials are Taylor's: on the reduced ranges their remainders lie below 2^-57 of the result,
 * and their coefficients need no table to be checked. Signs, zeros and subnormals are told apart by
 * bits, so that a thread's denormals-are-zero mode changes nothing.
 */
#include "base/exact.h"
#include "base/err.h"

#include <math.h>
#include <string.h>

struct dd {
    double hi, lo;
};

#define LN2_HI  0x1.62e42fefa38p-1   // 42 bits: an exponent times it is exact.
#define LN2_LO  0x1.ef35793c7673p-45 // ln 2 - LN2_HI
#define PI_2_A  0x1.921fb54442d18p+0 // pi/2 in three parts of 53 bits
#define PI_2_B  0x1.1a62633145c07p-54
#define PI_2_C  -0x1.f1976b7ed8fbcp-110
#define ROUNDER 0x1.8p52 // Adding and subtracting it rounds |x| < 2^51 to an integer.

#define HIDDEN_BIT (UINT64_C(1) << 52)
#define SIGN_BIT   (UINT64_C(1) << 63)
#define INF_BITS   (UINT64_C(0x7ff) << 52)

static uint64_t bits_of(double x)
{
    uint64_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static double from_bits(uint64_t b)
{
    double x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static double round_near(double x)
{
    return (x + ROUNDER) - ROUNDER;
}

/* a + b exactly, for |a| >= |b|. */
static struct dd fast_sum(double a, double b)
{
    double s = a + b;
    return (struct dd){s, b - (s - a)};
}

/* a + b exactly, for any two. */
static struct dd two_sum(double a, double b)
{
    double s = a + b, t = s - a;
    return (struct dd){s, (a - (s - t)) + (b - t)};
}

static struct dd two_prod(double a, double b)
{
    double p = a * b;
    return (struct dd){p, fma(a, b, -p)};
}

static struct dd dd_add(struct dd a, struct dd b)
{
    struct dd s = two_sum(a.hi, b.hi);
    return fast_sum(s.hi, s.lo + (a.lo + b.lo));
}

static struct dd dd_mul(struct dd a, struct dd b)
{
    struct dd p = two_prod(a.hi, b.hi);
    return fast_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

static double power_of_two(int k)
{
    return from_bits((uint64_t)(k + 1023) << 52);
}

/* e^(hi + lo) for |lo| far below one: e^r 2^k with |r| <= ln2 / 2, Taylor to r^13 / 13!. */
static double exp_dd(double hi, double lo)
{
    if (isnan(hi))
        return hi;
    if (hi > 0x1.62e42fefa39efp+9)
        return INFINITY;
    if (hi < -0x1.74910d52d3052p+9)
        return 0;
    double k = round_near(hi * 0x1.71547652b82fep+0);
    struct dd r = two_sum(hi - k * LN2_HI, lo - k * LN2_LO);
    double x = r.hi, p = 1.0 / 6227020800;
    p = p * x + 1.0 / 479001600;
    p = p * x + 1.0 / 39916800;
    p = p * x + 1.0 / 3628800;
    p = p * x + 1.0 / 362880;
    p = p * x + 1.0 / 40320;
    p = p * x + 1.0 / 5040;
    p = p * x + 1.0 / 720;
    p = p * x + 1.0 / 120;
    p = p * x + 1.0 / 24;
    p = p * x + 1.0 / 6;
    p = p * x + 0.5;
    double y = 1 + (x + (x * x * p + r.lo));
    int e = (int)k, half = e / 2;
    return y * power_of_two(half) * power_of_two(e - half);
}

/* log x for finite x > 0 given by its bits, to 2^-64 relative: x = m 2^k with m in [1/sqrt 2,
   sqrt 2), log m = 2s (1 + z/3 + z^2/5 + ...) with s = (m-1)/(m+1), z = s^2 <= 0.0295. */
static struct dd log_dd(uint64_t bits)
{
    int k = -1023;
    if (bits < HIDDEN_BIT) {
        int shift = __builtin_clzll(bits) - 11;
        bits <<= shift;
        k -= shift;
    }
    k += (int)(bits >> 52);
    double m = from_bits((bits & (HIDDEN_BIT - 1)) | UINT64_C(1023) << 52);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        k++;
    }
    double f = m - 1;
    struct dd d = fast_sum(2, f), s;
    s.hi = f / d.hi;
    s.lo = (fma(-s.hi, d.hi, f) - s.hi * d.lo) / d.hi;
    struct dd z = dd_mul(s, s);
    double q = 1.0 / 25;
    for (int odd = 23; odd >= 5; odd -= 2)
        q = q * z.hi + 1.0 / odd;
    struct dd p =
        dd_add((struct dd){0x1.5555555555555p-2, 0x1.5555555555555p-56}, two_prod(z.hi, q));
    p = dd_add((struct dd){1, 0}, dd_mul(z, p));
    p = dd_mul((struct dd){2 * s.hi, 2 * s.lo}, p);
    return dd_add(two_sum(k * LN2_HI, k * LN2_LO), p);
}

/* x - n pi/2 in two doubles, |result| <= pi/4 and a little; *quadrant = n mod 4. The first
   difference is exact: a multiple of 2^-52 below one. */
static struct dd reduce(double x, unsigned *quadrant)
{
    ASSERT(x >= -1e8 && x <= 1e8);
    double n = round_near(x * 0x1.45f306dc9c883p-1);
    *quadrant = (unsigned)(int)n & 3;
    struct dd b = two_prod(n, PI_2_B);
    struct dd r = two_sum(fma(-n, PI_2_A, x), -b.hi);
    return fast_sum(r.hi, r.lo - b.lo - n * PI_2_C);
}

/* sin of r, Taylor to r^17 / 17!. */
static double sin_poly(struct dd r)
{
    double x = r.hi, z = x * x, p = 1.0 / 355687428096000;
    p = p * z - 1.0 / 1307674368000;
    p = p * z + 1.0 / 6227020800;
    p = p * z - 1.0 / 39916800;
    p = p * z + 1.0 / 362880;
    p = p * z - 1.0 / 5040;
    p = p * z + 1.0 / 120;
    p = p * z - 1.0 / 6;
    return x + (x * z * p + r.lo * (1 - 0.5 * z));
}

/* cos of r, Taylor to r^18 / 18!; what 1 - z/2 loses is added back. */
static double cos_poly(struct dd r)
{
    double x = r.hi, z = x * x, p = -1.0 / 6402373705728000;
    p = p * z + 1.0 / 20922789888000;
    p = p * z - 1.0 / 87178291200;
    p = p * z + 1.0 / 479001600;
    p = p * z - 1.0 / 3628800;
    p = p * z + 1.0 / 40320;
    p = p * z - 1.0 / 720;
    p = p * z + 1.0 / 24;
    double half = 0.5 * z, w = 1 - half;
    return w + ((1 - w - half) + (z * z * p - x * r.lo));
}

static double sin_of_quadrant(struct dd r, unsigned quadrant)
{
    double y = quadrant & 1 ? cos_poly(r) : sin_poly(r);
    return quadrant & 2 ? -y : y;
}

double exact_exp(double x)
{
    return exp_dd(x, 0);
}

double exact_log(double x)
{
    uint64_t bits = bits_of(x);
    if ((bits & ~SIGN_BIT) == 0)
        return -INFINITY;
    if (bits == INF_BITS)
        return INFINITY;
    if (bits > INF_BITS)
        return NAN;
    struct dd y = log_dd(bits);
    return y.hi + y.lo;
}

double exact_sin(double x)
{
    unsigned quadrant;
    struct dd r = reduce(x, &quadrant);
    return sin_of_quadrant(r, quadrant);
}

double exact_cos(double x)
{
    unsigned quadrant;
    struct dd r = reduce(x, &quadrant);
    return sin_of_quadrant(r, quadrant + 1);
}

double exact_pow(double x, double y)
{
    uint64_t bits = bits_of(x);
    ASSERT(!isnan(y) && !isinf(y));
    if ((bits & ~SIGN_BIT) == 0) {
        ASSERT(y > 0);
        return 0;
    }
    ASSERT(bits < INF_BITS);
    struct dd l = log_dd(bits);
    struct dd p = two_prod(y, l.hi);
    return exp_dd(p.hi, p.lo + y * l.lo);
}
