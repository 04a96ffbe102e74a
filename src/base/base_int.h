/* What base's own files share: the control groups that bound this process.
 *
 * A limit holds for a group and all below it, so readers walk from the process's own group up to
 * the root of what is mounted, in version 2 (one tree) or version 1 (a tree per controller). Inside
 * a container the path that /proc/self/cgroup names may not be visible; the walk then sees only the
 * folders that exist, of which the root is the container's own group. Nothing here fails: a file
 * that cannot be read is a limit that is not set.
 *
 *     base_cgroup_walk("memory", take_smaller, &limit);
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>

/* Calls visit(ctx, folder, version) for each group from the process's own up to the root. */
void base_cgroup_walk(const char *controller,
                      void (*visit)(void *ctx, const char *folder, int version), void *ctx);

/* The text of folder/name without its final newline, owned by the caller, or NULL. */
char *base_cgroup_text(const char *folder, const char *name);

/* The number after "key" at a line's start in such text (key "" takes the first line's), or false
   when there is none: "max" is none. */
bool base_field(const char *text, const char *key, uint64_t *value);
