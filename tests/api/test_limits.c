/* test_limits.c - how many may hold a resource at once: who fixes the limit, and how it changes
 * while the resource is held and waited for.
 *
 * One gateway and one Redis for all cases; each uses resources of its own. */
#include "tests/support/limits.h"

static struct gateway *g;

static int start_servers(void **state)
{
    (void)state;
    g = gateway_start(redis_server_url(redis_server_start(NULL)), NULL);
    cleanup_keep();
    return 0;
}

/* ---- The limit --------------------------------------------------------------------------------
 */

static void the_first_grant_fixes_the_limit(void **state)
{
    (void)state;
    struct response *r = expect_status(ask(g, "first", LONG_TTL_MS, limit_field(3)), 201);
    expect_number(r, "limit", 3);
    const char *id = text_at(r, "lease_id");
    expect_number(expect_status(inspect(g, id), 200), "limit", 3);
    expect_number(resource(g, "first"), "limit", 3);
    expect_status(ask(g, "first", LONG_TTL_MS, limit_field(3)), 201);
    expect_status(ask(g, "first", LONG_TTL_MS, limit_field(3)), 201);
    expect_problem(ask(g, "first", LONG_TTL_MS, limit_field(3)), 409, "lease_held");
    expect_holders(g, "first", 3);

    /* Once and for all, also when nobody holds it any more. */
    expect_status(post(g, "/resources/first/revoke", "{\"reason\":\"over\"}"), 200);
    expect_problem(ask(g, "first", LONG_TTL_MS, limit_field(1)), 409, "limit_mismatch");
    expect_number(expect_status(ask(g, "first", LONG_TTL_MS, ""), 201), "limit", 3);
}

static void another_named_limit_is_a_mismatch(void **state)
{
    (void)state;
    struct lease a = {
        .answer = expect_status(ask(g, "mismatch", LONG_TTL_MS, limit_field(3)), 201)};
    const int others[] = {1, 2, 4, 1000};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct response *r = expect_problem(ask(g, "mismatch", LONG_TTL_MS, limit_field(others[i])),
                                            409, "limit_mismatch");
        expect_number(r, "limit", 3);
        expect_text(r, "resource", "mismatch");
        expect_false(r, "retryable");
    }
    /* Nothing came of them. */
    struct response *r = resource(g, "mismatch");
    expect_number(r, "highest_fencing_token", number_at(a.answer, "fencing_token"));
    expect_number(r, "limit", 3);
    assert_int_equal(count_at(r, "holders"), 1);
}

static void who_waits_with_another_limit_is_told_at_once(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "wait mismatch", 2, 2, l);
    const char *fields = test_printf(",\"limit\":3,\"wait_ms\":%d", LONG_WAIT_MS);
    struct response *r =
        expect_problem(ask(g, "wait mismatch", LONG_TTL_MS, fields), 409, "limit_mismatch");
    expect_number(r, "limit", 2);
    /* Also where the limit is changed while it waits, as soon as it is its turn. */
    struct http *waiter = wait_for(g, "wait mismatch", ",\"limit\":2");
    set_limit(g, "wait mismatch", 4);
    r = http_receive(waiter, "POST");
    assert_non_null(r);
    expect_number(expect_problem(r, 409, "limit_mismatch"), "limit", 4);
    assert_true(waiters_are(g, "wait mismatch", 0));
}

static void none_named_takes_what_is_set(void **state)
{
    (void)state;
    expect_status(ask(g, "none named", LONG_TTL_MS, limit_field(2)), 201);
    expect_number(expect_status(ask(g, "none named", LONG_TTL_MS, ""), 201), "limit", 2);
    expect_full(g, "none named");
}

static void none_named_at_all_is_a_mutex(void **state)
{
    (void)state;
    expect_number(expect_status(ask(g, "mutex", LONG_TTL_MS, ""), 201), "limit", 1);
    expect_full(g, "mutex");
    expect_number(
        expect_problem(ask(g, "mutex", LONG_TTL_MS, limit_field(2)), 409, "limit_mismatch"),
        "limit", 1);
    expect_problem(ask(g, "mutex", LONG_TTL_MS, limit_field(1)), 409, "lease_held");
}

