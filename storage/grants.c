/* grants.c - the writer's half of the lease protocol: fencing a grant, renewing, releasing.
 *
 * A grant counts only if its token is above the mark (strict), and the live set becomes
 * (live ∩ Redis' holder set) ∪ {this lease}, compared as (token, secret) pairs. Whatever Redis
 * forgot or handed out twice, no ended lease comes back and no number is installed twice. The rule
 * was found by exhaustive search of small models; its neighbours (a threshold, Redis' set taken as
 * it comes, tokens without secrets) all have a counterexample. */
#include "storage/internal.h"

#include "gateway/clock.h"
#include "gateway/faults.h"

/* ---- Grant ---------------------------------------------------------------------------------- */

static bool is_pair(const struct lease_holder *holder, const struct lease_pair *pair)
{
    return holder->pair.token == pair->token &&
           lease_secret_equal(holder->pair.secret, pair->secret);
}

/* Looks from `*hint` on and round. The live set comes by token and Redis' holders by expiry, which
 * is mostly the same order: a thousand look-ups take a thousand steps, not a million. */
static const struct lease_holder *find_pair(const struct lease_holder *holders, size_t count,
                                            const struct lease_pair *pair, size_t *hint)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = (*hint + i) % count;
        if (is_pair(&holders[at], pair)) {
            *hint = at + 1;
            return &holders[at];
        }
    }
    return NULL;
}

/* Raises the mark to the token, only from below it; returns the resource's id, 0 if it did not. */
static int64_t raise_mark(struct writer *w, const struct store_grant *grant, int64_t resource_id)
{
    bool is_new = resource_id == 0;
    sqlite3_stmt *raise = db_use(&w->db, is_new ? SQL_RESOURCE_INSERT : SQL_RESOURCE_RAISE);
    if (is_new)
        db_bind_text(&w->db, raise, 1, grant->resource);
    else
        db_bind_int(&w->db, raise, 1, resource_id);
    db_bind_int(&w->db, raise, 2, grant->pair.token);
    db_bind_int(&w->db, raise, 3, grant->fixed_limit);
    db_run(&w->db, raise);
    if (is_new)
        return sqlite3_last_insert_rowid(w->db.handle);
    return sqlite3_changes(w->db.handle) == 1 ? resource_id : 0;
}

struct lease_ending {
    enum lease_state state;
    int64_t at_ms;
    int64_t held_ms;
    int64_t remaining_ms;
    const char *reason;
    int64_t superseded_by;
};

static void end_lease(struct writer *w, const struct lease_key *key,
                      const struct lease_ending *ending)
{
    sqlite3_stmt *end = db_use(&w->db, SQL_LEASE_END);
    db_bind_int(&w->db, end, 1, key->resource_id);
    db_bind_int(&w->db, end, 2, key->token);
    db_bind_int(&w->db, end, 3, ending->state);
    db_bind_int(&w->db, end, 4, ending->at_ms);
    db_bind_int(&w->db, end, 5, ending->held_ms);
    db_bind_int(&w->db, end, 6, ending->remaining_ms);
    db_bind_text(&w->db, end, 7, ending->reason);
    db_bind_int_or_null(&w->db, end, 8, ending->superseded_by);
    db_run(&w->db, end);
    if (w->db.status == FG_OK)
        store_invariant(sqlite3_changes(w->db.handle) == 1, "only a live lease ends, and once");
}

/* When the lease ran out: Redis has said so, or an earlier attempt was told and came to nothing,
 * and our own clock has to do. 0: its time had not passed, Redis has lost it. */
static int64_t ran_out_at_ms(const struct store_grant *grant, const struct lease_pair *pair,
                             int64_t deadline_boot_ms, int64_t now_ms, int64_t now_boot_ms)
{
    size_t hint = 0;
    const struct lease_holder *dropped =
        find_pair(grant->dropped, grant->dropped_count, pair, &hint);
    if (dropped)
        return dropped->expires_at_ms;
    return deadline_boot_ms <= now_boot_ms ? now_ms - (now_boot_ms - deadline_boot_ms) : 0;
}

