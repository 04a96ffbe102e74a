/* Runs a fuzz target over stored inputs, so that every build repeats what fuzzing once found: each
 * argument is a file or a folder of files.
 */
#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int replay_file(const char *path, struct err *e)
{
    char *data = NULL;
    size_t n = 0;
    int rc = file_read(path, 1 << 26, &data, &n, e);
    if (rc == 0)
        LLVMFuzzerTestOneInput((const uint8_t *)data, n);
    mem_free(data);
    return rc < 0 ? rc : 1;
}

/* Returns how many files were run. */
static int replay(const char *path, struct err *e)
{
    char **name = NULL;
    size_t n = 0;
    int rc = 0, files = 0;
    if (!file_is_dir(path))
        return replay_file(path, e);
    TRY(file_list(path, &name, &n, e));
    for (size_t i = 0; i < n && rc >= 0; i++) {
        char *inner = file_join(path, name[i]);
        rc = replay_file(inner, e);
        files += rc;
        mem_free(inner);
    }
    for (size_t i = 0; i < n; i++)
        mem_free(name[i]);
    mem_free(name);
fail:
    return rc < 0 ? rc : files;
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; i++) {
        struct err e = {0};
        int rc = replay(argv[i], &e);
        if (rc <= 0) {
            fprintf(stderr, "replay: %s\n", rc < 0 ? e.text : "no file to replay");
            return 1;
        }
        files += rc;
    }
    fprintf(stderr, "replay: %d files\n", files);
    return files > 0 ? 0 : 1;
}
