/* test_redis.c - Redis lost, paused, emptied, foreign, full: what stops, what goes on, how it
 * heals. */
#include "tests/support/api.h"

#include <stdio.h>

/* --redis-timeout-ms of all gateways here, and how long an answer may take then: generous, for a
 * machine that is busy; a client that waits for ever is what these tests look for. */
#define REDIS_TIMEOUT_MS 400
#define ANSWERED_MS      (REDIS_TIMEOUT_MS + 3000)

static struct gateway *gateway_on(struct redis_server *redis)
{
    return gateway_start(redis_server_url(redis), LIST("--redis-timeout-ms", "400"));
}

/* Acquire and renew answer this, in time; everything else goes on. */
static void expect_writes_only(struct gateway *g, struct lease held, const char *code)
{
    long long start_ms = now_ms();
    expect_problem(try_acquire(g, "other", 1000), 503, code);
    assert_true(now_ms() - start_ms < slow_ms(ANSWERED_MS));
    start_ms = now_ms();
    expect_problem(renew(g, held.id, 0), 503, code);
    assert_true(now_ms() - start_ms < slow_ms(ANSWERED_MS));

    const char *resource_name = text_at(held.answer, "resource");
    assert_true(put(g, resource_name, "k", held.token, "x")->status < 300);
    expect_status(fetch(g, resource_name, "k", held.token), 200);
    expect_status(check(g, resource_name, held.token), 200);
    expect_text(expect_status(inspect(g, held.id), 200), "state", "held");
}

static bool can_acquire(struct gateway *g)
{
    struct response *r = try_acquire(g, test_printf("probe %lld", now_ms()), 1000);
    if (r->status != 201 && r->status != 503)
        fail_msg("%d %s", r->status, r->body);
    return r->status == 201;
}

static bool is_degraded(struct gateway *g)
{
    return strcmp(text_at(expect_status(get(g, "/readyz"), 200), "status"), "degraded") == 0;
}

/* ---- Lost and found ---------------------------------------------------------------------------
 */

static void a_lost_redis_stops_grants_only(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    struct lease a = acquire(g, "a", LONG_TTL_MS);
    struct lease b = acquire(g, "b", LONG_TTL_MS);
    struct response *r = expect_status(get(g, "/readyz"), 200);
    expect_text(r, "status", "ok");
    expect_text(r, "redis", "ok");
    expect_text(r, "store", "ok");

    redis_server_kill(redis);
    expect_writes_only(g, a, "redis_unavailable");
    assert_true(EVENTUALLY(is_degraded(g), 5000));
    expect_text(get(g, "/readyz"), "redis", "unreachable");
    expect_status(get(g, "/livez"), 200);
    expect_status(release(g, b.id), 200);
    expect_problem(put(g, "b", "k", b.token, "late"), 412, "stale_fencing_token");

    redis_server_restart(redis);
    assert_true(EVENTUALLY(can_acquire(g), 20000));
    assert_false(is_degraded(g));
    assert_int_equal(acquire(g, "b", 1000).token, b.token + 1);
}

static void leases_are_shown_while_redis_is_away(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    struct lease a = acquire(g, "a", LONG_TTL_MS);
    redis_server_kill(redis);
    assert_true(EVENTUALLY(is_degraded(g), 5000));

    struct response *r = expect_status(inspect(g, a.id), 200);
    expect_text(r, "state", "held");
    expect_null(r, "expires_in_ms");
    r = expect_status(resource(g, "a"), 200);
    expect_number(r, "holders.0.fencing_token", a.token);
    expect_null(r, "holders.0.expires_in_ms");
    r = expect_status(get(g, "/leases"), 200);
    expect_text(r, "items.0.resource", "a");
    expect_null(r, "items.0.expires_in_ms");
    expect_status(get(g, "/resources"), 200);
}

static void a_paused_redis_is_answered_in_time(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    struct lease a = acquire(g, "a", LONG_TTL_MS);
    struct lease b = acquire(g, "b", LONG_TTL_MS);

    redis_server_pause(redis);
    expect_writes_only(g, a, "redis_unavailable");
    expect_status(release(g, b.id), 200);
    redis_server_resume(redis);

    assert_true(EVENTUALLY(can_acquire(g), 20000));
    expect_status(renew(g, a.id, 0), 200);
    expect_problem(try_acquire(g, "a", 1000), 409, "lease_held");
    /* The release has reached Redis meanwhile, or its holder is known as an orphan. */
    assert_true(acquire(g, "b", 1000).token > b.token);
}