/* A live lease that Redis no longer has: the new grant replaces it. */
static void supersede(struct writer *w, const struct store_grant *grant,
                      const struct lease_pair *pair, int64_t now_ms)
{
    struct arena arena = {0};
    struct lease_row row;
    if (read_lease(&w->db, grant->resource_id, pair->token, &arena, &row)) {
        int64_t now_boot_ms = clock_boot_ms();
        int64_t ran_out_ms = ran_out_at_ms(grant, pair, row.deadline_boot_ms, now_ms, now_boot_ms);
        end_lease(w, &row.key,
                  &(struct lease_ending){.state = LEASE_SUPERSEDED,
                                         .at_ms = now_ms,
                                         .held_ms = now_boot_ms - row.acquired_boot_ms,
                                         .superseded_by = grant->pair.token});
        ledger_append(w, &(struct ledger_entry){
                             .kind = LEDGER_EXPIRE,
                             .resource_id = row.key.resource_id,
                             .token = row.key.token,
                             .owner = row.owner,
                             .reason = ran_out_ms != 0 ? NULL : "lost_by_redis",
                             .ended_at_ms = ran_out_ms != 0 ? ran_out_ms : now_ms,
                         });
    }
    arena_free(&arena);
}

static void insert_lease(struct writer *w, const struct store_grant *grant)
{
    sqlite3_stmt *insert = db_use(&w->db, SQL_LEASE_INSERT);
    db_bind_int(&w->db, insert, 1, grant->resource_id);
    db_bind_int(&w->db, insert, 2, grant->pair.token);
    db_bind_blob(&w->db, insert, 3, grant->pair.secret, LEASE_SECRET_BYTES);
    db_bind_text(&w->db, insert, 4, grant->owner);
    db_bind_int(&w->db, insert, 5, grant->ttl_ms);
    db_bind_int(&w->db, insert, 6, grant->fixed_limit);
    db_bind_int(&w->db, insert, 7, grant->acquired_at_ms);
    db_bind_int(&w->db, insert, 8, grant->waited_ms);
    db_bind_int(&w->db, insert, 9, grant->started_boot_ms);
    db_bind_int(&w->db, insert, 10, grant->started_boot_ms + grant->ttl_ms);
    db_run(&w->db, insert);
    ledger_append(w, &(struct ledger_entry){.kind = LEDGER_GRANT,
                                            .resource_id = grant->resource_id,
                                            .token = grant->pair.token,
                                            .owner = grant->owner,
                                            .ttl_ms = grant->ttl_ms});
}

/* The limit that holds for this grant: the one fixed before, else the one named, else 1. */
static enum fg_status settle_limit(const struct fence *fence, struct store_grant *grant)
{
    grant->fixed_limit = fence->limit != 0 ? fence->limit : grant->limit;
    if (grant->fixed_limit == 0)
        grant->fixed_limit = 1;
    return grant->limit != 0 && grant->limit != grant->fixed_limit ? FG_LIMIT_MISMATCH : FG_OK;
}

/* What Redis has checked too, and here counts: is there room beside those who keep their lease? A
 * lease granted at limit 1 was promised to be alone, whatever the limit has become since. */
static bool has_room(const struct fence *fence, const struct store_grant *grant)
{
    size_t survivors = 0, hint = 0;
    for (size_t i = 0; i < fence->live_count; i++)
        survivors += find_pair(grant->holders, grant->holder_count, &fence->live[i], &hint) != NULL;
    return survivors + 1 <= (size_t)grant->fixed_limit && !(fence->exclusive && survivors > 0);
}

/* May the grant count? The fence is as it was before. */
static enum fg_status judge_grant(const struct fence *fence, struct store_grant *grant)
{
    if (!fence->fenced)
        return FG_RESOURCE_UNFENCED;
    enum fg_status status = settle_limit(fence, grant);
    if (status != FG_OK)
        return status;
    if (grant->pair.token <= fence->mark && !PLANTED(raise_max))
        return FG_GRANT_CONTENDED;
    return has_room(fence, grant) ? FG_OK : FG_GRANT_CONTENDED;
}

/* By what the tables hold now, not by what was meant to be written. */
static void assert_granted(struct writer *w, const struct store_grant *grant)
{
    sqlite3_stmt *bounds = db_use(&w->db, SQL_LIVE_BOUNDS);
    db_bind_int(&w->db, bounds, 1, grant->resource_id);
    if (!db_row(&w->db, bounds))
        return;
    int64_t live_count = sqlite3_column_int64(bounds, 0);
    int64_t newest = sqlite3_column_int64(bounds, 1);
    db_done(bounds);
    store_invariant(live_count <= grant->fixed_limit && newest == grant->pair.token,
                    "I8: a grant leaves at most `limit` pairs live, itself the newest");
}

