/* reads.c - single rows: for the loop (store_read_*), and for the writer inside its transaction.
 *
 * The loop's reads share a snapshot for a turn of the loop (store.h). It is taken by the first of
 * them and ended before anything is answered, so a read that begins after an answer sees what was
 * answered. */
#include "storage/internal.h"

#include "gateway/clock.h"
#include "gateway/faults.h"

#include <string.h>

const char *column_string(sqlite3_stmt *statement, int at, struct arena *arena)
{
    const void *text = sqlite3_column_text(statement, at);
    return text ? arena_copy(arena, text, (size_t)sqlite3_column_bytes(statement, at)) : NULL;
}

static void column_secret(sqlite3_stmt *statement, int at, uint8_t secret[LEASE_SECRET_BYTES])
{
    store_invariant(sqlite3_column_bytes(statement, at) == LEASE_SECRET_BYTES,
                    "a secret has 16 bytes");
    memcpy(secret, sqlite3_column_blob(statement, at), LEASE_SECRET_BYTES);
}

/* ---- Fences --------------------------------------------------------------------------------- */

static void read_pair(sqlite3_stmt *statement, struct fence_buffer *into)
{
    size_t at = into->fence.live_count++;
    store_invariant(at < LIMIT_MAX, "I8: at most 1000 pairs are live");
    into->live[at].token = sqlite3_column_int64(statement, 4);
    column_secret(statement, 5, into->live[at].secret);
    into->fence.exclusive |= sqlite3_column_int(statement, 6) == 1;
}

static void read_marks(sqlite3_stmt *statement, int64_t base, struct fence *fence)
{
    int64_t mark = sqlite3_column_int64(statement, 1);
    fence->resource_id = sqlite3_column_int64(statement, 0);
    fence->mark = mark > base ? mark : base;
    fence->limit = sqlite3_column_int(statement, 2);
    fence->fenced = sqlite3_column_int(statement, 3) != 0;
}

/* One statement, so that mark and live set are of one moment. */
void read_fence(struct database *db, int64_t base, const char *resource, struct fence_buffer *into)
{
    into->fence = (struct fence){.mark = base, .fenced = true, .live = into->live};
    sqlite3_stmt *statement = db_use(db, SQL_FENCE);
    db_bind_text(db, statement, 1, resource);
    while (db_row(db, statement)) {
        read_marks(statement, base, &into->fence);
        if (sqlite3_column_type(statement, 4) != SQLITE_NULL)
            read_pair(statement, into);
    }
}

const char *read_fence_of(struct database *db, int64_t base, const char *resource, int64_t token,
                          struct fence_buffer *into, struct arena *arena)
{
    const char *owner = NULL;
    into->fence = (struct fence){.mark = base, .fenced = true, .live = into->live};
    sqlite3_stmt *statement = db_use(db, SQL_FENCE_OF);
    db_bind_text(db, statement, 1, resource);
    db_bind_int(db, statement, 2, token);
    while (db_row(db, statement)) { /* one row, or none */
        read_marks(statement, base, &into->fence);
        owner = column_string(statement, 8, arena);
        if (sqlite3_column_type(statement, 4) != SQLITE_NULL &&
            sqlite3_column_int(statement, 7) == LEASE_LIVE)
            read_pair(statement, into);
    }
    return owner;
}

/* The loop's connection, inside the snapshot of this turn. */
static struct database *snapshot(struct store *store)
{
    struct database *db = &store->loop_db;
    db_clear(db);
    if (sqlite3_get_autocommit(db->handle))
        db_do(db, SQL_READ_BEGIN);
    return db;
}

void reads_end(struct store *store)
{
    struct database *db = &store->loop_db;
    if (sqlite3_get_autocommit(db->handle))
        return;
    db_clear(db);
    db_do(db, SQL_COMMIT);
}

enum fg_status store_read_fence(struct store *store, const char *resource, struct fence *fence)
{
    struct database *db = snapshot(store);
    read_fence(db, store->base, resource, &store->loop_fence);
    *fence = store->loop_fence.fence;
    return db->status;
}

enum fg_status store_read_room(struct store *store, int64_t resource_id, int *limit,
                               int64_t *oldest)
{
    struct database *db = snapshot(store);
    sqlite3_stmt *find = db_use(db, SQL_RESOURCE_ROOM);
    *limit = 0;
    *oldest = 0;
    db_bind_int(db, find, 1, resource_id);
    while (db_row(db, find)) {
        *limit = sqlite3_column_int(find, 0);
        *oldest = sqlite3_column_int64(find, 1);
    }
    return db->status;
}

/* ---- Leases --------------------------------------------------------------------------------- */

