/* store.h - the only door to SQLite: marks, leases, records and the ledger of one data directory.
 *
 * One writer thread does every transaction. A caller fills a struct store_op, submits it, and gets
 * it back through store_collect() when its COMMIT is durable (or when it was refused or failed):
 *
 *     loop thread                          writer thread
 *     store_submit(op) ...
 *     store_flush()    ── queue, wake ───► BEGIN IMMEDIATE
 *                                            op after op
 *     store_collect()  ◄─ done list, wake ─ COMMIT (synchronous=FULL)
 *
 * Everything that arrived while one COMMIT ran shares the next (group commit). An op that fails
 * leaves nothing behind and does not touch its neighbours. Single rows are read directly by the
 * store_read_* calls, lists by a second thread (store_scan). Readers see only what is durable.
 *
 * What the store guarantees (asserted inside the transaction; the numbers are used all over):
 *   I1  a mark never falls
 *   I2  each value of a mark was installed by at most one lease
 *   I3  a grant that was answered was durable before
 *   I4  a write is accepted only at a commit where its (token, lease) pair is live; one without a
 *       token only where the resource is unfenced and nobody is live
 *   I5  a grant answered before another was asked for has the smaller token
 *   I6  after an answered release, revoke or replacement no write of that token is accepted
 *   I7  what was acknowledged survives kill -9 and power loss (WAL, synchronous=FULL)
 *   I8  a grant leaves at most `limit` pairs live
 *
 * After an I/O error, or where the outcome of a COMMIT is unknown, the process ends at once (exit
 * 74): memory and disk may differ then, and SQLite's recovery at the next start decides.
 *
 * Unless a call says otherwise: loop thread only. */
#ifndef FG_STORE_H
#define FG_STORE_H

#include "gateway/errors.h"
#include "storage/arena.h"
#include "storage/fence.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;

enum {
    STORE_UUID_BYTES = 37,   /* 36 characters and the NUL */
    STORE_QUEUE_MAX = 65536, /* ops submitted and not yet collected; beyond: FG_OVERLOADED */
    STORE_PAGE_MAX = 1000    /* rows of one scan */
};

enum lease_state {
    LEASE_LIVE = 0, /* held or expired: only Redis knows which */
    LEASE_RELEASED = 1,
    LEASE_SUPERSEDED = 2,
    LEASE_REVOKED = 3,
};

enum ledger_kind {
    LEDGER_GRANT = 1,
    LEDGER_RENEW,
    LEDGER_RELEASE,
    LEDGER_EXPIRE,
    LEDGER_REVOKE,
    LEDGER_WRITE,
    LEDGER_DELETE,
    LEDGER_REFUSE,
    LEDGER_REFUSED_DROPPED,
    LEDGER_CONFIG,
};

/* A lease as the store remembers it. Strings live in the arena given to the call that filled it. */
struct lease_row {
    struct lease_key key;
    const char *resource;
    const char *owner; /* NULL: none */
    int64_t ttl_ms;
    int limit;
    enum lease_state state;
    int64_t acquired_at_ms;   /* wall clock */
    int64_t acquired_boot_ms; /* our own clock, before Redis was asked */
    int64_t waited_ms;
    int64_t deadline_boot_ms; /* when its TTL passes by our own clock */
    int64_t ended_at_ms;      /* wall clock; 0 while live */
    int64_t held_ms;          /* from grant to end; released ones only */
    int64_t remaining_ms;     /* left of its TTL when released; 0: it had run out */
    const char *reason;       /* of a revocation, or why the gateway ended it; NULL: none */
    int64_t superseded_by;    /* token that replaced it; 0: none */
};

/* Who replaced a lease, for refusals. token 0: nobody, or no longer known. */
struct lease_successor {
    int64_t token;
    const char *owner;
    int64_t at_ms;
};

