/* scans.c - lists, on a thread and a connection of their own: a long one never holds up the loop or
 * the writer. Each page is one short read transaction, so that checkpoints are not starved. */
#include "storage/internal.h"

#include <string.h>

/* Rows are read one beyond the page, to know whether there are more. */
static size_t page_end(struct store_scan *scan)
{
    scan->more = scan->count > scan->limit;
    if (scan->more)
        scan->count = scan->limit;
    return scan->count;
}

/* The id of the resource that a scan is about, 0 where it does not exist. */
static int64_t resource_id(struct database *db, const char *name)
{
    int64_t id = 0;
    sqlite3_stmt *find = db_use(db, SQL_RESOURCE_FIND);
    db_bind_text(db, find, 1, name);
    if (db_row(db, find)) {
        id = sqlite3_column_int64(find, 0);
        db_done(find);
    }
    return id;
}

/* Most resources have one live lease or none: the room doubles as they come. */
static void scan_live_of(struct database *db, struct arena *arena, struct resource_row *resource)
{
    size_t room = 0;
    sqlite3_stmt *statement = db_use(db, SQL_LEASES_LIVE_OF);
    db_bind_int(db, statement, 1, resource->id);
    db_bind_int(db, statement, 2, 0);
    db_bind_text(db, statement, 3, NULL);
    db_bind_int(db, statement, 4, LIMIT_MAX);
    while (db_row(db, statement)) {
        if (resource->live_count == room) {
            room = room == 0 ? 1 : room * 2;
            struct lease_row *larger = arena_alloc(arena, room * sizeof *larger);
            if (resource->live_count > 0)
                memcpy(larger, resource->live, resource->live_count * sizeof *larger);
            resource->live = larger;
        }
        lease_row_read(statement, arena, &resource->live[resource->live_count++]);
    }
}

static enum fg_status scan_resources(struct store *store, struct store_scan *scan,
                                     struct arena *arena)
{
    struct database *db = &store->scan_db;
    scan->resources = arena_alloc(arena, (scan->limit + 1) * sizeof *scan->resources);
    sqlite3_stmt *statement = db_use(db, SQL_RESOURCES);
    db_bind_text(db, statement, 1, scan->after_name);
    db_bind_int(db, statement, 2, (int64_t)scan->limit + 1);
    while (scan->count <= scan->limit && db_row(db, statement)) {
        int64_t mark = sqlite3_column_int64(statement, 2);
        scan->resources[scan->count++] = (struct resource_row){
            .id = sqlite3_column_int64(statement, 0),
            .name = column_string(statement, 1, arena),
            .mark = mark > store->base ? mark : store->base,
            .limit = sqlite3_column_int(statement, 3),
            .fenced = sqlite3_column_int(statement, 4) != 0,
        };
    }
    db_done(statement);
    size_t count = page_end(scan);
    for (size_t i = 0; i < count; i++)
        scan_live_of(db, arena, &scan->resources[i]);
    return FG_OK;
}

static enum fg_status scan_leases(struct database *db, struct store_scan *scan, struct arena *arena)
{
    sqlite3_stmt *statement;
    scan->leases = arena_alloc(arena, (scan->limit + 1) * sizeof *scan->leases);
    if (scan->resource) {
        statement = db_use(db, SQL_LEASES_LIVE_OF);
        db_bind_int(db, statement, 1, resource_id(db, scan->resource));
        db_bind_int(db, statement, 2, scan->after_number);
    } else {
        statement = db_use(db, SQL_LEASES_LIVE);
        db_bind_int(db, statement, 1, scan->after_id);
        db_bind_int(db, statement, 2, scan->after_number);
    }
    db_bind_text(db, statement, 3, scan->owner);
    db_bind_int(db, statement, 4, (int64_t)scan->limit + 1);
    while (scan->count <= scan->limit && db_row(db, statement))
        lease_row_read(statement, arena, &scan->leases[scan->count++]);
    db_done(statement);
    page_end(scan);
    return FG_OK;
}

static enum fg_status scan_records(struct database *db, struct store_scan *scan,
                                   struct arena *arena)
{
    int64_t resource = resource_id(db, scan->resource);
    if (resource == 0)
        return FG_RESOURCE_NOT_FOUND;
    size_t prefix_bytes = strlen(scan->prefix);
    scan->records = arena_alloc(arena, (scan->limit + 1) * sizeof *scan->records);
    sqlite3_stmt *statement = db_use(db, SQL_RECORDS);
    db_bind_int(db, statement, 1, resource);
    db_bind_text(db, statement, 2, scan->prefix);
    db_bind_text(db, statement, 3, scan->after_name);
    db_bind_int(db, statement, 4, (int64_t)scan->limit + 1);
    while (scan->count <= scan->limit && db_row(db, statement)) {
        const char *key = (const char *)sqlite3_column_text(statement, 0);
        if (strncmp(key, scan->prefix, prefix_bytes) != 0)
            break; /* keys are in byte order: past the prefix */
        scan->records[scan->count++] = (struct record_row){
            .key = arena_string(arena, key),
            .version = sqlite3_column_int64(statement, 1),
            .token = sqlite3_column_int64(statement, 2),
            .updated_at_ms = sqlite3_column_int64(statement, 3),
            .content_type = column_string(statement, 4, arena),
            .value_bytes = (size_t)sqlite3_column_int64(statement, 5),
        };
    }
    db_done(statement);
    page_end(scan);
    return FG_OK;
}

