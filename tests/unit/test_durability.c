/* test_durability.c - the storage library and its disk: group commit, full and broken disks, kill
 * -9, and files that are not ours.
 *
 * The writer is held inside the fdatasync of one COMMIT (disk.h) while the test submits what shall
 * share the next one: so a batch is exactly what the test wants, and commits can be counted. */
#include "storage/store.h"

#include "gateway/clock.h"

#include "tests/support/cleanup.h"
#include "tests/support/disk.h"
#include "tests/support/ops.h"
#include "tests/support/process.h"
#include "tests/support/tempdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000, MEGABYTE = 1 << 20 };

/* Submits a write and returns when the writer is in the middle of committing it: what is submitted
 * now shares the next commit. */
static void hold_writer(struct bench *b)
{
    disk_hold();
    bench_submit(b, op_put("r", "first", 1, "v"));
    assert_true(disk_await_held());
}

static struct bench *open_with_lease(void)
{
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    return b;
}

static const char *keys_of(const struct bench *b)
{
    return sql_text(b, "SELECT key FROM records WHERE value IS NOT NULL ORDER BY key");
}

/* Rows are numbered from 1 without a gap. */
static void expect_whole_ledger(const struct bench *b)
{
    assert_int_equal(sql_number(b, "SELECT max(seq) - count(*) FROM ledger"), 0);
}

/* ---- Group commit ---------------------------------------------------------------------------- */

static void what_arrives_during_a_commit_shares_the_next(void **state)
{
    (void)state;
    enum { OPS = 300 };
    struct bench *b = open_with_lease();
    hold_writer(b);
    struct store_op *ops[OPS];
    for (int i = 0; i < OPS; i++) {
        ops[i] = op_put("r", test_printf("k%d", i % 50), 1, "v");
        bench_submit(b, ops[i]);
    }
    long before = disk_syncs();
    disk_release();
    bench_wait(b);
    assert_int_equal(disk_syncs(), before + 2); /* the one that was held, and one for all */
    for (int i = 0; i < OPS; i++) {
        expect_status_of(ops[i], FG_OK);
        assert_int_equal(ops[i]->write.version, i / 50 + 1);
    }
    expect_whole_ledger(b);
}

static void one_op_at_a_time_is_one_commit_each(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
    long before = disk_syncs();
    for (int i = 0; i < 20; i++)
        expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
    assert_int_equal(disk_syncs(), before + 20);
}

static void nothing_comes_back_before_it_is_durable(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    struct store_op *op = op_grant("other", 1, 1, HOLDERS(1));
    disk_hold();
    bench_submit(b, op);
    assert_true(disk_await_held());
    store_collect(b->store);
    assert_int_equal(b->collected, 1); /* only what open_with_lease() did */
    assert_string_equal(fence_text(b, "other"), "mark 0, limit 0, live");
    disk_release();
    bench_wait(b);
    expect_status_of(op, FG_OK);
    assert_string_equal(fence_text(b, "other"), "mark 1, limit 1, live 1");
}

static void a_renewal_rides_on_the_next_commit(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    hold_writer(b);
    for (int i = 0; i < 10; i++)
        bench_submit(b, op_renewal(lease_key_of(1, 1, 1), TTL_MS, 1000 + i));
    bench_submit(b, op_put("r", "k", 1, "v"));
    long before = disk_syncs();
    disk_release();
    bench_wait(b);
    assert_int_equal(disk_syncs(), before + 2);
    assert_int_equal(sql_number(b, "SELECT deadline_boot_ms FROM leases"), 1009);
    /* With nothing to ride on, it is committed alone. */
    expect_op(b, op_renewal(lease_key_of(1, 1, 1), TTL_MS, 5000), FG_OK);
    assert_int_equal(sql_number(b, "SELECT deadline_boot_ms FROM leases"), 5000);
}

static struct store_op *chained;

static void submit_another(struct store_op *op)
{
    struct bench *b = op->arg;
    b->collected++;
    if (chained) {
        struct store_op *next = chained;
        chained = NULL;
        bench_submit(b, next);
    }
}

