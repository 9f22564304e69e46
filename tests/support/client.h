/* client.h - the words in which the tests of libfence tell their stories:
 *
 *     struct fence_client *c = client_of(g->url);
 *     struct fence_lease *a = take_lease(c, &(struct fence_terms){.resource = "r"});
 *     EXPECT(FENCE_HELD, fence_acquire(c, &(struct fence_terms){.resource = "r"}, &b, &failure));
 *
 * Clients, leases and threads that these calls hand out are freed when the test ends, in the right
 * order. Main thread only, except where a comment says otherwise. */
#ifndef TESTS_CLIENT_H
#define TESTS_CLIENT_H

#include "client/fence.h"
#include "tests/support/api.h"
#include "tests/support/stub_server.h"

#include <stdatomic.h>

/* What the last call has said; for EXPECT(). */
extern struct fence_error failure;

/* Fails the test where the call, which gets `&failure`, has another status than that, or where
 * `failure` does not agree with it. */
#define EXPECT(expected, call) client_expect(expected, call, #call, __FILE__, __LINE__)
void client_expect(enum fence_status expected, enum fence_status got, const char *call,
                   const char *file, int line);

/* The same, and the server's code: "lease_held". */
#define EXPECT_CODE(expected, code, call)                      \
    (client_expect(expected, call, #call, __FILE__, __LINE__), \
     client_expect_code(code, #call, __FILE__, __LINE__))
void client_expect_code(const char *code, const char *call, const char *file, int line);

/* "FENCE_HELD" */
const char *status_name(enum fence_status status);

/* Milliseconds of CLOCK_BOOTTIME. Any thread. */
long long boot_now_ms(void);

/* ---- Clients and leases ---------------------------------------------------------------------- */

struct fence_client *client_of(const char *url);
struct fence_client *client_with(const struct fence_options *options);

/* Gets a lease; fails the test where it is not granted. One whose TTL had nearly passed when it was
 * granted, as it may on a busy machine, is asked for again. */
struct fence_lease *take_lease(struct fence_client *client, const struct fence_terms *terms);

/* Has it freed when the test ends. Returns `lease`. */
struct fence_lease *adopt(struct fence_lease *lease);

/* Frees it now. */
void discard(struct fence_lease *lease);

/* Revokes all leases of a resource. */
void take_away(struct gateway *gateway, const char *name);

/* ---- Losses ---------------------------------------------------------------------------------- */

/* What `lost` was told: .lost = note_loss, .arg = loss. Any thread may read it. */
struct loss {
    atomic_int calls;
    atomic_int why;
    atomic_llong at_boot_ms;
    atomic_bool held; /* fence_still_held() said so, inside the callback */
    _Atomic(struct fence_lease *) lease;
};

/* One that lives as long as the leases of the test. */
struct loss *loss_new(void);

void note_loss(struct fence_lease *lease, enum fence_status why, void *loss);

/* Waits for it; fails the test where it does not come, or for another reason, or a second time, or
 * where the lease is held still. */
void expect_loss(const struct loss *loss, enum fence_status why);

/* ---- An acquire on a thread of its own ------------------------------------------------------- */

struct asking;

/* Begins. The terms are copied, their texts are not; cancel_fd is ours where it is 0. */
struct asking *ask_meanwhile(struct fence_client *client, const struct fence_terms *terms);

bool asking_is_done(const struct asking *asking);

/* Makes its cancel_fd readable. */
void asking_cancel(struct asking *asking);

/* Waits for the end, and returns the status, with `failure`; fails the test where it does not come.
 * `*lease` (NULL: not wanted) is owned by the test. */
enum fence_status asking_end(struct asking *asking, struct fence_lease **lease);

/* ---- Leases of a stub ------------------------------------------------------------------------ */

/* The one of stub_lease(): of the resource "r". */
#define STUB_LEASE_ID "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd"
enum { STUB_TOKEN = 7 };

/* The patterns of stub_play(). */
#define ACQUIRES "POST /leases"
#define RENEWALS "POST /leases/*/renew"
#define RELEASES "DELETE /leases/*"

/* An answer to an acquire (201) or to a renewal (200): a lease with this TTL, all of it left. */
const char *stub_lease(int status, int ttl_ms);

/* The same with other times. */
const char *stub_lease_times(int status, int ttl_ms, int expires_in_ms, int waited_ms);

/* Its body, where one member has another value, as JSON ("-1"), or is not there (NULL). */
const char *lease_body(const char *member, const char *value);

/* The answer to a release. */
const char *stub_released(void);

/* Grants, renews and releases leases of `ttl_ms`. */
void stub_serve(struct stub *stub, int ttl_ms);

#endif
