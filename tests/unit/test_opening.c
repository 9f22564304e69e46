/* test_opening.c - opening a store: what is there afterwards, and files that are not ours. */
#include "storage/store.h"

#include "tests/support/cleanup.h"
#include "tests/support/ops.h"
#include "tests/support/process.h"
#include "tests/support/tempdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

static struct bench *open_with_lease(void)
{
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    return b;
}

/* ---- A store of ours ------------------------------------------------------------------------- */

static void everything_is_there_after_reopening(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    struct lease_key other = lease_of(expect_op(b, op_grant("s", 4, 3, HOLDERS(4)), FG_OK));
    expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
    expect_op(b, op_put("r", "k", 9, "v"), FG_FENCING_TOKEN_NOT_ISSUED);
    const char *uuid = test_printf("%s", store_uuid(b->store));
    assert_int_equal(strlen(uuid), STORE_UUID_BYTES - 1);
    const char *before = sql_everything(b);
    bench_reopen(b, NULL);
    assert_string_equal(sql_everything(b), before);
    assert_string_equal(store_uuid(b->store), uuid);
    assert_string_equal(fence_text(b, "s"), "mark 4, limit 3, live 4");
    expect_op(b, op_put("r", "k", 1, "w"), FG_OK);
    expect_op(b, op_release(other), FG_OK);
    struct bench *another = bench_open(NULL, NULL);
    assert_string_not_equal(store_uuid(another->store), uuid);
}

/* CLOCK_BOOTTIME begins anew with every boot: as if the machine had been up for an hour more when
 * the leases were granted. */
static void deadlines_are_carried_over_a_reboot(void **state)
{
    (void)state;
    enum { HOUR_MS = 3600000 };
    struct bench *b = open_with_lease();
    struct lease_key released = grant(b, "s", 1);
    expect_op(b, op_release(released), FG_OK);
    int64_t deadline = sql_number(b, "SELECT deadline_boot_ms FROM leases WHERE state = 0");
    int64_t ended = sql_number(b, "SELECT deadline_boot_ms FROM leases WHERE state = 1");
    bench_close(b);
    assert_int_equal(sql_run(b, "UPDATE meta SET value = value - 3600000"
                                " WHERE name = 'wall_minus_boot'"),
                     0);
    bench_reopen(b, NULL);
    int64_t moved = sql_number(b, "SELECT deadline_boot_ms FROM leases WHERE state = 0");
    assert_in_range(deadline - moved, HOUR_MS - 2000, HOUR_MS + 2000);
    assert_int_equal(sql_number(b, "SELECT deadline_boot_ms FROM leases WHERE state = 1"), ended);
    bench_reopen(b, NULL); /* within one boot they stay */
    assert_int_equal(sql_number(b, "SELECT deadline_boot_ms FROM leases WHERE state = 0"), moved);
}

/* ---- What is no store of ours -----------------------------------------------------------------
 */

static const char *database_in(const char *dir)
{
    return test_printf("%s/fencegate.db", dir);
}