static void an_op_may_be_submitted_when_one_comes_back(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    struct store_op *op = op_put("r", "k", 1, "a");
    op->done = submit_another;
    chained = op_put("r", "k", 1, "b");
    const struct store_op *second = chained;
    expect_op(b, op, FG_OK);
    expect_status_of(second, FG_OK);
    assert_int_equal(second->write.version, 2);
}

static size_t refused_count;

static void count_refused(struct store_op *op)
{
    if (op->status == FG_OVERLOADED)
        refused_count++;
    else
        expect_status_of(op, FG_LEASE_NOT_FOUND);
}

static void too_many_ops_are_refused_at_once_and_the_rest_are_served(void **state)
{
    (void)state;
    enum { BEYOND = 3 };
    struct bench *b = open_with_lease();
    hold_writer(b);
    size_t room = STORE_QUEUE_MAX - store_in_flight(b->store);
    struct store_op *ops = test_alloc((room + BEYOND) * sizeof *ops);
    refused_count = 0;
    for (size_t i = 0; i < room + BEYOND; i++) {
        ops[i].kind = STORE_RELEASE;
        ops[i].release.lease = lease_key_of(9, 9, 9);
        ops[i].done = count_refused;
        bench_submit(b, &ops[i]);
    }
    assert_int_equal(refused_count, 0);
    store_collect(b->store);
    assert_int_equal(refused_count, BEYOND);
    assert_int_equal(ops[room].status, FG_OVERLOADED);
    disk_release();
    bench_wait(b);
    assert_int_equal(refused_count, BEYOND);
    expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
}

static void closing_finishes_what_was_submitted(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    size_t before = b->collected;
    for (int i = 0; i < 100; i++)
        bench_submit(b, op_put("r", test_printf("k%02d", i), 1, "v"));
    bench_submit(b, op_renewal(lease_key_of(1, 1, 1), TTL_MS, 77));
    struct store_op *scan = op_scan(SCAN_RECORDS, "r", 1000);
    bench_submit(b, scan);
    bench_close(b);
    assert_int_equal(b->collected, before + 102);
    expect_status_of(scan, FG_OK);
    assert_int_equal(scan->scan.count, 100);
    assert_int_equal(sql_number(b, "SELECT count(*) FROM records"), 100);
    assert_int_equal(sql_number(b, "SELECT deadline_boot_ms FROM leases"), 77);
}

/* ---- An error in one op ---------------------------------------------------------------------- */

/* A put of so many bytes that SQLite refuses to take it; it never reads them. */
static struct store_op *op_put_too_much(const char *key)
{
    struct store_op *op = op_put("r", key, 1, "v");
    op->write.value_bytes = 2000000000;
    return op;
}