enum fg_status writer_grant(struct writer *w, struct store_grant *grant)
{
    if (FAULT(before_fence))
        return FG_STORE_UNAVAILABLE;
    read_fence(&w->db, w->base, grant->resource, &w->fence);
    const struct fence *before = &w->fence.fence;
    enum fg_status status = w->db.status == FG_OK ? judge_grant(before, grant) : w->db.status;
    if (status != FG_OK)
        return status;

    grant->acquired_at_ms = clock_wall_ms();
    grant->resource_id = raise_mark(w, grant, before->resource_id);
    if (w->db.status != FG_OK)
        return w->db.status;
    store_invariant(grant->resource_id != 0 && grant->pair.token > before->mark,
                    "I1, I2: a grant raises the mark strictly");
    size_t hint = 0;
    for (size_t i = 0; i < before->live_count; i++) {
        if (!find_pair(grant->holders, grant->holder_count, &before->live[i], &hint))
            supersede(w, grant, &before->live[i], grant->acquired_at_ms);
    }
    insert_lease(w, grant);
    assert_granted(w, grant);
    return FG_OK;
}

/* ---- Renewal -------------------------------------------------------------------------------- */

enum fg_status writer_renewal(struct writer *w, struct store_renewal *renewal)
{
    struct arena arena = {0};
    struct lease_row row;
    if (read_lease(&w->db, renewal->lease.resource_id, renewal->lease.token, &arena, &row) &&
        row.state == LEASE_LIVE) {
        sqlite3_stmt *renew = db_use(&w->db, SQL_LEASE_RENEW);
        db_bind_int(&w->db, renew, 1, row.key.resource_id);
        db_bind_int(&w->db, renew, 2, row.key.token);
        db_bind_int(&w->db, renew, 3, renewal->deadline_boot_ms);
        db_run(&w->db, renew);
        ledger_append(w, &(struct ledger_entry){.kind = LEDGER_RENEW,
                                                .resource_id = row.key.resource_id,
                                                .token = row.key.token,
                                                .owner = row.owner,
                                                .ttl_ms = renewal->ttl_ms});
    }
    arena_free(&arena);
    return FG_OK;
}

/* ---- Release -------------------------------------------------------------------------------- */

static void release_live(struct writer *w, struct store_release *release)
{
    struct lease_row *row = &release->row;
    int64_t now_boot_ms = clock_boot_ms();
    row->state = LEASE_RELEASED;
    row->ended_at_ms = clock_wall_ms();
    row->held_ms = now_boot_ms - row->acquired_boot_ms;
    row->remaining_ms = row->deadline_boot_ms > now_boot_ms ? row->deadline_boot_ms - now_boot_ms
                                                            : 0;
    row->reason = release->reason;
    end_lease(w, &row->key,
              &(struct lease_ending){.state = row->state,
                                     .at_ms = row->ended_at_ms,
                                     .held_ms = row->held_ms,
                                     .remaining_ms = row->remaining_ms,
                                     .reason = row->reason});
    ledger_append(w, &(struct ledger_entry){.kind = LEDGER_RELEASE,
                                            .resource_id = row->key.resource_id,
                                            .token = row->key.token,
                                            .owner = row->owner,
                                            .reason = row->reason,
                                            .ended_at_ms = row->ended_at_ms});
}

enum fg_status writer_release(struct writer *w, struct store_release *release, struct arena *arena)
{
    struct lease_row *row = &release->row;
    if (!read_lease(&w->db, release->lease.resource_id, release->lease.token, arena, row) ||
        !lease_secret_equal(row->key.secret, release->lease.secret))
        return FG_LEASE_NOT_FOUND;
    switch (row->state) {
    case LEASE_LIVE:
        release_live(w, release);
        return FG_OK;
    case LEASE_RELEASED:
        release->again = true;
        return FG_OK;
    case LEASE_SUPERSEDED:
        read_successor(&w->db, row, arena, &release->successor);
        return FG_LEASE_SUPERSEDED;
    case LEASE_REVOKED:
        return FG_LEASE_REVOKED;
    }
    return FG_LEASE_NOT_FOUND;
}
