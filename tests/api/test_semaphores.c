/* test_semaphores.c - resources that several may hold at once: limits, how they change, and that
 * the count of holders stays exact whatever a holder does.
 *
 * One gateway and one Redis for all cases but those that empty Redis; each uses resources of its
 * own. A holder that "is paused" does nothing until its TTL has passed. */
#include "tests/support/api.h"

#include <stdio.h>

enum {
    SOON_MS = 20000,  /* for what happens at once: a bound against hangs, never a measurement */
    WAIT_MS = 120000, /* of waiters that are let in, or left standing */
    DAY_MS = 86400000,
};

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

/* ---- Words ------------------------------------------------------------------------------------
 */

/* Asks a gateway for a lease; `fields`: more of the body, ",\"limit\":3". */
static struct response *ask_of(struct gateway *gateway, const char *name, int ttl_ms,
                               const char *fields)
{
    return post(gateway, "/leases", "{\"resource\":\"%s\",\"ttl_ms\":%d%s}", name, ttl_ms, fields);
}

static struct response *ask(const char *name, int ttl_ms, const char *fields)
{
    return ask_of(g, name, ttl_ms, fields);
}

static const char *limit_of(int limit)
{
    return test_printf(",\"limit\":%d", limit);
}

/* PUT /resources/{name} {"limit"} */
static void set_limit(struct gateway *gateway, const char *name, int limit)
{
    const char *body = test_printf("{\"limit\":%d}", limit);
    struct response *r =
        call(gateway, "PUT", test_printf("/resources/%s", encoded(name)), NULL, body);
    expect_number(expect_status(r, 200), "limit", limit);
}

/* `count` leases of a resource that has this limit from now on. */
static void take(struct gateway *gateway, const char *name, int limit, int count,
                 struct lease *leases)
{
    set_limit(gateway, name, limit);
    for (int i = 0; i < count; i++)
        leases[i] = acquire(gateway, name, LONG_TTL_MS);
}

static void expect_full(const char *name)
{
    expect_problem(ask(name, LONG_TTL_MS, ""), 409, "lease_held");
}

static void expect_holders(const char *name, size_t count)
{
    struct response *r = expect_status(resource(g, name), 200);
    if (count_at(r, "holders") != count)
        fail_msg("%zu holders are expected: %s", count, r->body);
}

static bool may_write(struct gateway *gateway, const char *name, struct lease lease)
{
    struct response *r = put(gateway, name, "k", lease.token, "v");
    if (r->status >= 300)
        expect_problem(r, 412, "stale_fencing_token");
    return r->status < 300;
}

static void expect_writer(const char *name, struct lease lease)
{
    assert_true(may_write(g, name, lease));
}

/* Refused for ever: `newer` has replaced it. */
static void expect_replaced(const char *name, struct lease lease, struct lease newer)
{
    struct response *r =
        expect_problem(put(g, name, "k", lease.token, "x"), 412, "stale_fencing_token");
    expect_text(r, "reason", "superseded");
    expect_number(r, "superseded_by.fencing_token", newer.token);
    expect_problem(check(g, name, lease.token), 412, "stale_fencing_token");
    expect_problem(fetch(g, name, "k", lease.token), 412, "stale_fencing_token");
    expect_problem(erase(g, name, "k", lease.token), 412, "stale_fencing_token");
    expect_problem(renew(g, lease.id, 0), 410, "lease_superseded");
    expect_problem(release(g, lease.id), 410, "lease_superseded");
}

/* ---- Waiters ---- */

/* A request for a lease that waits, on a connection of its own. */
static struct http *wait_for(struct gateway *gateway, const char *name, const char *fields)
{
    struct http *http = http_new(gateway->port);
    const char *body = test_printf("{\"resource\":\"%s\",\"ttl_ms\":%d,\"wait_ms\":%d%s}", name,
                                   LONG_TTL_MS, WAIT_MS, fields);
    http_send(http, "POST", "/leases", NULL, body, strlen(body));
    return http;
}

static bool has_waiters(struct gateway *gateway, const char *name, int count)
{
    return number_at(expect_status(resource(gateway, name), 200), "waiters") == count;
}

static void await_waiters(struct gateway *gateway, const char *name, int count)
{
    if (!EVENTUALLY(has_waiters(gateway, name, count), SOON_MS))
        fail_msg("%d waiters are expected: %s", count, resource(gateway, name)->body);
}

/* `count` of them, one behind the other. */
static void queue_up(struct gateway *gateway, const char *name, int count, struct http **waiters)
{
    for (int i = 0; i < count; i++) {
        waiters[i] = wait_for(gateway, name, "");
        await_waiters(gateway, name, i + 1);
    }
}

/* What a waiter was answered: a lease. */
static struct lease granted(struct http *waiter)
{
    struct response *r = http_receive(waiter, "POST");
    if (!r)
        fail_msg("the waiter was not answered");
    expect_status(r, 201);
    return (struct lease){text_at(r, "lease_id"), number_at(r, "fencing_token"), r};
}

