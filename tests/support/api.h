/* api.h - the words in which the API tests tell their stories:
 *
 *     struct lease a = acquire(g, "invoice:1", 100);
 *     sleep_ms(300);
 *     struct lease b = acquire(g, "invoice:1", 30000);
 *     expect_problem(put(g, "invoice:1", "state", a.token, "paid"), 412, "stale_fencing_token");
 *
 * Every call checks what all answers have in common: one X-Request-Id, Cache-Control: no-store, and
 * for an error the whole of its problem document. What is returned is owned by the test. A resource
 * or key is given as its bytes and is percent-encoded here; a `target` is sent as given. */
#ifndef TESTS_API_H
#define TESTS_API_H

#include "tests/support/cleanup.h"
#include "tests/support/gateway.h"
#include "tests/support/http.h"
#include "tests/support/process.h"
#include "tests/support/redis_server.h"
#include "tests/support/tempdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A TTL that no test outlives, and the end of which no test waits for. */
enum { LONG_TTL_MS = 600000 };

/* A TTL for leases that shall run out. */
#define SHORT_TTL_MS slow_ms(150)

/* A test whose servers, folders and answers are gone when it ends. */
#define TEST(function) cmocka_unit_test_teardown(function, cleanup_test)

struct lease {
    const char *id;
    long long token;
    struct response *answer; /* of the acquire */
};

/* ---- Calls ------------------------------------------------------------------------------------
 */

/* Any request. `headers`: LIST("Name: value", ...) or NULL. `body`: text or NULL. */
struct response *call(struct gateway *gateway, const char *method, const char *target,
                      const char *const *headers, const char *body);

/* The same on a connection of its own. */
struct response *call_on(struct http *http, const char *method, const char *target,
                         const char *const *headers, const char *body);

/* The same, without body or headers; with a JSON body built by printf. */
struct response *get(struct gateway *gateway, const char *target);
struct response *post(struct gateway *gateway, const char *target, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Asks for a lease, whatever the answer. */
struct response *try_acquire(struct gateway *gateway, const char *resource, int ttl_ms);

/* Gets one: fails the test where it is not granted. A short TTL that ran out while it was granted,
 * as it may on a busy machine, is asked for again. */
struct lease acquire(struct gateway *gateway, const char *resource, int ttl_ms);

/* Asks until it is granted; fails the test after `timeout_ms`. */
struct lease acquire_within(struct gateway *gateway, const char *resource, int ttl_ms,
                            int timeout_ms);

/* Renews with this TTL (0: the TTL of the grant), releases, inspects. */
struct response *renew(struct gateway *gateway, const char *lease_id, int ttl_ms);
struct response *release(struct gateway *gateway, const char *lease_id);
struct response *inspect(struct gateway *gateway, const char *lease_id);

/* Waits until a lease's TTL has passed, seen by the gateway; it is live but no longer held then. */
void await_expiry(struct gateway *gateway, const char *lease_id);

/* Writes, reads, deletes a record, with a token; 0: without. */
struct response *put(struct gateway *gateway, const char *resource, const char *key,
                     long long token, const char *value);
struct response *fetch(struct gateway *gateway, const char *resource, const char *key,
                       long long token);
struct response *erase(struct gateway *gateway, const char *resource, const char *key,
                       long long token);

/* POST /resources/{resource}/check. */
struct response *check(struct gateway *gateway, const char *resource, long long token);

/* GET /resources/{resource}, GET /resources/{resource}/history<query>. */
struct response *resource(struct gateway *gateway, const char *resource);
struct response *history(struct gateway *gateway, const char *resource, const char *query);

/* ---- Parts of requests ------------------------------------------------------------------------
 */

/* "invoice/1" -> "invoice%2F1". */
const char *encoded(const char *name);

/* "/store/<resource>/<key>", encoded. */
const char *store_path(const char *resource, const char *key);

/* "X-Fencing-Token: 7". */
const char *token_header(long long token);

/* ---- Expectations: each fails the test with the whole answer ----------------------------------
 */

/* Where the test stands, for messages; the macros at the end of this file call it. */
void expecting_at(const char *file, int line);

/* The status. Returns `response`. */
struct response *expect_status(struct response *response, int status);

/* The status and the code of a problem. Returns `response`. */
struct response *expect_problem(struct response *response, int status, const char *code);

/* A member of the JSON body, by a path like "items.0.key". */
void expect_number(const struct response *response, const char *path, long long expected);
void expect_text(const struct response *response, const char *path, const char *expected);
void expect_true(const struct response *response, const char *path);
void expect_false(const struct response *response, const char *path);
void expect_null(const struct response *response, const char *path);
void expect_absent(const struct response *response, const char *path);

/* A header's value; NULL: the header is absent. */
void expect_header(const struct response *response, const char *name, const char *expected);

/* The whole body. */
void expect_body(const struct response *response, const char *expected);

/* An object has exactly these members. `path` "": the body itself. */
void expect_members(const struct response *response, const char *path, const char *const *names);

/* A member's value; fails the test where it is missing or of another type. */
long long number_at(const struct response *response, const char *path);
const char *text_at(const struct response *response, const char *path);

/* The length of an array. */
size_t count_at(const struct response *response, const char *path);

/* A member, or NULL. */
json_t *json_at(const struct response *response, const char *path);

/* Milliseconds since 1970 of an RFC 3339 time in UTC with milliseconds; fails the test where the
 * text is anything else. */
long long time_of(const char *rfc3339);

/* A failed expectation names the line of the test, not one of ours. */
#ifndef TESTS_API_INSIDE
#define AT_LINE(call)       (expecting_at(__FILE__, __LINE__), call)
#define expect_status(...)  AT_LINE(expect_status(__VA_ARGS__))
#define expect_problem(...) AT_LINE(expect_problem(__VA_ARGS__))
#define expect_number(...)  AT_LINE(expect_number(__VA_ARGS__))
#define expect_text(...)    AT_LINE(expect_text(__VA_ARGS__))
#define expect_true(...)    AT_LINE(expect_true(__VA_ARGS__))
#define expect_false(...)   AT_LINE(expect_false(__VA_ARGS__))
#define expect_null(...)    AT_LINE(expect_null(__VA_ARGS__))
#define expect_absent(...)  AT_LINE(expect_absent(__VA_ARGS__))
#define expect_header(...)  AT_LINE(expect_header(__VA_ARGS__))
#define expect_body(...)    AT_LINE(expect_body(__VA_ARGS__))
#define expect_members(...) AT_LINE(expect_members(__VA_ARGS__))
#define number_at(...)      AT_LINE(number_at(__VA_ARGS__))
#define text_at(...)        AT_LINE(text_at(__VA_ARGS__))
#define count_at(...)       AT_LINE(count_at(__VA_ARGS__))
#define acquire(...)        AT_LINE(acquire(__VA_ARGS__))
#define acquire_within(...) AT_LINE(acquire_within(__VA_ARGS__))
#endif

#endif
