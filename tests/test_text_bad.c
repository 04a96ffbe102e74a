/* Tokenizer files that are refused, each with its exact message. */
#include "check.h"

#include "base/file.h"
#include "base/mem.h"
#include "text/text.h"

#define VOCAB      "{\"a\": 0, \"b\": 1, \"ab\": 2}"
#define BPE(rest)  "{\"type\": \"BPE\", \"vocab\": " VOCAB ", \"merges\": [\"a b\"]" rest "}"
#define BYTE_LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"
#define ADDED(id, content, more)                                                                   \
    "{\"id\": " id ", \"content\": \"" content "\", \"single_word\": false, \"lstrip\": false, "   \
    "\"rstrip\": false, \"normalized\": false, \"special\": true" more "}"

/* One key of a good file replaced by a value, or added; what it says then. */
struct bad {
    const char *key, *value;
    int code;
    const char *message;
};

/* A file that is good but for key's value. */
static void build(struct buf *out, const char *key, const char *value)
{
    static const char *const good[][2] = {
        {"version", "\"1.0\""}, {"pre_tokenizer", BYTE_LEVEL}, {"decoder", BYTE_LEVEL},
        {"model", BPE("")},     {"added_tokens", "[]"},        {"post_processor", "null"},
        {"normalizer", "null"},
    };
    bool known = false;
    buf_clear(out);
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        bool replaced = key && strcmp(key, good[i][0]) == 0;
        known = known || replaced;
        buf_printf(out, "%s\"%s\": %s", i ? ", " : "{", good[i][0], replaced ? value : good[i][1]);
    }
    if (key && !known)
        buf_printf(out, ", \"%s\": %s", key, value);
    buf_puts(out, "}");
}

static void check_all(const struct bad *bad, size_t n)
{
    struct buf json = {0};
    for (size_t i = 0; i < n; i++) {
        struct text *t;
        struct err e = {0};
        build(&json, bad[i].key, bad[i].value);
        assert_int_equal(text_parse(&t, json.data, json.len, &e), bad[i].code);
        assert_null(t);
        check_error(e, bad[i].code, bad[i].message);
    }
    buf_release(&json);
}

static void the_file_they_differ_from_is_good(void **state)
{
    (void)state;
    struct buf json = {0};
    struct text *t;
    struct err e = {0};
    build(&json, NULL, NULL);
    check_ok(text_parse(&t, json.data, json.len, &e), e);
    assert_int_equal(text_size(t), 3);
    text_close(t);
    buf_release(&json);
}

#define NAMED "; LoCo reads the byte-level BPE of Qwen2, Llama-3, SmolLM2 and GPT-2"

static void unknown_components_are_named_with_their_place(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"normalizer", "{\"type\": \"NFKC\"}", ERR_UNSUPPORTED,
         "normalizer.type: 'NFKC' is not supported" NAMED},
        {"normalizer",
         "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
         "\"Lowercase\"}]}",
         ERR_UNSUPPORTED, "normalizer.normalizers[1].type: 'Lowercase' is not supported" NAMED},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Metaspace\"}, " BYTE_LEVEL "]}",
         ERR_UNSUPPORTED,
         "pre_tokenizer.pretokenizers[0].type: 'Metaspace' is not supported" NAMED},
        {"decoder", "{\"type\": \"WordPiece\"}", ERR_UNSUPPORTED,
         "decoder.type: 'WordPiece' is not supported" NAMED},
        {"decoder", "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}]}",
         ERR_UNSUPPORTED, "decoder.decoders[0].type: 'Fuse' is not supported" NAMED},
        {"post_processor", "{\"type\": \"RobertaProcessing\"}", ERR_UNSUPPORTED,
         "post_processor.type: 'RobertaProcessing' is not supported" NAMED},
        {"post_processor",
         "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"BertProcessing\"}]}",
         ERR_UNSUPPORTED,
         "post_processor.processors[0].type: 'BertProcessing' is not supported" NAMED},
        {"model", "{\"type\": \"Unigram\", \"vocab\": []}", ERR_UNSUPPORTED,
         "model.type: 'Unigram' is not supported" NAMED},
        {"normalizer", "{\"type\": 7}", ERR_FORMAT,
         "normalizer.type: is a number, expected a string"},
        {"normalizer", "[]", ERR_FORMAT, "normalizer.type: is missing, expected a string"},
    };
    check_all(bad, ARRAY_LEN(bad));
}