static void an_error_in_one_op_does_not_touch_its_neighbours(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    hold_writer(b);
    struct store_op *ops[] = {
        op_put("r", "a", 1, "v"), op_put_too_much("b"),     op_put("r", "a", 1, "w"),
        op_put_too_much("a"),     op_put("r", "c", 9, "v"), op_grant("s", 3, 1, HOLDERS(3)),
        op_put_too_much("c"),     op_put("s", "d", 3, "v"),
    };
    const enum fg_status outcomes[] = {
        FG_OK, FG_STORE_UNAVAILABLE, FG_OK, FG_STORE_UNAVAILABLE, FG_FENCING_TOKEN_NOT_ISSUED,
        FG_OK, FG_STORE_UNAVAILABLE, FG_OK,
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        bench_submit(b, ops[i]);
    long before = disk_syncs();
    disk_release();
    bench_wait(b);
    assert_int_equal(disk_syncs(), before + 2);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        expect_status_of(ops[i], outcomes[i]);
    assert_string_equal(keys_of(b), "a d first");
    assert_int_equal(sql_number(b, "SELECT version FROM records WHERE key = 'a'"), 2);
    expect_whole_ledger(b);
    assert_int_equal(store_health(b->store), FG_OK);
}

static void an_error_in_the_first_and_the_last_op_either(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    hold_writer(b);
    struct store_op *first = op_put_too_much("a"), *middle = op_put("r", "b", 1, "v"),
                    *last = op_put_too_much("c");
    bench_submit(b, first);
    bench_submit(b, middle);
    bench_submit(b, last);
    disk_release();
    bench_wait(b);
    expect_status_of(first, FG_STORE_UNAVAILABLE);
    expect_status_of(middle, FG_OK);
    expect_status_of(last, FG_STORE_UNAVAILABLE);
    bench_reopen(b, NULL);
    assert_string_equal(keys_of(b), "b first");
    expect_whole_ledger(b);
}

/* ---- A full disk ----------------------------------------------------------------------------- */

/* The disk has room again: the store finds out by itself, and goes on as if nothing had been. */
static void expect_recovery(struct bench *b)
{
    disk_fill(false);
    assert_true(EVENTUALLY(store_health(b->store) == FG_OK, PATIENCE_MS));
    expect_op(b, op_put("r", "later", 1, "v"), FG_OK);
    assert_string_equal(keys_of(b), "first later");
    expect_whole_ledger(b);
    bench_reopen(b, NULL);
    assert_string_equal(keys_of(b), "first later");
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");
    assert_string_equal(fence_text(b, "s"), "mark 0, limit 0, live");
    assert_string_equal(sql_text(b, "PRAGMA integrity_check"), "ok");
}

static void a_full_disk_at_commit_fails_the_whole_batch(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    hold_writer(b);
    struct store_op *ops[] = {op_put("r", "a", 1, "v"),        op_put("r", "b", 9, "refused"),
                              op_grant("s", 1, 1, HOLDERS(1)), op_release(lease_key_of(1, 1, 1)),
                              op_delete("r", "first", 1),      op_revoke("r", 0, "stuck"),
                              op_configure("r", 2, FENCE_OFF), op_configure("s", 2, FENCE_OFF)};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        bench_submit(b, ops[i]);
    disk_fill(true);
    disk_release();
    bench_wait(b);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        expect_status_of(ops[i], FG_STORAGE_FULL);
    assert_int_equal(store_health(b->store), FG_STORAGE_FULL);
    assert_string_equal(keys_of(b), "first");
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");
    expect_op(b, op_put("r", "c", 1, "v"), FG_STORAGE_FULL);
    expect_recovery(b);
}

/* More than SQLite keeps in memory: it writes in mid-batch, fails, and rolls all of it back. */
static void a_full_disk_in_mid_batch_fails_those_before_and_behind(void **state)
{
    (void)state;
    enum { OPS = 40 };
    struct bench *b = open_with_lease();
    char *big = test_alloc(MEGABYTE + 1);
    memset(big, 'x', MEGABYTE);
    hold_writer(b);
    struct store_op *ops[OPS + 2];
    ops[0] = op_grant("s", 1, 1, HOLDERS(1));
    for (int i = 1; i <= OPS; i++)
        ops[i] = op_put("r", test_printf("k%d", i), 1, big);
    ops[OPS + 1] = op_release(lease_key_of(1, 1, 1));
    for (int i = 0; i < OPS + 2; i++)
        bench_submit(b, ops[i]);
    disk_fill(true);
    disk_release();
    bench_wait(b);
    for (int i = 0; i < OPS + 2; i++)
        expect_status_of(ops[i], FG_STORAGE_FULL);
    assert_string_equal(keys_of(b), "first");
    expect_recovery(b);
}

static void reads_and_lists_go_on_while_the_disk_is_full(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    expect_op(b, op_put("r", "first", 1, "v"), FG_OK);
    disk_fill(true);
    expect_op(b, op_put("r", "a", 1, "v"), FG_STORAGE_FULL);
    struct store_op *scan = expect_op(b, op_scan(SCAN_RECORDS, "r", 10), FG_OK);
    assert_int_equal(scan->scan.count, 1);
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");
    struct record_row row;
    assert_int_equal(store_read_record(b->store, "r", "first", &scan->arena, &row), FG_OK);
    expect_recovery(b);
}

/* ---- A database that somebody else holds ----------------------------------------------------- */

static void a_locked_database_fails_the_batch_and_works_again_afterwards(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    sqlite3 *other;
    const char *path = test_printf("%s/fencegate.db", b->dir);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    sqlite3_busy_timeout(other, PATIENCE_MS); /* the writer may be keeping house */
    sqlite3_wal_autocheckpoint(other, 0);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    disk_hurry();
    struct store_op *put = op_put("r", "a", 1, "v"), *second = op_grant("s", 1, 1, HOLDERS(1));
    bench_submit(b, put);
    bench_submit(b, second);
    bench_wait(b);
    expect_status_of(put, FG_STORE_UNAVAILABLE);
    expect_status_of(second, FG_STORE_UNAVAILABLE);
    assert_int_equal(store_health(b->store), FG_STORE_UNAVAILABLE);
    sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(other);
    assert_true(EVENTUALLY(store_health(b->store) == FG_OK, PATIENCE_MS));
    expect_op(b, op_put("r", "a", 1, "v"), FG_OK);
    assert_string_equal(fence_text(b, "s"), "mark 0, limit 0, live");
    expect_whole_ledger(b);
}

/* ---- Sudden ends ----------------------------------------------------------------------------- */

/* Writes 1, 2, 3 ... and tells `fd` what has been acknowledged, until it is killed. */
static void write_for_ever(const char *dir, int fd)
{
    struct bench *b = bench_open(dir, NULL);
    grant(b, "r", 1);
    for (int n = 1;; n++) {
        expect_op(b, op_put("r", "k", 1, test_printf("%d", n)), FG_OK);
        if (write(fd, &n, sizeof n) != (ssize_t)sizeof n)
            _exit(1);
    }
}

static void what_was_acknowledged_survives_kill_9(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    for (int round = 0; round < 3; round++) {
        const char *folder = test_printf("%s/%d", dir, round);
        int acknowledged[2], last = 0;
        assert_int_equal(mkdir(folder, 0700), 0);
        assert_int_equal(pipe2(acknowledged, O_CLOEXEC), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_for_ever(folder, acknowledged[1]);
        close(acknowledged[1]);
        while (last < 20 * (round + 1))
            assert_int_equal(read(acknowledged[0], &last, sizeof last), sizeof last);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        while (read(acknowledged[0], &last, sizeof last) == (ssize_t)sizeof last)
            ;
        close(acknowledged[0]);

        struct bench *b = bench_open(folder, NULL);
        assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");
        int64_t value = sql_number(b, "SELECT CAST(value AS TEXT) FROM records");
        assert_in_range(value, last, last + 1); /* one more may have been under way */
        assert_int_equal(sql_number(b, "SELECT version FROM records"), value);
        expect_whole_ledger(b);
        expect_op(b, op_put("r", "k", 1, "again"), FG_OK);
        bench_close(b); /* no thread runs when the next child is forked */
    }
}

static void an_io_error_at_commit_ends_the_process(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct bench *b = bench_open(dir, NULL);
        grant(b, "r", 1);
        disk_break();
        bench_submit(b, op_put("r", "k", 1, "v"));
        bench_wait(b);
        _exit(EX_SOFTWARE); /* it came back, whatever its status */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EX_IOERR);
    /* SQLite decides at the next start; either way the store is whole. */
    struct bench *b = bench_open(dir, NULL);
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");
    expect_whole_ledger(b);
    grant(b, "r", 2);
}

#define TEST(function) cmocka_unit_test_teardown(function, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_arrives_during_a_commit_shares_the_next),
        TEST(one_op_at_a_time_is_one_commit_each),
        TEST(nothing_comes_back_before_it_is_durable),
        TEST(a_renewal_rides_on_the_next_commit),
        TEST(an_op_may_be_submitted_when_one_comes_back),
        TEST(too_many_ops_are_refused_at_once_and_the_rest_are_served),
        TEST(closing_finishes_what_was_submitted),
        TEST(an_error_in_one_op_does_not_touch_its_neighbours),
        TEST(an_error_in_the_first_and_the_last_op_either),
        TEST(a_full_disk_at_commit_fails_the_whole_batch),
        TEST(a_full_disk_in_mid_batch_fails_those_before_and_behind),
        TEST(reads_and_lists_go_on_while_the_disk_is_full),
        TEST(a_locked_database_fails_the_batch_and_works_again_afterwards),
        TEST(what_was_acknowledged_survives_kill_9),
        TEST(an_io_error_at_commit_ends_the_process),
    };
    return cmocka_run_group_tests_name("durability", tests, NULL, NULL);
}
