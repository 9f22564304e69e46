/* test_waiting.c - waiting for a lease: in order, for how long, on which connection.
 *
 * How many may wait and what changes meanwhile: test_waiting_rules.c. Crowds, hang-ups at the worst
 * moment, and Redis going away: tests/fault/test_waiting.py, test_hangups.py. */
#include "tests/support/waits.h"

#include <signal.h>

static struct gateway *g;

static int start_servers(void **state)
{
    (void)state;
    g = gateway_start(NULL, NULL);
    cleanup_keep();
    return 0;
}

static size_t grants_of(struct gateway *gateway, const char *name)
{
    return count_at(history(gateway, name, "?kind=grant"), "items");
}

/* ---- The turn ---------------------------------------------------------------------------------
 */

static void a_release_hands_over(void **state)
{
    (void)state;
    struct lease a = acquire(g, "hand over", LONG_TTL_MS);
    long long sent_ms = now_ms();
    struct http *b = wait_for(g, "hand over", ",\"owner\":\"B\"");
    sleep_ms(50);
    long long released_ms = now_ms();
    expect_status(release(g, a.id), 200);
    struct lease lease = granted_to(b);
    long long answered_ms = now_ms();

    const struct response *r = lease.answer;
    expect_members(r, "",
                   LIST("lease_id", "resource", "owner", "state", "fencing_token", "limit",
                        "ttl_ms", "expires_in_ms", "expires_at", "acquired_at", "waited_ms"));
    expect_text(r, "state", "held");
    expect_text(r, "owner", "B");
    expect_header(r, "Location", test_printf("/leases/%s", lease.id));
    expect_header(r, "X-Fencing-Token", test_printf("%lld", lease.token));
    assert_int_equal(lease.token, a.token + 1);
    long long waited_ms = number_at(r, "waited_ms");
    assert_true(waited_ms >= 45 && waited_ms <= answered_ms - sent_ms + 2);
    /* The TTL counts from the grant, and that came after the release. */
    long long left_ms = number_at(r, "expires_in_ms");
    assert_true(left_ms <= LONG_TTL_MS && left_ms >= LONG_TTL_MS - (answered_ms - released_ms) - 3);
    expect_number(inspect(g, lease.id), "waited_ms", waited_ms);
    expect_status(put(g, "hand over", "k", lease.token, "b"), 201);
    expect_problem(put(g, "hand over", "k", a.token, "a"), 412, "stale_fencing_token");
    assert_true(waiters_are(g, "hand over", 0));
}

static void a_wait_may_be_longer_than_the_ttl(void **state)
{
    (void)state;
    struct lease a = acquire(g, "long wait", LONG_TTL_MS);
    struct http *b = http_new(g->port);
    const char *body = test_printf("{\"resource\":\"long wait\",\"ttl_ms\":%d,\"wait_ms\":%d}",
                                   slow_ms(2000), LONG_WAIT_MS);
    http_send(b, "POST", "/leases", NULL, body, strlen(body));
    await_waiters(g, "long wait", 1);
    sleep_ms(slow_ms(2000) + 100);
    release(g, a.id);
    struct lease lease = granted_to(b);
    assert_true(number_at(lease.answer, "waited_ms") > slow_ms(2000));
    expect_text(inspect(g, lease.id), "state", "held");
}

static void they_are_served_in_the_order_they_came(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    struct http *waiting[COUNT];
    struct lease holder = acquire(g, "order", LONG_TTL_MS);
    for (int i = 0; i < COUNT; i++)
        waiting[i] = wait_for(g, "order", "");
    for (int i = 0; i < COUNT; i++) {
        assert_true(waiters_are(g, "order", COUNT - i));
        expect_status(release(g, holder.id), 200);
        struct lease next = granted_to(waiting[i]);
        assert_int_equal(next.token, holder.token + 1);
        holder = next;
    }
    assert_int_equal(grants_of(g, "order"), COUNT + 1);
}

static void a_lease_that_runs_out_lets_the_next_in(void **state)
{
    (void)state;
    struct lease a = acquire(g, "runs out", SHORT_TTL_MS);
    struct lease b = granted_to(ask_for(g, "runs out", ""));
    assert_true(b.token > a.token);
    expect_problem(renew(g, a.id, 0), 410, "lease_superseded");
}

static void renewals_keep_the_others_waiting(void **state)
{
    (void)state;
    struct lease a = acquire(g, "renewed", slow_ms(1500));
    struct http *b = wait_for(g, "renewed", "");
    for (int i = 0; i < 8; i++) {
        sleep_ms(300);
        expect_status(renew(g, a.id, slow_ms(1500)), 200);
        assert_true(waiters_are(g, "renewed", 1));
    }
    assert_int_equal(grants_of(g, "renewed"), 1);
    assert_true(granted_to(b).token > a.token); /* the renewals have ended */
}

static void a_shortened_lease_lets_the_next_in_when_it_runs_out(void **state)
{
    (void)state;
    struct lease a = acquire(g, "shortened", LONG_TTL_MS);
    struct http *b = wait_for(g, "shortened", "");
    expect_status(renew(g, a.id, 100), 200);
    assert_true(granted_to(b).token > a.token);
}

