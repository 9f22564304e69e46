/* bare_store.c - fenced writes and grants as bare SQL (bare_store.h). */
#include "tests/bench/bare_store.h"

#include "gateway/clock.h"
#include "storage/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKPOINT_FRAMES = 4000 };

extern const char embedded_schema_sql[];

static const char *const statement_texts[SQL_COUNT] = {
#define SQL(name, text) [SQL_##name] = text,
#include "storage/statements.def"
#undef SQL
};

static void fail(struct bare_store *store, const char *what)
{
    fprintf(stderr, "bare store: %s: %s\n", what, sqlite3_errmsg(store->handle));
    abort();
}

/* ---- Opening -------------------------------------------------------------------------------- */

static int checkpoint_hook(void *arg, sqlite3 *handle, const char *name, int frames)
{
    (void)arg;
    if (frames >= CHECKPOINT_FRAMES)
        sqlite3_wal_checkpoint_v2(handle, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return SQLITE_OK;
}

void bare_store_open(struct bare_store *store, const char *data_dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/bare.db", data_dir);
    *store = (struct bare_store){.next_seq = 1};
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, &store->handle, flags, NULL) != SQLITE_OK)
        fail(store, "open");
    if (sqlite3_exec(store->handle,
                     "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                     "PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;"
                     "PRAGMA cache_size = -16384; PRAGMA journal_size_limit = 67108864",
                     NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(store->handle, embedded_schema_sql, NULL, NULL, NULL) != SQLITE_OK)
        fail(store, "create");
    sqlite3_wal_hook(store->handle, checkpoint_hook, NULL);
    for (int i = 0; i < SQL_COUNT; i++) {
        if (sqlite3_prepare_v3(store->handle, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &store->statements[i], NULL) != SQLITE_OK)
            fail(store, statement_texts[i]);
    }
}

void bare_store_close(struct bare_store *store)
{
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(store->statements[i]);
    sqlite3_close(store->handle);
}

/* ---- Statements ----------------------------------------------------------------------------- */

static bool row(struct bare_store *store, sqlite3_stmt *statement)
{
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        return true;
    if (rc != SQLITE_DONE)
        fail(store, sqlite3_sql(statement));
    sqlite3_reset(statement);
    return false;
}

static void run(struct bare_store *store, sqlite3_stmt *statement)
{
    while (row(store, statement)) {
    }
}

static void run_plain(struct bare_store *store, enum sql id)
{
    run(store, store->statements[id]);
}

