/* leases.h - the lease protocol: acquire, renew, release, and what a lease's time left is.
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

struct leases;
struct redis_link;

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

struct leases *leases_open(struct store *store, struct redis_link *redis);
void leases_close(struct leases *leases);

/* The link has come up: removals from Redis that were waiting for it are sent. */
void leases_redis_ready(struct leases *leases);

/* ---- Acquire -------------------------------------------------------------------------------- */

/* FG_OK: granted, and durable. FG_LEASE_HELD, FG_LIMIT_MISMATCH; FG_REDIS_UNAVAILABLE,
 * FG_STORE_MISMATCH, FG_STORE_UNAVAILABLE, FG_OVERLOADED, FG_GRANT_CONTENDED,
 * FG_EXPIRED_WHILE_GRANTING, FG_STORAGE_FULL, FG_TOKENS_EXHAUSTED. */
struct lease_acquire {
    const char *resource;
    const char *owner; /* NULL: none */
    int64_t ttl_ms;    /* TTL_MIN_MS ... TTL_MAX_MS */
    int limit;         /* 1 ... LIMIT_MAX; 0: whatever is set, else 1 */
    void (*done)(struct lease_acquire *acquire);
    void *arg;
    struct arena *arena; /* the caller's: results lie in it */
    /* result */
    enum fg_status status;
    struct lease_view lease;           /* FG_OK */
    struct lease_holder_view *holders; /* FG_LEASE_HELD */
    size_t holder_count;
    int64_t retry_after_ms; /* FG_LEASE_HELD: until the first of them runs out */
    /* ours, while it runs */
    struct leases *leases;
    struct lease_acquire *next_granting;
    struct store_op op;
    uint8_t secret[LEASE_SECRET_BYTES];
    int64_t started_boot_ms;
    int tries;
};
void lease_acquire(struct leases *leases, struct lease_acquire *acquire);

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
