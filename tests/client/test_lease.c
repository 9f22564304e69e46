/* test_lease.c - leases of libfence at a real gateway: taken, renewed, given back, and over.
 *
 * One gateway and one Redis for all cases; each uses resources of its own. Waiting for a lease is
 * in test_waits.c, the watchdog in test_watchdog.c, many threads in test_threads.c. */
#include "tests/support/client.h"

static struct gateway *g;
static struct fence_client *c;
static struct fence_lease *none; /* of calls that give nothing */

static int start_servers(void **state)
{
    (void)state;
    g = gateway_start(redis_server_url(redis_server_start(NULL)), NULL);
    c = client_of(g->url);
    cleanup_keep();
    return 0;
}

/* A lease that nobody renews but the test. */
static struct fence_lease *take_plain(const char *name, int ttl_ms)
{
    return take_lease(
        c, &(struct fence_terms){.resource = name, .ttl_ms = ttl_ms, .no_watchdog = true});
}

static enum fence_status ask_once(const char *name, int limit)
{
    none = (struct fence_lease *)&none;
    enum fence_status status =
        fence_acquire(c, &(struct fence_terms){.resource = name, .limit = limit}, &none, &failure);
    if (status == FENCE_OK)
        adopt(none);
    else
        assert_null(none);
    return status;
}

static const char *state_of(const struct fence_lease *lease)
{
    return text_at(expect_status(inspect(g, fence_lease_id(lease)), 200), "state");
}

static void expect_over(struct fence_lease *lease)
{
    assert_false(fence_still_held(lease));
    assert_int_equal(fence_left_ms(lease), 0);
}

/* ---- Taken ----------------------------------------------------------------------------------- */

static void a_lease_tells_what_was_granted(void **state)
{
    (void)state;
    struct fence_lease *a = take_lease(
        c, &(struct fence_terms){
               .resource = "told", .owner = "worker 1", .ttl_ms = LONG_TTL_MS, .limit = 3});
    struct response *r = expect_status(inspect(g, fence_lease_id(a)), 200);
    expect_text(r, "resource", fence_lease_resource(a));
    expect_text(r, "owner", fence_lease_owner(a));
    expect_number(r, "fencing_token", fence_lease_token(a));
    expect_number(r, "limit", fence_lease_limit(a));
    expect_number(r, "ttl_ms", fence_lease_ttl_ms(a));
    assert_string_equal(fence_lease_resource(a), "told");
    assert_string_equal(fence_lease_owner(a), "worker 1");
    assert_int_equal(fence_lease_token(a), 1);
    assert_int_equal(fence_lease_limit(a), 3);
    assert_int_equal(fence_lease_ttl_ms(a), LONG_TTL_MS);
    assert_true(time_of(fence_lease_expires_at(a)) > 0);
    assert_in_range(fence_lease_waited_ms(a), 0, 30000);
    assert_true(fence_still_held(a));
}

static void what_is_left_out_is_the_default(void **state)
{
    (void)state;
    struct fence_lease *a = take_lease(c, &(struct fence_terms){.resource = "defaults"});
    assert_int_equal(fence_lease_ttl_ms(a), 30000);
    assert_int_equal(fence_lease_limit(a), 1);
    assert_string_equal(fence_lease_owner(a), "");
    expect_null(inspect(g, fence_lease_id(a)), "owner");
}

static void the_deadline_comes_before_the_servers(void **state)
{
    (void)state;
    const int ttls_ms[] = {1000, 30000, LONG_TTL_MS};
    for (size_t i = 0; i < sizeof ttls_ms / sizeof *ttls_ms; i++) {
        struct fence_lease *a = take_plain(test_printf("before %zu", i), slow_ms(ttls_ms[i]));
        long long servers_ms = number_at(inspect(g, fence_lease_id(a)), "expires_in_ms");
        long long left_ms = fence_left_ms(a);
        assert_in_range(left_ms, 1, servers_ms);
        long long until_ms = fence_deadline_boot_ms(a) - boot_now_ms();
        assert_true(until_ms <= left_ms && until_ms > left_ms / 2);
        assert_true(left_ms > slow_ms(ttls_ms[i]) / 2);
    }
}

