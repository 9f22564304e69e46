/* test_store.c - leases in the storage library by itself: what a grant, a renewal and a release do,
 * and that they leave nothing behind where they are refused.
 *
 * Guarded writes are in test_records.c, lists in test_scans.c, disks in test_durability.c. */
#include "storage/store.h"

#include "gateway/clock.h"

#include "tests/support/cleanup.h"
#include "tests/support/ops.h"
#include "tests/support/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Nothing but `op` happens: it is refused, and leaves no trace. */
static void expect_traceless(struct bench *b, struct store_op *op, enum fg_status status)
{
    const char *before = sql_everything(b);
    expect_op(b, op, status);
    assert_string_equal(sql_everything(b), before);
}

/* ---- Grants ---------------------------------------------------------------------------------- */

static void the_first_grant_makes_the_resource(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    assert_string_equal(fence_text(b, "r"), "mark 0, limit 0, live");
    struct store_op *op = op_grant("r", 1, 0, HOLDERS(1));
    op->grant.owner = "ann";
    op->grant.waited_ms = 12;
    int64_t before_ms = clock_wall_ms();
    expect_op(b, op, FG_OK);
    assert_true(op->grant.resource_id > 0);
    assert_int_equal(op->grant.fixed_limit, 1);
    assert_in_range(op->grant.acquired_at_ms, before_ms, clock_wall_ms());
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");

    struct lease_row row;
    struct lease_successor successor;
    struct lease_key key = lease_of(op);
    assert_int_equal(store_read_lease(b->store, &key, &op->arena, &row, &successor), FG_OK);
    assert_string_equal(row.resource, "r");
    assert_string_equal(row.owner, "ann");
    assert_int_equal(row.state, LEASE_LIVE);
    assert_int_equal(row.ttl_ms, TTL_MS);
    assert_int_equal(row.limit, 1);
    assert_int_equal(row.waited_ms, 12);
    assert_int_equal(row.acquired_at_ms, op->grant.acquired_at_ms);
    assert_int_equal(row.acquired_boot_ms, op->grant.started_boot_ms);
    assert_int_equal(row.deadline_boot_ms, op->grant.started_boot_ms + TTL_MS);
    assert_int_equal(row.ended_at_ms, 0);
    assert_null(row.reason);
    assert_int_equal(successor.token, 0);
    assert_string_equal(
        sql_text(b, "SELECT seq, kind, resource_id, token, owner, ttl_ms"
                    " FROM ledger"),
        test_printf("1|%d|%lld|1|ann|%d", LEDGER_GRANT, (long long)op->grant.resource_id, TTL_MS));
}

static void a_grant_raises_the_mark_strictly(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 5);
    const int64_t too_low[] = {5, 4, 1};
    for (size_t i = 0; i < sizeof too_low / sizeof *too_low; i++) {
        struct store_op *op = op_grant("r", too_low[i], 1, HOLDERS(too_low[i]));
        op->grant.pair = holder_of(too_low[i], 77, 0).pair; /* handed out twice: another secret */
        expect_traceless(b, op, FG_GRANT_CONTENDED);
    }
    expect_traceless(b, op_grant("r", 5, 1, HOLDERS(5)), FG_GRANT_CONTENDED);
    assert_string_equal(fence_text(b, "r"), "mark 5, limit 1, live 5");
    grant(b, "r", 9); /* skips four */
    assert_string_equal(fence_text(b, "r"), "mark 9, limit 1, live 9");
    expect_traceless(b, op_grant("r", 7, 1, HOLDERS(7)), FG_GRANT_CONTENDED);
}

