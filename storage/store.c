/* store.c - opening and closing the store, and the queues between its threads. */
#include "storage/internal.h"

#include "gateway/clock.h"
#include "gateway/log.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Queues --------------------------------------------------------------------------------- */

void op_queue_init(struct op_queue *queue)
{
    queue->head = NULL;
    queue->tail = &queue->head;
}

void op_queue_push(struct op_queue *queue, struct store_op *op)
{
    op->next = NULL;
    *queue->tail = op;
    queue->tail = &op->next;
}

struct store_op *op_queue_take(struct op_queue *queue)
{
    struct store_op *list = queue->head;
    op_queue_init(queue);
    return list;
}

static void op_queue_append(struct op_queue *queue, struct op_queue *more)
{
    if (!more->head)
        return;
    *queue->tail = more->head;
    queue->tail = more->tail;
    op_queue_init(more);
}

void store_submit(struct store *store, struct store_op *op)
{
    assert(op->done);
    if (++store->in_flight > STORE_QUEUE_MAX) {
        op->status = FG_OVERLOADED;
        op_queue_push(&store->refused, op);
    } else if (op->kind == STORE_SCAN) {
        op_queue_push(&store->new_scans, op);
    } else {
        op_queue_push(&store->new_ops, op);
        store->new_count++;
        /* A renewal waits for company; the writer looks after it by a timer. */
        store->new_urgent |= op->kind != STORE_RENEWAL;
    }
}

/* The writer is woken where it may wait for what came; while it commits it looks again itself. */
static void give_to_writer(struct store *store)
{
    bool was_empty = !store->queue.head;
    bool was_urgent = store->urgent;
    op_queue_append(&store->queue, &store->new_ops);
    store->submitted_count += store->new_count;
    store->urgent |= store->new_urgent;
    store->new_count = 0;
    store->new_urgent = false;
    if (was_empty || store->urgent != was_urgent)
        pthread_cond_signal(&store->work);
}

void store_flush(struct store *store)
{
    reads_end(store);
    bool refused = store->refused.head != NULL;
    if (!store->new_ops.head && !store->new_scans.head && !refused)
        return;
    pthread_mutex_lock(&store->mutex);
    if (store->new_ops.head)
        give_to_writer(store);
    if (store->new_scans.head)
        pthread_cond_signal(&store->scan_work);
    op_queue_append(&store->scans, &store->new_scans);
    op_queue_append(&store->done, &store->refused);
    pthread_mutex_unlock(&store->mutex);
    if (refused)
        store->options.wake(store->options.wake_arg);
}

void store_hand_back(struct store *store, struct store_op *list)
{
    pthread_mutex_lock(&store->mutex);
    bool was_empty = !store->done.head;
    while (list) {
        struct store_op *next = list->next;
        op_queue_push(&store->done, list);
        list = next;
    }
    pthread_mutex_unlock(&store->mutex);
    if (was_empty)
        store->options.wake(store->options.wake_arg);
}

void store_collect(struct store *store)
{
    reads_end(store); /* what is read from here on is at least as new as what is answered */
    pthread_mutex_lock(&store->mutex);
    struct store_op *list = op_queue_take(&store->done);
    pthread_mutex_unlock(&store->mutex);
    while (list) {
        struct store_op *next = list->next; /* done() may free the op */
        store->in_flight--;
        list->done(list);
        list = next;
    }
}

size_t store_in_flight(const struct store *store)
{
    return store->in_flight;
}

const char *store_uuid(const struct store *store)
{
    return store->uuid;
}

enum fg_status store_health(struct store *store)
{
    return atomic_load(&store->health);
}

/* ---- Opening -------------------------------------------------------------------------------- */

static bool read_meta(struct database *db, const char *name, char *text, size_t text_bytes,
                      int64_t *number)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db->handle, "SELECT value FROM meta WHERE name = ?1", -1, &statement,
                           NULL) != SQLITE_OK)
        return false;
    sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    bool found = sqlite3_step(statement) == SQLITE_ROW;
    if (found && text)
        snprintf(text, text_bytes, "%s", (const char *)sqlite3_column_text(statement, 0));
    if (found && number)
        *number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return found;
}

/* Deadlines are on CLOCK_BOOTTIME, which starts anew with every boot: move them by as much as the
 * clock has moved against the wall clock. Within one boot that is nothing (or an NTP step). */
