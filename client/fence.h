/* fence.h - libfence, the client of fencegate: leases that renew themselves, fenced writes.
 *
 *     struct fence_client *client;
 *     struct fence_lease *lease;
 *     struct fence_error error;
 *     fence_open(&client, &(struct fence_options){.url = "http://127.0.0.1:8080"}, &error);
 *     if (fence_acquire(client, &(struct fence_terms){.resource = "invoice:1234", .wait_ms = 5000},
 *                       &lease, &error) != FENCE_OK)
 *         return complain(error.detail);
 *     struct fence_record record = fence_lease_record(lease, "charge");
 *     fence_put(client, &record, "100", 3, NULL, &error);    // refused if the lease is not ours
 *     fence_release(lease, &error);
 *     fence_lease_free(lease);
 *     fence_close(client);
 *
 * A lease has a watchdog: a thread of its own that renews it every third of its TTL for as long as
 * the process lives (watchdog.c). The lease also has a deadline of ours, which is before the moment
 * at which the server would give it to somebody else, and which holds also where the server never
 * answers again:
 *
 *     deadline = when the request was sent + waited_ms + expires_in_ms - margin
 *
 * on CLOCK_BOOTTIME, which goes on while the machine is suspended; the margin is a twentieth of the
 * TTL, at least 10 ms and at most a second. Once it has passed, or the server has said that the
 * lease is over, the lease is lost: for ever, whatever the server says later.
 *
 * None of this makes a write safe: a process can be paused between its last look at the clock and
 * its write. The token does. So a write goes through fence_put(), or to something else that checks
 * tokens; the watchdog, fence_still_held() and the callback are there so that a job learns early
 * that it works in vain.
 *
 * Threads: a client may be used by any number of threads at a time, a lease too, except that
 * fence_lease_free() is the last call with it. There is no global state. The library blocks all
 * signals in its threads and never raises SIGPIPE. After fork() the child has no watchdog: there a
 * lease is not held, and fence_lease_free() and fence_close() only free the child's memory.
 *
 * Times are milliseconds. Texts are UTF-8 and end with NUL. Every call that can fail returns a
 * status, and fills the struct fence_error that it is given (NULL: nobody wants to know). */
#ifndef FENCE_H
#define FENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- What can come of a call ---------------------------------------------------------------- */

enum fence_status {
    FENCE_OK = 0,

    /* The lease was not obtained. */
    FENCE_HELD,      /* others hold the resource, and wait_ms have passed */
    FENCE_CANCELLED, /* cancel_fd became readable */
    FENCE_TOO_SHORT, /* the TTL had nearly passed when the answer came: it must be longer */

    /* The lease is over. */
    FENCE_EXPIRED,    /* it ran out: by the server, or by our own deadline */
    FENCE_SUPERSEDED, /* another lease has replaced it */
    FENCE_REVOKED,    /* an operator took it away */
    FENCE_RELEASED,   /* it was given back before */
    FENCE_OUTLIVED,   /* it was held for max_hold_ms */
    FENCE_FORKED,     /* it belongs to the process that we were forked from */

    /* The write was refused, and nothing has changed. */
    FENCE_STALE,    /* its token is not, or not any more, the one of a live lease */
    FENCE_MISMATCH, /* the record has another version */

    FENCE_NOT_FOUND, /* no such lease, resource or record */
    FENCE_REFUSED,   /* anything else that the server will not do: error.code says what */
    FENCE_INVALID,   /* an argument is wrong; nothing was sent */

    /* It may work later. */
    FENCE_BUSY,        /* the server says that it cannot now: 503, 507, 429 */
    FENCE_UNREACHABLE, /* no connection; nothing was sent */
    FENCE_NO_ANSWER,   /* none, half of one, or none in time: it may have been done or not */
    FENCE_BAD_ANSWER,  /* not an answer of fencegate: likewise */
    FENCE_SYSTEM,      /* this machine: memory, descriptors, threads */
};

/* What it means, in a few words: "somebody else holds it". Never NULL, also for other numbers. */
const char *fence_status_text(enum fence_status status);

/* Whether the same call can succeed later without anybody changing it: FENCE_HELD and those from
 * FENCE_BUSY on. */
bool fence_status_retryable(enum fence_status status);

enum { FENCE_CODE_BYTES = 48, FENCE_DETAIL_BYTES = 512 };

struct fence_error {
    enum fence_status status;
    int http_status;                 /* of the answer; 0: there was none */
    char code[FENCE_CODE_BYTES];     /* the server's code, as "lease_held"; "": none */
    char detail[FENCE_DETAIL_BYTES]; /* one sentence for people, never empty */
    int64_t retry_after_ms;          /* as the server suggests; 0: it does not */
    int64_t highest_fencing_token;   /* FENCE_STALE: the newest of the resource; 0: not told */
};