static void a_held_resource_is_refused_at_once(void **state)
{
    (void)state;
    struct fence_lease *a = take_lease(c, &(struct fence_terms){.resource = "held"});
    EXPECT_CODE(FENCE_HELD, "lease_held", ask_once("held", 0));
    assert_int_equal(failure.http_status, 409);
    assert_true(fence_status_retryable(failure.status));
    assert_true(failure.retry_after_ms > 0);
    EXPECT(FENCE_OK, fence_release(a, &failure));
    EXPECT(FENCE_OK, ask_once("held", 0));
}

static void two_clients_are_two_holders(void **state)
{
    (void)state;
    struct fence_client *other = client_of(g->url);
    struct fence_terms terms = {.resource = "two clients", .owner = "the same"};
    struct fence_lease *a = take_lease(c, &terms);
    EXPECT(FENCE_HELD, fence_acquire(other, &terms, &none, &failure));
    EXPECT(FENCE_OK, fence_release(a, &failure));
    assert_int_equal(fence_lease_token(take_lease(other, &terms)), fence_lease_token(a) + 1);
}

static void a_limit_lets_in_as_many(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        EXPECT(FENCE_OK, ask_once("limit", 3));
    EXPECT(FENCE_HELD, ask_once("limit", 3));
    EXPECT(FENCE_HELD, ask_once("limit", 0));
    EXPECT_CODE(FENCE_REFUSED, "limit_mismatch", ask_once("limit", 2));
    assert_int_equal(failure.http_status, 409);
    assert_false(fence_status_retryable(failure.status));
}

static void a_resource_without_fence_cannot_be_held(void **state)
{
    (void)state;
    expect_status(call(g, "PUT", "/resources/open", NULL, "{\"fenced\":false}"), 200);
    EXPECT_CODE(FENCE_REFUSED, "resource_unfenced", ask_once("open", 0));
}

static void every_name_that_the_gateway_takes_can_be_held(void **state)
{
    (void)state;
    const char *const names[] = {"a/b",
                                 "\xc3\xbc",
                                 "%",
                                 "%2F",
                                 "?",
                                 "a?b=c&d#e",
                                 " ",
                                 "a + b",
                                 "\"quoted\"\\",
                                 "...",
                                 "{braces}",
                                 "'; --",
                                 "\xf0\x9f\x94\x92",
                                 test_printf("%0200d", 7)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fence_lease *a = take_lease(
            c, &(struct fence_terms){.resource = names[i], .owner = names[i][1] ? "\"\\/" : 0});
        assert_string_equal(fence_lease_resource(a), names[i]);
        expect_number(expect_status(resource(g, names[i]), 200), "holders.0.fencing_token",
                      fence_lease_token(a));
        EXPECT(FENCE_OK, fence_renew(a, 0, &failure));
        EXPECT(FENCE_OK, fence_release(a, &failure));
    }
}

/* ---- Renewed --------------------------------------------------------------------------------- */

static void a_renewal_moves_the_deadline(void **state)
{
    (void)state;
    struct fence_lease *a = take_plain("renewed", 60000);
    long long before_ms = fence_deadline_boot_ms(a);
    sleep_ms(20);
    EXPECT(FENCE_OK, fence_renew(a, 0, &failure));
    assert_true(fence_deadline_boot_ms(a) > before_ms);
    assert_int_equal(fence_lease_ttl_ms(a), 60000);

    EXPECT(FENCE_OK, fence_renew(a, LONG_TTL_MS, &failure));
    assert_int_equal(fence_lease_ttl_ms(a), LONG_TTL_MS);
    assert_true(fence_left_ms(a) > 60000);
    EXPECT(FENCE_OK, fence_renew(a, 0, &failure)); /* as before */
    assert_true(fence_left_ms(a) > 60000);

    EXPECT(FENCE_OK, fence_renew(a, 20000, &failure));
    assert_int_equal(fence_lease_ttl_ms(a), 20000);
    assert_in_range(fence_left_ms(a), 1, 20000);
    assert_in_range(number_at(inspect(g, fence_lease_id(a)), "expires_in_ms"), 1, 20000);
    assert_true(fence_still_held(a));
}

static void a_renewal_that_cannot_be_leaves_the_lease_alone(void **state)
{
    (void)state;
    struct fence_lease *a = take_plain("no such ttl", 60000);
    const int64_t ttls_ms[] = {-1, 1, 49, 86400001, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof ttls_ms / sizeof *ttls_ms; i++)
        EXPECT(FENCE_INVALID, fence_renew(a, ttls_ms[i], &failure));
    assert_true(fence_still_held(a));
    assert_int_equal(fence_lease_ttl_ms(a), 60000);
    EXPECT(FENCE_OK, fence_release(a, &failure));
}

