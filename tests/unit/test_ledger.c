/* test_ledger.c - the ledger: what is written, how much of it, and how it is pruned. */
#include "storage/store.h"

#include "gateway/clock.h"

#include "tests/support/cleanup.h"
#include "tests/support/disk.h"
#include "tests/support/ops.h"
#include "tests/support/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000, DAY_MS = 86400000, REFUSALS_A_SECOND = 100 };

/* Submits `count` writes with a token that was never granted, all at once. */
static void refuse_many(struct bench *b, const char *resource, int count)
{
    for (int i = 0; i < count; i++)
        bench_submit(b, op_put(resource, "k", 9000, "v"));
    bench_wait(b);
}

static int64_t rows_of(const struct bench *b, enum ledger_kind kind)
{
    return sql_number(b, "SELECT count(*) FROM ledger WHERE kind = %d", kind);
}

/* Refusals that are told of, as a row or as part of a count. */
static int64_t refusals_told(const struct bench *b)
{
    return rows_of(b, LEDGER_REFUSE) +
           sql_number(b, "SELECT coalesce(sum(count), 0) FROM ledger WHERE kind = %d",
                      LEDGER_REFUSED_DROPPED);
}

/* Everything that was refused since `start_ms` is told of in the end, and no second has had more
 * rows than its share. */
