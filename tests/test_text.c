/* The tokenizer: goldens of the reference on our small vocabularies, properties, streaming, and the
   tokenizer that fresh models get. */
#include "check.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "golden_text.h"

#define GOLDEN "tests/golden/text/"

static struct text *open_text(const char *path)
{
    struct text *t;
    struct err e = {0};
    check_ok(text_open(&t, path, &e), e);
    return t;
}

/* Ids of a string, against a list that ends in -1. */
static void check_ids(struct text *t, const char *s, size_t n, unsigned flags, const int32_t *want)
{
    struct text_ids ids = {0};
    text_encode(t, s, n, flags, &ids);
    size_t i = 0;
    for (; want[i] >= 0; i++) {
        assert_true(i < ids.n);
        assert_int_equal(ids.id[i], want[i]);
    }
    assert_int_equal(ids.n, i);
    text_ids_release(&ids);
}

#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})
#define NO_IDS   ((const int32_t[]){-1})

/* Replays a file of 2,000 strings; tokenizer is NULL when the lines bring their own. */
static void replay(const char *tokenizer, const char *golden)
{
    struct golden g;
    struct text *t = tokenizer ? open_text(tokenizer) : NULL;
    assert_true(golden_replay(&g, t, golden));
    if (g.wrong > 0)
        fail_msg("%s: %zu of %zu lines wrong; %s", golden, g.wrong, g.lines, g.first);
    assert_int_equal(g.lines, 2000);
    text_close(t);
}

static void qwen2_pipeline_equals_the_reference(void **state)
{
    (void)state;
    replay(GOLDEN "small-qwen2.json", GOLDEN "small-qwen2.jsonl");
}

static void llama3_pipeline_equals_the_reference(void **state)
{
    (void)state;
    replay(GOLDEN "small-llama3.json", GOLDEN "small-llama3.jsonl");
}

static void smollm2_pipeline_equals_the_reference(void **state)
{
    (void)state;
    replay(GOLDEN "small-smollm2.json", GOLDEN "small-smollm2.jsonl");
}

static void odd_added_tokens_and_merges_equal_the_reference(void **state)
{
    (void)state;
    replay(NULL, GOLDEN "odd.jsonl");
}

/* What an NFC pipeline makes of a string. */
static void check_normal(struct text *t, const char *s, const char *want)
{
    struct buf got = {0};
    struct text_ids ids = {0};
    text_encode(t, s, strlen(s), 0, &ids);
    text_decode(t, ids.id, ids.n, false, &got);
    assert_string_equal(buf_str(&got), want);
    text_ids_release(&ids);
    buf_release(&got);
}

static void normal_forms_are_those_of_unicode_9(void **state)
{
    (void)state;
    struct text *t = open_text(GOLDEN "small-qwen2.json");
    check_normal(t, "e\u0301", "\u00E9");
    check_normal(t, "q\u0301\u0323", "q\u0323\u0301");
    check_normal(t, "\u1100\u1161\u11A8", "\uAC01");
    check_normal(t, "\u0958", "\u0915\u093C");                       // Excluded from composition.
    check_normal(t, "q\u0301\u08D3", "q\u0301\u08D3");               // Ordered by Unicode 11.
    check_normal(t, "\U00011935\U00011930", "\U00011935\U00011930"); // Composed by Unicode 13.
    text_close(t);
}

/* n random bytes: mostly ASCII, some well-formed code points, some junk. */
static void random_bytes(uint64_t key, uint32_t row, struct buf *out)
{
    uint32_t n = rng_below(key, 0, row, 0, 0, 40);
    buf_clear(out);
    for (uint32_t i = 1; i <= n; i++) {
        char bytes[4];
        uint32_t what = rng_below(key, i, row, 1, 0, 8);
        uint32_t code = rng_below(key, i, row, 2, 0, what < 6 ? 0x3000 : 0x110000);
        if (what == 0 || (code >= 0xD800 && code < 0xE000))
            buf_putc(out, (char)code);
        else if (what < 4)
            buf_putc(out, (char)(0x20 + code % 0x5F));
        else
            buf_put(out, bytes, (size_t)utf8_encode(code, bytes));
    }
}

