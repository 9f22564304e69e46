/* names.h - what a resource or key may be called, and percent-decoding.
 *
 * A name is 1-200 bytes of valid UTF-8 without control characters, not "." or "..", compared byte
 * by byte. Any thread. */
#ifndef FG_NAMES_H
#define FG_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { NAME_BYTES_MAX = 200 };

/* NULL where `name` is a name, else a sentence (static) that says why it is none. */
const char *name_fault(const char *name);

/* Whether `text` is valid UTF-8: shortest forms only, no surrogates, at most U+10FFFF. */
bool utf8_valid(const char *text, size_t bytes);

/* Replaces each byte of `text` that is not part of valid UTF-8 by '?': for what is shown, never for
 * what is compared. */
void utf8_mend(char *text);

/* The value of a hexadecimal digit in either case, -1 for anything else. */
int hex_digit(char c);

/* Decodes %XX once, from `from` (`bytes` long) into `to` (room for bytes + 1), and ends it with a
 * NUL. False: a bad escape, or %00, which no C string can hold. */
bool percent_decode(const char *from, size_t bytes, char *to);

#endif
