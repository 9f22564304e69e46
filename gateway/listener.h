/* listener.h - the listening socket of --listen. */
#ifndef FG_LISTENER_H
#define FG_LISTENER_H

#include <stddef.h>

/* Binds `listen` ("host:port", "[v6]:port", ":port"; port 0 takes a free one) and listens. Returns
 * the descriptor, which the caller owns, and writes the URL; -1 and a line in `why`. */
int listener_open(const char *listen, char *url, size_t url_bytes, char *why, size_t why_bytes);

#endif