/* ---- Given back, and over -------------------------------------------------------------------- */

static void a_released_lease_is_over(void **state)
{
    (void)state;
    struct fence_lease *a = take_lease(c, &(struct fence_terms){.resource = "released"});
    long long token = fence_lease_token(a);
    EXPECT(FENCE_OK, fence_release(a, &failure));
    expect_over(a);
    assert_string_equal(state_of(a), "released");
    EXPECT(FENCE_OK, fence_release(a, &failure)); /* once more */
    EXPECT(FENCE_RELEASED, fence_renew(a, 0, &failure));
    expect_over(a);
    assert_string_equal(state_of(a), "released");

    struct fence_record record = fence_lease_record(a, "key");
    EXPECT_CODE(FENCE_STALE, "stale_fencing_token",
                fence_put(c, &record, "late", 4, NULL, &failure));
    EXPECT(FENCE_OK, ask_once("released", 0));
    assert_int_equal(fence_lease_token(none), token + 1);
}

static void a_lease_that_has_run_out_is_over(void **state)
{
    (void)state;
    struct fence_lease *a = take_plain("expired", SHORT_TTL_MS);
    await_expiry(g, fence_lease_id(a));
    expect_over(a);
    EXPECT(FENCE_EXPIRED, fence_renew(a, 60000, &failure));
    expect_over(a);
    assert_string_equal(state_of(a), "expired");
    EXPECT(FENCE_EXPIRED, fence_release(a, &failure));
    assert_string_equal(state_of(a), "released");
}

static void a_lease_that_was_replaced_says_so(void **state)
{
    (void)state;
    struct fence_lease *a = take_plain("superseded", SHORT_TTL_MS);
    await_expiry(g, fence_lease_id(a));
    struct lease b = acquire(g, "superseded", LONG_TTL_MS);
    enum fence_status renewed = fence_renew(a, 0, &failure);
    assert_true(renewed == FENCE_EXPIRED || renewed == FENCE_SUPERSEDED);
    EXPECT_CODE(FENCE_SUPERSEDED, "lease_superseded", fence_release(a, &failure));
    expect_over(a);
    expect_text(inspect(g, b.id), "state", "held");
}

static void a_lease_that_was_taken_away_says_so(void **state)
{
    (void)state;
    struct fence_lease *a = take_plain("revoked", LONG_TTL_MS);
    take_away(g, "revoked");
    assert_true(fence_still_held(a)); /* by all that we know */
    EXPECT_CODE(FENCE_REVOKED, "lease_revoked", fence_renew(a, 0, &failure));
    assert_int_equal(failure.http_status, 410);
    expect_over(a);
    EXPECT(FENCE_REVOKED, fence_renew(a, 0, &failure));
    EXPECT(FENCE_REVOKED, fence_release(a, &failure));

    struct fence_lease *b = take_plain("revoked", LONG_TTL_MS);
    take_away(g, "revoked");
    EXPECT_CODE(FENCE_REVOKED, "lease_revoked", fence_release(b, &failure)); /* told at the end */
    expect_over(b);
}

static void a_lease_that_another_released_says_so(void **state)
{
    (void)state;
    struct fence_lease *a = take_plain("by another", LONG_TTL_MS);
    expect_status(release(g, fence_lease_id(a)), 200);
    EXPECT_CODE(FENCE_RELEASED, "lease_released", fence_renew(a, 0, &failure));
    expect_over(a);
    EXPECT(FENCE_OK, fence_release(a, &failure));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lease_tells_what_was_granted),
        TEST(what_is_left_out_is_the_default),
        TEST(the_deadline_comes_before_the_servers),
        TEST(a_held_resource_is_refused_at_once),
        TEST(two_clients_are_two_holders),
        TEST(a_limit_lets_in_as_many),
        TEST(a_resource_without_fence_cannot_be_held),
        TEST(every_name_that_the_gateway_takes_can_be_held),
        TEST(a_renewal_moves_the_deadline),
        TEST(a_renewal_that_cannot_be_leaves_the_lease_alone),
        TEST(a_released_lease_is_over),
        TEST(a_lease_that_has_run_out_is_over),
        TEST(a_lease_that_was_replaced_says_so),
        TEST(a_lease_that_was_taken_away_says_so),
        TEST(a_lease_that_another_released_says_so),
    };
    return cmocka_run_group_tests(tests, start_servers, NULL);
}