static void write_file(const char *path, const char *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

/* Creates a database with SQL, by nobody we know. */
static const char *foreign(const char *sql)
{
    const char *dir = tempdir_new();
    sqlite3 *handle;
    assert_int_equal(sqlite3_open(database_in(dir), &handle), SQLITE_OK);
    assert_int_equal(sqlite3_exec(handle, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(handle);
    return dir;
}

static void a_foreign_database_is_refused(void **state)
{
    (void)state;
    const char *dir = foreign("CREATE TABLE precious (x); INSERT INTO precious VALUES (1)");
    assert_string_equal(bench_refusal(dir), "the database is not a fencegate store");
    dir = foreign("PRAGMA application_id = 7");
    assert_string_equal(bench_refusal(dir), "the database is not a fencegate store");
    dir = foreign("PRAGMA user_version = 1");
    assert_string_equal(bench_refusal(dir), "the database is not a fencegate store");
}

static void a_newer_store_is_refused_and_left_as_it_is(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    bench_close(b);
    assert_int_equal(sql_run(b, "PRAGMA user_version = 3"), 0);
    const char *before = sql_everything(b);
    assert_non_null(strstr(bench_refusal(b->dir), "schema version 3"));
    assert_string_equal(sql_everything(b), before);
    assert_int_equal(sql_run(b, "PRAGMA user_version = 2"), 0);
    bench_reopen(b, NULL);
    expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
}

/* ---- What an older fencegate has left ---------------------------------------------------------
 */

#define TO_VERSION_1                                       \
    "DROP INDEX ledger_by_block; PRAGMA user_version = 1;" \
    "CREATE INDEX ledger_by_resource ON ledger (resource_id, seq) WHERE resource_id IS NOT NULL"

static void a_store_of_version_1_is_migrated_and_loses_nothing(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    for (int i = 0; i < 3; i++)
        expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
    bench_close(b);
    const char *schema = sql_text(b, "SELECT group_concat(sql) FROM sqlite_schema");
    const char *rows = sql_text(b, "SELECT group_concat(seq || kind || version) FROM ledger");
    assert_int_equal(sql_run(b, TO_VERSION_1), 0);
    bench_reopen(b, NULL);
    assert_int_equal(sql_number(b, "PRAGMA user_version"), 2);
    assert_string_equal(sql_text(b, "SELECT group_concat(sql) FROM sqlite_schema"), schema);
    assert_string_equal(sql_text(b, "SELECT group_concat(seq || kind || version) FROM ledger"),
                        rows);
    struct store_op *history = expect_op(b, op_scan(SCAN_LEDGER, "r", 100), FG_OK);
    assert_int_equal(history->scan.count, 4);
    expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
}

static void a_store_that_cannot_be_migrated_is_refused_and_left_as_it_is(void **state)
{
    (void)state;
    struct bench *b = open_with_lease();
    bench_close(b);
    /* The step's first half can be done, its second cannot. */
    assert_int_equal(sql_run(b, TO_VERSION_1 "; CREATE TABLE ledger_by_block (x)"), 0);
    const char *before = sql_everything(b);
    assert_non_null(strstr(bench_refusal(b->dir), "cannot migrate the database"));
    assert_string_equal(sql_everything(b), before);
    assert_int_equal(sql_run(b, "DROP TABLE ledger_by_block"), 0);
    bench_reopen(b, NULL);
    expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
}

static void a_store_without_its_tables_is_refused(void **state)
{
    (void)state;
    const char *const damage[] = {
        "DROP TABLE records",
        "DROP TABLE ledger",
        "DROP TABLE leases",
        "DROP TABLE meta",
        "DELETE FROM meta WHERE name = 'uuid'",
        "DELETE FROM meta WHERE name = 'base'",
        "DELETE FROM meta WHERE name = 'wall_minus_boot'",
        "ALTER TABLE resources RENAME COLUMN mark TO highest",
    };
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        struct bench *b = open_with_lease();
        bench_close(b);
        assert_int_equal(sql_run(b, damage[i]), 0);
        bench_refusal(b->dir);
    }
}

static void a_truncated_store_is_refused(void **state)
{
    enum { BIG = 1 << 18 };
    (void)state;
    struct bench *b = open_with_lease();
    char *big = test_alloc(BIG + 1);
    memset(big, 'x', BIG);
    expect_op(b, op_put("r", "k", 1, big), FG_OK);
    bench_close(b);
    struct stat file;
    assert_int_equal(stat(database_in(b->dir), &file), 0);
    char *whole = test_alloc((size_t)file.st_size);
    int fd = open(database_in(b->dir), O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, whole, (size_t)file.st_size), file.st_size);
    close(fd);
    const off_t sizes[] = {file.st_size - 4096, file.st_size / 2, 8192, 4096, 100, 2};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *dir = tempdir_new();
        write_file(database_in(dir), whole, (size_t)sizes[i]);
        bench_refusal(dir);
        struct stat after;
        assert_int_equal(stat(database_in(dir), &after), 0);
        assert_int_equal(after.st_size, sizes[i]);
    }
    const char *dir = tempdir_new();
    write_file(database_in(dir), whole, (size_t)file.st_size);
    assert_string_equal(fence_text(bench_open(dir, NULL), "r"), "mark 1, limit 1, live 1");
}