static void what_nobody_holds_is_granted_at_once(void **state)
{
    (void)state;
    struct lease fresh = granted_to(ask_for(g, "fresh", ""));
    assert_int_equal(fresh.token, 1);
    assert_true(number_at(fresh.answer, "waited_ms") < LONG_WAIT_MS);
    release(g, fresh.id);
    granted_to(ask_for(g, "fresh", ""));

    struct lease a = acquire(g, "expired", SHORT_TTL_MS);
    await_expiry(g, a.id); /* not replaced yet */
    assert_int_equal(granted_to(ask_for(g, "expired", "")).token, a.token + 1);
}

static void nobody_overtakes(void **state)
{
    (void)state;
    struct lease a = acquire(g, "overtaking", LONG_TTL_MS);
    struct http *b = wait_for(g, "overtaking", "");
    struct http *c = wait_for(g, "overtaking", "");
    struct response *r =
        expect_problem(try_acquire(g, "overtaking", LONG_TTL_MS), 409, "lease_held");
    expect_number(r, "holders.0.fencing_token", a.token);
    expect_null(r, "holders.0.owner");
    assert_true(number_at(r, "holders.0.expires_in_ms") > 0);
    expect_number(r, "waited_ms", 0);
    r = get(g, "/resources?limit=1000");
    for (size_t i = 0; i < count_at(r, "items"); i++)
        if (strcmp(text_at(r, test_printf("items.%zu.resource", i)), "overtaking") == 0)
            expect_number(r, test_printf("items.%zu.waiters", i), 2);
    assert_true(waiters_are(g, "overtaking", 2));
    struct http *d = wait_for(g, "overtaking", "");
    release(g, a.id);
    struct lease lease = granted_to(b);
    expect_problem(try_acquire(g, "overtaking", LONG_TTL_MS), 409, "lease_held");
    release(g, lease.id);
    lease = granted_to(c);
    release(g, lease.id);
    granted_to(d);
    assert_int_equal(grants_of(g, "overtaking"), 4);
}

static void twice_the_same_owner_waits_twice(void **state)
{
    (void)state;
    struct lease a = acquire(g, "same owner", LONG_TTL_MS);
    struct http *first = wait_for(g, "same owner", ",\"owner\":\"A\"");
    struct http *second = wait_for(g, "same owner", ",\"owner\":\"A\"");
    release(g, a.id);
    struct lease b = granted_to(first);
    assert_true(waiters_are(g, "same owner", 1));
    release(g, b.id);
    assert_string_not_equal(granted_to(second).id, b.id);
}

static void queues_do_not_block_each_other(void **state)
{
    (void)state;
    const char *const names[] = {test_printf("w%0199d", 1), test_printf("w%0199d", 2), "{a}:b/c d%",
                                 "\xc3\xa9\"\\", "other"};
    enum { COUNT = sizeof names / sizeof *names };
    struct lease held[COUNT];
    struct http *waiting[COUNT];
    for (int i = 0; i < COUNT; i++) {
        held[i] = acquire(g, names[i], LONG_TTL_MS);
        waiting[i] = wait_for(g, names[i], "");
    }
    for (int i = COUNT - 1; i >= 0; i--) {
        release(g, held[i].id);
        expect_text(granted_to(waiting[i]).answer, "resource", names[i]);
        assert_true(waiters_are(g, names[i], 0));
        assert_true(i == 0 || waiters_are(g, names[i - 1], 1));
    }
}

/* ---- The end of the wait ----------------------------------------------------------------------
 */

static void the_end_of_the_wait_is_told(void **state)
{
    (void)state;
    struct lease a = acquire(g, "patience", LONG_TTL_MS);
    const int waits_ms[] = {1, 40, 120};
    for (int i = 0; i < 3; i++) {
        long long sent_ms = now_ms();
        struct response *r =
            post(g, "/leases", "%s", wait_body("patience", waits_ms[i], ",\"owner\":\"B\""));
        expect_problem(r, 409, "lease_held");
        long long waited_ms = number_at(r, "waited_ms");
        assert_true(waited_ms >= waits_ms[i] && waited_ms <= now_ms() - sent_ms + 2);
        expect_number(r, "holders.0.fencing_token", a.token);
        long long left_ms = number_at(r, "holders.0.expires_in_ms");
        assert_true(left_ms > 0 && left_ms <= LONG_TTL_MS);
        expect_number(r, "retry_after_ms", left_ms);
        assert_true(waiters_are(g, "patience", 0));
    }
    /* The same connection goes on. */
    expect_status(release(g, a.id), 200);
    expect_status(post(g, "/leases", "%s", wait_body("patience", 120, "")), 201);
    assert_int_equal(grants_of(g, "patience"), 2);
}

