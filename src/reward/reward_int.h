/* The inside of reward: extraction's helpers, and the answer checker with its normal form and
 * numbers.
 *
 * Texts arrive as bytes with a length and hold anything; normal forms and numbers only ever see
 * what reward_normalise let through: no NUL, bounded length, matched braces. Bounds are in
 * reward.h.
 */
#pragma once

#include "reward/reward.h"

#include <gmp.h>

enum { REWARD_TAIL_BYTES = 32768 }; // Nothing longer is an answer.

/* Leaves out blanks at both ends. */
void reward_trim(const char **text, size_t *len);

/* Moves a text to what counts of it: behind the thought, without blanks at the ends. False when a
   thought is open at its end. */
bool reward_body(const struct reward_conf *c, const char **text, size_t *len);

/* The checker's whole interface. A fuller one (expressions, sets, intervals) replaces answer.c. */
enum reward_verdict {
    REWARD_EQUAL,
    REWARD_DIFFERENT,
    REWARD_UNPARSED_ANSWER,
    REWARD_UNPARSED_GOLD,
};
enum reward_verdict reward_answer_check(const char *gold, size_t gold_len, const char *answer,
                                        size_t answer_len);

/* Puts an answer's normal form into out: LaTeX and Unicode spellings of one thing become one,
   blanks stay only where they part words or digits. False when it is empty, too long, too deep or
   its braces do not match; *reason (may be NULL) says which. */
bool reward_normalise(const char *s, size_t n, struct buf *out, const char **reason);

/* A number as written. Release with reward_number_release, whatever the parse said. */
struct reward_number {
    mpq_t value; // Without the percent sign's 1/100.
    bool is_percent;
    int decimals;     // Digits after the point; -1 for fractions and powers of ten.
    int digits;       // Significant digits of a decimal.
    const char *name; // "x" of "x=27", borrowed; NULL without.
    size_t name_len;  // bytes
    int unit;         // A known unit or currency; 0 for none or an unknown one.
};

enum reward_parse {
    REWARD_NUMBER,     // A number, whole and finite.
    REWARD_NOT_NUMBER, // Something else.
    REWARD_DEGENERATE, // A division by zero, or NaN.
    REWARD_BEYOND,     // Too many digits or too large an exponent to compute with.
};

/* Parses a normal form. An answer (not a gold) may end a chain such as 40*34=1360. */
enum reward_parse reward_number_parse(const char *s, bool is_gold, struct reward_number *x);
void reward_number_release(struct reward_number *x);

/* Length of the number at the start of raw text s (n bytes), 0 when there is none: for rule 4. */
size_t reward_number_span(const char *s, size_t n);

/* A unit's identity by its whole text (n bytes); 0 when unknown. Synonyms share it. */
int reward_unit_find(const char *s, size_t n);

/* Whether words (n bytes) after a number may be dropped as a unit: no digits but in exponents, and
   nothing that changes or hedges the number. is_apart: a blank lies between number and words. */
bool reward_unit_ok(const char *s, size_t n, bool is_apart);