/* ---- The limit --------------------------------------------------------------------------------
 */

static void the_first_grant_fixes_the_limit(void **state)
{
    (void)state;
    struct response *r = expect_status(ask("first", LONG_TTL_MS, limit_of(3)), 201);
    expect_number(r, "limit", 3);
    const char *id = text_at(r, "lease_id");
    expect_number(expect_status(inspect(g, id), 200), "limit", 3);
    expect_number(resource(g, "first"), "limit", 3);
    expect_status(ask("first", LONG_TTL_MS, limit_of(3)), 201);
    expect_status(ask("first", LONG_TTL_MS, limit_of(3)), 201);
    expect_problem(ask("first", LONG_TTL_MS, limit_of(3)), 409, "lease_held");
    expect_holders("first", 3);

    /* Once and for all, also when nobody holds it any more. */
    expect_status(post(g, "/resources/first/revoke", "{\"reason\":\"over\"}"), 200);
    expect_problem(ask("first", LONG_TTL_MS, limit_of(1)), 409, "limit_mismatch");
    expect_number(expect_status(ask("first", LONG_TTL_MS, ""), 201), "limit", 3);
}

static void another_named_limit_is_a_mismatch(void **state)
{
    (void)state;
    struct lease a = {.answer = expect_status(ask("mismatch", LONG_TTL_MS, limit_of(3)), 201)};
    const int others[] = {1, 2, 4, 1000};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct response *r = expect_problem(ask("mismatch", LONG_TTL_MS, limit_of(others[i])), 409,
                                            "limit_mismatch");
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
    const char *fields = test_printf(",\"limit\":3,\"wait_ms\":%d", WAIT_MS);
    struct response *r =
        expect_problem(ask("wait mismatch", LONG_TTL_MS, fields), 409, "limit_mismatch");
    expect_number(r, "limit", 2);
    /* Also where the limit is changed while it waits, as soon as it is its turn. */
    struct http *waiter = wait_for(g, "wait mismatch", ",\"limit\":2");
    await_waiters(g, "wait mismatch", 1);
    set_limit(g, "wait mismatch", 4);
    r = http_receive(waiter, "POST");
    assert_non_null(r);
    expect_number(expect_problem(r, 409, "limit_mismatch"), "limit", 4);
    assert_true(has_waiters(g, "wait mismatch", 0));
}

static void none_named_takes_what_is_set(void **state)
{
    (void)state;
    expect_status(ask("none named", LONG_TTL_MS, limit_of(2)), 201);
    expect_number(expect_status(ask("none named", LONG_TTL_MS, ""), 201), "limit", 2);
    expect_full("none named");
}

static void none_named_at_all_is_a_mutex(void **state)
{
    (void)state;
    expect_number(expect_status(ask("mutex", LONG_TTL_MS, ""), 201), "limit", 1);
    expect_full("mutex");
    expect_number(expect_problem(ask("mutex", LONG_TTL_MS, limit_of(2)), 409, "limit_mismatch"),
                  "limit", 1);
    expect_problem(ask("mutex", LONG_TTL_MS, limit_of(1)), 409, "lease_held");
}

static void a_limit_that_was_set_counts_before_the_first_grant(void **state)
{
    (void)state;
    set_limit(g, "set before", 2);
    expect_number(
        expect_problem(ask("set before", LONG_TTL_MS, limit_of(3)), 409, "limit_mismatch"), "limit",
        2);
    expect_status(ask("set before", LONG_TTL_MS, limit_of(2)), 201);
    expect_status(ask("set before", LONG_TTL_MS, ""), 201);
    expect_full("set before");

    /* Created without a limit it is the first grant that fixes it. */
    expect_status(call(g, "PUT", "/resources/set%20later", NULL, "{}"), 200);
    expect_number(expect_status(ask("set later", LONG_TTL_MS, limit_of(2)), 201), "limit", 2);
    expect_number(resource(g, "set later"), "limit", 2);
}

static void a_limit_is_a_whole_number_from_1_to_1000(void **state)
{
    (void)state;
    const char *const bad[] = {"0", "-1", "1001", "1.5", "\"2\"", "true", "null", "[2]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct response *r = ask("range", LONG_TTL_MS, test_printf(",\"limit\":%s", bad[i]));
        expect_text(expect_problem(r, 400, "invalid_request"), "errors.0.pointer", "/limit");
    }
    expect_problem(resource(g, "range"), 404, "resource_not_found");
    expect_number(expect_status(ask("range", LONG_TTL_MS, limit_of(1000)), 201), "limit", 1000);
}

