/* Tensors on disk: reading, every refusal with its message, folders and shards, conversion. */
#include "check.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "tensor/tensor.h"

#define DAMAGED ": the file is damaged, fetch or write it again"

static const char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = check_folder();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    check_folder_remove(folder);
    return 0;
}

/* folder/name in a static string. */
static const char *in_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *name, const void *data, size_t n)
{
    struct err e = {0};
    check_ok(file_write_atomic(in_folder(name), data, n, &e), e);
}

/* A file image: the header's length, the header, n_data counted bytes. */
static struct buf make_image(const char *header, size_t length, size_t n_data)
{
    struct buf b = {0};
    uint64_t n = length;
    buf_put(&b, &n, sizeof n);
    buf_puts(&b, header);
    for (size_t i = 0; i < n_data; i++)
        buf_putc(&b, (char)i);
    return b;
}

static void write_file(const char *name, const char *header, size_t n_data)
{
    struct buf b = make_image(header, strlen(header), n_data);
    write_bytes(name, b.data, b.len);
    buf_release(&b);
}

static struct tensor_set *open_file(const char *name)
{
    struct err e = {0};
    struct tensor_set *set;
    check_ok(tensor_open(&set, in_folder(name), &e), e);
    return set;
}

/* e's text is exactly "folder/NAME: text"; e is cleared. */
static void check_path_error(struct err *e, int code, const char *name, const char *text)
{
    char want[1024];
    snprintf(want, sizeof want, "%s: %s", in_folder(name), text);
    check_error(*e, code, want);
    *e = (struct err){0};
}

/* Opening folder/name fails with exactly "folder/SHOWN: text". */
static void check_refused(const char *name, int code, const char *shown, const char *text)
{
    struct err e = {0};
    struct tensor_set *set;
    assert_int_equal(tensor_open(&set, in_folder(name), &e), code);
    assert_null(set);
    check_path_error(&e, code, shown, text);
}

static void check_bytes_refused(const void *data, size_t n, const char *text)
{
    write_bytes("x.safetensors", data, n);
    check_refused("x.safetensors", ERR_FORMAT, "x.safetensors", text);
}

static void header_keys_in_any_order_give_tensors_in_the_order_of_data(void **state)
{
    (void)state;
    write_file("x.safetensors",
               "{ \"b\" : {\"data_offsets\":[4,10],\"shape\":[3],\"dtype\":\"I16\",\"other\":1},\n"
               "\"__metadata__\":{\"format\":\"pt\",\"step\":\"7\"},"
               "\"a\":{\"shape\":[],\"dtype\":\"F32\",\"data_offsets\":[0,4]},"
               "\"n\":{\"shape\":[0,5],\"dtype\":\"F64\",\"data_offsets\":[4,4]}}\r\n ",
               10);
    struct tensor_set *set = open_file("x.safetensors");
    assert_int_equal(tensor_count(set), 3);
    const char *names[] = {"a", "n", "b"};
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(tensor_at(set, i)->name, names[i]);
    const struct tensor *a = tensor_find(set, "a"), *n = tensor_find(set, "n");
    assert_int_equal(a->n_dims, 0);
    assert_int_equal(a->n_elems, 1);
    assert_int_equal(a->n_bytes, 4);
    assert_int_equal(n->n_elems, 0);
    assert_int_equal(n->shape[1], 5);
    assert_int_equal(tensor_find(set, "b")->data[0], 4);
    assert_null(tensor_find(set, "c"));
    assert_string_equal(tensor_metadata(set, "step"), "7");
    assert_null(tensor_metadata(set, "steps"));
    assert_string_equal(tensor_file_name(set, 0), "x.safetensors");
    tensor_close(set);
}

static void a_file_without_tensors_opens(void **state)
{
    (void)state;
    write_file("x.safetensors", "{}", 0);
    struct tensor_set *set = open_file("x.safetensors");
    assert_int_equal(tensor_count(set), 0);
    tensor_close(set);
}

