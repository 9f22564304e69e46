/* lease_id.h - the text form of a lease's name.
 *
 * A lease id is what lets its holder renew and release: 40 URL-safe characters (base64url without
 * padding) of 30 bytes:
 *
 *     secret, 16 random bytes | version, 1 byte | resource number, 6 | token, 7
 *
 * The random part comes first, so that the first characters can stand in a log as lease_ref; the
 * rest lets the store find the lease without an index over random bytes. Any thread. */
#ifndef FG_LEASE_ID_H
#define FG_LEASE_ID_H

#include "storage/fence.h"

#include <stdbool.h>

enum { LEASE_ID_CHARS = 40, LEASE_REF_CHARS = 8 };

/* Writes the id of a lease and a NUL. resource_id < 2^48, token <= FENCING_TOKEN_MAX. */
void lease_id_write(const struct lease_key *key, char out[LEASE_ID_CHARS + 1]);

/* Reads an id; false where `text` is not the id that lease_id_write() would write for any lease. */
bool lease_id_read(const char *text, struct lease_key *key);

/* Writes the first characters of an id, for logs. */
void lease_ref_write(const struct lease_key *key, char out[LEASE_REF_CHARS + 1]);

/* Fills a secret with random bytes from the kernel. Ends the process where there are none. */
void lease_secret_random(uint8_t secret[LEASE_SECRET_BYTES]);

#endif
