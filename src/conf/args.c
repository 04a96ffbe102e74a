/* The command line over a configuration: --name value, --name=value, name=value, and the bare
 * argument that a few commands take. Files of --config are read before anything else is set.
 */
#include "conf/conf_int.h"

#include "base/mem.h"

#include <string.h>

static const struct conf_place here = {NULL, 0};

struct arg {
    const struct conf_knob *k;
    const char *value; // Borrowed from argv, or a literal.
};

/* Length of a name before '=' in a, or 0: what looks like a path is no name. */
static size_t name_before_equals(const char *a)
{
    size_t n = strspn(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return a[n] == '=' ? n : 0;
}

/* Value of an option that had no '=': the next argument, except after a BOOL, which alone is true.
 */
static int value_after(const struct conf_knob *k, int argc, const char *const argv[], int *i,
                       const char **value, struct err *e)
{
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    bool truth;
    if (k->kind == BOOL && !(next && conf_is_bool(next, &truth))) {
        *value = "true";
        return 0;
    }
    if (!next || str_starts(next, "--")) {
        struct buf expected = {0};
        conf_expected(k, &expected);
        int rc = conf_refuse(here, e, "%s: a value is missing, expected %s", k->name,
                             buf_str(&expected));
        buf_release(&expected);
        return rc;
    }
    *value = next;
    ++*i;
    return 0;
}

/* The bare argument's knob, which none of the n arguments before it is about. */
static int read_bare(enum conf_command command, const char *text, const struct arg *before, int n,
                     const struct conf_knob **k, struct err *e)
{
    const char *name = conf_command_rows[command].positional;
    bool is_taken = text[0] != '-' && name[0];
    *k = is_taken ? conf_knob_of(name) : NULL;
    for (int i = 0; i < n && is_taken; i++)
        is_taken = before[i].k != *k;
    if (is_taken)
        return 0;
    struct buf shown = {0};
    conf_show(text, &shown);
    int rc = *k ? conf_refuse(here, e, "unexpected argument '%s'; %s is given already, and is one",
                              buf_str(&shown), name)
                : conf_refuse(here, e,
                              "unexpected argument '%s'; options are --name value or name=value",
                              buf_str(&shown));
    buf_release(&shown);
    return rc;
}

/* Reads the option at argv[*i] into all[n_all] and steps over it. */
static int read_arg(enum conf_command command, int argc, const char *const argv[], int *i,
                    struct arg *all, int n_all, struct err *e)
{
    int rc = 0;
    struct arg *arg = &all[n_all];
    const char *text = argv[*i];
    const char *name = str_starts(text, "--") ? text + 2 : text;
    size_t n = name_before_equals(name);
    char *copy = n > 0 ? mem_strndup(name, n) : mem_strdup(name);
    if (name == text && n == 0) {
        arg->value = text;
        TRY(read_bare(command, text, all, n_all, &arg->k, e));
    } else {
        TRY(conf_knob_find(command, copy, here, &arg->k, e));
        if (n > 0)
            arg->value = name + n + 1;
        else
            TRY(value_after(arg->k, argc, argv, i, &arg->value, e));
    }
    ++*i;
fail:
    mem_free(copy);
    return rc;
}

static int apply(struct conf *c, const struct arg *arg, int n, struct err *e)
{
    int rc = 0;
    const struct conf_knob *config = conf_knob_of("config");
    for (int i = 0; i < n; i++) {
        if (arg[i].k != config)
            continue;
        TRY(conf_set(c, config, arg[i].value, false, here, e));
        if (c->config)
            TRY(conf_yaml_file_over(c, c->config, e));
    }
    for (int i = 0; i < n; i++)
        TRY(conf_set(c, arg[i].k, arg[i].value, false, here, e));
fail:
    return rc;
}

int conf_parse(struct conf *c, enum conf_command command, int argc, const char *const argv[],
               struct err *e)
{
    int rc = 0, n = 0;
    struct arg *arg = mem_calloc((size_t)argc + 1, sizeof *arg);
    conf_start(c, command);
    for (int i = 0; i < argc; i++)
        c->help = c->help || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    for (int i = 0; i < argc && !c->help; n++)
        TRY(read_arg(command, argc, argv, &i, arg, n, e));
    if (!c->help) {
        TRY(apply(c, arg, n, e));
        TRY(conf_finish(c, e));
    }
    mem_free(arg);
    return 0;
fail:
    mem_free(arg);
    conf_release(c);
    return rc;
}

int conf_read(struct conf *c, enum conf_command command, const char *path, struct err *e)
{
    int rc = 0;
    conf_start(c, command);
    TRY(conf_yaml_file_over(c, path, e));
    TRY(conf_finish(c, e));
    return 0;
fail:
    conf_release(c);
    return rc;
}

int conf_read_text(struct conf *c, enum conf_command command, const char *name, const char *text,
                   size_t n, struct err *e)
{
    int rc = 0;
    conf_start(c, command);
    TRY(conf_yaml_over(c, name, text, n, e));
    TRY(conf_finish(c, e));
    return 0;
fail:
    conf_release(c);
    return rc;
}
