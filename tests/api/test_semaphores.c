/* test_semaphores.c - resources that several hold at once: each holder is fenced by itself, and the
 * count stays exact whatever a holder does.
 *
 * One gateway and one Redis for all cases but those that empty Redis; each uses resources of its
 * own. A holder that "is paused" does nothing until its TTL has passed. Limits: test_limits.c. */
#include "tests/support/limits.h"

enum { DAY_MS = 86400000 };

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

/* A holder stops for longer than its TTL. A lease that others are to be granted beside has a long
 * TTL first: on a busy machine a short one may have passed by then. */
static void pause_holder(struct lease lease)
{
    expect_status(renew(g, lease.id, SHORT_TTL_MS), 200);
    await_expiry(g, lease.id);
}

/* ---- Exact fencing ----------------------------------------------------------------------------
 */

static void a_paused_holder_in_the_middle_is_refused_between_its_neighbours(void **state)
{
    (void)state;
    set_limit(g, "middle", 3);
    struct lease older = acquire(g, "middle", LONG_TTL_MS);
    struct lease paused = acquire(g, "middle", LONG_TTL_MS);
    struct lease younger = acquire(g, "middle", LONG_TTL_MS);
    assert_true(older.token < paused.token && paused.token < younger.token);
    pause_holder(paused);
    struct response *r =
        expect_status(ask(g, "middle", LONG_TTL_MS, ",\"owner\":\"the next one\""), 201);
    struct lease next = {text_at(r, "lease_id"), number_at(r, "fencing_token"), r};

    for (int i = 0; i < 3; i++) { /* its writes fall between theirs */
        expect_writer(g, "middle", older);
        expect_replaced(g, "middle", paused, next);
        expect_writer(g, "middle", younger);
        expect_writer(g, "middle", next);
    }
    r = expect_problem(put(g, "middle", "k", paused.token, "x"), 412, "stale_fencing_token");
    expect_text(r, "superseded_by.owner", "the next one");
    expect_number(r, "highest_fencing_token", next.token);
    expect_status(renew(g, older.id, 0), 200);
    expect_status(renew(g, younger.id, 0), 200);
    expect_full(g, "middle");
    r = history(g, "middle", "?kind=expire");
    assert_int_equal(count_at(r, "items"), 1);
    expect_number(r, "items.0.fencing_token", paused.token);
}

static void a_paused_holder_may_write_until_it_is_replaced(void **state)
{
    (void)state;
    set_limit(g, "until", 2);
    struct lease paused = acquire(g, "until", LONG_TTL_MS);
    struct lease other = acquire(g, "until", LONG_TTL_MS);
    pause_holder(paused);
    expect_holders(g, "until", 1);
    expect_writer(g, "until", paused);
    expect_text(inspect(g, paused.id), "state", "expired");
    expect_problem(renew(g, paused.id, 0), 410, "lease_expired");
    expect_writer(g, "until", paused);
    struct lease next = acquire(g, "until", LONG_TTL_MS);
    expect_replaced(g, "until", paused, next);
    expect_writer(g, "until", other);
}

static void one_grant_replaces_all_that_ran_out(void **state)
{
    (void)state;
    struct lease paused[3];
    set_limit(g, "all", 4);
    struct lease held = acquire(g, "all", LONG_TTL_MS);
    for (int i = 0; i < 3; i++)
        paused[i] = acquire(g, "all", LONG_TTL_MS);
    for (int i = 0; i < 3; i++)
        pause_holder(paused[i]);
    struct lease next = acquire(g, "all", LONG_TTL_MS);
    for (int i = 0; i < 3; i++)
        expect_replaced(g, "all", paused[i], next);
    expect_writer(g, "all", held);
    expect_holders(g, "all", 2);
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
    expect_replaced(g, "renews", b, c);
    expect_writer(g, "renews", a);
    expect_full(g, "renews");
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
    expect_holders(g, "twice", 2);
    struct lease next = acquire(g, "twice", LONG_TTL_MS);
    expect_true(expect_status(release(g, l[1].id), 200), "already_released");
    expect_full(g, "twice");
    expect_holders(g, "twice", 3);
    expect_writer(g, "twice", next);
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
    expect_holders(g, "theirs", 2);
    expect_full(g, "theirs");
    expect_status(release(g, other[0].id), 200);
    expect_holders(g, "theirs", 2);
    expect_full(g, "theirs");
    expect_holders(g, "others", 1);
}

