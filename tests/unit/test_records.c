/* test_records.c - guarded writes in the storage library by itself: versions, conditions, and every
 * way in which the fence refuses one. */
#include "storage/store.h"

#include "tests/support/cleanup.h"
#include "tests/support/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A write that is refused: nothing changes but one more row in the ledger, with this code. */
static struct store_op *expect_refused(struct bench *b, struct store_op *op, enum fg_status status)
{
    const char *state = "SELECT r.mark, l.token, l.state, c.key, c.version, hex(c.value)"
                        " FROM resources AS r LEFT JOIN leases AS l ON l.resource_id = r.id"
                        " LEFT JOIN records AS c ON c.resource_id = r.id ORDER BY 1, 2, 4";
    const char *before = sql_text(b, "%s", state);
    int64_t rows = sql_number(b, "SELECT count(*) FROM ledger");
    expect_op(b, op, status);
    assert_string_equal(sql_text(b, "%s", state), before);
    assert_int_equal(sql_number(b, "SELECT count(*) FROM ledger"), rows + 1);
    assert_string_equal(
        sql_text(b, "SELECT kind, token, key, code FROM ledger ORDER BY seq DESC LIMIT 1"),
        test_printf("%d|%lld|%s|%s", LEDGER_REFUSE, (long long)op->write.token, op->write.key,
                    fg_error(status)->code));
    return op;
}

/* "v1 value (text/plain) by 1", or "none". */
static const char *record_text(struct bench *b, const char *resource, const char *key)
{
    struct arena arena = {0};
    struct record_row row;
    enum fg_status status = store_read_record(b->store, resource, key, &arena, &row);
    const char *text = "none";
    if (status == FG_OK)
        text = test_printf("v%lld %.*s (%s) by %lld", (long long)row.version, (int)row.value_bytes,
                           (const char *)row.value, row.content_type, (long long)row.token);
    else
        assert_int_equal(status, FG_RECORD_NOT_FOUND);
    arena_free(&arena);
    return text;
}

/* ---- Writes ---------------------------------------------------------------------------------- */

static void versions_begin_at_one_and_go_on_for_ever(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    struct store_op *op = expect_op(b, op_put("r", "k", 1, "a"), FG_OK);
    assert_true(op->write.created);
    assert_int_equal(op->write.version, 1);
    op = expect_op(b, op_put("r", "k", 1, "b"), FG_OK);
    assert_false(op->write.created);
    assert_int_equal(op->write.version, 2);
    op = expect_op(b, op_delete("r", "k", 1), FG_OK);
    assert_int_equal(op->write.version, 3);
    assert_string_equal(record_text(b, "r", "k"), "none");
    expect_op(b, op_delete("r", "k", 1), FG_RECORD_NOT_FOUND);
    bench_reopen(b, NULL);
    grant(b, "r", 7);
    op = expect_op(b, op_put("r", "k", 7, "c"), FG_OK);
    assert_true(op->write.created);
    assert_int_equal(op->write.version, 4);
    assert_string_equal(record_text(b, "r", "k"), "v4 c (text/plain) by 7");
    assert_int_equal(expect_op(b, op_put("r", "other", 7, "d"), FG_OK)->write.version, 1);
    assert_string_equal(sql_text(b,
                                 "SELECT kind, token, key, version FROM ledger"
                                 " WHERE kind IN (%d, %d) ORDER BY seq",
                                 LEDGER_WRITE, LEDGER_DELETE),
                        "6|1|k|1 6|1|k|2 7|1|k|3 6|7|k|4 6|7|other|1");
}

static void the_same_key_of_two_resources_is_two_records(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "a", 1);
    grant(b, "b", 1);
    expect_op(b, op_put("a", "k", 1, "of a"), FG_OK);
    expect_op(b, op_put("b", "k", 1, "of b"), FG_OK);
    assert_string_equal(record_text(b, "a", "k"), "v1 of a (text/plain) by 1");
    assert_string_equal(record_text(b, "b", "k"), "v1 of b (text/plain) by 1");
}

