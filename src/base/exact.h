/* Elementary functions with fixed bits, in double precision.
 *
 * libm may differ by an ulp between versions; nothing that is promised bitwise calls it except
 * sqrt, fma and exact functions. These are plain C with every operation written out (no
 * contraction), so any compiler and machine gives the same bits. A subnormal result follows the
 * thread's flush mode. Accuracy: below 2 ulp on the ranges stated; tests compare with libm. Used
 * for rope tables, schedules, log-probabilities' log and entropies; the vector exp of kernels is
 * kern's own.
 */
#pragma once

double exact_exp(double x); // 0 below -745.13, +inf above 709.78; NaN passes.
double exact_log(double x); // -inf at 0, NaN below; correctly rounded but for rare ties.
double exact_sin(double x); // |x| <= 1e8, ASSERTed (Cody-Waite with three parts).
double exact_cos(double x); // |x| <= 1e8, ASSERTed.
/* exp(y log x), log in two doubles; 0 at x = 0. ASSERTs x > 0, or x = 0 and y > 0; both finite. */
double exact_pow(double x, double y);
