/* Reading files, folders, and locks. Mapping stands in file_map.c, writing in file_out.c. */
#include "base/file.h"
#include "base/file_int.h"
#include "base/mem.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_STEP ((size_t)64 << 10)

int file_fail(struct err *e, const char *path, const char *verb)
{
    return err_set(e, ERR_IO, "%s: cannot %s: %s", path, verb, strerror(errno));
}

void file_standard(void)
{
    // The other way round than they are used: reading 0 and writing 1 and 2 still fail.
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            err_die(ERR_IO, "/dev/null: cannot open in place of closed descriptor %d", fd);
    signal(SIGXFSZ, SIG_IGN);
    file_map_standard();
}

int file_open_read(const char *path, int flags, int *fd, struct stat *st, struct err *e)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (*fd < 0)
        return file_fail(e, path, "open");
    int rc = 0;
    if (fstat(*fd, st) < 0)
        rc = file_fail(e, path, "stat");
    else if (S_ISDIR(st->st_mode))
        rc = err_set(e, ERR_IO, "%s: is a folder, expected a file", path);
    if (rc < 0)
        close(*fd);
    return rc;
}

/* Reads fd to its end into b, which may hold at most `max` bytes. Files of /proc have no size. */
static int read_all(int fd, const char *path, size_t max, struct buf *b, struct err *e)
{
    char *step = mem_alloc(READ_STEP);
    int rc = 0;
    for (;;) {
        ssize_t n = read(fd, step, READ_STEP);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            TRY(file_fail(e, path, "read"));
        if (n == 0)
            break;
        if ((size_t)n > max - b->len)
            TRY(err_set(e, ERR_FORMAT, "%s: larger than the %zu bytes allowed here", path, max));
        buf_put(b, step, (size_t)n);
    }
fail:
    mem_free(step);
    return rc;
}

int file_read(const char *path, size_t max, char **data, size_t *size, struct err *e)
{
    int fd, rc = 0;
    struct stat st;
    struct buf b = {.max = SIZE_MAX / 2};
    *data = NULL;
    *size = 0;
    TRY(file_open_read(path, 0, &fd, &st, e));
    rc = read_all(fd, path, max, &b, e);
    close(fd);
    TRY(rc);
    buf_put(&b, "", 0); // An empty file has its NUL too.
    *data = b.data;
    *size = b.len;
    return 0;
fail:
    buf_release(&b);
    return rc;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_is_stream(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

int file_size(const char *path, uint64_t *size, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return file_fail(e, path, "stat");
    *size = (uint64_t)st.st_size;
    return 0;
}

int file_mkdir_new(const char *path, struct err *e)
{
    char *part = mem_strdup(path);
    int rc = 1; // "" and "/" are there.
    for (char *s = part; *(s += strspn(s, "/"));) {
        s += strcspn(s, "/");
        char end = *s;
        *s = '\0';
        rc = mkdir(part, 0777) < 0;
        if (rc > 0 && !(errno == EEXIST && file_is_dir(part)))
            TRY(file_fail(e, part, "make this folder"));
        *s = end;
    }
fail:
    mem_free(part);
    return rc;
}

int file_mkdirs(const char *path, struct err *e)
{
    return MIN(file_mkdir_new(path, e), 0);
}

int file_sync_dir(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return file_fail(e, path, "open");
    int rc = 0;
    if (fsync(fd) < 0 && errno != EINVAL) // EINVAL: this file system does not sync folders.
        rc = file_fail(e, path, "flush to disk");
    close(fd);
    return rc;
}

int file_rename(const char *from, const char *to, struct err *e)
{
    if (rename(from, to) < 0)
        return err_set(e, ERR_IO, "%s: cannot rename to %s: %s", from, to, strerror(errno));
    size_t dir_len = (size_t)(file_base(to) - to);
    char *dir = dir_len > 0 ? mem_strndup(to, dir_len) : mem_strdup(".");
    int rc = file_sync_dir(dir, e);
    mem_free(dir);
    return rc;
}

int file_remove(const char *path, struct err *e)
{
    return unlink(path) < 0 ? file_fail(e, path, "remove") : 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int file_list(const char *path, char ***names, size_t *n, struct err *e)
{
    *names = NULL;
    *n = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return file_fail(e, path, "list this folder");
    size_t cap = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        mem_grow(names, &cap, *n + 1, sizeof **names);
        (*names)[(*n)++] = mem_strdup(entry->d_name);
    }
    closedir(dir);
    if (*n > 1)
        qsort(*names, *n, sizeof **names, compare_names);
    return 0;
}

/* Removes the listed names from the folder, after a look at each: plain files only. */
static int remove_names(int dir, const char *path, char **names, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (fstatat(dir, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
            return file_fail(e, path, "stat what is in this folder");
        if (!S_ISREG(st.st_mode))
            return err_set(e, ERR_IO, "%s: not removed: %s in it is not a plain file", path,
                           names[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (unlinkat(dir, names[i], 0) < 0)
            return file_fail(e, path, "remove what is in this folder");
        file_fault_point("remove");
    }
    return 0;
}

int file_remove_dir(const char *path, struct err *e)
{
    char **names = NULL;
    size_t n = 0;
    int rc = 0, dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        TRY(file_fail(e, path, "open this folder"));
    TRY(file_list(path, &names, &n, e));
    TRY(remove_names(dir, path, names, n, e));
    if (rmdir(path) < 0)
        rc = file_fail(e, path, "remove this folder");
fail:
    for (size_t i = 0; i < n; i++)
        mem_free(names[i]);
    mem_free(names);
    if (dir >= 0)
        close(dir);
    return rc;
}

int file_lock(struct file_lock *l, const char *path, struct err *e)
{
    *l = (struct file_lock){0};
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return file_fail(e, path, "open");
    char pid[24] = "";
    int rc = 0;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            TRY(file_fail(e, path, "lock"));
        ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
        pid[MAX(n, 0)] = '\0';
        TRY(err_set(e, ERR_STATE, "%s: in use by process %s; wait for it to end or stop it", path,
                    pid[0] ? pid : "(unknown)"));
    }
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    if (ftruncate(fd, 0) < 0 || file_write_all(fd, pid, strlen(pid)) < 0)
        TRY(file_fail(e, path, "write"));
    *l = (struct file_lock){fd, true};
    return 0;
fail:
    close(fd);
    return rc;
}

int file_lock_dir(struct file_lock *l, const char *path, struct err *e)
{
    *l = (struct file_lock){0};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return file_fail(e, path, "open this folder");
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        *l = (struct file_lock){fd, true};
        return 0;
    }
    bool is_taken = errno == EWOULDBLOCK;
    close(fd);
    return is_taken ? err_set(e, ERR_STATE,
                              "%s: another process is writing into this folder; wait for it to "
                              "end or give another folder",
                              path)
                    : 0;
}

void file_unlock(struct file_lock *l)
{
    if (l->held)
        close(l->fd);
    *l = (struct file_lock){0};
}

char *file_join(const char *dir, const char *name)
{
    struct buf b = {0};
    buf_printf(&b, "%s/%s", dir, name);
    return b.data;
}

const char *file_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