static void an_empty_value_is_a_value_and_bytes_are_kept(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    expect_op(b, op_put("r", "empty", 1, ""), FG_OK);
    assert_string_equal(record_text(b, "r", "empty"), "v1  (text/plain) by 1");
    struct store_op *op = op_put("r", "bytes", 1, "");
    unsigned char *bytes = test_alloc(300000);
    for (size_t i = 0; i < 300000; i++)
        bytes[i] = (unsigned char)(i * 7 >> 3);
    op->write.value = bytes;
    op->write.value_bytes = 300000;
    expect_op(b, op, FG_OK);
    struct record_row row;
    assert_int_equal(store_read_record(b->store, "r", "bytes", &op->arena, &row), FG_OK);
    assert_int_equal(row.value_bytes, 300000);
    assert_memory_equal(row.value, bytes, 300000);
}

static void a_token_that_was_never_granted_is_refused_and_locks_nobody_out(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    const int64_t forged[] = {1, 6, FENCING_TOKEN_MAX};
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++)
        expect_refused(b, op_put("unknown", "k", forged[i], "v"), FG_FENCING_TOKEN_NOT_ISSUED);
    grant(b, "r", 5);
    expect_refused(b, op_put("r", "k", 6, "v"), FG_FENCING_TOKEN_NOT_ISSUED);
    struct store_op *op =
        expect_refused(b, op_delete("r", "k", FENCING_TOKEN_MAX), FG_FENCING_TOKEN_NOT_ISSUED);
    assert_int_equal(op->write.mark, 5);
    expect_op(b, op_put("r", "k", 5, "v"), FG_OK);
    grant(b, "r", 6);
    expect_op(b, op_put("r", "k", 6, "v"), FG_OK);
}

static void a_stale_token_is_refused_with_what_is_known_of_it(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key released = grant(b, "r", 2);
    struct store_op *release = expect_op(b, op_release(released), FG_OK);
    grant(b, "r", 4);
    struct store_op *last = op_grant("r", 6, 1, HOLDERS(6));
    last->grant.owner = "zoe";
    expect_op(b, last, FG_OK);

    struct store_op *op = expect_refused(b, op_put("r", "k", 2, "v"), FG_STALE_FENCING_TOKEN);
    assert_int_equal(op->write.mark, 6);
    assert_int_equal(op->write.lease_state, LEASE_RELEASED);
    assert_int_equal(op->write.ended_at_ms, release->release.row.ended_at_ms);
    assert_int_equal(op->write.successor.token, 0);
    op = expect_refused(b, op_delete("r", "k", 4), FG_STALE_FENCING_TOKEN);
    assert_int_equal(op->write.lease_state, LEASE_SUPERSEDED);
    assert_int_equal(op->write.successor.token, 6);
    assert_string_equal(op->write.successor.owner, "zoe");
    assert_int_equal(op->write.successor.at_ms, last->grant.acquired_at_ms);
    op = expect_refused(b, op_put("r", "k", 5, "v"), FG_STALE_FENCING_TOKEN); /* skipped */
    assert_int_equal(op->write.lease_state, LEASE_LIVE);
    assert_int_equal(op->write.ended_at_ms, 0);
    assert_string_equal(sql_text(b,
                                 "SELECT token, reason FROM ledger WHERE kind = %d"
                                 " ORDER BY seq",
                                 LEDGER_REFUSE),
                        "2|released 4|superseded 5|unknown");
}

static void a_lease_shown_must_be_that_of_the_token(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key old = grant(b, "r", 1), own = grant(b, "r", 2), other = grant(b, "o", 2);
    expect_op(b, op_showing(op_put("r", "k", 2, "v"), own), FG_OK);
    const struct lease_key wrong[] = {old, other, lease_key_of(own.resource_id, 2, 77),
                                      lease_key_of(0, 0, 0)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        expect_refused(b, op_showing(op_put("r", "k", 2, "x"), wrong[i]), FG_LEASE_MISMATCH);
        expect_refused(b, op_showing(op_delete("r", "k", 2), wrong[i]), FG_LEASE_MISMATCH);
    }
    /* The token is judged first. */
    expect_refused(b, op_showing(op_put("r", "k", 1, "x"), old), FG_STALE_FENCING_TOKEN);
    expect_refused(b, op_showing(op_put("r", "k", 3, "x"), own), FG_FENCING_TOKEN_NOT_ISSUED);
    assert_string_equal(record_text(b, "r", "k"), "v1 v (text/plain) by 2");
}