struct resource_row {
    int64_t id;
    const char *name;
    int64_t mark;
    int limit; /* 0: not fixed */
    bool fenced;
    struct lease_row *live; /* the live set */
    size_t live_count;
};

struct record_row {
    const char *key;
    int64_t version;
    int64_t token; /* written with; 0: none */
    int64_t updated_at_ms;
    const char *content_type;
    const void *value; /* NULL in lists */
    size_t value_bytes;
};

struct ledger_row {
    int64_t seq;
    int64_t at_ms;
    enum ledger_kind kind;
    const char *resource; /* NULL: none */
    int64_t token;        /* 0: none; so for the other numbers */
    const char *owner;
    const char *key;
    int64_t version;
    const char *code; /* of the refusal */
    const char *reason;
    int64_t ttl_ms;
    int64_t ended_at_ms;
    int64_t count;
};

/* ---- Opening ------------------------------------------------------------------------------- */

struct store_options {
    const char *data_dir; /* exists; the database is <data_dir>/fencegate.db */
    int64_t ledger_max_age_ms;
    int64_t ledger_max_rows;
    int64_t lease_memory_ms; /* how long an ended lease is remembered */
    void (*wake)(void *arg); /* writer and scan threads: something is to be collected */
    void *wake_arg;
};

/* Opens or creates the store and starts its threads. FG_OK, or FG_STORE_UNAVAILABLE with one line
 * in `why`: not a fencegate store, damaged, newer than this program, or not accessible. An existing
 * file is never replaced. The caller holds the data directory's lock. */
enum fg_status store_open(struct store **out, const struct store_options *options, char *why,
                          size_t why_bytes);

/* Finishes what was submitted (done callbacks included), checkpoints, closes, frees. */
void store_close(struct store *store);

/* The store's UUID in text; owned by the store. Any thread. */
const char *store_uuid(const struct store *store);

/* FG_OK while commits work, else what the last one failed with; a failing store tries by itself
 * once a second whether it works again. Any thread. */
enum fg_status store_health(struct store *store);

/* Ops submitted and not yet collected. */
size_t store_in_flight(const struct store *store);

/* ---- Changes: one op, one savepoint -------------------------------------------------------- */

/* Fences a grant of Redis: raises the mark strictly, replaces the live set by
 * (live ∩ holders) ∪ {this lease}, ends what was replaced.
 * FG_OK; FG_GRANT_CONTENDED: a lost race, the mark had passed the token, or the limit is reached;
 * FG_LIMIT_MISMATCH; FG_RESOURCE_UNFENCED. */
struct store_grant {
    const char *resource;
    const char *owner; /* NULL: none */
    struct lease_pair pair;
    int64_t ttl_ms;
    int limit; /* 0: whatever is set, else 1 */
    int64_t waited_ms;
    int64_t started_boot_ms;            /* before Redis was asked: the TTL counts from here */
    const struct lease_holder *holders; /* all that Redis has, this lease included */
    size_t holder_count;
    const struct lease_holder *dropped; /* those that Redis dropped as expired */
    size_t dropped_count;
    /* result */
    int64_t resource_id;
    int fixed_limit;
    int64_t acquired_at_ms;
};

/* Notes a renewal: the lease's deadline and a ledger row. Rides on the next commit, or on one of
 * its own shortly after. Nothing where the lease is no longer live. */
struct store_renewal {
    struct lease_key lease;
    int64_t ttl_ms;
    int64_t deadline_boot_ms;
};

/* Takes a lease out of the live set. FG_OK also when it was released before (`again`);
 * FG_LEASE_NOT_FOUND, FG_LEASE_SUPERSEDED, FG_LEASE_REVOKED. */
struct store_release {
    struct lease_key lease;
    const char *reason; /* NULL: its holder asked for it */
    /* result; strings in op->arena */
    bool again;
    struct lease_row row;
    struct lease_successor successor;
};

