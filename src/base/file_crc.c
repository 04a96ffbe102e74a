/* CRC-32 with zlib's polynomial, sixteen bytes at a time ("slicing", Kounavis and Berry 2005).
 * table[k][b] is what byte b adds when k more bytes follow it; made once before main, so that
 * threads need no agreement.
 */
#include "base/file.h"

#include <string.h>

#define POLYNOMIAL 0xEDB88320u // reflected

enum { SLICE = 16 }; // bytes at a time

static uint32_t table[SLICE][256];

__attribute__((constructor)) static void make_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = b;
        for (int bit = 0; bit < 8; bit++)
            c = (c >> 1) ^ (c & 1 ? POLYNOMIAL : 0);
        table[0][b] = c;
    }
    for (uint32_t b = 0; b < 256; b++)
        for (int k = 1; k < SLICE; k++)
            table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xFF];
}

static uint64_t load_le(const unsigned char *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? x : __builtin_bswap64(x);
}

/* Eight bytes of which the last has `after` more behind it in the slice. */
static uint32_t add_eight(uint64_t x, int after)
{
    uint32_t(*t)[256] = table + after;
    return t[7][x & 0xFF] ^ t[6][x >> 8 & 0xFF] ^ t[5][x >> 16 & 0xFF] ^ t[4][x >> 24 & 0xFF] ^
           t[3][x >> 32 & 0xFF] ^ t[2][x >> 40 & 0xFF] ^ t[1][x >> 48 & 0xFF] ^ t[0][x >> 56];
}

uint32_t file_crc32(uint32_t crc, const void *data, size_t n)
{
    const unsigned char *p = data;
    crc = ~crc;
    for (; n >= SLICE; n -= SLICE, p += SLICE)
        crc = add_eight(load_le(p + 8), 0) ^ add_eight(load_le(p) ^ crc, 8);
    for (; n > 0; n--, p++)
        crc = (crc >> 8) ^ table[0][(crc ^ *p) & 0xFF];
    return ~crc;
}
