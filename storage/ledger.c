/* ledger.c - the append-only list of what happened: appending, the cap on refusals, pruning.
 *
 * Rows are numbered without gaps in commit order: the number is taken inside the transaction and
 * given back where the op is undone. Pruning takes rows from the old end only and keeps the newest,
 * so that the numbers go on. Marks and live sets never depend on the ledger.
 *
 * A client that hammers with a stale token must not fill the disk: of each second's refusals the
 * first 100 are written, the others counted, per resource for the first few, and written as one
 * refused_dropped row when the second is over. */
#include "storage/internal.h"

#include "gateway/clock.h"

#include <string.h>

enum {
    WINDOW_MS = 1000,
    PRUNE_ROWS = 250,   /* a step: about a millisecond, for which others wait */
    FORGET_LEASES = 100 /* likewise */
};

static const char *const kind_names[] = {
    [LEDGER_GRANT] = "grant",
    [LEDGER_RENEW] = "renew",
    [LEDGER_RELEASE] = "release",
    [LEDGER_EXPIRE] = "expire",
    [LEDGER_REVOKE] = "revoke",
    [LEDGER_WRITE] = "write",
    [LEDGER_DELETE] = "delete",
    [LEDGER_REFUSE] = "refuse",
    [LEDGER_REFUSED_DROPPED] = "refused_dropped",
    [LEDGER_CONFIG] = "config",
};

const char *ledger_kind_name(enum ledger_kind kind)
{
    return kind_names[kind];
}

int ledger_kind_find(const char *name)
{
    for (int kind = LEDGER_GRANT; kind <= LEDGER_CONFIG; kind++) {
        if (strcmp(kind_names[kind], name) == 0)
            return kind;
    }
    return 0;
}

/* ---- Appending ------------------------------------------------------------------------------ */

void ledger_open(struct writer *w)
{
    sqlite3_stmt *bounds = db_use(&w->db, SQL_LEDGER_BOUNDS);
    w->ledger = (struct ledger){.next_seq = 1, .first_seq = 1};
    if (!db_row(&w->db, bounds))
        return;
    int64_t last = sqlite3_column_int64(bounds, 1);
    if (last > 0) {
        w->ledger.first_seq = sqlite3_column_int64(bounds, 0);
        w->ledger.next_seq = last + 1;
    }
    db_done(bounds);
}

void ledger_append(struct writer *w, const struct ledger_entry *entry)
{
    struct database *db = &w->db;
    sqlite3_stmt *append = db_use(db, SQL_LEDGER_APPEND);
    db_bind_int(db, append, 1, w->ledger.next_seq);
    db_bind_int(db, append, 2, clock_wall_ms());
    db_bind_int(db, append, 3, entry->kind);
    db_bind_int_or_null(db, append, 4, entry->resource_id);
    db_bind_text(db, append, 5, entry->resource_id == 0 ? entry->resource : NULL);
    db_bind_int_or_null(db, append, 6, entry->token);
    db_bind_text(db, append, 7, entry->owner);
    db_bind_text(db, append, 8, entry->key);
    db_bind_int_or_null(db, append, 9, entry->version);
    db_bind_text(db, append, 10, entry->code);
    db_bind_text(db, append, 11, entry->reason);
    db_bind_int_or_null(db, append, 12, entry->ttl_ms);
    db_bind_int_or_null(db, append, 13, entry->ended_at_ms);
    db_bind_int_or_null(db, append, 14, entry->count);
    db_run(db, append);
    if (db->status == FG_OK)
        w->ledger.next_seq++;
}

/* ---- Refusals ------------------------------------------------------------------------------- */

static bool window_over(const struct ledger *ledger)
{
    return clock_boot_ms() - ledger->window_boot_ms >= WINDOW_MS;
}

bool ledger_owes_dropped(const struct writer *w, bool last)
{
    return w->ledger.dropped_count > 0 && (last || window_over(&w->ledger));
}