static void ledger_row_read(sqlite3_stmt *statement, struct arena *arena, struct ledger_row *row)
{
    *row = (struct ledger_row){
        .seq = sqlite3_column_int64(statement, 0),
        .at_ms = sqlite3_column_int64(statement, 1),
        .kind = (enum ledger_kind)sqlite3_column_int(statement, 2),
        .resource = column_string(statement, 3, arena),
        .token = sqlite3_column_int64(statement, 4),
        .owner = column_string(statement, 5, arena),
        .key = column_string(statement, 6, arena),
        .version = sqlite3_column_int64(statement, 7),
        .code = column_string(statement, 8, arena),
        .reason = column_string(statement, 9, arena),
        .ttl_ms = sqlite3_column_int64(statement, 10),
        .ended_at_ms = sqlite3_column_int64(statement, 11),
        .count = sqlite3_column_int64(statement, 12),
    };
}

/* Of one block of the ledger (schema.sql), up to one beyond the page. */
static void scan_ledger_block(struct database *db, struct store_scan *scan, struct arena *arena,
                              int64_t resource, int64_t block)
{
    sqlite3_stmt *statement = db_use(db, SQL_LEDGER_OF);
    db_bind_int(db, statement, 1, resource);
    db_bind_text(db, statement, 2, scan->resource);
    db_bind_int(db, statement, 3, scan->after_number);
    db_bind_int(db, statement, 4, scan->ledger_kind);
    db_bind_int(db, statement, 5, (int64_t)(scan->limit + 1 - scan->count));
    db_bind_int(db, statement, 6, block);
    while (scan->count <= scan->limit && db_row(db, statement))
        ledger_row_read(statement, arena, &scan->ledger[scan->count++]);
    db_done(statement);
}

/* The first row that a history can have beyond `after`, and the last one that there is. */
static void ledger_bounds(struct database *db, int64_t after, int64_t *first, int64_t *last)
{
    sqlite3_stmt *bounds = db_use(db, SQL_LEDGER_BOUNDS);
    *first = 1;
    *last = 0;
    if (!db_row(db, bounds))
        return;
    *first = sqlite3_column_int64(bounds, 0);
    *last = sqlite3_column_int64(bounds, 1);
    db_done(bounds);
    *first = after >= *first ? after : *first;
}

static enum fg_status scan_ledger(struct database *db, struct store_scan *scan, struct arena *arena)
{
    int64_t first, last, resource = resource_id(db, scan->resource);
    if (resource == 0)
        return FG_RESOURCE_NOT_FOUND;
    scan->ledger = arena_alloc(arena, (scan->limit + 1) * sizeof *scan->ledger);
    ledger_bounds(db, scan->after_number, &first, &last);
    for (int64_t block = first >> LEDGER_BLOCK_BITS;
         block <= last >> LEDGER_BLOCK_BITS && scan->count <= scan->limit && db->status == FG_OK;
         block++)
        scan_ledger_block(db, scan, arena, resource, block);
    page_end(scan);
    return FG_OK;
}

static enum fg_status run_scan(struct store *store, struct store_scan *scan, struct arena *arena)
{
    switch (scan->kind) {
    case SCAN_RESOURCES:
        return scan_resources(store, scan, arena);
    case SCAN_LEASES:
        return scan_leases(&store->scan_db, scan, arena);
    case SCAN_RECORDS:
        return scan_records(&store->scan_db, scan, arena);
    case SCAN_LEDGER:
        return scan_ledger(&store->scan_db, scan, arena);
    }
    return FG_STORE_UNAVAILABLE;
}

/* One snapshot for all statements of a page. */
static void serve(struct store *store, struct store_op *op)
{
    struct database *db = &store->scan_db;
    db_clear(db);
    db_do(db, SQL_READ_BEGIN);
    enum fg_status status = run_scan(store, &op->scan, &op->arena);
    op->status = db->status != FG_OK ? db->status : status;
    db_clear(db);
    db_do(db, SQL_COMMIT);
}

/* Waits for a scan, and for the ops that were submitted before it: a renewal that was answered
 * may not have been committed yet. */
static struct store_op *take_scan(struct store *store)
{
    pthread_mutex_lock(&store->mutex);
    while (!store->scans.head && !store->stop)
        pthread_cond_wait(&store->scan_work, &store->mutex);
    struct store_op *list = op_queue_take(&store->scans);
    uint64_t wanted = list ? store->submitted_count : 0;
    while (store->completed_count < wanted) {
        store->urgent = true;
        pthread_cond_signal(&store->work);
        pthread_cond_wait(&store->committed, &store->mutex);
    }
    pthread_mutex_unlock(&store->mutex);
    return list;
}

void *scanner_main(void *arg)
{
    struct store *store = arg;
    struct store_op *list;
    while ((list = take_scan(store)) != NULL) {
        for (struct store_op *op = list; op; op = op->next)
            serve(store, op);
        store_hand_back(store, list);
    }
    return NULL;
}
