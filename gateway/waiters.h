/* waiters.h - who waits for a lease: a FIFO queue per resource, without polling.
 *
 * Every request for a lease comes through here. One that need not wait is an attempt (acquire.h)
 * and nothing else. Where a resource is busy, those who said that they would wait stand in a queue
 * in memory; only the first of them asks Redis, and only when something has changed: waiters.c says
 * how no wake-up is lost and nobody overtakes.
 *
 * A waiter holds one connection and some memory, so there is a limit to how many there are; and it
 * leaves the queue at once when its client does. Loop thread only. */
#ifndef FG_WAITERS_H
#define FG_WAITERS_H

#include "gateway/acquire.h"

#include <ev.h>

struct waiters;

enum { WAIT_MAX_MS = 600 * 1000 };

struct waiters_options {
    size_t max;              /* waiting at once, over all resources */
    size_t max_per_resource; /* likewise, for one */
};

/* `acquires` and `redis` are borrowed for the life of it. */
struct waiters *waiters_open(struct ev_loop *ev, struct acquires *acquires,
                             struct redis_link *redis, const struct waiters_options *options);

/* Nobody waits any more. NULL is fine. */
void waiters_close(struct waiters *waiters);

/* A request for a lease. The caller owns it and keeps it until done(), which is called exactly
 * once, possibly before waiters_add() returns. */
struct waiter {
    struct acquire acquire; /* first. resource, owner, ttl_ms and limit are the caller's; the result
                               may also be FG_TOO_MANY_WAITERS or FG_DRAINING; its arena is freed by
                               the caller */
    int64_t wait_ms;        /* 0 ... WAIT_MAX_MS */
    void (*done)(struct waiter *waiter);
    /* Asks whether the client is still there; only of those who said that they would wait. */
    bool (*client_there)(struct waiter *waiter);
    void *arg;
    int64_t waited_ms; /* result */
    /* ours */
    struct waiters *waiters;
    struct queue *queue; /* it stands in; NULL: none, any more or yet */
    TAILQ_ENTRY(waiter) entry;
    ev_timer deadline;
    bool parked; /* it has been told that the resource is busy, or stands behind one who has */
    bool gone;   /* its client has left */
};

void waiters_add(struct waiters *waiters, struct waiter *waiter);

/* Its client has left: the waiter gets nothing. done() with FG_LEASE_RELEASED, now, or when an
 * attempt that is under way has ended. */
void waiter_client_left(struct waiter *waiter);

/* A holder has left Redis, or is about to: a command that removes it has been sent. */
void waiters_wake(struct waiters *waiters, const char *resource);

/* The limit is another, or the resource is not fenced any more: who cannot get a lease of it as it
 * is now is told, and the first of the others asks. */
void waiters_configured(struct waiters *waiters, const char *resource);

/* A lease of the resource now ends in `ms`, which may be earlier than it was. */
void waiters_expiry(struct waiters *waiters, const char *resource, int64_t ms);

/* Redis is back: every queue looks again. */
void waiters_wake_all(struct waiters *waiters);

/* Answers everybody who waits with FG_DRAINING; attempts under way end by themselves. */
void waiters_drain(struct waiters *waiters);

/* How many wait for the resource. */
size_t waiters_count(const struct waiters *waiters, const char *resource);

#endif
