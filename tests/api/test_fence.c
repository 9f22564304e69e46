/* test_fence.c - the promise: from the answer to a grant on, nobody before it can write.
 *
 * A paused or slow holder is played by using its token late; that is all that the gateway ever sees
 * of a pause. */
#include "tests/support/api.h"

#include <signal.h>

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

/* A has run out, B has been granted after it. */
static struct lease supersede(const char *name, struct lease *a)
{
    *a = acquire(g, name, SHORT_TTL_MS);
    return acquire_within(g, name, LONG_TTL_MS, 10000);
}

/* ---- Who may write ----------------------------------------------------------------------------
 */

static void a_grant_fences_its_predecessor_before_it_writes(void **state)
{
    (void)state;
    struct lease a;
    struct lease b = supersede("paused", &a);
    /* B has written nothing yet. A wakes up: */
    expect_problem(put(g, "paused", "charge", a.token, "A"), 412, "stale_fencing_token");
    expect_problem(erase(g, "paused", "charge", a.token), 412, "stale_fencing_token");
    expect_problem(fetch(g, "paused", "charge", 0), 404, "record_not_found");

    expect_number(expect_status(put(g, "paused", "charge", b.token, "B"), 201), "version", 1);
    expect_problem(put(g, "paused", "charge", a.token, "A"), 412, "stale_fencing_token");
    expect_problem(erase(g, "paused", "charge", a.token), 412, "stale_fencing_token");
    expect_body(fetch(g, "paused", "charge", 0), "B");
}

static void a_stale_token_learns_who_replaced_it(void **state)
{
    (void)state;
    struct lease a = acquire(g, "learns", SHORT_TTL_MS);
    await_expiry(g, a.id);
    struct response *b =
        expect_status(post(g, "/leases", "{\"resource\":\"learns\",\"owner\":\"worker B\"}"), 201);
    struct response *r =
        expect_problem(put(g, "learns", "k", a.token, "A"), 412, "stale_fencing_token");
    expect_number(r, "fencing_token", a.token);
    expect_number(r, "highest_fencing_token", number_at(b, "fencing_token"));
    expect_text(r, "reason", "superseded");
    expect_members(r, "superseded_by", LIST("fencing_token", "owner", "at"));
    expect_number(r, "superseded_by.fencing_token", number_at(b, "fencing_token"));
    expect_text(r, "superseded_by.owner", "worker B");
    long long at_ms = time_of(text_at(r, "superseded_by.at"));
    long long granted_ms = time_of(text_at(b, "acquired_at"));
    assert_in_range(at_ms, granted_ms - 2000, granted_ms + 2000);
}

static void an_expired_lease_that_nobody_replaced_may_write(void **state)
{
    (void)state;
    struct lease a = acquire(g, "expired", SHORT_TTL_MS);
    await_expiry(g, a.id);
    expect_status(put(g, "expired", "k", a.token, "A"), 201);
    expect_status(erase(g, "expired", "k", a.token), 204);
    expect_problem(renew(g, a.id, 0), 410, "lease_expired");
}

static void a_release_closes_the_fence(void **state)
{
    (void)state;
    struct lease a = acquire(g, "released", LONG_TTL_MS);
    put(g, "released", "k", a.token, "A");
    expect_status(release(g, a.id), 200);
    struct response *r =
        expect_problem(put(g, "released", "k", a.token, "late"), 412, "stale_fencing_token");
    expect_text(r, "reason", "released");
    expect_null(r, "superseded_by");
    expect_number(r, "highest_fencing_token", a.token);
    expect_body(fetch(g, "released", "k", 0), "A");
    expect_problem(check(g, "released", a.token), 412, "stale_fencing_token");
}

static void a_forged_token_locks_nobody_out(void **state)
{
    (void)state;
    struct lease a = acquire(g, "forged", LONG_TTL_MS);
    struct response *r =
        expect_problem(put(g, "forged", "k", a.token + 1, "x"), 412, "fencing_token_not_issued");
    expect_number(r, "fencing_token", a.token + 1);
    expect_number(r, "highest_fencing_token", a.token);
    expect_problem(put(g, "forged", "k", 9007199254740991, "x"), 412, "fencing_token_not_issued");
    expect_status(put(g, "forged", "k", a.token, "A"), 201);
    expect_number(resource(g, "forged"), "highest_fencing_token", a.token);
    expect_status(release(g, a.id), 200);
    assert_int_equal(acquire(g, "forged", 1000).token, a.token + 1);
}

