/* loco train and loco sft: a run with stdout as its terminal, and a way to stop it. The first
 * Ctrl-C (or SIGTERM, or stdout failing) lets the step end, saves and leaves; a second one leaves
 * at once.
 */
#include "cli/cli.h"

#include "coord/coord.h"

#include <signal.h>
#include <unistd.h>

static volatile int stop_asked;

static void on_signal(int number)
{
    static const char text[] =
        "\nstopping after this step or evaluation; once more to leave at once\n";
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
    struct err *gone = ctx;
    if (gone->code == ERR_NONE && cli_write(text, n, gone) < 0)
        stop_asked = 1;
}

int cli_train(const struct conf *conf, struct err *e)
{
    struct err gone = {0}; // why stdout cannot be written
    struct coord_sink sink = {.print = print,
                              .ctx = &gone,
                              .live = cli_is_terminal(),
                              .columns = cli_columns(),
                              .stop = &stop_asked};
    catch_signals();
    int rc = conf->command == CONF_SFT ? coord_sft(conf, &sink, e) : coord_train(conf, &sink, e);
    if (gone.code == ERR_NONE || (rc < 0 && rc != ERR_STOPPED))
        return rc;
    if (rc == 0) // it came to its end
        return err_set(e, gone.code, "%s", gone.text);
    return err_in(e, gone.code, "%s", gone.text);
}