#define SPLIT(pattern, behavior, invert)                                                           \
    "{\"type\": \"Split\", \"pattern\": " pattern ", \"behavior\": \"" behavior                    \
    "\", \"invert\": " invert "}"

static void pre_tokenizers_other_than_the_families_are_refused(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"pre_tokenizer", "null", ERR_UNSUPPORTED,
         "pre_tokenizer: has no ByteLevel; LoCo reads only byte-level BPE"},
        {"pre_tokenizer", "{\"type\": \"Digits\", \"individual_digits\": true}", ERR_UNSUPPORTED,
         "pre_tokenizer: has no ByteLevel; LoCo reads only byte-level BPE"},
        {"pre_tokenizer", "{\"type\": \"Digits\"}", ERR_FORMAT,
         "pre_tokenizer.individual_digits: is missing, expected true or false"},
        {"pre_tokenizer", "{\"type\": \"ByteLevel\", \"add_prefix_space\": 1}", ERR_FORMAT,
         "pre_tokenizer.add_prefix_space: is a number, expected true or false"},
        {"pre_tokenizer", SPLIT("{\"Regex\": \"\\\\s+\"}", "Isolated", "false"), ERR_UNSUPPORTED,
         "pre_tokenizer.pattern: is not one of the patterns that LoCo has (of Qwen2, Llama-3, "
         "GPT-2)"},
        {"pre_tokenizer", SPLIT("{\"String\": \" \"}", "Isolated", "false"), ERR_UNSUPPORTED,
         "pre_tokenizer.pattern: is not one of the patterns that LoCo has (of Qwen2, Llama-3, "
         "GPT-2)"},
        {"pre_tokenizer", SPLIT("{\"Regex\": \"\\\\s+\"}", "Removed", "false"), ERR_UNSUPPORTED,
         "pre_tokenizer: LoCo takes only behavior \"Isolated\" with invert false"},
        {"pre_tokenizer", SPLIT("{\"Regex\": \"\\\\s+\"}", "Isolated", "true"), ERR_UNSUPPORTED,
         "pre_tokenizer: LoCo takes only behavior \"Isolated\" with invert false"},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [" BYTE_LEVEL ", {\"type\": \"Digits\", "
         "\"individual_digits\": true}]}",
         ERR_UNSUPPORTED,
         "pre_tokenizer.pretokenizers[1]: stands after ByteLevel, which must be the last"},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [" BYTE_LEVEL "," BYTE_LEVEL "]}",
         ERR_UNSUPPORTED, "pre_tokenizer.pretokenizers[1]: is a second ByteLevel"},
        {"pre_tokenizer", "{\"type\": \"Sequence\"}", ERR_FORMAT,
         "pre_tokenizer.pretokenizers: is missing, expected an array"},
        {"decoder", "null", ERR_UNSUPPORTED, "decoder: is null, expected ByteLevel"},
    };
    check_all(bad, ARRAY_LEN(bad));
}

static void keys_that_are_not_known_are_refused(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"surprise", "1", ERR_UNSUPPORTED,
         "tokenizer: key 'surprise' is unknown; LoCo knows version,truncation,padding,added_tokens,"
         "normalizer,pre_tokenizer,post_processor,decoder,model"},
        {"normalizer", "{\"type\": \"NFC\", \"form\": \"D\"}", ERR_UNSUPPORTED,
         "normalizer: key 'form' is unknown; LoCo knows type"},
        {"model", BPE(", \"cache\": 1"), ERR_UNSUPPORTED,
         "model: key 'cache' is unknown; LoCo knows type,dropout,unk_token,"
         "continuing_subword_prefix,end_of_word_suffix,fuse_unk,byte_fallback,ignore_merges,vocab,"
         "merges"},
        {"truncation", "{\"max_length\": 512}", ERR_UNSUPPORTED,
         "truncation: is set; make it null (LoCo cuts and pads by its own options)"},
        {"padding", "{}", ERR_UNSUPPORTED,
         "padding: is set; make it null (LoCo cuts and pads by its own options)"},
        {"version", "\"2.0\"", ERR_UNSUPPORTED, "version: expected \"1.0\""},
    };
    check_all(bad, ARRAY_LEN(bad));
}