static void bind_text(sqlite3_stmt *statement, int at, const char *text)
{
    sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

static void bind_blob(sqlite3_stmt *statement, int at, const void *bytes, size_t count)
{
    sqlite3_bind_blob64(statement, at, bytes, count, SQLITE_STATIC);
}

void bare_store_begin(struct bare_store *store)
{
    run_plain(store, SQL_BEGIN);
}

void bare_store_commit(struct bare_store *store)
{
    run_plain(store, SQL_COMMIT);
}

/* ---- Parts of both -------------------------------------------------------------------------- */

struct fence_now {
    int64_t resource_id;
    bool live; /* the token asked for is */
};

static struct fence_now read_fence(struct bare_store *store, const char *resource, int64_t token)
{
    struct fence_now fence = {0};
    sqlite3_stmt *find = store->statements[token != 0 ? SQL_FENCE_OF : SQL_FENCE];
    bind_text(find, 1, resource);
    if (token != 0)
        sqlite3_bind_int64(find, 2, token);
    while (row(store, find)) {
        fence.resource_id = sqlite3_column_int64(find, 0);
        fence.live |= sqlite3_column_int64(find, 4) == token;
    }
    return fence;
}

static void append_ledger(struct bare_store *store, enum ledger_kind kind, int64_t resource_id,
                          int64_t token, const char *key, int64_t version, int64_t ttl_ms)
{
    sqlite3_stmt *append = store->statements[SQL_LEDGER_APPEND];
    sqlite3_bind_int64(append, 1, store->next_seq++);
    sqlite3_bind_int64(append, 2, clock_wall_ms());
    sqlite3_bind_int64(append, 3, kind);
    sqlite3_bind_int64(append, 4, resource_id);
    sqlite3_bind_int64(append, 6, token);
    bind_text(append, 8, key);
    if (version != 0)
        sqlite3_bind_int64(append, 9, version);
    else
        sqlite3_bind_null(append, 9);
    if (ttl_ms != 0)
        sqlite3_bind_int64(append, 12, ttl_ms);
    else
        sqlite3_bind_null(append, 12);
    run(store, append);
}

/* ---- The fenced write ----------------------------------------------------------------------- */

static void put_record(struct bare_store *store, int64_t resource_id, const char *key,
                       int64_t record_id, int64_t version, int64_t token, const void *value,
                       size_t value_bytes)
{
    sqlite3_stmt *put = store->statements[record_id ? SQL_RECORD_UPDATE : SQL_RECORD_INSERT];
    int at = 1;
    if (record_id) {
        sqlite3_bind_int64(put, at++, record_id);
    } else {
        sqlite3_bind_int64(put, at++, resource_id);
        bind_text(put, at++, key);
    }
    sqlite3_bind_int64(put, at++, version);
    sqlite3_bind_int64(put, at++, token);
    sqlite3_bind_int64(put, at++, clock_wall_ms());
    bind_text(put, at++, "application/json");
    bind_blob(put, at++, value, value_bytes);
    run(store, put);
}

int64_t bare_store_write(struct bare_store *store, const char *resource, const char *key,
                         int64_t token, const void *value, size_t value_bytes)
{
    struct fence_now fence = read_fence(store, resource, token);
    int64_t record_id = 0, version = 0;
    if (fence.live) {
        sqlite3_stmt *find = store->statements[SQL_RECORD_VERSION];
        sqlite3_bind_int64(find, 1, fence.resource_id);
        bind_text(find, 2, key);
        while (row(store, find)) {
            record_id = sqlite3_column_int64(find, 0);
            version = sqlite3_column_int64(find, 1);
        }
        put_record(store, fence.resource_id, key, record_id, ++version, token, value, value_bytes);
        append_ledger(store, LEDGER_WRITE, fence.resource_id, token, key, version, 0);
    }
    return version;
}

/* ---- The grant ------------------------------------------------------------------------------ */

/* A new resource, or a raise of one that is there; 0 where the mark had passed the token. */
static int64_t raise_mark(struct bare_store *store, const char *resource,
                          const struct fence_now *fence, int64_t token)
{
    if (fence->resource_id == 0) {
        sqlite3_stmt *insert = store->statements[SQL_RESOURCE_INSERT];
        bind_text(insert, 1, resource);
        sqlite3_bind_int64(insert, 2, token);
        sqlite3_bind_int64(insert, 3, 1);
        run(store, insert);
        return sqlite3_last_insert_rowid(store->handle);
    }
    sqlite3_stmt *raise = store->statements[SQL_RESOURCE_RAISE];
    sqlite3_bind_int64(raise, 1, fence->resource_id);
    sqlite3_bind_int64(raise, 2, token);
    sqlite3_bind_int64(raise, 3, 1);
    run(store, raise);
    return sqlite3_changes(store->handle) == 1 ? fence->resource_id : 0;
}

static void insert_lease(struct bare_store *store, int64_t resource_id,
                         const struct lease_pair *pair, int64_t ttl_ms)
{
    sqlite3_stmt *insert = store->statements[SQL_LEASE_INSERT];
    int64_t boot_ms = clock_boot_ms();
    sqlite3_bind_int64(insert, 1, resource_id);
    sqlite3_bind_int64(insert, 2, pair->token);
    bind_blob(insert, 3, pair->secret, LEASE_SECRET_BYTES);
    sqlite3_bind_int64(insert, 5, ttl_ms);
    sqlite3_bind_int64(insert, 6, 1);
    sqlite3_bind_int64(insert, 7, clock_wall_ms());
    sqlite3_bind_int64(insert, 8, 0);
    sqlite3_bind_int64(insert, 9, boot_ms);
    sqlite3_bind_int64(insert, 10, boot_ms + ttl_ms);
    run(store, insert);
}

int64_t bare_store_grant(struct bare_store *store, const char *resource,
                         const struct lease_pair *pair, int64_t ttl_ms)
{
    struct fence_now fence = read_fence(store, resource, 0);
    int64_t resource_id = raise_mark(store, resource, &fence, pair->token);
    if (resource_id != 0) {
        insert_lease(store, resource_id, pair, ttl_ms);
        append_ledger(store, LEDGER_GRANT, resource_id, pair->token, NULL, 0, ttl_ms);
        sqlite3_stmt *bounds = store->statements[SQL_LIVE_BOUNDS];
        sqlite3_bind_int64(bounds, 1, resource_id);
        run(store, bounds);
    }
    return resource_id;
}
