/* The byte alphabet of byte-level BPE (GPT-2): printable bytes of Latin-1 stand for themselves, the
   other 68 for U+0100 and on, in byte order. So every byte sequence has a printable spelling. */
#include "text/text_int.h"

static bool stands_for_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

/* The moved bytes are 00-20, 7F-A0 and AD; their codes 100-120, 121-142 and 143. */
uint32_t text_alphabet_code(unsigned char byte)
{
    if (stands_for_itself(byte))
        return byte;
    return byte == 0xAD ? 0x143 : byte <= 0x20 ? 0x100u + byte : 0x121u + byte - 0x7F;
}

/* The byte that a code point of the alphabet stands for, or -1. */
static int byte_of(uint32_t code)
{
    if (code < 0x100)
        return stands_for_itself(code) ? (int)code : -1;
    if (code > 0x143)
        return -1;
    return (int)(code == 0x143 ? 0xAD : code <= 0x120 ? code - 0x100 : code - 0x121 + 0x7F);
}

void text_alphabet_bytes(const char *content, size_t n, struct buf *out)
{
    size_t start = out->len;
    for (size_t at = 0; at < n;) {
        uint32_t code = 0;
        int len = utf8_decode(content + at, n - at, &code);
        int byte = len < 0 ? -1 : byte_of(code);
        if (byte < 0) {
            out->len = start;
            buf_put(out, content, n);
            return;
        }
        buf_putc(out, (char)byte);
        at += (size_t)len;
    }
}

void text_alphabet_spell(const char *bytes, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        char spelled[4];
        buf_put(out, spelled,
                (size_t)utf8_encode(text_alphabet_code((unsigned char)bytes[i]), spelled));
    }
}
