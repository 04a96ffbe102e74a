/* stdout: what it is, and writing to it so that nothing is lost without a word. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool cli_is_terminal(void)
{
    return isatty(STDOUT_FILENO) == 1;
}

int cli_columns(void)
{
    enum { USUAL = 80 };
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return USUAL;
    return size.ws_col;
}

int cli_write(const char *text, size_t n, struct err *e)
{
    while (n > 0) {
        ssize_t put = write(STDOUT_FILENO, text, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return err_set(e, ERR_IO, "standard output: cannot write: %s", strerror(errno));
        text += put;
        n -= (size_t)put;
    }
    return 0;
}

int cli_flush(struct buf *b, struct err *e)
{
    int rc = cli_write(buf_str(b), b->len, e);
    buf_clear(b);
    return rc;
}

void cli_put_foreign(struct buf *b, const char *text, size_t n)
{
    if (cli_is_terminal())
        buf_terminal(b, text, n, true);
    else
        buf_put(b, text, n);
}