#define MODEL(vocab, merges) "{\"type\": \"BPE\", \"vocab\": " vocab ", \"merges\": " merges "}"

static void broken_models_are_refused(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"model", "null", ERR_FORMAT, "model: is null, expected a BPE model"},
        {"model", "{\"type\": \"BPE\"}", ERR_FORMAT,
         "model.vocab: is missing, expected an object of token: id"},
        {"model", MODEL("{}", "[]"), ERR_FORMAT, "model.vocab: is empty, expected tokens"},
        {"model", MODEL("{\"a\": 0, \"b\": 0}", "[]"), ERR_FORMAT,
         "model.vocab['b']: is 0, which already belongs to another token"},
        {"model", MODEL("{\"a\": 1.5}", "[]"), ERR_FORMAT,
         "model.vocab['a']: is a real number, expected an integer id"},
        {"model", MODEL("{\"a\": \"1\"}", "[]"), ERR_FORMAT,
         "model.vocab['a']: is a string, expected an integer id"},
        {"model", MODEL("{\"a\": -1}", "[]"), ERR_FORMAT,
         "model.vocab['a']: is -1, expected an id in 0..4194303"},
        {"model", MODEL("{\"a\\u001b[2J\": 4194304}", "[]"), ERR_FORMAT,
         "model.vocab['a\\x1b[2J']: is 4194304, expected an id in 0..4194303"},
        {"model", MODEL(VOCAB, "null"), ERR_FORMAT, "model.merges: is null, expected an array"},
        {"model", MODEL(VOCAB, "[\"a b\", \"a\"]"), ERR_FORMAT,
         "model.merges[1]: expected a string of two tokens with one space between them"},
        {"model", MODEL(VOCAB, "[\"a b c\"]"), ERR_FORMAT,
         "model.merges[0]: expected a string of two tokens with one space between them"},
        {"model", MODEL(VOCAB, "[\"a b\", [\"a\", \"b\"]]"), ERR_FORMAT,
         "model.merges[1]: expected a string of two tokens with one space between them"},
        {"model", MODEL(VOCAB, "[[\"a\", \"b\"], \"a b\"]"), ERR_FORMAT,
         "model.merges[1]: expected a pair of strings, as the first merge is"},
        {"model", MODEL(VOCAB, "[[\"a\", \"b\", \"c\"]]"), ERR_FORMAT,
         "model.merges[0]: expected a pair of strings, as the first merge is"},
        {"model", MODEL(VOCAB, "[[\"a\", \"c\"]]"), ERR_FORMAT,
         "model.merges[0]: token 'c' is not in model.vocab"},
        {"model", MODEL(VOCAB, "[[\"b\", \"a\"]]"), ERR_FORMAT,
         "model.merges[0]: token 'ba' is not in model.vocab"},
    };
    check_all(bad, ARRAY_LEN(bad));
}