enum version_condition {
    VERSION_ANY,    /* no condition */
    VERSION_EQUALS, /* If-Match: "v<n>" */
    VERSION_EXISTS, /* If-Match: * */
    VERSION_ABSENT, /* If-None-Match: * */
};

/* Puts or deletes a record, if the fence lets it. FG_OK; FG_FENCING_TOKEN_REQUIRED,
 * FG_PRECONDITION_REQUIRED (store_write_lacks()); FG_STALE_FENCING_TOKEN,
 * FG_FENCING_TOKEN_NOT_ISSUED, FG_LEASE_MISMATCH; FG_RECORD_NOT_FOUND (delete);
 * FG_VERSION_MISMATCH. */
struct store_write {
    const char *resource;
    const char *key;
    int64_t token; /* 0: none, for an unfenced resource */
    bool lease_shown;
    struct lease_key lease; /* where lease_shown */
    enum version_condition condition;
    int64_t condition_version;
    const char *content_type; /* put */
    const void *value;        /* put; not NULL */
    size_t value_bytes;
    /* result */
    int64_t version; /* the new one; on FG_VERSION_MISMATCH the current one, 0: no record */
    bool created;
    int64_t mark;
    enum lease_state lease_state; /* stale: how the token's lease ended; LEASE_LIVE: unknown */
    int64_t ended_at_ms;          /* stale: when; 0: unknown */
    struct lease_successor successor;
};

/* Leases that an operator's op has ended, in the op's arena, by rising token. */
struct ended_leases {
    const struct lease_pair *pairs;
    const char *const *owners; /* of each pair; NULL: none */
    size_t count;
};

/* Takes leases away: one, or all that are live. The mark rises by 1 in every case, also where
 * nothing is live: a grant under way, with a token that Redis has given out already, is contended.
 * (At FENCING_TOKEN_MAX it stays: no token is above it.)
 * FG_OK; FG_RESOURCE_NOT_FOUND. */
struct store_revoke {
    const char *resource;
    const char *reason; /* for the holders; not empty */
    int64_t token;      /* 1 ... FENCING_TOKEN_MAX: only this one, where it is live; 0: all */
    /* result */
    struct ended_leases ended;
    int64_t mark;
};

enum fence_setting {
    FENCE_KEEP, /* as it is; a new resource is fenced */
    FENCE_ON,
    FENCE_OFF,
};

/* Sets a resource's limit and whether it is fenced; creates it, with the base as its mark. A limit
 * below the number of live leases ends none. An existing resource that is fenced no more has its
 * leases revoked, reason "unfenced", and its mark raised by 1. What changes nothing leaves no
 * trace. FG_OK. */
struct store_configure {
    const char *resource;
    int limit; /* 1 ... LIMIT_MAX; 0: as it is */
    enum fence_setting fence;
    /* result */
    bool changed; /* created, or something is another than before */
    struct ended_leases ended;
    int64_t mark;
    int fixed_limit; /* as it is now; 0: the first grant will fix it */
    bool fenced;
};

enum store_op_kind {
    STORE_GRANT,
    STORE_RENEWAL,
    STORE_RELEASE,
    STORE_PUT,
    STORE_DELETE,
    STORE_REVOKE,
    STORE_CONFIGURE,
    STORE_SCAN
};

enum store_scan_kind {
    SCAN_RESOURCES, /* by name */
    SCAN_LEASES,    /* live ones, by (resource id, token) */
    SCAN_RECORDS,   /* by key */
    SCAN_LEDGER,    /* of one resource, by seq */
};

/* A page of a list. Reads one snapshot that holds all that was answered before store_submit().
 * FG_OK; FG_RESOURCE_NOT_FOUND (records, ledger). */