void ledger_write_dropped(struct writer *w)
{
    struct ledger *ledger = &w->ledger;
    for (size_t i = 0; i < ledger->dropped_count; i++)
        ledger_append(w, &(struct ledger_entry){.kind = LEDGER_REFUSED_DROPPED,
                                                .resource_id = ledger->dropped[i].resource_id,
                                                .count = ledger->dropped[i].count});
    ledger->dropped_count = 0;
}

/* Counts a refusal that is not written. The last slot is shared by all resources beyond the first
 * few; its row names none. */
static void count_dropped(struct ledger *ledger, int64_t resource_id)
{
    for (size_t i = 0; i < ledger->dropped_count; i++) {
        if (ledger->dropped[i].resource_id == resource_id) {
            ledger->dropped[i].count++;
            return;
        }
    }
    if (ledger->dropped_count == DROPPED_RESOURCES) {
        ledger->dropped[DROPPED_RESOURCES - 1].count++;
        return;
    }
    if (ledger->dropped_count == DROPPED_RESOURCES - 1)
        resource_id = 0;
    ledger->dropped[ledger->dropped_count++] = (struct dropped_refusals){resource_id, 1};
}

void ledger_refuse(struct writer *w, const struct ledger_entry *entry)
{
    struct ledger *ledger = &w->ledger;
    if (window_over(ledger)) {
        ledger_write_dropped(w);
        ledger->window_boot_ms = clock_boot_ms();
        ledger->written_in_window = 0;
    }
    if (ledger->written_in_window < REFUSALS_PER_SECOND) {
        ledger->written_in_window++;
        ledger_append(w, entry);
    } else {
        count_dropped(ledger, entry->resource_id);
    }
}

/* ---- Pruning -------------------------------------------------------------------------------- */

/* The first row that has to stay: for the number of rows, and for their age. */
static int64_t first_to_keep(struct writer *w)
{
    struct ledger *ledger = &w->ledger;
    int64_t keep = ledger->next_seq - w->options->ledger_max_rows;
    sqlite3_stmt *aged = db_use(&w->db, SQL_LEDGER_AGED);
    db_bind_int(&w->db, aged, 1, clock_wall_ms() - w->options->ledger_max_age_ms);
    db_bind_int(&w->db, aged, 2, PRUNE_ROWS);
    if (db_row(&w->db, aged)) {
        int64_t last_aged = sqlite3_column_int64(aged, 0);
        if (last_aged + 1 > keep)
            keep = last_aged + 1;
        db_done(aged);
    }
    int64_t newest = ledger->next_seq - 1;
    return keep < newest ? keep : newest;
}

static void prune_rows(struct writer *w)
{
    struct ledger *ledger = &w->ledger;
    int64_t keep = first_to_keep(w);
    if (keep <= ledger->first_seq)
        return;
    w->prune_behind = keep - ledger->first_seq >= PRUNE_ROWS;
    if (w->prune_behind)
        keep = ledger->first_seq + PRUNE_ROWS;
    sqlite3_stmt *prune = db_use(&w->db, SQL_LEDGER_PRUNE);
    db_bind_int(&w->db, prune, 1, keep);
    db_run(&w->db, prune);
    if (w->db.status == FG_OK)
        ledger->first_seq = keep;
}

static void forget_leases(struct writer *w)
{
    sqlite3_stmt *forget = db_use(&w->db, SQL_LEASES_FORGET);
    db_bind_int(&w->db, forget, 1, clock_wall_ms() - w->options->lease_memory_ms);
    db_bind_int(&w->db, forget, 2, FORGET_LEASES);
    db_run(&w->db, forget);
    if (sqlite3_changes(w->db.handle) >= FORGET_LEASES)
        w->prune_behind = true;
}

void ledger_prune(struct writer *w)
{
    w->prune_behind = false;
    prune_rows(w);
    if (w->db.status == FG_OK)
        forget_leases(w);
}
