/* Files: read, mapped, written whole or not at all, logged, locked, listed, and failing on plan. */
#include "check.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

#include <sys/stat.h>

static const char *folder;

/* folder/name in one of a few static strings. */
static const char *in_folder(const char *name)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* "folder/NAME: rest" is e's text. */
static void check_path_error(const struct err *e, int code, const char *name, const char *rest)
{
    char want[1024];
    snprintf(want, sizeof want, "%s: %s", in_folder(name), rest);
    check_error(*e, code, want);
}

static void write_text(const char *name, const char *text)
{
    struct err e = {0};
    check_ok(file_write_atomic(in_folder(name), text, strlen(text), &e), e);
}

static void check_text(const char *name, const char *want)
{
    struct err e = {0};
    char *data;
    size_t size;
    check_ok(file_read(in_folder(name), 1 << 20, &data, &size, &e), e);
    assert_int_equal(size, strlen(want));
    assert_string_equal(data, want);
    mem_free(data);
}

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

static void test_written_is_read_and_mapped(void **state)
{
    (void)state;
    struct err e = {0};
    struct file_map m;
    uint64_t size;
    write_text("a", "hello");
    check_text("a", "hello");
    check_ok(file_map(&m, in_folder("a"), &e), e);
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "hello", 5);
    file_unmap(&m);
    file_unmap(&m);
    check_ok(file_size(in_folder("a"), &size, &e), e);
    assert_int_equal(size, 5);
    assert_true(file_exists(in_folder("a")) && !file_is_dir(in_folder("a")));
    assert_false(file_exists(in_folder("a.tmp")));
}

static void test_empty_files_are_files(void **state)
{
    (void)state;
    struct err e = {0};
    struct file_map m;
    write_text("empty", "");
    check_text("empty", "");
    check_ok(file_map(&m, in_folder("empty"), &e), e);
    assert_null(m.data);
    file_unmap(&m);
}

static void test_files_of_proc_are_read_to_their_end(void **state)
{
    (void)state;
    struct err e = {0};
    char *data;
    size_t size;
    check_ok(file_read("/proc/self/status", 1 << 20, &data, &size, &e), e);
    assert_non_null(strstr(data, "VmHWM:"));
    mem_free(data);
}

static void test_reading_refuses_with_path_and_reason(void **state)
{
    (void)state;
    struct err e = {0}, e2 = {0}, e3 = {0}, e4 = {0};
    char *data;
    size_t size;
    struct file_map m;
    assert_int_equal(file_read(in_folder("none"), 10, &data, &size, &e), ERR_IO);
    check_path_error(&e, ERR_IO, "none", "cannot open: No such file or directory");
    assert_null(data);
    write_text("six", "123456");
    assert_int_equal(file_read(in_folder("six"), 5, &data, &size, &e2), ERR_FORMAT);
    check_path_error(&e2, ERR_FORMAT, "six", "larger than the 5 bytes allowed here");
    check_ok(file_read(in_folder("six"), 6, &data, &size, &e4), e4);
    mem_free(data);
    assert_int_equal(file_map(&m, folder, &e3), ERR_IO);
    struct err e5 = {0};
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(file_map(&m, in_folder("pipe"), &e5), ERR_IO);
    check_path_error(&e5, ERR_IO, "pipe",
                     "is not a regular file, which is needed here since it is read more than once; "
                     "copy it to a file first");
    check_ok(file_remove(in_folder("pipe"), &e4), e4);
    assert_non_null(strstr(e3.text, ": is a folder, expected a file"));
}

static void test_large_writes_pass_the_buffer_whole(void **state)
{
    (void)state;
    struct err e = {0};
    struct file_out f;
    struct file_map m;
    size_t n = (5 << 20) + 13;
    unsigned char *data = mem_alloc(n);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    check_ok(file_out_open(&f, in_folder("big"), &e), e);
    for (size_t at = 0, part = 1; at < n; at += part, part = MIN(part * 3, n - at))
        check_ok(file_out_write(&f, data + at, part, &e), e);
    assert_int_equal(f.size, n);
    assert_false(file_exists(in_folder("big")));
    check_ok(file_out_commit(&f, &e), e);
    check_ok(file_copy(in_folder("big"), in_folder("copy"), &e), e);
    check_ok(file_map(&m, in_folder("copy"), &e), e);
    assert_int_equal(m.size, n);
    assert_memory_equal(m.data, data, n);
    file_unmap(&m);
    mem_free(data);
}

static void test_abort_keeps_the_old_file(void **state)
{
    (void)state;
    struct err e = {0};
    struct file_out f;
    write_text("kept", "old");
    check_ok(file_out_open(&f, in_folder("kept"), &e), e);
    check_ok(file_out_write(&f, "new", 3, &e), e);
    assert_true(file_exists(in_folder("kept.tmp")));
    file_out_abort(&f);
    file_out_abort(&f);
    assert_false(file_exists(in_folder("kept.tmp")));
    check_text("kept", "old");
    struct err e2 = {0};
    assert_int_equal(file_out_open(&f, in_folder("no/where"), &e2), ERR_IO);
    check_path_error(&e2, ERR_IO, "no/where.tmp",
                     "cannot open for writing: No such file or directory");
}

