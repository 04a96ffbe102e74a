/* loco train and loco sft: a run with stdout as its terminal, and a way to stop it. The first
 * Ctrl-C (or SIGTERM, or stdout closing) lets the step end, saves and leaves; a second one leaves
 * at once.
 */
#include "cli/cli.h"

#include "base/log.h"
#include "coord/coord.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile int stop_asked;

static void on_signal(int number)
{
    static const char text[] = "\nstopping after this step; once more to leave at once\n";
    (void)number;
    if (stop_asked)
        _exit(err_exit_status(ERR_STOPPED));
    stop_asked = 1;
    ssize_t said = write(STDERR_FILENO, text, sizeof text - 1);
    (void)said; // nothing to do about it here
}

static void catch_signals(void)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* A run's results are in its folder: that stdout is gone stops it, but loses nothing. */
static void print(void *ctx, const char *text, size_t n)
{
    bool *is_closed = ctx;
    struct err e = {0};
    if (*is_closed || cli_write(text, n, &e) == 0)
        return;
    *is_closed = true;
    stop_asked = 1;
    if (errno != EPIPE)
        log_warn("%s; saving and leaving", e.text);
}

int cli_train(const struct conf *conf, struct err *e)
{
    bool is_closed = false;
    struct coord_sink sink = {.print = print,
                              .ctx = &is_closed,
                              .live = cli_is_terminal(),
                              .columns = cli_columns(),
                              .stop = &stop_asked};
    catch_signals();
    return conf->command == CONF_SFT ? coord_sft(conf, &sink, e) : coord_train(conf, &sink, e);
}
