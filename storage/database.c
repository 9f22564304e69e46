/* database.c - opening, checking and migrating the file; statements; what an error means.
 *
 * WAL with synchronous=FULL: one fdatasync per commit, and what was committed survives a power cut.
 * Only the writer's connection commits and checkpoints: SQLite before 3.51.3 can lose commits when
 * two connections checkpoint. busy_timeout is set before journal_mode, so that opening waits out
 * another process' recovery instead of failing. */
#include "storage/database.h"

#include "gateway/clock.h"
#include "gateway/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

enum {
    STORE_APPLICATION_ID = 0x46474154, /* "FGAT", in the file's header */
    STORE_SCHEMA_VERSION = 2,
    QUICK_CHECK_BYTES = 32 * 1024 * 1024,
    CHECKPOINT_FRAMES = 4000, /* pages in the write-ahead log: 16 MB */
    LOG_INTERVAL_MS = 1000    /* between two lines about the same failure */
};

extern const char embedded_schema_sql[];

static const char *const statement_texts[SQL_COUNT] = {
#define SQL(name, text) [SQL_##name] = text,
#include "storage/statements.def"
#undef SQL
};

/* ---- Errors --------------------------------------------------------------------------------- */

static enum fg_status refuse(struct database *db, char *why, size_t why_bytes, const char *what)
{
    snprintf(why, why_bytes, "%s: %s", what, sqlite3_errmsg(db->handle));
    return FG_STORE_UNAVAILABLE;
}

static void stop_process(struct database *db, int rc)
{
    log_error("the store failed: stopping, SQLite recovers at the next start",
              LOG_STR("error", sqlite3_errmsg(db->handle)), LOG_INT("sqlite_code", rc));
    _exit(EX_IOERR);
}

static bool is_io_error(int rc)
{
    int primary = rc & 0xff;
    return primary == SQLITE_IOERR || primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB;
}

/* A checkpoint that failed loses nothing: its pages stay in the log. But a disk that cannot be
 * written to is not one to go on with; a full one may get room again. */
static void note_checkpoint_failure(struct database *db, int rc)
{
    if (is_io_error(rc))
        stop_process(db, rc);
    if (!db->checkpoint_failing)
        log_warn("the write-ahead log cannot be moved into the database, and grows",
                 LOG_STR("error", sqlite3_errmsg(db->handle)));
    db->checkpoint_failing = true;
}

/* A full disk fails thousands of ops a second, and is told of once a second. */
static void log_failure(struct database *db, enum fg_status status)
{
    int64_t now_ms = clock_boot_ms();
    if (status == db->logged_status && now_ms - db->logged_boot_ms < LOG_INTERVAL_MS)
        return;
    db->logged_status = status;
    db->logged_boot_ms = now_ms;
    log_warn("store error", LOG_STR("error", sqlite3_errmsg(db->handle)),
             LOG_INT("sqlite_code", sqlite3_extended_errcode(db->handle)));
}

void db_fail(struct database *db, int rc)
{
    int primary = rc & 0xff;
    if (primary ==
        SQLITE_CONSTRAINT) { /* a trigger or CHECK: an invariant would have been broken */
        log_error("invariant violated: stopping", LOG_STR("error", sqlite3_errmsg(db->handle)));
        abort();
    }
    if (db->writes && is_io_error(rc))
        stop_process(db, sqlite3_extended_errcode(db->handle));
    enum fg_status status = primary == SQLITE_FULL ? FG_STORAGE_FULL : FG_STORE_UNAVAILABLE;
    if (db->status == FG_OK) {
        db->status = status;
        log_failure(db, status);
    }
}

/* The inode of the write-ahead log; 0: there is none. */
static ino_t log_inode(struct database *db)
{
    struct stat status;
    const char *path = sqlite3_filename_wal(sqlite3_db_filename(db->handle, "main"));
    return path && stat(path, &status) == 0 ? status.st_ino : 0;
}

bool db_touch(struct database *db, char *why, size_t why_bytes)
{
    db_do(db, SQL_BEGIN);
    db_probe(db);
    db_do(db, SQL_COMMIT);
    db->log_inode = log_inode(db);
    if (db->status == FG_OK && db->log_inode != 0)
        return true;
    refuse(db, why, why_bytes, "cannot write to the database");
    return false;
}

void db_probe(struct database *db)
{
    sqlite3_stmt *probe = db_use(db, SQL_PROBE);
    db_bind_int(db, probe, 1, clock_wall_ms());
    db_run(db, probe);
}

void db_check_in_place(struct database *db)
{
    int moved = 0;
    sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    if (moved || log_inode(db) != db->log_inode) {
        log_error("the store's database or its log was removed or replaced under us: stopping");
        _exit(EX_IOERR);
    }
}

void db_clear(struct database *db)
{
    db->status = FG_OK;
}