static void what_is_no_database_is_refused_and_left_as_it_is(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    char *text = test_alloc(20001);
    memset(text, 't', 20000);
    write_file(database_in(dir), text, 20000);
    bench_refusal(dir);
    char *after = test_alloc(20001);
    int fd = open(database_in(dir), O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, after, 20001), 20000);
    close(fd);
    assert_memory_equal(after, text, 20000);

    dir = tempdir_new();
    assert_int_equal(mkdir(database_in(dir), 0700), 0);
    bench_refusal(dir);
    dir = tempdir_new();
    assert_int_equal(symlink("/dev/null", database_in(dir)), 0);
    bench_refusal(dir);
    bench_refusal(test_printf("%s/nowhere", dir));
    bench_refusal(test_printf("%s/%05000d", dir, 0));
}

/* So a crash in the middle of the first start leaves it. */
static void an_empty_file_becomes_a_store(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    write_file(database_in(dir), "", 0);
    grant(bench_open(dir, NULL), "r", 1);
}

/* ---- A store that was lost --------------------------------------------------------------------
 */

static const char database_lost[] = "the database is empty or gone, but there has been one here";

static struct bench *closed_store(void)
{
    struct bench *b = open_with_lease();
    bench_close(b);
    return b;
}

/* A new one would begin with every mark at 0. */
static void a_lost_database_is_never_replaced_by_a_new_one(void **state)
{
    (void)state;
    struct bench *b = closed_store();
    assert_int_equal(unlink(database_in(b->dir)), 0);
    for (int i = 0; i < 3; i++)
        assert_string_equal(bench_refusal(b->dir), database_lost);
}

static void nor_is_an_emptied_one(void **state)
{
    (void)state;
    struct bench *b = closed_store();
    assert_int_equal(truncate(database_in(b->dir), 0), 0);
    assert_string_equal(bench_refusal(b->dir), database_lost);
}

static void the_database_of_another_store_is_refused(void **state)
{
    (void)state;
    struct bench *a = closed_store(), *b = closed_store();
    const char *aside = test_printf("%s/aside", a->dir);
    assert_int_equal(rename(database_in(a->dir), aside), 0);
    assert_int_equal(rename(database_in(b->dir), database_in(a->dir)), 0);
    assert_non_null(strstr(bench_refusal(a->dir), "but store.uuid says"));
    assert_int_equal(rename(aside, database_in(a->dir)), 0);
    bench_reopen(a, NULL);
    assert_string_equal(fence_text(a, "r"), "mark 1, limit 1, live 1");
}

static void a_store_from_before_the_marker_gets_one(void **state)
{
    (void)state;
    struct bench *b = closed_store();
    const char *marker = test_printf("%s/store.uuid", b->dir);
    assert_int_equal(unlink(marker), 0);
    bench_reopen(b, NULL);
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");
    assert_int_equal(access(marker, R_OK), 0);
}

/* What is written into a file without a name is gone with the process: it is noticed soon. */
static void a_database_that_is_removed_under_us_ends_the_process(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct bench *b = bench_open(dir, NULL);
        grant(b, "r", 1);
        if (unlink(database_in(dir)) != 0)
            _exit(EX_OSERR);
        EVENTUALLY(!expect_op(b, op_put("r", "k", 1, "v"), FG_OK), PATIENCE_MS);
        _exit(EX_SOFTWARE); /* it goes on */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EX_IOERR);
}

#define TEST(function) cmocka_unit_test_teardown(function, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(everything_is_there_after_reopening),
        TEST(deadlines_are_carried_over_a_reboot),
        TEST(a_foreign_database_is_refused),
        TEST(a_newer_store_is_refused_and_left_as_it_is),
        TEST(a_store_of_version_1_is_migrated_and_loses_nothing),
        TEST(a_store_that_cannot_be_migrated_is_refused_and_left_as_it_is),
        TEST(a_store_without_its_tables_is_refused),
        TEST(a_truncated_store_is_refused),
        TEST(what_is_no_database_is_refused_and_left_as_it_is),
        TEST(an_empty_file_becomes_a_store),
        TEST(a_lost_database_is_never_replaced_by_a_new_one),
        TEST(nor_is_an_emptied_one),
        TEST(the_database_of_another_store_is_refused),
        TEST(a_store_from_before_the_marker_gets_one),
        TEST(a_database_that_is_removed_under_us_ends_the_process),
    };
    return cmocka_run_group_tests_name("opening", tests, NULL, NULL);
}
