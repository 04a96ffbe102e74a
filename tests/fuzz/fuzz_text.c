/* Fuzz target: a tokenizer.json, a NUL, and text to encode with it; without a NUL, text for our
 * small tokenizers. Ids must exist, streams must add up, and where every byte has a token and
 * nothing is normalised, decoding must give the text back.
 */
#include "base/mem.h"
#include "text/text.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_stream(const struct text *t, const struct text_ids *ids, const struct buf *want)
{
    struct text_stream s = {0};
    struct buf got = {0};
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const char *bytes = text_token_bytes(t, ids->id[i], &n);
        ASSERT(bytes != NULL);
        text_stream_put(&s, bytes, n, &got);
    }
    text_stream_end(&s, &got);
    ASSERT(got.len == want->len && memcmp(buf_str(&got), buf_str(want), got.len) == 0);
    buf_release(&got);
}

static void check_text(struct text *t, const char *s, size_t n, bool round_trip)
{
    struct buf want = {0}, raw = {0}, decoded = {0};
    struct text_ids ids = {0};
    for (unsigned flags = 0; flags < 4; flags++) {
        ids.n = raw.len = decoded.len = 0;
        text_encode(t, s, n, flags, &ids);
        text_decode(t, ids.id, ids.n, false, &raw);
        buf_utf8_lossy(&decoded, buf_str(&raw), raw.len);
        check_stream(t, &ids, &decoded);
        if (!round_trip || (flags & TEXT_WRAP))
            continue;
        buf_clear(&want);
        buf_utf8_lossy(&want, s, n);
        ASSERT(raw.len == want.len && memcmp(buf_str(&raw), buf_str(&want), raw.len) == 0);
    }
    text_ids_release(&ids);
    buf_release(&want);
    buf_release(&raw);
    buf_release(&decoded);
}

/* Text for the small tokenizers that the unit tests replay goldens with. */
static void check_small(const char *s, size_t n)
{
    static struct text *small[3];
    static const char *const path[] = {
        "tests/golden/text/small-llama3.json",
        "tests/golden/text/small-qwen2.json",
        "tests/golden/text/small-smollm2.json",
    };
    for (size_t i = 0; i < ARRAY_LEN(path); i++) {
        struct err e = {0};
        int rc = small[i] ? 0 : text_open(&small[i], path[i], &e);
        ASSERT(rc == 0);
        check_text(small[i], s, n, i == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
    struct text *t;
    struct err e = {0};
    struct buf out = {0};
    if (!nul) {
        check_small((const char *)data, n);
        return 0;
    }
    size_t json = (size_t)(nul - data);
    if (text_parse(&t, (const char *)data, json, &e) < 0)
        return 0;
    check_text(t, (const char *)nul + 1, n - json - 1, false);
    text_describe(t, &out);
    buf_release(&out);
    text_close(t);
    return 0;
}