static void a_grant_that_redis_made_too_late_blocks_nobody(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    acquire(g, "warm up", LONG_TTL_MS);
    redis_server_pause(redis);
    /* The command lies in the socket; Redis runs it when it wakes up, for nobody. */
    expect_problem(try_acquire(g, "late", LONG_TTL_MS), 503, "redis_unavailable");
    redis_server_resume(redis);
    assert_true(EVENTUALLY(can_acquire(g), 20000));
    struct lease a = acquire(g, "late", LONG_TTL_MS);
    expect_status(put(g, "late", "k", a.token, "x"), 201);
}

static void the_gateway_starts_without_redis(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    redis_server_stop(redis);
    struct gateway *g = gateway_on(redis);
    assert_true(is_degraded(g));
    expect_problem(try_acquire(g, "a", 1000), 503, "redis_unavailable");
    expect_problem(put(g, "a", "k", 1, "x"), 412, "fencing_token_not_issued");
    redis_server_restart(redis);
    assert_true(EVENTUALLY(can_acquire(g), 20000));
}

/* ---- Emptied ----------------------------------------------------------------------------------
 */

static void after_a_loss_of_data_a_renew_restores_the_holder(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    struct lease a = acquire(g, "a", LONG_TTL_MS);
    redis_command(redis, "FLUSHALL");
    expect_text(expect_status(inspect(g, a.id), 200), "state", "expired");
    expect_status(renew(g, a.id, 0), 200);
    expect_problem(try_acquire(g, "a", 1000), 409, "lease_held");
    expect_text(inspect(g, a.id), "state", "held");
    assert_true(redis_number(redis, "GET fencegate:{a}:counter") >= a.token);

    /* A restart that has lost everything is the same. */
    redis_server_kill(redis);
    redis_server_restart(redis);
    assert_true(EVENTUALLY(can_acquire(g), 20000));
    expect_status(renew(g, a.id, 0), 200);
    expect_problem(try_acquire(g, "a", 1000), 409, "lease_held");
}

static void a_renew_does_not_restore_where_somebody_else_is_in(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    struct lease a = acquire(g, "a", LONG_TTL_MS);
    redis_command(redis, "FLUSHALL");
    struct lease b = acquire(g, "a", LONG_TTL_MS);
    assert_true(b.token > a.token);
    expect_problem(renew(g, a.id, 0), 410, "lease_superseded");
    expect_status(renew(g, b.id, 0), 200);
}

static void a_renew_does_not_restore_what_an_expiry_ended(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    struct lease a = acquire(g, "a", SHORT_TTL_MS);
    await_expiry(g, a.id);
    redis_command(redis, "FLUSHALL");
    expect_problem(renew(g, a.id, LONG_TTL_MS), 410, "lease_expired");
    /* Where only the holder is gone, the counter tells that Redis has lost nothing: it was removed.
     */
    struct lease b = acquire(g, "b", LONG_TTL_MS);
    redis_command(redis, "DEL fencegate:{b}:holders");
    expect_problem(renew(g, b.id, 0), 410, "lease_expired");
}

/* ---- Orphans ----------------------------------------------------------------------------------
 */

/* A holder that no store knows: what a crash between Redis and the commit leaves behind. */
static void plant_orphan(struct redis_server *redis, const char *name, long long token)
{
    redis_command(redis, "SET fencegate:{%s}:counter %lld", name, token);
    redis_command(redis,
                  "ZADD fencegate:{%s}:holders 4102444800000 "
                  "%lld:00112233445566778899aabbccddeeff",
                  name, token);
}

static void an_orphan_is_removed_at_once(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    plant_orphan(redis, "new", 7);
    struct lease a = acquire(g, "new", LONG_TTL_MS);
    assert_int_equal(a.token, 8);
    assert_int_equal(redis_number(redis, "ZCARD fencegate:{new}:holders"), 1);
    expect_status(put(g, "new", "k", a.token, "x"), 201);

    /* Also where the resource has had leases before. */
    expect_status(release(g, a.id), 200);
    plant_orphan(redis, "new", 9);
    assert_int_equal(acquire(g, "new", LONG_TTL_MS).token, 10);
}

static void removing_an_orphan_leaves_the_holder(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    struct lease a = acquire(g, "held", LONG_TTL_MS);
    plant_orphan(redis, "held", 7);
    expect_problem(try_acquire(g, "held", 1000), 409, "lease_held");
    expect_status(renew(g, a.id, 0), 200);
    expect_status(put(g, "held", "k", a.token, "x"), 201);
    struct response *r = expect_status(resource(g, "held"), 200);
    assert_int_equal(count_at(r, "holders"), 1);
    expect_number(r, "holders.0.fencing_token", a.token);
}

/* ---- Foreign ----------------------------------------------------------------------------------
 */

