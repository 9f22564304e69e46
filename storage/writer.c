/* writer.c - the thread that makes every change: group commit.
 *
 * It takes all that is queued, applies op after op, commits once, and hands the ops back. While it
 * commits, the next batch gathers; so the batch grows with the load and one fdatasync is shared by
 * all who wait for it, without a timer that would delay a lone op.
 *
 * What happens to an op:
 *   - a refusal (stale token, other version) is an outcome and is kept: it has a ledger row;
 *   - an error of SQLite is the op's answer, and nothing of the op stays; the neighbours go on.
 * That is rare, so the ops run without savepoints, each of which would copy every page that its op
 *     touches (a quarter of the writer's time). Where one fails the transaction is rolled back and
 *     the others run once more, now each in a savepoint of its own;
 *   - where SQLite has rolled the whole transaction back (a full disk does that), nothing more of
 *     the batch is run and every op of it, also those before, gets the error;
 *   - where COMMIT fails, every op gets the error; an I/O error ends the process (database.c).
 *
 * Renewals do not wake the thread: they ride on the next commit, or are committed alone after
 * RENEWAL_DELAY_MS, or when a scan needs to see them (`urgent`). */
#include "storage/internal.h"

#include "gateway/clock.h"
#include "gateway/faults.h"
#include "gateway/log.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum {
    RENEWAL_DELAY_MS = 50,
    TICK_MS = 1000, /* housekeeping while nothing happens */
    PRUNE_INTERVAL_MS = 1000,
    PRUNE_BEHIND_MS = 4 /* between two steps while there is more to prune */
};

void store_invariant(bool holds, const char *what)
{
    if (!holds) {
        log_error("invariant violated: stopping", LOG_STR("invariant", what));
        abort();
    }
}

/* ---- One batch ------------------------------------------------------------------------------ */

static enum fg_status apply(struct writer *w, struct store_op *op)
{
    switch (op->kind) {
    case STORE_GRANT:
        return writer_grant(w, &op->grant);
    case STORE_RENEWAL:
        return writer_renewal(w, &op->renewal);
    case STORE_RELEASE:
        return writer_release(w, &op->release, &op->arena);
    case STORE_REVOKE:
        return writer_revoke(w, &op->revoke, &op->arena);
    case STORE_CONFIGURE:
        return writer_configure(w, &op->configure, &op->arena);
    default: /* put, delete; scans go to their own thread */
        return writer_write(w, &op->write, op->kind == STORE_DELETE, &op->arena);
    }
}

/* Applies one op; what went wrong is in w->db.status and the op's. */
static void run_op(struct writer *w, struct store_op *op)
{
    db_clear(&w->db);
    if (FAULT(in_batch))
        db_fail(&w->db, SQLITE_ERROR);
    if (w->db.status == FG_OK)
        op->status = apply(w, op);
    if (w->db.status != FG_OK)
        op->status = w->db.status;
}

/* Applies one op inside a savepoint, so that it can be undone alone. False: the transaction is
 * gone. */
static bool run_op_apart(struct writer *w, struct store_op *op)
{
    struct ledger ledger_before = w->ledger;
    db_clear(&w->db);
    db_do(&w->db, SQL_OP_BEGIN);
    op->status = w->db.status;
    if (op->status != FG_OK) /* nothing has begun, nothing is to be undone */
        return !sqlite3_get_autocommit(w->db.handle);
    run_op(w, op);
    if (w->db.status == FG_OK)
        db_do(&w->db, SQL_OP_KEEP);
    if (w->db.status == FG_OK)
        return true;
    op->status = w->db.status;
    w->ledger = ledger_before;
    if (sqlite3_get_autocommit(w->db.handle))
        return false;
    db_clear(&w->db);
    db_do(&w->db, SQL_OP_UNDO);
    db_do(&w->db, SQL_OP_KEEP);
    return w->db.status == FG_OK;
}

static void fail_all(struct store_op *list, enum fg_status status)
{
    for (struct store_op *op = list; op; op = op->next)
        op->status = status;
}

static bool transaction_begin(struct writer *w)
{
    db_clear(&w->db);
    db_do(&w->db, PLANTED(deferred_begin) ? SQL_READ_BEGIN : SQL_BEGIN);
    return w->db.status == FG_OK;
}

/* Commits; on failure rolls back what is left and returns why. */
static enum fg_status transaction_end(struct writer *w, enum fg_status status)
{
    if (status == FG_OK && FAULT(before_commit))
        status = FG_STORAGE_FULL;
    if (status == FG_OK) {
        db_clear(&w->db);
        db_do(&w->db, SQL_COMMIT);
        status = PLANTED(ignore_failed_commit) ? FG_OK : w->db.status;
        if (status == FG_OK && FAULT(after_commit))
            db_fail(&w->db, SQLITE_IOERR); /* its outcome is unknown: does not return */
    }
    if (!sqlite3_get_autocommit(w->db.handle)) {
        db_clear(&w->db);
        db_do(&w->db, SQL_ROLLBACK);
        if (!sqlite3_get_autocommit(w->db.handle)) {
            log_error("a transaction can be neither committed nor rolled back: stopping");
            abort();
        }
    }
    return status;
}

