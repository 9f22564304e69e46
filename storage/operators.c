/* operators.c - what an operator does to a resource: revoking leases, setting its limit and whether
 * it is fenced.
 *
 * A grant may be under way: Redis has given its token out, its commit waits behind ours. So
 * whatever revokes also raises the mark by 1. The token under way is then no longer above it, and a
 * grant counts only above it (grants.c): it is contended, undone in Redis and asked for again.
 * Where Redis had counted ahead, after grants that were undone, that token may be above the mark
 * all the same: so the gateway lets attempts that Redis may have answered already begin anew
 * (acquires_restart()). What was revoked stays so in any case, because no commit brings a pair
 * back.
 *
 * Where the mark is 2^53 - 1 it cannot rise and need not: no token is above it, so no grant can be
 * under way that would count. The leases are ended all the same. */
#include "storage/internal.h"

#include "gateway/clock.h"

#include <stdio.h>

/* ---- Ending leases -------------------------------------------------------------------------- */

static void revoke_lease(struct writer *w, const struct lease_row *row, const char *reason)
{
    int64_t now_ms = clock_wall_ms();
    sqlite3_stmt *end = db_use(&w->db, SQL_LEASE_REVOKE);
    db_bind_int(&w->db, end, 1, row->key.resource_id);
    db_bind_int(&w->db, end, 2, row->key.token);
    db_bind_int(&w->db, end, 3, LEASE_REVOKED);
    db_bind_int(&w->db, end, 4, now_ms);
    db_bind_int(&w->db, end, 5, clock_boot_ms() - row->acquired_boot_ms);
    db_bind_text(&w->db, end, 6, reason);
    db_run(&w->db, end);
    if (w->db.status == FG_OK)
        store_invariant(sqlite3_changes(w->db.handle) == 1, "only a live lease ends, and once");
    ledger_append(w, &(struct ledger_entry){.kind = LEDGER_REVOKE,
                                            .resource_id = row->key.resource_id,
                                            .token = row->key.token,
                                            .owner = row->owner,
                                            .reason = reason,
                                            .ended_at_ms = now_ms});
}

/* Ends the live leases (`token` 0: all, else that one) and tells which. */
static void end_leases(struct writer *w, const struct fence *fence, int64_t token,
                       const char *reason, struct arena *arena, struct ended_leases *ended)
{
    struct lease_pair *pairs = arena_alloc(arena, fence->live_count * sizeof *pairs);
    const char **owners = arena_alloc(arena, fence->live_count * sizeof *owners);
    size_t count = 0;
    for (size_t i = 0; i < fence->live_count; i++) {
        struct lease_row row;
        if ((token != 0 && fence->live[i].token != token) ||
            !read_lease(&w->db, fence->resource_id, fence->live[i].token, arena, &row))
            continue;
        revoke_lease(w, &row, reason);
        pairs[count] = fence->live[i];
        owners[count++] = row.owner;
    }
    *ended = (struct ended_leases){pairs, owners, count};
}

/* Raises the mark by 1, so that no grant that is under way counts. */
static void skip_token(struct writer *w, const struct fence *fence)
{
    if (fence->mark == FENCING_TOKEN_MAX)
        return;
    sqlite3_stmt *skip = db_use(&w->db, SQL_RESOURCE_SKIP);
    db_bind_int(&w->db, skip, 1, fence->resource_id);
    db_bind_int(&w->db, skip, 2, fence->mark + 1);
    db_run(&w->db, skip);
}

/* Reads the fence again and holds it against what was to come of it. Returns the mark. */
static int64_t assert_ended(struct writer *w, const char *resource,
                            const struct ended_leases *ended, int64_t mark_before)
{
    read_fence(&w->db, w->base, resource, &w->fence);
    const struct fence *after = &w->fence.fence;
    if (w->db.status != FG_OK)
        return mark_before;
    store_invariant(after->mark == mark_before + (mark_before < FENCING_TOKEN_MAX),
                    "I1: a revocation raises the mark by 1");
    for (size_t i = 0; i < ended->count; i++)
        store_invariant(!fence_find(after, ended->pairs[i].token),
                        "I6: a revoked lease is no longer live");
    return after->mark;
}

