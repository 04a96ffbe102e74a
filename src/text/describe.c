/* What a person should know of a tokenizer, and of the chat template beside it. */
#include "text/text_int.h"

#include "base/file.h"

#define CONFIG_MAX ((size_t)1 << 26) // bytes of a tokenizer_config.json

static void put_pipeline(const struct text *t, struct buf *out)
{
    static const char *const names[] = {
        [STEP_PREFIX] = "space prefixed",   [STEP_DIGITS] = "digits one by one",
        [STEP_DIGIT_RUNS] = "digits apart", [STEP_GPT2] = "GPT-2's pattern",
        [STEP_QWEN2] = "Qwen2's pattern",   [STEP_LLAMA3] = "Llama-3's pattern",
    };
    buf_puts(out, t->nfc ? "pipeline: NFC" : "pipeline: as it is");
    for (int i = 0; i < t->n_steps; i++)
        buf_printf(out, ", %s", names[t->step[i]]);
    buf_puts(out, t->bpe.ignore_merges ? ", whole tokens first, byte-level BPE\n"
                                       : ", byte-level BPE\n");
}

static void put_wrapping(const struct text *t, struct buf *out)
{
    struct buf around = {0};
    text_decode(t, t->prefix.id, t->prefix.n, false, &around);
    buf_puts(&around, "...");
    text_decode(t, t->suffix.id, t->suffix.n, false, &around);
    buf_puts(out, "adds: ");
    if (t->prefix.n + t->suffix.n > 0)
        buf_terminal(out, around.data, around.len, false);
    else
        buf_puts(out, "nothing");
    buf_putc(out, '\n');
    buf_release(&around);
}

void text_describe(const struct text *t, struct buf *out)
{
    int special = 0, missing = 0;
    for (size_t i = 0; i < t->n_added; i++)
        special += t->added[i].special;
    for (int byte = 0; byte < 256; byte++)
        missing += t->bpe.byte_id[byte] < 0;
    buf_printf(out, "tokens: %zu, and %zu merges; ids below %zu; %zu added, %d of them special\n",
               t->vocab.n, t->bpe.n_merges, t->size, t->n_added, special);
    put_pipeline(t, out);
    put_wrapping(t, out);
    if (missing > 0)
        buf_printf(out, "no token for %d of the 256 bytes: text loses them, as in the reference\n",
                   missing);
}

/* Whether the JSON object in the file has the key. A file that cannot be read has none. */
static bool file_has_key(const char *path, const char *key)
{
    char *data = NULL;
    size_t size;
    struct err ignored = {0};
    if (!file_exists(path) || file_read(path, CONFIG_MAX, &data, &size, &ignored) < 0)
        return false;
    struct buf tame = {0};
    buf_json_tame(&tame, data, size);
    json_t *root = json_loadb(buf_str(&tame), tame.len, JSON_ALLOW_NUL, NULL);
    const json_t *value = json_object_get(root, key);
    bool has = value && !json_is_null(value);
    json_decref(root);
    buf_release(&tame);
    mem_free(data);
    return has;
}

bool text_has_chat_template(const char *dir)
{
    char *jinja = file_join(dir, "chat_template.jinja");
    char *config = file_join(dir, "tokenizer_config.json");
    bool has = file_exists(jinja) || file_has_key(config, "chat_template");
    mem_free(jinja);
    mem_free(config);
    return has;
}