static void a_crashed_holder_comes_back_by_its_ttl(void **state)
{
    (void)state;
    struct lease l[2];
    take(g, "crashed", 3, 2, l);
    struct lease crashed = acquire(g, "crashed", SHORT_TTL_MS);
    acquire_within(g, "crashed", LONG_TTL_MS, SOON_MS); /* one place */
    expect_full(g, "crashed");                          /* and not two */
    expect_holders(g, "crashed", 3);
    assert_false(may_write(g, "crashed", crashed));
}

static void a_crashed_holder_makes_room_for_one_who_waits(void **state)
{
    (void)state;
    struct lease l[1];
    struct http *waiters[2];
    take(g, "crash queue", 2, 1, l);
    acquire(g, "crash queue", slow_ms(2000));
    queue_up(g, "crash queue", 2, waiters);
    granted_to(waiters[0]);
    assert_true(waiters_are(g, "crash queue", 1));
    expect_full(g, "crash queue");
    expect_holders(g, "crash queue", 2);
}

static void renewing_after_eviction_takes_no_place(void **state)
{
    (void)state;
    struct lease l[1];
    take(g, "evicted", 2, 1, l);
    struct lease evicted = acquire(g, "evicted", SHORT_TTL_MS);
    await_expiry(g, evicted.id);
    expect_problem(renew(g, evicted.id, LONG_TTL_MS), 410, "lease_expired");
    expect_holders(g, "evicted", 1);
    struct lease next = acquire(g, "evicted", LONG_TTL_MS);
    for (int i = 0; i < 3; i++)
        expect_problem(renew(g, evicted.id, LONG_TTL_MS), 410, "lease_superseded");
    expect_holders(g, "evicted", 2);
    expect_full(g, "evicted");
    expect_status(release(g, next.id), 200);
    expect_problem(renew(g, evicted.id, LONG_TTL_MS), 410, "lease_superseded");
    expect_holders(g, "evicted", 1);
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
    expect_full(g, "evicted release");
    expect_holders(g, "evicted release", 2);
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
    expect_full(g, "ran out");
    expect_holders(g, "ran out", 2);
}

static void the_same_owner_twice_takes_two_places(void **state)
{
    (void)state;
    const char *fields = ",\"limit\":2,\"owner\":\"the same\"";
    struct response *a = expect_status(ask(g, "owner", LONG_TTL_MS, fields), 201);
    struct response *b = expect_status(ask(g, "owner", LONG_TTL_MS, fields), 201);
    expect_problem(ask(g, "owner", LONG_TTL_MS, fields), 409, "lease_held");
    assert_int_equal(count_at(get(g, "/leases?resource=owner&owner=the%20same"), "items"), 2);
    expect_status(release(g, text_at(a, "lease_id")), 200);
    expect_holders(g, "owner", 1);
    expect_text(inspect(g, text_at(b, "lease_id")), "state", "held");
    expect_status(put(g, "owner", "k", number_at(b, "fencing_token"), "v"), 201);
    expect_status(ask(g, "owner", LONG_TTL_MS, fields), 201);
    expect_problem(ask(g, "owner", LONG_TTL_MS, fields), 409, "lease_held");
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
    expect_holders(g, "orphan", 2);
    struct lease c = acquire(g, "orphan", LONG_TTL_MS);
    expect_full(g, "orphan");
    expect_holders(g, "orphan", 3);
    assert_int_equal(redis_number(redis, "ZCARD fencegate:{orphan}:holders"), 3);
    expect_writer(g, "orphan", l[0]);
    expect_writer(g, "orphan", l[1]);
    expect_writer(g, "orphan", c);
}

