/* leases.h - the lease protocol but for its beginning: renew, release, and what a lease's time left
 * is. Getting one is acquire.h, waiting for one waiters.h; this is also what holds them together.
 *
 * Knows Redis through scripts.h and the store through store.h, and nothing of HTTP or JSON. Each
 * call takes a struct that the caller owns and keeps until its done() is called, exactly once,
 * possibly before the call returns. Loop thread only. */
#ifndef FG_LEASES_H
#define FG_LEASES_H

#include "gateway/errors.h"
#include "storage/arena.h"
#include "storage/store.h"

#include <stdbool.h>
#include <stdint.h>

struct ev_loop;
struct leases;
struct redis_link;
struct waiters;

enum {
    TTL_MIN_MS = 50,
    TTL_MAX_MS = 24 * 60 * 60 * 1000,
    TTL_DEFAULT_MS = 30 * 1000,
    OWNER_BYTES_MAX = 128,
    LEASE_MEMORY_MS = 24 * 60 * 60 * 1000 /* how long an ended lease is known */
};

/* A lease and the time it has left. */
struct lease_view {
    struct lease_row row;
    bool expiry_known;     /* false: Redis could not be asked; the lease counts as held */
    bool expired;          /* live, but its time has passed or Redis has lost it */
    int64_t expires_in_ms; /* 0 ... TTL; where expiry_known and live */
};

/* Somebody who holds what another asked for. */
struct lease_holder_view {
    int64_t token;
    const char *owner; /* NULL: none, or not known */
    int64_t expires_in_ms;
};

struct leases_options {
    size_t max_waiters;
    size_t max_waiters_per_resource;
};

/* `store` and `redis` are borrowed for the life of it. */
struct leases *leases_open(struct ev_loop *ev, struct store *store, struct redis_link *redis,
                           const struct leases_options *options);

/* All that was asked for has been answered. NULL is fine. */
void leases_close(struct leases *leases);

/* Where a lease is asked for. */
struct waiters *leases_waiters(struct leases *leases);

/* The link has come up: removals from Redis that were waiting for it are sent, and who waits asks
 * again. */
void leases_redis_ready(struct leases *leases);

/* We are to stop: who waits is answered. */
void leases_drain(struct leases *leases);

/* The leases of `resource` are about to be revoked: grants under way begin anew. Right before the
 * revocation is submitted to the store. */
void leases_revoking(struct leases *leases, const char *resource);

/* Leases of `resource` that the store has ended: exactly these pairs leave Redis, now or when it is
 * back. All is copied. */
void leases_remove(struct leases *leases, const char *resource, const struct lease_pair *pairs,
                   size_t count);

/* The resource's limit, or whether it is fenced, has changed. */
void leases_changed(struct leases *leases, const char *resource);

/* What is left of a TTL that began at `started_boot_ms`, rounded down; below 0: it is over. */
int64_t lease_time_left_ms(int64_t ttl_ms, int64_t started_boot_ms);

/* What is left of a holder's time by Redis' clock, whose "now" was rounded down; at least 0. */
int64_t lease_redis_left_ms(const struct lease_holder *holder, int64_t now_ms);

/* The (token, secret) pair of a lease. */
struct lease_pair lease_pair_of(const struct lease_key *key);

/* ---- Renew ---------------------------------------------------------------------------------- */

/* FG_OK; FG_LEASE_NOT_FOUND; FG_LEASE_EXPIRED, FG_LEASE_SUPERSEDED, FG_LEASE_RELEASED,
 * FG_LEASE_REVOKED (`lease.row` and `successor` tell more); FG_REDIS_UNAVAILABLE,
 * FG_STORE_MISMATCH, FG_STORE_UNAVAILABLE, FG_OVERLOADED. */
struct lease_renew {
    struct lease_key key;
    int64_t ttl_ms; /* 0: the grant's */
    void (*done)(struct lease_renew *renew);
    void *arg;
    struct arena *arena;
    /* result */
    enum fg_status status;
    struct lease_view lease;
    struct lease_successor successor;
    /* ours */
    struct leases *leases;
    int64_t started_boot_ms;
};
void lease_renew(struct leases *leases, struct lease_renew *renew);

/* ---- Release -------------------------------------------------------------------------------- */

/* The store first: from its commit on no write of that token is accepted, and the answer is given.
 * Then Redis, in the background. FG_OK (also for a repeated release); FG_LEASE_NOT_FOUND,
 * FG_LEASE_SUPERSEDED, FG_LEASE_REVOKED; FG_STORE_UNAVAILABLE, FG_OVERLOADED, FG_STORAGE_FULL. */
struct lease_release {
    struct lease_key key;
    const char *reason; /* NULL: its holder asks for it; else static */
    void (*done)(struct lease_release *release);
    void *arg;
    /* result; strings in op.arena */
    enum fg_status status;
    struct store_op op; /* op.release is the outcome; the caller frees op.arena */
    /* ours */
    struct leases *leases;
};
void lease_release(struct leases *leases, struct lease_release *release);

/* ---- Time left ------------------------------------------------------------------------------ */

/* Fills in expiry_known, expired and expires_in_ms of `views`, whose rows are set. Asks Redis once
 * for each run of views of one resource. */
struct lease_watch {
    struct lease_view *views;
    size_t count;
    void (*done)(struct lease_watch *watch);
    void *arg;
    struct arena *arena;
    /* ours */
    size_t waiting;
};
void lease_watch(struct leases *leases, struct lease_watch *watch);

#endif
