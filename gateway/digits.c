/* digits.c - reading digits without blanks, signs and overflow, all of which strtoll takes; writing
 * them (digits.h). */
#include "gateway/digits.h"

#include <string.h>

bool digits_read(const char *text, size_t length, int64_t most, int64_t *number)
{
    int64_t sum = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        int digit = text[i] - '0';
        if (digit > most || sum > (most - digit) / 10)
            return false;
        sum = sum * 10 + digit;
    }
    if (length == 0)
        return false;
    *number = sum;
    return true;
}

char *digits_write(char out[DIGITS_CHARS], int64_t number)
{
    char digits[DIGITS_CHARS];
    char *at = digits + sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0)
        *--at = '-';
    size_t length = (size_t)(digits + sizeof digits - at);
    memcpy(out, at, length);
    out[length] = '\0';
    return out + length;
}

char *digits_write_padded(char *out, int64_t number, size_t width)
{
    for (size_t i = width; i-- > 0; number /= 10)
        out[i] = (char)('0' + number % 10);
    return out + width;
}

char *digits_write_hex(char *out, const void *from, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *in = from;
    for (size_t i = 0; i < bytes; i++) {
        *out++ = digits[in[i] >> 4];
        *out++ = digits[in[i] & 15];
    }
    *out = '\0';
    return out;
}
