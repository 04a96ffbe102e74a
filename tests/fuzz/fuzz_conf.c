/* Fuzz target: any bytes as a YAML configuration. What is accepted must read back from its own
 * saved form to the same bytes.
 */
#include "conf/conf.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_saved_form(enum conf_command command, const char *text, size_t n)
{
    struct conf first = {0}, second = {0};
    struct buf a = {0}, b = {0};
    struct err e = {0};
    if (conf_read_text(&first, command, "fuzz.yaml", text, n, &e) < 0)
        return;
    conf_yaml(&first, &a);
    int rc = conf_read_text(&second, command, "saved.yaml", buf_str(&a), a.len, &e);
    ASSERT(rc == 0);
    rc = conf_resume_check(&first, &second, &e);
    ASSERT(rc == 0);
    conf_yaml(&second, &b);
    ASSERT(strcmp(buf_str(&a), buf_str(&b)) == 0);
    conf_release(&first);
    conf_release(&second);
    buf_release(&a);
    buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    check_saved_form(CONF_TRAIN, (const char *)data, n);
    check_saved_form(CONF_SCORE, (const char *)data, n);
    return 0;
}
