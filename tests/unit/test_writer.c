/* test_writer.c - when SQLite cannot begin, commit or roll back, and when an invariant does not
 * hold.
 *
 * sqlite3_step() is ours here: it can fail a statement, named by its text, without running it.
 * abort() is ours, too: a coverage build writes its counts before the process dies. */
#include "storage/database.h"
#include "storage/store.h"

#include "tests/support/cleanup.h"
#include "tests/support/disk.h"
#include "tests/support/ops.h"
#include "tests/support/tempdir.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const statement_texts[] = {
#define SQL(name, text) [SQL_##name] = text,
#include "storage/statements.def"
#undef SQL
};

/* ---- What is replaced ------------------------------------------------------------------------ */

enum { FAILING_MAX = 2 };

static struct {
    const char *sql;
    atomic_int times; /* how often it still fails */
    int code;
} failing[FAILING_MAX];

int sqlite3_step(sqlite3_stmt *statement)
{
    static int (*real)(sqlite3_stmt *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "sqlite3_step");
    const char *sql = sqlite3_sql(statement);
    for (size_t i = 0; sql && i < FAILING_MAX; i++) {
        if (failing[i].sql && strcmp(sql, failing[i].sql) == 0 &&
            atomic_fetch_sub(&failing[i].times, 1) > 0)
            return failing[i].code;
    }
    return real(statement);
}

extern void __gcov_dump(void) __attribute__((weak));

void abort(void)
{
    if (__gcov_dump)
        __gcov_dump();
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGABRT);
    signal(SIGABRT, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL); /* the store's threads block all */
    raise(SIGABRT);
    _exit(1);
}

static void fail_next(size_t at, const char *sql, int code)
{
    failing[at].sql = sql;
    failing[at].code = code;
    atomic_store(&failing[at].times, 1);
}

static int forget_failures(void **state)
{
    memset(failing, 0, sizeof failing);
    return cleanup_test(state);
}

/* ---- Transactions ---------------------------------------------------------------------------- */

static void expect_both_fail_and_work_again(struct bench *b)
{
    struct store_op *one = op_grant("one", 1, 1, HOLDERS(1));
    struct store_op *two = op_grant("two", 1, 1, HOLDERS(1));
    bench_submit(b, one);
    bench_wait(b);
    assert_int_equal(one->status, FG_STORE_UNAVAILABLE);
    assert_int_equal(sql_number(b, "SELECT count(*) FROM leases"), 0);
    assert_int_equal(sql_number(b, "SELECT count(*) FROM ledger"), 0);
    expect_op(b, two, FG_OK);
    expect_op(b, op_grant("one", 1, 1, HOLDERS(1)), FG_OK);
    assert_int_equal(sql_number(b, "SELECT max(seq) FROM ledger"), 2);
}

static void a_transaction_that_cannot_begin_fails_its_ops(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    fail_next(0, "BEGIN IMMEDIATE", SQLITE_BUSY);
    expect_both_fail_and_work_again(b);
}

static void a_commit_that_fails_is_rolled_back(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    fail_next(0, "COMMIT", SQLITE_BUSY);
    expect_both_fail_and_work_again(b);
}

/* Of three ops of one batch the first fails, so that each of the others gets a savepoint; the
 * second cannot have one. */
