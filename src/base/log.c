/* Messages on stderr, each in one write so that threads do not interleave. */
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const char *speaker = "loco";
static atomic_flag warned_lock = ATOMIC_FLAG_INIT;
static struct map warned; // Texts that log_warn has printed; lives as long as the process.

__attribute__((format(printf, 2, 0))) static void say(const char *prefix, const char *fmt,
                                                      va_list ap)
{
    struct buf b = {0};
    buf_puts(&b, prefix);
    buf_vprintf(&b, fmt, ap);
    buf_putc(&b, '\n');
    fwrite(b.data, 1, b.len, stderr);
    buf_release(&b);
}

void log_speaker(const char *name)
{
    speaker = name;
}

const char *log_speaker_name(void)
{
    return speaker;
}

void log_info(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
}

void log_warn(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    struct buf text = {0};
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    while (atomic_flag_test_and_set(&warned_lock))
        ;
    if (map_put(&warned, text.data, text.len, 1))
        fprintf(stderr, "warning: %s\n", text.data);
    atomic_flag_clear(&warned_lock);
    buf_release(&text);
}

void log_error(const char *fmt, ...)
{
    va_list ap;
    struct buf prefix = {0};
    buf_printf(&prefix, "%s: error: ", speaker);
    va_start(ap, fmt);
    say(buf_str(&prefix), fmt, ap);
    va_end(ap);
    buf_release(&prefix);
}
