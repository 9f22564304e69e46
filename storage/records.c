/* records.c - the writer's guarded writes: fence, version condition, record, ledger, in one
 * savepoint of one transaction. Nothing can come between the check and the write.
 *
 * A write without a token is for an unfenced resource: there the condition alone guards it. That
 * the resource is unfenced is judged here again, whatever held when the request came. */
#include "storage/internal.h"

#include "gateway/clock.h"
#include "gateway/faults.h"

/* What a write is judged by, inside its transaction. */
struct judged {
    const struct fence *fence;
    const char *owner; /* of the token's lease, for the ledger; NULL: none, or not known */
    struct arena *arena;
};

struct record_now {
    int64_t id;      /* 0: the key was never written */
    int64_t version; /* of its last write or delete */
    bool exists;     /* it has a value */
};

static struct record_now find_record(struct writer *w, int64_t resource_id, const char *key)
{
    struct record_now record = {0};
    sqlite3_stmt *find = db_use(&w->db, SQL_RECORD_VERSION);
    db_bind_int(&w->db, find, 1, resource_id);
    db_bind_text(&w->db, find, 2, key);
    if (db_row(&w->db, find)) {
        record.id = sqlite3_column_int64(find, 0);
        record.version = sqlite3_column_int64(find, 1);
        record.exists = sqlite3_column_int(find, 2) != 0;
        db_done(find);
    }
    return record;
}

static bool condition_holds(const struct store_write *write, const struct record_now *record)
{
    switch (write->condition) {
    case VERSION_ANY:
        return true;
    case VERSION_EQUALS:
        return record->exists && record->version == write->condition_version;
    case VERSION_EXISTS:
        return record->exists;
    case VERSION_ABSENT:
        return !record->exists;
    }
    return false;
}

/* ---- Refusals ------------------------------------------------------------------------------- */

static enum fg_status refuse(struct writer *w, const struct store_write *write,
                             const struct judged *by, enum fg_status status, const char *reason)
{
    ledger_refuse(w, &(struct ledger_entry){.kind = LEDGER_REFUSE,
                                            .resource_id = by->fence->resource_id,
                                            .resource = write->resource,
                                            .token = write->token,
                                            .owner = by->owner,
                                            .key = write->key,
                                            .code = fg_error(status)->code,
                                            .reason = reason});
    return status;
}

static const char *ended_reason(enum lease_state state)
{
    switch (state) {
    case LEASE_RELEASED:
        return "released";
    case LEASE_SUPERSEDED:
        return "superseded";
    case LEASE_REVOKED:
        return "revoked";
    case LEASE_LIVE:
        break;
    }
    return "unknown";
}

/* A token at or below the mark that is not live: tells how its lease ended, where that is known. */
static enum fg_status refuse_stale(struct writer *w, struct store_write *write,
                                   const struct judged *by)
{
    struct lease_row lease;
    bool known = read_lease(&w->db, by->fence->resource_id, write->token, by->arena, &lease);
    if (known) {
        write->lease_state = lease.state;
        write->ended_at_ms = lease.ended_at_ms;
        read_successor(&w->db, &lease, by->arena, &write->successor);
    }
    return refuse(w, write, by, FG_STALE_FENCING_TOKEN,
                  ended_reason(known ? lease.state : LEASE_LIVE));
}

enum fg_status store_write_lacks(const struct fence *fence, enum version_condition condition)
{
    if (fence->fenced)
        return FG_FENCING_TOKEN_REQUIRED;
    return condition == VERSION_ANY ? FG_PRECONDITION_REQUIRED : FG_OK;
}

static enum fg_status judge(struct writer *w, struct store_write *write, const struct judged *by)
{
    if (write->token == 0) /* as when it is missing in the request: no refusal for the ledger */
        return store_write_lacks(by->fence, write->condition);
    switch (fence_decide(by->fence, write->token, write->lease_shown ? &write->lease : NULL)) {
    case FENCE_LIVE:
        return FG_OK;
    case FENCE_STALE:
        return refuse_stale(w, write, by);
    case FENCE_NOT_ISSUED:
        return refuse(w, write, by, FG_FENCING_TOKEN_NOT_ISSUED, NULL);
    case FENCE_LEASE_MISMATCH:
        return refuse(w, write, by, FG_LEASE_MISMATCH, NULL);
    }
    return FG_STALE_FENCING_TOKEN;
}

