/* acquire.c - getting a lease. Safety lives in the store; Redis proposes (acquire.h).
 *
 *   1  t0 := CLOCK_BOOTTIME; read mark, limit, live set                        store_read_fence
 *   2  acquire.lua: a token above the mark, or who holds the resource          script_acquire
 *        busy, but a holder is neither being granted by us (looked at first) nor live in the store:
 *        an orphan of a crash or of a lost answer; remove exactly that one, begin again
 *   3  one durable commit: mark raised strictly, live set replaced             STORE_GRANT
 *        lost a race: undo in Redis by secret, begin again, three tries
 *   4  what is left of the TTL since t0; too little: end the lease
 *   5  only now: done
 *
 * "Being granted by us" is the list `granting`: from Redis' answer until the commit's. Replies come
 * in the order of the commands, so whoever is in a holder set that we read was answered before, and
 * is on that list, or live in the store, or an orphan.
 *
 * What has to leave Redis (undo, orphans) goes through removals.h. */
#include "gateway/acquire.h"

#include "gateway/clock.h"
#include "gateway/faults.h"
#include "gateway/lease_id.h"
#include "gateway/names.h"
#include "gateway/redis_link.h"
#include "gateway/removals.h"
#include "gateway/scripts.h"

#include <stdlib.h>
#include <string.h>

enum { GRANT_TRIES = 3 };

LIST_HEAD(acquire_list, acquire);

struct acquires {
    struct store *store;
    struct redis_link *redis;
    struct removals *removals;
    struct acquires_options options;
    struct acquire_list asking;   /* Redis */
    struct acquire_list granting; /* Redis has granted, the store has not committed yet */
    struct acquire_list behind;   /* refused by a limit that one of those is about to fix */
};

struct acquires *acquires_open(struct store *store, struct redis_link *redis,
                               struct removals *removals, const struct acquires_options *options)
{
    struct acquires *acquires = calloc(1, sizeof *acquires);
    if (!acquires)
        abort();
    acquires->store = store;
    acquires->redis = redis;
    acquires->removals = removals;
    acquires->options = *options;
    LIST_INIT(&acquires->asking);
    LIST_INIT(&acquires->granting);
    LIST_INIT(&acquires->behind);
    return acquires;
}

void acquires_close(struct acquires *acquires)
{
    free(acquires);
}

/* ---- Who holds it --------------------------------------------------------------------------- */

static const struct acquire *find_granting(const struct acquires *acquires,
                                           const uint8_t secret[LEASE_SECRET_BYTES])
{
    const struct acquire *acquire = LIST_FIRST(&acquires->granting);
    while (acquire && !lease_secret_equal(acquire->secret, secret))
        acquire = LIST_NEXT(acquire, entry);
    return acquire;
}

static void add_holder(struct acquire *acquire, int64_t token, const char *owner, int64_t left_ms)
{
    if (acquire->holder_count == 0 || left_ms < acquire->retry_after_ms)
        acquire->retry_after_ms = left_ms;
    acquire->holders[acquire->holder_count++] =
        (struct lease_holder_view){.token = token, .owner = owner, .expires_in_ms = left_ms};
}

static bool is_being_granted(const struct acquire *acquire, const struct script_answer *answer)
{
    for (size_t i = 0; i < answer->holder_count; i++) {
        if (find_granting(acquire->acquires, answer->holders[i].pair.secret))
            return true;
    }
    return false;
}

/* Sorts Redis' holder set into those that hold (acquire->holders) and orphans, whose removal is
 * sent. Returns whether there was an orphan. */
static bool sort_holders(struct acquire *acquire, const struct script_answer *answer,
                         const struct fence *fence)
{
    struct acquires *acquires = acquire->acquires;
    bool orphans = false;
    acquire->holders =
        arena_alloc(&acquire->arena, (answer->holder_count + 1) * sizeof *acquire->holders);
    for (size_t i = 0; i < answer->holder_count; i++) {
        const struct lease_holder *holder = &answer->holders[i];
        const struct acquire *granting = find_granting(acquires, holder->pair.secret);
        const struct lease_pair *live = fence_find(fence, holder->pair.token);
        int64_t left_ms = lease_redis_left_ms(holder, answer->now_ms);
        if (granting) {
            add_holder(acquire, holder->pair.token, arena_string(&acquire->arena, granting->owner),
                       left_ms);
        } else if (live && lease_secret_equal(live->secret, holder->pair.secret)) {
            add_holder(acquire, holder->pair.token, NULL, left_ms);
        } else {
            orphans = true;
            removals_add(acquires->removals, acquire->resource, &holder->pair);
        }
    }
    return orphans;
}