static void expect_told(const struct bench *b, int64_t refusals, long long start_ms)
{
    int64_t seconds = (now_ms() - start_ms) / 1000 + 2; /* that were at least touched */
    assert_true(EVENTUALLY(refusals_told(b) == refusals, PATIENCE_MS));
    assert_in_range(rows_of(b, LEDGER_REFUSE), 1, seconds * REFUSALS_A_SECOND);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void a_hundred_refusals_are_all_written(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    refuse_many(b, "r", REFUSALS_A_SECOND);
    assert_int_equal(rows_of(b, LEDGER_REFUSE), REFUSALS_A_SECOND);
    assert_int_equal(rows_of(b, LEDGER_REFUSED_DROPPED), 0);
}

static void more_are_counted_and_the_sum_is_right(void **state)
{
    (void)state;
    enum { REFUSALS = 1000 };
    struct bench *b = bench_open(NULL, NULL);
    int64_t id = grant(b, "r", 1).resource_id;
    long long start_ms = now_ms();
    refuse_many(b, "r", REFUSALS);
    expect_told(b, REFUSALS, start_ms);
    assert_string_equal(sql_text(b,
                                 "SELECT DISTINCT resource_id, token, key, code FROM ledger"
                                 " WHERE kind = %d",
                                 LEDGER_REFUSED_DROPPED),
                        test_printf("%lld|-|-|-", (long long)id));
    /* All seconds are counted apart: the next refusal is written again. */
    int64_t rows = rows_of(b, LEDGER_REFUSE);
    refuse_many(b, "r", 1);
    assert_int_equal(rows_of(b, LEDGER_REFUSE), rows + 1);
}

static void what_was_accepted_is_written_whatever_was_refused(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    refuse_many(b, "r", 3 * REFUSALS_A_SECOND);
    for (int i = 0; i < 200; i++)
        bench_submit(b, op_put("r", "k", 1, "v"));
    bench_wait(b);
    assert_int_equal(rows_of(b, LEDGER_WRITE), 200);
}

static void counts_are_kept_apart_by_resource_as_far_as_it_goes(void **state)
{
    (void)state;
    enum { RESOURCES = 30, EACH = 20 };
    struct bench *b = bench_open(NULL, NULL);
    for (int i = 0; i < RESOURCES; i++)
        grant(b, test_printf("r%d", i), 1);
    long long start_ms = now_ms();
    refuse_many(b, "r0", REFUSALS_A_SECOND);
    for (int i = 0; i < RESOURCES; i++)
        refuse_many(b, test_printf("r%d", i), EACH);
    expect_told(b, REFUSALS_A_SECOND + RESOURCES * EACH, start_ms);
    /* The counts of one second fill 16 rows at most; none is wrong about its resource. */
    assert_int_equal(sql_number(b,
                                "SELECT count(*) FROM (SELECT resource_id, sum(count) AS n"
                                " FROM ledger WHERE kind IN (%d, %d) AND resource_id > 1"
                                " GROUP BY resource_id HAVING n > %d)",
                                LEDGER_REFUSE, LEDGER_REFUSED_DROPPED, EACH),
                     0);
}

static void refusals_of_unknown_resources_are_told_with_their_name(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    refuse_many(b, "nobody", 2);
    assert_string_equal(sql_text(b, "SELECT resource_id, resource, token, key, code FROM ledger"),
                        "-|nobody|9000|k|fencing_token_not_issued "
                        "-|nobody|9000|k|fencing_token_not_issued");
    long long start_ms = now_ms();
    refuse_many(b, "nobody", 300);
    expect_told(b, 302, start_ms - 1000);
}

/* Two times over: what a failed batch counted is given back. */
static void a_failed_batch_counts_nothing(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    long long start_ms = now_ms();
    disk_fill(true);
    refuse_many(b, "r", 150);
    disk_fill(false);
    refuse_many(b, "r", 150);
    expect_told(b, 150, start_ms);
    assert_int_equal(sql_number(b, "SELECT max(seq) - count(*) FROM ledger"), 0);
}

/* ---- Pruning --------------------------------------------------------------------------------- */

static struct store_options limits(int64_t max_age_ms, int64_t max_rows, int64_t memory_ms)
{
    return (struct store_options){
        .ledger_max_age_ms = max_age_ms, .ledger_max_rows = max_rows, .lease_memory_ms = memory_ms};
}

static const char *bounds(const struct bench *b)
{
    return sql_text(b, "SELECT min(seq), max(seq), count(*) FROM ledger");
}

static bool bounds_are(const struct bench *b, int64_t first, int64_t last)
{
    const char *wanted = test_printf("%lld|%lld|%lld", (long long)first, (long long)last,
                                     (long long)(last - first + 1));
    return strcmp(bounds(b), wanted) == 0;
}

/* A closed store with `count` ledger rows that are `age_ms` old. */
static struct bench *bench_with_rows(int count, int64_t age_ms)
{
    struct bench *b = bench_open(NULL, NULL);
    bench_close(b);
    const char *insert =
        test_printf("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
                    " INSERT INTO ledger (seq, at_ms, kind) SELECT i, %lld, %d FROM n",
                    count, (long long)(clock_wall_ms() - age_ms), LEDGER_CONFIG);
    assert_int_equal(sql_run(b, insert), 0);
    return b;
}

static void the_oldest_rows_go_when_there_are_too_many(void **state)
{
    (void)state;
    struct store_options options = limits(DAY_MS, 50, DAY_MS);
    struct bench *b = bench_open(NULL, &options);
    grant(b, "r", 1);
    for (int i = 0; i < 199; i++)
        bench_submit(b, op_put("r", "k", 1, "v"));
    bench_wait(b);
    assert_true(EVENTUALLY(bounds_are(b, 151, 200), PATIENCE_MS));
    expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
    assert_true(EVENTUALLY(bounds_are(b, 152, 201), PATIENCE_MS));
    /* Marks and live sets do not depend on it. */
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");
    bench_reopen(b, &options);
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");
    assert_int_equal(expect_op(b, op_put("r", "k", 1, "v"), FG_OK)->write.version, 201);
}

static void old_rows_go_and_young_ones_stay(void **state)
{
    (void)state;
    struct store_options options = limits(DAY_MS, 1000000, DAY_MS);
    struct bench *b = bench_with_rows(120, 2 * DAY_MS);
    assert_int_equal(sql_run(b, "UPDATE ledger SET at_ms = at_ms + 172800000 WHERE seq > 100"), 0);
    bench_reopen(b, &options);
    assert_true(EVENTUALLY(bounds_are(b, 101, 120), PATIENCE_MS));
    grant(b, "r", 1);
    sleep_ms(slow_ms(1200)); /* a whole interval: nothing more goes */
    assert_true(bounds_are(b, 101, 121));
}

static void the_newest_row_stays_so_that_the_numbers_go_on(void **state)
{
    (void)state;
    struct store_options options = limits(DAY_MS, 1000000, DAY_MS);
    struct bench *b = bench_with_rows(500, 2 * DAY_MS);
    bench_reopen(b, &options);
    assert_true(EVENTUALLY(bounds_are(b, 500, 500), PATIENCE_MS));
    bench_reopen(b, &options);
    grant(b, "r", 1);
    assert_int_equal(sql_number(b, "SELECT max(seq) FROM ledger"), 501);
    assert_true(EVENTUALLY(bounds_are(b, 501, 501), PATIENCE_MS));
    bench_reopen(b, &options);
    expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
    assert_int_equal(sql_number(b, "SELECT max(seq) FROM ledger"), 502);
}

/* Each commit of the pruning is held (disk.h): what is durable between two of them is looked at. */
static void pruning_goes_in_small_steps(struct store_options options, struct bench *b, int rows)
{
    int64_t first = 1;
    int steps = 0;
    disk_hold();
    bench_reopen(b, &options);
    while (first < rows) {
        assert_true(disk_await_held());
        int64_t now = sql_number(b, "SELECT min(seq) FROM ledger");
        assert_in_range(now - first, 0, 2000);
        first = now;
        steps++;
        if (first >= rows - 2000) /* the step that is held is the last */
            break;
        disk_step();
    }
    disk_release();
    assert_in_range(steps, rows / 2000, 1000);
    assert_true(EVENTUALLY(bounds_are(b, rows, rows), PATIENCE_MS));
}

static void pruning_by_age_goes_in_small_steps(void **state)
{
    (void)state;
    enum { ROWS = 9000 };
    pruning_goes_in_small_steps(limits(DAY_MS, 1000000, DAY_MS), bench_with_rows(ROWS, 2 * DAY_MS),
                                ROWS);
}

static void pruning_by_number_goes_in_small_steps(void **state)
{
    (void)state;
    enum { ROWS = 9000 };
    pruning_goes_in_small_steps(limits(DAY_MS, 1, DAY_MS), bench_with_rows(ROWS, 1000), ROWS);
}

static void writes_come_in_between_the_steps(void **state)
{
    (void)state;
    enum { ROWS = 20000 };
    struct store_options options = limits(DAY_MS, 1000000, DAY_MS);
    struct bench *b = bench_with_rows(ROWS, 2 * DAY_MS);
    disk_hold();
    bench_reopen(b, &options);
    assert_true(disk_await_held()); /* in the first step */
    struct store_op *op = op_grant("r", 1, 1, HOLDERS(1));
    bench_submit(b, op);
    for (int i = 0; i < 4 && store_in_flight(b->store) > 0; i++) {
        disk_step();
        assert_true(disk_await_held());
        store_collect(b->store);
    }
    expect_status_of(op, FG_OK);
    assert_in_range(sql_number(b, "SELECT count(*) FROM ledger"), ROWS / 2, ROWS);
    disk_release();
    assert_true(EVENTUALLY(bounds_are(b, ROWS + 1, ROWS + 1), PATIENCE_MS));
}

/* ---- Ended leases ---------------------------------------------------------------------------- */

static void ended_leases_are_forgotten_and_live_ones_never(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key old = grant(b, "r", 1), young = grant(b, "s", 1), live = grant(b, "t", 1);
    expect_op(b, op_release(old), FG_OK);
    expect_op(b, op_release(young), FG_OK);
    bench_close(b);
    const char *age = test_printf("UPDATE leases SET acquired_at_ms = 0, ended_at_ms ="
                                  " CASE WHEN state <> 0 THEN ended_at_ms - %d END"
                                  " WHERE resource_id <> %lld",
                                  2 * DAY_MS, (long long)young.resource_id);
    assert_int_equal(sql_run(b, age), 0);
    struct store_options options = limits(DAY_MS, 1000000, DAY_MS);
    bench_reopen(b, &options);
    assert_true(EVENTUALLY(sql_number(b, "SELECT count(*) FROM leases") == 2, PATIENCE_MS));
    expect_op(b, op_release(old), FG_LEASE_NOT_FOUND);
    assert_true(expect_op(b, op_release(young), FG_OK)->release.again);
    struct store_op *op = expect_op(b, op_put("r", "k", 1, "v"), FG_STALE_FENCING_TOKEN);
    assert_int_equal(op->write.lease_state, LEASE_LIVE); /* how it ended is not known any more */
    expect_op(b, op_put("t", "k", 1, "v"), FG_OK);
    expect_op(b, op_release(live), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live");
    grant(b, "r", 2);
}

static void a_lease_may_be_forgotten_as_soon_as_it_has_ended(void **state)
{
    (void)state;
    struct store_options options = limits(DAY_MS, 1000000, 1);
    struct bench *b = bench_open(NULL, &options);
    for (int64_t token = 1; token <= 5; token++)
        grant(b, "r", token);
    assert_true(EVENTUALLY(sql_number(b, "SELECT count(*) FROM leases") == 1, PATIENCE_MS));
    assert_string_equal(fence_text(b, "r"), "mark 5, limit 1, live 5");
}

static void thousands_of_ended_leases_are_forgotten_in_steps(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 5000);
    bench_close(b);
    const char *insert =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
        " INSERT INTO leases (resource_id, token, secret, ttl_ms, lease_limit, state,"
        " acquired_at_ms, waited_ms, acquired_boot_ms, deadline_boot_ms, ended_at_ms)"
        " SELECT 1, i, zeroblob(16), 1, 1, 1, 0, 0, 0, 0, i FROM n";
    assert_int_equal(sql_run(b, insert), 0);
    struct store_options options = limits(DAY_MS, 1000000, DAY_MS);
    int64_t left = 3001;
    disk_hold();
    bench_reopen(b, &options);
    for (; left == 3001; left = sql_number(b, "SELECT count(*) FROM leases")) {
        assert_true(disk_await_held());
        disk_step();
    }
    assert_in_range(left, 2000, 3000);
    disk_release();
    assert_true(EVENTUALLY(sql_number(b, "SELECT count(*) FROM leases") == 1, PATIENCE_MS));
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void every_kind_has_a_name(void **state)
{
    (void)state;
    for (int kind = LEDGER_GRANT; kind <= LEDGER_CONFIG; kind++)
        assert_int_equal(ledger_kind_find(ledger_kind_name((enum ledger_kind)kind)), kind);
    assert_string_equal(ledger_kind_name(LEDGER_REFUSED_DROPPED), "refused_dropped");
    const char *const none[] = {"", "Grant", "grants", "gran", "refused-dropped", "0", " grant"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(ledger_kind_find(none[i]), 0);
}

static void a_history_is_read_by_kind_and_page(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key lease = grant(b, "r", 1);
    grant(b, "other", 1);
    for (int i = 0; i < 3; i++)
        expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
    expect_op(b, op_put("r", "k", 7, "v"), FG_FENCING_TOKEN_NOT_ISSUED);
    expect_op(b, op_release(lease), FG_OK);

    struct store_op *op = expect_op(b, op_scan(SCAN_LEDGER, "r", 1000), FG_OK);
    const enum ledger_kind kinds[] = {LEDGER_GRANT, LEDGER_WRITE,  LEDGER_WRITE,
                                      LEDGER_WRITE, LEDGER_REFUSE, LEDGER_RELEASE};
    assert_int_equal(op->scan.count, sizeof kinds / sizeof *kinds);
    assert_false(op->scan.more);
    for (size_t i = 0; i < op->scan.count; i++) {
        assert_int_equal(op->scan.ledger[i].kind, kinds[i]);
        assert_string_equal(op->scan.ledger[i].resource, "r");
        assert_true(i == 0 || op->scan.ledger[i].seq > op->scan.ledger[i - 1].seq);
        assert_in_range(op->scan.ledger[i].at_ms, 1, clock_wall_ms());
    }
    assert_string_equal(op->scan.ledger[4].code, "fencing_token_not_issued");
    assert_int_equal(op->scan.ledger[4].token, 7);

    op = op_scan(SCAN_LEDGER, "r", 2);
    op->scan.ledger_kind = LEDGER_WRITE;
    expect_op(b, op, FG_OK);
    assert_int_equal(op->scan.count, 2);
    assert_true(op->scan.more);
    struct store_op *next = op_scan(SCAN_LEDGER, "r", 2);
    next->scan.ledger_kind = LEDGER_WRITE;
    next->scan.after_number = op->scan.ledger[1].seq;
    expect_op(b, next, FG_OK);
    assert_int_equal(next->scan.count, 1);
    assert_false(next->scan.more);
    assert_int_equal(next->scan.ledger[0].version, 3);
    expect_op(b, op_scan(SCAN_LEDGER, "none", 2), FG_RESOURCE_NOT_FOUND);
}

/* All pages of r's history after a row: how many rows, and that they come in order. */
static int64_t page_through(struct bench *b, int64_t after, size_t page, int kind)
{
    int64_t count = 0;
    for (bool more = true; more;) {
        struct store_op *op = op_scan(SCAN_LEDGER, "r", page);
        op->scan.after_number = after;
        op->scan.ledger_kind = kind;
        expect_op(b, op, FG_OK);
        more = op->scan.more;
        assert_true(!more || op->scan.count == page);
        for (size_t i = 0; i < op->scan.count; i++) {
            assert_true(op->scan.ledger[i].seq > after);
            after = op->scan.ledger[i].seq;
        }
        count += (int64_t)op->scan.count;
    }
    return count;
}

static int64_t count_rows(const struct bench *b, int64_t after, const char *which)
{
    return sql_number(b,
                      "SELECT count(*) FROM ledger NOT INDEXED"
                      " WHERE resource_id = 1 AND seq > %lld AND %s",
                      (long long)after, which);
}

/* The index has blocks of 4096 rows: every third row is r's, but for a stretch without any, and
 * the oldest are gone. */
static void a_history_goes_on_from_block_to_block(void **state)
{
    enum { BLOCK = 4096 };
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    bench_close(b);
    const char *fill =
        "WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)"
        " INSERT INTO ledger (seq, at_ms, kind, resource_id)"
        " SELECT i, 1000000 * i, 1 + i % 10, 1 + (i % 3 > 0 OR i BETWEEN 9000 AND 29000) FROM n;"
        " DELETE FROM ledger WHERE seq < 1500";
    assert_int_equal(sql_run(b, fill), 0);
    bench_reopen(b, NULL);
    const int64_t starts[] = {0,         1499,          1500,  BLOCK - 1, BLOCK,    BLOCK + 1,
                              2 * BLOCK, 2 * BLOCK - 1, 15000, 39999,     INT64_MAX};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        assert_int_equal(page_through(b, starts[i], 1000, 0), count_rows(b, starts[i], "1"));
        assert_int_equal(page_through(b, starts[i], 7, LEDGER_WRITE),
                         count_rows(b, starts[i], "kind = 6"));
    }
    assert_int_equal(sql_number(b, "SELECT count(*) FROM ledger"), 40000 - 1499);
}

#define TEST(function) cmocka_unit_test_teardown(function, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_hundred_refusals_are_all_written),
        TEST(more_are_counted_and_the_sum_is_right),
        TEST(what_was_accepted_is_written_whatever_was_refused),
        TEST(counts_are_kept_apart_by_resource_as_far_as_it_goes),
        TEST(refusals_of_unknown_resources_are_told_with_their_name),
        TEST(a_failed_batch_counts_nothing),
        TEST(the_oldest_rows_go_when_there_are_too_many),
        TEST(old_rows_go_and_young_ones_stay),
        TEST(the_newest_row_stays_so_that_the_numbers_go_on),
        TEST(pruning_by_age_goes_in_small_steps),
        TEST(pruning_by_number_goes_in_small_steps),
        TEST(writes_come_in_between_the_steps),
        TEST(ended_leases_are_forgotten_and_live_ones_never),
        TEST(a_lease_may_be_forgotten_as_soon_as_it_has_ended),
        TEST(thousands_of_ended_leases_are_forgotten_in_steps),
        TEST(every_kind_has_a_name),
        TEST(a_history_is_read_by_kind_and_page),
        TEST(a_history_goes_on_from_block_to_block),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
