/* operators.h - what an operator does to a resource: taking leases away, setting its limit and
 * whether it is fenced.
 *
 * The store first: from its commit on no write of an ended lease is accepted, and the answer is
 * given. Then exactly the ended pairs leave Redis, in the background; Redis may be away. Knows
 * nothing of HTTP or JSON. Each call takes a struct that the caller owns and keeps until its done()
 * is called, exactly once, never before the call returns. Loop thread only. */
#ifndef FG_OPERATORS_H
#define FG_OPERATORS_H

#include "gateway/errors.h"
#include "storage/store.h"

struct leases;

enum { REASON_BYTES_MAX = 256 }; /* why leases are revoked */

/* Ends one lease of a resource, or all. FG_OK; FG_RESOURCE_NOT_FOUND; FG_STORE_UNAVAILABLE,
 * FG_OVERLOADED, FG_STORAGE_FULL. */
struct operator_revoke {
    const char *resource;
    const char *reason; /* 1 ... REASON_BYTES_MAX bytes */
    int64_t token;      /* 1 ... FENCING_TOKEN_MAX: this one, where it is live; 0: all */
    void (*done)(struct operator_revoke *revoke);
    void *arg;
    /* result */
    enum fg_status status;
    struct store_op op; /* op.revoke is the outcome; the caller frees op.arena */
    /* ours */
    struct leases *leases;
};
void operator_revoke(struct store *store, struct leases *leases, struct operator_revoke *revoke);

/* Sets limit and fence of a resource, which is created where there is none. FG_OK;
 * FG_STORE_UNAVAILABLE, FG_OVERLOADED, FG_STORAGE_FULL. */
struct operator_configure {
    const char *resource;
    int limit; /* 1 ... LIMIT_MAX; 0: as it is */
    enum fence_setting fence;
    void (*done)(struct operator_configure *configure);
    void *arg;
    /* result */
    enum fg_status status;
    struct store_op op; /* op.configure is the outcome; the caller frees op.arena */
    /* ours */
    struct leases *leases;
};
void operator_configure(struct store *store, struct leases *leases,
                        struct operator_configure *configure);

#endif
