/* test_operators.c - what an operator does, in the storage library by itself: revoking leases,
 * limits, and resources that are not fenced. */
#include "storage/store.h"

#include "gateway/clock.h"

#include "tests/support/cleanup.h"
#include "tests/support/ops.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Three leases of "r": 1 of ann, 2 of nobody, 3 of zoe. */
static void grant_three(struct bench *b)
{
    struct store_op *first = op_grant("r", 1, 3, HOLDERS(1));
    first->grant.owner = "ann";
    struct store_op *last = op_grant("r", 3, 3, HOLDERS(1, 2, 3));
    last->grant.owner = "zoe";
    expect_op(b, first, FG_OK);
    expect_op(b, op_grant("r", 2, 3, HOLDERS(1, 2)), FG_OK);
    expect_op(b, last, FG_OK);
}

/* "1 ann, 2 -" */
static const char *ended_text(const struct ended_leases *ended)
{
    const char *text = "";
    for (size_t i = 0; i < ended->count; i++) {
        struct lease_holder usual = holder_of(ended->pairs[i].token, ended->pairs[i].token, 0);
        assert_memory_equal(ended->pairs[i].secret, usual.pair.secret, LEASE_SECRET_BYTES);
        text = test_printf("%s%s%lld %s", text, i > 0 ? ", " : "", (long long)ended->pairs[i].token,
                           ended->owners[i] ? ended->owners[i] : "-");
    }
    return text;
}

/* "kind|token|owner|reason ..." of the last rows. */
static const char *last_rows(struct bench *b, int count)
{
    return sql_text(b,
                    "SELECT * FROM (SELECT kind, token, owner, reason FROM ledger"
                    " ORDER BY seq DESC LIMIT %d) ORDER BY 1, 2",
                    count);
}

static struct store_op *revoke(struct bench *b, int64_t token)
{
    return expect_op(b, op_revoke("r", token, "stuck"), FG_OK);
}

static void give_base(struct bench *b, const char *base)
{
    bench_close(b);
    const char *sql = test_printf("UPDATE meta SET value = %s WHERE name = 'base'", base);
    assert_int_equal(sql_run(b, sql), SQLITE_OK);
    bench_reopen(b, NULL);
}

/* ---- Revoking -------------------------------------------------------------------------------- */

static void all_live_leases_end_and_the_mark_rises(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant_three(b);
    int64_t before_ms = clock_wall_ms();
    struct store_op *op = revoke(b, 0);
    assert_string_equal(ended_text(&op->revoke.ended), "1 ann, 2 -, 3 zoe");
    assert_int_equal(op->revoke.mark, 4);
    assert_string_equal(fence_text(b, "r"), "mark 4, limit 3, live");
    assert_string_equal(last_rows(b, 3), "5|1|ann|stuck 5|2|-|stuck 5|3|zoe|stuck");
    assert_string_equal(sql_text(b,
                                 "SELECT state, reason, superseded_by, remaining_ms,"
                                 " held_ms >= 0, ended_at_ms >= %lld FROM leases",
                                 (long long)before_ms),
                        "3|stuck|-|-|1|1 3|stuck|-|-|1|1 3|stuck|-|-|1|1");
    assert_int_equal(sql_number(b,
                                "SELECT count(*) FROM ledger AS g JOIN leases AS l USING (token)"
                                " WHERE g.kind = %d AND g.ended_at_ms = l.ended_at_ms",
                                LEDGER_REVOKE),
                     3);
    bench_reopen(b, NULL);
    assert_string_equal(fence_text(b, "r"), "mark 4, limit 3, live");
    grant(b, "r", 5);
}

