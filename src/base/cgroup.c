/* Control groups, version 2 and 1: finding the folders of the groups that hold this process. */
#include "base/base_int.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define CGROUP_ROOT "/sys/fs/cgroup"
#define TEXT_MAX    ((size_t)1 << 20)

/* Does "a,b,c" hold name? */
static bool list_has(const char *list, size_t n, const char *name)
{
    size_t len = strlen(name);
    for (size_t at = 0; at + len <= n; at++) {
        bool starts = at == 0 || list[at - 1] == ',';
        bool ends = at + len == n || list[at + len] == ',';
        if (starts && ends && memcmp(list + at, name, len) == 0)
            return true;
    }
    return false;
}

/* Visits root/path, then each parent, then root. */
static void walk_up(const char *root, const char *path, size_t path_len, int version,
                    void (*visit)(void *ctx, const char *folder, int version), void *ctx)
{
    while (path_len > 0 && path[path_len - 1] == '/')
        path_len--;
    for (;;) {
        struct buf folder = {0};
        buf_puts(&folder, root);
        buf_put(&folder, path, path_len);
        if (file_is_dir(folder.data))
            visit(ctx, folder.data, version);
        buf_release(&folder);
        if (path_len == 0)
            return;
        while (path_len > 0 && path[path_len - 1] != '/')
            path_len--;
        path_len -= path_len > 0;
    }
}

void base_cgroup_walk(const char *controller,
                      void (*visit)(void *ctx, const char *folder, int version), void *ctx)
{
    char *text;
    size_t size;
    if (file_read("/proc/self/cgroup", TEXT_MAX, &text, &size, NULL) < 0)
        return;
    char *root_v1 = file_join(CGROUP_ROOT, controller);
    for (char *line = text; *line;) { // "ID:CONTROLLERS:PATH", ID 0 and no controllers in v2
        size_t len = strcspn(line, "\n");
        char *list = memchr(line, ':', len);
        char *path = list ? memchr(list + 1, ':', len - (size_t)(list + 1 - line)) : NULL;
        if (path) {
            size_t list_len = (size_t)(path - list) - 1;
            size_t path_len = len - (size_t)(path + 1 - line);
            if (list_len == 0)
                walk_up(CGROUP_ROOT, path + 1, path_len, 2, visit, ctx);
            else if (list_has(list + 1, list_len, controller))
                walk_up(root_v1, path + 1, path_len, 1, visit, ctx);
        }
        line += len + (line[len] == '\n');
    }
    mem_free(root_v1);
    mem_free(text);
}

char *base_cgroup_text(const char *folder, const char *name)
{
    char *path = file_join(folder, name), *text = NULL;
    size_t size;
    int rc = file_read(path, TEXT_MAX, &text, &size, NULL);
    mem_free(path);
    if (rc < 0)
        return NULL;
    if (size > 0 && text[size - 1] == '\n')
        text[size - 1] = '\0';
    return text;
}

bool base_field(const char *text, const char *key, uint64_t *value)
{
    size_t key_len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, key_len) != 0)
            continue;
        const char *s = line + key_len;
        s += strspn(s, " \t:");
        if (*s < '0' || *s > '9')
            return false;
        *value = strtoull(s, NULL, 10);
        return true;
    }
    return false;
}