void acquire_name_owners(struct acquire *acquire)
{
    struct resource_row row;
    if (store_read_resource(acquire->acquires->store, acquire->resource, &acquire->arena, &row) !=
        FG_OK)
        return;
    for (size_t i = 0; i < acquire->holder_count; i++) {
        for (size_t j = 0; j < row.live_count; j++) {
            if (row.live[j].key.token == acquire->holders[i].token)
                acquire->holders[i].owner = row.live[j].owner;
        }
    }
}

void acquire_read_holders(struct acquires *acquires, struct acquire *acquire)
{
    struct resource_row row = {0};
    arena_free(&acquire->arena);
    acquire->holder_count = 0;
    acquire->retry_after_ms = 0;
    if (store_read_resource(acquires->store, acquire->resource, &acquire->arena, &row) != FG_OK)
        row.live_count = 0;
    acquire->holders = arena_alloc(&acquire->arena, row.live_count * sizeof *acquire->holders);
    int64_t now_boot_ms = clock_boot_ms();
    for (size_t i = 0; i < row.live_count; i++) {
        int64_t left_ms = row.live[i].deadline_boot_ms - now_boot_ms;
        if (left_ms > 0)
            add_holder(acquire, row.live[i].key.token, row.live[i].owner, left_ms);
    }
}

/* ---- The end of an attempt ------------------------------------------------------------------ */

static void finish(struct acquire *acquire, enum fg_status status)
{
    acquire->status = status;
    arena_free(&acquire->op.arena);
    acquire->done(acquire);
}

static void start_attempt(struct acquire *acquire);

static void try_again(struct acquire *acquire, enum fg_status otherwise)
{
    if (++acquire->tries < GRANT_TRIES)
        start_attempt(acquire);
    else
        finish(acquire, otherwise);
}

/* An undo is on its way to Redis. An attempt that goes on has asked again by now: it was there
 * before those who are told of the room. `resource` is a copy: the attempt may be over. */
static void tell_freed(struct acquires *acquires, const char *resource)
{
    acquires->options.freed(acquires->options.arg, resource);
}

static bool is_wanted(struct acquire *acquire)
{
    return !acquire->wanted || acquire->wanted(acquire);
}

/* Granted and durable, but given to nobody: ended at once, in the store first. */
static void on_ended(struct store_op *op)
{
    struct acquire *acquire = op->arg;
    struct lease_pair pair = lease_pair_of(&acquire->lease.row.key);
    removals_add(acquire->acquires->removals, acquire->resource, &pair);
    tell_freed(acquire->acquires, acquire->resource);
    finish(acquire, acquire->status);
}

static void end_granted(struct acquire *acquire, enum fg_status status, const char *reason)
{
    acquire->status = status;
    arena_free(&acquire->op.arena);
    acquire->op = (struct store_op){
        .kind = STORE_RELEASE,
        .release = {.lease = acquire->lease.row.key, .reason = reason},
        .done = on_ended,
        .arg = acquire,
    };
    store_submit(acquire->acquires->store, &acquire->op);
}

/* ---- Step 3: the fence ---------------------------------------------------------------------- */

static void view_granted(struct acquire *acquire, int64_t left_ms)
{
    const struct store_grant *grant = &acquire->op.grant;
    acquire->lease = (struct lease_view){
        .row =
            {
                .key = {.resource_id = grant->resource_id, .token = grant->pair.token},
                .resource = acquire->resource,
                .owner = acquire->owner,
                .ttl_ms = acquire->ttl_ms,
                .limit = grant->fixed_limit,
                .state = LEASE_LIVE,
                .acquired_at_ms = grant->acquired_at_ms,
                .waited_ms = grant->waited_ms,
            },
        .expiry_known = true,
        .expires_in_ms = left_ms,
    };
    memcpy(acquire->lease.row.key.secret, acquire->secret, LEASE_SECRET_BYTES);
}

static int64_t least_useful_ms(int64_t ttl_ms)
{
    return ttl_ms / 100 > 2 ? ttl_ms / 100 : 2;
}

/* A first grant has been decided, and with it the limit, or that there is none yet: who was refused
 * by a guess of it asks again. */
static void ask_behind(struct acquires *acquires, const char *resource)
{
    struct acquire *acquire = LIST_FIRST(&acquires->behind);
    while (acquire) {
        struct acquire *next = LIST_NEXT(acquire, entry);
        if (strcmp(acquire->resource, resource) == 0) {
            LIST_REMOVE(acquire, entry);
            start_attempt(acquire);
            next = LIST_FIRST(&acquires->behind); /* the list may have changed */
        }
        acquire = next;
    }
}

