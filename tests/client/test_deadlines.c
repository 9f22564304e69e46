/* test_deadlines.c - when a lease is over by our own clock, and what the watchdog does before that.
 *
 * The server is a stub: it answers late, wrong, half or not at all. */
#include "tests/support/client.h"

#include <pthread.h>

/* Of leases that are to live through failures: a tenth of it is long enough for a busy machine. */
#define TTL_MS slow_ms(4000)

static struct fence_lease *keep(struct fence_client *client, int ttl_ms, struct loss *loss)
{
    return take_lease(
        client,
        &(struct fence_terms){.resource = "r", .ttl_ms = ttl_ms, .lost = note_loss, .arg = loss});
}

/* A lease that nobody renews, answered like this. `*before_ms`: boot time before it was sent. */
static struct fence_lease *take_answered(const char *answer, int delay_ms, long long *before_ms)
{
    struct stub *stub = stub_start();
    struct fence_client *client = client_of(stub_url(stub));
    struct fence_terms terms = {.resource = "r", .wait_ms = 60000, .no_watchdog = true};
    struct fence_lease *lease;
    stub_play(stub, ACQUIRES, STEPS({.text = answer, .delay_ms = delay_ms}));
    *before_ms = boot_now_ms();
    EXPECT(FENCE_OK, fence_acquire(client, &terms, &lease, &failure));
    return adopt(lease);
}

/* ---- The deadline ---------------------------------------------------------------------------- */

static void the_deadline_counts_from_the_sending(void **state)
{
    (void)state;
    long long before_ms;
    struct fence_lease *a = take_answered(stub_lease(201, 5000), 1000, &before_ms);
    long long sent_at_latest_ms = boot_now_ms() - 1000;
    assert_true(fence_deadline_boot_ms(a) <= sent_at_latest_ms + 5000);
    assert_true(fence_deadline_boot_ms(a) >= before_ms + 5000 - 500);
    assert_in_range(fence_left_ms(a), 1, 4000);
}

static void the_wait_at_the_server_does_not_count(void **state)
{
    (void)state;
    long long before_ms;
    struct fence_lease *a =
        take_answered(stub_lease_times(201, 5000, 5000, 1000), 1200, &before_ms);
    long long sent_at_latest_ms = boot_now_ms() - 1200;
    assert_true(fence_deadline_boot_ms(a) <= sent_at_latest_ms + 1000 + 5000);
    assert_true(fence_deadline_boot_ms(a) >= before_ms + 1000 + 5000 - 500);
}

static void what_is_left_counts_not_the_ttl(void **state)
{
    (void)state;
    long long before_ms;
    struct fence_lease *a = take_answered(stub_lease_times(201, 20000, 15000, 0), 0, &before_ms);
    assert_true(fence_deadline_boot_ms(a) <= boot_now_ms() + 15000);
    assert_true(fence_deadline_boot_ms(a) >= before_ms + 15000 - 2000);
}

static void there_is_a_margin_before_the_servers_end(void **state)
{
    (void)state;
    long long before_ms;
    struct fence_lease *a = take_answered(stub_lease(201, 600000), 0, &before_ms);
    assert_true(fence_deadline_boot_ms(a) < before_ms + 600000);
}

/* The server may have shortened it: the answer is not needed for that. */
static void a_shorter_ttl_counts_from_when_it_is_asked_for(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client =
        client_with(&(struct fence_options){.url = stub_url(stub), .timeout_ms = slow_ms(200)});
    stub_serve(stub, 600000);
    stub_play(stub, RENEWALS, STEPS({.end = STUB_HANG}));
    struct fence_lease *a = take_lease(
        client, &(struct fence_terms){.resource = "r", .ttl_ms = 600000, .no_watchdog = true});
    EXPECT(FENCE_NO_ANSWER, fence_renew(a, 86400000, &failure));
    assert_true(fence_left_ms(a) > 300000);
    EXPECT(FENCE_NO_ANSWER, fence_renew(a, 60000, &failure));
    assert_in_range(fence_left_ms(a), 1, 60000);
}

static void no_answer_makes_a_lease_longer_than_it_can_be(void **state)
{
    (void)state;
    long long before_ms;
    struct fence_lease *a =
        take_answered(stub_lease_times(201, 20000, 20000, 3600000), 0, &before_ms);
    assert_in_range(fence_left_ms(a), 1, 20000); /* it has not waited for an hour */
    a = take_answered(stub_lease_times(201, 20000, 86400000, 0), 0, &before_ms);
    assert_in_range(fence_left_ms(a), 1, 20000);
}

