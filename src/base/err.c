/* Errors: the struct err of the world's failures, and the end of the process on our own. */
#include "base/err.h"

#include <execinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKTRACE_MAX 64

int err_set(struct err *e, int code, const char *fmt, ...)
{
    ASSERT(code < 0);
    if (e && e->code == ERR_NONE) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->text, sizeof e->text, fmt, ap);
        va_end(ap);
        e->code = code;
    }
    return code;
}

int err_in(struct err *e, int rc, const char *fmt, ...)
{
    if (e && e->code != ERR_NONE) {
        struct err inner = *e;
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->text, sizeof e->text, fmt, ap);
        va_end(ap);
        size_t len = strlen(e->text);
        snprintf(e->text + len, sizeof e->text - len, ": %s", inner.text);
    }
    return rc;
}

int err_exit_status(int code)
{
    switch (code) {
    case ERR_NONE:
        return 0;
#define X(name, status, text)                                                                      \
    case name:                                                                                     \
        return status;
        ERR_CODES(X)
#undef X
    default:
        return 1;
    }
}

void err_assert_failed(const char *expr, const char *file, int line)
{
    fflush(NULL);
    fprintf(stderr, "loco: internal error: %s:%d: %s does not hold; please report this\n", file,
            line, expr);
    void *frame[BACKTRACE_MAX];
    backtrace_symbols_fd(frame, backtrace(frame, BACKTRACE_MAX), STDERR_FILENO);
    abort();
}

void err_die(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fflush(NULL);
    fputs("loco: error: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(err_exit_status(code));
}
