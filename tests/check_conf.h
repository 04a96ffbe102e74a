/* What the tests of conf share: parsing argument lists and YAML texts, and comparing the refusal
 * with its exact text.
 */
#pragma once

#include "check.h"

#include "conf/conf.h"

/* What loco train needs at least. */
#define TRAIN_ARGS "model=m", "data=d.jsonl", "output_dir=run", "reward=exact"

/* conf_parse of the arguments listed; a NULL among them ends the list. */
#define PARSE(c, command, e, ...) parse(c, command, (const char *const[]){__VA_ARGS__, NULL}, e)

static inline int parse(struct conf *c, enum conf_command command, const char *const *argv,
                        struct err *e)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    return conf_parse(c, command, argc, argv, e);
}

static inline int read_yaml(struct conf *c, enum conf_command command, const char *text,
                            struct err *e)
{
    return conf_read_text(c, command, "run.yaml", text, strlen(text), e);
}
