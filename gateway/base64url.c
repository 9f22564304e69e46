/* base64url.c - six bits a character (base64url.h). */
#include "gateway/base64url.h"

#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void base64url_write(const void *from, size_t bytes, char *out)
{
    const uint8_t *in = from;
    unsigned bits = 0, held = 0;
    for (size_t i = 0; i < bytes; i++) {
        bits = bits << 8 | in[i];
        for (held += 8; held >= 6; held -= 6)
            *out++ = alphabet[bits >> (held - 6) & 63];
    }
    if (held > 0)
        *out++ = alphabet[bits << (6 - held) & 63];
    *out = '\0';
}

bool base64url_read(const char *text, void *out, size_t room, size_t *bytes)
{
    uint8_t *to = out;
    unsigned bits = 0, held = 0;
    *bytes = 0;
    for (; *text; text++) {
        const char *at = strchr(alphabet, *text);
        if (!at)
            return false;
        bits = (bits << 6 | (unsigned)(at - alphabet)) & 0xfff;
        held += 6;
        if (held >= 8) {
            if (*bytes == room)
                return false;
            held -= 8;
            to[(*bytes)++] = (uint8_t)(bits >> held & 0xff);
        }
    }
    return held < 6 && (bits & ((1u << held) - 1)) == 0;
}
