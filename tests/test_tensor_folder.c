/* Tensors on disk: model folders and their index, the writer's bytes, shards, NaN. */
#include "check.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "tensor/tensor.h"

#define DAMAGED ": the file is damaged, fetch or write it again"
#define INDEX   "model.safetensors.index.json"
#define GOLDEN  "tests/golden/tensor/mixed.safetensors"

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

/* folder/name in one of a few static strings. */
static const char *in_folder(const char *name)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void write_text(const char *name, const char *text)
{
    struct err e = {0};
    check_ok(file_write_atomic(in_folder(name), text, strlen(text), &e), e);
}

static void check_same_file(const char *path, const char *want_path)
{
    struct err e = {0};
    char *data, *want;
    size_t size, want_size;
    check_ok(file_read(path, 1 << 20, &data, &size, &e), e);
    check_ok(file_read(want_path, 1 << 20, &want, &want_size, &e), e);
    assert_int_equal(size, want_size);
    assert_memory_equal(data, want, size);
    mem_free(data);
    mem_free(want);
}

/* A source that holds a whole tensor. */
static struct tensor_source source_of(const struct tensor *t)
{
    struct tensor_source s = {
        .name = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .data = t->data};
    memcpy(s.shape, t->shape, sizeof s.shape);
    return s;
}

static struct tensor_source floats(const char *name, const float *data, uint64_t n)
{
    return (struct tensor_source){
        .name = name, .dtype = TENSOR_F32, .n_dims = 1, .shape = {n}, .data = data};
}

static int fill_from_pointer(void *ctx, uint64_t lo, uint64_t hi, void *out, struct err *e)
{
    (void)e;
    const struct tensor *t = ctx;
    size_t size = (size_t)tensor_dtype_bits(t->dtype) / 8;
    memcpy(out, t->data + lo * size, (hi - lo) * size);
    return 0;
}

static void a_file_of_the_reference_writer_is_written_again_byte_for_byte(void **state)
{
    (void)state;
    struct err e = {0};
    struct tensor_set *set;
    struct tensor_source sources[16];
    check_ok(tensor_open(&set, GOLDEN, &e), e);
    size_t n = tensor_count(set);
    assert_int_equal(n, 12);
    for (size_t i = 0; i < n; i++) { // Backwards: order is the writer's matter.
        sources[i] = source_of(tensor_at(set, n - 1 - i));
        if (i % 2) {
            sources[i].data = NULL;
            sources[i].fill = fill_from_pointer;
            sources[i].ctx = (void *)(uintptr_t)tensor_at(set, n - 1 - i);
        }
    }
    check_ok(tensor_write(in_folder("out"), sources, n, NULL, 0, &e), e);
    check_same_file(in_folder("out"), GOLDEN);
    tensor_close(set);
}

static void golden_values_are_read_exactly(void **state)
{
    (void)state;
    struct err e = {0};
    struct tensor_set *set;
    float x[6];
    check_ok(tensor_open(&set, GOLDEN, &e), e);
    const char *counted[] = {"z.weight", "a.weight", "b.bias"};
    for (size_t k = 0; k < 3; k++) {
        const struct tensor *t = tensor_find(set, counted[k]);
        tensor_to_float(t, 0, t->n_elems, x);
        for (size_t i = 0; i < t->n_elems; i++)
            assert_true(x[i] == (float)i);
    }
    tensor_to_float(tensor_find(set, "scalar"), 0, 1, x);
    assert_true(x[0] == -1.5f);
    assert_non_null(tensor_find(set, "quote\"\\\t\x1f"));
    assert_non_null(tensor_find(set, "gr\xc3\xb6\xc3\x9f"
                                     "e"));
    for (size_t i = 0; i < tensor_count(set); i++)
        check_ok(tensor_finite(set, tensor_at(set, i), &e), e);
    tensor_close(set);
}

