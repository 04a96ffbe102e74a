/* Fuzz target: any bytes as text. What leaves base/str is valid UTF-8, JSON that reads back, and
 * harmless to a terminal.
 */
#include "base/str.h"

#include <jansson.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_json(const char *s, size_t n, const struct buf *lossy)
{
    struct buf quoted = {0};
    buf_json(&quoted, s, n);
    json_t *value = json_loadb(quoted.data, quoted.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    ASSERT(json_is_string(value) && json_string_length(value) == lossy->len);
    ASSERT(memcmp(json_string_value(value), buf_str(lossy), lossy->len) == 0);
    json_decref(value);
    buf_release(&quoted);
}

static void check_terminal(const char *s, size_t n)
{
    struct buf shown = {0};
    buf_terminal(&shown, s, n, false);
    ASSERT(utf8_valid(buf_str(&shown), shown.len) == shown.len);
    for (size_t i = 0; i < shown.len; i++)
        ASSERT((unsigned char)shown.data[i] >= 0x20 && shown.data[i] != 0x7F);
    buf_release(&shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *s = (const char *)data;
    struct buf lossy = {0};
    buf_utf8_lossy(&lossy, s, n);
    ASSERT(utf8_valid(buf_str(&lossy), lossy.len) == lossy.len);
    ASSERT(utf8_valid(s, n) != n || (lossy.len == n && memcmp(buf_str(&lossy), s, n) == 0));
    check_json(s, n, &lossy);
    check_terminal(s, n);
    buf_release(&lossy);
    return 0;
}