static void a_ttl_that_is_too_short_for_the_way_says_so(void **state)
{
    (void)state;
    const char *const answers[] = {stub_lease(201, 200), stub_lease_times(201, 200, 0, 0)};
    for (int i = 0; i < 2; i++) {
        struct stub *stub = stub_start();
        struct fence_lease *lease;
        stub_serve(stub, 30000);
        stub_play(stub, ACQUIRES, STEPS({.text = answers[i], .delay_ms = i == 0 ? 300 : 0}));
        EXPECT(FENCE_TOO_SHORT, fence_acquire(client_of(stub_url(stub)),
                                              &(struct fence_terms){.resource = "r", .ttl_ms = 200},
                                              &lease, &failure));
        assert_null(lease);
        assert_int_equal(stub_count(stub, "DELETE /leases/" STUB_LEASE_ID), 1);
        assert_int_equal(stub_count(stub, RENEWALS), 0);
    }
}

static void nobody_renews_without_a_watchdog(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client = client_of(stub_url(stub));
    struct loss *loss = loss_new();
    const int ttl_ms = slow_ms(600);
    stub_serve(stub, ttl_ms);
    struct fence_lease *a = take_lease(client, &(struct fence_terms){.resource = "r",
                                                                     .ttl_ms = ttl_ms,
                                                                     .no_watchdog = true,
                                                                     .lost = note_loss,
                                                                     .arg = loss});
    assert_true(fence_still_held(a));
    EXPECT(FENCE_OK, fence_renew(a, 0, &failure));
    assert_true(EVENTUALLY(!fence_still_held(a), 20000));
    assert_true(boot_now_ms() >= fence_deadline_boot_ms(a));
    EXPECT(FENCE_EXPIRED, fence_renew(a, 0, &failure));
    assert_int_equal(stub_count(stub, RENEWALS), 1);
    EXPECT(FENCE_OK, fence_release(a, &failure));
}

/* The gateway cannot say whether it was done: the watchdog finds out, with the shorter TTL. */
static void a_shorter_ttl_that_is_not_known_to_hold_is_kept_by_the_watchdog(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client = client_of(stub_url(stub));
    struct loss *loss = loss_new();
    const int short_ms = slow_ms(900);
    stub_serve(stub, 60000);
    struct fence_lease *a = take_lease(
        client,
        &(struct fence_terms){.resource = "r", .ttl_ms = 60000, .lost = note_loss, .arg = loss});
    stub_play(stub, RENEWALS, STEPS({.text = stub_problem(503, "redis_unavailable")}));
    EXPECT(FENCE_BUSY, fence_renew(a, short_ms, &failure));
    assert_in_range(fence_left_ms(a), 1, short_ms);
    stub_serve(stub, short_ms);
    stub_await(stub, RENEWALS, 5);
    assert_true(fence_still_held(a));
    assert_int_equal(loss->calls, 0);
    assert_int_equal(fence_lease_ttl_ms(a), short_ms);
    EXPECT(FENCE_OK, fence_release(a, &failure));
}

static void a_shorter_ttl_that_was_not_sent_changes_nothing(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client = client_of(stub_url(stub));
    stub_serve(stub, 60000);
    struct fence_lease *a =
        take_lease(client, &(struct fence_terms){.resource = "r", .ttl_ms = 60000});
    int64_t deadline = fence_deadline_boot_ms(a);
    stub_stop(stub);
    EXPECT(FENCE_UNREACHABLE, fence_renew(a, 1000, &failure));
    assert_int_equal(fence_deadline_boot_ms(a), deadline);
    assert_int_equal(fence_lease_ttl_ms(a), 60000);
}

static void *renew_and_hang(void *arg)
{
    fence_renew(arg, 0, NULL);
    return NULL;
}

static void a_renewal_of_the_program_that_hangs_does_not_stop_the_watchdog(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client = client_of(stub_url(stub));
    struct loss *loss = loss_new();
    const int ttl_ms = slow_ms(900);
    pthread_t thread;
    stub_serve(stub, ttl_ms);
    struct fence_lease *a = take_lease(
        client,
        &(struct fence_terms){.resource = "r", .ttl_ms = ttl_ms, .lost = note_loss, .arg = loss});
    stub_play(stub, RENEWALS, STEPS({.end = STUB_HANG}, {.text = stub_lease(200, ttl_ms)}));
    assert_int_equal(pthread_create(&thread, NULL, renew_and_hang, a), 0);
    stub_await(stub, RENEWALS, 9); /* three TTLs */
    assert_true(fence_still_held(a));
    assert_int_equal(loss->calls, 0);
    stub_stop(stub);
    pthread_join(thread, NULL);
}

