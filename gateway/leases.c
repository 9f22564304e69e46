/* leases.c - renewing, releasing and watching leases; opening the lease service (leases.h).
 *
 *     lease_api ──► waiters ──► acquire ──┐
 *               └─► leases ───────────────┼──► removals, scripts ──► Redis
 *     operators ──► leases_remove() ──────┘──► store
 *
 * What has to leave Redis goes through removals.h; whoever sends a removal then wakes who waits. */
#include "gateway/leases.h"

#include "gateway/acquire.h"
#include "gateway/clock.h"
#include "gateway/faults.h"
#include "gateway/redis_link.h"
#include "gateway/removals.h"
#include "gateway/scripts.h"
#include "gateway/waiters.h"

#include <stdlib.h>
#include <string.h>

struct leases {
    struct store *store;
    struct redis_link *redis;
    struct removals *removals;
    struct acquires *acquires;
    struct waiters *waiters;
};

static void on_freed(void *arg, const char *resource)
{
    struct leases *leases = arg;
    waiters_wake(leases->waiters, resource);
}

struct leases *leases_open(struct ev_loop *ev, struct store *store, struct redis_link *redis,
                           const struct leases_options *options)
{
    struct leases *leases = calloc(1, sizeof *leases);
    if (!leases)
        abort();
    leases->store = store;
    leases->redis = redis;
    leases->removals = removals_open(redis, store_uuid(store));
    leases->acquires = acquires_open(store, redis, leases->removals,
                                     &(struct acquires_options){.freed = on_freed, .arg = leases});
    leases->waiters = waiters_open(
        ev, leases->acquires, redis,
        &(struct waiters_options){.max = options->max_waiters,
                                  .max_per_resource = options->max_waiters_per_resource});
    return leases;
}

void leases_close(struct leases *leases)
{
    if (!leases)
        return;
    waiters_close(leases->waiters);
    acquires_close(leases->acquires);
    removals_close(leases->removals);
    free(leases);
}

struct waiters *leases_waiters(struct leases *leases)
{
    return leases->waiters;
}

void leases_redis_ready(struct leases *leases)
{
    removals_send(leases->removals);
    waiters_wake_all(leases->waiters);
}

void leases_drain(struct leases *leases)
{
    waiters_drain(leases->waiters);
}

void leases_remove(struct leases *leases, const char *resource, const struct lease_pair *pairs,
                   size_t count)
{
    for (size_t i = 0; i < count; i++)
        removals_add(leases->removals, resource, &pairs[i]);
    waiters_wake(leases->waiters, resource);
}

void leases_revoking(struct leases *leases, const char *resource)
{
    acquires_restart(leases->acquires, resource);
}

void leases_changed(struct leases *leases, const char *resource)
{
    waiters_configured(leases->waiters, resource);
}

/* The clock is read as if its next millisecond had begun. */
int64_t lease_time_left_ms(int64_t ttl_ms, int64_t started_boot_ms)
{
    return ttl_ms - (clock_boot_ms() + 1 - started_boot_ms);
}

int64_t lease_redis_left_ms(const struct lease_holder *holder, int64_t now_ms)
{
    int64_t left_ms = holder->expires_at_ms - (now_ms + 1);
    return left_ms > 0 ? left_ms : 0;
}

struct lease_pair lease_pair_of(const struct lease_key *key)
{
    struct lease_pair pair = {.token = key->token};
    memcpy(pair.secret, key->secret, sizeof pair.secret);
    return pair;
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
    if (answer->status == FG_OK) {
        /* While Redis was asked it may have been released, revoked or replaced. */
        renew->status = read_renewing(renew);
        bool live = renew->status == FG_OK && renew->lease.row.state == LEASE_LIVE;
        if (renew->status == FG_OK && !(live && answer->done))
            renew->status = ended_status(renew->lease.row.state);
        if (answer->restored && !live) {
            struct lease_pair pair = lease_pair_of(&renew->key);
            leases_remove(renew->leases, renew->lease.row.resource, &pair, 1);
        }
    }
    if (renew->status == FG_OK) {
        int64_t left_ms = lease_time_left_ms(renew->ttl_ms, renew->started_boot_ms);
        renew->lease.expiry_known = true;
        renew->lease.expires_in_ms = left_ms > 0 ? left_ms : 0;
        note_renewal(renew);
        waiters_expiry(renew->leases->waiters, renew->lease.row.resource,
                       renew->lease.expires_in_ms);
    }
    renew->done(renew);
}

/* Where Redis has lost the lease it is put back, if there is room: beside others up to the limit as
 * it is now, or alone where it was granted at limit 1. */
static void ask_to_renew(struct lease_renew *renew)
{
    struct leases *leases = renew->leases;
    const struct lease_row *row = &renew->lease.row;
    struct lease_pair pair = lease_pair_of(&renew->key);
    int limit = 1;
    int64_t oldest = row->key.token;
    if (row->limit != 1)
        renew->status = store_read_room(leases->store, row->key.resource_id, &limit, &oldest);
    if (renew->status != FG_OK) {
        renew->done(renew);
        return;
    }
    if (row->deadline_boot_ms <= renew->started_boot_ms)
        oldest = 0; /* its time has passed */
    script_renew(leases->redis, store_uuid(leases->store), row->resource, &pair, renew->ttl_ms,
                 limit, oldest, on_renewed, renew);
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
    ask_to_renew(renew);
}

/* ---- Release -------------------------------------------------------------------------------- */

static void on_released(struct store_op *op)
{
    struct lease_release *release = op->arg;
    release->status = op->status;
    if (op->status == FG_OK && !FAULT(after_store_release)) {
        struct lease_pair pair = lease_pair_of(&release->key);
        leases_remove(release->leases, op->release.row.resource, &pair, 1);
    }
    release->done(release);
}

void lease_release(struct leases *leases, struct lease_release *release)
{
    release->leases = leases;
    release->op = (struct store_op){
        .kind = STORE_RELEASE,
        .release = {.lease = release->key, .reason = release->reason},
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
    struct lease_pair pair = lease_pair_of(&view->row.key);
    view->expiry_known = answer->status == FG_OK;
    view->expired = view->expiry_known;
    view->expires_in_ms = 0;
    for (size_t i = 0; i < answer->holder_count; i++) {
        const struct lease_holder *holder = &answer->holders[i];
        if (holder->pair.token == pair.token &&
            lease_secret_equal(holder->pair.secret, pair.secret) &&
            holder->expires_at_ms > answer->now_ms) {
            view->expired = false;
            view->expires_in_ms = lease_redis_left_ms(holder, answer->now_ms);
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
