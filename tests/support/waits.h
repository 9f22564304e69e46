/* waits.h - the words of tests about waiting for a lease (api.h has the others):
 *
 *     struct lease a = acquire(g, "r", LONG_TTL_MS);
 *     struct http *b = wait_for(g, "r", "");          // stands in the queue when it returns
 *     release(g, a.id);
 *     assert_int_equal(granted_to(b).token, a.token + 1);
 *
 * Who waits has a connection of its own, owned by the test, and leaves with http_close() or
 * http_reset(). `more` is what the body holds besides resource, ttl_ms (LONG_TTL_MS) and wait_ms:
 * "" or further members, as ",\"limit\":2". */
#ifndef TESTS_WAITS_H
#define TESTS_WAITS_H

#include "tests/support/api.h"

/* A wait that no test outlasts. */
enum { LONG_WAIT_MS = 120000 };

/* The body of an acquire that waits. */
const char *wait_body(const char *name, int wait_ms, const char *more);

/* Asks, and does not wait for anything. */
struct http *ask_for(struct gateway *gateway, const char *name, const char *more);

/* Asks, and stands in the queue behind all others when this returns; the resource must be held. */
struct http *wait_for(struct gateway *gateway, const char *name, const char *more);

/* Whether so many wait; waits until so many do, and fails the test where they never do. */
bool waiters_are(struct gateway *gateway, const char *name, long long count);
void await_waiters(struct gateway *gateway, const char *name, long long count);

/* The answer to somebody who waits; the lease, where the answer must be one. */
struct response *answer_to(struct http *http);
struct lease granted_to(struct http *http);

#endif
