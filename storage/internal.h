/* internal.h - what the files of storage/ share: the store, its queues, its writer.
 *
 * Three threads meet here, and each field says whose it is:
 *   loop    the thread of store.h's calls; owns `loop_db`
 *   writer  owns `writer`
 *   scanner owns `scan_db`
 *   lock    under `mutex` */
#ifndef FG_STORE_INTERNAL_H
#define FG_STORE_INTERNAL_H

#include "storage/database.h"
#include "storage/markers.h"
#include "storage/store.h"

#include <pthread.h>
#include <stdatomic.h>

/* The fence of one resource, with room for its live set. */
struct fence_buffer {
    struct fence fence;
    struct lease_pair live[LIMIT_MAX];
};

/* Refusals of the current second that went into the ledger, and those that were only counted. */
enum { REFUSALS_PER_SECOND = 100, DROPPED_RESOURCES = 16 };

struct dropped_refusals {
    int64_t resource_id; /* 0: of all further resources */
    int64_t count;
};

/* As schema.sql and statements.def have it: a block of the ledger's index is 4096 rows. */
enum { LEDGER_BLOCK_BITS = 12 };

struct ledger {
    int64_t next_seq;
    int64_t first_seq;
    int64_t window_boot_ms; /* when the current second began */
    int written_in_window;
    struct dropped_refusals dropped[DROPPED_RESOURCES];
    size_t dropped_count;
};

struct writer {
    struct database db;
    int64_t base;
    struct ledger ledger;
    struct fence_buffer fence;
    const struct store_options *options;
    int64_t pruned_boot_ms; /* when pruning last ran */
    bool prune_behind;      /* it did not get to the end */
    int64_t changes_seen;   /* rows changed up to the last batch, by SQLite's count */
};

struct op_queue {
    struct store_op *head;
    struct store_op **tail;
};

struct store {
    struct store_options options; /* constant */
    char uuid[STORE_UUID_BYTES];  /* constant */
    int64_t base;                 /* constant until a restore exists */
    struct markers markers;
    pthread_t writer_thread;
    pthread_t scan_thread;

    struct writer writer;
    struct database scan_db;
    struct database loop_db;
    struct fence_buffer loop_fence;
    size_t in_flight; /* loop; and the next five: submitted, and not yet flushed */
    struct op_queue new_ops;
    struct op_queue new_scans;
    struct op_queue refused; /* too much is in flight */
    size_t new_count;
    bool new_urgent;

    pthread_mutex_t mutex;
    pthread_cond_t work;      /* to the writer: the queue, urgent or stop changed */
    pthread_cond_t committed; /* to the scanner: completed_count changed */
    pthread_cond_t scan_work; /* to the scanner */
    struct op_queue queue;    /* lock; not yet taken by the writer */
    struct op_queue scans;    /* lock */
    struct op_queue done;     /* lock */
    uint64_t submitted_count; /* lock; ops given to the writer */
    uint64_t completed_count; /* lock; ops the writer has finished */
    bool urgent;              /* lock; somebody waits for what is queued */
    bool stop;                /* lock */

    _Atomic(enum fg_status) health;
};

void op_queue_init(struct op_queue *queue);
void op_queue_push(struct op_queue *queue, struct store_op *op);

/* Takes the whole list; the queue is empty afterwards. */
struct store_op *op_queue_take(struct op_queue *queue);

/* Hands a list of finished ops to the loop and wakes it. Writer and scanner. */
void store_hand_back(struct store *store, struct store_op *list);

/* writer.c, scans.c: the threads. */
void *writer_main(void *arg);
void *scanner_main(void *arg);

/* grants.c, records.c, operators.c: one op inside its savepoint. The status is the refusal; a
 * failure of SQLite is in w->db.status. */
enum fg_status writer_grant(struct writer *w, struct store_grant *grant);
enum fg_status writer_renewal(struct writer *w, struct store_renewal *renewal);
enum fg_status writer_release(struct writer *w, struct store_release *release, struct arena *arena);
enum fg_status writer_write(struct writer *w, struct store_write *write, bool remove,
                            struct arena *arena);
enum fg_status writer_revoke(struct writer *w, struct store_revoke *revoke, struct arena *arena);
enum fg_status writer_configure(struct writer *w, struct store_configure *configure,
                                struct arena *arena);

/* ledger.c (writer) */
struct ledger_entry {
    enum ledger_kind kind;
    int64_t resource_id;
    const char *resource; /* where resource_id is 0 */
    int64_t token;
    const char *owner;
    const char *key;
    int64_t version;
    const char *code;
    const char *reason;
    int64_t ttl_ms;
    int64_t ended_at_ms;
    int64_t count;
};
void ledger_open(struct writer *w);
void ledger_append(struct writer *w, const struct ledger_entry *entry);

/* Appends a refusal, or counts it where this second has had its share. */
void ledger_refuse(struct writer *w, const struct ledger_entry *entry);

/* Whether counted refusals wait to be written whose second is over, or which have no more time. */
bool ledger_owes_dropped(const struct writer *w, bool last);
void ledger_write_dropped(struct writer *w);

/* One small step of pruning ledger rows and ended leases; sets w->prune_behind. */
void ledger_prune(struct writer *w);

/* reads.c (loop): ends the snapshot that the store_read_* calls of one turn share. */
void reads_end(struct store *store);

/* reads.c: shared by writer, loop and scanner; each on a connection of its own. */
void read_fence(struct database *db, int64_t base, const char *resource, struct fence_buffer *into);

/* The fence as a write with this token needs it, whatever the number of co-holders: of the live set
 * only the token's own pair. Returns the owner of the token's lease, also of an ended one; NULL:
 * none, or not known. */
const char *read_fence_of(struct database *db, int64_t base, const char *resource, int64_t token,
                          struct fence_buffer *into, struct arena *arena);
bool read_lease(struct database *db, int64_t resource_id, int64_t token, struct arena *arena,
                struct lease_row *row);
void read_successor(struct database *db, const struct lease_row *row, struct arena *arena,
                    struct lease_successor *successor);
void lease_row_read(sqlite3_stmt *statement, struct arena *arena, struct lease_row *row);
const char *column_string(sqlite3_stmt *statement, int at, struct arena *arena);

/* Aborts the process, inside the transaction, where an invariant does not hold. */
void store_invariant(bool holds, const char *what);

#endif