/* ---- Client --------------------------------------------------------------------------------- */

struct fence_client;

struct fence_options {
    const char *url;    /* "http://host:port[/prefix]" or https; NULL: http://127.0.0.1:8080. No
                           environment is read, no proxy is used, no redirect followed */
    int64_t timeout_ms; /* for one request, beside the wait of an acquire; 0: 10,000. */
};

/* Opens a client; `options` may be NULL. Nothing is sent: the first request connects, and later
 * ones use its connection again. FENCE_INVALID: the URL; FENCE_SYSTEM. `*client` is then NULL. */
enum fence_status fence_open(struct fence_client **client, const struct fence_options *options,
                             struct fence_error *error);

/* Closes it. All its leases must have been freed. NULL is fine. */
void fence_close(struct fence_client *client);

/* ---- Leases --------------------------------------------------------------------------------- */

struct fence_lease;

enum {
    FENCE_TTL_LEAST_MS = 50,
    FENCE_TTL_MOST_MS = 24 * 3600 * 1000,
    FENCE_WAIT_FOREVER = -1,
    FENCE_WAIT_STEP_MS = 600 * 1000, /* the longest that one request may wait */
};

/* What to ask for. What is zero is the default. */
struct fence_terms {
    const char *resource; /* 1-200 bytes */
    const char *owner;    /* a label that others see, up to 128 bytes; NULL: none */
    int64_t ttl_ms;       /* FENCE_TTL_LEAST_MS ... FENCE_TTL_MOST_MS; 0: 30,000 */
    int64_t wait_ms;      /* for how long to wait for it; 0: not at all; or FENCE_WAIT_FOREVER */
    int limit;            /* how many may hold it, 1-1000; 0: as it is set, else 1 */
    int64_t max_hold_ms;  /* it is lost (FENCE_OUTLIVED) after so long; 0: never */
    int64_t wait_step_ms; /* one request waits for at most so long: less than FENCE_WAIT_STEP_MS
                             behind a proxy that cuts quiet connections; 0: FENCE_WAIT_STEP_MS */
    int cancel_fd;        /* the wait ends when it is readable; it is not read. 0: none, so it
                             cannot be standard input */
    bool no_watchdog;     /* nobody renews it but fence_renew() */
    /* Called once, on the watchdog's thread, when the lease is lost (`why`: FENCE_EXPIRED,
     * _SUPERSEDED, _REVOKED, _RELEASED, _NOT_FOUND or _OUTLIVED); never after fence_release() has
     * returned. It may call everything but fence_release() and fence_lease_free(). */
    void (*lost)(struct fence_lease *lease, enum fence_status why, void *arg);
    void *arg;
};

/* Takes a lease, and starts its watchdog.
 *
 * A wait longer than wait_step_ms is made of several requests. Each takes its place at the end of
 * the server's queue, so the next one is sent when half of the step is over: the older of the two
 * is always at least half a step old, and when it ends the other has stood there for as long. What
 * is granted twice is released at once.
 *
 * Where the connection is lost, or the server says 503, after the wait had begun (it restarts),
 * the request is made anew for as long as wait_ms lasts, but not for more than a minute without
 * an answer. Such a request stands at the end of the queue, as all do after a restart.
 *
 * FENCE_OK: `*lease` is the caller's, until fence_lease_free(). Otherwise it is NULL and
 * the status FENCE_HELD, _CANCELLED, _TOO_SHORT, _REFUSED (as "limit_mismatch"), _INVALID,
 * _BUSY, _UNREACHABLE, _NO_ANSWER, _BAD_ANSWER or _SYSTEM; after _NO_ANSWER and _BAD_ANSWER a lease
 * may have been granted that nobody knows of: it ends by its TTL. */
enum fence_status fence_acquire(struct fence_client *client, const struct fence_terms *terms,
                                struct fence_lease **lease, struct fence_error *error);

/* Whether it is held, by all that this process knows: neither lost nor released, and its deadline
 * not passed. No request is made. Ask it before each step of a long job. */
bool fence_still_held(const struct fence_lease *lease);

/* For how long it will be held without another renewal, by our deadline; 0: it is not held. */
int64_t fence_left_ms(const struct fence_lease *lease);

/* The same as a time of CLOCK_BOOTTIME, in ms; also of the past. A renewal moves it, a loss moves
 * it no more. */
int64_t fence_deadline_boot_ms(const struct fence_lease *lease);