static void test_crc_is_zlibs(void **state)
{
    (void)state;
    assert_int_equal(file_crc32(0, "", 0), 0);
    assert_int_equal(file_crc32(0, "123456789", 9), 0xCBF43926);
    const char *text = "The quick brown fox jumps over the lazy dog";
    assert_int_equal(file_crc32(0, text, 43), 0x414FA339);
    for (size_t cut = 0; cut <= 43; cut++)
        assert_int_equal(file_crc32(file_crc32(0, text, cut), text + cut, 43 - cut), 0x414FA339);
}

/* The remainder of the polynomial's division, a bit at a time. */
static uint32_t crc_by_bits(const unsigned char *s, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n * 8; i++) {
        uint32_t bit = (crc ^ s[i / 8] >> i % 8) & 1;
        crc = crc >> 1 ^ (bit ? 0xEDB88320u : 0);
    }
    return ~crc;
}

/* From any address, of any length, in any parts. */
static void test_crc_of_random_cuts(void **state)
{
    (void)state;
    unsigned char data[300];
    uint64_t key = rng_key(check_seed(), RNG_DATA);
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t from = rng_below(key, 0, 0, round, 0, 17), crc = 0;
        uint32_t n = rng_below(key, 1, 0, round, 0, sizeof data - from + 1);
        for (uint32_t i = 0; i < sizeof data; i++)
            data[i] = (unsigned char)rng_below(key, i, 1, round, 0, 256);
        for (uint32_t at = 0, part; at < n; at += part) {
            part = 1 + rng_below(key, at, 2, round, 0, n - at);
            crc = file_crc32(crc, data + from + at, part);
        }
        assert_int_equal(crc, crc_by_bits(data + from, n));
    }
}

static void test_logs_append_measure_and_cut(void **state)
{
    (void)state;
    struct err e = {0};
    struct file_log f;
    for (int i = 0; i < 2; i++) {
        check_ok(file_log_open(&f, in_folder("log"), &e), e);
        check_ok(file_log_append(&f, "line\n", 5, &e), e);
        assert_int_equal(file_log_size(&f), 5 + 5 * i);
        if (i == 0)
            file_log_close(&f);
    }
    check_ok(file_log_truncate(&f, 7, &e), e);
    check_ok(file_log_append(&f, "X", 1, &e), e);
    file_log_close(&f);
    file_log_close(&f);
    check_text("log", "line\nliX");
}

static void test_folders_are_made_listed_renamed_removed(void **state)
{
    (void)state;
    struct err e = {0};
    char **names;
    size_t n;
    assert_int_equal(file_mkdir_new(in_folder("x/y//z/"), &e), 0);
    assert_int_equal(file_mkdir_new(in_folder("x/y//z/"), &e), 1);
    check_ok(file_mkdirs(in_folder("x/y/z"), &e), e);
    assert_true(file_is_dir(in_folder("x/y/z")));
    write_text("x/y/z/b", "1");
    write_text("x/y/z/B", "2");
    write_text("x/y/z/a", "3");
    check_ok(file_list(in_folder("x/y/z"), &names, &n, &e), e);
    assert_int_equal(n, 3);
    static const char *const sorted[] = {"B", "a", "b"};
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(names[i], sorted[i]);
        mem_free(names[i]);
    }
    mem_free(names);
    check_ok(file_rename(in_folder("x/y/z"), in_folder("moved"), &e), e);
    check_text("moved/a", "3");
    check_ok(file_remove(in_folder("moved/a"), &e), e);
    check_ok(file_remove_dir(in_folder("moved"), &e), e);
    assert_false(file_exists(in_folder("moved")));
    write_text("plain", "");
    struct err e2 = {0};
    assert_int_equal(file_mkdirs(in_folder("plain/sub"), &e2), ERR_IO);
    check_path_error(&e2, ERR_IO, "plain", "cannot make this folder: File exists");
}

static void test_remove_dir_refuses_links_and_folders(void **state)
{
    (void)state;
    struct err e = {0}, e2 = {0}, e3 = {0};
    check_ok(file_mkdirs(in_folder("full/sub"), &e), e);
    write_text("full/a", "stays");
    assert_int_equal(file_remove_dir(in_folder("full"), &e), ERR_IO);
    check_path_error(&e, ERR_IO, "full", "not removed: sub in it is not a plain file");
    check_text("full/a", "stays");
    check_ok(file_mkdirs(in_folder("linked"), &e2), e2);
    assert_int_equal(symlink(in_folder("full/a"), in_folder("linked/link")), 0);
    assert_int_equal(file_remove_dir(in_folder("linked"), &e2), ERR_IO);
    check_path_error(&e2, ERR_IO, "linked", "not removed: link in it is not a plain file");
    assert_int_equal(symlink(in_folder("full"), in_folder("alias")), 0);
    assert_int_equal(file_remove_dir(in_folder("alias"), &e3), ERR_IO);
    check_text("full/a", "stays");
}

