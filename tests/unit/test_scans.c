/* test_scans.c - reading the store: single rows, and lists page by page. */
#include "storage/store.h"

#include "tests/support/cleanup.h"
#include "tests/support/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- Single rows ----------------------------------------------------------------------------- */

static void a_lease_is_read_by_its_whole_key(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key lease = grant(b, "r", 1);
    const struct lease_key wrong[] = {lease_key_of(lease.resource_id, 1, 2),
                                      lease_key_of(lease.resource_id + 1, 1, 1),
                                      lease_key_of(lease.resource_id, 2, 1)};
    struct arena arena = {0};
    struct lease_row row;
    struct lease_successor successor;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(store_read_lease(b->store, &wrong[i], &arena, &row, &successor),
                         FG_LEASE_NOT_FOUND);
    arena_free(&arena);
}

static void a_resource_is_read_with_its_live_leases(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct store_op *op = op_grant("r", 3, 2, HOLDERS(3));
    op->grant.owner = "ann";
    expect_op(b, op, FG_OK);
    expect_op(b, op_grant("r", 4, 2, HOLDERS(3, 4)), FG_OK);
    struct resource_row row;
    assert_int_equal(store_read_resource(b->store, "r", &op->arena, &row), FG_OK);
    assert_string_equal(row.name, "r");
    assert_int_equal(row.mark, 4);
    assert_int_equal(row.limit, 2);
    assert_true(row.fenced);
    assert_int_equal(row.live_count, 2);
    assert_int_equal(row.live[0].key.token, 3);
    assert_string_equal(row.live[0].owner, "ann");
    assert_int_equal(row.live[1].key.token, 4);
    assert_null(row.live[1].owner);
    assert_int_equal(store_read_resource(b->store, "none", &op->arena, &row),
                     FG_RESOURCE_NOT_FOUND);
}