static void model_options_that_change_ids_are_refused(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"model", BPE(", \"dropout\": 0.1"), ERR_UNSUPPORTED,
         "model.dropout: is set; LoCo takes only null"},
        {"model", BPE(", \"byte_fallback\": true"), ERR_UNSUPPORTED,
         "model.byte_fallback: is true; LoCo takes only false"},
        {"model", BPE(", \"end_of_word_suffix\": \"</w>\""), ERR_UNSUPPORTED,
         "model.end_of_word_suffix: is set; LoCo takes only null or \"\""},
        {"model", BPE(", \"continuing_subword_prefix\": \"##\""), ERR_UNSUPPORTED,
         "model.continuing_subword_prefix: is set; LoCo takes only null or \"\""},
        {"model", BPE(", \"unk_token\": \"<unk>\""), ERR_FORMAT,
         "model.unk_token: '<unk>' is not in model.vocab"},
        {"model", BPE(", \"dropout\": \"0.1\""), ERR_FORMAT,
         "model.dropout: is a string, expected null"},
        {"model", BPE(", \"dropout\": true"), ERR_FORMAT, "model.dropout: is true, expected null"},
        {"model", BPE(", \"continuing_subword_prefix\": 1"), ERR_FORMAT,
         "model.continuing_subword_prefix: is a number, expected a string or null"},
        {"model", BPE(", \"end_of_word_suffix\": [\"</w>\"]"), ERR_FORMAT,
         "model.end_of_word_suffix: is an array, expected a string or null"},
        {"model", BPE(", \"unk_token\": 3"), ERR_FORMAT,
         "model.unk_token: is a number, expected a string or null"},
        {"model", BPE(", \"ignore_merges\": 1"), ERR_FORMAT,
         "model.ignore_merges: is a number, expected true or false"},
    };
    check_all(bad, ARRAY_LEN(bad));
}

static void broken_added_tokens_are_refused(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"added_tokens", "{}", ERR_FORMAT, "added_tokens: is an object, expected an array"},
        {"added_tokens", "[3]", ERR_FORMAT, "added_tokens[0]: is a number, expected an object"},
        {"added_tokens", "[" ADDED("3", "x", "") "," ADDED("3", "y", "") "]", ERR_FORMAT,
         "added_tokens[1]: id 3 already belongs to added_tokens[0]"},
        {"added_tokens", "[" ADDED("3.0", "x", "") "]", ERR_FORMAT,
         "added_tokens[0].id: is a real number, expected an integer id"},
        {"added_tokens", "[" ADDED("3", "x", ", \"color\": 1") "]", ERR_UNSUPPORTED,
         "added_tokens[0]: key 'color' is unknown; LoCo knows "
         "id,content,single_word,lstrip,rstrip,normalized,special"},
        {"added_tokens", "[{\"id\": 3, \"content\": 5}]", ERR_FORMAT,
         "added_tokens[0].content: expected a string"},
        {"added_tokens", "[{\"id\": 3, \"content\": \"\"}]", ERR_FORMAT,
         "added_tokens[0].content: expected a string that is not empty"},
        {"added_tokens", "[{\"id\": 3, \"content\": \"x\"}]", ERR_FORMAT,
         "added_tokens[0].single_word: is missing, expected true or false"},
    };
    check_all(bad, ARRAY_LEN(bad));
}

static void an_added_token_takes_nobodys_id(void **state)
{
    (void)state;
    // Three tokens, so the next id is 3 as the reference counts; but the vocabulary has a gap.
    static const char json[] =
        "{\"pre_tokenizer\": " BYTE_LEVEL ", \"decoder\": " BYTE_LEVEL
        ", \"model\": " MODEL("{\"a\": 0, \"b\": 1, \"c\": 3}",
                              "[]") ", \"added_tokens\": [" ADDED("4", "x", "") "]}";
    struct text *t;
    struct err e = {0};
    assert_int_equal(text_parse(&t, json, strlen(json), &e), ERR_FORMAT);
    check_error(e, ERR_FORMAT, "added_tokens[0]: would be id 3, which belongs to another token");
}

#define TEMPLATE(single, specials)                                                                 \
    "{\"type\": \"TemplateProcessing\", \"single\": " single ", \"pair\": [], "                    \
    "\"special_tokens\": " specials "}"
#define TOKEN      "{\"SpecialToken\": {\"id\": \"s\", \"type_id\": 0}}"
#define SEQUENCE_A "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define SEQUENCE_B "{\"Sequence\": {\"id\": \"B\", \"type_id\": 0}}"
#define S_IS(ids)  "{\"s\": {\"id\": \"s\", \"ids\": " ids ", \"tokens\": [\"s\"]}}"

