/* leases.c - the lease protocol. Safety lives in the store; Redis proposes.
 *
 * Acquire:
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
 * What has to leave Redis (undo, orphans, releases) goes through removals.h. */
#include "gateway/leases.h"

#include "gateway/clock.h"
#include "gateway/faults.h"
#include "gateway/lease_id.h"
#include "gateway/log.h"
#include "gateway/redis_link.h"
#include "gateway/removals.h"
#include "gateway/scripts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { GRANT_TRIES = 3 };

struct leases {
    struct store *store;
    struct redis_link *redis;
    struct removals *removals;
    struct lease_acquire *granting;
};

struct leases *leases_open(struct store *store, struct redis_link *redis)
{
    struct leases *leases = calloc(1, sizeof *leases);
    if (!leases)
        abort();
    leases->store = store;
    leases->redis = redis;
    leases->removals = removals_open(redis, store_uuid(store));
    return leases;
}

void leases_close(struct leases *leases)
{
    if (!leases)
        return;
    removals_close(leases->removals);
    free(leases);
}

void leases_redis_ready(struct leases *leases)
{
    removals_send(leases->removals);
}

/* What is left of a TTL that began at `started_boot_ms`, rounded down: the clock is read as if its
 * next millisecond had begun. */
static int64_t time_left_ms(int64_t ttl_ms, int64_t started_boot_ms)
{
    return ttl_ms - (clock_boot_ms() + 1 - started_boot_ms);
}

/* The same by Redis' clock, whose "now" was rounded down. */
static int64_t redis_left_ms(const struct lease_holder *holder, int64_t now_ms)
{
    int64_t left_ms = holder->expires_at_ms - (now_ms + 1);
    return left_ms > 0 ? left_ms : 0;
}

static struct lease_pair pair_of(const struct lease_key *key)
{
    struct lease_pair pair = {.token = key->token};
    memcpy(pair.secret, key->secret, sizeof pair.secret);
    return pair;
}

/* ---- Acquire: who holds it ------------------------------------------------------------------ */

static const struct lease_acquire *find_granting(const struct leases *leases,
                                                 const uint8_t secret[LEASE_SECRET_BYTES])
{
    const struct lease_acquire *acquire = leases->granting;
    while (acquire && !lease_secret_equal(acquire->secret, secret))
        acquire = acquire->next_granting;
    return acquire;
}

static void granting_add(struct lease_acquire *acquire)
{
    acquire->next_granting = acquire->leases->granting;
    acquire->leases->granting = acquire;
}

static void granting_remove(struct lease_acquire *acquire)
{
    struct lease_acquire **at = &acquire->leases->granting;
    while (*at != acquire)
        at = &(*at)->next_granting;
    *at = acquire->next_granting;
}

static void add_holder(struct lease_acquire *acquire, const struct lease_holder *holder,
                       const char *owner, int64_t now_ms)
{
    int64_t left_ms = redis_left_ms(holder, now_ms);
    if (acquire->holder_count == 0 || left_ms < acquire->retry_after_ms)
        acquire->retry_after_ms = left_ms;
    acquire->holders[acquire->holder_count++] = (struct lease_holder_view){
        .token = holder->pair.token,
        .owner = arena_string(acquire->arena, owner),
        .expires_in_ms = left_ms,
    };
}

/* Sorts Redis' holder set into those that hold (acquire->holders) and orphans, whose removal is
 * sent. Returns whether there was an orphan. */