static void a_limit_that_was_set_counts_before_the_first_grant(void **state)
{
    (void)state;
    set_limit(g, "set before", 2);
    expect_number(
        expect_problem(ask(g, "set before", LONG_TTL_MS, limit_field(3)), 409, "limit_mismatch"),
        "limit", 2);
    expect_status(ask(g, "set before", LONG_TTL_MS, limit_field(2)), 201);
    expect_status(ask(g, "set before", LONG_TTL_MS, ""), 201);
    expect_full(g, "set before");

    /* Created without a limit it is the first grant that fixes it. */
    expect_status(call(g, "PUT", "/resources/set%20later", NULL, "{}"), 200);
    expect_number(expect_status(ask(g, "set later", LONG_TTL_MS, limit_field(2)), 201), "limit", 2);
    expect_number(resource(g, "set later"), "limit", 2);
}

static void a_limit_is_a_whole_number_from_1_to_1000(void **state)
{
    (void)state;
    const char *const bad[] = {"0", "-1", "1001", "1.5", "\"2\"", "true", "null", "[2]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct response *r = ask(g, "range", LONG_TTL_MS, test_printf(",\"limit\":%s", bad[i]));
        expect_text(expect_problem(r, 400, "invalid_request"), "errors.0.pointer", "/limit");
    }
    expect_problem(resource(g, "range"), 404, "resource_not_found");
    expect_number(expect_status(ask(g, "range", LONG_TTL_MS, limit_field(1000)), 201), "limit",
                  1000);
}

static void a_refusal_names_all_holders_and_when_the_first_runs_out(void **state)
{
    (void)state;
    const int ttls_ms[] = {LONG_TTL_MS, LONG_TTL_MS / 10, LONG_TTL_MS};
    set_limit(g, "named", 3);
    for (int i = 0; i < 3; i++)
        expect_status(ask(g, "named", ttls_ms[i], test_printf(",\"owner\":\"owner %d\"", i)), 201);
    struct response *r = expect_problem(ask(g, "named", LONG_TTL_MS, ""), 409, "lease_held");
    assert_int_equal(count_at(r, "holders"), 3);
    bool seen[3] = {false};
    for (int i = 0; i < 3; i++) {
        long long token = number_at(r, test_printf("holders.%d.fencing_token", i));
        assert_in_range(token, 1, 3);
        expect_text(r, test_printf("holders.%d.owner", i), test_printf("owner %lld", token - 1));
        seen[token - 1] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    assert_in_range(number_at(r, "retry_after_ms"), 1, LONG_TTL_MS / 10);
}

/* ---- A limit that changes ---------------------------------------------------------------------
 */

static void a_smaller_limit_ends_nobody_and_admits_nobody_until_enough_left(void **state)
{
    (void)state;
    struct lease l[4];
    take(g, "smaller", 4, 4, l);
    set_limit(g, "smaller", 2);
    expect_holders(g, "smaller", 4);
    for (int i = 0; i < 4; i++) {
        expect_writer(g, "smaller", l[i]);
        expect_status(renew(g, l[i].id, 0), 200);
        expect_text(inspect(g, l[i].id), "state", "held");
    }
    for (int i = 0; i < 3; i++) { /* 4, 3, then 2 are left: none too few */
        expect_full(g, "smaller");
        expect_status(release(g, l[i].id), 200);
    }
    struct lease next = acquire(g, "smaller", LONG_TTL_MS);
    expect_number(next.answer, "limit", 2);
    expect_full(g, "smaller");
    expect_writer(g, "smaller", l[3]);
    expect_writer(g, "smaller", next);
}

static void who_waits_stays_until_enough_left(void **state)
{
    (void)state;
    struct lease l[3];
    struct http *waiters[2];
    take(g, "smaller queue", 3, 3, l);
    queue_up(g, "smaller queue", 2, waiters);
    set_limit(g, "smaller queue", 1);
    expect_status(release(g, l[1].id), 200);
    expect_status(release(g, l[0].id), 200);
    /* The answer to a request that came later shows that the queue has looked. */
    expect_full(g, "smaller queue");
    assert_true(waiters_are(g, "smaller queue", 2));
    expect_status(release(g, l[2].id), 200);
    struct lease first = granted_to(waiters[0]);
    assert_true(waiters_are(g, "smaller queue", 1));
    expect_full(g, "smaller queue");
    expect_status(release(g, first.id), 200);
    assert_true(granted_to(waiters[1]).token > first.token);
}

static void an_expired_holder_has_left_when_the_limit_is_smaller(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "smaller expired", 3, 2, l);
    struct lease paused = acquire(g, "smaller expired", SHORT_TTL_MS);
    await_expiry(g, paused.id);
    set_limit(g, "smaller expired", 2);
    expect_full(g, "smaller expired");
    expect_writer(g, "smaller expired", paused);
    expect_status(release(g, l[0].id), 200);
    struct lease next = acquire(g, "smaller expired", LONG_TTL_MS);
    expect_replaced(g, "smaller expired", paused, next);
    expect_writer(g, "smaller expired", l[1]);
    expect_full(g, "smaller expired");
}

