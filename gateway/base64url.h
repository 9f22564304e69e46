/* base64url.h - base64 with the URL alphabet and without padding (RFC 4648, section 5). Any thread.
 */
#ifndef FG_BASE64URL_H
#define FG_BASE64URL_H

#include <stdbool.h>
#include <stddef.h>

/* Characters that `bytes` bytes become, without the NUL. */
#define BASE64URL_CHARS(bytes) (((bytes)*4 + 2) / 3)

/* Writes BASE64URL_CHARS(bytes) characters and a NUL. */
void base64url_write(const void *from, size_t bytes, char *out);

/* Reads `text` into `out`, which has room for `room` bytes; *bytes is how many came. False: not
 * base64url, too long, or not what base64url_write() would write (stray bits at the end). */
bool base64url_read(const char *text, void *out, size_t room, size_t *bytes);

#endif
