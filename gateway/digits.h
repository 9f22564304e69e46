/* digits.h - numbers as people write them in options, addresses and URLs. Any thread. */
#ifndef FG_DIGITS_H
#define FG_DIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads `length` bytes that must all be decimal digits, at least one, leading zeros allowed. False:
 * they are not, or the number is above `most` (>= 0); `number` is then left alone. */
bool digits_read(const char *text, size_t length, int64_t most, int64_t *number);

#endif
