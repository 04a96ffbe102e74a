/* The tokenizer of a fresh model: every byte is a token, nothing is merged, three tokens are
   special. transformers opens it as a PreTrainedTokenizerFast. */
#include "text/text_int.h"

#include "base/file.h"

#include <string.h>

static const char *const specials[] = {"<|pad|>", "<|im_start|>", "<|im_end|>"};

static void put_added(struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(specials); i++)
        buf_printf(
            out,
            "%s\n    {\"id\": %zu, \"content\": \"%s\", \"single_word\": false, "
            "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}",
            i ? "," : "", TEXT_BYTES_PAD + i, specials[i]);
}

static void put_vocab(struct buf *out)
{
    for (int byte = 0; byte < 256; byte++) {
        char raw = (char)byte;
        struct buf content = {0};
        text_alphabet_spell(&raw, 1, &content);
        buf_puts(out, byte == 0 ? "\n      " : byte % 8 == 0 ? ",\n      " : ", ");
        buf_json(out, content.data, content.len);
        buf_printf(out, ": %d", byte);
        buf_release(&content);
    }
}

static int write_json(const char *dir, const char *name, const struct buf *b, struct err *e)
{
    char *path = file_join(dir, name);
    int rc = file_write_atomic(path, b->data, b->len, e);
    mem_free(path);
    return rc;
}

int text_write_bytes(const char *dir, struct err *e)
{
    int rc = 0;
    struct buf model = {0}, config = {0};
    buf_puts(&model, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                     "  \"added_tokens\": [");
    put_added(&model);
    buf_puts(&model,
             "\n  ],\n  \"normalizer\": null,\n"
             "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
             "\"trim_offsets\": true, \"use_regex\": false},\n  \"post_processor\": null,\n"
             "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
             "\"trim_offsets\": true, \"use_regex\": false},\n"
             "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
             "    \"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n"
             "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
             "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {");
    put_vocab(&model);
    buf_puts(&model, "\n    },\n    \"merges\": []\n  }\n}\n");
    buf_printf(&config,
               "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"bos_token\": null,\n"
               "  \"eos_token\": \"%s\",\n  \"pad_token\": \"%s\",\n  \"unk_token\": null,\n"
               "  \"clean_up_tokenization_spaces\": false\n}\n",
               specials[TEXT_BYTES_END - TEXT_BYTES_PAD], specials[0]);
    TRY(write_json(dir, "tokenizer.json", &model, e));
    TRY(write_json(dir, "tokenizer_config.json", &config, e));
fail:
    buf_release(&model);
    buf_release(&config);
    return rc;
}
