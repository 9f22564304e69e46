/* test_waiting_rules.c - how many may wait for a lease, and what changes while they do. */
#include "tests/support/waits.h"

static struct gateway *g;
static struct gateway *small; /* few may wait */

static int start_servers(void **state)
{
    (void)state;
    g = gateway_start(NULL, NULL);
    small = gateway_start(NULL, LIST("--max-connections", "16", "--max-waiters", "9",
                                     "--max-waiters-per-resource", "6"));
    cleanup_keep();
    return 0;
}

static struct response *configure(const char *name, const char *body)
{
    return expect_status(call(g, "PUT", test_printf("/resources/%s", encoded(name)), NULL, body),
                         200);
}

/* ---- How many may wait ------------------------------------------------------------------------
 */

static void only_so_many_wait_for_one_resource(void **state)
{
    (void)state;
    struct lease a = acquire(small, "crowded", LONG_TTL_MS);
    struct lease other = acquire(small, "beside", LONG_TTL_MS);
    struct http *waiting[6];
    for (int i = 0; i < 6; i++)
        waiting[i] = wait_for(small, "crowded", "");
    struct response *r = post(small, "/leases", "%s", wait_body("crowded", LONG_WAIT_MS, ""));
    expect_problem(r, 429, "too_many_waiters");
    assert_true(number_at(r, "retry_after_ms") > 0);
    assert_non_null(response_header(r, "Retry-After"));
    /* Who does not want to wait is told who holds it, and others may wait for something else. */
    r = expect_problem(try_acquire(small, "crowded", LONG_TTL_MS), 409, "lease_held");
    expect_number(r, "holders.0.fencing_token", a.token);
    struct http *beside = wait_for(small, "beside", "");
    release(small, other.id);
    granted_to(beside);

    /* Who leaves makes room; holders come in and go. */
    http_close(waiting[2]);
    await_waiters(small, "crowded", 5);
    waiting[2] = wait_for(small, "crowded", "");
    release(small, a.id);
    granted_to(waiting[0]);
    wait_for(small, "crowded", "");
}

static void only_so_many_wait_at_all(void **state)
{
    (void)state;
    const char *const names[] = {"all 1", "all 2", "all 3"};
    struct lease held[3];
    for (int i = 0; i < 3; i++) {
        held[i] = acquire(small, names[i], LONG_TTL_MS);
        for (int j = 0; j < 3; j++)
            wait_for(small, names[i], "");
    }
    for (int i = 0; i < 3; i++)
        expect_problem(post(small, "/leases", "%s", wait_body(names[i], LONG_WAIT_MS, "")), 429,
                       "too_many_waiters");
    expect_status(renew(small, held[0].id, 0), 200);
    expect_status(put(small, names[0], "k", held[0].token, "x"), 201);
    expect_status(release(small, held[0].id), 200);
}

static void waiters_leave_a_quarter_of_the_connections(void **state)
{
    (void)state;
    struct gateway *own =
        gateway_start(NULL, LIST("--max-connections", "16", "--max-waiters", "1000"));
    struct lease a = acquire(own, "r", LONG_TTL_MS);
    struct http *first = wait_for(own, "r", "");
    for (int i = 1; i < 12; i++)
        wait_for(own, "r", "");
    expect_problem(post(own, "/leases", "%s", wait_body("r", LONG_WAIT_MS, "")), 429,
                   "too_many_waiters");
    struct http *holder = http_new(own->port);
    expect_status(call_on(holder, "POST", test_printf("/leases/%s/renew", a.id), NULL, NULL), 200);
    expect_status(call_on(holder, "DELETE", test_printf("/leases/%s", a.id), NULL, NULL), 200);
    granted_to(first);
}

/* ---- What changes meanwhile -------------------------------------------------------------------
 */

static void a_revocation_lets_the_next_in(void **state)
{
    (void)state;
    struct lease a = acquire(g, "revoked", LONG_TTL_MS);
    struct http *b = wait_for(g, "revoked", "");
    struct http *c = wait_for(g, "revoked", "");
    expect_status(post(g, "/resources/revoked/revoke", "{\"reason\":\"test\"}"), 200);
    struct lease lease = granted_to(b);
    assert_true(lease.token > a.token + 1); /* one is skipped */
    assert_true(waiters_are(g, "revoked", 1));
    release(g, lease.id);
    granted_to(c);
}