static void decoding_undoes_encoding_where_every_byte_has_a_token(void **state)
{
    (void)state;
    struct text *t = open_text(GOLDEN "small-llama3.json");
    struct buf text = {0}, want = {0}, got = {0};
    struct text_ids ids = {0};
    uint64_t key = rng_key(check_seed(), RNG_DATA);
    for (uint32_t row = 0; row < 20000; row++) {
        random_bytes(key, row, &text);
        buf_clear(&want);
        buf_clear(&got);
        ids.n = 0;
        buf_utf8_lossy(&want, buf_str(&text), text.len);
        text_encode(t, buf_str(&text), text.len, 0, &ids);
        text_decode(t, ids.id, ids.n, false, &got);
        assert_int_equal(got.len, want.len);
        assert_memory_equal(buf_str(&got), buf_str(&want), want.len);
    }
    text_ids_release(&ids);
    buf_release(&text);
    buf_release(&want);
    buf_release(&got);
    text_close(t);
}

static void pieces_of_a_stream_add_up_to_the_whole(void **state)
{
    (void)state;
    struct buf text = {0}, want = {0}, got = {0};
    uint64_t key = rng_key(check_seed(), RNG_GENERATE);
    for (uint32_t row = 0; row < 20000; row++) {
        struct text_stream s = {0};
        random_bytes(key, row, &text);
        buf_clear(&want);
        buf_clear(&got);
        buf_utf8_lossy(&want, buf_str(&text), text.len);
        for (size_t at = 0, n; at < text.len; at += n) {
            n = 1 + rng_below(key, (uint32_t)at, row, 3, 0, 4);
            n = MIN(n, text.len - at);
            text_stream_put(&s, text.data + at, n, &got);
            assert_int_equal(utf8_valid(buf_str(&got), got.len), got.len);
        }
        text_stream_end(&s, &got);
        assert_int_equal(got.len, want.len);
        assert_memory_equal(buf_str(&got), buf_str(&want), want.len);
    }
    buf_release(&text);
    buf_release(&want);
    buf_release(&got);
}

static void a_stream_shows_a_code_point_once_it_is_whole(void **state)
{
    (void)state;
    struct text_stream s = {0};
    struct buf out = {0};
    text_stream_put(&s, "a\xF0\x9F", 3, &out);
    assert_string_equal(buf_str(&out), "a");
    text_stream_put(&s, "\x98", 1, &out);
    assert_string_equal(buf_str(&out), "a");
    text_stream_put(&s, "\x80!", 2, &out);
    assert_string_equal(buf_str(&out), "a\xF0\x9F\x98\x80!");
    text_stream_put(&s, "\xE4\xB8", 2, &out);
    text_stream_end(&s, &out);
    assert_string_equal(buf_str(&out), "a\xF0\x9F\x98\x80!\xEF\xBF\xBD");
    buf_release(&out);
}

static void bytes_without_a_token_vanish(void **state)
{
    (void)state;
    struct text *t = open_text(GOLDEN "small-smollm2.json");
    check_ids(t, "\x04", 1, 0, NO_IDS);
    check_ids(t, "\x04\x06\x13\x14\x16\x1d", 6, 0, NO_IDS);
    int32_t a = text_token_id(t, "a");
    assert_true(a > 16);
    check_ids(t,
              "\x04"
              "a\x06",
              3, 0, IDS(a));
    text_close(t);
}

