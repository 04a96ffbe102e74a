/* Errors: three kinds, three mechanisms, nothing else.
 *
 *   our mistake           ASSERT(x)        always compiled; prints expression and place, aborts
 *   the world's failure   int rc < 0       an enum err_code, with the text in a struct err
 *   out of memory         planned arenas return ERR_MEMORY; everything else dies in base/mem.c
 *
 * A struct err lives on the caller's stack and starts as {0}. It is untouched on success. The first
 * message wins; callers prepend context with err_in, so that what is printed at the top reads
 * "train: run/checkpoint-40: optimizer.safetensors: header is 9 bytes, expected at least 10".
 * A message names the file, the place, what was expected, and the remedy.
 *
 *     int thing_open(struct thing *t, const char *path, struct err *e)
 *     {
 *         int rc = 0;
 *         *t = (struct thing){0};
 *         TRY(file_map(&t->map, path, e));
 *         return 0;
 *     fail:
 *         thing_close(t);                      // legal on {0}, on a half-built value, and twice
 *         return err_in(e, rc, "%s", path);
 *     }
 *
 * `fail:` is a function's one way out. Where success has the same to give back as failure, it falls
 * through the label with rc 0: there is no second copy of the clean-up, and no second label.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef uint16_t bf16; // A bfloat16 in its 16 bits: the upper half of an IEEE float.

/* name, exit status, what it means. A code exists only if some caller acts on it. */
#define ERR_CODES(X)                                                                               \
    X(ERR_USAGE, 2, "wrong command line or configuration")                                         \
    X(ERR_IO, 3, "a file could not be read or written")                                            \
    X(ERR_FORMAT, 4, "a file is not what its format asks for")                                     \
    X(ERR_UNSUPPORTED, 5, "a legal input that LoCo does not implement")                            \
    X(ERR_MEMORY, 6, "the memory budget does not suffice")                                         \
    X(ERR_DATA, 7, "no usable row in a data set")                                                  \
    X(ERR_STATE, 8, "a checkpoint or run folder does not fit this run")                            \
    X(ERR_NUMERIC, 9, "a loss, gradient or weight is not finite, or an invariant broke")           \
    X(ERR_STOPPED, 130, "stopped by a signal after saving")

enum err_code {
    ERR_NONE = 0,
#define X(name, status, text) name = -(status),
    ERR_CODES(X)
#undef X
};

struct err {
    int code;       // 0 or an enum err_code.
    char text[512]; // Complete enough to print as it is.
};

/* Sets code and text unless e already holds an error. Returns code. e may be NULL. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Prepends "context: " to e's text. Returns rc, so that it can end a function. */
int err_in(struct err *e, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The process's exit status for a code (0 for ERR_NONE). */
int err_exit_status(int code);

/* Jumps to the function's one label `fail`, with rc set, when x is negative. */
#define TRY(x)                                                                                     \
    do {                                                                                           \
        rc = (x);                                                                                  \
        if (rc < 0)                                                                                \
            goto fail;                                                                             \
    } while (0)

/* A broken promise of our own code. Never has side effects in x. */
#define ASSERT(x) ((x) ? (void)0 : err_assert_failed(#x, __FILE__, __LINE__))
_Noreturn void err_assert_failed(const char *expr, const char *file, int line);

/* Ends the process with a message: only for base/mem.c and cli/main.c. */
_Noreturn void err_die(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Rounds n up to a multiple of m. */
static inline size_t round_up(size_t n, size_t m)
{
    return (n + m - 1) / m * m;
}
