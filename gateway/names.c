/* names.c - names and percent-decoding (names.h). */
#include "gateway/names.h"

#include <stdint.h>
#include <string.h>

/* The bytes of one UTF-8 character, 0 where there is none. The tables of Unicode's well-formed byte
 * sequences: the first byte tells the length and narrows the second. */
static size_t utf8_length(const unsigned char *at, size_t left)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t length;
    if (at[0] < 0x80)
        return 1;
    if (at[0] >= 0xc2 && at[0] <= 0xdf)
        length = 2;
    else if (at[0] >= 0xe0 && at[0] <= 0xef)
        length = 3;
    else if (at[0] >= 0xf0 && at[0] <= 0xf4)
        length = 4;
    else
        return 0;
    if (at[0] == 0xe0)
        low = 0xa0;
    else if (at[0] == 0xed)
        high = 0x9f;
    else if (at[0] == 0xf0)
        low = 0x90;
    else if (at[0] == 0xf4)
        high = 0x8f;
    if (left < length || at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (at[i] < 0x80 || at[i] > 0xbf)
            return 0;
    }
    return length;
}

bool utf8_valid(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    while (bytes > 0) {
        size_t length = utf8_length(at, bytes);
        if (length == 0)
            return false;
        at += length;
        bytes -= length;
    }
    return true;
}

void utf8_mend(char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        size_t length = utf8_length((const unsigned char *)text, left);
        if (length == 0) {
            *text = '?';
            length = 1;
        }
        text += length;
        left -= length;
    }
}

/* C0, DEL and C1, the last as U+0080 ... U+009F in UTF-8. */
static bool has_control(const char *name)
{
    for (const unsigned char *at = (const unsigned char *)name; *at; at++) {
        if (*at < 0x20 || *at == 0x7f || (at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f))
            return true;
    }
    return false;
}

const char *name_fault(const char *name)
{
    size_t bytes = strlen(name);
    if (bytes == 0)
        return "A name has at least one byte.";
    if (bytes > NAME_BYTES_MAX)
        return "A name has at most 200 bytes.";
    if (!utf8_valid(name, bytes))
        return "A name is valid UTF-8.";
    if (has_control(name))
        return "A name has no control characters.";
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return "A name is not \".\" or \"..\".";
    return NULL;
}

int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool percent_decode(const char *from, size_t bytes, char *to)
{
    for (size_t i = 0; i < bytes; i++) {
        char byte = from[i];
        if (byte == '%') {
            if (bytes - i < 3 || hex_digit(from[i + 1]) < 0 || hex_digit(from[i + 2]) < 0)
                return false;
            byte = (char)(hex_digit(from[i + 1]) * 16 + hex_digit(from[i + 2]));
            if (byte == '\0')
                return false;
            i += 2;
        }
        *to++ = byte;
    }
    *to = '\0';
    return true;
}