static void plain_text_makes_no_special_token(void **state)
{
    (void)state;
    struct text *t = open_text(GOLDEN "small-qwen2.json");
    const char *s = "<|im_end|>";
    int32_t end = text_token_id(t, s), think = text_token_id(t, "<think>");
    check_ids(t, s, strlen(s), 0, IDS(end));
    assert_true(text_is_special(t, end));
    assert_false(text_is_special(t, think));
    struct text_ids ids = {0};
    text_encode(t, s, strlen(s), TEXT_PLAIN, &ids);
    assert_true(ids.n > 1);
    for (size_t i = 0; i < ids.n; i++)
        assert_false(text_is_special(t, ids.id[i]));
    text_ids_release(&ids);
    check_ids(t, "<think>", 7, TEXT_PLAIN, IDS(think)); // Added, but not special.
    text_close(t);
}

static void wrapping_adds_what_the_post_processor_adds(void **state)
{
    (void)state;
    struct text *t = open_text(GOLDEN "small-llama3.json");
    int32_t bos = text_token_id(t, "<|begin_of_text|>"), a = text_token_id(t, "a");
    check_ids(t, "a", 1, 0, IDS(a));
    check_ids(t, "a", 1, TEXT_WRAP, IDS(bos, a));
    check_ids(t, "", 0, TEXT_WRAP, IDS(bos));
    text_close(t);
}

static void decoding_skips_special_tokens_and_ids_without_one(void **state)
{
    (void)state;
    struct text *t = open_text(GOLDEN "small-qwen2.json");
    struct buf out = {0};
    size_t n;
    int32_t ids[] = {text_token_id(t, "a"), text_token_id(t, "<|im_end|>"), text_size(t), -5,
                     text_token_id(t, "<think>")};
    text_decode(t, ids, ARRAY_LEN(ids), false, &out);
    assert_string_equal(buf_str(&out), "a<|im_end|><think>");
    buf_clear(&out);
    text_decode(t, ids, ARRAY_LEN(ids), true, &out);
    assert_string_equal(buf_str(&out), "a<think>");
    assert_null(text_token_bytes(t, text_size(t), &n));
    assert_int_equal(n, 0);
    assert_memory_equal(text_token_bytes(t, ids[1], &n), "<|im_end|>", 10);
    assert_int_equal(n, 10);
    assert_int_equal(text_token_id(t, "no such token"), -1);
    buf_release(&out);
    text_close(t);
}

/* One piece of a megabyte, and one run of marks out of order: a quadratic step would take minutes.
 */
static void long_runs_are_encoded_whole(void **state)
{
    (void)state;
    struct text *llama = open_text(GOLDEN "small-llama3.json");
    struct text *qwen = open_text(GOLDEN "small-qwen2.json");
    struct buf text = {0}, got = {0};
    struct text_ids ids = {0};
    for (int i = 0; i < 1 << 19; i++)
        buf_puts(&text, i % 3 ? "ab" : "th");
    text_encode(llama, text.data, text.len, 0, &ids);
    text_decode(llama, ids.id, ids.n, false, &got);
    assert_int_equal(got.len, text.len);
    assert_memory_equal(got.data, text.data, text.len);

    buf_clear(&text);
    buf_clear(&got);
    ids.n = 0;
    for (int i = 0; i < 1 << 17; i++)
        buf_puts(&text, "\u0301\u0323");
    text_encode(qwen, text.data, text.len, 0, &ids);
    text_decode(qwen, ids.id, ids.n, false, &got);
    assert_int_equal(got.len, text.len);
    assert_memory_equal(got.data, "\u0323\u0323", 4);
    assert_memory_equal(got.data + got.len - 4, "\u0301\u0301", 4);
    text_ids_release(&ids);
    buf_release(&text);
    buf_release(&got);
    text_close(llama);
    text_close(qwen);
}