static void a_redis_of_another_store_is_refused_at_the_start(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    redis_command(redis, "SET fencegate:store 11111111-2222-3333-4444-555555555555");
    const char *data = test_printf("%s/data", tempdir_new());
    struct process *process;
    assert_int_equal(gateway_run(LIST("--listen", "127.0.0.1:0", "--data-dir", data, "--redis",
                                      redis_server_url(redis)),
                                 NULL, &process),
                     78);
    assert_non_null(strstr(process_errors(process), "--adopt-redis"));
    assert_string_equal(redis_text(redis, "GET fencegate:store"),
                        "11111111-2222-3333-4444-555555555555");

    struct gateway *g =
        gateway_start_in(data, redis_server_url(redis), LIST("--adopt-redis"), NULL);
    acquire(g, "a", 1000);
    assert_string_not_equal(redis_text(redis, "GET fencegate:store"),
                            "11111111-2222-3333-4444-555555555555");
}

static bool is_ready(struct gateway *g)
{
    return get(g, "/readyz")->status == 200;
}

static void a_redis_that_changes_hands_stops_grants(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    struct lease a = acquire(g, "a", LONG_TTL_MS);
    const char *uuid = test_printf("%s", redis_text(redis, "GET fencegate:store"));
    redis_command(redis, "SET fencegate:store 11111111-2222-3333-4444-555555555555");

    expect_problem(try_acquire(g, "b", 1000), 503, "store_mismatch");
    expect_problem(renew(g, a.id, 0), 503, "store_mismatch");
    assert_true(EVENTUALLY(!is_ready(g), 5000));
    expect_status(put(g, "a", "k", a.token, "x"), 201);
    expect_status(get(g, "/livez"), 200);

    redis_command(redis, "SET fencegate:store %s", uuid);
    assert_true(EVENTUALLY(can_acquire(g), 20000));
    assert_true(EVENTUALLY(is_ready(g), 20000));
    expect_status(renew(g, a.id, 0), 200);
}

/* ---- Full, guarded ----------------------------------------------------------------------------
 */

static void a_full_redis_still_takes_releases(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_on(redis);
    struct lease a = acquire(g, "a", LONG_TTL_MS);
    redis_command(redis, "CONFIG SET maxmemory-policy noeviction");
    redis_command(redis, "CONFIG SET maxmemory 1");
    expect_problem(try_acquire(g, "b", 1000), 503, "redis_unavailable");
    expect_status(put(g, "a", "k", a.token, "x"), 201);
    expect_status(release(g, a.id), 200);
    assert_true(EVENTUALLY(!redis_number(redis, "EXISTS fencegate:{a}:holders"), 10000));
    redis_command(redis, "CONFIG SET maxmemory 0");
    assert_true(EVENTUALLY(can_acquire(g), 20000));
}

static void a_redis_over_tcp_with_a_password(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start_tcp("secret");
    struct gateway *g = gateway_start(test_printf("%s/3", redis_server_url(redis)), NULL);
    assert_int_equal(acquire(g, "a", LONG_TTL_MS).token, 1);
    redis_command(redis, "SELECT 3");
    assert_int_equal(redis_number(redis, "EXISTS fencegate:store"), 1);
    assert_null(strstr(gateway_log(g), "secret"));
}

static void a_wrong_password_is_no_reason_to_stop(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start_tcp("right");
    char *url = test_printf("%s", redis_server_url(redis));
    memcpy(strstr(url, "right"), "wrong", 5);
    struct gateway *g = gateway_start(url, NULL);
    assert_true(is_degraded(g));
    expect_problem(try_acquire(g, "a", 1000), 503, "redis_unavailable");
    redis_command(redis, "CONFIG SET requirepass wrong");
    assert_true(EVENTUALLY(can_acquire(g), 20000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lost_redis_stops_grants_only),
        TEST(leases_are_shown_while_redis_is_away),
        TEST(a_paused_redis_is_answered_in_time),
        TEST(a_grant_that_redis_made_too_late_blocks_nobody),
        TEST(the_gateway_starts_without_redis),
        TEST(after_a_loss_of_data_a_renew_restores_the_holder),
        TEST(a_renew_does_not_restore_where_somebody_else_is_in),
        TEST(a_renew_does_not_restore_what_an_expiry_ended),
        TEST(an_orphan_is_removed_at_once),
        TEST(removing_an_orphan_leaves_the_holder),
        TEST(a_redis_of_another_store_is_refused_at_the_start),
        TEST(a_redis_that_changes_hands_stops_grants),
        TEST(a_full_redis_still_takes_releases),
        TEST(a_redis_over_tcp_with_a_password),
        TEST(a_wrong_password_is_no_reason_to_stop),
    };
    return cmocka_run_group_tests_name("redis", tests, NULL, NULL);
}