/* Redis had granted it, the store does not: undone, and where it was a lost race, tried again. */
static void on_refused(struct acquire *acquire)
{
    struct acquires *acquires = acquire->acquires;
    char resource[NAME_BYTES_MAX + 1];
    stpcpy(resource, acquire->resource);
    removals_add(acquires->removals, resource, &acquire->op.grant.pair);
    if (acquire->op.status == FG_GRANT_CONTENDED)
        try_again(acquire, FG_GRANT_CONTENDED);
    else
        finish(acquire, acquire->op.status);
    ask_behind(acquires, resource);
    tell_freed(acquires, resource);
}

static void on_fenced(struct store_op *op)
{
    struct acquire *acquire = op->arg;
    LIST_REMOVE(acquire, entry);
    if (op->status != FG_OK) {
        on_refused(acquire);
        return;
    }
    ask_behind(acquire->acquires, acquire->resource);
    if (FAULT(after_fence_commit)) { /* as if the commit's answer had been lost */
        finish(acquire, FG_STORE_UNAVAILABLE);
        return;
    }
    int64_t left_ms = lease_time_left_ms(acquire->ttl_ms, acquire->started_boot_ms);
    view_granted(acquire, left_ms);
    if (left_ms < least_useful_ms(acquire->ttl_ms) && !PLANTED(skip_remaining_time))
        end_granted(acquire, FG_EXPIRED_WHILE_GRANTING, "expired_while_granting");
    else if (!is_wanted(acquire))
        end_granted(acquire, FG_LEASE_RELEASED, "client_gone");
    else
        finish(acquire, FG_OK);
}

static const struct lease_holder *copy_holders(struct arena *arena,
                                               const struct lease_holder *holders, size_t count)
{
    struct lease_holder *copy = arena_alloc(arena, count * sizeof *copy);
    if (count > 0)
        memcpy(copy, holders, count * sizeof *copy);
    return copy;
}

#ifdef FG_FAILPOINTS
static void free_late_grant(struct store_op *op)
{
    arena_free(&op->arena);
    free(op->arg);
    free(op);
}

/* The planted bug of the same name. Needs a resource that exists; before_fence=sleep widens the
 * gap. */
static void answer_before_fence(struct acquire *acquire)
{
    struct fence fence;
    struct store_op *late = malloc(sizeof *late);
    if (!late || store_read_fence(acquire->acquires->store, acquire->resource, &fence) != FG_OK)
        abort();
    acquire->op.grant.resource_id = fence.resource_id;
    acquire->op.grant.fixed_limit = 1;
    acquire->op.grant.acquired_at_ms = clock_wall_ms();
    *late = acquire->op;
    late->done = free_late_grant;
    late->arg = strdup(acquire->resource);
    late->grant.resource = late->arg;
    late->grant.owner = NULL;
    late->grant.holders = NULL;
    late->grant.holder_count = 0;
    late->grant.dropped = NULL;
    late->grant.dropped_count = 0;
    view_granted(acquire, acquire->ttl_ms);
    store_submit(acquire->acquires->store, late);
    finish(acquire, FG_OK);
}
#endif

static void fence_grant(struct acquire *acquire, const struct script_answer *answer)
{
    struct acquires *acquires = acquire->acquires;
    arena_free(&acquire->op.arena);
    acquire->op = (struct store_op){
        .kind = STORE_GRANT,
        .grant =
            {
                .resource = acquire->resource,
                .owner = acquire->owner,
                .pair = {.token = answer->token},
                .ttl_ms = acquire->ttl_ms,
                .limit = acquire->limit,
                .waited_ms = acquire->came_boot_ms != 0
                                 ? acquire->started_boot_ms - acquire->came_boot_ms
                                 : 0,
                .started_boot_ms = acquire->started_boot_ms,
                .holders = copy_holders(&acquire->arena, answer->holders, answer->holder_count),
                .holder_count = answer->holder_count,
                .dropped = copy_holders(&acquire->arena, answer->dropped, answer->dropped_count),
                .dropped_count = answer->dropped_count,
            },
        .done = on_fenced,
        .arg = acquire,
    };
    memcpy(acquire->op.grant.pair.secret, acquire->secret, LEASE_SECRET_BYTES);
#ifdef FG_FAILPOINTS
    if (PLANTED(answer_before_fence)) {
        answer_before_fence(acquire);
        return;
    }
#endif
    LIST_INSERT_HEAD(&acquires->granting, acquire, entry);
    store_submit(acquires->store, &acquire->op);
}

/* ---- Step 2: Redis -------------------------------------------------------------------------- */

static void tell_proposed(struct acquire *acquire, const struct script_answer *answer)
{
    int64_t next_ms = INT64_MAX;
    for (size_t i = 0; i < answer->holder_count; i++) {
        int64_t left_ms = lease_redis_left_ms(&answer->holders[i], answer->now_ms);
        next_ms = left_ms < next_ms ? left_ms : next_ms;
    }
    acquire->proposed(acquire, acquire->effective_limit - (int)answer->holder_count, next_ms);
}

