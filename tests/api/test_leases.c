/* test_leases.c - POST /leases, renew, release, inspect, list, and what resources show of them.
 *
 * One gateway and one Redis for all cases; each uses resources of its own. */
#include "tests/support/api.h"

static struct redis_server *redis;
static struct gateway *g;

static int start_servers(void **state)
{
    (void)state;
    redis = redis_server_start(NULL);
    g = gateway_start(redis_server_url(redis), NULL);
    cleanup_keep();
    return 0;
}

static const char *const lease_members[] = {
    "lease_id", "resource",      "owner",      "state",       "fencing_token", "limit",
    "ttl_ms",   "expires_in_ms", "expires_at", "acquired_at", "waited_ms",     NULL};

/* A name of `bytes` letters. */
static const char *long_name(int bytes)
{
    return test_printf("%.*s", bytes,
                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
}

/* ---- Acquire ----------------------------------------------------------------------------------
 */

static void acquire_answers_the_whole_lease(void **state)
{
    (void)state;
    struct response *r = post(g, "/leases",
                              "{\"resource\":\"whole\",\"ttl_ms\":60000,\"owner\":\"worker 1\","
                              "\"limit\":1,\"wait_ms\":0}");
    expect_status(r, 201);
    expect_header(r, "Content-Type", "application/json");
    expect_members(r, "", lease_members);
    expect_text(r, "resource", "whole");
    expect_text(r, "owner", "worker 1");
    expect_text(r, "state", "held");
    expect_number(r, "fencing_token", 1);
    expect_number(r, "limit", 1);
    expect_number(r, "ttl_ms", 60000);
    expect_number(r, "waited_ms", 0);
    expect_header(r, "X-Fencing-Token", "1");

    const char *id = text_at(r, "lease_id");
    expect_header(r, "Location", test_printf("/leases/%s", id));
    assert_int_equal(strlen(id), 40);
    assert_int_equal(strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
                     40);
    assert_in_range(number_at(r, "expires_in_ms"), 30000, 60000);
    long long span_ms = time_of(text_at(r, "expires_at")) - time_of(text_at(r, "acquired_at"));
    assert_in_range(span_ms, 30000, 61000);
}

static void ttl_and_owner_have_defaults(void **state)
{
    (void)state;
    struct response *r = expect_status(post(g, "/leases", "{\"resource\":\"defaults\"}"), 201);
    expect_number(r, "ttl_ms", 30000);
    expect_number(r, "limit", 1);
    expect_null(r, "owner");
}

static void ttl_is_a_whole_number_in_its_range(void **state)
{
    (void)state;
    const char *const bad[] = {"49",    "0",       "-1",   "86400001", "1e300",
                               "100.5", "\"100\"", "true", "[]",       "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct response *r = post(g, "/leases", "{\"resource\":\"ttl\",\"ttl_ms\":%s}", bad[i]);
        assert_int_equal(expect_status(r, 400)->status, 400);
        const char *code = text_at(r, "code");
        if (strcmp(code, "invalid_json") == 0)
            continue; /* numbers that the JSON parser itself refuses */
        expect_text(r, "code", "invalid_request");
        expect_text(r, "errors.0.pointer", "/ttl_ms");
        assert_true(*text_at(r, "errors.0.detail"));
    }
    expect_problem(resource(g, "ttl"), 404, "resource_not_found");

    acquire(g, "ttl longest", 86400000);
    try_acquire(g, "ttl shortest", 50); /* may run out while it is granted */
}

static void limit_and_wait_are_whole_numbers_in_their_ranges(void **state)
{
    (void)state;
    const char *const bad[][2] = {
        {"limit", "0"},     {"limit", "1001"},   {"limit", "-1"},       {"limit", "2.0"},
        {"limit", "\"2\""}, {"limit", "null"},   {"wait_ms", "600001"}, {"wait_ms", "-1"},
        {"wait_ms", "0.5"}, {"wait_ms", "\"\""}, {"wait_ms", "true"},   {"wait_ms", "null"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct response *r =
            post(g, "/leases", "{\"resource\":\"ranges\",\"%s\":%s}", bad[i][0], bad[i][1]);
        expect_problem(r, 400, "invalid_request");
        expect_text(r, "errors.0.pointer", test_printf("/%s", bad[i][0]));
        assert_true(*text_at(r, "errors.0.detail"));
    }
    expect_problem(resource(g, "ranges"), 404, "resource_not_found");
    struct response *r =
        post(g, "/leases", "{\"resource\":\"ranges\",\"limit\":1000,\"wait_ms\":600000}");
    expect_number(expect_status(r, 201), "limit", 1000);
}

static void owner_is_a_label_of_up_to_128_bytes(void **state)
{
    (void)state;
    struct response *r =
        post(g, "/leases", "{\"resource\":\"owner 128\",\"owner\":\"%s\"}", long_name(128));
    expect_text(expect_status(r, 201), "owner", long_name(128));
    r = post(g, "/leases", "{\"resource\":\"owner 129\",\"owner\":\"%s\"}", long_name(129));
    expect_text(expect_problem(r, 400, "invalid_request"), "errors.0.pointer", "/owner");
    r = post(g, "/leases", "{\"resource\":\"owner 5\",\"owner\":5}");
    expect_text(expect_problem(r, 400, "invalid_request"), "errors.0.pointer", "/owner");
}

static void a_held_resource_answers_who_holds_it(void **state)
{
    (void)state;
    struct response *a =
        post(g, "/leases", "{\"resource\":\"held\",\"ttl_ms\":%d,\"owner\":\"A\"}", LONG_TTL_MS);
    expect_status(a, 201);
    struct response *r = expect_problem(try_acquire(g, "held", 1000), 409, "lease_held");
    assert_int_equal(count_at(r, "holders"), 1);
    expect_members(r, "holders.0", LIST("fencing_token", "owner", "expires_in_ms"));
    expect_number(r, "holders.0.fencing_token", number_at(a, "fencing_token"));
    expect_text(r, "holders.0.owner", "A");
    assert_in_range(number_at(r, "holders.0.expires_in_ms"), 1, LONG_TTL_MS);
    expect_number(r, "waited_ms", 0);
    assert_null(strstr(r->body, text_at(a, "lease_id")));
}

static void twice_the_same_owner_is_two_leases(void **state)
{
    (void)state;
    const char *body = "{\"resource\":\"same owner\",\"owner\":\"A\"}";
    expect_status(post(g, "/leases", "%s", body), 201);
    expect_problem(post(g, "/leases", "%s", body), 409, "lease_held");
}

static void tokens_rise_with_every_grant(void **state)
{
    (void)state;
    for (long long token = 1; token <= 5; token++) {
        struct lease lease = acquire(g, "rising", LONG_TTL_MS);
        assert_int_equal(lease.token, token);
        expect_status(release(g, lease.id), 200);
    }
}

static void names_are_compared_byte_by_byte(void **state)
{
    (void)state;
    const char *const names[] = {"name", "Name",    "name ",          "n\xC3\xA4me", "na\xCC\x88me",
                                 "a/b",  "{x}",     "%7Bx%7D",        "}",           "%",
                                 "...",  "a\"b\\c", "fencegate:store"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct lease lease = acquire(g, names[i], LONG_TTL_MS);
        assert_int_equal(lease.token, 1);
        expect_text(lease.answer, "resource", names[i]);
        expect_text(resource(g, names[i]), "resource", names[i]);
    }
    acquire(g, long_name(200), LONG_TTL_MS);
}

/* ---- Renew ------------------------------------------------------------------------------------
 */

static void renew_moves_the_expiry(void **state)
{
    (void)state;
    struct lease a = acquire(g, "renewed", 20000);
    struct response *r = expect_status(renew(g, a.id, LONG_TTL_MS), 200);
    expect_members(r, "", lease_members);
    expect_text(r, "lease_id", a.id);
    expect_text(r, "state", "held");
    expect_number(r, "fencing_token", a.token);
    assert_in_range(number_at(r, "expires_in_ms"), 20001, LONG_TTL_MS);

    /* It may shorten, too, and without a TTL takes that of the grant. */
    r = expect_status(renew(g, a.id, 10000), 200);
    assert_in_range(number_at(r, "expires_in_ms"), 1, 10000);
    r = expect_status(renew(g, a.id, 0), 200);
    assert_in_range(number_at(r, "expires_in_ms"), 10001, 20000);
}

static void a_renewed_lease_outlives_its_first_ttl(void **state)
{
    (void)state;
    struct lease a = acquire(g, "outlives", slow_ms(2000));
    expect_status(renew(g, a.id, LONG_TTL_MS), 200);
    sleep_ms(slow_ms(2200));
    expect_problem(try_acquire(g, "outlives", slow_ms(2000)), 409, "lease_held");
    expect_status(renew(g, a.id, 0), 200);
}

static void an_expired_lease_is_not_renewed(void **state)
{
    (void)state;
    struct lease a = acquire(g, "renew expired", SHORT_TTL_MS);
    await_expiry(g, a.id);
    expect_problem(renew(g, a.id, LONG_TTL_MS), 410, "lease_expired");
    /* Nor has the attempt brought it back. */
    acquire(g, "renew expired", LONG_TTL_MS);
}

static void a_superseded_lease_is_not_renewed(void **state)
{
    (void)state;
    struct lease a = acquire(g, "renew superseded", SHORT_TTL_MS);
    struct lease b = acquire_within(g, "renew superseded", LONG_TTL_MS, 10000);
    expect_problem(renew(g, a.id, 0), 410, "lease_superseded");
    expect_text(inspect(g, b.id), "state", "held");
}

static void a_released_lease_is_not_renewed(void **state)
{
    (void)state;
    struct lease a = acquire(g, "renew released", LONG_TTL_MS);
    expect_status(release(g, a.id), 200);
    expect_problem(renew(g, a.id, 0), 410, "lease_released");
    acquire(g, "renew released", LONG_TTL_MS);
}

static void renew_checks_its_body(void **state)
{
    (void)state;
    struct lease a = acquire(g, "renew body", LONG_TTL_MS);
    const char *target = test_printf("/leases/%s/renew", a.id);
    struct response *r = expect_problem(renew(g, a.id, 49), 400, "invalid_request");
    expect_text(r, "errors.0.pointer", "/ttl_ms");
    r = expect_problem(post(g, target, "{\"ttl\":500}"), 400, "invalid_request");
    expect_text(r, "errors.0.pointer", "/ttl");
    expect_problem(post(g, target, "{"), 400, "invalid_json");
    expect_status(post(g, target, "{}"), 200);
}

/* ---- Release ----------------------------------------------------------------------------------
 */

static void release_answers_how_long_it_was_held(void **state)
{
    (void)state;
    struct lease a = acquire(g, "release", LONG_TTL_MS);
    sleep_ms(50);
    struct response *r = expect_status(release(g, a.id), 200);
    expect_members(r, "", LIST("released", "expired", "held_ms", "remaining_ms"));
    expect_true(r, "released");
    expect_false(r, "expired");
    assert_in_range(number_at(r, "held_ms"), 40, 60000);
    assert_in_range(number_at(r, "remaining_ms"), 1, LONG_TTL_MS - 40);

    /* The next one is in at once. */
    assert_int_equal(acquire(g, "release", 1000).token, a.token + 1);
}

static void release_can_be_repeated(void **state)
{
    (void)state;
    struct lease a = acquire(g, "release twice", LONG_TTL_MS);
    struct response *first = expect_status(release(g, a.id), 200);
    struct lease b = acquire(g, "release twice", LONG_TTL_MS);
    for (int i = 0; i < 2; i++) {
        struct response *again = expect_status(release(g, a.id), 200);
        expect_true(again, "released");
        expect_true(again, "already_released");
        expect_number(again, "held_ms", number_at(first, "held_ms"));
    }
    expect_text(inspect(g, b.id), "state", "held");
}

static void release_of_an_expired_lease_says_so(void **state)
{
    (void)state;
    struct lease a = acquire(g, "release expired", SHORT_TTL_MS);
    await_expiry(g, a.id);
    struct response *r = expect_status(release(g, a.id), 200);
    expect_true(r, "released");
    expect_true(r, "expired");
    expect_number(r, "remaining_ms", 0);
}

static void release_of_a_superseded_lease_is_refused(void **state)
{
    (void)state;
    struct lease a = acquire(g, "release superseded", SHORT_TTL_MS);
    struct lease b = acquire_within(g, "release superseded", LONG_TTL_MS, 10000);
    expect_problem(release(g, a.id), 410, "lease_superseded");
    expect_text(inspect(g, b.id), "state", "held");
    expect_problem(try_acquire(g, "release superseded", 1000), 409, "lease_held");
}

/* ---- Inspect ----------------------------------------------------------------------------------
 */

static void inspect_shows_each_state(void **state)
{
    (void)state;
    struct lease a = acquire(g, "states", slow_ms(3000));
    struct response *r = expect_status(inspect(g, a.id), 200);
    expect_members(r, "", lease_members);
    expect_text(r, "state", "held");
    assert_in_range(number_at(r, "expires_in_ms"), 0, slow_ms(3000));
    expect_text(r, "acquired_at", text_at(a.answer, "acquired_at"));

    await_expiry(g, a.id);
    r = expect_status(inspect(g, a.id), 200);
    expect_members(r, "", lease_members);
    expect_number(r, "expires_in_ms", 0);

    struct lease b = acquire(g, "states", LONG_TTL_MS);
    expect_text(inspect(g, a.id), "state", "superseded");
    expect_status(release(g, b.id), 200);
    expect_text(inspect(g, b.id), "state", "released");
    expect_members(inspect(g, b.id), "", lease_members);
}

static void an_unknown_lease_is_not_found(void **state)
{
    (void)state;
    struct lease a = acquire(g, "unknown lease", LONG_TTL_MS);
    char *other = test_printf("%s", a.id);
    other[39] = other[39] == 'A' ? 'Q' : 'A';
    char *middle = test_printf("%s", a.id);
    middle[25] = middle[25] == 'A' ? 'B' : 'A';
    const char *const ids[] = {other,
                               middle,
                               "x",
                               "..............",
                               test_printf("%sA", a.id),
                               test_printf("%.39s", a.id),
                               "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        expect_problem(inspect(g, ids[i]), 404, "lease_not_found");
        expect_problem(release(g, ids[i]), 404, "lease_not_found");
        expect_problem(renew(g, ids[i], 0), 404, "lease_not_found");
    }
    expect_text(inspect(g, a.id), "state", "held");
}

/* ---- Lists and resources ----------------------------------------------------------------------
 */

static void acquire_for(const char *name, const char *owner)
{
    expect_status(post(g, "/leases", "{\"resource\":\"%s\",\"owner\":\"%s\",\"ttl_ms\":%d}", name,
                       owner, LONG_TTL_MS),
                  201);
}

static void live_leases_are_listed_without_their_ids(void **state)
{
    (void)state;
    acquire_for("list/1", "lister");
    acquire_for("list/2", "lister");
    acquire_for("list/3", "somebody");
    struct lease released = acquire(g, "list/4", LONG_TTL_MS);
    expect_status(release(g, released.id), 200);

    struct response *r = expect_status(get(g, "/leases?owner=lister"), 200);
    expect_members(r, "", LIST("items", "next_cursor"));
    expect_null(r, "next_cursor");
    assert_int_equal(count_at(r, "items"), 2);
    expect_text(r, "items.0.resource", "list/1");
    expect_text(r, "items.1.resource", "list/2");
    expect_text(r, "items.0.state", "held");
    expect_absent(r, "items.0.lease_id");
    expect_number(r, "items.0.fencing_token", 1);

    r = expect_status(get(g, "/leases?resource=list%2F3"), 200);
    assert_int_equal(count_at(r, "items"), 1);
    r = expect_status(get(g, "/leases?resource=list%2F3&owner=lister"), 200);
    assert_int_equal(count_at(r, "items"), 0);
    r = expect_status(get(g, "/leases?resource=list%2F4"), 200);
    assert_int_equal(count_at(r, "items"), 0);
}

static void lists_come_in_pages(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        acquire_for(test_printf("page/%d", i), "pager");

    const char *cursor = "";
    for (int i = 0; i < 5; i++) {
        struct response *r =
            expect_status(get(g, test_printf("/leases?owner=pager&limit=1%s", cursor)), 200);
        assert_int_equal(count_at(r, "items"), 1);
        expect_text(r, "items.0.resource", test_printf("page/%d", i));
        if (i < 4)
            cursor = test_printf("&cursor=%s", encoded(text_at(r, "next_cursor")));
        else
            expect_null(r, "next_cursor");
    }
    struct response *r = expect_status(get(g, "/leases?owner=pager&limit=1000"), 200);
    assert_int_equal(count_at(r, "items"), 5);

    const char *const bad[] = {"limit=0", "limit=1001", "limit=x", "limit=-1",
                               "limit=",  "cursor=!",   "page=2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_problem(get(g, test_printf("/leases?%s", bad[i])), 400, "invalid_request");
}

static void a_resource_shows_its_holders(void **state)
{
    (void)state;
    expect_problem(resource(g, "seen"), 404, "resource_not_found");
    acquire_for("seen", "A");
    struct response *r = expect_status(resource(g, "seen"), 200);
    expect_members(
        r, "", LIST("resource", "limit", "fenced", "highest_fencing_token", "holders", "waiters"));
    expect_text(r, "resource", "seen");
    expect_number(r, "limit", 1);
    expect_true(r, "fenced");
    expect_number(r, "highest_fencing_token", 1);
    expect_number(r, "waiters", 0);
    assert_int_equal(count_at(r, "holders"), 1);
    expect_members(r, "holders.0", LIST("fencing_token", "owner", "expires_in_ms"));
    expect_number(r, "holders.0.fencing_token", 1);
    expect_text(r, "holders.0.owner", "A");
    assert_in_range(number_at(r, "holders.0.expires_in_ms"), 1, LONG_TTL_MS);
}

static bool has_holders(const char *name)
{
    return count_at(resource(g, name), "holders") > 0;
}

static void an_ended_lease_is_no_holder(void **state)
{
    (void)state;
    struct lease a = acquire(g, "unseen", LONG_TTL_MS);
    expect_status(release(g, a.id), 200);
    assert_true(EVENTUALLY(!has_holders("unseen"), 5000));
    expect_number(resource(g, "unseen"), "highest_fencing_token", 1);

    struct lease b = acquire(g, "unseen", SHORT_TTL_MS);
    await_expiry(g, b.id);
    assert_false(has_holders("unseen"));
    expect_number(resource(g, "unseen"), "highest_fencing_token", 2);
}

static void resources_are_listed_by_name(void **state)
{
    (void)state;
    acquire(g, "!1", LONG_TTL_MS);
    acquire(g, "!2", LONG_TTL_MS);
    struct response *r = expect_status(get(g, "/resources?limit=1"), 200);
    expect_members(r, "", LIST("items", "next_cursor"));
    assert_int_equal(count_at(r, "items"), 1);
    expect_text(r, "items.0.resource", "!1");
    expect_members(
        r, "items.0",
        LIST("resource", "limit", "fenced", "highest_fencing_token", "holders", "waiters"));
    assert_int_equal(count_at(r, "items.0.holders"), 1);
    r = expect_status(
        get(g, test_printf("/resources?limit=1&cursor=%s", encoded(text_at(r, "next_cursor")))),
        200);
    expect_text(r, "items.0.resource", "!2");
}

/* ---- Redis' share -----------------------------------------------------------------------------
 */

static void a_counter_expires_and_the_mark_carries_on(void **state)
{
    (void)state;
    struct lease a = acquire(g, "counter", 1000);
    long long ttl_ms = redis_number(redis, "PTTL fencegate:{counter}:counter");
    assert_in_range(ttl_ms, 86000000, 86401000);
    expect_status(release(g, a.id), 200);
    assert_true(EVENTUALLY(!redis_number(redis, "EXISTS fencegate:{counter}:holders"), 5000));

    redis_command(redis, "DEL fencegate:{counter}:counter");
    assert_int_equal(acquire(g, "counter", 1000).token, a.token + 1);
}

static void a_counter_ahead_of_the_mark_is_followed(void **state)
{
    (void)state;
    redis_command(redis, "SET fencegate:{ahead}:counter 41");
    assert_int_equal(acquire(g, "ahead", LONG_TTL_MS).token, 42);
}

static void keys_of_odd_names_are_escaped(void **state)
{
    (void)state;
    acquire(g, "{a}%", LONG_TTL_MS);
    assert_int_equal(redis_number(redis, "EXISTS %s", "fencegate:{%7Ba%7D%25}:counter"), 1);
    assert_int_equal(redis_number(redis, "ZCARD %s", "fencegate:{%7Ba%7D%25}:holders"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(acquire_answers_the_whole_lease),
        TEST(ttl_and_owner_have_defaults),
        TEST(ttl_is_a_whole_number_in_its_range),
        TEST(limit_and_wait_are_whole_numbers_in_their_ranges),
        TEST(owner_is_a_label_of_up_to_128_bytes),
        TEST(a_held_resource_answers_who_holds_it),
        TEST(twice_the_same_owner_is_two_leases),
        TEST(tokens_rise_with_every_grant),
        TEST(names_are_compared_byte_by_byte),
        TEST(renew_moves_the_expiry),
        TEST(a_renewed_lease_outlives_its_first_ttl),
        TEST(an_expired_lease_is_not_renewed),
        TEST(a_superseded_lease_is_not_renewed),
        TEST(a_released_lease_is_not_renewed),
        TEST(renew_checks_its_body),
        TEST(release_answers_how_long_it_was_held),
        TEST(release_can_be_repeated),
        TEST(release_of_an_expired_lease_says_so),
        TEST(release_of_a_superseded_lease_is_refused),
        TEST(inspect_shows_each_state),
        TEST(an_unknown_lease_is_not_found),
        TEST(live_leases_are_listed_without_their_ids),
        TEST(lists_come_in_pages),
        TEST(a_resource_shows_its_holders),
        TEST(an_ended_lease_is_no_holder),
        TEST(resources_are_listed_by_name),
        TEST(a_counter_expires_and_the_mark_carries_on),
        TEST(a_counter_ahead_of_the_mark_is_followed),
        TEST(keys_of_odd_names_are_escaped),
    };
    return cmocka_run_group_tests_name("leases", tests, start_servers, NULL);
}