static void metadata_of_the_caller_follows_the_format(void **state)
{
    (void)state;
    struct err e = {0};
    struct tensor_set *set;
    struct tensor_meta meta[] = {{"step", "12"}, {"run", "a\"b"}};
    check_ok(tensor_write(in_folder("x"), NULL, 0, meta, 2, &e), e);
    check_ok(tensor_open(&set, in_folder("x"), &e), e);
    assert_string_equal(tensor_metadata(set, "format"), "pt");
    assert_string_equal(tensor_metadata(set, "step"), "12");
    assert_string_equal(tensor_metadata(set, "run"), "a\"b");
    tensor_close(set);
}

static int fill_with_failure(void *ctx, uint64_t lo, uint64_t hi, void *out, struct err *e)
{
    (void)ctx;
    memset(out, 0, (hi - lo) * sizeof(float));
    return lo == 0 ? 0 : err_set(e, ERR_IO, "the source ran dry");
}

static void a_source_that_fails_leaves_no_file(void **state)
{
    (void)state;
    struct err e = {0};
    char **names;
    size_t n;
    struct tensor_source s = floats("t", NULL, 1 << 20);
    s.fill = fill_with_failure;
    assert_int_equal(tensor_write(in_folder("x"), &s, 1, NULL, 0, &e), ERR_IO);
    check_error(e, ERR_IO, "the source ran dry");
    e = (struct err){0};
    check_ok(file_list(folder, &names, &n, &e), e);
    assert_int_equal(n, 0);
    mem_free(names);
}

static void a_full_disk_leaves_no_file(void **state)
{
    (void)state;
    struct err e = {0};
    char **names, want[1024];
    size_t n;
    float x = 1;
    struct tensor_source s = floats("t", &x, 1);
    check_ok(file_fault_plan("enospc:here:1", &e), e);
    file_fault_point("here");
    assert_int_equal(tensor_write(in_folder("x"), &s, 1, NULL, 0, &e), ERR_IO);
    snprintf(want, sizeof want, "%s: cannot write: No space left on device", in_folder("x"));
    check_error(e, ERR_IO, want);
    e = (struct err){0};
    check_ok(file_list(folder, &names, &n, &e), e);
    assert_int_equal(n, 0);
    mem_free(names);
}

static void shards_fill_in_order_and_read_back_through_their_index(void **state)
{
    (void)state;
    struct err e = {0};
    float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct tensor_source s[] = {floats("d", data, 2), floats("c", data + 2, 1),
                                floats("big", data, 8), floats("a", data + 3, 3)};
    struct tensor_set *set;
    check_ok(tensor_write_model(folder, s, ARRAY_LEN(s), 12, &e), e);
    const char *names[] = {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                           "model-00003-of-00003.safetensors", INDEX};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char *bytes;
        size_t size;
        check_ok(file_read(in_folder(names[i]), 1 << 20, &bytes, &size, &e), e);
        if (i == 3)
            assert_string_equal(bytes, "{\n  \"metadata\": {\n    \"total_size\": 56\n  },\n"
                                       "  \"weight_map\": {\n"
                                       "    \"a\": \"model-00003-of-00003.safetensors\",\n"
                                       "    \"big\": \"model-00002-of-00003.safetensors\",\n"
                                       "    \"c\": \"model-00001-of-00003.safetensors\",\n"
                                       "    \"d\": \"model-00001-of-00003.safetensors\"\n  }\n}\n");
        mem_free(bytes);
    }
    const char *ways[] = {folder, in_folder(INDEX)};
    for (size_t i = 0; i < 2; i++) {
        float x[3];
        check_ok(tensor_open(&set, ways[i], &e), e);
        assert_int_equal(tensor_count(set), 4);
        assert_int_equal(tensor_file_count(set), 3);
        tensor_to_float(tensor_find(set, "a"), 0, 3, x);
        assert_true(x[0] == 3 && x[2] == 5);
        assert_string_equal(tensor_at(set, 1)->name, "big");
        tensor_close(set);
    }
}

