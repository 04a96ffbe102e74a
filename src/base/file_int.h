/* What the files of base/file.h share: one way to say that a file failed, opening, whole writes.
 *
 * The system's reason is taken from errno at once, so that callers may clean up afterwards. An
 * interrupted call is repeated; a short write goes on where it stopped; the planned ENOSPC of
 * file_fault_plan strikes here, so every kind of writing meets it.
 */
#pragma once

#include "base/err.h"

#include <sys/stat.h>

/* "PATH: cannot VERB: reason of errno". Returns ERR_IO. */
int file_fail(struct err *e, const char *path, const char *verb);

/* Writes all n bytes. Returns 0, or -1 with errno set. */
int file_write_all(int fd, const void *data, size_t n);

/* Opens what is no folder for reading and stats it. flags: O_NONBLOCK, so that a pipe without a
   writer does not wait for one, or 0. */
int file_open_read(const char *path, int flags, int *fd, struct stat *st, struct err *e);

/* From now on a mapped file that becomes shorter ends the process with a message. */
void file_map_standard(void);
