/* Files: read whole, map, write so that a name never shows a half-written file, lock, list.
 *
 * file_write_atomic and struct file_out write NAME.tmp, fsync it, rename it and fsync the parent.
 * Folders that must appear whole (checkpoints) are written as NAME.tmp/ and renamed by the caller
 * with file_rename. open, rename and fsync are called nowhere else. Every error names the path and
 * the system's reason. Fault injection: LOCO_FAULT is parsed by cli, which calls file_fault.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

struct file_map {
    const unsigned char *data; // Read-only private mapping; NULL for an empty file.
    size_t size;
};

/* ERR_IO also for what is not a regular file. A file that becomes shorter while it is mapped, and
   is read where it ended, ends the process: see file_standard. */
int file_map(struct file_map *m, const char *path, struct err *e);
void file_unmap(struct file_map *m);

/* Reads a whole file of at most `max` bytes; *data is owned by the caller (mem_free) and followed
   by a NUL. */
int file_read(const char *path, size_t max, char **data, size_t *size, struct err *e);

/* A file being written: NAME.tmp until file_out_commit. */
struct file_out {
    int fd; // Valid when open is set.
    bool open;
    char *path;         // Owned: final name.
    uint64_t size;      // bytes written so far
    unsigned char *buf; // Owned write buffer.
    size_t used;
};

int file_out_open(struct file_out *f, const char *path, struct err *e);
int file_out_write(struct file_out *f, const void *data, size_t n, struct err *e);
int file_out_commit(struct file_out *f, struct err *e); // fsync, rename, fsync parent.
void file_out_abort(struct file_out *f);                // Removes NAME.tmp; idempotent.

int file_write_atomic(const char *path, const void *data, size_t n, struct err *e);

/* Appends n bytes to path (created when absent) and flushes them to the kernel. */
struct file_log {
    int fd;
    bool open;
    char *path; // Owned.
};
int file_log_open(struct file_log *f, const char *path, struct err *e);
int file_log_append(struct file_log *f, const void *data, size_t n, struct err *e);
int file_log_truncate(struct file_log *f, uint64_t size, struct err *e);
int file_log_sync(struct file_log *f, struct err *e); // fsync.
int64_t file_log_size(const struct file_log *f);
void file_log_close(struct file_log *f);

/* CRC-32 as zlib's: start with 0, go on with what it returned. */
uint32_t file_crc32(uint32_t crc, const void *data, size_t n);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
bool file_is_stream(const char *path); // A pipe, terminal or device: file_read alone takes it.
int file_size(const char *path, uint64_t *size, struct err *e);
int file_mkdirs(const char *path, struct err *e);    // Like mkdir -p.
int file_mkdir_new(const char *path, struct err *e); // The same; 1 when path was there already.
int file_rename(const char *from, const char *to, struct err *e); // Then fsyncs the parent.
int file_sync_dir(const char *path, struct err *e);
int file_copy(const char *from, const char *to, struct err *e); // Atomic; bytes as they are.
int file_remove(const char *path, struct err *e);

/* Removes a folder and the plain files directly in it. Refuses links and sub-folders. */
int file_remove_dir(const char *path, struct err *e);

/* Names in a folder, sorted bytewise, "." and ".." left out. Owned by the caller: mem_free each
   and the array. */
int file_list(const char *path, char ***names, size_t *n, struct err *e);

/* Takes an exclusive lock on path (created), held until the process ends or file_unlock. ERR_STATE
   with the holder's pid when another process has it. */
struct file_lock {
    int fd;
    bool held;
};
int file_lock(struct file_lock *l, const char *path, struct err *e);

/* The same on a folder, in which nothing is left: ERR_STATE when another process has it. Where the
   file system cannot lock folders, none is taken. */
int file_lock_dir(struct file_lock *l, const char *path, struct err *e);
void file_unlock(struct file_lock *l);

/* What files need of the process, first in main. Fills descriptors 0, 1 and 2 where the caller of
   this program closed them, so that no file of ours ever gets such a number; what is written to one
   fails, as it would have. A write past the file size limit (ulimit -f) fails as on a full disk,
   rather than end the process. A mapped file that becomes shorter ends the process with a message
   that names it and ERR_IO's status, rather than by SIGBUS alone. */
void file_standard(void);

/* dir + "/" + name in a string that the caller frees. */
char *file_join(const char *dir, const char *name);
const char *file_base(const char *path); // Pointer into path, after the last '/'.

/* Planned faults for tests: at the n-th call of the named point the process kills itself (SIGKILL)
   or interrupts itself (SIGINT), or the write fails with ENOSPC. file_fault_plan("save:3") arms;
   file_fault_point("save") is called at named points of the program and costs one comparison when
   nothing is armed. */
int file_fault_plan(const char *spec, struct err *e);
void file_fault_point(const char *point);