static bool sort_holders(struct lease_acquire *acquire, const struct script_answer *answer)
{
    struct leases *leases = acquire->leases;
    bool orphans = false;
    acquire->holder_count = 0;
    acquire->holders =
        arena_alloc(acquire->arena, (answer->holder_count + 1) * sizeof *acquire->holders);
    struct fence fence;
    if (store_read_fence(leases->store, acquire->resource, &fence) != FG_OK)
        return false;
    for (size_t i = 0; i < answer->holder_count; i++) {
        const struct lease_holder *holder = &answer->holders[i];
        const struct lease_acquire *granting = find_granting(leases, holder->pair.secret);
        const struct lease_pair *live = fence_find(&fence, holder->pair.token);
        if (granting) {
            add_holder(acquire, holder, granting->owner, answer->now_ms);
        } else if (live && lease_secret_equal(live->secret, holder->pair.secret)) {
            add_holder(acquire, holder, NULL, answer->now_ms);
        } else {
            orphans = true;
            removals_add(leases->removals, acquire->resource, &holder->pair);
        }
    }
    return orphans;
}

/* The owners of the live holders, from the store; after sort_holders(), whose fence they end. */
static void name_owners(struct lease_acquire *acquire)
{
    struct resource_row row;
    if (store_read_resource(acquire->leases->store, acquire->resource, acquire->arena, &row) !=
        FG_OK)
        return;
    for (size_t i = 0; i < acquire->holder_count; i++) {
        for (size_t j = 0; j < row.live_count; j++) {
            if (row.live[j].key.token == acquire->holders[i].token)
                acquire->holders[i].owner = row.live[j].owner;
        }
    }
}

/* ---- Acquire: the steps --------------------------------------------------------------------- */

static void start_attempt(struct lease_acquire *acquire);

static void finish(struct lease_acquire *acquire, enum fg_status status)
{
    acquire->status = status;
    arena_free(&acquire->op.arena);
    acquire->done(acquire);
}

static void try_again(struct lease_acquire *acquire, enum fg_status otherwise)
{
    if (++acquire->tries < GRANT_TRIES)
        start_attempt(acquire);
    else
        finish(acquire, otherwise);
}

/* Granted and durable, but too late to be worth anything: ended at once, in the store first. */
static void on_ended(struct store_op *op)
{
    struct lease_acquire *acquire = op->arg;
    struct lease_pair pair = pair_of(&acquire->lease.row.key);
    removals_add(acquire->leases->removals, acquire->resource, &pair);
    finish(acquire, FG_EXPIRED_WHILE_GRANTING);
}

static void end_granted(struct lease_acquire *acquire)
{
    arena_free(&acquire->op.arena);
    acquire->op = (struct store_op){
        .kind = STORE_RELEASE,
        .release = {.lease = acquire->lease.row.key, .reason = "expired_while_granting"},
        .done = on_ended,
        .arg = acquire,
    };
    store_submit(acquire->leases->store, &acquire->op);
}

static void view_granted(struct lease_acquire *acquire, int64_t left_ms)
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

