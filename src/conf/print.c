/* The table for people (help, docs/CONFIG.md) and a configuration for files (config.yaml, the text
 * of what must agree on resume).
 */
#include "conf/conf_int.h"

#include <string.h>

static const struct {
    const char *peer, *text;
} trl_notes[] = {
#define NOTE(peer, text) {peer, text},
    CONF_TRL_NOTES(NOTE)};

static const char *const rule_text[] = {
    [SAME] = "must agree",
    [SPAN] = "may change where the learning rate is constant",
    [FREE] = "may change",
    [CALL] = "of one call",
};

/* Steps to the next knob of `command` from *k on and notes the heading it stands under. */
static bool next_knob(enum conf_command command, const struct conf_knob **k, const char **heading)
{
    for (; (*k)->name; ++*k) {
        if ((*k)->commands == 0)
            *heading = (*k)->name;
        else if (conf_takes(command, *k))
            return true;
    }
    return false;
}

void conf_help(enum conf_command command, struct buf *out)
{
    const struct conf_command_row *row = &conf_command_rows[command];
    const char *heading = NULL, *printed = NULL;
    buf_printf(out, "loco %s: %s\n\nusage: loco %s", row->name, row->text, row->name);
    if (row->positional[0])
        buf_printf(out, " [%s]", row->positional);
    buf_puts(out, " [--name value | --name=value | name=value]...\n");
    for (const struct conf_knob *k = conf_knobs; next_knob(command, &k, &heading); k++) {
        if (heading != printed)
            buf_printf(out, "\n%s\n", heading);
        printed = heading;
        const char *standard = conf_standard(command, k);
        buf_printf(out, "  --%s  ", k->name);
        conf_expected(k, out);
        if (standard)
            buf_printf(out, " (default %s)", standard);
        else
            buf_puts(out, " (required)");
        buf_printf(out, "\n      %s\n", k->doc);
    }
}

void conf_commands_help(struct buf *out)
{
    buf_puts(out, "usage: loco COMMAND [options]\n\n");
    for (int i = 0; i < CONF_COMMANDS_N; i++)
        buf_printf(out, "  %-10s %s\n", conf_command_rows[i].name, conf_command_rows[i].text);
    buf_puts(out, "\nloco COMMAND --help lists the options of a command.\n");
}

/* "train, sft (2e-5), eval (1)": the commands that take k, with defaults of their own. */
static void put_takers(const struct conf_knob *k, struct buf *out)
{
    const char *comma = "";
    for (int i = 0; i < CONF_COMMANDS_N; i++) {
        enum conf_command command = (enum conf_command)i;
        if (!conf_takes(command, k))
            continue;
        buf_printf(out, "%s%s", comma, conf_command_rows[i].name);
        if (conf_standard(command, k) != k->standard)
            buf_printf(out, " (%s)", conf_standard(command, k));
        comma = ", ";
    }
}

static void put_row(const struct conf_knob *k, struct buf *out)
{
    if (k->standard)
        buf_printf(out, "| `%s` | `%s` | ", k->name, k->standard);
    else
        buf_printf(out, "| `%s` | required | ", k->name);
    conf_expected(k, out);
    buf_printf(out, " | %s | ", k->doc);
    put_takers(k, out);
    buf_printf(out, " | %s |\n", rule_text[k->rule]);
}

