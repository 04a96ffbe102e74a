/* loco: finds the command, reads its options, runs it, and turns an error into one line and an exit
 * status.
 */
#include "cli/cli.h"

#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "coord/coord.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*command_fn)(const struct conf *conf, struct err *e);

static const command_fn commands[CONF_COMMANDS_N] = {
    [CONF_TRAIN] = cli_train,       [CONF_SFT] = cli_train,   [CONF_GENERATE] = cli_generate,
    [CONF_EVAL] = cli_eval,         [CONF_SCORE] = cli_score, [CONF_LOGPROBS] = cli_logprobs,
    [CONF_TOKENIZE] = cli_tokenize, [CONF_INIT] = cli_init,   [CONF_DATA] = cli_data,
    [CONF_INSPECT] = cli_inspect,   [CONF_CHECK] = cli_check, [CONF_BENCH] = cli_bench,
};

static void put_help(struct buf *out)
{
    static const struct {
        int code;
        const char *text;
    } codes[] = {
#define CODE_ROW(name, status, text) {name, text},
        ERR_CODES(CODE_ROW)
#undef CODE_ROW
    };
    conf_commands_help(out);
    buf_puts(out, "loco --version prints the version.\n\nexit status\n"
                  "    0  done\n"
                  "    1  the answer is no: a check failed\n");
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        buf_printf(out, "  %3d  %s\n", err_exit_status(codes[i].code), codes[i].text);
}

/* Nothing may stand behind the first n arguments. */
static int refuse_more(int argc, char **argv, int n, struct err *e)
{
    return argc <= n ? 0
                     : err_set(e, ERR_USAGE, "unexpected argument '%.60s' behind %s", argv[n],
                               argv[n - 1]);
}

/* loco --help, loco help [COMMAND]. */
static int help(int argc, char **argv, struct buf *out, struct err *e)
{
    enum conf_command which;
    if (argc <= 0) {
        put_help(out);
        return 0;
    }
    int rc = conf_command_find(argv[0], &which, e);
    if (rc == 0)
        conf_help(which, out);
    return rc < 0 ? rc : refuse_more(argc, argv, 1, e);
}

static int plan_fault(struct err *e)
{
    const char *spec = getenv("LOCO_FAULT");
    int rc = spec ? file_fault_plan(spec, e) : 0;
    return rc < 0 ? err_in(e, rc, "LOCO_FAULT") : 0;
}

static int run_command(enum conf_command command, int argc, char **argv, struct buf *out,
                       struct err *e)
{
    int rc = 0;
    struct conf conf = {0};
    TRY(plan_fault(e));
    TRY(conf_parse(&conf, command, argc, (const char *const *)argv, e));
    pool_flush_denormals();
    if (conf.help)
        conf_help(command, out);
    else
        rc = commands[command](&conf, e);
fail:
    conf_release(&conf);
    return rc;
}

static int dispatch(int argc, char **argv, struct buf *out, struct err *e)
{
    static char speaker[32];
    enum conf_command command;
    const char *word = argc > 1 ? argv[1] : "--help";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return help(argc - 2, argv + 2, out, e);
    if (strcmp(word, "--version") == 0) {
        buf_puts(out, "loco " COORD_VERSION "\n");
        return refuse_more(argc, argv, 2, e);
    }
    int rc = conf_command_find(word, &command, e);
    if (rc < 0)
        return rc;
    snprintf(speaker, sizeof speaker, "loco %s", conf_command_name(command));
    log_speaker(speaker);
    return run_command(command, argc - 2, argv + 2, out, e);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct buf out = {0}, text = {0};
    file_standard();
    signal(SIGPIPE, SIG_DFL); // whoever started us may have it ignored: filters end quietly
    int rc = dispatch(argc, argv, &out, &e);
    if (rc == 0)
        rc = cli_flush(&out, &e);
    if (rc < 0) {
        buf_terminal(&text, e.text, strlen(e.text), false);
        log_error("%s", buf_str(&text));
    }
    buf_release(&out);
    buf_release(&text);
    return rc > 0 ? rc : err_exit_status(rc);
}