static void a_model_below_the_limit_is_one_file(void **state)
{
    (void)state;
    struct err e = {0};
    float data[2] = {1, 2};
    struct tensor_source s[] = {floats("a", data, 1), floats("b", data, 2)};
    struct tensor_set *set;
    check_ok(tensor_write_model(folder, s, 2, 0, &e), e);
    assert_true(file_exists(in_folder("model.safetensors")));
    write_text(INDEX, "not read");
    check_ok(tensor_open(&set, folder, &e), e);
    assert_int_equal(tensor_count(set), 2);
    tensor_close(set);
}

/* A folder with one-tensor shards s1 (a), s2 (b) and this index is refused with "PATH: text". */
static void check_index_refused(const char *index, int code, const char *path, const char *text)
{
    struct err e = {0};
    float data[2] = {1, 2};
    char want[1024];
    struct tensor_set *set;
    struct tensor_source a = floats("a", data, 1), b = floats("b", data, 1);
    check_ok(tensor_write(in_folder("s1"), &a, 1, NULL, 0, &e), e);
    check_ok(tensor_write(in_folder("s2"), &b, 1, NULL, 0, &e), e);
    write_text(INDEX, index);
    assert_int_equal(tensor_open(&set, folder, &e), code);
    snprintf(want, sizeof want, "%s: %s", path, text);
    check_error(e, code, want);
}

static void an_index_that_disagrees_with_its_shards_is_refused(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s", in_folder(INDEX));
    struct {
        const char *index, *text;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\"}}",
         "tensor 'b' is not in shard s1, where the index puts it" DAMAGED},
        {"{\"weight_map\":{\"a\":\"s1\",\"c\":\"s2\"}}",
         "tensor 'c' is not in shard s2, where the index puts it" DAMAGED},
        {"{\"weight_map\":{\"a\":\"s1\",\"a\":\"s1\"}}",
         "tensor 'a': the index lists it twice" DAMAGED},
        {"{\"weight_map\":{\"a\":\"../s1\"}}", "tensor 'a': shard '../s1' is not a plain file "
                                               "name: shards lie in the index's own folder"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}",
         "tensor 'a': shard '/etc/passwd' is not a plain file name: shards lie in the index's own "
         "folder"},
        {"{\"weight_map\":{\"a\":\"..\"}}",
         "tensor 'a': shard '..' is not a plain file name: shards lie in the index's own folder"},
        {"{\"weight_map\":{\"a\":1}}", "tensor 'a': its shard is not a string" DAMAGED},
        {"{\"weight_map\":[]}", "index, byte 14: 'weight_map' is not an object" DAMAGED},
        {"{\"weight_map\":{\"a\":\"s1\"},\"weight_map\":{\"b\":\"s2\"}}",
         "weight_map stands twice in the index" DAMAGED},
        {"{\"metadata\":{}}", "'weight_map' is missing or empty" DAMAGED},
        {"{\"weight_map\":{}}", "'weight_map' is missing or empty" DAMAGED},
        {"[]", "index, byte 0: expected a JSON object" DAMAGED},
        {"{\"weight_map\":{\"a\":\"s1\"}} x",
         "index, byte 26: expected nothing after the object" DAMAGED},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_index_refused(cases[i].index, ERR_FORMAT, path, cases[i].text);
    check_index_refused("{\"weight_map\":{\"a\":\"s1\",\"b\":\"s3\"}}", ERR_IO, folder,
                        "shard 's3' is named in " INDEX
                        " but is not there: fetch it into this folder");
}

static void a_tensor_that_the_index_leaves_out_is_refused(void **state)
{
    (void)state;
    struct err e = {0};
    float data[2] = {1, 2};
    char want[1024];
    struct tensor_set *set;
    struct tensor_source both[] = {floats("a", data, 1), floats("b", data, 1)};
    check_ok(tensor_write(in_folder("s1"), both, 2, NULL, 0, &e), e);
    check_ok(tensor_write(in_folder("s2"), both + 1, 1, NULL, 0, &e), e);
    write_text(INDEX, "{\"weight_map\":{\"a\":\"s1\"}}");
    assert_int_equal(tensor_open(&set, folder, &e), ERR_FORMAT);
    snprintf(want, sizeof want, "%s: tensor 'b' is in shard s1, but the index does not list it%s",
             in_folder(INDEX), DAMAGED);
    check_error(e, ERR_FORMAT, want);
    e = (struct err){0};
    write_text(INDEX, "{\"weight_map\":{\"a\":\"s1\",\"b\":\"s2\"}}");
    assert_int_equal(tensor_open(&set, folder, &e), ERR_FORMAT);
    snprintf(want, sizeof want, "%s: tensor 'b' is in shard s1, but the index puts it elsewhere%s",
             in_folder(INDEX), DAMAGED);
    check_error(e, ERR_FORMAT, want);
}