static void a_shortened_renewal_lets_the_next_one_in(void **state)
{
    (void)state;
    struct lease l[2];
    struct http *waiters[1];
    take(g, "shortened", 2, 2, l);
    queue_up(g, "shortened", 1, waiters);
    expect_status(renew(g, l[1].id, SHORT_TTL_MS), 200);
    struct lease next = granted_to(waiters[0]);
    expect_replaced(g, "shortened", l[1], next);
    expect_full(g, "shortened");
    expect_writer(g, "shortened", l[0]);
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
    expect_holders(g, "time", 1);
    expect_text(inspect(g, gone->id), "state", "expired");
    expect_problem(renew(g, gone->id, 0), 410, "lease_expired");
    struct lease next = acquire(g, "time", LONG_TTL_MS);
    expect_replaced(g, "time", *gone, next);
    expect_full(g, "time");
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

static void after_a_loss_renewals_bring_all_back_in_any_order(void **state)
{
    (void)state;
    const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {1, 0, 2}};
    for (size_t at = 0; at < sizeof orders / sizeof *orders; at++) {
        struct emptied e = emptied();
        for (int i = 0; i < 3; i++)
            expect_status(renew(e.g, e.l[orders[at][i]].id, 0), 200);
        assert_int_equal(redis_number(e.redis, "ZCARD fencegate:{r}:holders"), 3);
        expect_problem(try_acquire(e.g, "r", LONG_TTL_MS), 409, "lease_held");
        expect_writers(&e, 3);
        expect_status(release(e.g, e.l[1].id), 200);
        assert_true(acquire(e.g, "r", LONG_TTL_MS).token > e.l[2].token);
        expect_problem(try_acquire(e.g, "r", LONG_TTL_MS), 409, "lease_held");
    }
}

static void after_a_loss_a_renewal_brings_nobody_back_twice(void **state)
{
    (void)state;
    struct emptied e = emptied();
    expect_status(renew(e.g, e.l[2].id, 0), 200);
    expect_status(renew(e.g, e.l[0].id, SHORT_TTL_MS), 200);
    await_expiry(e.g, e.l[0].id);
    expect_problem(renew(e.g, e.l[0].id, 0), 410, "lease_expired");
    expect_status(release(e.g, e.l[2].id), 200);
    expect_problem(renew(e.g, e.l[2].id, 0), 410, "lease_released");
    expect_status(renew(e.g, e.l[1].id, 0), 200);
    struct lease next = acquire(e.g, "r", LONG_TTL_MS);
    expect_problem(renew(e.g, e.l[0].id, 0), 410, "lease_superseded");
    acquire(e.g, "r", LONG_TTL_MS);
    expect_problem(try_acquire(e.g, "r", LONG_TTL_MS), 409, "lease_held");
    expect_writers(&e, 1);
    assert_true(may_write(e.g, "r", next));
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
    struct lease b = acquire(gate, "r", LONG_TTL_MS);
    struct lease a = acquire(gate, "r", SHORT_TTL_MS);
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
        struct response *r =
            expect_status(ask(g, "thousand", LONG_TTL_MS, limit_field(LIMIT)), 201);
        l[i] = (struct lease){text_at(r, "lease_id"), number_at(r, "fencing_token"), r};
        assert_int_equal(l[i].token, i + 1);
    }
    struct response *r =
        expect_problem(ask(g, "thousand", LONG_TTL_MS, limit_field(LIMIT)), 409, "lease_held");
    assert_int_equal(count_at(r, "holders"), LIMIT);
    expect_holders(g, "thousand", LIMIT);
    const int some[] = {0, 1, 499, 500, 998, 999};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        expect_writer(g, "thousand", l[some[i]]);
        expect_status(renew(g, l[some[i]].id, 0), 200);
    }
    expect_status(release(g, l[500].id), 200);
    assert_false(may_write(g, "thousand", l[500]));
    struct lease next = acquire(g, "thousand", LONG_TTL_MS);
    assert_int_equal(next.token, LIMIT + 1);
    expect_full(g, "thousand");
    expect_holders(g, "thousand", LIMIT);

    r = expect_status(post(g, "/resources/thousand/revoke", "{\"reason\":\"over\"}"), 200);
    assert_int_equal(count_at(r, "revoked"), LIMIT);
    expect_holders(g, "thousand", 0);
    expect_status(ask(g, "thousand", LONG_TTL_MS, limit_field(LIMIT)), 201);
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
        TEST(after_a_loss_renewals_bring_all_back_in_any_order),
        TEST(after_a_loss_a_renewal_brings_nobody_back_twice),
        TEST(after_a_loss_a_new_grant_replaces_who_has_not_renewed),
        TEST(after_a_loss_what_ran_out_is_not_brought_back),
        TEST(after_a_loss_a_smaller_limit_brings_no_more_back_than_it_admits),
        TEST(after_a_loss_a_lease_that_is_alone_stays_alone),
        TEST(a_thousand_hold_a_semaphore_and_one_more_is_refused),
        TEST(nothing_but_expiring_counters_is_left_in_redis),
    };
    return cmocka_run_group_tests_name("semaphores", tests, start_servers, NULL);
}