static void a_token_is_good_for_its_own_resource_only(void **state)
{
    (void)state;
    struct lease a = acquire(g, "own", LONG_TTL_MS);
    expect_problem(put(g, "nobody's", "k", a.token, "x"), 412, "fencing_token_not_issued");
    expect_problem(resource(g, "nobody's"), 404, "resource_not_found");
    /* Tokens are small numbers: the one of another resource may well be live here, too. The lease
     * id tells them apart. */
    acquire(g, "other's", LONG_TTL_MS);
    struct response *r = call(g, "PUT", store_path("other's", "k"),
                              LIST(token_header(a.token), test_printf("X-Lease-Id: %s", a.id)),
                              "x");
    expect_problem(r, 412, "lease_mismatch");
}

static void a_token_that_was_skipped_is_stale(void **state)
{
    (void)state;
    redis_command(redis, "SET fencegate:{skipped}:counter 10");
    assert_int_equal(acquire(g, "skipped", LONG_TTL_MS).token, 11);
    struct response *r = expect_problem(put(g, "skipped", "k", 5, "x"), 412, "stale_fencing_token");
    expect_text(r, "reason", "unknown");
    expect_null(r, "superseded_by");
}

static void every_zombie_of_a_long_line_is_refused(void **state)
{
    (void)state;
    long long tokens[10];
    for (size_t i = 0; i < 10; i++) {
        struct lease lease =
            acquire_within(g, "zombies", i < 9 ? SHORT_TTL_MS : LONG_TTL_MS, 10000);
        tokens[i] = lease.token;
        assert_true(i == 0 || tokens[i] > tokens[i - 1]);
        for (size_t zombie = 0; zombie < i; zombie++)
            expect_problem(put(g, "zombies", "k", tokens[zombie], "x"), 412, "stale_fencing_token");
    }
    expect_number(expect_status(put(g, "zombies", "k", tokens[9], "9"), 201), "version", 1);
}

/* ---- When Redis forgets or is away ------------------------------------------------------------
 */

static void an_amnesia_of_redis_lets_nobody_write_twice(void **state)
{
    (void)state;
    struct lease a = acquire(g, "amnesia", LONG_TTL_MS);
    put(g, "amnesia", "k", a.token, "A");
    redis_command(redis, "FLUSHALL");
    /* Redis knows nothing of A: it lets B in. The store knows, and shuts A out. */
    struct lease b = acquire(g, "amnesia", LONG_TTL_MS);
    assert_true(b.token > a.token);
    expect_problem(put(g, "amnesia", "k", a.token, "late"), 412, "stale_fencing_token");
    expect_problem(renew(g, a.id, 0), 410, "lease_superseded");
    expect_status(put(g, "amnesia", "k", b.token, "B"), 200);
}

static void the_fence_stands_without_redis(void **state)
{
    (void)state;
    struct redis_server *own = redis_server_start(NULL);
    struct gateway *alone = gateway_start(redis_server_url(own), LIST("--redis-timeout-ms", "300"));
    struct lease a = acquire(alone, "r", SHORT_TTL_MS);
    await_expiry(alone, a.id);
    struct lease b = acquire(alone, "r", LONG_TTL_MS);
    struct lease c = acquire(alone, "r2", LONG_TTL_MS);
    redis_server_kill(own);

    expect_status(put(alone, "r", "k", b.token, "B"), 201);
    expect_problem(put(alone, "r", "k", a.token, "A"), 412, "stale_fencing_token");
    expect_status(check(alone, "r", b.token), 200);
    expect_status(fetch(alone, "r", "k", b.token), 200);
    expect_status(release(alone, b.id), 200);
    expect_problem(put(alone, "r", "k", b.token, "late"), 412, "stale_fencing_token");
    expect_status(put(alone, "r2", "k", c.token, "C"), 201);
    expect_body(fetch(alone, "r", "k", 0), "B");
}

/* ---- Crowds -----------------------------------------------------------------------------------
 */

enum { CROWD = 24 };

