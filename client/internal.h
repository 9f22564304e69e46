/* internal.h - what the files of libfence share: the client, the lease, and their clock. */
#ifndef FENCE_INTERNAL_H
#define FENCE_INTERNAL_H

#include "client/boot_clock.h"
#include "client/fence.h"
#include "client/http.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { CLIENT_WIRES_MAX = 8, LEASE_ID_BYTES_MAX = 128, NAME_BYTES_MAX = 200 };

/* What is longer counts as a hundred years: the sum with a clock must not overflow. */
static inline int64_t at_most_a_century(int64_t ms)
{
    const int64_t century_ms = INT64_C(36525) * 24 * 3600 * 1000;
    return ms < century_ms ? ms : century_ms;
}

struct fence_client {
    char *url; /* without a slash at its end */
    int64_t timeout_ms;
    pid_t pid; /* that opened it */
    pthread_mutex_t mutex;
    struct wire *idle[CLIENT_WIRES_MAX];
    size_t idle_count;
};

/* Is this still the process that opened it? A child of fork() shares its connections and has none
 * of its threads. */
bool client_is_ours(const struct fence_client *client);

/* ---- Answers --------------------------------------------------------------------------------- */

/* What the answer to an acquire or a renewal says. The texts are borrowed from the JSON. */
struct lease_answer {
    const char *id;
    const char *owner; /* "": none */
    const char *expires_at;
    int64_t token;
    int64_t ttl_ms;
    int64_t expires_in_ms;
    int64_t waited_ms;
    int limit;
};

/* False: it is not a lease of `resource`. */
bool lease_answer_read(const json_t *json, const char *resource, struct lease_answer *answer);

/* ---- Leases ---------------------------------------------------------------------------------- */

struct fence_lease {
    struct fence_client *client;
    char *resource;
    char *owner;
    char *id;
    char *path; /* "/leases/<id>" */
    char *expires_at;
    int64_t token;
    int limit;
    int64_t waited_ms;
    int64_t outlived_boot_ms; /* when max_hold_ms have passed; INT64_MAX: never */
    void (*lost)(struct fence_lease *lease, enum fence_status why, void *arg);
    void *arg;

    /* FENCE_OK while it is held; then, for ever, why it is not. */
    _Atomic(enum fence_status) over;
    char detail[FENCE_DETAIL_BYTES]; /* of that; written once, before `over` is */
    _Atomic int64_t deadline_boot_ms;
    _Atomic int64_t ttl_ms;
    _Atomic int64_t renewed_boot_ms; /* when its last good renewal, or the acquire, was sent */

    pthread_mutex_t mutex;    /* of what follows */
    pthread_cond_t rested;    /* one of them has ended */
    int renewals;             /* under way, by the watchdog and by fence_renew() */
    bool alone;               /* it is one with another TTL */
    bool ending;              /* nobody begins a renewal any more */
    pthread_mutex_t stopping; /* held while the watchdog is waited for; of what follows */
    bool has_watchdog;
    pthread_t watchdog;
    int wake;  /* an eventfd: the watchdog is to look up; -1: none */
    int timer; /* a timerfd of CLOCK_BOOTTIME; -1: none */
};

/* What is kept between our deadline and the server's: for clocks that run at different rates, and
 * for the time that it takes until a job has stopped. */
int64_t lease_margin_ms(int64_t ttl_ms);

/* When a lease that was asked for at `sent_boot_ms` is over, by the answer to that. (The answer to
 * a renewal tells the grant's TTL: `ttl_ms` is the one that was asked for.) */
int64_t lease_deadline(int64_t sent_boot_ms, int64_t ttl_ms, const struct lease_answer *answer);

/* The lease is over. Only the first one who says so is right. `detail`: what the server said; NULL:
 * nothing. Without `mutex`. */
void lease_is_over(struct fence_lease *lease, enum fence_status why, const char *detail);

/* A renewal that was sent at that time has succeeded. False: too late, or the lease is over. */
bool lease_extend(struct fence_lease *lease, int64_t sent_boot_ms, int64_t ttl_ms,
                  const struct lease_answer *answer);

/* The request of a renewal. `path` and `body` (written into) are to outlive it. */
enum { RENEWAL_BODY_BYTES = 48 };
struct http_request lease_renewal(const struct fence_lease *lease, const char *path, int64_t ttl_ms,
                                  char body[RENEWAL_BODY_BYTES]);

/* Reads the 2xx answer to it, and extends the lease. FENCE_BAD_ANSWER, or it came too late:
 * FENCE_EXPIRED, or why the lease is over. */
enum fence_status lease_read_renewal(struct fence_lease *lease, int64_t ttl_ms,
                                     const struct http_answer *answer, struct fence_error *error);

/* Is this the server's word that the lease is over? */
bool lease_has_ended(enum fence_status status);

/* Releases a lease by its path, "/leases/<id>"; `timeout_ms` 0: the client's. As fence_release().
 */
enum fence_status lease_give_back(struct fence_client *client, const char *path, int64_t timeout_ms,
                                  struct fence_error *error);

/* Takes the right to renew. Renewals with the lease's own TTL may overlap, one with another has to
 * be `alone`. `wait`: until that is possible. False: it is not, or the lease is ending. */
bool lease_renewal_begin(struct fence_lease *lease, bool alone, bool wait);
void lease_renewal_end(struct fence_lease *lease);

/* Starts the watchdog's thread; false: there can be none. */
bool watchdog_start(struct fence_lease *lease);

/* Something has changed: it looks again when there is what to do. */
void watchdog_wake(const struct fence_lease *lease);

/* Ends it, once `ending` is set, and waits for that, unless it is the watchdog that asks. */
void watchdog_stop(struct fence_lease *lease);

#endif