/* The columns are LEASE_COLUMNS (statements.def). */
void lease_row_read(sqlite3_stmt *statement, struct arena *arena, struct lease_row *row)
{
    *row = (struct lease_row){
        .key.resource_id = sqlite3_column_int64(statement, 0),
        .key.token = sqlite3_column_int64(statement, 1),
        .resource = column_string(statement, 3, arena),
        .owner = column_string(statement, 4, arena),
        .ttl_ms = sqlite3_column_int64(statement, 5),
        .limit = sqlite3_column_int(statement, 6),
        .state = (enum lease_state)sqlite3_column_int(statement, 7),
        .acquired_at_ms = sqlite3_column_int64(statement, 8),
        .waited_ms = sqlite3_column_int64(statement, 9),
        .acquired_boot_ms = sqlite3_column_int64(statement, 10),
        .deadline_boot_ms = sqlite3_column_int64(statement, 11),
        .ended_at_ms = sqlite3_column_int64(statement, 12),
        .held_ms = sqlite3_column_int64(statement, 13),
        .remaining_ms = sqlite3_column_int64(statement, 14),
        .reason = column_string(statement, 15, arena),
        .superseded_by = sqlite3_column_int64(statement, 16),
    };
    column_secret(statement, 2, row->key.secret);
}

bool read_lease(struct database *db, int64_t resource_id, int64_t token, struct arena *arena,
                struct lease_row *row)
{
    sqlite3_stmt *statement = db_use(db, SQL_LEASE_FIND);
    db_bind_int(db, statement, 1, resource_id);
    db_bind_int(db, statement, 2, token);
    if (!db_row(db, statement))
        return false;
    lease_row_read(statement, arena, row);
    db_done(statement);
    return row->state == LEASE_LIVE || !PLANTED(forget_ended_leases);
}

void read_successor(struct database *db, const struct lease_row *row, struct arena *arena,
                    struct lease_successor *successor)
{
    *successor = (struct lease_successor){0};
    struct lease_row next;
    if (row->superseded_by == 0)
        return;
    successor->token = row->superseded_by;
    successor->at_ms = row->ended_at_ms;
    if (read_lease(db, row->key.resource_id, row->superseded_by, arena, &next))
        successor->owner = next.owner;
}

enum fg_status store_read_lease(struct store *store, const struct lease_key *key,
                                struct arena *arena, struct lease_row *row,
                                struct lease_successor *successor)
{
    struct database *db = snapshot(store);
    bool found = read_lease(db, key->resource_id, key->token, arena, row) &&
                 lease_secret_equal(row->key.secret, key->secret);
    if (found)
        read_successor(db, row, arena, successor);
    if (db->status != FG_OK)
        return db->status;
    return found ? FG_OK : FG_LEASE_NOT_FOUND;
}

enum fg_status store_read_ended(struct store *store, int64_t resource_id, int64_t token,
                                struct arena *arena, struct lease_row *row,
                                struct lease_successor *successor)
{
    struct database *db = snapshot(store);
    *row = (struct lease_row){.state = LEASE_LIVE};
    *successor = (struct lease_successor){0};
    if (read_lease(db, resource_id, token, arena, row))
        read_successor(db, row, arena, successor);
    return db->status;
}

/* ---- Resources and records ------------------------------------------------------------------ */

enum fg_status store_read_resource(struct store *store, const char *resource, struct arena *arena,
                                   struct resource_row *row)
{
    struct database *db = snapshot(store);
    const struct fence *fence = &store->loop_fence.fence;
    read_fence(db, store->base, resource, &store->loop_fence);
    if (db->status != FG_OK || fence->resource_id == 0)
        return db->status != FG_OK ? db->status : FG_RESOURCE_NOT_FOUND;
    *row = (struct resource_row){
        .id = fence->resource_id,
        .name = arena_string(arena, resource),
        .mark = fence->mark,
        .limit = fence->limit,
        .fenced = fence->fenced,
        .live = arena_alloc(arena, fence->live_count * sizeof *row->live),
    };
    for (size_t i = 0; i < fence->live_count; i++) {
        if (read_lease(db, row->id, fence->live[i].token, arena, &row->live[row->live_count]))
            row->live_count++;
    }
    return db->status;
}

enum fg_status store_read_record(struct store *store, const char *resource, const char *key,
                                 struct arena *arena, struct record_row *row)
{
    struct database *db = snapshot(store);
    sqlite3_stmt *statement = db_use(db, SQL_RECORD_GET);
    db_bind_text(db, statement, 1, resource);
    db_bind_text(db, statement, 2, key);
    if (!db_row(db, statement))
        return db->status != FG_OK ? db->status : FG_RECORD_NOT_FOUND;
    size_t bytes = (size_t)sqlite3_column_bytes(statement, 5);
    *row = (struct record_row){
        .key = column_string(statement, 0, arena),
        .version = sqlite3_column_int64(statement, 1),
        .token = sqlite3_column_int64(statement, 2),
        .updated_at_ms = sqlite3_column_int64(statement, 3),
        .content_type = column_string(statement, 4, arena),
        .value = arena_copy(arena, sqlite3_column_blob(statement, 5), bytes),
        .value_bytes = bytes,
    };
    db_done(statement);
    return FG_OK;
}