static bool carry_deadlines(struct database *db)
{
    int64_t then;
    int64_t now = clock_wall_ms() - clock_boot_ms();
    if (!read_meta(db, "wall_minus_boot", NULL, 0, &then))
        return false;
    int64_t moved = then - now;
    if (moved > -1000 && moved < 1000)
        return true;
    char sql[400];
    snprintf(sql, sizeof sql,
             "BEGIN IMMEDIATE;"
             "UPDATE leases SET acquired_boot_ms = acquired_boot_ms + (%lld),"
             " deadline_boot_ms = deadline_boot_ms + (%lld) WHERE state = 0;"
             "UPDATE meta SET value = %lld WHERE name = 'wall_minus_boot'; COMMIT",
             (long long)moved, (long long)moved, (long long)now);
    return sqlite3_exec(db->handle, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static enum fg_status open_databases(struct store *store, char *why, size_t why_bytes)
{
    struct markers *markers = &store->markers;
    struct database *db = &store->writer.db;
    if (!markers_read(markers, store->options.data_dir, why, why_bytes))
        return FG_STORE_UNAVAILABLE;
    enum fg_status status =
        db_open_writer(db, markers->database_path, !markers->was_here, why, why_bytes);
    if (status != FG_OK)
        return status;
    /* Looking comes before writing: what is not ours stays as it is. */
    if (!read_meta(db, "uuid", store->uuid, sizeof store->uuid, NULL) ||
        !read_meta(db, "base", NULL, 0, &store->base)) {
        snprintf(why, why_bytes, "the store is incomplete: %s", sqlite3_errmsg(db->handle));
        return FG_STORE_UNAVAILABLE;
    }
    if (!markers_agree(markers, store->uuid, why, why_bytes))
        return FG_STORE_UNAVAILABLE;
    if (!carry_deadlines(db)) {
        snprintf(why, why_bytes, "cannot write to the store: %s", sqlite3_errmsg(db->handle));
        return FG_STORE_UNAVAILABLE;
    }
    if (!db_touch(db, why, why_bytes))
        return FG_STORE_UNAVAILABLE;
    status = db_open_reader(&store->scan_db, markers->database_path, why, why_bytes);
    if (status == FG_OK)
        status = db_open_reader(&store->loop_db, markers->database_path, why, why_bytes);
    /* Last: where opening fails the log goes with the connection, and no marker may say it stays.
     */
    if (status == FG_OK && !markers_write(markers, store->uuid, why, why_bytes))
        status = FG_STORE_UNAVAILABLE;
    return status;
}

static void init_locks(struct store *store)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&store->mutex, NULL);
    pthread_cond_init(&store->work, &monotonic);
    pthread_cond_init(&store->committed, &monotonic);
    pthread_cond_init(&store->scan_work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    op_queue_init(&store->new_ops);
    op_queue_init(&store->new_scans);
    op_queue_init(&store->refused);
    op_queue_init(&store->queue);
    op_queue_init(&store->scans);
    op_queue_init(&store->done);
}

/* Signals are the loop's business: the threads start with all of them blocked. */
static bool start_threads(struct store *store)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bool started = pthread_create(&store->writer_thread, NULL, writer_main, store) == 0;
    if (started && pthread_create(&store->scan_thread, NULL, scanner_main, store) != 0) {
        started = false;
        store->stop = true;
        pthread_cond_signal(&store->work);
        pthread_join(store->writer_thread, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static void free_store(struct store *store)
{
    db_close(&store->loop_db);
    db_close(&store->scan_db);
    db_close(&store->writer.db); /* last: it checkpoints */
    pthread_mutex_destroy(&store->mutex);
    pthread_cond_destroy(&store->work);
    pthread_cond_destroy(&store->committed);
    pthread_cond_destroy(&store->scan_work);
    free(store);
}

enum fg_status store_open(struct store **out, const struct store_options *options, char *why,
                          size_t why_bytes)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        abort();
    store->options = *options;
    init_locks(store);
    enum fg_status status = open_databases(store, why, why_bytes);
    if (status == FG_OK) {
        store->writer.options = &store->options;
        store->writer.base = store->base;
        ledger_open(&store->writer);
        if (store->writer.db.status != FG_OK || !start_threads(store)) {
            snprintf(why, why_bytes, "cannot start the store's threads");
            markers_closing(&store->markers);
            status = FG_STORE_UNAVAILABLE;
        }
    }
    if (status != FG_OK) {
        free_store(store);
        return status;
    }
    *out = store;
    return FG_OK;
}

void store_close(struct store *store)
{
    store_flush(store);
    pthread_mutex_lock(&store->mutex);
    store->stop = true;
    pthread_cond_signal(&store->work);
    pthread_cond_signal(&store->scan_work);
    pthread_mutex_unlock(&store->mutex);
    pthread_join(store->scan_thread, NULL);
    pthread_join(store->writer_thread, NULL);
    store_collect(store);
    markers_closing(&store->markers);
    free_store(store);
}