static void a_larger_limit_lets_newcomers_in_at_once(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "larger", 2, 2, l);
    expect_full(g, "larger");
    set_limit(g, "larger", 3);
    expect_status(ask(g, "larger", LONG_TTL_MS, limit_field(3)), 201);
    expect_full(g, "larger");
    expect_problem(ask(g, "larger", LONG_TTL_MS, limit_field(2)), 409, "limit_mismatch");
    expect_holders(g, "larger", 3);
    expect_writer(g, "larger", l[0]);
    expect_writer(g, "larger", l[1]);
}

static void a_larger_limit_lets_waiters_in_at_once_and_in_order(void **state)
{
    (void)state;
    struct lease l[2];
    struct http *waiters[5];
    take(g, "larger queue", 2, 2, l);
    queue_up(g, "larger queue", 5, waiters);
    set_limit(g, "larger queue", 5);
    long long token = l[1].token;
    for (int i = 0; i < 3; i++) {
        struct lease next = granted_to(waiters[i]);
        assert_true(next.token > token);
        token = next.token;
        expect_number(next.answer, "limit", 5);
    }
    await_waiters(g, "larger queue", 2);
    expect_holders(g, "larger queue", 5);
    expect_full(g, "larger queue");
    expect_status(release(g, l[0].id), 200);
    assert_true(granted_to(waiters[3]).token > token);
}

/* ---- 1 <-> N ---- */

static void a_lease_granted_at_limit_1_stays_alone_until_it_is_released(void **state)
{
    (void)state;
    struct http *waiters[4];
    struct lease a = acquire(g, "alone", LONG_TTL_MS);
    queue_up(g, "alone", 4, waiters);
    set_limit(g, "alone", 3);
    expect_problem(ask(g, "alone", LONG_TTL_MS, limit_field(3)), 409, "lease_held");
    expect_status(renew(g, a.id, 0), 200);
    expect_full(g, "alone");
    assert_true(waiters_are(g, "alone", 4));
    expect_holders(g, "alone", 1);

    /* Then all three places are free. */
    expect_status(release(g, a.id), 200);
    for (int i = 0; i < 3; i++)
        granted_to(waiters[i]);
    await_waiters(g, "alone", 1);
    expect_holders(g, "alone", 3);
    expect_full(g, "alone");
}

static void a_lease_granted_at_limit_1_stays_alone_until_it_is_revoked(void **state)
{
    (void)state;
    struct http *waiters[3];
    struct lease a = acquire(g, "alone revoked", LONG_TTL_MS);
    set_limit(g, "alone revoked", 2);
    queue_up(g, "alone revoked", 3, waiters);
    expect_status(post(g, "/resources/alone%20revoked/revoke",
                       "{\"reason\":\"r\",\"fencing_token\":%lld}", a.token),
                  200);
    struct lease b = granted_to(waiters[0]), c = granted_to(waiters[1]);
    expect_writer(g, "alone revoked", b);
    expect_writer(g, "alone revoked", c);
    assert_false(may_write(g, "alone revoked", a));
    await_waiters(g, "alone revoked", 1);
}