static void a_larger_limit_lets_more_in(void **state)
{
    (void)state;
    configure("larger", "{\"limit\":2}");
    struct lease a = acquire(g, "larger", LONG_TTL_MS);
    acquire(g, "larger", LONG_TTL_MS);
    struct http *waiting[4];
    for (int i = 0; i < 4; i++)
        waiting[i] = wait_for(g, "larger", "");
    configure("larger", "{\"limit\":4}");
    long long tokens[2] = {granted_to(waiting[0]).token, granted_to(waiting[1]).token};
    assert_true(tokens[0] < tokens[1]);
    assert_true(waiters_are(g, "larger", 2));

    /* A smaller one ends nobody and lets nobody in until enough have left. */
    configure("larger", "{\"limit\":3}");
    release(g, a.id);
    assert_true(waiters_are(g, "larger", 2));
    configure("larger", "{\"limit\":1000}");
    granted_to(waiting[2]);
    granted_to(waiting[3]);
}

static void a_lease_of_limit_1_stays_alone(void **state)
{
    (void)state;
    struct lease a = acquire(g, "alone", LONG_TTL_MS);
    struct http *b = wait_for(g, "alone", "");
    struct http *c = wait_for(g, "alone", "");
    configure("alone", "{\"limit\":2}");
    expect_status(renew(g, a.id, 0), 200);
    assert_true(waiters_are(g, "alone", 2));
    release(g, a.id);
    assert_true(granted_to(b).token < granted_to(c).token);
}

static void who_names_another_limit_does_not_wait(void **state)
{
    (void)state;
    struct lease a = acquire(g, "mismatch", LONG_TTL_MS);
    struct response *r = answer_to(ask_for(g, "mismatch", ",\"limit\":2"));
    expect_number(expect_problem(r, 409, "limit_mismatch"), "limit", 1);
    /* Who waits learns it at once, wherever it stands. */
    struct http *waiting[4];
    for (int i = 0; i < 4; i++)
        waiting[i] = wait_for(g, "mismatch", i % 2 ? ",\"limit\":1" : "");
    configure("mismatch", "{\"limit\":3}");
    for (int i = 1; i < 4; i += 2) {
        r = expect_problem(answer_to(waiting[i]), 409, "limit_mismatch");
        expect_number(r, "limit", 3);
        expect_text(r, "resource", "mismatch");
    }
    assert_true(waiters_are(g, "mismatch", 2));
    release(g, a.id);
    granted_to(waiting[0]);
    granted_to(waiting[2]);
}

static void the_limit_of_the_first_grant_counts_for_those_behind(void **state)
{
    (void)state;
    struct lease a = granted_to(ask_for(g, "first", ",\"limit\":2"));
    struct lease b = granted_to(ask_for(g, "first", ""));
    expect_number(b.answer, "limit", 2);
    struct http *c = wait_for(g, "first", ",\"limit\":2");
    struct http *d = wait_for(g, "first", "");
    release(g, b.id);
    granted_to(c);
    release(g, a.id);
    granted_to(d);
}

static void unfencing_tells_all_who_wait(void **state)
{
    (void)state;
    acquire(g, "unfenced", LONG_TTL_MS);
    struct http *waiting[5];
    for (int i = 0; i < 5; i++)
        waiting[i] = wait_for(g, "unfenced", "");
    configure("unfenced", "{\"fenced\":false}");
    for (int i = 0; i < 5; i++)
        expect_problem(answer_to(waiting[i]), 409, "resource_unfenced");
    assert_true(waiters_are(g, "unfenced", 0));
    expect_problem(answer_to(ask_for(g, "unfenced", "")), 409, "resource_unfenced");
    configure("unfenced", "{\"fenced\":true}");
    granted_to(ask_for(g, "unfenced", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_so_many_wait_for_one_resource),
        TEST(only_so_many_wait_at_all),
        TEST(waiters_leave_a_quarter_of_the_connections),
        TEST(a_revocation_lets_the_next_in),
        TEST(a_larger_limit_lets_more_in),
        TEST(a_lease_of_limit_1_stays_alone),
        TEST(who_names_another_limit_does_not_wait),
        TEST(the_limit_of_the_first_grant_counts_for_those_behind),
        TEST(unfencing_tells_all_who_wait),
    };
    return cmocka_run_group_tests_name("waiting rules", tests, start_servers, NULL);
}