static void on_fenced(struct store_op *op)
{
    struct lease_acquire *acquire = op->arg;
    granting_remove(acquire);
    if (op->status != FG_OK) {
        removals_add(acquire->leases->removals, acquire->resource, &op->grant.pair);
        if (op->status == FG_GRANT_CONTENDED)
            try_again(acquire, FG_GRANT_CONTENDED);
        else
            finish(acquire, op->status);
        return;
    }
    if (FAULT(after_fence_commit)) { /* as if the commit's answer had been lost */
        finish(acquire, FG_STORE_UNAVAILABLE);
        return;
    }
    int64_t left_ms = time_left_ms(acquire->ttl_ms, acquire->started_boot_ms);
    view_granted(acquire, left_ms);
    if (left_ms < least_useful_ms(acquire->ttl_ms) && !PLANTED(skip_remaining_time))
        end_granted(acquire);
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
static void answer_before_fence(struct lease_acquire *acquire)
{
    struct fence fence;
    struct store_op *late = malloc(sizeof *late);
    if (!late || store_read_fence(acquire->leases->store, acquire->resource, &fence) != FG_OK)
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
    store_submit(acquire->leases->store, late);
    finish(acquire, FG_OK);
}
#endif

static void fence_grant(struct lease_acquire *acquire, const struct script_answer *answer)
{
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
                .started_boot_ms = acquire->started_boot_ms,
                .holders = copy_holders(acquire->arena, answer->holders, answer->holder_count),
                .holder_count = answer->holder_count,
                .dropped = copy_holders(acquire->arena, answer->dropped, answer->dropped_count),
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
    granting_add(acquire);
    store_submit(acquire->leases->store, &acquire->op);
}

static void on_redis_acquired(void *arg, const struct script_answer *answer)
{
    struct lease_acquire *acquire = arg;
    if (answer->status != FG_OK) {
        finish(acquire, answer->status);
    } else if (answer->done) {
        if (FAULT(after_redis_grant)) /* as if the answer had been lost */
            finish(acquire, FG_REDIS_UNAVAILABLE);
        else
            fence_grant(acquire, answer);
    } else if (sort_holders(acquire, answer)) {
        try_again(acquire, FG_GRANT_CONTENDED);
    } else {
        name_owners(acquire);
        finish(acquire, FG_LEASE_HELD);
    }
}

static void start_attempt(struct lease_acquire *acquire)
{
    struct leases *leases = acquire->leases;
    struct fence fence;
    acquire->started_boot_ms = clock_boot_ms();
    lease_secret_random(acquire->secret);
    enum fg_status status = store_read_fence(leases->store, acquire->resource, &fence);
    if (status == FG_OK && acquire->limit != 0 && fence.limit != 0 && fence.limit != acquire->limit)
        status = FG_LIMIT_MISMATCH;
    if (status != FG_OK) {
        finish(acquire, status);
        return;
    }
    int limit = fence.limit != 0 ? fence.limit : acquire->limit;
    script_acquire(leases->redis, store_uuid(leases->store), acquire->resource, fence.mark,
                   limit != 0 ? limit : 1, acquire->ttl_ms, acquire->secret, on_redis_acquired,
                   acquire);
}

void lease_acquire(struct leases *leases, struct lease_acquire *acquire)
{
    acquire->leases = leases;
    acquire->tries = 0;
    start_attempt(acquire);
}

/* ---- Renew ---------------------------------------------------------------------------------- */

static enum fg_status ended_status(enum lease_state state)
{
    switch (state) {
    case LEASE_LIVE:
        return FG_LEASE_EXPIRED;
    case LEASE_RELEASED:
        return FG_LEASE_RELEASED;
    case LEASE_SUPERSEDED:
        return FG_LEASE_SUPERSEDED;
    case LEASE_REVOKED:
        return FG_LEASE_REVOKED;
    }
    return FG_LEASE_NOT_FOUND;
}

static void free_renewal(struct store_op *op)
{
    arena_free(&op->arena);
    free(op);
}

/* Tells the store, without waiting for it: nothing that is safe depends on it. */
static void note_renewal(struct lease_renew *renew)
{
    struct store_op *op = malloc(sizeof *op);
    if (!op)
        abort();
    *op = (struct store_op){
        .kind = STORE_RENEWAL,
        .renewal = {.lease = renew->key,
                    .ttl_ms = renew->ttl_ms,
                    .deadline_boot_ms = renew->started_boot_ms + renew->ttl_ms},
        .done = free_renewal,
    };
    store_submit(renew->leases->store, op);
}

static enum fg_status read_renewing(struct lease_renew *renew)
{
    return store_read_lease(renew->leases->store, &renew->key, renew->arena, &renew->lease.row,
                            &renew->successor);
}

static void on_renewed(void *arg, const struct script_answer *answer)
{
    struct lease_renew *renew = arg;
    renew->status = answer->status;
    if (answer->status == FG_OK && (!answer->done || answer->restored)) {
        /* Gone from Redis, or just put back: what does the store say by now? */
        renew->status = read_renewing(renew);
        bool live = renew->status == FG_OK && renew->lease.row.state == LEASE_LIVE;
        if (renew->status == FG_OK && !(live && answer->done))
            renew->status = ended_status(renew->lease.row.state);
        if (answer->restored && !live) {
            struct lease_pair pair = pair_of(&renew->key);
            removals_add(renew->leases->removals, renew->lease.row.resource, &pair);
        }
    }
    if (renew->status == FG_OK) {
        int64_t left_ms = time_left_ms(renew->ttl_ms, renew->started_boot_ms);
        renew->lease.expiry_known = true;
        renew->lease.expires_in_ms = left_ms > 0 ? left_ms : 0;
        note_renewal(renew);
    }
    renew->done(renew);
}

void lease_renew(struct leases *leases, struct lease_renew *renew)
{
    renew->leases = leases;
    renew->started_boot_ms = clock_boot_ms();
    renew->status = read_renewing(renew);
    const struct lease_row *row = &renew->lease.row;
    if (renew->status == FG_OK && row->state != LEASE_LIVE)
        renew->status = ended_status(row->state);
    if (renew->status != FG_OK) {
        renew->done(renew);
        return;
    }
    if (renew->ttl_ms == 0)
        renew->ttl_ms = row->ttl_ms;
    struct lease_pair pair = pair_of(&renew->key);
    bool in_time = row->deadline_boot_ms > renew->started_boot_ms;
    script_renew(leases->redis, store_uuid(leases->store), row->resource, &pair, renew->ttl_ms,
                 row->limit, in_time, on_renewed, renew);
}

/* ---- Release -------------------------------------------------------------------------------- */

static void on_released(struct store_op *op)
{
    struct lease_release *release = op->arg;
    release->status = op->status;
    if (op->status == FG_OK && !FAULT(after_store_release)) {
        struct lease_pair pair = pair_of(&release->key);
        removals_add(release->leases->removals, op->release.row.resource, &pair);
    }
    release->done(release);
}

void lease_release(struct leases *leases, struct lease_release *release)
{
    release->leases = leases;
    release->op = (struct store_op){
        .kind = STORE_RELEASE,
        .release = {.lease = release->key},
        .done = on_released,
        .arg = release,
    };
    store_submit(leases->store, &release->op);
}

/* ---- Time left ------------------------------------------------------------------------------ */

/* The views of one resource, and the answer that they wait for. */
struct watch_part {
    struct lease_watch *watch;
    struct lease_view *views;
    size_t count;
};

static void fill_view(struct lease_view *view, const struct script_answer *answer)
{
    struct lease_pair pair = pair_of(&view->row.key);
    view->expiry_known = answer->status == FG_OK;
    view->expired = view->expiry_known;
    view->expires_in_ms = 0;
    for (size_t i = 0; i < answer->holder_count; i++) {
        const struct lease_holder *holder = &answer->holders[i];
        if (holder->pair.token == pair.token &&
            lease_secret_equal(holder->pair.secret, pair.secret) &&
            holder->expires_at_ms > answer->now_ms) {
            view->expired = false;
            view->expires_in_ms = redis_left_ms(holder, answer->now_ms);
        }
    }
}

static void watch_release(struct lease_watch *watch)
{
    if (--watch->waiting == 0)
        watch->done(watch);
}

static void on_inspected(void *arg, const struct script_answer *answer)
{
    struct watch_part *part = arg;
    for (size_t i = 0; i < part->count; i++)
        fill_view(&part->views[i], answer);
    watch_release(part->watch);
}

void lease_watch(struct leases *leases, struct lease_watch *watch)
{
    watch->waiting = 1; /* ourselves, until all parts are sent */
    size_t at = 0;
    while (at < watch->count) {
        struct watch_part *part = arena_alloc(watch->arena, sizeof *part);
        *part = (struct watch_part){watch, &watch->views[at], 1};
        int64_t resource_id = watch->views[at].row.key.resource_id;
        while (at + part->count < watch->count &&
               watch->views[at + part->count].row.key.resource_id == resource_id)
            part->count++;
        at += part->count;
        watch->waiting++;
        script_inspect(leases->redis, store_uuid(leases->store), part->views[0].row.resource,
                       on_inspected, part);
    }
    watch_release(watch);
}