static void conditions_hold_or_the_write_is_refused(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    struct store_op *op;
    op = expect_refused(b, op_if(op_put("r", "k", 1, "x"), VERSION_EXISTS, 0), FG_VERSION_MISMATCH);
    assert_int_equal(op->write.version, 0);
    expect_refused(b, op_if(op_put("r", "k", 1, "x"), VERSION_EQUALS, 1), FG_VERSION_MISMATCH);
    expect_op(b, op_if(op_put("r", "k", 1, "a"), VERSION_ABSENT, 0), FG_OK);
    op = expect_refused(b, op_if(op_put("r", "k", 1, "x"), VERSION_ABSENT, 0), FG_VERSION_MISMATCH);
    assert_int_equal(op->write.version, 1);
    op = expect_refused(b, op_if(op_put("r", "k", 1, "x"), VERSION_EQUALS, 2), FG_VERSION_MISMATCH);
    assert_int_equal(op->write.version, 1);
    expect_op(b, op_if(op_put("r", "k", 1, "b"), VERSION_EQUALS, 1), FG_OK);
    expect_op(b, op_if(op_put("r", "k", 1, "c"), VERSION_EXISTS, 0), FG_OK);
    expect_refused(b, op_if(op_delete("r", "k", 1), VERSION_EQUALS, 2), FG_VERSION_MISMATCH);
    expect_op(b, op_if(op_delete("r", "k", 1), VERSION_EQUALS, 3), FG_OK);
    /* Deleted: no version stands there, whatever the number it will go on with. */
    op = expect_refused(b, op_if(op_put("r", "k", 1, "x"), VERSION_EQUALS, 4), FG_VERSION_MISMATCH);
    assert_int_equal(op->write.version, 0);
    expect_refused(b, op_if(op_put("r", "k", 1, "x"), VERSION_EXISTS, 0), FG_VERSION_MISMATCH);
    expect_op(b, op_if(op_put("r", "k", 1, "d"), VERSION_ABSENT, 0), FG_OK);
    assert_string_equal(record_text(b, "r", "k"), "v5 d (text/plain) by 1");
}

static void checks_come_in_the_order_of_the_contract(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key lease = grant(b, "r", 2);
    struct lease_key wrong = lease_key_of(lease.resource_id, 2, 77);
    struct store_op *op = op_if(op_showing(op_delete("r", "none", 1), wrong), VERSION_EQUALS, 9);
    expect_op(b, op, FG_STALE_FENCING_TOKEN);
    op = op_if(op_showing(op_delete("r", "none", 2), wrong), VERSION_EQUALS, 9);
    expect_op(b, op, FG_LEASE_MISMATCH);
    op = op_if(op_showing(op_delete("r", "none", 2), lease), VERSION_EQUALS, 9);
    expect_op(b, op, FG_RECORD_NOT_FOUND);
}

static void after_a_release_or_a_replacement_no_write_comes_in(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key first = grant(b, "r", 1);
    /* All in one batch: the order of submission is the order of the commits. */
    struct store_op *ops[] = {op_put("r", "k", 1, "before"), op_release(first),
                              op_put("r", "k", 1, "after"),  op_grant("r", 2, 1, HOLDERS(2)),
                              op_put("r", "k", 2, "second"), op_grant("r", 3, 1, HOLDERS(3)),
                              op_put("r", "k", 2, "late")};
    const enum fg_status outcomes[] = {FG_OK, FG_OK, FG_STALE_FENCING_TOKEN, FG_OK,
                                       FG_OK, FG_OK, FG_STALE_FENCING_TOKEN};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        bench_submit(b, ops[i]);
    bench_wait(b);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        expect_status_of(ops[i], outcomes[i]);
    assert_string_equal(record_text(b, "r", "k"), "v2 second (text/plain) by 2");
}

#define TEST(function) cmocka_unit_test_teardown(function, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(versions_begin_at_one_and_go_on_for_ever),
        TEST(the_same_key_of_two_resources_is_two_records),
        TEST(an_empty_value_is_a_value_and_bytes_are_kept),
        TEST(a_token_that_was_never_granted_is_refused_and_locks_nobody_out),
        TEST(a_stale_token_is_refused_with_what_is_known_of_it),
        TEST(a_lease_shown_must_be_that_of_the_token),
        TEST(conditions_hold_or_the_write_is_refused),
        TEST(checks_come_in_the_order_of_the_contract),
        TEST(after_a_release_or_a_replacement_no_write_comes_in),
    };
    return cmocka_run_group_tests_name("records", tests, NULL, NULL);
}
