/* bare_store.h - the statements of a fenced write and of a grant on a bare SQLite connection: what
 * the reference programs of this folder have instead of storage/.
 *
 * Same tables (storage/schema.sql), same statements (storage/statements.def) in the same order as
 * storage/records.c and storage/grants.c, same PRAGMAs and rule of checkpoints as
 * storage/database.c; and nothing else: no refusals, no conditions, no invariants, no housekeeping.
 * Where the product's sequence changes, this one follows: the ratio shall say what its features
 * cost, not its SQL. Any error ends the process. One thread. */
#ifndef FG_BARE_STORE_H
#define FG_BARE_STORE_H

#include "storage/database.h"
#include "storage/fence.h"

#include <stddef.h>
#include <stdint.h>

struct bare_store {
    sqlite3 *handle;
    sqlite3_stmt *statements[SQL_COUNT];
    int64_t next_seq; /* of the ledger */
};

/* Creates <data_dir>/bare.db and its tables. */
void bare_store_open(struct bare_store *store, const char *data_dir);

void bare_store_close(struct bare_store *store);

/* A transaction around any number of the calls below; the end is durable when it returns. */
void bare_store_begin(struct bare_store *store);
void bare_store_commit(struct bare_store *store);

/* The fenced write. Returns the record's new version, 0 where the token is not live. */
int64_t bare_store_write(struct bare_store *store, const char *resource, const char *key,
                         int64_t token, const void *value, size_t value_bytes);

/* The fencing of a grant: mark, lease, ledger. Returns the resource's number, 0 where the mark had
 * passed the token. */
int64_t bare_store_grant(struct bare_store *store, const char *resource,
                         const struct lease_pair *pair, int64_t ttl_ms);

#endif