static void undo(struct acquire *acquire, const struct script_answer *answer)
{
    struct lease_pair pair = {.token = answer->token};
    memcpy(pair.secret, acquire->secret, sizeof pair.secret);
    removals_add(acquire->acquires->removals, acquire->resource, &pair);
}

static void on_proposed(struct acquire *acquire, const struct script_answer *answer)
{
    if (acquire->outdated) { /* by a revocation that reaches the store before it */
        undo(acquire, answer);
        start_attempt(acquire);
        return;
    }
    if (FAULT(after_redis_grant)) { /* as if the answer had been lost */
        finish(acquire, FG_REDIS_UNAVAILABLE);
        return;
    }
    if (!is_wanted(acquire)) {
        undo(acquire, answer);
        finish(acquire, FG_LEASE_RELEASED);
        return;
    }
    if (acquire->proposed)
        tell_proposed(acquire, answer);
    fence_grant(acquire, answer);
}

/* How many may hold it, this attempt included. Where the limit was raised, a lease of the time when
 * it was 1 is still alone. */
static int effective_limit(const struct fence *fence, int named)
{
    if (fence->exclusive)
        return 1;
    if (fence->limit != 0)
        return fence->limit;
    return named != 0 ? named : 1;
}

/* Redis has no room for it. Is that so? */
static void on_busy(struct acquire *acquire, const struct script_answer *answer)
{
    struct fence fence;
    acquire->holder_count = 0;
    if (store_read_fence(acquire->acquires->store, acquire->resource, &fence) != FG_OK) {
        finish(acquire, FG_LEASE_HELD);
        return;
    }
    bool orphans = sort_holders(acquire, answer, &fence);
    bool limit_was_raised = effective_limit(&fence, acquire->limit) > acquire->effective_limit;
    if (orphans || limit_was_raised)
        try_again(acquire, FG_GRANT_CONTENDED);
    else if (acquire->limit_open && is_being_granted(acquire, answer))
        LIST_INSERT_HEAD(&acquire->acquires->behind, acquire, entry);
    else
        finish(acquire, FG_LEASE_HELD);
}

static void on_redis_acquired(void *arg, const struct script_answer *answer)
{
    struct acquire *acquire = arg;
    LIST_REMOVE(acquire, entry);
    if (answer->status != FG_OK)
        finish(acquire, answer->status);
    else if (answer->done)
        on_proposed(acquire, answer);
    else
        on_busy(acquire, answer);
}

/* ---- Step 1 --------------------------------------------------------------------------------- */

static struct acquire_terms terms_of(enum fg_status status, const struct fence *fence)
{
    return (struct acquire_terms){status, fence->fenced, fence->limit};
}

enum fg_status acquire_allowed(const struct acquire_terms *terms, int limit)
{
    if (terms->status != FG_OK)
        return terms->status;
    if (!terms->fenced)
        return FG_RESOURCE_UNFENCED;
    return limit != 0 && terms->limit != 0 && terms->limit != limit ? FG_LIMIT_MISMATCH : FG_OK;
}

struct acquire_terms acquire_read_terms(struct acquires *acquires, const char *resource)
{
    struct fence fence;
    enum fg_status status = store_read_fence(acquires->store, resource, &fence);
    return terms_of(status, &fence);
}

static void start_attempt(struct acquire *acquire)
{
    struct acquires *acquires = acquire->acquires;
    struct fence fence;
    arena_free(&acquire->arena);
    acquire->started_boot_ms = clock_boot_ms();
    lease_secret_random(acquire->secret);
    enum fg_status status = store_read_fence(acquires->store, acquire->resource, &fence);
    struct acquire_terms terms = terms_of(status, &fence);
    status = acquire_allowed(&terms, acquire->limit);
    if (status != FG_OK) {
        finish(acquire, status);
        return;
    }
    acquire->outdated = false;
    LIST_INSERT_HEAD(&acquires->asking, acquire, entry);
    acquire->limit_open = fence.limit == 0;
    acquire->effective_limit = effective_limit(&fence, acquire->limit);
    script_acquire(acquires->redis, store_uuid(acquires->store), acquire->resource, fence.mark,
                   acquire->effective_limit, acquire->ttl_ms, acquire->secret, on_redis_acquired,
                   acquire);
}

void acquires_restart(struct acquires *acquires, const char *resource)
{
    for (struct acquire *acquire = LIST_FIRST(&acquires->asking); acquire;
         acquire = LIST_NEXT(acquire, entry)) {
        if (strcmp(acquire->resource, resource) == 0)
            acquire->outdated = true;
    }
}

void acquire_run(struct acquires *acquires, struct acquire *acquire)
{
    acquire->acquires = acquires;
    acquire->tries = 0;
    start_attempt(acquire);
}
