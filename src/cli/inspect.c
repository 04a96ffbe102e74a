/* loco inspect: finds out what a path is, and says what it holds. The report is one JSON object;
 * a person gets it as lines, and a run's curve below.
 */
#include "cli/cli.h"

#include "base/mem.h"
#include "model/model.h"
#include "tensor/tensor.h"
#include "text/text.h"

#include <string.h>

static void set_text(json_t *o, const char *key, const char *text)
{
    json_object_set_new(o, key, json_string(text));
}

static void set_count(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static bool holds(const char *dir, const char *name)
{
    char *path = file_join(dir, name);
    bool found = file_exists(path);
    mem_free(path);
    return found;
}

/* ---- model folder ---- */

static void put_config(const struct model_config *c, json_t *o)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    json_t *eos = json_array();
    set_text(o, "family", families[c->family]);
    const struct {
        const char *key;
        int value;
    } sizes[] = {{"vocab_size", c->V},
                 {"hidden_size", c->D},
                 {"intermediate_size", c->F},
                 {"num_hidden_layers", c->L},
                 {"num_attention_heads", c->H},
                 {"num_key_value_heads", c->G},
                 {"head_dim", c->E},
                 {"max_position_embeddings", c->positions_max}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        set_count(o, sizes[i].key, (uint64_t)sizes[i].value);
    json_object_set_new(o, "rope_theta", json_real(c->rope_theta));
    set_text(o, "rope_type", c->rope_llama3 ? "llama3" : "default");
    json_object_set_new(o, "tie_word_embeddings", json_boolean(c->tied));
    for (int i = 0; i < c->n_eos; i++)
        json_array_append_new(eos, json_integer(c->eos[i]));
    json_object_set_new(o, "eos_token_id", eos);
}

static void put_sizes(const struct model_params *p, json_t *o)
{
    uint64_t n = 0;
    for (int i = 0; i < p->n; i++)
        n += (uint64_t)p->param[i].rows * (uint64_t)p->param[i].cols;
    set_count(o, "parameters", n);
    set_count(o, "weights_bytes", 2 * n);
    set_count(o, "gradient_bytes", 4 * n);
    set_count(o, "masters_and_moments_bytes", 12 * n);
}

static int see_weights(void *ctx, size_t lo, size_t n, const bf16 *data, struct err *e)
{
    (void)ctx, (void)lo, (void)n, (void)data, (void)e;
    return 0;
}

int cli_inspect_tokenizer(const char *path, int vocab_size, json_t *report, struct err *e)
{
    struct text *t;
    struct buf lines = {0};
    json_t *about = json_object();
    int rc = text_open(&t, path, e);
    if (rc == 0)
        text_describe(t, &lines);
    for (char *s = lines.data, *end; s && *s; s = end) { // "name: what it is"
        end = strchrnul(s, '\n');
        if (*end)
            *end++ = '\0';
        char *colon = strstr(s, ": ");
        if (colon)
            *colon = '\0';
        set_text(about, s, colon ? colon + 2 : "");
    }
    json_object_set_new(report, "tokenizer", about);
    if (rc == 0 && vocab_size > 0)
        rc = text_fits(t, path, vocab_size, e);
    buf_release(&lines);
    text_close(t);
    return rc;
}

int cli_inspect_model(const char *path, json_t *report, struct err *e)
{
    int rc = 0;
    struct model_config c;
    struct model_params params = {0};
    struct model_sink sink = {.weights = see_weights};
    if (!json_object_get(report, "kind"))
        set_text(report, "kind", "model folder");
    TRY(model_config_load(&c, path, e));
    model_params_init(&params, &c);
    put_config(&c, report);
    put_sizes(&params, report);
    if (holds(path, "tokenizer.json"))
        TRY(cli_inspect_tokenizer(path, c.V, report, e));
    json_object_set_new(report, "chat_template", json_boolean(text_has_chat_template(path)));
    TRY(model_load(&params, path, &sink, e));
    set_text(report, "checked",
             "weights all there, shaped as config.json says, every value finite");
fail:
    model_params_release(&params);
    return rc;
}

/* ---- what is it? ---- */

static int refuse_folder(const char *path, struct err *e)
{
    enum { SHOWN = 8 };
    char **name = NULL;
    size_t n = 0;
    struct buf list = {0};
    int rc = file_list(path, &name, &n, e);
    for (size_t i = 0; i < n; i++) {
        if (i < SHOWN)
            buf_printf(&list, "%s%.40s", i ? ", " : "", name[i]);
        mem_free(name[i]);
    }
    mem_free(name);
    if (rc == 0)
        rc = err_set(e, ERR_FORMAT,
                     "%s: no model folder (config.json), checkpoint (trainer_state.json) or "
                     "run (metrics.jsonl); it holds %s%s",
                     path, n ? buf_str(&list) : "nothing", n > SHOWN ? ", ..." : "");
    buf_release(&list);
    return rc;
}

static int inspect_folder(const char *path, json_t *report, struct buf *curve, struct err *e)
{
    if (holds(path, "trainer_state.json"))
        return cli_inspect_checkpoint(path, report, e);
    if (holds(path, "metrics.jsonl"))
        return cli_inspect_run(path, report, curve, e);
    if (holds(path, "config.json"))
        return cli_inspect_model(path, report, e);
    return refuse_folder(path, e);
}

/* By name, and by content where the name says nothing. */
static int inspect_file(const char *path, json_t *report, struct err *e)
{
    const char *name = file_base(path);
    struct file_map map;
    char start[9] = {0};
    int rc = file_map(&map, path, e);
    if (rc < 0)
        return rc;
    if (map.size > 0)
        memcpy(start, map.data, MIN(map.size, sizeof start));
    file_unmap(&map);
    if (str_ends(name, ".safetensors") || str_ends(name, ".safetensors.index.json"))
        return cli_inspect_tensors(path, report, e);
    if (strcmp(name, "tokenizer.json") == 0) {
        set_text(report, "kind", "tokenizer");
        return cli_inspect_tokenizer(path, 0, report, e);
    }
    if (str_ends(name, ".jsonl"))
        return cli_inspect_rows(path, report, e);
    if (start[8] == '{')
        return cli_inspect_tensors(path, report, e);
    if (start[0] == '{' && !str_ends(name, ".json"))
        return cli_inspect_rows(path, report, e);
    return err_set(e, ERR_FORMAT,
                   "%s: expected a .safetensors or .jsonl file, a tokenizer.json, or a "
                   "folder; for a model's %s give its folder",
                   path, str_ends(name, ".json") ? name : "files");
}

int cli_inspect(const struct conf *conf, struct err *e)
{
    int rc = 0, written = 0;
    const char *path = conf->path;
    json_t *report = json_object();
    struct buf out = {0}, curve = {0};
    set_text(report, "path", path);
    if (file_is_dir(path))
        rc = inspect_folder(path, report, &curve, e);
    else
        rc = inspect_file(path, report, e);
    // What is known is said even when the rest is broken.
    if (rc == 0 || json_object_size(report) > 2) {
        if (conf->json)
            cli_put_json(&out, report);
        else
            cli_put_report(&out, report);
        buf_puts(&out, conf->json ? "\n" : buf_str(&curve));
        written = cli_flush(&out, rc == 0 ? e : NULL);
    }
    json_decref(report);
    buf_release(&out);
    buf_release(&curve);
    return rc < 0 ? rc : written;
}