static void an_ended_lease_does_not_lower_the_mark(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    expect_op(b, op_release(grant(b, "r", 5)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 5, limit 1, live");
    expect_traceless(b, op_grant("r", 5, 1, HOLDERS(5)), FG_GRANT_CONTENDED);
    expect_traceless(b, op_grant("r", 3, 1, HOLDERS(3)), FG_GRANT_CONTENDED);
}

static void the_greatest_token_can_be_granted(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", FENCING_TOKEN_MAX);
    assert_string_equal(fence_text(b, "r"), "mark 9007199254740991, limit 1, live "
                                            "9007199254740991");
    expect_op(b, op_put("r", "k", FENCING_TOKEN_MAX, "v"), FG_OK);
}

static void resources_are_compared_byte_by_byte(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    const char *const names[] = {"r", "R", "r ", "caf\xc3\xa9", "cafe\xcc\x81", "r%", "r'--"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        grant(b, names[i], (int64_t)i + 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(fence_text(b, names[i]),
                            test_printf("mark %zu, limit 1, live %zu", i + 1, i + 1));
}

static void the_base_counts_as_mark_of_every_resource(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key old = grant(b, "old", 5);
    bench_close(b);
    assert_int_equal(sql_run(b, "UPDATE meta SET value = 100 WHERE name = 'base'"), 0);
    bench_reopen(b, NULL);
    assert_string_equal(fence_text(b, "old"), "mark 100, limit 1, live 5");
    assert_string_equal(fence_text(b, "new"), "mark 100, limit 0, live");
    expect_traceless(b, op_grant("old", 100, 1, HOLDERS(100)), FG_GRANT_CONTENDED);
    expect_traceless(b, op_grant("new", 100, 1, HOLDERS(100)), FG_GRANT_CONTENDED);
    assert_int_equal(expect_op(b, op_put("new", "k", 100, "v"), FG_STALE_FENCING_TOKEN)->write.mark,
                     100);
    expect_op(b, op_put("new", "k", 101, "v"), FG_FENCING_TOKEN_NOT_ISSUED);
    expect_op(b, op_put("old", "k", 6, "v"), FG_STALE_FENCING_TOKEN);
    expect_op(b, op_showing(op_put("old", "k", 5, "v"), old), FG_OK);
    grant(b, "new", 101);
    assert_string_equal(fence_text(b, "new"), "mark 101, limit 1, live 101");
}

/* ---- The live set ---------------------------------------------------------------------------- */

static void several_holders_stay_live_together(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    expect_op(b, op_grant("r", 1, 3, HOLDERS(1)), FG_OK);
    expect_op(b, op_grant("r", 2, 3, HOLDERS(1, 2)), FG_OK);
    expect_op(b, op_grant("r", 3, 0, HOLDERS(3, 2, 1)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 3, limit 3, live 1 2 3");
    for (int64_t token = 1; token <= 3; token++)
        expect_op(b, op_put("r", test_printf("k%d", (int)token), token, "v"), FG_OK);
}

static void the_live_set_becomes_what_redis_still_has_and_the_new_lease(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    for (int64_t token = 1; token <= 3; token++)
        expect_op(b, op_grant("r", token, 3, HOLDERS(1, 2, 3)), FG_OK);
    const int64_t ran_out_ms = 1700000000123;
    struct lease_holder dropped[] = {holder_of(1, 1, ran_out_ms), holder_of(99, 99, 5)};
    struct store_op *op = op_grant("r", 4, 3, HOLDERS(2, 4));
    op->grant.owner = "dave";
    op->grant.dropped = dropped;
    op->grant.dropped_count = 2;
    expect_op(b, op, FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 4, limit 3, live 2 4");

    /* Token 1 ran out when Redis says; token 3 was lost by Redis. */
    assert_string_equal(
        sql_text(b, "SELECT token, state, superseded_by FROM leases ORDER BY token"),
        "1|2|4 2|0|- 3|2|4 4|0|-");
    assert_string_equal(sql_text(b,
                                 "SELECT token, reason FROM ledger WHERE kind = %d"
                                 " ORDER BY seq",
                                 LEDGER_EXPIRE),
                        "1|- 3|lost_by_redis");
    assert_int_equal(sql_number(b, "SELECT ended_at_ms FROM ledger WHERE kind = %d AND token = 1",
                                LEDGER_EXPIRE),
                     ran_out_ms);
    assert_int_equal(sql_number(b, "SELECT ended_at_ms FROM ledger WHERE kind = %d AND token = 3",
                                LEDGER_EXPIRE),
                     op->grant.acquired_at_ms);

    op = expect_op(b, op_put("r", "k", 1, "v"), FG_STALE_FENCING_TOKEN);
    assert_int_equal(op->write.lease_state, LEASE_SUPERSEDED);
    assert_int_equal(op->write.successor.token, 4);
    assert_string_equal(op->write.successor.owner, "dave");
    expect_op(b, op_put("r", "k", 2, "v"), FG_OK);
    expect_op(b, op_put("r", "k", 3, "v"), FG_STALE_FENCING_TOKEN);
}

static void pairs_are_compared_by_token_and_secret(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    expect_op(b, op_grant("r", 1, 2, HOLDERS(1)), FG_OK);
    /* Redis was emptied and gave 1 to somebody else, whose grant the store never saw. */
    struct lease_holder holders[] = {holder_of(1, 77, 0), holder_of(2, 2, 0)};
    struct store_op *op = op_grant("r", 2, 2, HOLDERS(2));
    op->grant.holders = holders;
    op->grant.holder_count = 2;
    expect_op(b, op, FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 2, limit 2, live 2");
}

static void what_only_redis_knows_does_not_become_live(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    expect_op(b, op_grant("r", 3, 3, HOLDERS(1, 2, 3)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 3, limit 3, live 3");
    assert_int_equal(sql_number(b, "SELECT count(*) FROM leases"), 1);
}

static void a_released_lease_that_redis_still_has_does_not_come_back(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct store_op *first = expect_op(b, op_grant("r", 1, 2, HOLDERS(1)), FG_OK);
    expect_op(b, op_release(lease_of(first)), FG_OK);
    expect_op(b, op_grant("r", 2, 2, HOLDERS(1, 2)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 2, limit 2, live 2");
    expect_op(b, op_put("r", "k", 1, "v"), FG_STALE_FENCING_TOKEN);
    expect_op(b, op_release(lease_of(first)), FG_OK);
}

static void a_zombie_in_the_middle_is_refused_between_its_neighbours(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key keys[4];
    for (int64_t token = 1; token <= 3; token++)
        keys[token] = lease_of(expect_op(b, op_grant("r", token, 3, HOLDERS(1, 2, 3)), FG_OK));
    expect_op(b, op_release(keys[2]), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 3, limit 3, live 1 3");
    expect_op(b, op_put("r", "k", 1, "one"), FG_OK);
    expect_op(b, op_put("r", "k", 2, "two"), FG_STALE_FENCING_TOKEN);
    expect_op(b, op_put("r", "k", 3, "three"), FG_OK);
}

static void the_limit_is_checked_again_by_the_store(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "mutex", 1);
    expect_traceless(b, op_grant("mutex", 2, 1, HOLDERS(1, 2)), FG_GRANT_CONTENDED);
    expect_op(b, op_grant("r", 1, 2, HOLDERS(1)), FG_OK);
    expect_op(b, op_grant("r", 2, 2, HOLDERS(1, 2)), FG_OK);
    expect_traceless(b, op_grant("r", 3, 2, HOLDERS(1, 2, 3)), FG_GRANT_CONTENDED);
    expect_op(b, op_grant("r", 3, 2, HOLDERS(1, 3)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 3, limit 2, live 1 3");
}

static void the_first_grant_fixes_the_limit(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "none named", 1);
    expect_traceless(b, op_grant("none named", 2, 2, HOLDERS(2)), FG_LIMIT_MISMATCH);
    expect_op(b, op_grant("none named", 2, 1, HOLDERS(2)), FG_OK);
    expect_op(b, op_grant("four", 1, 4, HOLDERS(1)), FG_OK);
    struct store_op *op = expect_op(b, op_grant("four", 2, 1, HOLDERS(1, 2)), FG_LIMIT_MISMATCH);
    assert_int_equal(op->grant.fixed_limit, 4);
    op = expect_op(b, op_grant("four", 2, 0, HOLDERS(1, 2)), FG_OK);
    assert_int_equal(op->grant.fixed_limit, 4);
    assert_string_equal(fence_text(b, "four"), "mark 2, limit 4, live 1 2");
}

/* The live set of a semaphore with 999 leases, put there by hand: granting one after the other
 * compares each with each. */
static void a_thousand_may_be_live_and_not_one_more(void **state)
{
    (void)state;
    enum { LIVE = LIMIT_MAX - 1 };
    struct bench *b = bench_open(NULL, NULL);
    expect_op(b, op_grant("r", 1, LIMIT_MAX, HOLDERS(1)), FG_OK);
    bench_close(b);
    const char *insert =
        "WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 999)"
        " INSERT INTO leases (resource_id, token, secret, ttl_ms, lease_limit, acquired_at_ms,"
        " waited_ms, acquired_boot_ms, deadline_boot_ms)"
        " SELECT 1, i, CAST(printf('%016d', i) AS BLOB), 30000, 1000, 0, 0, 0, 0 FROM n;"
        "UPDATE resources SET mark = 999";
    assert_int_equal(sql_run(b, insert), 0);
    bench_reopen(b, NULL);
    int64_t *holders = test_alloc((LIMIT_MAX + 2) * sizeof *holders);
    for (int i = 0; i < LIVE + 1; i++)
        holders[i] = i + 1;
    expect_op(b, op_grant("r", LIMIT_MAX, LIMIT_MAX, holders), FG_OK);
    struct fence fence;
    assert_int_equal(store_read_fence(b->store, "r", &fence), FG_OK);
    assert_int_equal(fence.live_count, LIMIT_MAX);
    holders[LIMIT_MAX] = LIMIT_MAX + 1;
    expect_traceless(b, op_grant("r", LIMIT_MAX + 1, LIMIT_MAX, holders), FG_GRANT_CONTENDED);
    expect_op(b, op_put("r", "k", 500, "v"), FG_OK);
    expect_op(b, op_release(lease_key_of(1, 500, 500)), FG_OK);
    expect_op(b, op_put("r", "k", 500, "v"), FG_STALE_FENCING_TOKEN);
    expect_op(b, op_grant("r", LIMIT_MAX + 1, LIMIT_MAX, holders), FG_OK);
}

/* ---- A limit that was changed ---------------------------------------------------------------- */

static bool is_exclusive(struct bench *b, const char *resource)
{
    struct fence fence;
    assert_int_equal(store_read_fence(b->store, resource, &fence), FG_OK);
    return fence.exclusive;
}

static void a_lease_granted_at_limit_1_stays_alone(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    assert_true(is_exclusive(b, "r"));
    expect_op(b, op_configure("r", 3, FENCE_KEEP), FG_OK);
    assert_true(is_exclusive(b, "r"));
    expect_traceless(b, op_grant("r", 2, 3, HOLDERS(1, 2)), FG_GRANT_CONTENDED);
    expect_op(b, op_put("r", "k", 1, "v"), FG_OK);

    /* Redis has dropped it: it is replaced, not joined. */
    expect_op(b, op_grant("r", 2, 3, HOLDERS(2)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 2, limit 3, live 2");
    assert_false(is_exclusive(b, "r"));
    expect_op(b, op_grant("r", 3, 0, HOLDERS(2, 3)), FG_OK);
    expect_op(b, op_grant("r", 4, 0, HOLDERS(2, 3, 4)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 4, limit 3, live 2 3 4");
}

static void a_lease_granted_at_limit_1_is_alone_until_it_is_released(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key alone = grant(b, "r", 1);
    expect_op(b, op_configure("r", 2, FENCE_KEEP), FG_OK);
    expect_op(b, op_release(alone), FG_OK);
    assert_false(is_exclusive(b, "r"));
    /* Redis may not have heard of the release yet. */
    expect_op(b, op_grant("r", 2, 0, HOLDERS(1, 2)), FG_OK);
    expect_op(b, op_grant("r", 3, 0, HOLDERS(1, 2, 3)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 3, limit 2, live 2 3");
}

static void leases_granted_at_a_greater_limit_were_not_promised_to_be_alone(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    expect_op(b, op_grant("r", 1, 3, HOLDERS(1)), FG_OK);
    expect_op(b, op_configure("r", 1, FENCE_KEEP), FG_OK);
    assert_false(is_exclusive(b, "r"));
    expect_traceless(b, op_grant("r", 2, 1, HOLDERS(1, 2)), FG_GRANT_CONTENDED);
    expect_op(b, op_configure("r", 2, FENCE_KEEP), FG_OK);
    expect_op(b, op_grant("r", 2, 2, HOLDERS(1, 2)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 2, limit 2, live 1 2");
}

static void a_smaller_limit_admits_nobody_until_enough_left(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key keys[4];
    for (int64_t token = 1; token <= 3; token++)
        keys[token] = lease_of(expect_op(b, op_grant("r", token, 3, HOLDERS(1, 2, 3)), FG_OK));
    expect_op(b, op_configure("r", 2, FENCE_KEEP), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 3, limit 2, live 1 2 3");
    expect_traceless(b, op_grant("r", 4, 2, HOLDERS(1, 2, 3, 4)), FG_GRANT_CONTENDED);
    expect_op(b, op_release(keys[2]), FG_OK);
    expect_traceless(b, op_grant("r", 4, 2, HOLDERS(1, 3, 4)), FG_GRANT_CONTENDED);
    expect_traceless(b, op_grant("r", 4, 3, HOLDERS(3, 4)), FG_LIMIT_MISMATCH);
    /* The first one has run out: one that is held is left beside it. */
    expect_op(b, op_grant("r", 4, 2, HOLDERS(3, 4)), FG_OK);
    assert_string_equal(fence_text(b, "r"), "mark 4, limit 2, live 3 4");
}

/* A grant under way asked Redis while the limit was another. */
static void the_limit_at_the_commit_is_what_counts(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    expect_op(b, op_grant("r", 1, 2, HOLDERS(1)), FG_OK);
    bench_submit(b, op_configure("r", 1, FENCE_KEEP));
    expect_op(b, op_grant("r", 2, 0, HOLDERS(1, 2)), FG_GRANT_CONTENDED);
    bench_submit(b, op_configure("r", 3, FENCE_KEEP));
    struct store_op *op = expect_op(b, op_grant("r", 2, 0, HOLDERS(1, 2)), FG_OK);
    assert_int_equal(op->grant.fixed_limit, 3);
    bench_wait(b);
    assert_string_equal(fence_text(b, "r"), "mark 2, limit 3, live 1 2");
}

/* ---- Release --------------------------------------------------------------------------------- */

static void a_release_ends_the_lease_and_may_be_repeated(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct store_op *granted = op_grant("r", 1, 1, HOLDERS(1));
    granted->grant.owner = "ann";
    granted->grant.started_boot_ms -= 1000;
    expect_op(b, granted, FG_OK);

    struct store_op *op = op_release(lease_of(granted));
    op->release.reason = "client_gone";
    expect_op(b, op, FG_OK);
    assert_false(op->release.again);
    assert_int_equal(op->release.row.state, LEASE_RELEASED);
    assert_string_equal(op->release.row.resource, "r");
    assert_in_range(op->release.row.held_ms, 1000, 1000 + slow_ms(60000));
    assert_int_equal(op->release.row.held_ms + op->release.row.remaining_ms, TTL_MS);
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live");
    assert_string_equal(
        sql_text(b, "SELECT token, owner, reason FROM ledger WHERE kind = %d", LEDGER_RELEASE),
        "1|ann|client_gone");

    struct store_op *again = op_release(lease_of(granted));
    expect_traceless(b, again, FG_OK);
    assert_true(again->release.again);
    assert_int_equal(again->release.row.held_ms, op->release.row.held_ms);
    assert_int_equal(again->release.row.remaining_ms, op->release.row.remaining_ms);
    assert_string_equal(again->release.row.reason, "client_gone");
}

static void a_lease_whose_ttl_has_passed_is_released_with_nothing_left(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct store_op *granted = op_grant("r", 1, 1, HOLDERS(1));
    granted->grant.started_boot_ms -= TTL_MS + 1;
    expect_op(b, granted, FG_OK);
    expect_op(b, op_put("r", "k", 1, "an expired lease may write"), FG_OK);
    struct store_op *op = expect_op(b, op_release(lease_of(granted)), FG_OK);
    assert_int_equal(op->release.row.remaining_ms, 0);
    assert_true(op->release.row.held_ms > TTL_MS);
}

static void a_superseded_lease_is_told_so(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key first = grant(b, "r", 1);
    struct store_op *second = op_grant("r", 2, 1, HOLDERS(2));
    second->grant.owner = "bob";
    expect_op(b, second, FG_OK);
    struct store_op *op = op_release(first);
    expect_traceless(b, op, FG_LEASE_SUPERSEDED);
    assert_int_equal(op->release.row.state, LEASE_SUPERSEDED);
    assert_int_equal(op->release.successor.token, 2);
    assert_string_equal(op->release.successor.owner, "bob");
    assert_int_equal(op->release.successor.at_ms, second->grant.acquired_at_ms);
    assert_string_equal(fence_text(b, "r"), "mark 2, limit 1, live 2");
}

static void a_revoked_lease_is_told_so(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key lease = grant(b, "r", 1);
    bench_close(b);
    assert_int_equal(
        sql_run(b, "UPDATE leases SET state = 3, ended_at_ms = acquired_at_ms, reason = 'why'"), 0);
    bench_reopen(b, NULL);
    struct store_op *op = op_release(lease);
    expect_traceless(b, op, FG_LEASE_REVOKED);
    assert_string_equal(op->release.row.reason, "why");
    op = expect_op(b, op_put("r", "k", 1, "v"), FG_STALE_FENCING_TOKEN);
    assert_int_equal(op->write.lease_state, LEASE_REVOKED);
}

static void nobody_releases_what_is_not_theirs(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key lease = grant(b, "r", 1), other = grant(b, "other", 2);
    const struct lease_key strangers[] = {
        lease_key_of(lease.resource_id, 1, 77),        lease_key_of(other.resource_id, 1, 1),
        lease_key_of(lease.resource_id, 2, 2),         lease_key_of(lease.resource_id, 2, 1),
        lease_key_of(lease.resource_id + 77, 1, 1),    lease_key_of(0, 1, 1),
        lease_key_of(INT64_MAX, FENCING_TOKEN_MAX, 1),
    };
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
        expect_traceless(b, op_release(strangers[i]), FG_LEASE_NOT_FOUND);
    assert_string_equal(fence_text(b, "r"), "mark 1, limit 1, live 1");
}

/* ---- Renewal --------------------------------------------------------------------------------- */

static int64_t deadline_of(struct bench *b, struct lease_key lease)
{
    struct arena arena = {0};
    struct lease_row row;
    struct lease_successor successor;
    assert_int_equal(store_read_lease(b->store, &lease, &arena, &row, &successor), FG_OK);
    arena_free(&arena);
    return row.deadline_boot_ms;
}

static void a_renewal_moves_the_deadline_and_is_noted(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key lease = grant(b, "r", 1);
    expect_op(b, op_renewal(lease, 60000, 123456789), FG_OK);
    assert_int_equal(deadline_of(b, lease), 123456789);
    expect_op(b, op_renewal(lease, 50, 12), FG_OK); /* may shorten */
    assert_int_equal(deadline_of(b, lease), 12);
    assert_string_equal(
        sql_text(b, "SELECT token, ttl_ms FROM ledger WHERE kind = %d ORDER BY seq", LEDGER_RENEW),
        "1|60000 1|50");
}

static void a_renewal_of_what_is_not_live_changes_nothing(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key released = grant(b, "r", 1);
    expect_op(b, op_release(released), FG_OK);
    struct lease_key superseded = grant(b, "r", 2);
    grant(b, "r", 3);
    expect_traceless(b, op_renewal(released, 1, 1), FG_OK);
    expect_traceless(b, op_renewal(superseded, 1, 1), FG_OK);
    expect_traceless(b, op_renewal(lease_key_of(9, 9, 9), 1, 1), FG_OK);
}

static void a_scan_sees_a_renewal_that_was_submitted_before(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key lease = grant(b, "r", 1);
    bench_submit(b, op_renewal(lease, 1000, 5));
    struct store_op *scan = expect_op(b, op_scan(SCAN_LEDGER, "r", 10), FG_OK);
    assert_int_equal(scan->scan.count, 2);
    assert_int_equal(scan->scan.ledger[1].kind, LEDGER_RENEW);
}

/* ---- The database guards itself -------------------------------------------------------------- */

static void a_mark_never_falls_whatever_the_code_does(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 5);
    const char *before = sql_everything(b);
    const char *const forbidden[] = {
        "UPDATE resources SET mark = mark - 1",
        "UPDATE resources SET mark = 0 WHERE name = 'r'",
        "DELETE FROM resources",
        "DELETE FROM resources WHERE name = 'r'",
        "UPDATE resources SET mark = 9007199254740992",
        "UPDATE resources SET mark = 'x'",
        "INSERT INTO resources (name, mark) VALUES ('r', 1)",
        "UPDATE resources SET lease_limit = 0",
        "UPDATE resources SET lease_limit = 1001",
        "INSERT INTO leases SELECT * FROM leases",
        "UPDATE leases SET secret = x'00'",
        "UPDATE leases SET token = 0",
        "INSERT INTO records (resource_id, key, version, updated_at_ms) VALUES (1, 'k', 0, 0)",
    };
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        if (sql_run(b, forbidden[i]) == 0)
            fail_msg("the database takes: %s", forbidden[i]);
        assert_string_equal(sql_everything(b), before);
    }
    assert_int_equal(sql_run(b, "UPDATE resources SET mark = mark"), 0);
    assert_int_equal(sql_run(b, "UPDATE resources SET mark = mark + 1"), 0);
    assert_string_equal(fence_text(b, "r"), "mark 6, limit 1, live 5");
}

#define TEST(function) cmocka_unit_test_teardown(function, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_grant_makes_the_resource),
        TEST(a_grant_raises_the_mark_strictly),
        TEST(an_ended_lease_does_not_lower_the_mark),
        TEST(the_greatest_token_can_be_granted),
        TEST(resources_are_compared_byte_by_byte),
        TEST(the_base_counts_as_mark_of_every_resource),
        TEST(several_holders_stay_live_together),
        TEST(the_live_set_becomes_what_redis_still_has_and_the_new_lease),
        TEST(pairs_are_compared_by_token_and_secret),
        TEST(what_only_redis_knows_does_not_become_live),
        TEST(a_released_lease_that_redis_still_has_does_not_come_back),
        TEST(a_zombie_in_the_middle_is_refused_between_its_neighbours),
        TEST(the_limit_is_checked_again_by_the_store),
        TEST(the_first_grant_fixes_the_limit),
        TEST(a_thousand_may_be_live_and_not_one_more),
        TEST(a_lease_granted_at_limit_1_stays_alone),
        TEST(a_lease_granted_at_limit_1_is_alone_until_it_is_released),
        TEST(leases_granted_at_a_greater_limit_were_not_promised_to_be_alone),
        TEST(a_smaller_limit_admits_nobody_until_enough_left),
        TEST(the_limit_at_the_commit_is_what_counts),
        TEST(a_release_ends_the_lease_and_may_be_repeated),
        TEST(a_lease_whose_ttl_has_passed_is_released_with_nothing_left),
        TEST(a_superseded_lease_is_told_so),
        TEST(a_revoked_lease_is_told_so),
        TEST(nobody_releases_what_is_not_theirs),
        TEST(a_renewal_moves_the_deadline_and_is_noted),
        TEST(a_renewal_of_what_is_not_live_changes_nothing),
        TEST(a_scan_sees_a_renewal_that_was_submitted_before),
        TEST(a_mark_never_falls_whatever_the_code_does),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
