/* What file.c and file_out.c share: one way to say that a file failed, and whole writes.
 *
 * The system's reason is taken from errno at once, so that callers may clean up afterwards. An
 * interrupted call is repeated; a short write goes on where it stopped; the planned ENOSPC of
 * file_fault_plan strikes here, so every kind of writing meets it.
 */
#pragma once

#include "base/err.h"

/* "PATH: cannot VERB: reason of errno". Returns ERR_IO. */
int file_fail(struct err *e, const char *path, const char *verb);

/* Writes all n bytes. Returns 0, or -1 with errno set. */
int file_write_all(int fd, const void *data, size_t n);