void conf_markdown(struct buf *out)
{
    buf_puts(
        out,
        "# Configuration\n\n"
        "Generated from `src/conf/knobs.h`; `tests/test_conf` fails when this page is stale and "
        "says how to write it anew.\n\n"
        "Every option is a flag (`--seed 7`, `--seed=7`), a `seed=7` argument, or a line "
        "`seed: 7` of a YAML file given by `--config`. The command line wins over files, later "
        "files over earlier ones, and all over the defaults. `-` and `_` are the same in names. "
        "A flag of type true or false may stand alone and then means true. Values are read "
        "strictly: sizes are `512MiB` or `2G` (powers of 1024), absence is `none` or `auto` "
        "where the table has it, and a text that reads `none`, `true`, `false` or `null` needs "
        "quotes in YAML. An unknown name is an error.\n\n"
        "A default in brackets after a command is that command's own. The last column says what "
        "resuming from a checkpoint allows; options *of one call* are not saved in "
        "`config.yaml`.\n");
    for (const struct conf_knob *k = conf_knobs; k->name; k++) {
        if (k->commands == 0)
            buf_printf(out,
                       "\n## %s\n\n| option | default | values | meaning | commands | on resume |\n"
                       "| --- | --- | --- | --- | --- | --- |\n",
                       k->name);
        else
            put_row(k, out);
    }
    buf_puts(out, "\n## Where LoCo leaves TRL\n\nNames and defaults are those of TRL 1.16's "
                  "`GRPOConfig` and `SFTConfig`, except:\n\n| TRL 1.16 | LoCo |\n| --- | --- |\n");
    for (size_t i = 0; i < ARRAY_LEN(trl_notes); i++)
        buf_printf(out, "| %s | %s |\n", trl_notes[i].peer, trl_notes[i].text);
}

void conf_yaml(const struct conf *c, struct buf *out)
{
    const char *heading = NULL, *printed = NULL;
    buf_printf(out, "# The complete configuration of loco %s. Meanings: docs/CONFIG.md.\n",
               conf_command_name(c->command));
    for (const struct conf_knob *k = conf_knobs; next_knob(c->command, &k, &heading); k++) {
        if (k->rule == CALL)
            continue;
        if (heading != printed)
            buf_printf(out, "\n# %s\n", heading);
        printed = heading;
        buf_printf(out, "%s: ", k->name);
        conf_put(c, k, out);
        buf_putc(out, '\n');
    }
}

static bool must_agree(const struct conf_knob *k)
{
    return k->rule == SAME || k->rule == SPAN;
}

void conf_canonical(const struct conf *c, struct buf *out)
{
    for (const struct conf_knob *k = conf_knobs; k->name; k++) {
        if (!conf_takes(c->command, k) || !must_agree(k))
            continue;
        buf_printf(out, "%s: ", k->name);
        conf_put(c, k, out);
        buf_putc(out, '\n');
    }
}

/* May the run's length change? Only where no step's learning rate depends on it. */
static bool length_is_free(const struct conf *c)
{
    return c->lr_scheduler_type == CONF_LR_CONSTANT ||
           (c->lr_scheduler_type == CONF_LR_CONSTANT_WITH_WARMUP && !(c->warmup_ratio > 0));
}

int conf_resume_check(const struct conf *saved, const struct conf *now, struct err *e)
{
    ASSERT(saved->command == now->command);
    struct buf list = {0}, was = {0}, is = {0};
    int n = 0, rc = 0;
    for (const struct conf_knob *k = conf_knobs; k->name; k++) {
        if (!conf_takes(now->command, k) || !must_agree(k))
            continue;
        if (k->rule == SPAN && length_is_free(saved) && length_is_free(now))
            continue;
        buf_clear(&was);
        buf_clear(&is);
        conf_put(saved, k, &was);
        conf_put(now, k, &is);
        if (strcmp(buf_str(&was), buf_str(&is)) == 0 || ++n > 3)
            continue;
        buf_printf(&list, "%s%s was ", n > 1 ? "; " : "", k->name);
        conf_show(buf_str(&was), &list);
        buf_puts(&list, ", is ");
        conf_show(buf_str(&is), &list);
    }
    if (n > 3)
        buf_printf(&list, "; and %d more", n - 3);
    if (n > 0)
        rc =
            err_set(e, ERR_STATE,
                    "resuming needs the options the run began with: %s. Give these, or start a new "
                    "run in another output_dir",
                    buf_str(&list));
    buf_release(&list);
    buf_release(&was);
    buf_release(&is);
    return rc;
}
