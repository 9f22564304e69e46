/* limits.h - more words for tests of resources that several hold at once.
 *
 * What is returned is owned by the test; failures fail it, with the whole answer. */
#ifndef TESTS_LIMITS_H
#define TESTS_LIMITS_H

#include "tests/support/waits.h"

/* For what happens at once: a bound against hangs, never a measurement. */
enum { SOON_MS = 20000 };

/* ---- Limits ---- */

/* Asks for a lease. `fields`: more of the body, from its comma on, or "". */
struct response *ask(struct gateway *gateway, const char *name, int ttl_ms, const char *fields);

/* ",\"limit\":3", for ask(). */
const char *limit_field(int limit);

/* PUT /resources/{resource} {"limit"}, and that it says so. */
void set_limit(struct gateway *gateway, const char *name, int limit);

/* `count` long leases of a resource that has this limit from now on. */
void take(struct gateway *gateway, const char *name, int limit, int count, struct lease *leases);

/* ---- Who holds it ---- */

/* A newcomer is refused: it is held. */
void expect_full(struct gateway *gateway, const char *name);

/* So many are shown. */
void expect_holders(struct gateway *gateway, const char *name, size_t count);

/* Writes the record "k". False: refused, as stale. */
bool may_write(struct gateway *gateway, const char *name, struct lease lease);
void expect_writer(struct gateway *gateway, const char *name, struct lease lease);

/* `newer` has replaced it: it may do nothing any more, and is told why. */
void expect_replaced(struct gateway *gateway, const char *name, struct lease lease,
                     struct lease newer);

/* ---- Who waits ---- */

/* `count` of them (waits.h), one behind the other. */
void queue_up(struct gateway *gateway, const char *name, int count, struct http **waiters);

#endif