static void a_refusal_names_all_holders_and_when_the_first_runs_out(void **state)
{
    (void)state;
    const int ttls_ms[] = {LONG_TTL_MS, LONG_TTL_MS / 10, LONG_TTL_MS};
    set_limit(g, "named", 3);
    for (int i = 0; i < 3; i++)
        expect_status(ask("named", ttls_ms[i], test_printf(",\"owner\":\"owner %d\"", i)), 201);
    struct response *r = expect_problem(ask("named", LONG_TTL_MS, ""), 409, "lease_held");
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
    expect_holders("smaller", 4);
    for (int i = 0; i < 4; i++) {
        expect_writer("smaller", l[i]);
        expect_status(renew(g, l[i].id, 0), 200);
        expect_text(inspect(g, l[i].id), "state", "held");
    }
    for (int i = 0; i < 3; i++) { /* 4, 3, then 2 are left: none too few */
        expect_full("smaller");
        expect_status(release(g, l[i].id), 200);
    }
    struct lease next = acquire(g, "smaller", LONG_TTL_MS);
    expect_number(next.answer, "limit", 2);
    expect_full("smaller");
    expect_writer("smaller", l[3]);
    expect_writer("smaller", next);
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
    expect_full("smaller queue");
    assert_true(has_waiters(g, "smaller queue", 2));
    expect_status(release(g, l[2].id), 200);
    struct lease first = granted(waiters[0]);
    assert_true(has_waiters(g, "smaller queue", 1));
    expect_full("smaller queue");
    expect_status(release(g, first.id), 200);
    assert_true(granted(waiters[1]).token > first.token);
}

static void an_expired_holder_has_left_when_the_limit_is_smaller(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "smaller expired", 3, 2, l);
    struct lease paused = acquire(g, "smaller expired", SHORT_TTL_MS);
    await_expiry(g, paused.id);
    set_limit(g, "smaller expired", 2);
    expect_full("smaller expired");
    expect_writer("smaller expired", paused);
    expect_status(release(g, l[0].id), 200);
    struct lease next = acquire(g, "smaller expired", LONG_TTL_MS);
    expect_replaced("smaller expired", paused, next);
    expect_writer("smaller expired", l[1]);
    expect_full("smaller expired");
}

static void a_larger_limit_lets_newcomers_in_at_once(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "larger", 2, 2, l);
    expect_full("larger");
    set_limit(g, "larger", 3);
    expect_status(ask("larger", LONG_TTL_MS, limit_of(3)), 201);
    expect_full("larger");
    expect_problem(ask("larger", LONG_TTL_MS, limit_of(2)), 409, "limit_mismatch");
    expect_holders("larger", 3);
    expect_writer("larger", l[0]);
    expect_writer("larger", l[1]);
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
        struct lease next = granted(waiters[i]);
        assert_true(next.token > token);
        token = next.token;
        expect_number(next.answer, "limit", 5);
    }
    await_waiters(g, "larger queue", 2);
    expect_holders("larger queue", 5);
    expect_full("larger queue");
    expect_status(release(g, l[0].id), 200);
    assert_true(granted(waiters[3]).token > token);
}

/* ---- 1 <-> N ---- */

static void a_lease_granted_at_limit_1_stays_alone_until_it_is_released(void **state)
{
    (void)state;
    struct http *waiters[4];
    struct lease a = acquire(g, "alone", LONG_TTL_MS);
    queue_up(g, "alone", 4, waiters);
    set_limit(g, "alone", 3);
    expect_problem(ask("alone", LONG_TTL_MS, limit_of(3)), 409, "lease_held");
    expect_status(renew(g, a.id, 0), 200);
    expect_full("alone");
    assert_true(has_waiters(g, "alone", 4));
    expect_holders("alone", 1);

    /* Then all three places are free. */
    expect_status(release(g, a.id), 200);
    for (int i = 0; i < 3; i++)
        granted(waiters[i]);
    await_waiters(g, "alone", 1);
    expect_holders("alone", 3);
    expect_full("alone");
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
    struct lease b = granted(waiters[0]), c = granted(waiters[1]);
    expect_writer("alone revoked", b);
    expect_writer("alone revoked", c);
    assert_false(may_write(g, "alone revoked", a));
    await_waiters(g, "alone revoked", 1);
}

static void a_lease_granted_at_limit_1_stays_alone_although_it_expired(void **state)
{
    (void)state;
    struct lease a = acquire(g, "alone expired", SHORT_TTL_MS);
    set_limit(g, "alone expired", 3);
    await_expiry(g, a.id);
    expect_writer("alone expired", a);
    expect_holders("alone expired", 0);

    /* It is not joined but replaced, although there was room for three. */
    struct lease b = acquire(g, "alone expired", LONG_TTL_MS);
    expect_replaced("alone expired", a, b);
    struct lease c = acquire(g, "alone expired", LONG_TTL_MS);
    struct lease d = acquire(g, "alone expired", LONG_TTL_MS);
    expect_full("alone expired");
    expect_writer("alone expired", b);
    expect_writer("alone expired", c);
    expect_writer("alone expired", d);
}

