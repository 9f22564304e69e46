/* database.h - one SQLite connection with its prepared statements (inside storage/ only).
 *
 * Errors are sticky: the first failure is kept in `status`, later calls do nothing, and the caller
 * looks once, at the end of its work. A connection belongs to one thread. */
#ifndef FG_DATABASE_H
#define FG_DATABASE_H

#include "gateway/errors.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum sql {
#define SQL(name, text) SQL_##name,
#include "storage/statements.def"
#undef SQL
    SQL_COUNT
};

struct database {
    sqlite3 *handle;
    sqlite3_stmt *statements[SQL_COUNT];
    bool writes;                  /* the writer's: an I/O error ends the process */
    ino_t log_inode;              /* the write-ahead log's file; 0: not looked at yet */
    bool checkpoint_failing;      /* said once */
    enum fg_status logged_status; /* the failure told of last, and when */
    int64_t logged_boot_ms;
    enum fg_status status; /* the first failure since db_clear() */
};

/* Opens the writing connection: creates the tables in an empty file if `may_create`, checks that it
 * is ours and undamaged, prepares. FG_STORE_UNAVAILABLE and one line in `why`. */
enum fg_status db_open_writer(struct database *db, const char *path, bool may_create, char *why,
                              size_t why_bytes);

/* Opens a read-only connection that never checkpoints. The writer is open already. */
enum fg_status db_open_reader(struct database *db, const char *path, char *why, size_t why_bytes);

/* Closes a connection; one that was never opened is fine. */
void db_close(struct database *db);

/* Commits something, so that the write-ahead log exists, and remembers it. False: see `why`. */
bool db_touch(struct database *db, char *why, size_t why_bytes);

/* Inside a transaction: writes something that nobody reads, to see whether writing works. */
void db_probe(struct database *db);

/* Ends the process (exit 74) where the database or its log is no longer at its path: what would be
 * written from now on nobody would find again. */
void db_check_in_place(struct database *db);

/* Forgets the last failure. */
void db_clear(struct database *db);

/* The statement, ready to be bound. It must be reset (by db_row() at its end, db_done(), db_run())
 * before the transaction ends. */
sqlite3_stmt *db_use(struct database *db, enum sql id);

/* Steps: true where there is a row. At the end or on failure the statement is reset, false. */
bool db_row(struct database *db, sqlite3_stmt *statement);

/* Resets a statement that has been read far enough. */
void db_done(sqlite3_stmt *statement);

/* Runs a statement to its end. */
void db_run(struct database *db, sqlite3_stmt *statement);

/* Runs a statement without parameters. */
void db_do(struct database *db, enum sql id);

/* Notes a result code of SQLite as the failure. On the writer an I/O error or a damaged file ends
 * the process (exit 74). */
void db_fail(struct database *db, int rc);

/* Binding: position from 1. Text and blobs are borrowed until the statement is bound anew. */
void db_bind_int(struct database *db, sqlite3_stmt *statement, int at, int64_t value);
void db_bind_int_or_null(struct database *db, sqlite3_stmt *statement, int at, int64_t value);
void db_bind_text(struct database *db, sqlite3_stmt *statement, int at, const char *value);
void db_bind_blob(struct database *db, sqlite3_stmt *statement, int at, const void *value,
                  size_t bytes);

#endif