struct store_scan {
    enum store_scan_kind kind;
    const char *resource;   /* leases: NULL = all; records, ledger */
    const char *owner;      /* leases: NULL = all */
    const char *prefix;     /* records; "" = all */
    const char *after_name; /* resources, records: start behind it; NULL = at the start */
    int64_t after_id;       /* leases: resource id */
    int64_t after_number;   /* leases: token; ledger: seq */
    int ledger_kind;        /* 0 = all */
    size_t limit;           /* 1 ... STORE_PAGE_MAX */
    /* result, all in op->arena: the array of the kind asked for */
    struct resource_row *resources;
    struct lease_row *leases;
    struct record_row *records;
    struct ledger_row *ledger;
    size_t count;
    bool more;
};

/* The caller owns an op and what its inputs point to; the store borrows both from store_submit()
 * until done() is called, exactly once, on the thread that calls store_collect(). The arena is
 * empty at submit; results that are strings or arrays lie in it, and the caller frees it. */
struct store_op {
    enum store_op_kind kind;
    union {
        struct store_grant grant;
        struct store_renewal renewal;
        struct store_release release;
        struct store_write write;
        struct store_revoke revoke;
        struct store_configure configure;
        struct store_scan scan;
    };
    enum fg_status status; /* outcome: what the kind says, or FG_STORAGE_FULL, FG_STORE_UNAVAILABLE,
                              FG_OVERLOADED (never taken) */
    struct arena arena;
    void (*done)(struct store_op *op);
    void *arg; /* the caller's */
    struct store_op *next;
};

/* Takes an op for the next store_flush(). done() is never called from inside this call. */
void store_submit(struct store *store, struct store_op *op);

/* Hands over what was submitted. Call it once per turn of the loop, when its handlers have run: so
 * the writer is woken once for all of them, and they share its next commit. */
void store_flush(struct store *store);

/* Calls done() of every op that has come back. Call it after wake(). */
void store_collect(struct store *store);

/* ---- Single rows, read at once ------------------------------------------------------------- *
 *
 * Between two calls of store_flush() or store_collect() all of them read one snapshot, which holds
 * what was answered before: taking and giving back a snapshot costs more than most of the reads. */

/* The resource's mark, limit and live set. `fence->live` is the store's: valid until the next
 * store_read_* call. FG_OK also where there is no row (resource_id 0, mark = base). */
enum fg_status store_read_fence(struct store *store, const char *resource, struct fence *fence);

/* What a write without a token lacks: FG_FENCING_TOKEN_REQUIRED where the resource is fenced,
 * FG_PRECONDITION_REQUIRED where it is not and the write has no condition; FG_OK: nothing. Asked
 * again inside the transaction of the write. Any thread. */
enum fg_status store_write_lacks(const struct fence *fence, enum version_condition condition);

/* The limit of a resource by its number, 0 where none is set, and the token of its oldest live
 * lease, 0 where there is none. */
enum fg_status store_read_room(struct store *store, int64_t resource_id, int *limit,
                               int64_t *oldest);

/* A lease by its key; the secret must match. FG_LEASE_NOT_FOUND. */
enum fg_status store_read_lease(struct store *store, const struct lease_key *key,
                                struct arena *arena, struct lease_row *row,
                                struct lease_successor *successor);

/* How a token that is not live ended: `state` LEASE_LIVE where nothing is known of it. */
enum fg_status store_read_ended(struct store *store, int64_t resource_id, int64_t token,
                                struct arena *arena, struct lease_row *row,
                                struct lease_successor *successor);

/* A resource with its live set. FG_RESOURCE_NOT_FOUND. */
enum fg_status store_read_resource(struct store *store, const char *resource, struct arena *arena,
                                   struct resource_row *row);

/* A record with its value. FG_RECORD_NOT_FOUND. */
enum fg_status store_read_record(struct store *store, const char *resource, const char *key,
                                 struct arena *arena, struct record_row *row);

/* "grant", "renew", ... Static. */
const char *ledger_kind_name(enum ledger_kind kind);

/* The kind of that name, 0 where there is none. */
int ledger_kind_find(const char *name);

#endif