static void who_gives_up_lets_those_behind_move_up(void **state)
{
    (void)state;
    struct lease a = acquire(g, "moving up", LONG_TTL_MS);
    struct http *b = http_new(g->port);
    const char *body = wait_body("moving up", slow_ms(500), "");
    http_send(b, "POST", "/leases", NULL, body, strlen(body));
    await_waiters(g, "moving up", 1);
    struct http *c = wait_for(g, "moving up", "");
    expect_problem(answer_to(b), 409, "lease_held");
    assert_true(waiters_are(g, "moving up", 1));
    release(g, a.id);
    granted_to(c);
}

static void who_leaves_gets_nothing(void **state)
{
    (void)state;
    struct lease a = acquire(g, "leaving", LONG_TTL_MS);
    struct http *waiting[6];
    for (int i = 0; i < 6; i++)
        waiting[i] = wait_for(g, "leaving", "");
    http_close(waiting[0]);
    await_waiters(g, "leaving", 5);
    http_reset(waiting[3]);
    await_waiters(g, "leaving", 4);
    http_close(waiting[5]);
    await_waiters(g, "leaving", 3);
    release(g, a.id);
    struct lease lease = {0};
    for (int i = 1; i < 5; i++) {
        if (i == 3)
            continue;
        lease = granted_to(waiting[i]);
        release(g, lease.id);
    }
    assert_int_equal(lease.token, a.token + 3);
    assert_int_equal(grants_of(g, "leaving"), 4);
    granted_to(ask_for(g, "leaving", ""));
}

static void a_stop_answers_all_who_wait(void **state)
{
    (void)state;
    struct gateway *own = gateway_start(NULL, NULL);
    struct lease a = acquire(own, "r", LONG_TTL_MS);
    struct http *waiting[20];
    for (int i = 0; i < 20; i++)
        waiting[i] = wait_for(own, "r", "");
    process_signal(own->process, SIGTERM);
    for (int i = 0; i < 20; i++)
        expect_problem(answer_to(waiting[i]), 503, "draining");
    assert_int_equal(process_wait(own->process, slow_ms(20000)), 0);
    gateway_restart(own);
    expect_number(resource(own, "r"), "highest_fencing_token", a.token);
}

/* ---- The connection ---------------------------------------------------------------------------
 */

static void a_connection_is_used_again_after_a_wait(void **state)
{
    (void)state;
    struct lease a = acquire(g, "again", LONG_TTL_MS);
    struct http *b = wait_for(g, "again", "");
    release(g, a.id);
    for (int i = 0; i < 3; i++) {
        struct lease lease = granted_to(b);
        expect_status(call_on(b, "GET", test_printf("/leases/%s", lease.id), NULL, NULL), 200);
        const char *body = wait_body("again", LONG_WAIT_MS, "");
        http_send(b, "POST", "/leases", NULL, body, strlen(body));
        await_waiters(g, "again", 1);
        release(g, lease.id);
    }
    granted_to(b);
}

static void what_is_sent_behind_a_wait_is_answered_after_it(void **state)
{
    (void)state;
    struct lease a = acquire(g, "behind", LONG_TTL_MS);
    const char *body = wait_body("behind", LONG_WAIT_MS, "");
    const char *both =
        test_printf("POST /leases HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s"
                    "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
                    "POST /leases HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
                    strlen(body), body, strlen(body), body);
    struct http *b = http_new(g->port);
    http_send_bytes(b, both, strlen(both));
    await_waiters(g, "behind", 1);
    release(g, a.id);
    struct lease lease = granted_to(b);
    expect_status(http_receive(b, "GET"), 200);
    await_waiters(g, "behind", 1);
    release(g, lease.id);
    granted_to(b);
}

static void a_client_of_http_1_0_can_wait(void **state)
{
    (void)state;
    struct lease a = acquire(g, "1.0", LONG_TTL_MS);
    const char *body = wait_body("1.0", LONG_WAIT_MS, "");
    const char *request =
        test_printf("POST /leases HTTP/1.0\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    struct http *b = http_new(g->port);
    http_send_bytes(b, request, strlen(request));
    await_waiters(g, "1.0", 1);
    release(g, a.id);
    assert_int_equal(granted_to(b).token, a.token + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_release_hands_over),
        TEST(a_wait_may_be_longer_than_the_ttl),
        TEST(they_are_served_in_the_order_they_came),
        TEST(a_lease_that_runs_out_lets_the_next_in),
        TEST(renewals_keep_the_others_waiting),
        TEST(a_shortened_lease_lets_the_next_in_when_it_runs_out),
        TEST(what_nobody_holds_is_granted_at_once),
        TEST(nobody_overtakes),
        TEST(twice_the_same_owner_waits_twice),
        TEST(queues_do_not_block_each_other),
        TEST(the_end_of_the_wait_is_told),
        TEST(who_gives_up_lets_those_behind_move_up),
        TEST(who_leaves_gets_nothing),
        TEST(a_stop_answers_all_who_wait),
        TEST(a_connection_is_used_again_after_a_wait),
        TEST(what_is_sent_behind_a_wait_is_answered_after_it),
        TEST(a_client_of_http_1_0_can_wait),
    };
    return cmocka_run_group_tests_name("waiting", tests, start_servers, NULL);
}
