/* Mapped files, and what is said when one becomes shorter while it is mapped: reading what is gone
 * raises SIGBUS, whose handler finds the file by the address and ends the process with a message.
 */
#include "base/file.h"
#include "base/file_int.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that is or was mapped. Places are used again and never freed, so that the handler may walk
   them at any moment; what is not mapped has size 0. */
struct place {
    struct place *next;
    _Atomic(uintptr_t) start;
    atomic_size_t size;
    char *message; // Owned: for the handler, which can format nothing.
    size_t message_len;
};

static _Atomic(struct place *) places;
static atomic_flag places_lock = ATOMIC_FLAG_INIT; // of those who change places
static atomic_flag dying = ATOMIC_FLAG_INIT;

static char *shrunk_message(const char *path, size_t *len)
{
    struct buf b = {0};
    buf_printf(&b, "%s: error: ", log_speaker_name());
    buf_terminal(&b, path, strlen(path), false);
    buf_puts(&b, ": became shorter while it was read; leave files that are in use as they are: "
                 "write a new file and rename it over the old one\n");
    *len = b.len;
    return b.data;
}

static void remember(const struct file_map *m, const char *path)
{
    size_t len;
    char *message = shrunk_message(path, &len);
    while (atomic_flag_test_and_set(&places_lock))
        ;
    struct place *p = atomic_load(&places);
    while (p && atomic_load(&p->size) > 0)
        p = p->next;
    if (!p) {
        p = mem_calloc(1, sizeof *p);
        p->next = atomic_load(&places);
        atomic_store(&places, p);
    }
    p->message = message;
    p->message_len = len;
    atomic_store(&p->start, (uintptr_t)m->data);
    atomic_store(&p->size, m->size);
    atomic_flag_clear(&places_lock);
}

/* The place whose mapping, up to the end of its last page, has this address; NULL for none. */
static struct place *find(uintptr_t address, size_t page)
{
    struct place *p = atomic_load(&places);
    while (p &&
           address - atomic_load(&p->start) >= (atomic_load(&p->size) + page - 1) / page * page)
        p = p->next;
    return p;
}

static void forget(const struct file_map *m)
{
    while (atomic_flag_test_and_set(&places_lock))
        ;
    struct place *p = find((uintptr_t)m->data, 1);
    ASSERT(p);
    atomic_store(&p->size, 0);
    mem_free(p->message);
    p->message = NULL;
    atomic_flag_clear(&places_lock);
}

/* Any other SIGBUS ends the process as if nobody had looked. */
static void on_bus(int number, siginfo_t *info, void *context)
{
    (void)context;
    struct place *p = NULL;
    if (info->si_code > 0)
        p = find((uintptr_t)info->si_addr, (size_t)sysconf(_SC_PAGESIZE));
    if (!p) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    while (atomic_flag_test_and_set(&dying)) // Another thread is saying it.
        pause();
    (void)!write(STDERR_FILENO, p->message, p->message_len);
    _exit(err_exit_status(ERR_IO));
}

void file_map_standard(void)
{
    struct sigaction act = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &act, NULL);
}

int file_map(struct file_map *m, const char *path, struct err *e)
{
    *m = (struct file_map){0};
    int fd, rc = 0;
    struct stat st;
    TRY(file_open_read(path, O_NONBLOCK, &fd, &st, e));
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_IO,
                     "%s: is not a regular file, which is needed here since it is read more than "
                     "once; copy it to a file first",
                     path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            rc = file_fail(e, path, "map");
        } else {
            *m = (struct file_map){p, (size_t)st.st_size};
            remember(m, path);
        }
    }
    close(fd);
fail:
    return rc;
}

void file_unmap(struct file_map *m)
{
    if (m->data) {
        forget(m);
        munmap((void *)m->data, m->size);
    }
    *m = (struct file_map){0};
}
