/* test_history.c - the ledger, as GET /resources/{r}/history shows it. */
#include "tests/support/api.h"

static struct gateway *g;

static int start_servers(void **state)
{
    (void)state;
    g = gateway_start(NULL, NULL);
    cleanup_keep();
    return 0;
}

/* "items.<index>.<member>" */
static const char *item(size_t index, const char *member)
{
    return test_printf("items.%zu.%s", index, member);
}

/* The index of the first row of a kind; fails where there is none. */
static size_t row_of(const struct response *r, const char *kind)
{
    for (size_t i = 0; i < count_at(r, "items"); i++)
        if (strcmp(text_at(r, item(i, "kind")), kind) == 0)
            return i;
    fail_msg("no row of kind %s: %s", kind, r->body);
    return 0;
}

/* Fails where the rows are not exactly of these kinds, in this order. */
static void expect_kinds(const struct response *r, const char *const *kinds)
{
    size_t i = 0;
    for (; kinds[i]; i++)
        expect_text(r, item(i, "kind"), kinds[i]);
    assert_int_equal(count_at(r, "items"), i);
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

static void each_change_has_a_row(void **state)
{
    (void)state;
    struct response *grant = post(
        g, "/leases", "{\"resource\":\"rows\",\"owner\":\"worker\",\"ttl_ms\":%d}", LONG_TTL_MS);
    const char *id = text_at(expect_status(grant, 201), "lease_id");
    put(g, "rows", "k", 1, "one");
    expect_status(renew(g, id, 300000), 200);
    expect_problem(put(g, "rows", "k", 2, "x"), 412, "fencing_token_not_issued");
    erase(g, "rows", "k", 1);
    release(g, id);
    expect_problem(put(g, "rows", "other", 1, "x"), 412, "stale_fencing_token");

    struct response *r = expect_status(history(g, "rows", ""), 200);
    expect_members(r, "", LIST("items", "next_cursor"));
    expect_kinds(r, LIST("grant", "write", "renew", "refuse", "delete", "release", "refuse"));
    for (size_t i = 0; i < 7; i++) {
        expect_text(r, item(i, "resource"), "rows");
        assert_true(time_of(text_at(r, item(i, "at"))) > 0);
        assert_true(i == 0 || number_at(r, item(i, "seq")) > number_at(r, item(i - 1, "seq")));
    }
    expect_number(r, "items.0.fencing_token", 1);
    expect_text(r, "items.0.owner", "worker");
    expect_number(r, "items.0.ttl_ms", LONG_TTL_MS);
    expect_null(r, "items.0.key");
    expect_number(r, "items.1.fencing_token", 1);
    expect_text(r, "items.1.key", "k");
    expect_number(r, "items.1.version", 1);
    expect_null(r, "items.1.code");
    expect_number(r, "items.2.ttl_ms", 300000);
    expect_number(r, "items.3.fencing_token", 2);
    expect_text(r, "items.3.key", "k");
    expect_text(r, "items.3.code", "fencing_token_not_issued");
    expect_number(r, "items.4.version", 2);
    expect_number(r, "items.5.fencing_token", 1);
    expect_text(r, "items.6.code", "stale_fencing_token");
    expect_text(r, "items.6.key", "other");
    assert_null(strstr(r->body, id));
}

static void a_replaced_lease_has_a_row_with_its_expiry(void **state)
{
    (void)state;
    struct lease a = acquire(g, "expire", SHORT_TTL_MS);
    await_expiry(g, a.id);
    sleep_ms(400);
    struct lease b = acquire(g, "expire", LONG_TTL_MS);

    struct response *r = expect_status(history(g, "expire", ""), 200);
    expect_kinds(r, LIST("grant", "expire", "grant"));
    expect_number(r, "items.1.fencing_token", a.token);
    expect_number(r, "items.2.fencing_token", b.token);
    /* When it ran out, not when it was noticed. */
    long long ended_ms = time_of(text_at(r, "items.1.ended_at"));
    long long granted_ms = time_of(text_at(r, "items.0.at"));
    long long replaced_ms = time_of(text_at(r, "items.2.at"));
    assert_in_range(ended_ms, granted_ms - 5000, replaced_ms - 200);
}

static void other_refusals_are_rows_too(void **state)
{
    (void)state;
    struct lease a = acquire(g, "refusals", LONG_TTL_MS);
    struct lease b = acquire(g, "refusals 2", LONG_TTL_MS);
    put(g, "refusals", "k", a.token, "one");
    const char *path = store_path("refusals", "k");
    call(g, "PUT", path, LIST(token_header(a.token), "If-Match: \"v7\""), "x");
    call(g, "PUT", path, LIST(token_header(a.token), test_printf("X-Lease-Id: %s", b.id)), "x");

    struct response *r = expect_status(history(g, "refusals", "?kind=refuse"), 200);
    expect_kinds(r, LIST("refuse", "refuse"));
    expect_text(r, "items.0.code", "version_mismatch");
    expect_text(r, "items.1.code", "lease_mismatch");
}

/* ---- Paging -----------------------------------------------------------------------------------
 */

static void history_is_read_in_pages(void **state)
{
    (void)state;
    struct lease a = acquire(g, "pages", LONG_TTL_MS);
    for (int i = 0; i < 4; i++)
        put(g, "pages", "k", a.token, "x");

    struct response *all = expect_status(history(g, "pages", ""), 200);
    assert_int_equal(count_at(all, "items"), 5);
    expect_null(all, "next_cursor");
    long long third = number_at(all, "items.2.seq");
    struct response *r = history(g, "pages", test_printf("?after=%lld", third));
    assert_int_equal(count_at(expect_status(r, 200), "items"), 2);
    expect_number(r, "items.0.seq", number_at(all, "items.3.seq"));

    r = expect_status(history(g, "pages", "?kind=write&limit=3"), 200);
    expect_kinds(r, LIST("write", "write", "write"));
    r = history(g, "pages",
                test_printf("?kind=write&limit=3&cursor=%s", encoded(text_at(r, "next_cursor"))));
    expect_kinds(expect_status(r, 200), LIST("write"));
    expect_number(r, "items.0.version", 4);
    expect_null(r, "next_cursor");

    assert_int_equal(count_at(history(g, "pages", "?kind=revoke"), "items"), 0);
    assert_int_equal(count_at(history(g, "pages", "?after=9007199254740991"), "items"), 0);
}

static void history_checks_what_it_is_asked(void **state)
{
    (void)state;
    acquire(g, "asked", LONG_TTL_MS);
    const char *const bad[] = {"?kind=",   "?kind=nonsense", "?after=x", "?after=-1",
                               "?limit=0", "?limit=1001",    "?before=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_problem(history(g, "asked", bad[i]), 400, "invalid_request");
    expect_problem(history(g, "never asked", ""), 404, "resource_not_found");
}

/* ---- Bounds -----------------------------------------------------------------------------------
 */

/* Rows of kind refuse, and how many refusals are only counted. */
static void count_refusals(const char *name, long long *rows, long long *dropped)
{
    *rows = 0;
    *dropped = 0;
    struct response *r = expect_status(history(g, name, "?kind=refuse&limit=1000"), 200);
    *rows = (long long)count_at(r, "items");
    r = expect_status(history(g, name, "?kind=refused_dropped&limit=1000"), 200);
    for (size_t i = 0; i < count_at(r, "items"); i++)
        *dropped += number_at(r, item(i, "count"));
}

static bool counted(const char *name, long long all)
{
    long long rows;
    long long dropped;
    count_refusals(name, &rows, &dropped);
    return rows + dropped == all;
}

static void refusals_are_capped_and_counted(void **state)
{
    (void)state;
    enum { REFUSALS = 400 };
    struct lease a = acquire(g, "capped", LONG_TTL_MS);
    expect_status(release(g, a.id), 200);
    http_record(g->http, false);
    long long start_ms = now_ms();
    for (int i = 0; i < REFUSALS; i++)
        expect_status(put(g, "capped", "k", a.token, "x"), 412);
    long long seconds = (now_ms() - start_ms) / 1000 + 2; /* begun ones count whole */
    http_record(g->http, true);

    assert_true(EVENTUALLY(counted("capped", REFUSALS), 15000));
    long long rows;
    long long dropped;
    count_refusals("capped", &rows, &dropped);
    assert_in_range(rows, 1, 100 * seconds);
    assert_true(dropped >= REFUSALS - 100 * seconds);

    /* Accepted writes are never dropped. */
    struct lease b = acquire(g, "capped", LONG_TTL_MS);
    put(g, "capped", "k", b.token, "x");
    row_of(history(g, "capped", "?kind=write"), "write");
}

static size_t rows_left(struct gateway *gateway)
{
    struct response *r = get(gateway, "/resources/pruned/history?limit=1000");
    expect_status(r, 200);
    if (!json_is_null(json_at(r, "next_cursor")))
        return 1001;
    return count_at(r, "items");
}

static void old_rows_are_pruned_by_number(void **state)
{
    (void)state;
    enum { WRITES = 3000 };
    struct gateway *small = gateway_start(NULL, LIST("--ledger-max-rows", "1000"));
    http_record(small->http, false);
    struct lease a = acquire(small, "pruned", LONG_TTL_MS);
    for (int i = 0; i < WRITES; i++)
        expect_status(put(small, "pruned", "k", a.token, "x"), i ? 200 : 201);
    assert_true(EVENTUALLY(rows_left(small) <= 1000, 60000));
    http_record(small->http, true);
    assert_true(rows_left(small) > 0);

    /* The newest are the ones that stay; mark, lease and record don't depend on them. */
    struct response *r = get(small, "/resources/pruned/history?limit=1000");
    expect_number(r, item(count_at(r, "items") - 1, "version"), WRITES);
    expect_text(inspect(small, a.id), "state", "held");
    expect_number(put(small, "pruned", "k", a.token, "x"), "version", WRITES + 1);
    expect_number(resource(small, "pruned"), "highest_fencing_token", a.token);
}

static void old_rows_are_pruned_by_age(void **state)
{
    (void)state;
    struct gateway *brief = gateway_start(NULL, LIST("--ledger-max-age", "1s"));
    struct lease a = acquire(brief, "pruned", LONG_TTL_MS);
    put(brief, "pruned", "k", a.token, "x");
    http_record(brief->http, false);
    /* The newest row may stay: the numbering goes on from it. */
    assert_true(EVENTUALLY(rows_left(brief) <= 1, 60000));
    http_record(brief->http, true);
    expect_number(put(brief, "pruned", "k", a.token, "x"), "version", 2);
    expect_status(release(brief, a.id), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_change_has_a_row),           TEST(a_replaced_lease_has_a_row_with_its_expiry),
        TEST(other_refusals_are_rows_too),     TEST(history_is_read_in_pages),
        TEST(history_checks_what_it_is_asked), TEST(refusals_are_capped_and_counted),
        TEST(old_rows_are_pruned_by_number),   TEST(old_rows_are_pruned_by_age),
    };
    return cmocka_run_group_tests_name("history", tests, start_servers, NULL);
}
