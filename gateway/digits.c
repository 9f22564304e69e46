/* digits.c - reading digits without blanks, signs and overflow, all of which strtoll takes
 * (digits.h). */
#include "gateway/digits.h"

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
