/* random.c - a page of random bytes per thread (random.h). A child process runs another program at
 * once and never sees the page. */
#include "gateway/random.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { PAGE_BYTES = 4096, PIECE_BYTES_MAX = 256 };

static _Thread_local unsigned char page[PAGE_BYTES];
static _Thread_local size_t left;

static void refill(void)
{
    size_t got = 0;
    while (got < PAGE_BYTES) {
        ssize_t more = getrandom(page + got, PAGE_BYTES - got, 0);
        if (more < 0 && errno != EINTR)
            abort();
        got += more > 0 ? (size_t)more : 0;
    }
    left = PAGE_BYTES;
}

void random_bytes(void *out, size_t bytes)
{
    assert(bytes <= PIECE_BYTES_MAX);
    if (left < bytes)
        refill();
    left -= bytes;
    memcpy(out, page + left, bytes);
    explicit_bzero(page + left, bytes);
}
