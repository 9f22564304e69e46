/* address.h - TCP addresses as options and URLs write them: host:port, [v6]:port, :port.
 *
 * A host outside brackets is a name or an IPv4 address in full, one inside an IPv6 address without
 * a zone. Only the form is looked at: nothing is resolved here. Any thread. */
#ifndef FG_ADDRESS_H
#define FG_ADDRESS_H

#include <stdbool.h>

enum { ADDRESS_HOST_BYTES = 254 }; /* a DNS name with its NUL */

/* Takes an address apart: the host without brackets, empty where none is written, and the port,
 * 0 ... 65535. NULL, or a phrase (static, never part of `text`) that says what is wrong; `host` and
 * `port` are then unspecified. */
const char *address_split(const char *text, char host[ADDRESS_HOST_BYTES], int *port);

/* Whether only this machine can reach an address: 127.0.0.0/8, [::1] or "localhost". False where
 * address_split finds a fault, and for an empty host, which means all addresses. */
bool address_is_loopback(const char *text);

#endif