static void waiters_get_in_when_an_expired_exclusive_lease_is_replaced(void **state)
{
    (void)state;
    struct http *waiters[4];
    acquire(g, "alone queue", slow_ms(1000));
    queue_up(g, "alone queue", 4, waiters);
    set_limit(g, "alone queue", 3);
    for (int i = 0; i < 3; i++)
        granted(waiters[i]);
    await_waiters(g, "alone queue", 1);
    expect_holders("alone queue", 3);
}

static void leases_granted_at_limit_n_stay_together_at_limit_1(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "together", 3, 2, l);
    set_limit(g, "together", 1);
    expect_full("together");
    expect_writer("together", l[0]);
    expect_writer("together", l[1]);
    /* None of them was promised to be alone. */
    set_limit(g, "together", 3);
    struct lease c = acquire(g, "together", LONG_TTL_MS);
    expect_full("together");
    expect_writer("together", l[0]);
    expect_writer("together", c);
}

static void back_at_limit_1_the_next_one_is_alone(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "back", 2, 2, l);
    set_limit(g, "back", 1);
    expect_status(release(g, l[0].id), 200);
    expect_full("back");
    expect_status(release(g, l[1].id), 200);
    struct lease a = acquire(g, "back", LONG_TTL_MS);
    expect_number(a.answer, "limit", 1);
    set_limit(g, "back", 2);
    expect_full("back");
    expect_status(release(g, a.id), 200);
    acquire(g, "back", LONG_TTL_MS);
    acquire(g, "back", LONG_TTL_MS);
    expect_full("back");
}

static void changes_of_the_limit_stand_in_the_history(void **state)
{
    (void)state;
    expect_status(ask("told", LONG_TTL_MS, limit_of(2)), 201);
    set_limit(g, "told", 1);
    set_limit(g, "told", 1000);
    struct response *r = history(g, "told", "?kind=config");
    assert_int_equal(count_at(r, "items"), 2);
    expect_text(r, "items.0.reason", "limit 2 -> 1");
    expect_text(r, "items.1.reason", "limit 1 -> 1000");
}

/* ---- Exact fencing ----------------------------------------------------------------------------
 */

static void a_paused_holder_in_the_middle_is_refused_between_its_neighbours(void **state)
{
    (void)state;
    set_limit(g, "middle", 3);
    struct lease older = acquire(g, "middle", LONG_TTL_MS);
    struct lease paused = acquire(g, "middle", SHORT_TTL_MS);
    struct lease younger = acquire(g, "middle", LONG_TTL_MS);
    assert_true(older.token < paused.token && paused.token < younger.token);
    await_expiry(g, paused.id);
    struct response *r =
        expect_status(ask("middle", LONG_TTL_MS, ",\"owner\":\"the next one\""), 201);
    struct lease next = {text_at(r, "lease_id"), number_at(r, "fencing_token"), r};

    for (int i = 0; i < 3; i++) { /* its writes fall between theirs */
        expect_writer("middle", older);
        expect_replaced("middle", paused, next);
        expect_writer("middle", younger);
        expect_writer("middle", next);
    }
    r = expect_problem(put(g, "middle", "k", paused.token, "x"), 412, "stale_fencing_token");
    expect_text(r, "superseded_by.owner", "the next one");
    expect_number(r, "highest_fencing_token", next.token);
    expect_status(renew(g, older.id, 0), 200);
    expect_status(renew(g, younger.id, 0), 200);
    expect_full("middle");
    r = history(g, "middle", "?kind=expire");
    assert_int_equal(count_at(r, "items"), 1);
    expect_number(r, "items.0.fencing_token", paused.token);
}

static void a_paused_holder_may_write_until_it_is_replaced(void **state)
{
    (void)state;
    set_limit(g, "until", 2);
    struct lease paused = acquire(g, "until", SHORT_TTL_MS);
    struct lease other = acquire(g, "until", LONG_TTL_MS);
    await_expiry(g, paused.id);
    expect_holders("until", 1);
    expect_writer("until", paused);
    expect_text(inspect(g, paused.id), "state", "expired");
    expect_problem(renew(g, paused.id, 0), 410, "lease_expired");
    expect_writer("until", paused);
    struct lease next = acquire(g, "until", LONG_TTL_MS);
    expect_replaced("until", paused, next);
    expect_writer("until", other);
}

static void one_grant_replaces_all_that_ran_out(void **state)
{
    (void)state;
    struct lease paused[3];
    set_limit(g, "all", 4);
    struct lease held = acquire(g, "all", LONG_TTL_MS);
    for (int i = 0; i < 3; i++)
        paused[i] = acquire(g, "all", SHORT_TTL_MS);
    for (int i = 0; i < 3; i++)
        await_expiry(g, paused[i].id);
    struct lease next = acquire(g, "all", LONG_TTL_MS);
    for (int i = 0; i < 3; i++)
        expect_replaced("all", paused[i], next);
    expect_writer("all", held);
    expect_holders("all", 2);
    assert_int_equal(count_at(history(g, "all", "?kind=expire"), "items"), 3);
}

