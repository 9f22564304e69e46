/* scripts.h - the lease scripts as typed calls: numbers and pairs in, a struct out.
 *
 * The grammar of the scripts' arguments and answers (lua/README.md) is known here only. Each call
 * is answered exactly once, possibly before it returns; the answer and its arrays are valid during
 * done() only. Loop thread only. */
#ifndef FG_SCRIPTS_H
#define FG_SCRIPTS_H

#include "gateway/errors.h"
#include "gateway/redis_link.h"
#include "storage/fence.h"

struct script_answer {
    /* FG_OK: Redis has answered; FG_REDIS_UNAVAILABLE: it has not, the outcome is unknown;
     * FG_STORE_MISMATCH; FG_OVERLOADED: not sent; FG_TOKENS_EXHAUSTED (acquire). */
    enum fg_status status;
    bool done;             /* acquire: granted; renew: the expiry was moved */
    bool restored;         /* renew: Redis had lost the holder, it was put back */
    int64_t token;         /* acquire: of the grant */
    int64_t now_ms;        /* Redis' clock */
    int64_t expires_at_ms; /* renew: Redis' clock */
    const struct lease_holder *holders;
    size_t holder_count;
    const struct lease_holder *dropped; /* acquire: expired ones, just removed */
    size_t dropped_count;
};

typedef void (*script_done_fn)(void *arg, const struct script_answer *answer);

/* acquire.lua. `mark`: the store's; `limit`: 1 ... LIMIT_MAX; `secret`: fresh for this attempt. */
void script_acquire(struct redis_link *link, const char *store_uuid, const char *resource,
                    int64_t mark, int limit, int64_t ttl_ms,
                    const uint8_t secret[LEASE_SECRET_BYTES], script_done_fn done, void *arg);

/* renew.lua. `oldest`: the token of the oldest live lease of the resource, so that the lease is put
 * back where Redis has lost it; 0: its time has passed by our own clock. */
void script_renew(struct redis_link *link, const char *store_uuid, const char *resource,
                  const struct lease_pair *pair, int64_t ttl_ms, int limit, int64_t oldest,
                  script_done_fn done, void *arg);

/* release.lua: removes exactly this holder; one that is not there is fine. */
void script_release(struct redis_link *link, const char *store_uuid, const char *resource,
                    const struct lease_pair *pair, script_done_fn done, void *arg);

/* inspect.lua: the holder set, expired ones included. */
void script_inspect(struct redis_link *link, const char *store_uuid, const char *resource,
                    script_done_fn done, void *arg);

#endif