/* ---- Statements ----------------------------------------------------------------------------- */

sqlite3_stmt *db_use(struct database *db, enum sql id)
{
    return db->statements[id];
}

bool db_row(struct database *db, sqlite3_stmt *statement)
{
    if (db->status != FG_OK)
        return false;
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        return true;
    if (rc != SQLITE_DONE)
        db_fail(db, rc);
    sqlite3_reset(statement);
    return false;
}

void db_done(sqlite3_stmt *statement)
{
    sqlite3_reset(statement);
}

void db_run(struct database *db, sqlite3_stmt *statement)
{
    while (db_row(db, statement)) {
    }
}

void db_do(struct database *db, enum sql id)
{
    db_run(db, db_use(db, id));
}

static void check_bind(struct database *db, int rc)
{
    if (rc != SQLITE_OK)
        db_fail(db, rc);
}

void db_bind_int(struct database *db, sqlite3_stmt *statement, int at, int64_t value)
{
    check_bind(db, sqlite3_bind_int64(statement, at, value));
}

void db_bind_int_or_null(struct database *db, sqlite3_stmt *statement, int at, int64_t value)
{
    check_bind(db, value != 0 ? sqlite3_bind_int64(statement, at, value)
                              : sqlite3_bind_null(statement, at));
}

void db_bind_text(struct database *db, sqlite3_stmt *statement, int at, const char *value)
{
    check_bind(db, sqlite3_bind_text(statement, at, value, -1, SQLITE_STATIC));
}

void db_bind_blob(struct database *db, sqlite3_stmt *statement, int at, const void *value,
                  size_t bytes)
{
    /* An empty value is an empty blob; NULL would mean that the record is deleted. */
    check_bind(db, bytes > 0 ? sqlite3_bind_blob64(statement, at, value, bytes, SQLITE_STATIC)
                             : sqlite3_bind_zeroblob(statement, at, 0));
}

/* ---- Opening -------------------------------------------------------------------------------- */

static int64_t pragma(struct database *db, const char *sql)
{
    sqlite3_stmt *statement;
    int64_t value = -1;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &statement, NULL) != SQLITE_OK)
        return -1;
    if (sqlite3_step(statement) == SQLITE_ROW)
        value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return value;
}

static bool execute(struct database *db, const char *sql)
{
    return sqlite3_exec(db->handle, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static bool prepare_all(struct database *db)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        if (sqlite3_prepare_v3(db->handle, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &db->statements[i], NULL) != SQLITE_OK)
            return false;
    }
    return true;
}