enum fg_status writer_revoke(struct writer *w, struct store_revoke *revoke, struct arena *arena)
{
    read_fence(&w->db, w->base, revoke->resource, &w->fence);
    const struct fence *before = &w->fence.fence;
    if (w->db.status != FG_OK)
        return w->db.status;
    if (before->resource_id == 0)
        return FG_RESOURCE_NOT_FOUND;
    end_leases(w, before, revoke->token, revoke->reason, arena, &revoke->ended);
    if (revoke->ended.count == 0) /* what the operator did stands in the ledger all the same */
        ledger_append(w, &(struct ledger_entry){.kind = LEDGER_REVOKE,
                                                .resource_id = before->resource_id,
                                                .reason = revoke->reason});
    skip_token(w, before);
    revoke->mark = assert_ended(w, revoke->resource, &revoke->ended, before->mark);
    return FG_OK;
}

/* ---- Settings ------------------------------------------------------------------------------- */

struct settings {
    int limit; /* 0: not fixed */
    bool fenced;
};

/* "created, limit 3", "limit 1 -> 3, fenced -> unfenced" */
static void describe(char *text, size_t text_bytes, bool created, const struct settings *before,
                     const struct settings *after)
{
    static const char *const fence_names[] = {"unfenced", "fenced"};
    char limit[48] = "", fence[48] = "", old_limit[16] = "unset";
    if (before->limit != 0)
        snprintf(old_limit, sizeof old_limit, "%d", before->limit);
    if (created && after->limit != 0)
        snprintf(limit, sizeof limit, ", limit %d", after->limit);
    else if (after->limit != before->limit)
        snprintf(limit, sizeof limit, "limit %s -> %d", old_limit, after->limit);
    if (created && !after->fenced)
        snprintf(fence, sizeof fence, ", unfenced");
    else if (after->fenced != before->fenced)
        snprintf(fence, sizeof fence, "%s%s -> %s", limit[0] != '\0' ? ", " : "",
                 fence_names[before->fenced], fence_names[after->fenced]);
    snprintf(text, text_bytes, "%s%s%s", created ? "created" : "", limit, fence);
}

/* Writes the settings; creates the resource where there is none. Returns its id, 0 on failure. */
static int64_t write_settings(struct writer *w, const char *resource, int64_t mark,
                              const struct settings *settings)
{
    sqlite3_stmt *write = db_use(&w->db, SQL_RESOURCE_CONFIGURE);
    db_bind_text(&w->db, write, 1, resource);
    db_bind_int(&w->db, write, 2, mark);
    db_bind_int_or_null(&w->db, write, 3, settings->limit);
    db_bind_int(&w->db, write, 4, settings->fenced);
    int64_t id = 0;
    while (db_row(&w->db, write))
        id = sqlite3_column_int64(write, 0);
    return id;
}

enum fg_status writer_configure(struct writer *w, struct store_configure *configure,
                                struct arena *arena)
{
    read_fence(&w->db, w->base, configure->resource, &w->fence);
    const struct fence *fence = &w->fence.fence;
    if (w->db.status != FG_OK)
        return w->db.status;
    bool created = fence->resource_id == 0;
    struct settings before = {fence->limit, fence->fenced}, after = before;
    if (configure->limit != 0)
        after.limit = configure->limit;
    if (configure->fence != FENCE_KEEP)
        after.fenced = configure->fence == FENCE_ON;
    configure->ended = (struct ended_leases){0}; /* the op may run twice (writer.c) */
    configure->mark = fence->mark;
    configure->fixed_limit = after.limit;
    configure->fenced = after.fenced;
    configure->changed = created || after.limit != before.limit || after.fenced != before.fenced;
    if (!configure->changed)
        return FG_OK;

    int64_t id = write_settings(w, configure->resource, fence->mark, &after);
    if (!created && before.fenced && !after.fenced) {
        end_leases(w, fence, 0, "unfenced", arena, &configure->ended);
        skip_token(w, fence);
        configure->mark = assert_ended(w, configure->resource, &configure->ended, fence->mark);
    }
    char reason[128];
    describe(reason, sizeof reason, created, &before, &after);
    ledger_append(
        w, &(struct ledger_entry){.kind = LEDGER_CONFIG, .resource_id = id, .reason = reason});
    return FG_OK;
}