static void a_description_names_pipeline_and_missing_bytes(void **state)
{
    (void)state;
    struct buf out = {0};
    struct text *t = open_text(GOLDEN "small-smollm2.json");
    text_describe(t, &out);
    assert_string_equal(
        buf_str(&out),
        "tokens: 2252, and 2000 merges; ids below 2252; 17 added, 17 of them special\n"
        "pipeline: as it is, digits one by one, GPT-2's pattern, byte-level BPE\n"
        "adds: nothing\n"
        "no token for 21 of the 256 bytes: text loses them, as in the reference\n");
    text_close(t);
    buf_clear(&out);
    t = open_text(GOLDEN "small-llama3.json");
    text_describe(t, &out);
    assert_string_equal(
        buf_str(&out), "tokens: 2256, and 1600 merges; ids below 2260; 4 added, 4 of them special\n"
                       "pipeline: as it is, Llama-3's pattern, whole tokens first, byte-level BPE\n"
                       "adds: <|begin_of_text|>...\n");
    text_close(t);
    buf_release(&out);
}

static void the_byte_tokenizer_maps_bytes_to_themselves(void **state)
{
    (void)state;
    struct err e = {0};
    const char *dir = check_folder();
    check_ok(text_write_bytes(dir, &e), e);
    struct text *t = open_text(dir);
    assert_int_equal(text_size(t), TEXT_BYTES_SIZE);
    check_ids(t, "a\0\n\xC3\xA9 1", 7, 0, IDS('a', 0, '\n', 0xC3, 0xA9, ' ', '1'));
    check_ids(t, "<|im_start|>x<|im_end|><|pad|>", 30, 0,
              IDS(TEXT_BYTES_START, 'x', TEXT_BYTES_END, TEXT_BYTES_PAD));
    for (int32_t id = 0; id < TEXT_BYTES_SIZE; id++)
        assert_int_equal(text_is_special(t, id), id >= TEXT_BYTES_PAD);
    assert_false(text_has_chat_template(dir));
    text_close(t);
    check_folder_remove(dir);
}

static void a_chat_template_is_seen_in_either_place(void **state)
{
    (void)state;
    static const char config[] = "{\"chat_template\": \"{{ messages }}\"}", none[] = "{}";
    struct err e = {0};
    const char *dir = check_folder();
    char *json = file_join(dir, "tokenizer_config.json");
    char *jinja = file_join(dir, "chat_template.jinja");
    assert_false(text_has_chat_template(dir));
    check_ok(file_write_atomic(json, config, strlen(config), &e), e);
    assert_true(text_has_chat_template(dir));
    check_ok(file_write_atomic(json, none, strlen(none), &e), e);
    assert_false(text_has_chat_template(dir));
    check_ok(file_write_atomic(jinja, "x", 1, &e), e);
    assert_true(text_has_chat_template(dir));
    mem_free(json);
    mem_free(jinja);
    check_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen2_pipeline_equals_the_reference),
        cmocka_unit_test(llama3_pipeline_equals_the_reference),
        cmocka_unit_test(smollm2_pipeline_equals_the_reference),
        cmocka_unit_test(odd_added_tokens_and_merges_equal_the_reference),
        cmocka_unit_test(normal_forms_are_those_of_unicode_9),
        cmocka_unit_test(decoding_undoes_encoding_where_every_byte_has_a_token),
        cmocka_unit_test(pieces_of_a_stream_add_up_to_the_whole),
        cmocka_unit_test(a_stream_shows_a_code_point_once_it_is_whole),
        cmocka_unit_test(bytes_without_a_token_vanish),
        cmocka_unit_test(plain_text_makes_no_special_token),
        cmocka_unit_test(wrapping_adds_what_the_post_processor_adds),
        cmocka_unit_test(decoding_skips_special_tokens_and_ids_without_one),
        cmocka_unit_test(long_runs_are_encoded_whole),
        cmocka_unit_test(a_description_names_pipeline_and_missing_bytes),
        cmocka_unit_test(the_byte_tokenizer_maps_bytes_to_themselves),
        cmocka_unit_test(a_chat_template_is_seen_in_either_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