/* A random (version 4) UUID. */
static void uuid_text(char out[37])
{
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        abort();
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(out, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
             b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
}

/* Creates the tables in one transaction: a crash leaves an empty file, which is created anew. */
static bool create(struct database *db)
{
    char uuid[37];
    uuid_text(uuid);
    char *fill = sqlite3_mprintf("INSERT INTO meta VALUES ('uuid', %Q), ('base', 0),"
                                 " ('wall_minus_boot', %lld);"
                                 "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
                                 uuid, (long long)(clock_wall_ms() - clock_boot_ms()),
                                 STORE_APPLICATION_ID, STORE_SCHEMA_VERSION);
    bool created = fill && execute(db, "BEGIN IMMEDIATE") && execute(db, embedded_schema_sql) &&
                   execute(db, fill);
    sqlite3_free(fill);
    if (!created && !sqlite3_get_autocommit(db->handle))
        execute(db, "ROLLBACK");
    return created;
}

/* Reads the whole file where that takes no time; a large one is checked as it is used. */
static bool undamaged(struct database *db, char *why, size_t why_bytes)
{
    sqlite3_stmt *check;
    if (pragma(db, "PRAGMA page_count") * pragma(db, "PRAGMA page_size") > QUICK_CHECK_BYTES)
        return true;
    if (sqlite3_prepare_v2(db->handle, "PRAGMA quick_check(1)", -1, &check, NULL) != SQLITE_OK ||
        sqlite3_step(check) != SQLITE_ROW) {
        refuse(db, why, why_bytes, "the database is damaged");
        sqlite3_finalize(check);
        return false;
    }
    const char *verdict = (const char *)sqlite3_column_text(check, 0);
    bool ok = verdict && strcmp(verdict, "ok") == 0;
    if (!ok) {
        snprintf(why, why_bytes, "the database is damaged: %s", verdict ? verdict : "unreadable");
        for (char *at = why; *at; at++)
            *at = *at == '\n' ? ' ' : *at; /* the check's words come in several lines */
    }
    sqlite3_finalize(check);
    return ok;
}

/* One step for each version, each in a transaction of its own: what a crash interrupts is done
 * again at the next start. */
static const char *const migrations[STORE_SCHEMA_VERSION] = {
    /* The index by resource becomes one by block and resource (schema.sql). */
    [1] = "DROP INDEX ledger_by_resource;"
          "CREATE INDEX ledger_by_block ON ledger (seq >> 12, resource_id)"
          " WHERE resource_id IS NOT NULL",
};

static bool migrate(struct database *db)
{
    int64_t version = pragma(db, "PRAGMA user_version");
    if (version < 1)
        return false;
    for (; version < STORE_SCHEMA_VERSION; version++) {
        char *step = sqlite3_mprintf("BEGIN IMMEDIATE; %s; PRAGMA user_version = %lld; COMMIT",
                                     migrations[version], (long long)version + 1);
        bool done = step && execute(db, step);
        sqlite3_free(step);
        if (!done) {
            if (!sqlite3_get_autocommit(db->handle))
                execute(db, "ROLLBACK");
            return false;
        }
        log_info("the store was migrated", LOG_INT("from_version", version),
                 LOG_INT("to_version", version + 1));
    }
    return true;
}

/* Is it empty, ours, or somebody else's? Never re-creates: that would set every mark to 0. */
static enum fg_status check_file(struct database *db, bool may_create, char *why, size_t why_bytes)
{
    int64_t tables = pragma(db, "SELECT count(*) FROM sqlite_schema");
    int64_t application = pragma(db, "PRAGMA application_id");
    int64_t version = pragma(db, "PRAGMA user_version");
    if (tables < 0)
        return refuse(db, why, why_bytes, "cannot read the database");
    if (tables == 0 && application == 0 && version == 0 && !may_create) {
        snprintf(why, why_bytes, "the database is empty or gone, but there has been one here");
        return FG_STORE_UNAVAILABLE;
    }
    if (tables == 0 && application == 0 && version == 0)
        return create(db) ? FG_OK : refuse(db, why, why_bytes, "cannot create the database");
    if (application != STORE_APPLICATION_ID) {
        snprintf(why, why_bytes, "the database is not a fencegate store");
        return FG_STORE_UNAVAILABLE;
    }
    if (version < 1 || version > STORE_SCHEMA_VERSION) {
        snprintf(why, why_bytes, "the store has schema version %lld, this program knows %d",
                 (long long)version, STORE_SCHEMA_VERSION);
        return FG_STORE_UNAVAILABLE;
    }
    return undamaged(db, why, why_bytes) ? FG_OK : FG_STORE_UNAVAILABLE;
}

/* After a commit: moves the log's pages into the database when there are enough. SQLite's own hook
 * does the same and keeps quiet about errors; a failing disk would then show only when the log has
 * filled it. */
static int checkpoint_hook(void *arg, sqlite3 *handle, const char *name, int frames)
{
    struct database *db = arg;
    if (frames < CHECKPOINT_FRAMES)
        return SQLITE_OK;
    int rc = sqlite3_wal_checkpoint_v2(handle, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY)
        note_checkpoint_failure(db, rc);
    return SQLITE_OK; /* the commit itself is durable */
}

enum fg_status db_open_writer(struct database *db, const char *path, bool may_create, char *why,
                              size_t why_bytes)
{
    *db = (struct database){.writes = true};
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOFOLLOW;
    if (sqlite3_open_v2(path, &db->handle, flags, NULL) != SQLITE_OK)
        return refuse(db, why, why_bytes, "cannot open the database");
    sqlite3_busy_timeout(db->handle, 5000);
    /* Before anything is written: a file that is not ours stays as it is. */
    enum fg_status status = check_file(db, may_create, why, why_bytes);
    if (status != FG_OK)
        return status;
    if (!execute(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                     "PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;"
                     "PRAGMA cache_size = -16384; PRAGMA journal_size_limit = 67108864"))
        return refuse(db, why, why_bytes, "cannot set the database up");
    if (!migrate(db))
        return refuse(db, why, why_bytes, "cannot migrate the database");
    sqlite3_wal_hook(db->handle, checkpoint_hook, db);
    if (!prepare_all(db))
        return refuse(db, why, why_bytes, "the store's tables are not as expected");
    return FG_OK;
}

enum fg_status db_open_reader(struct database *db, const char *path, char *why, size_t why_bytes)
{
    *db = (struct database){.writes = false};
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    if (sqlite3_open_v2(path, &db->handle, flags, NULL) != SQLITE_OK)
        return refuse(db, why, why_bytes, "cannot open the database for reading");
    sqlite3_busy_timeout(db->handle, 5000);
    if (!execute(db, "PRAGMA query_only = ON; PRAGMA wal_autocheckpoint = 0;"
                     "PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;"
                     "PRAGMA cache_size = -4096") ||
        !prepare_all(db))
        return refuse(db, why, why_bytes, "cannot read the store's tables");
    return FG_OK;
}

void db_close(struct database *db)
{
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(db->statements[i]);
    sqlite3_close(db->handle);
    *db = (struct database){0};
}