static void one_lease_ends_and_its_neighbours_go_on(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant_three(b);
    struct store_op *op = revoke(b, 2);
    assert_string_equal(ended_text(&op->revoke.ended), "2 -");
    assert_string_equal(fence_text(b, "r"), "mark 4, limit 3, live 1 3");
    expect_op(b, op_put("r", "k", 1, "older"), FG_OK);
    expect_op(b, op_put("r", "k", 3, "younger"), FG_OK);
    expect_op(b, op_put("r", "k", 2, "revoked"), FG_STALE_FENCING_TOKEN);
    /* Its place is free, and what was revoked does not come back with the next grant. */
    expect_op(b, op_grant("r", 5, 3, HOLDERS(1, 2, 3, 5)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 5, limit 3, live 1 3 5");
}

static void the_mark_rises_also_where_nothing_ends(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key lease = grant(b, "r", 1);
    expect_op(b, op_release(lease), FG_OK);
    /* Nobody live; released; skipped; never granted. */
    const int64_t tokens[] = {0, 1, 2, 1000, FENCING_TOKEN_MAX};
    for (int i = 0; i < 5; i++) {
        struct store_op *op = revoke(b, tokens[i]);
        assert_int_equal(op->revoke.ended.count, 0);
        assert_int_equal(op->revoke.mark, 2 + i);
        assert_string_equal(last_rows(b, 1), "5|-|-|stuck");
    }
    grant(b, "r", 7);
    assert_int_equal(revoke(b, 1)->revoke.ended.count, 0);
    assert_string_equal(fence_text(b, "r"), "mark 8, limit 1, live 7");
    expect_op(b, op_put("r", "k", 7, "v"), FG_OK);
}

static void a_grant_under_way_does_not_count(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    /* Redis has given 2 out, and its commit comes behind ours. */
    struct store_op *ops[] = {op_revoke("r", 0, "stuck"), op_grant("r", 2, 0, HOLDERS(2)),
                              op_grant("r", 3, 0, HOLDERS(3))};
    const enum fg_status outcomes[] = {FG_OK, FG_GRANT_CONTENDED, FG_OK};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        bench_submit(b, ops[i]);
    bench_wait(b);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        expect_status_of(ops[i], outcomes[i]);
    assert_string_equal(fence_text(b, "r"), "mark 3, limit 1, live 3");
    /* The same for one that nobody holds, and that is revoked by token. */
    expect_op(b, op_release(lease_of(ops[2])), FG_OK);
    revoke(b, 3);
    expect_op(b, op_grant("r", 4, 0, HOLDERS(4)), FG_GRANT_CONTENDED);
    expect_op(b, op_grant("r", 5, 0, HOLDERS(5)), FG_OK);
}

static void what_does_not_exist_cannot_be_revoked(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "other", 1);
    const char *before = sql_everything(b);
    expect_op(b, op_revoke("r", 0, "stuck"), FG_RESOURCE_NOT_FOUND);
    expect_op(b, op_revoke("r", 1, "stuck"), FG_RESOURCE_NOT_FOUND);
    assert_string_equal(sql_everything(b), before);
}

static void a_revoked_lease_is_told_why(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key lease = grant(b, "r", 1);
    revoke(b, 1);
    const char *before = sql_everything(b);
    struct store_op *op = expect_op(b, op_release(lease), FG_LEASE_REVOKED);
    assert_string_equal(op->release.row.reason, "stuck");
    expect_op(b, op_renewal(lease, TTL_MS, clock_boot_ms() + 2 * TTL_MS), FG_OK);
    assert_string_equal(sql_everything(b), before);

    op = expect_op(b, op_put("r", "k", 1, "v"), FG_STALE_FENCING_TOKEN);
    assert_int_equal(op->write.lease_state, LEASE_REVOKED);
    assert_true(op->write.ended_at_ms > 0);
    assert_int_equal(op->write.successor.token, 0);
    assert_int_equal(op->write.mark, 2);
    assert_string_equal(last_rows(b, 1), "8|1|-|revoked");
    struct arena arena = {0};
    struct lease_row row;
    struct lease_successor successor;
    assert_int_equal(store_read_lease(b->store, &lease, &arena, &row, &successor), FG_OK);
    assert_int_equal(row.state, LEASE_REVOKED);
    assert_string_equal(row.reason, "stuck");
    arena_free(&arena);
}

static void writes_before_it_count_and_writes_behind_it_do_not(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    struct store_op *ops[] = {op_put("r", "k", 1, "before"), op_revoke("r", 0, "stuck"),
                              op_put("r", "k", 1, "behind"), op_delete("r", "k", 1)};
    const enum fg_status outcomes[] = {FG_OK, FG_OK, FG_STALE_FENCING_TOKEN,
                                       FG_STALE_FENCING_TOKEN};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        bench_submit(b, ops[i]);
    bench_wait(b);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        expect_status_of(ops[i], outcomes[i]);
    assert_string_equal(sql_text(b, "SELECT version, value FROM records"), "1|before");
}

static void the_last_token_can_be_revoked(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", FENCING_TOKEN_MAX);
    struct store_op *op = revoke(b, 0);
    assert_int_equal(op->revoke.ended.count, 1);
    assert_int_equal(op->revoke.mark, FENCING_TOKEN_MAX); /* nothing is above it */
    assert_int_equal(revoke(b, 0)->revoke.mark, FENCING_TOKEN_MAX);
    expect_op(b, op_put("r", "k", FENCING_TOKEN_MAX, "v"), FG_STALE_FENCING_TOKEN);
    expect_op(b, op_grant("r", FENCING_TOKEN_MAX, 0, HOLDERS(FENCING_TOKEN_MAX)),
              FG_GRANT_CONTENDED);

    grant(b, "s", FENCING_TOKEN_MAX);
    op = expect_op(b, op_configure("s", 0, FENCE_OFF), FG_OK);
    assert_int_equal(op->configure.ended.count, 1);
    assert_int_equal(op->configure.mark, FENCING_TOKEN_MAX);
}

static void a_thousand_leases_end_at_once(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    expect_op(b, op_configure("r", LIMIT_MAX, FENCE_KEEP), FG_OK);
    int64_t *holders = test_alloc((LIMIT_MAX + 1) * sizeof *holders);
    for (int i = 0; i < LIMIT_MAX; i++) {
        holders[i] = i + 1;
        bench_submit(b, op_grant("r", i + 1, 0, holders));
    }
    bench_wait(b);
    struct store_op *op = revoke(b, 0);
    assert_int_equal(op->revoke.ended.count, LIMIT_MAX);
    assert_int_equal(op->revoke.ended.pairs[LIMIT_MAX - 1].token, LIMIT_MAX);
    assert_int_equal(op->revoke.mark, LIMIT_MAX + 1);
    assert_string_equal(fence_text(b, "r"), "mark 1001, limit 1000, live");
    assert_int_equal(sql_number(b, "SELECT count(*) FROM ledger WHERE kind = %d", LEDGER_REVOKE),
                     LIMIT_MAX);
}

/* ---- Settings -------------------------------------------------------------------------------- */

static struct store_op *configure(struct bench *b, int limit, enum fence_setting fence)
{
    return expect_op(b, op_configure("r", limit, fence), FG_OK);
}

static void a_resource_can_be_created(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct store_op *op = configure(b, 0, FENCE_KEEP);
    assert_true(op->configure.changed);
    assert_true(op->configure.fenced);
    assert_int_equal(op->configure.fixed_limit, 0);
    assert_int_equal(op->configure.mark, 0);
    assert_string_equal(last_rows(b, 1), "10|-|-|created");
    assert_string_equal(fence_text(b, "r"), "mark 0, limit 0, live");

    expect_op(b, op_configure("semaphore", 7, FENCE_ON), FG_OK);
    assert_string_equal(last_rows(b, 1), "10|-|-|created, limit 7");
    expect_op(b, op_configure("free", 0, FENCE_OFF), FG_OK);
    assert_string_equal(last_rows(b, 1), "10|-|-|created, unfenced");
    op = expect_op(b, op_configure("both", 2, FENCE_OFF), FG_OK);
    assert_string_equal(last_rows(b, 1), "10|-|-|created, limit 2, unfenced");
    assert_false(op->configure.fenced);
    assert_string_equal(
        sql_text(b, "SELECT name, mark, lease_limit, fenced FROM resources ORDER BY id"),
        "r|0|-|1 semaphore|0|7|1 free|0|-|0 both|0|2|0");
    /* The first grant fixes what was left open. */
    grant(b, "r", 1);
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");
}

static void the_limit_changes_in_both_directions(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    struct store_op *op = configure(b, 3, FENCE_KEEP);
    assert_int_equal(op->configure.fixed_limit, 3);
    assert_int_equal(op->configure.mark, 1);
    assert_string_equal(last_rows(b, 1), "10|-|-|limit 1 -> 3");
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 3, live 1");
    configure(b, 1, FENCE_KEEP);
    assert_string_equal(last_rows(b, 1), "10|-|-|limit 3 -> 1");
    expect_op(b, op_configure("open", 0, FENCE_KEEP), FG_OK);
    expect_op(b, op_configure("open", 4, FENCE_KEEP), FG_OK);
    assert_string_equal(last_rows(b, 1), "10|-|-|limit unset -> 4");
    configure(b, 5, FENCE_OFF);
    assert_string_equal(last_rows(b, 1), "10|-|-|limit 1 -> 5, fenced -> unfenced");
}

static void a_smaller_limit_ends_nobody(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant_three(b);
    assert_int_equal(configure(b, 2, FENCE_KEEP)->configure.ended.count, 0);
    assert_string_equal(fence_text(b, "r"), "mark 3, limit 2, live 1 2 3");
    for (int64_t token = 1; token <= 3; token++)
        expect_op(b, op_put("r", "k", token, "v"), FG_OK);
    /* Nobody comes in until two have left. */
    expect_op(b, op_grant("r", 4, 0, HOLDERS(1, 2, 3, 4)), FG_GRANT_CONTENDED);
    revoke(b, 1);
    expect_op(b, op_grant("r", 5, 0, HOLDERS(2, 3, 5)), FG_GRANT_CONTENDED);
    revoke(b, 2);
    expect_op(b, op_grant("r", 6, 0, HOLDERS(3, 6)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 6, limit 2, live 3 6");
}

static void what_changes_nothing_leaves_no_trace(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant_three(b);
    expect_op(b, op_configure("free", 2, FENCE_OFF), FG_OK);
    const char *before = sql_everything(b);
    struct store_op *op = configure(b, 0, FENCE_KEEP);
    assert_false(op->configure.changed);
    assert_int_equal(op->configure.mark, 3);
    assert_int_equal(op->configure.fixed_limit, 3);
    assert_true(op->configure.fenced);
    assert_false(configure(b, 3, FENCE_ON)->configure.changed);
    assert_false(expect_op(b, op_configure("free", 2, FENCE_OFF), FG_OK)->configure.changed);
    assert_false(expect_op(b, op_configure("free", 0, FENCE_KEEP), FG_OK)->configure.changed);
    assert_string_equal(sql_everything(b), before);
}

static void marks_count_from_the_base(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    give_base(b, "100");
    struct store_op *op = expect_op(b, op_configure("new", 0, FENCE_KEEP), FG_OK);
    assert_int_equal(op->configure.mark, 100);
    expect_op(b, op_grant("new", 100, 0, HOLDERS(100)), FG_GRANT_CONTENDED);
    grant(b, "new", 101);
    assert_int_equal(revoke(b, 0)->revoke.mark, 101);
    assert_string_equal(fence_text(b, "r"), "mark 101, limit 1, live");
}

/* ---- Unfenced resources ---------------------------------------------------------------------- */

static struct store_op *put_if(enum version_condition condition, int64_t version, const char *value)
{
    return op_if(op_put("r", "k", 0, value), condition, version);
}

static void unfencing_ends_the_leases(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant_three(b);
    struct store_op *op = configure(b, 0, FENCE_OFF);
    assert_string_equal(ended_text(&op->configure.ended), "1 ann, 2 -, 3 zoe");
    assert_int_equal(op->configure.mark, 4);
    assert_false(op->configure.fenced);
    assert_string_equal(fence_text(b, "r"), "mark 4, limit 3, live");
    assert_string_equal(last_rows(b, 4), "5|1|ann|unfenced 5|2|-|unfenced 5|3|zoe|unfenced"
                                         " 10|-|-|fenced -> unfenced");
    expect_op(b, op_put("r", "k", 3, "v"), FG_STALE_FENCING_TOKEN);
    /* A grant that is under way is not let in either. */
    expect_op(b, op_grant("r", 5, 0, HOLDERS(5)), FG_RESOURCE_UNFENCED);
    assert_string_equal(fence_text(b, "r"), "mark 4, limit 3, live");
}

static void a_fenced_resource_takes_nothing_without_a_token(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    expect_op(b, put_if(VERSION_ABSENT, 0, "v"), FG_FENCING_TOKEN_REQUIRED);
    grant(b, "r", 1);
    expect_op(b, op_put("r", "k", 1, "v"), FG_OK);
    const char *before = sql_everything(b);
    expect_op(b, op_put("r", "k", 0, "x"), FG_FENCING_TOKEN_REQUIRED);
    expect_op(b, put_if(VERSION_EQUALS, 1, "x"), FG_FENCING_TOKEN_REQUIRED);
    expect_op(b, op_if(op_delete("r", "k", 0), VERSION_EQUALS, 1), FG_FENCING_TOKEN_REQUIRED);
    assert_string_equal(sql_everything(b), before);
}

static void an_unfenced_resource_takes_conditional_writes(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    configure(b, 0, FENCE_OFF);
    expect_op(b, op_put("r", "k", 0, "x"), FG_PRECONDITION_REQUIRED);
    expect_op(b, op_delete("r", "k", 0), FG_PRECONDITION_REQUIRED);
    assert_int_equal(sql_number(b, "SELECT count(*) FROM ledger"), 1); /* "created" */

    assert_true(expect_op(b, put_if(VERSION_ABSENT, 0, "a"), FG_OK)->write.created);
    assert_int_equal(expect_op(b, put_if(VERSION_EQUALS, 1, "b"), FG_OK)->write.version, 2);
    assert_int_equal(expect_op(b, put_if(VERSION_EXISTS, 0, "c"), FG_OK)->write.version, 3);
    struct store_op *op = expect_op(b, put_if(VERSION_EQUALS, 2, "x"), FG_VERSION_MISMATCH);
    assert_int_equal(op->write.version, 3);
    expect_op(b, put_if(VERSION_ABSENT, 0, "x"), FG_VERSION_MISMATCH);
    assert_string_equal(sql_text(b, "SELECT version, token, value FROM records"), "3|-|c");
    expect_op(b, op_if(op_delete("r", "k", 0), VERSION_EQUALS, 2), FG_VERSION_MISMATCH);
    expect_op(b, op_if(op_delete("r", "k", 0), VERSION_EQUALS, 3), FG_OK);
    expect_op(b, op_if(op_delete("r", "k", 0), VERSION_EQUALS, 3), FG_RECORD_NOT_FOUND);
    assert_int_equal(expect_op(b, put_if(VERSION_ABSENT, 0, "d"), FG_OK)->write.version, 5);
    assert_string_equal(
        sql_text(b, "SELECT kind, token, owner, version, code FROM ledger WHERE seq > 1"),
        "6|-|-|1|- 6|-|-|2|- 6|-|-|3|- 8|-|-|-|version_mismatch 8|-|-|-|version_mismatch"
        " 8|-|-|-|version_mismatch 7|-|-|4|- 6|-|-|5|-");
}

static void a_token_that_is_sent_is_still_checked(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key lease = grant(b, "r", 1);
    configure(b, 0, FENCE_OFF);
    expect_op(b, put_if(VERSION_ABSENT, 0, "a"), FG_OK);
    struct store_op *op = op_if(op_put("r", "k", 1, "x"), VERSION_EQUALS, 1);
    expect_op(b, op_showing(op, lease), FG_STALE_FENCING_TOKEN);
    assert_int_equal(op->write.lease_state, LEASE_REVOKED);
    expect_op(b, op_if(op_put("r", "k", 2, "x"), VERSION_EQUALS, 1), FG_STALE_FENCING_TOKEN);
    expect_op(b, op_if(op_put("r", "k", 3, "x"), VERSION_EQUALS, 1), FG_FENCING_TOKEN_NOT_ISSUED);
    expect_op(b, op_if(op_delete("r", "k", 1), VERSION_EQUALS, 1), FG_STALE_FENCING_TOKEN);
    assert_string_equal(sql_text(b, "SELECT version, value FROM records"), "1|a");
}

static void fenced_again_it_goes_on_from_the_mark(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    expect_op(b, op_put("r", "k", 1, "a"), FG_OK);
    configure(b, 0, FENCE_OFF);
    expect_op(b, put_if(VERSION_EQUALS, 1, "b"), FG_OK);
    bench_reopen(b, NULL);
    struct store_op *op = configure(b, 0, FENCE_ON);
    assert_int_equal(op->configure.mark, 2);
    assert_true(op->configure.fenced);
    assert_string_equal(last_rows(b, 1), "10|-|-|unfenced -> fenced");
    expect_op(b, put_if(VERSION_EQUALS, 2, "x"), FG_FENCING_TOKEN_REQUIRED);
    expect_op(b, op_grant("r", 2, 0, HOLDERS(2)), FG_GRANT_CONTENDED);
    grant(b, "r", 3);
    assert_int_equal(expect_op(b, op_put("r", "k", 3, "c"), FG_OK)->write.version, 3);
    assert_string_equal(sql_text(b, "SELECT version, token, value FROM records"), "3|3|c");
}

static void the_fence_is_judged_at_the_commit(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    configure(b, 0, FENCE_OFF);
    /* Both writes were let through when the resource was unfenced. */
    struct store_op *ops[] = {
        put_if(VERSION_ABSENT, 0, "before"), op_configure("r", 0, FENCE_ON),
        put_if(VERSION_EQUALS, 1, "behind"), op_configure("r", 0, FENCE_OFF),
        op_put("r", "k", 0, "blind"),        put_if(VERSION_EQUALS, 1, "after")};
    const enum fg_status outcomes[] = {
        FG_OK, FG_OK, FG_FENCING_TOKEN_REQUIRED, FG_OK, FG_PRECONDITION_REQUIRED, FG_OK};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        bench_submit(b, ops[i]);
    bench_wait(b);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        expect_status_of(ops[i], outcomes[i]);
    assert_string_equal(sql_text(b, "SELECT version, value FROM records"), "2|after");
}

#define TEST(function) cmocka_unit_test_teardown(function, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_live_leases_end_and_the_mark_rises),
        TEST(one_lease_ends_and_its_neighbours_go_on),
        TEST(the_mark_rises_also_where_nothing_ends),
        TEST(a_grant_under_way_does_not_count),
        TEST(what_does_not_exist_cannot_be_revoked),
        TEST(a_revoked_lease_is_told_why),
        TEST(writes_before_it_count_and_writes_behind_it_do_not),
        TEST(the_last_token_can_be_revoked),
        TEST(a_thousand_leases_end_at_once),
        TEST(a_resource_can_be_created),
        TEST(the_limit_changes_in_both_directions),
        TEST(a_smaller_limit_ends_nobody),
        TEST(what_changes_nothing_leaves_no_trace),
        TEST(marks_count_from_the_base),
        TEST(unfencing_ends_the_leases),
        TEST(a_fenced_resource_takes_nothing_without_a_token),
        TEST(an_unfenced_resource_takes_conditional_writes),
        TEST(a_token_that_is_sent_is_still_checked),
        TEST(fenced_again_it_goes_on_from_the_mark),
        TEST(the_fence_is_judged_at_the_commit),
    };
    return cmocka_run_group_tests_name("operators", tests, NULL, NULL);
}