static void an_op_that_fails_or_cannot_begin_changes_nothing(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct store_op *before = op_grant("before", 1, 1, HOLDERS(1));
    struct store_op *fails = op_grant("fails", 1, 1, HOLDERS(1));
    struct store_op *cannot_begin = op_grant("cannot begin", 1, 1, HOLDERS(1));
    struct store_op *works = op_grant("works", 1, 1, HOLDERS(1));
    disk_hold();
    bench_submit(b, before);
    assert_true(disk_await_held());
    fail_next(0, statement_texts[SQL_LEASE_INSERT], SQLITE_NOMEM);
    fail_next(1, "SAVEPOINT op", SQLITE_NOMEM);
    bench_submit(b, fails);
    bench_submit(b, cannot_begin);
    bench_submit(b, works);
    disk_release();
    bench_wait(b);
    assert_int_equal(before->status, FG_OK);
    assert_int_equal(fails->status, FG_STORE_UNAVAILABLE);
    assert_int_equal(cannot_begin->status, FG_STORE_UNAVAILABLE);
    assert_int_equal(works->status, FG_OK);
    assert_int_equal(sql_number(b, "SELECT count(*) FROM resources"), 2);
    assert_int_equal(sql_number(b, "SELECT count(*) FROM leases"), 2);
    assert_int_equal(sql_number(b, "SELECT max(seq) FROM ledger"), 2);
    expect_op(b, op_grant("fails", 1, 1, HOLDERS(1)), FG_OK);
    expect_op(b, op_grant("cannot begin", 1, 1, HOLDERS(1)), FG_OK);
    assert_int_equal(sql_number(b, "SELECT max(seq) FROM ledger"), 4);
}

static void *release_later(void *arg)
{
    (void)arg;
    usleep(100000);
    disk_release();
    return NULL;
}

static void closing_in_the_middle_of_a_commit_finishes_what_is_queued(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct store_op *committing = op_grant("one", 1, 1, HOLDERS(1));
    struct store_op *queued = op_grant("two", 1, 1, HOLDERS(1));
    pthread_t later;
    disk_hold();
    bench_submit(b, committing);
    assert_true(disk_await_held());
    bench_submit(b, queued);
    assert_int_equal(pthread_create(&later, NULL, release_later, NULL), 0);
    bench_close(b);
    pthread_join(later, NULL);
    assert_int_equal(committing->status, FG_OK);
    assert_int_equal(queued->status, FG_OK);
}

/* ---- Where going on would be worse ----------------------------------------------------------- */

/* Runs `deed` in a process of its own, which it has to end by abort(). */
static void expect_abort(const char *dir, void (*deed)(struct bench *b))
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        deed(bench_open(dir, NULL));
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void neither_commit_nor_roll_back(struct bench *b)
{
    fail_next(0, "COMMIT", SQLITE_BUSY);
    fail_next(1, "ROLLBACK", SQLITE_BUSY);
    bench_submit(b, op_grant("r", 1, 1, HOLDERS(1)));
    bench_wait(b);
}

static void a_transaction_that_can_neither_end_stops_the_process(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    expect_abort(dir, neither_commit_nor_roll_back);
    struct bench *b = bench_open(dir, NULL);
    assert_int_equal(sql_number(b, "SELECT count(*) FROM leases"), 0);
    expect_op(b, op_grant("r", 1, 1, HOLDERS(1)), FG_OK);
}

static void make_more_live_than_can_be(struct bench *b)
{
    expect_op(b, op_grant("r", 1, 1, HOLDERS(1)), FG_OK);
    sql_run(b, "WITH RECURSIVE n(t) AS (VALUES (2) UNION ALL SELECT t + 1 FROM n WHERE t < 1001)"
               " INSERT INTO leases (resource_id, token, secret, ttl_ms, lease_limit,"
               " acquired_at_ms, waited_ms, acquired_boot_ms, deadline_boot_ms)"
               " SELECT 1, t, zeroblob(16), 1, 1, 1, 0, 1, 1 FROM n");
    bench_submit(b, op_grant("r", 1002, 1, HOLDERS(1002)));
    bench_wait(b);
}

static void an_invariant_that_does_not_hold_stops_the_process(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    expect_abort(dir, make_more_live_than_can_be);
    struct bench *b = bench_open(dir, NULL);
    assert_int_equal(sql_number(b, "SELECT mark FROM resources"), 1);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, NULL, forget_failures)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_transaction_that_cannot_begin_fails_its_ops),
        TEST(a_commit_that_fails_is_rolled_back),
        TEST(an_op_that_fails_or_cannot_begin_changes_nothing),
        TEST(closing_in_the_middle_of_a_commit_finishes_what_is_queued),
        TEST(a_transaction_that_can_neither_end_stops_the_process),
        TEST(an_invariant_that_does_not_hold_stops_the_process),
    };
    return cmocka_run_group_tests_name("writer", tests, NULL, NULL);
}
