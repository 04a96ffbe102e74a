/* CRC-32 with zlib's polynomial, eight bytes at a time ("slicing by 8", Kounavis and Berry 2005).
 * table[k][b] is what byte b adds when k more bytes follow it; made once before main, so that
 * threads need no agreement.
 */
#include "base/file.h"

#include <string.h>

#define POLYNOMIAL 0xEDB88320u // reflected

static uint32_t table[8][256];

__attribute__((constructor)) static void make_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = b;
        for (int bit = 0; bit < 8; bit++)
            c = (c >> 1) ^ (c & 1 ? POLYNOMIAL : 0);
        table[0][b] = c;
    }
    for (uint32_t b = 0; b < 256; b++)
        for (int k = 1; k < 8; k++)
            table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xFF];
}

static uint32_t load_le(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t file_crc32(uint32_t crc, const void *data, size_t n)
{
    const unsigned char *p = data;
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t a = crc ^ load_le(p), b = load_le(p + 4);
        crc = table[7][a & 0xFF] ^ table[6][a >> 8 & 0xFF] ^ table[5][a >> 16 & 0xFF] ^
              table[4][a >> 24] ^ table[3][b & 0xFF] ^ table[2][b >> 8 & 0xFF] ^
              table[1][b >> 16 & 0xFF] ^ table[0][b >> 24];
    }
    for (; n > 0; n--, p++)
        crc = (crc >> 8) ^ table[0][(crc ^ *p) & 0xFF];
    return ~crc;
}