static void header_lengths_that_cannot_be_are_refused(void **state)
{
    (void)state;
    check_bytes_refused("1234567", 7, "7 bytes, expected at least 8 and a header" DAMAGED);
    check_bytes_refused("\0\0\0\0\0\0\0\0", 8, "header, byte 0: expected a JSON object" DAMAGED);
    check_bytes_refused("\0\0\0\0\0\0\0\x80{}", 10,
                        "the first 8 bytes give a header of 9223372036854775808 bytes, at most "
                        "100000000 are allowed: this is not a safetensors file");
    check_bytes_refused("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10,
                        "the first 8 bytes give a header of 18446744073709551615 bytes, at most "
                        "100000000 are allowed: this is not a safetensors file");
    check_bytes_refused("\7\0\0\0\0\0\0\0{}", 10,
                        "the header takes 7 bytes, but only 2 follow its length" DAMAGED);
    write_bytes("empty", "", 0);
    check_refused("empty", ERR_FORMAT, "empty",
                  "0 bytes, expected at least 8 and a header" DAMAGED);
}

#define T(shape, offsets)                                                                          \
    "{\"t\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define SHAPE_BAD   "tensor 't': 'shape' is not a list of non-negative integers" DAMAGED
#define OFFSETS_BAD "tensor 't': 'data_offsets' is not a pair of non-negative integers" DAMAGED

static const struct refusal {
    const char *header;
    size_t n_data;
    int code;
    const char *text;
} refusals[] = {
    {"{\"\xff\":1}", 0, ERR_FORMAT, "header, byte 2: expected UTF-8" DAMAGED},
    {"[1]", 0, ERR_FORMAT, "header, byte 0: expected a JSON object" DAMAGED},
    {"{} x", 0, ERR_FORMAT, "header, byte 3: expected nothing after the object" DAMAGED},
    {"{}{}", 0, ERR_FORMAT, "header, byte 2: expected nothing after the object" DAMAGED},
    {"{", 0, ERR_FORMAT, "header, byte 1: expected a name in quotes" DAMAGED},
    {"{\"t\"", 0, ERR_FORMAT, "header, byte 4: expected ':'" DAMAGED},
    {"{\"t", 0, ERR_FORMAT, "header, byte 3: premature end of input near '\"t'" DAMAGED},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]} \"b\"", 0, ERR_FORMAT,
     "header, byte 53: expected ',' or '}'" DAMAGED},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},}", 0, ERR_FORMAT,
     "header, byte 53: expected a name in quotes" DAMAGED},
    {"{\"t\":1}", 0, ERR_FORMAT, "tensor 't': its entry is not an object" DAMAGED},
    {"{\"t\":null}", 0, ERR_FORMAT, "tensor 't': its entry is not an object" DAMAGED},
    {"{\"t\":{}}", 0, ERR_FORMAT, "tensor 't': 'dtype' is not a string" DAMAGED},
    {"{\"t\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, ERR_UNSUPPORTED,
     "tensor 't': dtype 'F33' is unknown: convert the file to BF16, F16 or F32"},
    {"{\"t\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, ERR_FORMAT,
     "tensor 't': its 3 elements of F4 are not a whole number of bytes" DAMAGED},
    {T("[-1]", "[0,4]"), 4, ERR_FORMAT, SHAPE_BAD},
    {T("[1.0]", "[0,4]"), 4, ERR_FORMAT, SHAPE_BAD},
    {T("1", "[0,4]"), 4, ERR_FORMAT, SHAPE_BAD},
    {T("[1]", "[-4,0]"), 4, ERR_FORMAT, OFFSETS_BAD},
    {T("[1]", "[0,4.0]"), 4, ERR_FORMAT, OFFSETS_BAD},
    {T("[1]", "[\"0\",4]"), 4, ERR_FORMAT, OFFSETS_BAD},
    {T("[1]", "[0,1e3]"), 4, ERR_FORMAT, OFFSETS_BAD},
    {T("[1]", "[0,2,4]"), 4, ERR_FORMAT, OFFSETS_BAD},
    {T("[1]", "[0]"), 4, ERR_FORMAT, OFFSETS_BAD},
    {T("[1]", "[4,0]"), 4, ERR_FORMAT,
     "tensor 't': data_offsets [4, 0] end before they begin" DAMAGED},
    {T("[2,3]", "[0,20]"), 20, ERR_FORMAT,
     "tensor 't': data_offsets [0, 20] hold 20 bytes, F32 of shape [2, 3] takes 24" DAMAGED},
    {T("[4294967296,4294967296]", "[0,4]"), 4, ERR_FORMAT,
     "tensor 't': the size of its shape exceeds 64 bits" DAMAGED},
    {T("[4611686018427387904]", "[0,0]"), 0, ERR_FORMAT,
     "tensor 't': the size of its shape exceeds 64 bits" DAMAGED},
    {T("[9223372036854775808]", "[0,4]"), 4, ERR_FORMAT,
     "header, byte 48: too big integer near '9223372036854775808'" DAMAGED},
    {T("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, ERR_UNSUPPORTED,
     "tensor 't' has more than 8 dimensions: merge some before saving it"},
    {T("[2]", "[0,8]"), 7, ERR_FORMAT,
     "tensor 't': data_offsets [0, 8] reach past the file's 7 bytes of data" DAMAGED},
    {T("[1]", "[0,4]"), 5, ERR_FORMAT, "1 bytes follow the last tensor's data" DAMAGED},
    {T("[1]", "[4,8]"), 8, ERR_FORMAT,
     "tensor 't': its data begins at 4, a hole after the data before it, which ends at 0" DAMAGED},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"u\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
     6, ERR_FORMAT,
     "tensor 'u': its data begins at 2, inside the data before it, which ends at 4" DAMAGED},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
     8, ERR_FORMAT, "tensor 't': the header lists it twice" DAMAGED},
    {"{\"t\":{\"dtype\":\"U8\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
     ERR_FORMAT, "header, byte 26: duplicate object key near '\"dtype\"'" DAMAGED},
    {"{\"a\\u0000\":1}", 0, ERR_FORMAT,
     "header, byte 10: \\u0000 is not allowed without JSON_ALLOW_NUL near '\"a\\u0000\"'" DAMAGED},
    {"{\"a\\ud800\":1}", 0, ERR_FORMAT,
     "header, byte 10: invalid Unicode '\\uD800' near '\"a\\ud800\"'" DAMAGED},
    {"{\"__metadata__\":{\"format\":1}}", 0, ERR_FORMAT,
     "__metadata__ 'format' is not a string" DAMAGED},
    {"{\"__metadata__\":[]}", 0, ERR_FORMAT,
     "header, byte 16: '__metadata__' is not an object" DAMAGED},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, ERR_FORMAT,
     "__metadata__ lists 'a' twice" DAMAGED},
    {"{\"__metadata__\":{\"a\":\"1\"},\"__metadata__\":{}}", 0, ERR_FORMAT,
     "__metadata__ stands twice in the header" DAMAGED},
    {"{\"\\u001b[31m\":1}", 0, ERR_FORMAT,
     "tensor '\\x1b[31m': its entry is not an object" DAMAGED},
};

