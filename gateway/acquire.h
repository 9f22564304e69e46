/* acquire.h - one attempt to get a lease: granted or refused now, without waiting.
 *
 * The first half of the lease protocol: Redis proposes, the store decides (acquire.c has the
 * steps). Who waits for a lease is waiters.h. Knows nothing of HTTP or JSON. Loop thread only. */
#ifndef FG_ACQUIRE_H
#define FG_ACQUIRE_H

#include "gateway/leases.h"

#include <sys/queue.h>

struct acquires;
struct removals;

struct acquires_options {
    /* An attempt that Redis had granted has been undone, or its lease ended at once: there may be
     * room for others. */
    void (*freed)(void *arg, const char *resource);
    void *arg;
};

/* `store`, `redis` and `removals` are borrowed for the life of it. */
struct acquires *acquires_open(struct store *store, struct redis_link *redis,
                               struct removals *removals, const struct acquires_options *options);

/* Nothing is under way any more. NULL is fine. */
void acquires_close(struct acquires *acquires);

/* An attempt. The caller owns it and keeps it until done(), which is called exactly once, possibly
 * before acquire_run() returns. */
struct acquire {
    const char *resource;
    const char *owner;    /* NULL: none */
    int64_t ttl_ms;       /* TTL_MIN_MS ... TTL_MAX_MS; counts from this attempt */
    int limit;            /* 1 ... LIMIT_MAX; 0: whatever is set, else 1 */
    int64_t came_boot_ms; /* when its client began to wait; 0: it does not */
    void (*done)(struct acquire *acquire);

    /* Redis has granted it: it is ahead of whoever asks from now on, though not yet durable.
     * `free`: how many more leases the resource has room for; `next_expiry_ms`: until the first of
     * its holders runs out. NULL: nobody asks. */
    void (*proposed)(struct acquire *acquire, int free, int64_t next_expiry_ms);

    /* Is there still somebody to give it to? Asked when Redis has granted it and before
     * done(FG_OK); where not, the lease is ended (reason client_gone) and done() gets
     * FG_LEASE_RELEASED. NULL: always. */
    bool (*wanted)(struct acquire *acquire);

    /* result: FG_OK, granted and durable; FG_LEASE_HELD, FG_LIMIT_MISMATCH, FG_RESOURCE_UNFENCED,
     * FG_LEASE_RELEASED; FG_REDIS_UNAVAILABLE, FG_STORE_MISMATCH, FG_STORE_UNAVAILABLE,
     * FG_OVERLOADED, FG_GRANT_CONTENDED, FG_EXPIRED_WHILE_GRANTING, FG_STORAGE_FULL,
     * FG_TOKENS_EXHAUSTED */
    enum fg_status status;
    struct arena arena;      /* of this attempt's results; the caller frees it in the end */
    struct lease_view lease; /* FG_OK; names are the caller's */
    struct lease_holder_view *holders; /* FG_LEASE_HELD; owners: see acquire_name_owners() */
    size_t holder_count;
    int64_t retry_after_ms; /* FG_LEASE_HELD: until the first of them runs out */
    int effective_limit;    /* how many were to hold the resource at most ... */
    bool limit_open;        /* ... and whether nobody had fixed that yet */

    /* ours, while it runs */
    struct acquires *acquires;
    LIST_ENTRY(acquire) entry; /* in one of the lists of acquire.c */
    bool outdated;             /* acquires_restart() */
    struct store_op op;
    uint8_t secret[LEASE_SECRET_BYTES];
    int64_t started_boot_ms;
    int tries;
};

/* Begins it. The inputs are set, the rest is zero. */
void acquire_run(struct acquires *acquires, struct acquire *acquire);

/* The leases of `resource` are about to be revoked: an attempt that Redis may have answered already
 * begins anew, so that its lease is granted after the revocation or not at all. Call it right
 * before the revocation is submitted to the store. */
void acquires_restart(struct acquires *acquires, const char *resource);

/* What every attempt at a resource has to fit, as the store has it now. */
struct acquire_terms {
    enum fg_status status; /* FG_STORE_UNAVAILABLE: it cannot be read; else FG_OK */
    bool fenced;
    int limit; /* 0: not fixed */
};
struct acquire_terms acquire_read_terms(struct acquires *acquires, const char *resource);

/* Whether asking Redis makes sense for one who names `limit` (0: none): FG_OK, or what every
 * attempt would be answered with: FG_LIMIT_MISMATCH, FG_RESOURCE_UNFENCED, FG_STORE_UNAVAILABLE. */
enum fg_status acquire_allowed(const struct acquire_terms *terms, int limit);

/* Fills in who the holders of an attempt's FG_LEASE_HELD are, as far as the store knows them. */
void acquire_name_owners(struct acquire *acquire);

/* Makes up the result of an attempt that was not made: who holds the resource as the store knows
 * it, without asking Redis. Live leases whose time has not passed by our own clock. */
void acquire_read_holders(struct acquires *acquires, struct acquire *acquire);

#endif