static void a_lease_granted_at_limit_1_stays_alone_although_it_expired(void **state)
{
    (void)state;
    struct lease a = acquire(g, "alone expired", SHORT_TTL_MS);
    set_limit(g, "alone expired", 3);
    await_expiry(g, a.id);
    expect_writer(g, "alone expired", a);
    expect_holders(g, "alone expired", 0);

    /* It is not joined but replaced, although there was room for three. */
    struct lease b = acquire(g, "alone expired", LONG_TTL_MS);
    expect_replaced(g, "alone expired", a, b);
    struct lease c = acquire(g, "alone expired", LONG_TTL_MS);
    struct lease d = acquire(g, "alone expired", LONG_TTL_MS);
    expect_full(g, "alone expired");
    expect_writer(g, "alone expired", b);
    expect_writer(g, "alone expired", c);
    expect_writer(g, "alone expired", d);
}

static void waiters_get_in_when_an_expired_exclusive_lease_is_replaced(void **state)
{
    (void)state;
    struct http *waiters[4];
    acquire(g, "alone queue", slow_ms(2000));
    queue_up(g, "alone queue", 4, waiters);
    set_limit(g, "alone queue", 3);
    for (int i = 0; i < 3; i++)
        granted_to(waiters[i]);
    await_waiters(g, "alone queue", 1);
    expect_holders(g, "alone queue", 3);
}

static void leases_granted_at_limit_n_stay_together_at_limit_1(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "together", 3, 2, l);
    set_limit(g, "together", 1);
    expect_full(g, "together");
    expect_writer(g, "together", l[0]);
    expect_writer(g, "together", l[1]);
    /* None of them was promised to be alone. */
    set_limit(g, "together", 3);
    struct lease c = acquire(g, "together", LONG_TTL_MS);
    expect_full(g, "together");
    expect_writer(g, "together", l[0]);
    expect_writer(g, "together", c);
}

static void back_at_limit_1_the_next_one_is_alone(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "back", 2, 2, l);
    set_limit(g, "back", 1);
    expect_status(release(g, l[0].id), 200);
    expect_full(g, "back");
    expect_status(release(g, l[1].id), 200);
    struct lease a = acquire(g, "back", LONG_TTL_MS);
    expect_number(a.answer, "limit", 1);
    set_limit(g, "back", 2);
    expect_full(g, "back");
    expect_status(release(g, a.id), 200);
    acquire(g, "back", LONG_TTL_MS);
    acquire(g, "back", LONG_TTL_MS);
    expect_full(g, "back");
}

static void changes_of_the_limit_stand_in_the_history(void **state)
{
    (void)state;
    expect_status(ask(g, "told", LONG_TTL_MS, limit_field(2)), 201);
    set_limit(g, "told", 1);
    set_limit(g, "told", 1000);
    struct response *r = history(g, "told", "?kind=config");
    assert_int_equal(count_at(r, "items"), 2);
    expect_text(r, "items.0.reason", "limit 2 -> 1");
    expect_text(r, "items.1.reason", "limit 1 -> 1000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_grant_fixes_the_limit),
        TEST(another_named_limit_is_a_mismatch),
        TEST(who_waits_with_another_limit_is_told_at_once),
        TEST(none_named_takes_what_is_set),
        TEST(none_named_at_all_is_a_mutex),
        TEST(a_limit_that_was_set_counts_before_the_first_grant),
        TEST(a_limit_is_a_whole_number_from_1_to_1000),
        TEST(a_refusal_names_all_holders_and_when_the_first_runs_out),
        TEST(a_smaller_limit_ends_nobody_and_admits_nobody_until_enough_left),
        TEST(who_waits_stays_until_enough_left),
        TEST(an_expired_holder_has_left_when_the_limit_is_smaller),
        TEST(a_larger_limit_lets_newcomers_in_at_once),
        TEST(a_larger_limit_lets_waiters_in_at_once_and_in_order),
        TEST(a_lease_granted_at_limit_1_stays_alone_until_it_is_released),
        TEST(a_lease_granted_at_limit_1_stays_alone_until_it_is_revoked),
        TEST(a_lease_granted_at_limit_1_stays_alone_although_it_expired),
        TEST(waiters_get_in_when_an_expired_exclusive_lease_is_replaced),
        TEST(leases_granted_at_limit_n_stay_together_at_limit_1),
        TEST(back_at_limit_1_the_next_one_is_alone),
        TEST(changes_of_the_limit_stand_in_the_history),
    };
    return cmocka_run_group_tests_name("limits", tests, start_servers, NULL);
}