static void headers_that_break_a_rule_are_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        const struct refusal *r = &refusals[i];
        write_file("x.safetensors", r->header, r->n_data);
        check_refused("x.safetensors", r->code, "x.safetensors", r->text);
    }
}

static void nesting_of_100000_is_refused(void **state)
{
    (void)state;
    struct buf header = {0};
    buf_puts(&header, "{\"t\":");
    for (int i = 0; i < 100000; i++)
        buf_putc(&header, '[');
    write_file("x.safetensors", header.data, 0);
    check_refused("x.safetensors", ERR_FORMAT, "x.safetensors",
                  "header, byte 2054: maximum parsing depth reached near '['" DAMAGED);
    buf_release(&header);
}

static void an_entry_of_a_megabyte_is_refused(void **state)
{
    (void)state;
    struct buf header = {0};
    buf_puts(&header, "{\"t\":[");
    for (int i = 0; i < 1000000; i++)
        buf_putc(&header, ' ');
    buf_puts(&header, "]}");
    write_file("x.safetensors", header.data, 0);
    check_refused("x.safetensors", ERR_FORMAT, "x.safetensors",
                  "header, byte 5: 't' takes more than 4096 bytes" DAMAGED);
    buf_release(&header);
}

/* Cutting a good file anywhere must be noticed. */
static void a_file_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    struct err e = {0};
    uint64_t size;
    const char *path = in_folder("x.safetensors");
    check_ok(file_copy("tests/golden/tensor/mixed.safetensors", path, &e), e);
    check_ok(file_size(path, &size, &e), e);
    while (size > 0) {
        struct tensor_set *set;
        assert_int_equal(truncate(path, (off_t)--size), 0);
        e = (struct err){0};
        assert_int_equal(tensor_open(&set, path, &e), ERR_FORMAT);
    }
}