/* Runs the ops one behind the other; returns the first one that SQLite failed, NULL where all went
 * well. */
static struct store_op *run_together(struct writer *w, struct store_op *list)
{
    for (struct store_op *op = list; op; op = op->next) {
        run_op(w, op);
        if (w->db.status != FG_OK)
            return op;
    }
    return NULL;
}

/* Runs all but `failed`, each undone alone where SQLite fails it. */
static enum fg_status run_apart(struct writer *w, struct store_op *list,
                                const struct store_op *failed)
{
    if (!transaction_begin(w))
        return w->db.status;
    for (struct store_op *op = list; op; op = op->next) {
        if (op != failed && !run_op_apart(w, op))
            return op->status;
    }
    return FG_OK;
}

static enum fg_status run_batch(struct writer *w, struct store_op *list)
{
    struct ledger ledger_before = w->ledger;
    enum fg_status status = FG_OK;
    if (!transaction_begin(w))
        status = w->db.status;
    struct store_op *failed = status == FG_OK ? run_together(w, list) : NULL;
    if (failed) {
        bool gone = sqlite3_get_autocommit(w->db.handle) != 0;
        status = transaction_end(w, failed->status);
        w->ledger = ledger_before;
        if (!gone)
            status = run_apart(w, list, failed);
    }
    status = transaction_end(w, status);
    if (status != FG_OK) {
        w->ledger = ledger_before;
        fail_all(list, status);
    }
    return status;
}

/* ---- Housekeeping --------------------------------------------------------------------------- */

static bool prune_due(const struct writer *w)
{
    int64_t interval = w->prune_behind ? PRUNE_BEHIND_MS : PRUNE_INTERVAL_MS;
    return clock_boot_ms() - w->pruned_boot_ms >= interval;
}

/* A batch that wrote nothing says nothing about a disk that was full a moment ago. */
static void note_health(struct store *store, enum fg_status status)
{
    int64_t changes = sqlite3_total_changes64(store->writer.db.handle);
    if (status != FG_OK || changes != store->writer.changes_seen)
        atomic_store(&store->health, status);
    store->writer.changes_seen = changes;
}

/* Pruning, counted refusals, and while the store fails a probe of whether it works again. Each in
 * its own small transaction, so that it never holds an answer up for long. */
static void keep_house(struct store *store, bool last)
{
    struct writer *w = &store->writer;
    bool failing = atomic_load(&store->health) != FG_OK;
    bool owes = ledger_owes_dropped(w, last);
    if (!failing && !prune_due(w) && !owes)
        return;
    struct ledger ledger_before = w->ledger;
    db_check_in_place(&w->db);
    if (transaction_begin(w)) {
        if (failing)
            db_probe(&w->db);
        if (owes)
            ledger_write_dropped(w);
        ledger_prune(w);
    }
    enum fg_status status = transaction_end(w, w->db.status);
    w->pruned_boot_ms = clock_boot_ms();
    if (status != FG_OK)
        w->ledger = ledger_before;
    note_health(store, status);
}

/* ---- The thread ----------------------------------------------------------------------------- */

static void wait_for_work(struct store *store, int64_t delay_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += delay_ms / 1000;
    until.tv_nsec += (delay_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&store->work, &store->mutex, &until);
}

/* Waits for something to do, then takes the whole queue; NULL: only housekeeping is due. */
static struct store_op *take_batch(struct store *store, bool *stop)
{
    struct writer *w = &store->writer;
    int64_t tick_ms = w->prune_behind ? PRUNE_BEHIND_MS : TICK_MS;
    pthread_mutex_lock(&store->mutex);
    if (!store->urgent && !store->stop) {
        if (!store->queue.head)
            wait_for_work(store, tick_ms);
        if (!store->urgent && !store->stop && store->queue.head)
            wait_for_work(store, RENEWAL_DELAY_MS);
    }
    struct store_op *list = op_queue_take(&store->queue);
    store->urgent = false;
    *stop = store->stop && !list;
    pthread_mutex_unlock(&store->mutex);
    return list;
}

static void finish_batch(struct store *store, struct store_op *list)
{
    uint64_t count = 0;
    for (struct store_op *op = list; op; op = op->next)
        count++;
    pthread_mutex_lock(&store->mutex);
    store->completed_count += count;
    pthread_cond_signal(&store->committed);
    pthread_mutex_unlock(&store->mutex);
    store_hand_back(store, list);
}

void *writer_main(void *arg)
{
    struct store *store = arg;
    bool stop = false;
    while (!stop) {
        struct store_op *list = take_batch(store, &stop);
        if (list) {
            note_health(store, run_batch(&store->writer, list));
            finish_batch(store, list);
        }
        keep_house(store, stop);
    }
    return NULL;
}
