/* digits.h - numbers and bytes as digits: read as people write them in options, addresses and URLs,
 * written as the hot path needs them, which printf takes ten times as long for. Any thread. */
#ifndef FG_DIGITS_H
#define FG_DIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGITS_CHARS = 21 }; /* any int64_t, its sign and the NUL */

/* Reads `length` bytes that must all be decimal digits, at least one, leading zeros allowed. False:
 * they are not, or the number is above `most` (>= 0); `number` is then left alone. */
bool digits_read(const char *text, size_t length, int64_t most, int64_t *number);

/* Writes `number` and a NUL; returns where the NUL stands. */
char *digits_write(char out[DIGITS_CHARS], int64_t number);

/* Writes `width` digits of `number` (>= 0) with leading zeros, no NUL; returns the place behind. */
char *digits_write_padded(char *out, int64_t number, size_t width);

/* Writes two lower-case hex digits for each byte and a NUL; returns where the NUL stands. */
char *digits_write_hex(char *out, const void *from, size_t bytes);

#endif