/* What the server told at the grant. The texts live as long as the lease. */
const char *fence_lease_id(const struct fence_lease *lease); /* a secret: who has it may release */
int64_t fence_lease_token(const struct fence_lease *lease);
const char *fence_lease_resource(const struct fence_lease *lease);
const char *fence_lease_owner(const struct fence_lease *lease);      /* "": none */
const char *fence_lease_expires_at(const struct fence_lease *lease); /* RFC 3339, of the grant */
int64_t fence_lease_ttl_ms(const struct fence_lease *lease);         /* changed by fence_renew() */
int fence_lease_limit(const struct fence_lease *lease);
int64_t fence_lease_waited_ms(const struct fence_lease *lease); /* as we counted it, in all */

/* Once it is lost: one sentence for people that says why, as "The lease was revoked: deploy.".
 * Before that "". Lives as long as the lease. */
const char *fence_lost_detail(const struct fence_lease *lease);

/* Renews it now, to `ttl_ms` from now on (0: as before; less shortens it). The watchdog goes on
 * with that TTL. FENCE_EXPIRED, _SUPERSEDED, _REVOKED, _RELEASED, _NOT_FOUND, _OUTLIVED, _FORKED:
 * it is over. _INVALID, _REFUSED, _UNREACHABLE, _SYSTEM: not renewed; it is held until its
 * deadline. _BUSY, _NO_ANSWER, _BAD_ANSWER: not known; likewise, but a shorter TTL counts from when
 * it was asked for. */
enum fence_status fence_renew(struct fence_lease *lease, int64_t ttl_ms, struct fence_error *error);

/* Gives it back. First the watchdog is stopped, whatever it was doing: no renewal is sent after
 * that, and `lost` is not called any more. From the call on the lease is not held. Once the server
 * has answered, no write of its token is accepted.
 *
 * FENCE_OK: released now, or before. _EXPIRED: likewise, but it had run out (nobody had replaced
 * it). _SUPERSEDED, _REVOKED: the work may have overlapped another's. _NOT_FOUND: it ended more
 * than a day ago. _FORKED. Others: not known; it ends by its TTL at the latest, and the call may be
 * repeated. */
enum fence_status fence_release(struct fence_lease *lease, struct fence_error *error);

/* Ends the watchdog and frees it. One that was not released runs out by itself. NULL is fine. */
void fence_lease_free(struct fence_lease *lease);

/* ---- Records -------------------------------------------------------------------------------- */

enum { FENCE_ANY_VERSION = 0, FENCE_ABSENT = -1 };

/* A record, and by what right it is written. */
struct fence_record {
    const char *resource;
    const char *key;
    int64_t token;        /* 0: none, for a resource that is not fenced, or for a plain read */
    const char *lease_id; /* checked beside the token; NULL: not sent */
    int64_t if_version;   /* the version that it must have; FENCE_ANY_VERSION, FENCE_ABSENT */
};

/* One of the lease's resource, with its token and its id. */
struct fence_record fence_lease_record(const struct fence_lease *lease, const char *key);

struct fence_value {
    void *bytes; /* malloc()ed, and a NUL behind them; freed by fence_value_free() */
    size_t count;
    char *content_type;
    int64_t version;
    int64_t token; /* that it was written with; 0: none */
};

/* Writes `count` bytes. The type is application/octet-stream; fence_put_as() names another.
 * `*version` (NULL: not wanted) is the record's new version. FENCE_OK: it is on the disk.
 * FENCE_STALE, _MISMATCH, _REFUSED (as "body_too_large"), _INVALID, _UNREACHABLE: nothing was
 * written. _BUSY: not written, try again. _NO_ANSWER, _BAD_ANSWER: not known. */
enum fence_status fence_put(struct fence_client *client, const struct fence_record *record,
                            const void *bytes, size_t count, int64_t *version,
                            struct fence_error *error);

enum fence_status fence_put_as(struct fence_client *client, const struct fence_record *record,
                               const char *content_type, const void *bytes, size_t count,
                               int64_t *version, struct fence_error *error);

/* Reads it; if_version is not looked at. With a token, only while that is live: else FENCE_STALE.
 * `value` is zeroed first, and then the caller's to free. */
enum fence_status fence_get(struct fence_client *client, const struct fence_record *record,
                            struct fence_value *value, struct fence_error *error);

/* NULL is fine. */
void fence_value_free(struct fence_value *value);

/* Deletes it. As fence_put(), and FENCE_NOT_FOUND. */
enum fence_status fence_delete(struct fence_client *client, const struct fence_record *record,
                               struct fence_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