/* ---- Writes --------------------------------------------------------------------------------- */

static void update_record(struct writer *w, const struct store_write *write, int64_t record_id,
                          bool remove, int64_t now_ms)
{
    sqlite3_stmt *update = db_use(&w->db, SQL_RECORD_UPDATE);
    db_bind_int(&w->db, update, 1, record_id);
    db_bind_int(&w->db, update, 2, write->version);
    db_bind_int_or_null(&w->db, update, 3, write->token);
    db_bind_int(&w->db, update, 4, now_ms);
    db_bind_text(&w->db, update, 5, remove ? NULL : write->content_type);
    if (remove)
        sqlite3_bind_null(update, 6);
    else
        db_bind_blob(&w->db, update, 6, write->value, write->value_bytes);
    db_run(&w->db, update);
}

static void insert_record(struct writer *w, const struct store_write *write, int64_t resource_id,
                          int64_t now_ms)
{
    sqlite3_stmt *insert = db_use(&w->db, SQL_RECORD_INSERT);
    db_bind_int(&w->db, insert, 1, resource_id);
    db_bind_text(&w->db, insert, 2, write->key);
    db_bind_int(&w->db, insert, 3, write->version);
    db_bind_int_or_null(&w->db, insert, 4, write->token);
    db_bind_int(&w->db, insert, 5, now_ms);
    db_bind_text(&w->db, insert, 6, write->content_type);
    db_bind_blob(&w->db, insert, 7, write->value, write->value_bytes);
    db_run(&w->db, insert);
}

/* By the sets themselves, not by the verdict that was drawn from them. */
static void assert_admitted(const struct fence *fence, const struct store_write *write)
{
    if (write->token != 0)
        store_invariant(fence_find(fence, write->token) != NULL || PLANTED(fencing_off),
                        "I4: a write is accepted only while its pair is live");
    else
        store_invariant(fence->resource_id != 0 && !fence->fenced && fence->live_count == 0 &&
                            write->condition != VERSION_ANY,
                        "I4: a write without a token is accepted only where the resource is "
                        "unfenced, and under a condition");
}

/* A write without a token needs to know whether anybody is live, one with a token only itself. */
static struct judged read_judged(struct writer *w, const struct store_write *write,
                                 struct arena *arena)
{
    struct judged by = {.fence = &w->fence.fence, .arena = arena};
    if (write->token == 0)
        read_fence(&w->db, w->base, write->resource, &w->fence);
    else
        by.owner = read_fence_of(&w->db, w->base, write->resource, write->token, &w->fence, arena);
    return by;
}

enum fg_status writer_write(struct writer *w, struct store_write *write, bool remove,
                            struct arena *arena)
{
    struct judged by = read_judged(w, write, arena);
    const struct fence *fence = by.fence;
    write->mark = fence->mark;
    if (w->db.status != FG_OK)
        return w->db.status;
    enum fg_status status = PLANTED(check_outside_transaction) ? FG_OK : judge(w, write, &by);
    if (status != FG_OK)
        return status;

    struct record_now record = find_record(w, fence->resource_id, write->key);
    if (w->db.status != FG_OK)
        return w->db.status;
    if (remove && !record.exists)
        return FG_RECORD_NOT_FOUND;
    if (!condition_holds(write, &record)) {
        write->version = record.exists ? record.version : 0;
        return refuse(w, write, &by, FG_VERSION_MISMATCH, NULL);
    }

    assert_admitted(fence, write);
    int64_t now_ms = clock_wall_ms();
    write->version = record.version + 1;
    write->created = !record.exists;
    if (record.id != 0)
        update_record(w, write, record.id, remove, now_ms);
    else
        insert_record(w, write, fence->resource_id, now_ms);
    ledger_append(w, &(struct ledger_entry){.kind = remove ? LEDGER_DELETE : LEDGER_WRITE,
                                            .resource_id = fence->resource_id,
                                            .token = write->token,
                                            .owner = by.owner,
                                            .key = write->key,
                                            .version = write->version});
    return FG_OK;
}