static void a_folder_without_weights_is_refused(void **state)
{
    (void)state;
    struct err e = {0};
    struct tensor_set *set;
    char want[1024];
    assert_int_equal(tensor_open(&set, folder, &e), ERR_IO);
    snprintf(want, sizeof want,
             "%s: neither model.safetensors nor " INDEX
             " is in this folder: give a Hugging Face model folder with safetensors weights",
             folder);
    check_error(e, ERR_IO, want);
}

static void the_first_nan_or_infinity_is_named(void **state)
{
    (void)state;
    struct err e = {0};
    static float data[1500];
    char want[1024];
    struct tensor_set *set;
    struct tensor_source s = floats("layer.weight", data, 1500);
    data[1400] = (float)INFINITY;
    data[1401] = (float)NAN;
    check_ok(tensor_write(in_folder("x"), &s, 1, NULL, 0, &e), e);
    check_ok(tensor_open(&set, in_folder("x"), &e), e);
    assert_int_equal(tensor_finite(set, tensor_at(set, 0), &e), ERR_NUMERIC);
    snprintf(
        want, sizeof want,
        "%s: tensor 'layer.weight' is NaN or infinite at element 1400: these weights cannot be "
        "used, fetch them again or go back to an older checkpoint",
        in_folder("x"));
    check_error(e, ERR_NUMERIC, want);
    tensor_close(set);
}

static void nan_is_found_in_every_float_dtype_and_nowhere_else(void **state)
{
    (void)state;
    const uint64_t ones = UINT64_MAX, largest = 0x7feffffffffffffe;
    const uint16_t bf16_max = 0x7f7f, f16_max = 0xfbff, f16_inf = 0xfc00, bf16_inf = 0xff80;
    const struct {
        enum tensor_dtype dtype;
        const void *data;
        int code;
    } cases[] = {
        {TENSOR_F64, &ones, ERR_NUMERIC},
        {TENSOR_F64, &largest, 0},
        {TENSOR_BF16, &bf16_inf, ERR_NUMERIC},
        {TENSOR_BF16, &bf16_max, 0},
        {TENSOR_F16, &f16_inf, ERR_NUMERIC},
        {TENSOR_F16, &f16_max, 0},
        {TENSOR_I64, &ones, 0},
        {TENSOR_BOOL, &ones, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = {0};
        struct tensor_set *set;
        struct tensor_source s = {.name = "t", .dtype = cases[i].dtype, .data = cases[i].data};
        check_ok(tensor_write(in_folder("x"), &s, 1, NULL, 0, &e), e);
        check_ok(tensor_open(&set, in_folder("x"), &e), e);
        assert_int_equal(tensor_finite(set, tensor_at(set, 0), &e), cases[i].code);
        tensor_close(set);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_of_the_reference_writer_is_written_again_byte_for_byte),
        TEST(golden_values_are_read_exactly),
        TEST(metadata_of_the_caller_follows_the_format),
        TEST(a_source_that_fails_leaves_no_file),
        TEST(a_full_disk_leaves_no_file),
        TEST(shards_fill_in_order_and_read_back_through_their_index),
        TEST(a_model_below_the_limit_is_one_file),
        TEST(an_index_that_disagrees_with_its_shards_is_refused),
        TEST(a_tensor_that_the_index_leaves_out_is_refused),
        TEST(a_folder_without_weights_is_refused),
        TEST(the_first_nan_or_infinity_is_named),
        TEST(nan_is_found_in_every_float_dtype_and_nowhere_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
