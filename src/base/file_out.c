/* Writing files: whole under a temporary name, appended to logs, and failing when a test asks. */
#include "base/file.h"
#include "base/file_int.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OUT_BUFFER ((size_t)1 << 20)

/* The one planned fault. Points are passed by one thread at a time. */
static struct {
    char *point;     // NULL when nothing is armed
    int64_t left;    // calls of the point until it strikes
    bool no_space;   // a failing write
    bool interrupt;  // a Ctrl-C; neither: death
    bool write_next; // the next write fails
} fault;

int file_fault_plan(const char *spec, struct err *e)
{
    bool no_space = str_starts(spec, "enospc:"), interrupt = str_starts(spec, "int:");
    const char *point = spec + (no_space ? strlen("enospc:") : interrupt ? strlen("int:") : 0);
    const char *colon = strchr(point, ':');
    int64_t n = 0;
    if (!colon || colon == point || !str_to_int(colon + 1, &n) || n < 1)
        return err_set(e, ERR_USAGE,
                       "fault '%s': expected POINT:N, enospc:POINT:N or int:POINT:N with N at "
                       "least 1, as in save:3",
                       spec);
    mem_free(fault.point);
    fault.point = mem_strndup(point, (size_t)(colon - point));
    fault.left = n;
    fault.no_space = no_space;
    fault.interrupt = interrupt;
    fault.write_next = false;
    return 0;
}

void file_fault_point(const char *point)
{
    if (!fault.point || strcmp(point, fault.point) != 0 || --fault.left > 0)
        return;
    if (!fault.no_space)
        raise(fault.interrupt ? SIGINT : SIGKILL);
    fault.write_next = fault.no_space;
    mem_free(fault.point);
    fault.point = NULL;
}

int file_write_all(int fd, const void *data, size_t n)
{
    if (fault.write_next) {
        fault.write_next = false;
        errno = ENOSPC;
        return -1;
    }
    for (const char *s = data; n > 0;) {
        ssize_t done = write(fd, s, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        s += done;
        n -= (size_t)done;
    }
    return 0;
}

static char *temporary_name(const char *path)
{
    struct buf b = {0};
    buf_printf(&b, "%s.tmp", path);
    return b.data;
}

int file_out_open(struct file_out *f, const char *path, struct err *e)
{
    *f = (struct file_out){0};
    char *tmp = temporary_name(path);
    int rc = 0, fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        rc = file_fail(e, tmp, "open for writing");
    else
        *f = (struct file_out){
            .fd = fd, .open = true, .path = mem_strdup(path), .buf = mem_alloc(OUT_BUFFER)};
    mem_free(tmp);
    return rc;
}

static int flush_out(struct file_out *f, struct err *e)
{
    size_t n = f->used;
    f->used = 0;
    return file_write_all(f->fd, f->buf, n) < 0 ? file_fail(e, f->path, "write") : 0;
}

int file_out_write(struct file_out *f, const void *data, size_t n, struct err *e)
{
    ASSERT(f->open);
    f->size += n;
    for (const char *s = data; n > 0;) {
        size_t part = MIN(n, OUT_BUFFER - f->used);
        memcpy(f->buf + f->used, s, part);
        f->used += part;
        s += part;
        n -= part;
        if (f->used == OUT_BUFFER && flush_out(f, e) < 0)
            return ERR_IO;
    }
    return 0;
}

/* Closes and frees; what it returns is close's verdict. */
static int close_out(struct file_out *f)
{
    int rc = close(f->fd);
    mem_free(f->path);
    mem_free(f->buf);
    *f = (struct file_out){.size = f->size};
    return rc;
}

int file_out_commit(struct file_out *f, struct err *e)
{
    ASSERT(f->open);
    char *path = mem_strdup(f->path), *tmp = temporary_name(path);
    int rc = 0;
    TRY(flush_out(f, e));
    if (fsync(f->fd) < 0)
        TRY(file_fail(e, path, "flush to disk"));
    if (close_out(f) < 0)
        TRY(file_fail(e, path, "close"));
    file_fault_point("commit");
    TRY(file_rename(tmp, path, e));
fail:
    if (rc < 0) {
        unlink(tmp);
        file_out_abort(f);
    }
    mem_free(tmp);
    mem_free(path);
    return rc;
}

void file_out_abort(struct file_out *f)
{
    if (!f->open)
        return;
    char *tmp = temporary_name(f->path);
    close_out(f);
    unlink(tmp);
    mem_free(tmp);
}

int file_write_atomic(const char *path, const void *data, size_t n, struct err *e)
{
    struct file_out f = {0};
    int rc = 0;
    TRY(file_out_open(&f, path, e));
    TRY(file_out_write(&f, data, n, e));
    return file_out_commit(&f, e);
fail:
    file_out_abort(&f);
    return rc;
}

int file_copy(const char *from, const char *to, struct err *e)
{
    struct file_map m;
    int rc = 0;
    TRY(file_map(&m, from, e));
    rc = file_write_atomic(to, m.data, m.size, e);
    file_unmap(&m);
fail:
    return rc;
}

int file_log_open(struct file_log *f, const char *path, struct err *e)
{
    *f = (struct file_log){0};
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return file_fail(e, path, "open for appending");
    *f = (struct file_log){.fd = fd, .open = true, .path = mem_strdup(path)};
    return 0;
}

int file_log_append(struct file_log *f, const void *data, size_t n, struct err *e)
{
    ASSERT(f->open);
    int64_t before = file_log_size(f);
    if (before >= 0 && file_write_all(f->fd, data, n) == 0)
        return 0;
    int rc = file_fail(e, f->path, "append");
    if (before >= 0) // Leave no half line; when even this fails, the first error says enough.
        file_log_truncate(f, (uint64_t)before, NULL);
    return rc;
}

int file_log_truncate(struct file_log *f, uint64_t size, struct err *e)
{
    ASSERT(f->open);
    return ftruncate(f->fd, (off_t)size) < 0 ? file_fail(e, f->path, "truncate") : 0;
}

int file_log_sync(struct file_log *f, struct err *e)
{
    ASSERT(f->open);
    return fsync(f->fd) < 0 ? file_fail(e, f->path, "flush to disk") : 0;
}

int64_t file_log_size(const struct file_log *f)
{
    ASSERT(f->open);
    struct stat st;
    return fstat(f->fd, &st) < 0 ? -1 : (int64_t)st.st_size;
}

void file_log_close(struct file_log *f)
{
    if (f->open)
        close(f->fd);
    mem_free(f->path);
    *f = (struct file_log){0};
}