static void of_a_crowd_one_is_granted(void **state)
{
    (void)state;
    const char *body = "{\"resource\":\"crowd\",\"ttl_ms\":600000}";
    for (int round = 1; round <= 3; round++) {
        struct http *clients[CROWD];
        const char *winner = NULL;
        for (int i = 0; i < CROWD; i++) {
            clients[i] = http_new(g->port);
            http_send(clients[i], "POST", "/leases", NULL, body, strlen(body));
        }
        for (int i = 0; i < CROWD; i++) {
            struct response *r = http_receive(clients[i], "POST");
            assert_non_null(r);
            if (r->status == 201) {
                assert_null(winner);
                winner = text_at(r, "lease_id");
            } else {
                expect_problem(r, 409, "lease_held");
            }
        }
        assert_non_null(winner);
        expect_status(release(g, winner), 200);
    }
}

enum { WORKERS = 8, STEPS = 400 };

/* What one worker believes. */
struct worker {
    struct http *http;
    const char *lease_id;
    long long token; /* its last one, whatever has become of the lease */
};

/* One step of a worker: it acquires, writes with what it has, or releases; at random. */
static void step(struct worker *worker, unsigned *seed)
{
    const char *body = "{\"resource\":\"race\",\"ttl_ms\":50}";
    int dice = rand_r(seed) % 10;
    if (worker->token == 0 || dice < 4) {
        struct response *r = call_on(worker->http, "POST", "/leases", NULL, body);
        if (r->status == 201) {
            worker->token = number_at(r, "fencing_token");
            worker->lease_id = text_at(r, "lease_id");
        }
    } else if (dice < 9) {
        const char *value = test_printf("%lld", worker->token);
        struct response *r =
            call_on(worker->http, "PUT", "/store/race/k", LIST(token_header(worker->token)), value);
        if (r->status >= 300)
            expect_problem(r, 412, "stale_fencing_token");
    } else {
        call_on(worker->http, "DELETE", test_printf("/leases/%s", worker->lease_id), NULL, NULL);
    }
}

/* Reads the ledger: an accepted write has the token of the newest grant, and grants rise. */
static size_t check_ledger(const char *name)
{
    long long seq = 0;
    long long newest = 0;
    size_t writes = 0;
    for (;;) {
        struct response *r =
            expect_status(history(g, name, test_printf("?after=%lld&limit=100", seq)), 200);
        size_t rows = count_at(r, "items");
        for (size_t i = 0; i < rows; i++) {
            const char *kind = text_at(r, test_printf("items.%zu.kind", i));
            long long row = number_at(r, test_printf("items.%zu.seq", i));
            assert_true(row > seq);
            seq = row;
            if (strcmp(kind, "grant") != 0 && strcmp(kind, "write") != 0)
                continue;
            long long token = number_at(r, test_printf("items.%zu.fencing_token", i));
            if (strcmp(kind, "grant") == 0) {
                assert_true(token > newest);
                newest = token;
            } else {
                assert_int_equal(token, newest);
                writes++;
            }
        }
        if (rows == 0)
            return writes;
    }
}

static void in_any_order_only_the_newest_token_writes(void **state)
{
    (void)state;
    unsigned seed = (unsigned)now_ms();
    printf("seed %u\n", seed);
    struct worker workers[WORKERS] = {0};
    for (int i = 0; i < WORKERS; i++) {
        workers[i].http = http_new(g->port);
        http_record(workers[i].http, false);
    }
    for (int i = 0; i < STEPS; i++) {
        step(&workers[rand_r(&seed) % WORKERS], &seed);
        if (rand_r(&seed) % 10 == 0)
            sleep_ms(rand_r(&seed) % 40);
    }
    size_t writes = check_ledger("race");
    assert_true(writes > 0);
    assert_int_equal(number_at(get(g, "/store/race"), "items.0.version"), writes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_grant_fences_its_predecessor_before_it_writes),
        TEST(a_stale_token_learns_who_replaced_it),
        TEST(an_expired_lease_that_nobody_replaced_may_write),
        TEST(a_release_closes_the_fence),
        TEST(a_forged_token_locks_nobody_out),
        TEST(a_token_is_good_for_its_own_resource_only),
        TEST(a_token_that_was_skipped_is_stale),
        TEST(every_zombie_of_a_long_line_is_refused),
        TEST(an_amnesia_of_redis_lets_nobody_write_twice),
        TEST(the_fence_stands_without_redis),
        TEST(of_a_crowd_one_is_granted),
        TEST(in_any_order_only_the_newest_token_writes),
    };
    return cmocka_run_group_tests_name("fence", tests, start_servers, NULL);
}