static void a_holder_that_renews_in_time_is_not_replaced(void **state)
{
    (void)state;
    set_limit(g, "renews", 2);
    struct lease a = acquire(g, "renews", slow_ms(2000));
    struct lease b = acquire(g, "renews", slow_ms(2000));
    expect_status(renew(g, a.id, LONG_TTL_MS), 200);
    await_expiry(g, b.id);
    struct lease c = acquire(g, "renews", LONG_TTL_MS);
    expect_replaced("renews", b, c);
    expect_writer("renews", a);
    expect_full("renews");
}

/* ---- The count is exact -----------------------------------------------------------------------
 */

static void releasing_twice_frees_one_place(void **state)
{
    (void)state;
    struct lease l[3];
    take(g, "twice", 3, 3, l);
    expect_status(release(g, l[1].id), 200);
    for (int i = 0; i < 3; i++)
        expect_true(expect_status(release(g, l[1].id), 200), "already_released");
    expect_holders("twice", 2);
    struct lease next = acquire(g, "twice", LONG_TTL_MS);
    expect_true(expect_status(release(g, l[1].id), 200), "already_released");
    expect_full("twice");
    expect_holders("twice", 3);
    expect_writer("twice", next);
}

static void releasing_what_is_not_theirs_frees_nothing(void **state)
{
    (void)state;
    struct lease l[2], other[2];
    take(g, "theirs", 2, 2, l);
    take(g, "others", 2, 2, other);                      /* the same tokens */
    for (size_t at = 0; at < strlen(l[0].id); at += 3) { /* made up, near to the real one */
        char *id = test_printf("%s", l[0].id);
        id[at] = id[at] == 'A' ? 'B' : 'A';
        expect_problem(release(g, id), 404, "lease_not_found");
        expect_problem(renew(g, id, 0), 404, "lease_not_found");
    }
    expect_holders("theirs", 2);
    expect_full("theirs");
    expect_status(release(g, other[0].id), 200);
    expect_holders("theirs", 2);
    expect_full("theirs");
    expect_holders("others", 1);
}

static void a_crashed_holder_comes_back_by_its_ttl(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "crashed", 3, 2, l);
    struct lease crashed = acquire(g, "crashed", SHORT_TTL_MS);
    acquire_within(g, "crashed", LONG_TTL_MS, SOON_MS); /* one place */
    expect_full("crashed");                             /* and not two */
    expect_holders("crashed", 3);
    assert_false(may_write(g, "crashed", crashed));
}

static void a_crashed_holder_makes_room_for_one_who_waits(void **state)
{
    (void)state;
    struct lease l[1];
    struct http *waiters[2];
    take(g, "crash queue", 2, 1, l);
    acquire(g, "crash queue", slow_ms(1000));
    queue_up(g, "crash queue", 2, waiters);
    granted(waiters[0]);
    assert_true(has_waiters(g, "crash queue", 1));
    expect_full("crash queue");
    expect_holders("crash queue", 2);
}

static void renewing_after_eviction_takes_no_place(void **state)
{
    (void)state;
    struct lease l[1];
    take(g, "evicted", 2, 1, l);
    struct lease evicted = acquire(g, "evicted", SHORT_TTL_MS);
    await_expiry(g, evicted.id);
    expect_problem(renew(g, evicted.id, LONG_TTL_MS), 410, "lease_expired");
    expect_holders("evicted", 1);
    struct lease next = acquire(g, "evicted", LONG_TTL_MS);
    for (int i = 0; i < 3; i++)
        expect_problem(renew(g, evicted.id, LONG_TTL_MS), 410, "lease_superseded");
    expect_holders("evicted", 2);
    expect_full("evicted");
    expect_status(release(g, next.id), 200);
    expect_problem(renew(g, evicted.id, LONG_TTL_MS), 410, "lease_superseded");
    expect_holders("evicted", 1);
}

static void releasing_after_eviction_frees_nothing(void **state)
{
    (void)state;
    struct lease l[1];
    take(g, "evicted release", 2, 1, l);
    struct lease evicted = acquire(g, "evicted release", SHORT_TTL_MS);
    await_expiry(g, evicted.id);
    acquire(g, "evicted release", LONG_TTL_MS);
    expect_problem(release(g, evicted.id), 410, "lease_superseded");
    expect_full("evicted release");
    expect_holders("evicted release", 2);
}

static void releasing_what_ran_out_frees_nothing_twice(void **state)
{
    (void)state;
    struct lease l[1];
    take(g, "ran out", 2, 1, l);
    struct lease paused = acquire(g, "ran out", SHORT_TTL_MS);
    await_expiry(g, paused.id);
    expect_true(expect_status(release(g, paused.id), 200), "expired");
    acquire(g, "ran out", LONG_TTL_MS);
    expect_true(expect_status(release(g, paused.id), 200), "already_released");
    expect_full("ran out");
    expect_holders("ran out", 2);
}

