/* random.h - random bytes from the kernel, without a system call for each.
 *
 * Every lease takes 16 of them and every request that brings no id takes some, so they are fetched
 * by the page and handed out piece by piece; a piece that was handed out is wiped here. Each thread
 * has a page of its own. Any thread. */
#ifndef FG_RANDOM_H
#define FG_RANDOM_H

#include <stddef.h>

/* Fills `out` with `bytes` random bytes, at most 256. Ends the process where the kernel has none.
 */
void random_bytes(void *out, size_t bytes);

#endif
