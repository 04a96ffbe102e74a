/* What test programs share: errors by their exact text, deaths, a folder to write in, seeds.
 *
 * Include it first: it brings cmocka with the headers that cmocka asks for. Property tests draw
 * from check_seed(), which prints the seed; LOCO_TEST_SEED repeats a run.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* e holds this code and exactly this text. */
#define check_error(e, want_code, want_text)                                                       \
    do {                                                                                           \
        assert_string_equal((e).text, want_text);                                                  \
        assert_int_equal((e).code, want_code);                                                     \
    } while (0)

/* No error: shows the text when there is one. */
#define check_ok(rc, e)                                                                            \
    do {                                                                                           \
        int check_rc = (rc);                                                                       \
        if (check_rc < 0)                                                                          \
            fail_msg("%s", (e).text);                                                              \
    } while (0)

/* Runs fn(ctx) in a child. Returns its wait status, its stderr in text. */
static inline int check_child(void (*fn)(void *ctx), void *ctx, char *text, size_t size)
{
    int end[2];
    assert_int_equal(pipe(end), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(end[1], STDERR_FILENO);
        close(end[0]);
        signal(SIGABRT, SIG_DFL); // cmocka's handler would go on with the tests
        fn(ctx);
        _exit(0);
    }
    close(end[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(end[0], text + used, size - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    close(end[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* fn(ctx) ends in an ASSERT whose expression is `expr`. */
static inline void check_asserts(void (*fn)(void *ctx), void *ctx, const char *expr)
{
    char text[8192];
    int status = check_child(fn, ctx, text, sizeof text);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, expr))
        fail_msg("expected to die by '%s', status %#x, stderr: %s", expr, (unsigned)status, text);
}

/* A fresh folder's name, in a static string. check_folder_remove takes it away with its content. */
static inline const char *check_folder(void)
{
    static char path[256];
    const char *root = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/loco-test-XXXXXX", root ? root : P_tmpdir);
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void check_folder_remove(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", path, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

/* The seed of this run's property tests, printed once. */
static inline uint64_t check_seed(void)
{
    static uint64_t seed;
    if (seed == 0) {
        const char *text = getenv("LOCO_TEST_SEED");
        seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
        printf("LOCO_TEST_SEED=%llu\n", (unsigned long long)seed);
    }
    return seed;
}

static inline int check_on_asan(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return 1;
#elif defined(__has_feature)
    return __has_feature(address_sanitizer);
#else
    return 0;
#endif
}

/* Valgrind computes subnormals whatever MXCSR says, and long doubles with 53 bits. */
static inline int check_on_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload") != NULL;
}