static void the_same_owner_twice_takes_two_places(void **state)
{
    (void)state;
    const char *fields = ",\"limit\":2,\"owner\":\"the same\"";
    struct response *a = expect_status(ask("owner", LONG_TTL_MS, fields), 201);
    struct response *b = expect_status(ask("owner", LONG_TTL_MS, fields), 201);
    expect_problem(ask("owner", LONG_TTL_MS, fields), 409, "lease_held");
    assert_int_equal(count_at(get(g, "/leases?resource=owner&owner=the%20same"), "items"), 2);
    expect_status(release(g, text_at(a, "lease_id")), 200);
    expect_holders("owner", 1);
    expect_text(inspect(g, text_at(b, "lease_id")), "state", "held");
    expect_status(put(g, "owner", "k", number_at(b, "fencing_token"), "v"), 201);
    expect_status(ask("owner", LONG_TTL_MS, fields), 201);
    expect_problem(ask("owner", LONG_TTL_MS, fields), 409, "lease_held");
}

/* A gateway that crashed between Redis and its store leaves such a holder. */
static void an_orphan_in_redis_takes_no_place(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "orphan", 3, 2, l);
    const redisReply *time = redis_command(redis, "TIME");
    long long later_ms = atoll(time->element[0]->str) * 1000 + LONG_TTL_MS;
    redis_command(redis, "ZADD fencegate:{orphan}:holders %lld %s", later_ms,
                  "77:0000000000000000000000000000beef");
    expect_holders("orphan", 2);
    struct lease c = acquire(g, "orphan", LONG_TTL_MS);
    expect_full("orphan");
    expect_holders("orphan", 3);
    assert_int_equal(redis_number(redis, "ZCARD fencegate:{orphan}:holders"), 3);
    expect_writer("orphan", l[0]);
    expect_writer("orphan", l[1]);
    expect_writer("orphan", c);
}

static void a_shortened_renewal_lets_the_next_one_in(void **state)
{
    (void)state;
    struct lease l[2];
    struct http *waiters[1];
    take(g, "shortened", 2, 2, l);
    queue_up(g, "shortened", 1, waiters);
    expect_status(renew(g, l[1].id, SHORT_TTL_MS), 200);
    struct lease next = granted(waiters[0]);
    expect_replaced("shortened", l[1], next);
    expect_full("shortened");
    expect_writer("shortened", l[0]);
}

static void who_holds_it_is_counted_by_redis_time(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "time", 2, 2, l);
    /* As if Redis' clock had passed the expiry of the first one. */
    const char *members =
        redis_command(redis, "ZRANGE fencegate:{time}:holders 0 0")->element[0]->str;
    redis_command(redis, "ZADD fencegate:{time}:holders 1 %s", members);
    struct lease *gone = atoll(members) == l[0].token ? &l[0] : &l[1];
    expect_holders("time", 1);
    expect_text(inspect(g, gone->id), "state", "expired");
    expect_problem(renew(g, gone->id, 0), 410, "lease_expired");
    struct lease next = acquire(g, "time", LONG_TTL_MS);
    expect_replaced("time", *gone, next);
    expect_full("time");
}

/* ---- Redis loses everything -------------------------------------------------------------------
 */

struct emptied {
    struct redis_server *redis;
    struct gateway *g;
    struct lease l[3];
};

/* Three hold a semaphore of three, and Redis is empty. */
static struct emptied emptied(void)
{
    struct emptied e = {.redis = redis_server_start(NULL)};
    e.g = gateway_start(redis_server_url(e.redis), NULL);
    take(e.g, "r", 3, 3, e.l);
    redis_command(e.redis, "FLUSHALL");
    return e;
}

static void expect_writers(const struct emptied *e, int count)
{
    int writers = 0;
    for (int i = 0; i < 3; i++)
        writers += may_write(e->g, "r", e->l[i]);
    assert_int_equal(writers, count);
}

static void after_a_loss_renewals_bring_all_back_the_older_first(void **state)
{
    (void)state;
    struct emptied e = emptied();
    for (int i = 0; i < 3; i++)
        expect_status(renew(e.g, e.l[i].id, 0), 200);
    assert_int_equal(redis_number(e.redis, "ZCARD fencegate:{r}:holders"), 3);
    expect_problem(try_acquire(e.g, "r", LONG_TTL_MS), 409, "lease_held");
    expect_writers(&e, 3);
    expect_status(release(e.g, e.l[1].id), 200);
    assert_true(acquire(e.g, "r", LONG_TTL_MS).token > e.l[2].token);
    expect_problem(try_acquire(e.g, "r", LONG_TTL_MS), 409, "lease_held");
}