static void broken_templates_are_refused(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"post_processor", TEMPLATE("[" TOKEN "]", S_IS("[0]")), ERR_FORMAT,
         "post_processor.single: expected an array that has Sequence A"},
        {"post_processor", TEMPLATE("[" SEQUENCE_A "," SEQUENCE_A "]", "{}"), ERR_UNSUPPORTED,
         "post_processor.single[1]: expected a SpecialToken or the one Sequence A"},
        {"post_processor", TEMPLATE("[" SEQUENCE_B "]", "{}"), ERR_UNSUPPORTED,
         "post_processor.single[0]: expected a SpecialToken or the one Sequence A"},
        {"post_processor", TEMPLATE("[" TOKEN "," SEQUENCE_A "]", "{}"), ERR_FORMAT,
         "post_processor.single[0]: names a token that special_tokens does not have"},
        {"post_processor", TEMPLATE("[" TOKEN "," SEQUENCE_A "]", S_IS("[0, 3]")), ERR_FORMAT,
         "post_processor.single[0]: ids[1] of its special_tokens entry: is 3, and no token has "
         "this id"},
        {"post_processor",
         "{\"type\": \"Sequence\", \"processors\": [" TEMPLATE(
             "[" TOKEN "," SEQUENCE_A "]", S_IS("[0]")) "," TEMPLATE("[" SEQUENCE_A "]", "{}") "]}",
         ERR_UNSUPPORTED, "post_processor.processors[1]: is a second TemplateProcessing"},
    };
    check_all(bad, ARRAY_LEN(bad));
}

static void what_is_no_json_is_refused_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
    } bad[] = {
        {"", "line 1, column 0: '[' or '{' expected near end of file; expected JSON"},
        {"[]", "tokenizer: is an array, expected an object"},
        {"{\n\"model\": ", "line 2, column 9: unexpected token near end of file; expected JSON"},
        {"{\"model\": 1, \"model\": 2}",
         "line 1, column 20: duplicate object key near '\"model\"'; expected JSON"},
        {"{\"a\xff\": 1}",
         "line 1, column 3: unable to decode byte 0xff near '\"a'; expected JSON"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct text *t;
        struct err e = {0};
        assert_int_equal(text_parse(&t, bad[i].json, strlen(bad[i].json), &e), ERR_FORMAT);
        check_error(e, ERR_FORMAT, bad[i].message);
    }
}

static void a_message_starts_with_the_file(void **state)
{
    (void)state;
    struct text *t;
    struct err e = {0};
    char want[512];
    const char *dir = check_folder();
    char *path = file_join(dir, "tokenizer.json");
    check_ok(file_write_atomic(path, "[]", 2, &e), e);
    assert_int_equal(text_open(&t, dir, &e), ERR_FORMAT);
    snprintf(want, sizeof want, "%s: tokenizer: is an array, expected an object", path);
    check_error(e, ERR_FORMAT, want);
    e = (struct err){0};
    check_ok(file_remove(path, &e), e);
    assert_int_equal(text_open(&t, dir, &e), ERR_IO);
    snprintf(want, sizeof want,
             "%s: has no tokenizer.json; save its tokenizer with transformers, which writes one",
             dir);
    check_error(e, ERR_IO, want);
    mem_free(path);
    check_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_they_differ_from_is_good),
        cmocka_unit_test(unknown_components_are_named_with_their_place),
        cmocka_unit_test(pre_tokenizers_other_than_the_families_are_refused),
        cmocka_unit_test(keys_that_are_not_known_are_refused),
        cmocka_unit_test(broken_models_are_refused),
        cmocka_unit_test(model_options_that_change_ids_are_refused),
        cmocka_unit_test(broken_added_tokens_are_refused),
        cmocka_unit_test(an_added_token_takes_nobodys_id),
        cmocka_unit_test(broken_templates_are_refused),
        cmocka_unit_test(what_is_no_json_is_refused_with_its_line),
        cmocka_unit_test(a_message_starts_with_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
