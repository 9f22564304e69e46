/* fence.h - the fence: may a write that carries this token change this resource?
 *
 * A pure function of the token and lease that a request shows and of what the store holds. It is
 * asked inside the transaction of the write, so its answer and the write are one. Any thread. */
#ifndef FG_FENCE_H
#define FG_FENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LEASE_SECRET_BYTES = 16, /* 128 random bits */
    LIMIT_MAX = 1000         /* leases of one resource at once */
};

#define FENCING_TOKEN_MAX INT64_C(9007199254740991) /* 2^53 - 1: exact in every JSON reader */

/* What names one lease: the lease id is these three, encoded (lease_id.h). */
struct lease_key {
    int64_t resource_id; /* the store's number of the resource */
    int64_t token;       /* 1 ... FENCING_TOKEN_MAX */
    uint8_t secret[LEASE_SECRET_BYTES];
};

/* One element of a live set or of Redis' holder set. */
struct lease_pair {
    int64_t token;
    uint8_t secret[LEASE_SECRET_BYTES];
};

/* A holder that Redis has, or has just dropped. */
struct lease_holder {
    struct lease_pair pair;
    int64_t expires_at_ms; /* Redis' clock, milliseconds since 1970 */
};

/* A resource as the store has it. */
struct fence {
    int64_t resource_id; /* 0: the store has no row of it */
    int64_t mark;        /* highest token granted or skipped, base included */
    int limit;           /* 0: no grant has fixed it yet */
    bool fenced;
    bool exclusive;                /* a live lease was granted at limit 1: it stays alone */
    const struct lease_pair *live; /* the live set, by rising token */
    size_t live_count;
};

enum fence_verdict {
    FENCE_LIVE,           /* the token is in the live set, and the lease (where shown) is its own */
    FENCE_STALE,          /* granted or skipped once, not live any more */
    FENCE_NOT_ISSUED,     /* above the mark: nobody was ever granted it */
    FENCE_LEASE_MISMATCH, /* the token is live, the lease shown is another one */
};

/* The verdict on `token` (1 ... FENCING_TOKEN_MAX). `lease` is the lease shown beside it, NULL
 * where none was; one whose resource_id is 0 is no lease at all and matches nothing. Secrets are
 * compared in constant time. */
enum fence_verdict fence_decide(const struct fence *fence, int64_t token,
                                const struct lease_key *lease);

/* The pair with this token, NULL where it is not live. */
const struct lease_pair *fence_find(const struct fence *fence, int64_t token);

/* Whether two secrets are equal, in a time that does not depend on where they differ. */
bool lease_secret_equal(const uint8_t a[LEASE_SECRET_BYTES], const uint8_t b[LEASE_SECRET_BYTES]);

#endif