static void after_a_loss_an_older_one_comes_back_behind_a_younger(void **state)
{
    (void)state;
    struct emptied e = emptied();
    for (int turn = 0; turn < 2; turn++) {
        expect_status(renew(e.g, e.l[1].id, 0), 200);
        expect_status(renew(e.g, e.l[0].id, 0), 200);
        expect_status(renew(e.g, e.l[2].id, 0), 200);
    }
    expect_writers(&e, 3);
    expect_problem(try_acquire(e.g, "r", LONG_TTL_MS), 409, "lease_held");
    expect_status(release(e.g, e.l[0].id), 200);
    assert_true(acquire(e.g, "r", LONG_TTL_MS).token > e.l[2].token);
}

static void after_a_loss_a_new_grant_replaces_who_has_not_renewed(void **state)
{
    (void)state;
    struct emptied e = emptied();
    expect_status(renew(e.g, e.l[0].id, 0), 200);
    struct lease next[2];
    next[0] = acquire(e.g, "r", LONG_TTL_MS);
    expect_writers(&e, 1);
    assert_true(may_write(e.g, "r", e.l[0]));
    for (int i = 1; i < 3; i++)
        expect_problem(renew(e.g, e.l[i].id, 0), 410, "lease_superseded");
    next[1] = acquire(e.g, "r", LONG_TTL_MS);
    expect_problem(try_acquire(e.g, "r", LONG_TTL_MS), 409, "lease_held");
    assert_true(may_write(e.g, "r", next[0]) && may_write(e.g, "r", next[1]));
    expect_writers(&e, 1);
    struct response *r = history(e.g, "r", "?kind=expire");
    assert_int_equal(count_at(r, "items"), 2);
    expect_text(r, "items.0.reason", "lost_by_redis");
}

static void after_a_loss_what_ran_out_is_not_brought_back(void **state)
{
    (void)state;
    struct redis_server *own = redis_server_start(NULL);
    struct gateway *gate = gateway_start(redis_server_url(own), NULL);
    set_limit(gate, "r", 2);
    struct lease a = acquire(gate, "r", SHORT_TTL_MS);
    struct lease b = acquire(gate, "r", LONG_TTL_MS);
    await_expiry(gate, a.id);
    redis_command(own, "FLUSHALL");
    expect_problem(renew(gate, a.id, LONG_TTL_MS), 410, "lease_expired");
    expect_status(renew(gate, b.id, 0), 200);
    acquire(gate, "r", LONG_TTL_MS);
    expect_problem(try_acquire(gate, "r", LONG_TTL_MS), 409, "lease_held");
    assert_false(may_write(gate, "r", a));
    assert_true(may_write(gate, "r", b));
}

/* Room is what the limit of now leaves. */
static void after_a_loss_a_smaller_limit_brings_no_more_back_than_it_admits(void **state)
{
    (void)state;
    struct emptied e = emptied();
    set_limit(e.g, "r", 1);
    expect_status(renew(e.g, e.l[0].id, 0), 200);
    expect_problem(renew(e.g, e.l[1].id, 0), 410, "lease_expired");
    expect_problem(renew(e.g, e.l[2].id, 0), 410, "lease_expired");
    expect_problem(try_acquire(e.g, "r", LONG_TTL_MS), 409, "lease_held");
    expect_writers(&e, 3); /* nobody has replaced them */
    expect_status(release(e.g, e.l[0].id), 200);
    struct lease next = acquire(e.g, "r", LONG_TTL_MS);
    expect_writers(&e, 0);
    assert_true(may_write(e.g, "r", next));
    expect_problem(try_acquire(e.g, "r", LONG_TTL_MS), 409, "lease_held");
}

static void after_a_loss_a_lease_that_is_alone_stays_alone(void **state)
{
    (void)state;
    struct redis_server *own = redis_server_start(NULL);
    struct gateway *gate = gateway_start(redis_server_url(own), NULL);
    struct lease a = acquire(gate, "r", LONG_TTL_MS);
    set_limit(gate, "r", 3);
    redis_command(own, "FLUSHALL");
    expect_status(renew(gate, a.id, 0), 200);
    expect_problem(try_acquire(gate, "r", LONG_TTL_MS), 409, "lease_held");
    redis_command(own, "FLUSHALL");
    struct lease b = acquire(gate, "r", LONG_TTL_MS); /* replaces it: they are never two */
    assert_false(may_write(gate, "r", a));
    assert_true(may_write(gate, "r", b));
    acquire(gate, "r", LONG_TTL_MS);
    acquire(gate, "r", LONG_TTL_MS);
    expect_problem(try_acquire(gate, "r", LONG_TTL_MS), 409, "lease_held");
}

/* ---- A thousand -------------------------------------------------------------------------------
 */

