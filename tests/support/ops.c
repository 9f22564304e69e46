/* ops.c - a loop of the smallest kind around storage/store.h. */
#include "tests/support/ops.h"

#include "gateway/clock.h"

#include "tests/support/cleanup.h"
#include "tests/support/process.h"
#include "tests/support/tempdir.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000 };

/* ---- Opening --------------------------------------------------------------------------------- */

static void wake(void *arg)
{
    const struct bench *bench = arg;
    const uint64_t one = 1;
    while (write(bench->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static const struct store_options generous = {
    .ledger_max_age_ms = INT64_C(30) * 86400000,
    .ledger_max_rows = 10000000,
    .lease_memory_ms = 86400000,
};

static enum fg_status try_open(struct bench *bench, const struct store_options *options, char *why,
                               size_t why_bytes)
{
    struct store_options all = options ? *options : generous;
    all.data_dir = bench->dir;
    all.wake = wake;
    all.wake_arg = bench;
    return store_open(&bench->store, &all, why, why_bytes);
}

static void open_or_fail(struct bench *bench, const struct store_options *options)
{
    char why[512] = "";
    if (try_open(bench, options, why, sizeof why) != FG_OK)
        fail_msg("the store does not open: %s", why);
}

static void end(void *arg)
{
    struct bench *bench = arg;
    bench_close(bench);
    close(bench->wake_fd);
}

static struct bench *bench_new(const char *dir)
{
    struct bench *bench = test_alloc(sizeof *bench);
    bench->dir = dir ? dir : tempdir_new();
    bench->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(bench->wake_fd >= 0);
    return cleanup_add(end, bench);
}

struct bench *bench_open(const char *dir, const struct store_options *options)
{
    struct bench *bench = bench_new(dir);
    open_or_fail(bench, options);
    return bench;
}

const char *bench_refusal(const char *dir)
{
    static char why[512];
    struct bench *bench = bench_new(dir);
    why[0] = '\0';
    enum fg_status status = try_open(bench, NULL, why, sizeof why);
    if (status == FG_OK)
        fail_msg("%s was opened", dir);
    assert_int_equal(status, FG_STORE_UNAVAILABLE);
    assert_null(bench->store);
    assert_true(why[0] != '\0');
    assert_null(strchr(why, '\n'));
    return why;
}

void bench_close(struct bench *bench)
{
    struct store *store = bench->store;
    bench->store = NULL;
    if (store)
        store_close(store);
}

void bench_reopen(struct bench *bench, const struct store_options *options)
{
    bench_close(bench);
    open_or_fail(bench, options);
}

/* ---- Ops ------------------------------------------------------------------------------------- */

static void free_arena(void *arg)
{
    arena_free(&((struct store_op *)arg)->arena);
}

static void on_done(struct store_op *op)
{
    struct bench *bench = op->arg;
    bench->collected++;
}

static struct store_op *op_new(enum store_op_kind kind)
{
    struct store_op *op = test_alloc(sizeof *op);
    op->kind = kind;
    op->done = on_done;
    op->status = FG_STATUS_COUNT; /* none yet */
    return cleanup_add(free_arena, op);
}

/* The number as 16 digits: SQL can make it, too. */
static void write_secret(uint8_t secret[LEASE_SECRET_BYTES], int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%0*" PRId64, LEASE_SECRET_BYTES, number);
    memcpy(secret, text, LEASE_SECRET_BYTES);
}

struct lease_holder holder_of(int64_t token, int64_t secret, int64_t expires_at_ms)
{
    struct lease_holder holder = {.pair.token = token, .expires_at_ms = expires_at_ms};
    write_secret(holder.pair.secret, secret);
    return holder;
}

struct lease_key lease_key_of(int64_t resource_id, int64_t token, int64_t secret)
{
    struct lease_key key = {.resource_id = resource_id, .token = token};
    write_secret(key.secret, secret);
    return key;
}

struct lease_key lease_of(const struct store_op *op)
{
    struct lease_key key = {.resource_id = op->grant.resource_id, .token = op->grant.pair.token};
    memcpy(key.secret, op->grant.pair.secret, sizeof key.secret);
    return key;
}

struct store_op *op_grant(const char *resource, int64_t token, int limit, const int64_t *holders)
{
    struct store_op *op = op_new(STORE_GRANT);
    struct lease_holder self = holder_of(token, token, clock_wall_ms() + TTL_MS);
    size_t count = 0;
    while (holders[count] != 0)
        count++;
    struct lease_holder *set = test_alloc((count + 1) * sizeof *set);
    for (size_t i = 0; i < count; i++)
        set[i] = holder_of(holders[i], holders[i], clock_wall_ms() + TTL_MS);
    op->grant = (struct store_grant){
        .resource = resource,
        .pair = self.pair,
        .ttl_ms = TTL_MS,
        .limit = limit,
        .started_boot_ms = clock_boot_ms(),
        .holders = set,
        .holder_count = count,
    };
    return op;
}

struct store_op *op_release(struct lease_key lease)
{
    struct store_op *op = op_new(STORE_RELEASE);
    op->release.lease = lease;
    return op;
}

struct store_op *op_renewal(struct lease_key lease, int64_t ttl_ms, int64_t deadline_boot_ms)
{
    struct store_op *op = op_new(STORE_RENEWAL);
    op->renewal = (struct store_renewal){
        .lease = lease, .ttl_ms = ttl_ms, .deadline_boot_ms = deadline_boot_ms};
    return op;
}

static struct store_op *op_write(enum store_op_kind kind, const char *resource, const char *key,
                                 int64_t token)
{
    struct store_op *op = op_new(kind);
    op->write.resource = resource;
    op->write.key = key;
    op->write.token = token;
    return op;
}

struct store_op *op_put(const char *resource, const char *key, int64_t token, const char *value)
{
    struct store_op *op = op_write(STORE_PUT, resource, key, token);
    op->write.content_type = "text/plain";
    op->write.value = value;
    op->write.value_bytes = strlen(value);
    return op;
}

struct store_op *op_delete(const char *resource, const char *key, int64_t token)
{
    return op_write(STORE_DELETE, resource, key, token);
}

struct store_op *op_revoke(const char *resource, int64_t token, const char *reason)
{
    struct store_op *op = op_new(STORE_REVOKE);
    op->revoke = (struct store_revoke){.resource = resource, .token = token, .reason = reason};
    return op;
}

struct store_op *op_configure(const char *resource, int limit, enum fence_setting fence)
{
    struct store_op *op = op_new(STORE_CONFIGURE);
    op->configure = (struct store_configure){.resource = resource, .limit = limit, .fence = fence};
    return op;
}

struct store_op *op_scan(enum store_scan_kind kind, const char *resource, size_t limit)
{
    struct store_op *op = op_new(STORE_SCAN);
    op->scan.kind = kind;
    op->scan.resource = resource;
    op->scan.limit = limit;
    op->scan.prefix = "";
    return op;
}

struct store_op *op_showing(struct store_op *write, struct lease_key lease)
{
    write->write.lease_shown = true;
    write->write.lease = lease;
    return write;
}

struct store_op *op_if(struct store_op *write, enum version_condition condition, int64_t version)
{
    write->write.condition = condition;
    write->write.condition_version = version;
    return write;
}

/* ---- Running --------------------------------------------------------------------------------- */

void bench_submit(struct bench *bench, struct store_op *op)
{
    op->arg = bench;
    size_t before = bench->collected;
    store_submit(bench->store, op);
    store_flush(bench->store);
    assert_int_equal(bench->collected, before);
}

void bench_wait(struct bench *bench)
{
    long long give_up_ms = now_ms() + slow_ms(PATIENCE_MS);
    while (store_in_flight(bench->store) > 0) {
        struct pollfd woken = {.fd = bench->wake_fd, .events = POLLIN};
        uint64_t times;
        if (poll(&woken, 1, 100) > 0)
            (void)!read(bench->wake_fd, &times, sizeof times);
        store_collect(bench->store);
        if (now_ms() > give_up_ms)
            fail_msg("%zu ops never came back", store_in_flight(bench->store));
    }
}

static const char *status_name(enum fg_status status)
{
    if (status == FG_OK)
        return "ok";
    return status < FG_STATUS_COUNT ? fg_error(status)->code : "none yet";
}

void expect_status_of(const struct store_op *op, enum fg_status status)
{
    if (op->status != status)
        fail_msg("%s, not %s", status_name(op->status), status_name(status));
}

struct store_op *expect_op(struct bench *bench, struct store_op *op, enum fg_status status)
{
    bench_submit(bench, op);
    bench_wait(bench);
    expect_status_of(op, status);
    return op;
}

struct lease_key grant(struct bench *bench, const char *resource, int64_t token)
{
    return lease_of(expect_op(bench, op_grant(resource, token, 0, HOLDERS(token)), FG_OK));
}

/* ---- Looking --------------------------------------------------------------------------------- */

const char *fence_text(struct bench *bench, const char *resource)
{
    struct fence fence;
    assert_int_equal(store_read_fence(bench->store, resource, &fence), FG_OK);
    const char *text = test_printf("mark %" PRId64 ", limit %d, live", fence.mark, fence.limit);
    for (size_t i = 0; i < fence.live_count; i++) {
        struct lease_holder usual = holder_of(fence.live[i].token, fence.live[i].token, 0);
        bool same = lease_secret_equal(usual.pair.secret, fence.live[i].secret);
        text = test_printf("%s %" PRId64 "%s", text, fence.live[i].token, same ? "" : "*");
    }
    return text;
}

static sqlite3 *connect_to(const struct bench *bench, int flags)
{
    sqlite3 *handle;
    const char *path = test_printf("%s/fencegate.db", bench->dir);
    assert_int_equal(sqlite3_open_v2(path, &handle, flags, NULL), SQLITE_OK);
    sqlite3_busy_timeout(handle, slow_ms(PATIENCE_MS));
    /* Only the store's own connection checkpoints. */
    sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_wal_autocheckpoint(handle, 0);
    return handle;
}

int sql_run(const struct bench *bench, const char *sql)
{
    sqlite3 *handle = connect_to(bench, SQLITE_OPEN_READWRITE);
    int rc = sqlite3_exec(handle, sql, NULL, NULL, NULL);
    sqlite3_close(handle);
    return rc;
}

static const char *query(const struct bench *bench, const char *sql)
{
    sqlite3 *handle = connect_to(bench, SQLITE_OPEN_READWRITE);
    sqlite3_stmt *statement = NULL;
    const char *text = "";
    int rc = sqlite3_prepare_v2(handle, sql, -1, &statement, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(statement);
        for (int i = 0; rc == SQLITE_ROW && i < sqlite3_column_count(statement); i++) {
            const char *value = (const char *)sqlite3_column_text(statement, i);
            const char *gap = i > 0 ? "|" : text[0] ? " " : "";
            text = test_printf("%s%s%s", text, gap, value ? value : "-");
        }
    }
    const char *error = rc == SQLITE_DONE ? NULL : test_printf("%s", sqlite3_errmsg(handle));
    sqlite3_finalize(statement);
    sqlite3_close(handle);
    if (error)
        fail_msg("%s: %s", sql, error);
    return text;
}

const char *sql_text(const struct bench *bench, const char *format, ...)
{
    char sql[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sql, sizeof sql, format, arguments);
    va_end(arguments);
    return query(bench, sql);
}

int64_t sql_number(const struct bench *bench, const char *format, ...)
{
    char sql[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sql, sizeof sql, format, arguments);
    va_end(arguments);
    return strtoll(query(bench, sql), NULL, 10);
}

const char *sql_everything(const struct bench *bench)
{
    return test_printf(
        "%s / %s / %s / %s",
        sql_text(bench, "SELECT id, name, mark, lease_limit, fenced FROM resources ORDER BY id"),
        sql_text(bench, "SELECT resource_id, token, hex(secret), owner, state, deadline_boot_ms,"
                        " ended_at_ms, reason, superseded_by FROM leases ORDER BY 1, 2"),
        sql_text(bench, "SELECT resource_id, key, version, token, content_type, hex(value)"
                        " FROM records ORDER BY 1, 2"),
        sql_text(bench, "SELECT seq, kind, resource_id, token, key, code FROM ledger"
                        " ORDER BY seq"));
}