static void how_a_token_ended_is_told(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    struct lease_key first = grant(b, "r", 2);
    grant(b, "r", 3);
    struct arena arena = {0};
    struct lease_row row;
    struct lease_successor successor;
    assert_int_equal(store_read_ended(b->store, first.resource_id, 2, &arena, &row, &successor),
                     FG_OK);
    assert_int_equal(row.state, LEASE_SUPERSEDED);
    assert_int_equal(successor.token, 3);
    assert_int_equal(store_read_ended(b->store, first.resource_id, 1, &arena, &row, &successor),
                     FG_OK);
    assert_int_equal(row.state, LEASE_LIVE); /* nothing is known */
    assert_int_equal(successor.token, 0);
    arena_free(&arena);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

/* Reads a whole list page by page; the names as "a b c". */
static const char *all_resources(struct bench *b, size_t page)
{
    const char *names = "", *after = NULL;
    bool more = true;
    while (more) {
        struct store_op *op = op_scan(SCAN_RESOURCES, NULL, page);
        op->scan.after_name = after;
        expect_op(b, op, FG_OK);
        assert_true(op->scan.count <= page);
        for (size_t i = 0; i < op->scan.count; i++) {
            after = op->scan.resources[i].name;
            names = test_printf("%s%s(%zu)", names, after, op->scan.resources[i].live_count);
        }
        more = op->scan.more;
        assert_true(!more || op->scan.count == page);
    }
    return names;
}

static void resources_are_listed_by_name(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    assert_string_equal(all_resources(b, 10), "");
    const char *const names[] = {"b", "a", "\xc3\xa9", "Z", "c"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        grant(b, names[i], 1);
    expect_op(b, op_release(lease_key_of(1, 1, 1)), FG_OK);
    for (size_t page = 1; page <= 6; page++)
        assert_string_equal(all_resources(b, page), "Z(1)a(1)b(0)c(1)\xc3\xa9(1)");
}

static void live_leases_are_listed_by_resource_and_owner(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    for (int64_t token = 1; token <= 6; token++) {
        const char *resource = token % 2 ? "odd" : "even";
        struct store_op *op = op_grant(resource, token, 3, HOLDERS(1, 2, 3, 4, 5, 6));
        op->grant.owner = token <= 3 ? "ann" : "bob";
        expect_op(b, op, FG_OK);
    }
    expect_op(b, op_release(lease_key_of(1, 3, 3)), FG_OK);

    const char *seen = "";
    int64_t resource_id = 0, token = 0;
    for (bool more = true; more;) {
        struct store_op *op = op_scan(SCAN_LEASES, NULL, 2);
        op->scan.after_id = resource_id;
        op->scan.after_number = token;
        expect_op(b, op, FG_OK);
        for (size_t i = 0; i < op->scan.count; i++) {
            const struct lease_row *lease = &op->scan.leases[i];
            resource_id = lease->key.resource_id;
            token = lease->key.token;
            seen = test_printf("%s%s %d, ", seen, lease->resource, (int)token);
        }
        more = op->scan.more;
    }
    assert_string_equal(seen, "odd 1, odd 5, even 2, even 4, even 6, ");

    struct store_op *op = op_scan(SCAN_LEASES, "even", 10);
    op->scan.owner = "bob";
    expect_op(b, op, FG_OK);
    assert_int_equal(op->scan.count, 2);
    assert_int_equal(op->scan.leases[0].key.token, 4);
    op = op_scan(SCAN_LEASES, NULL, 10);
    op->scan.owner = "ann";
    expect_op(b, op, FG_OK);
    assert_int_equal(op->scan.count, 2);
    assert_int_equal(expect_op(b, op_scan(SCAN_LEASES, "none", 10), FG_OK)->scan.count, 0);
}

static void records_are_listed_by_prefix(void **state)
{
    (void)state;
    struct bench *b = bench_open(NULL, NULL);
    grant(b, "r", 1);
    const char *const keys[] = {"a", "a%", "a_b", "aa", "ab", "b", "a\xff"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        expect_op(b, op_put("r", keys[i], 1, "12345"), FG_OK);
    expect_op(b, op_delete("r", "aa", 1), FG_OK);
    struct {
        const char *prefix, *after, *found;
        size_t limit;
        bool more;
    } cases[] = {
        {"", NULL, "a a% a_b ab a\xff b ", 10, false},
        {"a", NULL, "a a% a_b ab a\xff ", 10, false},
        {"a", NULL, "a a% a_b ", 3, true},
        {"a", "a_b", "ab a\xff ", 2, false},
        {"a%", NULL, "a% ", 10, false},
        {"a_", NULL, "a_b ", 1, false},
        {"b", NULL, "b ", 1, false},
        {"c", NULL, "", 1, false},
        {"aa", NULL, "", 10, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct store_op *op = op_scan(SCAN_RECORDS, "r", cases[i].limit);
        op->scan.prefix = cases[i].prefix;
        op->scan.after_name = cases[i].after;
        expect_op(b, op, FG_OK);
        const char *found = "";
        for (size_t j = 0; j < op->scan.count; j++) {
            found = test_printf("%s%s ", found, op->scan.records[j].key);
            assert_int_equal(op->scan.records[j].value_bytes, 5);
            assert_null(op->scan.records[j].value);
        }
        assert_string_equal(found, cases[i].found);
        assert_int_equal(op->scan.more, cases[i].more);
    }
    expect_op(b, op_scan(SCAN_RECORDS, "none", 10), FG_RESOURCE_NOT_FOUND);
}

#define TEST(function) cmocka_unit_test_teardown(function, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lease_is_read_by_its_whole_key),
        TEST(a_resource_is_read_with_its_live_leases),
        TEST(how_a_token_ended_is_told),
        TEST(resources_are_listed_by_name),
        TEST(live_leases_are_listed_by_resource_and_owner),
        TEST(records_are_listed_by_prefix),
    };
    return cmocka_run_group_tests_name("scans", tests, NULL, NULL);
}