static void a_thousand_hold_a_semaphore_and_one_more_is_refused(void **state)
{
    (void)state;
    enum { LIMIT = 1000 };
    static struct lease l[LIMIT];
    http_record(g->http, false);
    for (int i = 0; i < LIMIT; i++) {
        struct response *r = expect_status(ask("thousand", LONG_TTL_MS, limit_of(LIMIT)), 201);
        l[i] = (struct lease){text_at(r, "lease_id"), number_at(r, "fencing_token"), r};
        assert_int_equal(l[i].token, i + 1);
    }
    struct response *r =
        expect_problem(ask("thousand", LONG_TTL_MS, limit_of(LIMIT)), 409, "lease_held");
    assert_int_equal(count_at(r, "holders"), LIMIT);
    expect_holders("thousand", LIMIT);
    const int some[] = {0, 1, 499, 500, 998, 999};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        expect_writer("thousand", l[some[i]]);
        expect_status(renew(g, l[some[i]].id, 0), 200);
    }
    expect_status(release(g, l[500].id), 200);
    assert_false(may_write(g, "thousand", l[500]));
    struct lease next = acquire(g, "thousand", LONG_TTL_MS);
    assert_int_equal(next.token, LIMIT + 1);
    expect_full("thousand");
    expect_holders("thousand", LIMIT);

    r = expect_status(post(g, "/resources/thousand/revoke", "{\"reason\":\"over\"}"), 200);
    assert_int_equal(count_at(r, "revoked"), LIMIT);
    expect_holders("thousand", 0);
    expect_status(ask("thousand", LONG_TTL_MS, limit_of(LIMIT)), 201);
    http_record(g->http, true);
}

/* ---- What is left in Redis --------------------------------------------------------------------
 */

static bool no_holders_are_left(struct redis_server *server)
{
    return redis_command(server, "KEYS fencegate:*:holders")->elements == 0;
}

static void nothing_but_expiring_counters_is_left_in_redis(void **state)
{
    (void)state;
    struct redis_server *own = redis_server_start(NULL);
    struct gateway *gate = gateway_start(redis_server_url(own), NULL);
    const char *const names[] = {"released", "revoked", "expired", "replaced", "unfenced"};
    struct lease l[5][3];
    for (int i = 0; i < 5; i++)
        take(gate, names[i], 3, 3, l[i]);
    for (int i = 0; i < 3; i++) {
        expect_status(release(gate, l[0][i].id), 200);
        expect_status(renew(gate, l[2][i].id, SHORT_TTL_MS), 200);
        await_expiry(gate, l[2][i].id);
        expect_status(release(gate, l[2][i].id), 200);
        expect_status(renew(gate, l[3][i].id, SHORT_TTL_MS), 200);
        await_expiry(gate, l[3][i].id);
    }
    expect_status(post(gate, "/resources/revoked/revoke", "{\"reason\":\"over\"}"), 200);
    expect_status(release(gate, acquire(gate, "replaced", LONG_TTL_MS).id), 200);
    expect_status(call(gate, "PUT", "/resources/unfenced", NULL, "{\"fenced\":false}"), 200);

    assert_true(EVENTUALLY(no_holders_are_left(own), SOON_MS));
    const redisReply *keys = redis_command(own, "KEYS *");
    assert_int_equal(keys->elements, 6);
    for (size_t i = 0; i < keys->elements; i++) {
        const char *key = keys->element[i]->str;
        if (strcmp(key, "fencegate:store") == 0)
            continue;
        assert_non_null(strstr(key, "}:counter"));
        assert_in_range(redis_number(own, "PTTL %s", key), 1, DAY_MS + LONG_TTL_MS);
    }
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
        TEST(a_paused_holder_in_the_middle_is_refused_between_its_neighbours),
        TEST(a_paused_holder_may_write_until_it_is_replaced),
        TEST(one_grant_replaces_all_that_ran_out),
        TEST(a_holder_that_renews_in_time_is_not_replaced),
        TEST(releasing_twice_frees_one_place),
        TEST(releasing_what_is_not_theirs_frees_nothing),
        TEST(a_crashed_holder_comes_back_by_its_ttl),
        TEST(a_crashed_holder_makes_room_for_one_who_waits),
        TEST(renewing_after_eviction_takes_no_place),
        TEST(releasing_after_eviction_frees_nothing),
        TEST(releasing_what_ran_out_frees_nothing_twice),
        TEST(the_same_owner_twice_takes_two_places),
        TEST(an_orphan_in_redis_takes_no_place),
        TEST(a_shortened_renewal_lets_the_next_one_in),
        TEST(who_holds_it_is_counted_by_redis_time),
        TEST(after_a_loss_renewals_bring_all_back_the_older_first),
        TEST(after_a_loss_an_older_one_comes_back_behind_a_younger),
        TEST(after_a_loss_a_new_grant_replaces_who_has_not_renewed),
        TEST(after_a_loss_what_ran_out_is_not_brought_back),
        TEST(after_a_loss_a_smaller_limit_brings_no_more_back_than_it_admits),
        TEST(after_a_loss_a_lease_that_is_alone_stays_alone),
        TEST(a_thousand_hold_a_semaphore_and_one_more_is_refused),
        TEST(nothing_but_expiring_counters_is_left_in_redis),
    };
    return cmocka_run_group_tests_name("semaphores", tests, start_servers, NULL);
}
