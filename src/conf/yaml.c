/* YAML over a configuration: one mapping of names to plain values or lists of them, read by
 * libyaml's events. Anything more (nesting, anchors, tags, several documents) has no meaning here
 * and is refused where it stands.
 */
#include "conf/conf_int.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { FILE_BYTES_MAX = 1 << 20 };

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; // Current; owned while has_event.
    bool has_event;
    struct conf *c;
    struct conf_place at;   // of the current event
    int seen[CONF_KNOBS_N]; // Line on which conf_knobs[i] was given, 0: not yet.
};

static void drop_event(struct reader *r)
{
    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = false;
}

static int next_event(struct reader *r, struct err *e)
{
    drop_event(r);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        const char *problem = r->parser.problem ? r->parser.problem : "it cannot be read";
        return err_set(e, ERR_FORMAT, "%s:%d: not YAML: %s", r->at.file,
                       (int)r->parser.problem_mark.line + 1, problem);
    }
    r->has_event = true;
    r->at.line = (int)r->event.start_mark.line + 1;
    return 0;
}

static const char *event_noun(yaml_event_type_t type)
{
    switch (type) {
    case YAML_MAPPING_START_EVENT:
        return "a mapping";
    case YAML_SEQUENCE_START_EVENT:
        return "a list";
    case YAML_ALIAS_EVENT:
        return "an alias";
    case YAML_SCALAR_EVENT:
        return "a value";
    default:
        return "nothing";
    }
}

/* The current event's scalar. Refuses tags, anchors and NULs. */
static int scalar_text(struct reader *r, const char *what, const char **text, bool *quoted,
                       struct err *e)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return conf_refuse(r->at, e, "%s: expected one value, got %s", what,
                           event_noun(r->event.type));
    if (r->event.data.scalar.anchor || r->event.data.scalar.tag)
        return conf_refuse(r->at, e, "%s: anchors and tags have no meaning here", what);
    *text = (const char *)r->event.data.scalar.value;
    *quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (strlen(*text) != r->event.data.scalar.length)
        return conf_refuse(r->at, e, "%s: a NUL inside a value", what);
    return 0;
}

static int read_list(struct reader *r, const struct conf_knob *k, struct err *e)
{
    int rc = 0;
    struct conf_place at = r->at;
    char **item = NULL;
    size_t n = 0, cap = 0;
    const char *text;
    bool quoted;
    if (k->kind != NAMES && k->kind != REALS)
        TRY(scalar_text(r, k->name, &text, &quoted, e));
    for (;;) {
        TRY(next_event(r, e));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        TRY(scalar_text(r, k->name, &text, &quoted, e));
        mem_grow(&item, &cap, n + 1, sizeof *item);
        item[n++] = mem_strdup(text);
    }
    rc = conf_set_list(r->c, k, item, (int)n, at, e);
fail:
    for (size_t i = 0; i < n; i++)
        mem_free(item[i]);
    mem_free(item);
    return rc;
}

/* One "name: value" whose name is the current event. */
static int read_pair(struct reader *r, struct err *e)
{
    const struct conf_knob *k;
    const char *text;
    bool quoted;
    int rc = 0;
    TRY(scalar_text(r, "a name", &text, &quoted, e));
    TRY(conf_knob_find(r->c->command, text, r->at, &k, e));
    if (k == conf_knob_of("config"))
        TRY(conf_refuse(r->at, e, "config: a file does not name another; give --config twice"));
    int *seen = &r->seen[k - conf_knobs];
    if (*seen)
        TRY(conf_refuse(r->at, e, "%s: given twice, first in line %d", k->name, *seen));
    *seen = r->at.line;
    TRY(next_event(r, e));
    if (r->event.type == YAML_SEQUENCE_START_EVENT)
        return read_list(r, k, e);
    TRY(scalar_text(r, k->name, &text, &quoted, e));
    return conf_set(r->c, k, text, quoted, r->at, e);
fail:
    return rc;
}

static int read_document(struct reader *r, struct err *e)
{
    int rc = 0;
    TRY(next_event(r, e)); // stream start
    TRY(next_event(r, e));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return 0;
    TRY(next_event(r, e));
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return conf_refuse(r->at, e, "expected lines of 'name: value', got %s",
                           event_noun(r->event.type));
    for (;;) {
        TRY(next_event(r, e));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            break;
        TRY(read_pair(r, e));
    }
    TRY(next_event(r, e)); // document end
    TRY(next_event(r, e));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return conf_refuse(r->at, e, "a second document; a configuration is one");
    return 0;
fail:
    return rc;
}

int conf_yaml_over(struct conf *c, const char *name, const char *text, size_t n, struct err *e)
{
    struct reader r = {.c = c, .at = {name, 1}};
    if (!yaml_parser_initialize(&r.parser))
        err_die(ERR_MEMORY, "out of memory");
    size_t mark = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; // of byte order
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text + mark, n - mark);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    int rc = read_document(&r, e);
    drop_event(&r);
    yaml_parser_delete(&r.parser);
    return rc;
}

int conf_yaml_file_over(struct conf *c, const char *path, struct err *e)
{
    char *text = NULL;
    size_t n = 0;
    int rc = file_read(path, FILE_BYTES_MAX, &text, &n, e);
    if (rc == 0)
        rc = conf_yaml_over(c, path, text, n, e);
    mem_free(text);
    return rc;
}