/* ---- Failures that pass ---------------------------------------------------------------------- */

/* What happens to renewals for nine tenths of the TTL. */
static struct stub_step failures[] = {
    {.end = STUB_HANG},
    {.end = STUB_RESET},
    {.end = STUB_CLOSE},
    {.text = "HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{\"lease_id\":", .end = STUB_HANG},
    {.text = "HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{\"lease_id\":", .end = STUB_CLOSE},
    {.text = "<html>200</html>", .end = STUB_CLOSE},
    {.text = "HTTP/1.1 200 OK\r\nX: drop by drop, and never done ...........", .drip_ms = 200},
    {.text = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nhtml"},
    {.text = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nhtml"},
    {.text = NULL}, /* 503 */
    {.text = NULL}, /* 200, but not a lease */
};
enum { FAILURES = sizeof failures / sizeof *failures };

static void failures_for_nine_tenths_of_the_ttl_cost_nothing(void **state)
{
    (void)state;
    struct stub *stubs[FAILURES];
    struct fence_lease *leases[FAILURES];
    struct loss *loss = loss_new();
    failures[FAILURES - 2].text = stub_problem(503, "redis_unavailable");
    failures[FAILURES - 1].text = stub_json(200, "{\"status\":\"ok\"}");
    for (int i = 0; i < FAILURES; i++) {
        stubs[i] = stub_start();
        stub_serve(stubs[i], TTL_MS);
        stub_play(stubs[i], RENEWALS, &failures[i], 1);
        leases[i] = keep(client_of(stub_url(stubs[i])), TTL_MS, loss);
    }
    for (int i = 0; i < FAILURES; i++) {
        stub_await(stubs[i], RENEWALS, 1);
        assert_true(fence_still_held(leases[i]));
    }
    sleep_ms(TTL_MS * 88 / 100 - TTL_MS / 3);
    for (int i = 0; i < FAILURES; i++)
        stub_play(stubs[i], RENEWALS, STEPS({.text = stub_lease(200, TTL_MS)}));
    sleep_ms(TTL_MS / 2); /* past the first deadline */
    for (int i = 0; i < FAILURES; i++) {
        if (loss->calls > 0 || !fence_still_held(leases[i]))
            fail_msg("failure %d has cost the lease", i);
        EXPECT(FENCE_OK, fence_release(leases[i], &failure));
    }
}

static void two_missed_renewals_are_survived(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct loss *loss = loss_new();
    const int ttl_ms = TTL_MS / 2;
    stub_serve(stub, ttl_ms);
    stub_play(stub, RENEWALS,
              STEPS({.end = STUB_HANG}, {.end = STUB_HANG}, {.text = stub_lease(200, ttl_ms)}));
    struct fence_lease *a = keep(client_of(stub_url(stub)), ttl_ms, loss);
    stub_await(stub, RENEWALS, 4); /* the third, and one in its turn */
    assert_true(fence_still_held(a));
    assert_int_equal(loss->calls, 0);
}

static void a_gateway_that_is_slow_keeps_the_lease(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct loss *loss = loss_new();
    const int ttl_ms = TTL_MS / 2;
    stub_serve(stub, ttl_ms);
    stub_play(stub, RENEWALS, STEPS({.text = stub_lease(200, ttl_ms), .delay_ms = ttl_ms / 5}));
    struct fence_lease *a = keep(client_of(stub_url(stub)), ttl_ms, loss);
    sleep_ms(2 * ttl_ms);
    assert_true(fence_still_held(a));
    assert_int_equal(loss->calls, 0);
}

/* ---- Failures that do not -------------------------------------------------------------------- */

static void failures_without_end_cost_the_lease_at_its_deadline(void **state)
{
    (void)state;
    const int ttl_ms = slow_ms(900);
    failures[FAILURES - 2].text = stub_problem(503, "redis_unavailable");
    failures[FAILURES - 1].text = stub_json(200, "{\"status\":\"ok\"}");
    struct stub *stubs[FAILURES];
    struct fence_lease *leases[FAILURES];
    struct loss *losses[FAILURES];
    for (int i = 0; i < FAILURES; i++) {
        stubs[i] = stub_start();
        losses[i] = loss_new();
        stub_serve(stubs[i], ttl_ms);
        stub_play(stubs[i], RENEWALS, &failures[i], 1);
        leases[i] = keep(client_of(stub_url(stubs[i])), ttl_ms, losses[i]);
    }
    for (int i = 0; i < FAILURES; i++) {
        expect_loss(losses[i], FENCE_EXPIRED);
        assert_true(losses[i]->at_boot_ms >= fence_deadline_boot_ms(leases[i]));
        stub_play(stubs[i], RENEWALS, STEPS({.text = stub_lease(200, ttl_ms)}));
    }
    sleep_ms(ttl_ms / 3); /* it is fine again: too late */
    for (int i = 0; i < FAILURES; i++) {
        int renewals = stub_count(stubs[i], RENEWALS);
        EXPECT(FENCE_EXPIRED, fence_renew(leases[i], 0, &failure));
        expect_loss(losses[i], FENCE_EXPIRED);
        assert_int_equal(stub_count(stubs[i], RENEWALS), renewals);
    }
}

static void the_server_may_say_that_it_is_over(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *code;
        enum fence_status why;
    } ends[] = {{410, "lease_expired", FENCE_EXPIRED},
                {410, "lease_superseded", FENCE_SUPERSEDED},
                {410, "lease_released", FENCE_RELEASED},
                {410, "lease_revoked", FENCE_REVOKED},
                {404, "lease_not_found", FENCE_NOT_FOUND}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct stub *stub = stub_start();
        struct loss *loss = loss_new();
        stub_serve(stub, slow_ms(900));
        stub_play(stub, RENEWALS,
                  STEPS({.text = stub_problem(ends[i].status, ends[i].code)},
                        {.text = stub_lease(200, 60000)}));
        struct fence_lease *a = keep(client_of(stub_url(stub)), slow_ms(900), loss);
        expect_loss(loss, ends[i].why);
        EXPECT(ends[i].why, fence_renew(a, 0, &failure));
        assert_int_equal(stub_count(stub, RENEWALS), 1);
    }
}

/* Renewals that are answered when the deadline comes: one that looks all the time never sees a lost
 * lease again. */
static void *look_all_the_time(void *arg)
{
    const struct fence_lease *lease = arg;
    bool lost = false;
    for (long long end_ms = now_ms() + slow_ms(200); now_ms() < end_ms;) {
        bool held = fence_still_held(lease);
        if (lost && held)
            return arg;
        lost = lost || !held;
    }
    return NULL;
}

static void a_lease_that_was_seen_lost_is_never_seen_held(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client = client_of(stub_url(stub));
    for (int round = 0; round < 20; round++) {
        struct loss *loss = loss_new();
        const int ttl_ms = slow_ms(90);
        stub_serve(stub, ttl_ms);
        stub_play(stub, RENEWALS,
                  STEPS({.text = stub_lease(200, ttl_ms), .delay_ms = ttl_ms / 2 + round % 10}));
        struct fence_lease *a = keep(client, ttl_ms, loss);
        pthread_t thread;
        void *seen;
        assert_int_equal(pthread_create(&thread, NULL, look_all_the_time, a), 0);
        pthread_join(thread, &seen);
        assert_null(seen);
        assert_true(loss->calls <= 1);
        discard(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_deadline_counts_from_the_sending),
        TEST(the_wait_at_the_server_does_not_count),
        TEST(what_is_left_counts_not_the_ttl),
        TEST(there_is_a_margin_before_the_servers_end),
        TEST(a_shorter_ttl_counts_from_when_it_is_asked_for),
        TEST(no_answer_makes_a_lease_longer_than_it_can_be),
        TEST(a_ttl_that_is_too_short_for_the_way_says_so),
        TEST(nobody_renews_without_a_watchdog),
        TEST(a_shorter_ttl_that_is_not_known_to_hold_is_kept_by_the_watchdog),
        TEST(a_shorter_ttl_that_was_not_sent_changes_nothing),
        TEST(a_renewal_of_the_program_that_hangs_does_not_stop_the_watchdog),
        TEST(failures_for_nine_tenths_of_the_ttl_cost_nothing),
        TEST(two_missed_renewals_are_survived),
        TEST(a_gateway_that_is_slow_keeps_the_lease),
        TEST(failures_without_end_cost_the_lease_at_its_deadline),
        TEST(the_server_may_say_that_it_is_over),
        TEST(a_lease_that_was_seen_lost_is_never_seen_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