/* A million, or as many as a sanitizer or valgrind gets through in a second or two. */
static int many(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return 20000;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return 20000;
#endif
#endif
    return check_on_valgrind() ? 20000 : 1000000;
}

static void a_million_tensors_open(void **state)
{
    (void)state;
    struct buf b = {0};
    uint64_t length = 0;
    int n = many();
    buf_put(&b, &length, sizeof length);
    for (int i = 0; i < n; i++)
        buf_printf(&b, "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                   i ? ',' : '{', i, i, i + 1);
    buf_putc(&b, '}');
    length = b.len - 8;
    memcpy(b.data, &length, sizeof length);
    for (int i = 0; i < n; i++)
        buf_putc(&b, (char)i);
    write_bytes("x.safetensors", b.data, b.len);
    buf_release(&b);
    struct tensor_set *set = open_file("x.safetensors");
    assert_int_equal(tensor_count(set), n);
    char name[16];
    snprintf(name, sizeof name, "t%d", n - 1);
    assert_int_equal(tensor_find(set, name)->data[0], (unsigned char)(n - 1));
    tensor_close(set);
}

static void get_checks_name_shape_and_dtype(void **state)
{
    (void)state;
    write_file("x.safetensors", T("[2,3]", "[0,24]"), 24);
    struct tensor_set *set = open_file("x.safetensors");
    const struct tensor *t;
    struct err e = {0};
    check_ok(tensor_get(set, "t", TENSOR_WEIGHTS, 2, (uint64_t[]){2, 3}, &t, &e), e);
    assert_int_equal(t->n_bytes, 24);
    check_ok(tensor_get(set, "t", TENSOR_WEIGHTS, 0, NULL, &t, &e), e);

    assert_int_equal(tensor_get(set, "u", TENSOR_WEIGHTS, 0, NULL, &t, &e), ERR_FORMAT);
    check_path_error(&e, ERR_FORMAT, "x.safetensors",
                     "tensor 'u' is missing: the weights do not belong to this configuration");
    tensor_get(set, "t", TENSOR_WEIGHTS, 2, (uint64_t[]){3, 2}, &t, &e);
    check_path_error(&e, ERR_FORMAT, "x.safetensors",
                     "tensor 't' has shape [2, 3], expected [3, 2]: the weights do not belong to "
                     "this configuration");
    tensor_get(set, "t", TENSOR_WEIGHTS, 1, (uint64_t[]){2}, &t, &e);
    check_path_error(&e, ERR_FORMAT, "x.safetensors",
                     "tensor 't' has shape [2, 3], expected [2]: the weights do not belong to "
                     "this configuration");
    unsigned halves = TENSOR_ONLY(TENSOR_F16) | TENSOR_ONLY(TENSOR_BF16) | TENSOR_ONLY(TENSOR_I8);
    tensor_get(set, "t", halves, 2, (uint64_t[]){2, 3}, &t, &e);
    check_path_error(&e, ERR_UNSUPPORTED, "x.safetensors",
                     "tensor 't' is F32, expected I8, F16 or BF16: convert the weights to one of "
                     "these");
    tensor_close(set);
}

static void a_file_that_shrinks_while_open_is_noticed(void **state)
{
    (void)state;
    write_file("x.safetensors", T("[2,3]", "[0,24]"), 24);
    struct tensor_set *set = open_file("x.safetensors");
    const struct tensor *t;
    struct err e = {0};
    assert_int_equal(truncate(in_folder("x.safetensors"), 20), 0);
    assert_int_equal(tensor_get(set, "t", TENSOR_WEIGHTS, 0, NULL, &t, &e), ERR_IO);
    check_path_error(&e, ERR_IO, "x.safetensors",
                     "changed from 89 to 20 bytes while open: let no other program write it");
    assert_int_equal(tensor_finite(set, tensor_find(set, "t"), &e), ERR_IO);
    tensor_close(set);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(header_keys_in_any_order_give_tensors_in_the_order_of_data),
        TEST(a_file_without_tensors_opens),
        TEST(header_lengths_that_cannot_be_are_refused),
        TEST(headers_that_break_a_rule_are_refused_by_name),
        TEST(nesting_of_100000_is_refused),
        TEST(an_entry_of_a_megabyte_is_refused),
        TEST(a_file_cut_at_any_byte_is_refused),
        TEST(a_million_tensors_open),
        TEST(get_checks_name_shape_and_dtype),
        TEST(a_file_that_shrinks_while_open_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