static void test_lock_excludes_and_names_the_holder(void **state)
{
    (void)state;
    struct err e = {0}, e2 = {0};
    struct file_lock l, second;
    check_ok(file_lock(&l, in_folder("lock"), &e), e);
    assert_int_equal(file_lock(&second, in_folder("lock"), &e2), ERR_STATE);
    char rest[128];
    snprintf(rest, sizeof rest, "in use by process %d; wait for it to end or stop it",
             (int)getpid());
    check_path_error(&e2, ERR_STATE, "lock", rest);
    assert_false(second.held);
    file_unlock(&l);
    file_unlock(&l);
    check_ok(file_lock(&second, in_folder("lock"), &e), e);
    file_unlock(&second);
}

static void test_folder_lock_excludes_and_leaves_nothing(void **state)
{
    (void)state;
    struct err e = {0}, e2 = {0};
    struct file_lock l, second;
    check_ok(file_mkdirs(in_folder("locked"), &e), e);
    check_ok(file_lock_dir(&l, in_folder("locked"), &e), e);
    assert_int_equal(file_lock_dir(&second, in_folder("locked"), &e2), ERR_STATE);
    check_path_error(&e2, ERR_STATE, "locked",
                     "another process is writing into this folder; wait for it to end or give "
                     "another folder");
    file_unlock(&l);
    check_ok(file_lock_dir(&second, in_folder("locked"), &e), e);
    file_unlock(&second);
    check_ok(file_remove_dir(in_folder("locked"), &e), e);
}

static void test_names_join_and_split(void **state)
{
    (void)state;
    char *path = file_join("a/b", "c");
    assert_string_equal(path, "a/b/c");
    assert_string_equal(file_base(path), "c");
    assert_string_equal(file_base("c"), "c");
    assert_string_equal(file_base("a/"), "");
    mem_free(path);
}

static void pass_save_points(void *ctx)
{
    struct err e = {0};
    if (file_fault_plan("save:3", &e) < 0)
        _exit(2);
    for (int i = 0; i < *(int *)ctx; i++) {
        file_fault_point("save");
        file_fault_point("other");
    }
}

static void test_planned_death_strikes_at_the_nth_point(void **state)
{
    (void)state;
    char text[256];
    int two = 2, three = 3;
    assert_int_equal(check_child(pass_save_points, &two, text, sizeof text), 0);
    int status = check_child(pass_save_points, &three, text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_planned_full_disk_leaves_nothing_half_written(void **state)
{
    (void)state;
    struct err e = {0}, e2 = {0}, e3 = {0};
    write_text("model", "old");
    check_ok(file_fault_plan("enospc:save:2", &e), e);
    file_fault_point("save");
    write_text("other", "fine");
    file_fault_point("save");
    assert_int_equal(file_write_atomic(in_folder("model"), "new", 3, &e), ERR_IO);
    check_path_error(&e, ERR_IO, "model", "cannot write: No space left on device");
    check_text("model", "old");
    assert_false(file_exists(in_folder("model.tmp")));
    check_ok(file_write_atomic(in_folder("model"), "new", 3, &e2), e2);

    struct file_log f;
    check_ok(file_log_open(&f, in_folder("log2"), &e2), e2);
    check_ok(file_fault_plan("enospc:log:1", &e2), e2);
    file_fault_point("log");
    assert_int_equal(file_log_append(&f, "line\n", 5, &e3), ERR_IO);
    check_path_error(&e3, ERR_IO, "log2", "cannot append: No space left on device");
    assert_int_equal(file_log_size(&f), 0);
    file_log_close(&f);
}

static void test_fault_plans_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"save",   ":3",          "save:",     "save:0",
                                      "save:x", "enospc:save", "enospc::1", "int:1"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = {0};
        char want[200];
        assert_int_equal(file_fault_plan(bad[i], &e), ERR_USAGE);
        snprintf(
            want, sizeof want,
            "fault '%s': expected POINT:N, enospc:POINT:N or int:POINT:N with N at least 1, as "
            "in save:3",
            bad[i]);
        check_error(e, ERR_USAGE, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_is_read_and_mapped),
        cmocka_unit_test(test_empty_files_are_files),
        cmocka_unit_test(test_files_of_proc_are_read_to_their_end),
        cmocka_unit_test(test_reading_refuses_with_path_and_reason),
        cmocka_unit_test(test_large_writes_pass_the_buffer_whole),
        cmocka_unit_test(test_abort_keeps_the_old_file),
        cmocka_unit_test(test_crc_is_zlibs),
        cmocka_unit_test(test_crc_of_random_cuts),
        cmocka_unit_test(test_logs_append_measure_and_cut),
        cmocka_unit_test(test_folders_are_made_listed_renamed_removed),
        cmocka_unit_test(test_remove_dir_refuses_links_and_folders),
        cmocka_unit_test(test_lock_excludes_and_names_the_holder),
        cmocka_unit_test(test_folder_lock_excludes_and_leaves_nothing),
        cmocka_unit_test(test_names_join_and_split),
        cmocka_unit_test(test_planned_death_strikes_at_the_nth_point),
        cmocka_unit_test(test_planned_full_disk_leaves_nothing_half_written),
        cmocka_unit_test(test_fault_plans_are_checked),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
