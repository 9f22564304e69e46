/* test_races.c - renewals against the release: what was given back is never had again.
 *
 * 1,000 races of each kind, with SOAK=1 in the environment 10,000. A race is run by threads that
 * start together and wait for each other; what came of it is then asked from the gateway, which
 * knows whether a renewal came after the release, and from Redis, where it would be seen. */
#include "tests/support/client.h"
#include "tests/support/limits.h"

#include <pthread.h>
#include <unistd.h>

enum { PAIRS = 8, RACES = 1000, SOAK_RACES = 10000 };

static struct redis_server *redis;
static struct gateway *g;
static struct fence_client *c;

static int start_servers(void **state)
{
    (void)state;
    redis = redis_server_start(NULL);
    g = gateway_start(redis_server_url(redis), NULL);
    http_record(g->http, false);
    c = client_of(g->url);
    cleanup_keep();
    return 0;
}

/* Two threads at one lease: one renews it until it may not any more, the other releases it. */
struct pair {
    const char *resource;
    struct fence_lease *lease;
    bool renews; /* where not, the watchdog does */
    int most_us; /* how long the release lets on itself wait */
    unsigned seed;
    atomic_bool quit;
    pthread_barrier_t barrier; /* of both threads and the test: passed before and after each race */
    pthread_t threads[2];
    enum fence_status renewed; /* the last answer */
    enum fence_status released;
    bool held; /* after the release */
};

static bool race_begins(struct pair *pair)
{
    pthread_barrier_wait(&pair->barrier);
    return !pair->quit;
}

static void *renew_always(void *arg)
{
    struct pair *pair = arg;
    while (race_begins(pair)) {
        do
            pair->renewed = fence_renew(pair->lease, 0, NULL);
        while (pair->renewed == FENCE_OK);
        pthread_barrier_wait(&pair->barrier);
    }
    return NULL;
}

static void *release_once(void *arg)
{
    struct pair *pair = arg;
    while (race_begins(pair)) {
        usleep((useconds_t)(rand_r(&pair->seed) % pair->most_us));
        pair->released = fence_release(pair->lease, NULL);
        pair->held = fence_still_held(pair->lease) || fence_left_ms(pair->lease) != 0;
        pthread_barrier_wait(&pair->barrier);
    }
    return NULL;
}

static void end_pair(void *arg)
{
    struct pair *pair = arg;
    pair->quit = true;
    pthread_barrier_wait(&pair->barrier);
    for (int i = pair->renews ? 0 : 1; i < 2; i++)
        pthread_join(pair->threads[i], NULL);
    pthread_barrier_destroy(&pair->barrier);
}

static void start_pair(struct pair *pair, int number, bool renews, int most_us)
{
    pair->resource = test_printf("race %d %d", renews, number);
    pair->renews = renews;
    pair->most_us = most_us;
    pair->seed = (unsigned)number;
    assert_int_equal(pthread_barrier_init(&pair->barrier, NULL, renews ? 3 : 2), 0);
    if (renews)
        assert_int_equal(pthread_create(&pair->threads[0], NULL, renew_always, pair), 0);
    assert_int_equal(pthread_create(&pair->threads[1], NULL, release_once, pair), 0);
    cleanup_add(end_pair, pair);
}

static bool redis_is_empty(const char *name)
{
    return redis_number(redis, "ZCARD fencegate:{%s}:holders", name) == 0;
}

static void check_pair(const struct pair *pair)
{
    bool over = pair->released == FENCE_OK || (!pair->renews && pair->released == FENCE_EXPIRED);
    if (!over)
        fail_msg("the release: %s", status_name(pair->released));
    if (pair->renews)
        assert_int_equal(pair->renewed, FENCE_RELEASED);
    assert_false(pair->held);
    assert_false(fence_still_held(pair->lease));
    struct response *r = expect_status(inspect(g, fence_lease_id(pair->lease)), 200);
    expect_text(r, "state", "released");
    assert_true(EVENTUALLY(redis_is_empty(pair->resource), 10000));
}

static void race(struct pair pairs[PAIRS], const struct fence_terms *terms)
{
    int rounds = (getenv("SOAK") ? SOAK_RACES : RACES) / PAIRS;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < PAIRS; i++) {
            struct fence_terms own = *terms;
            own.resource = pairs[i].resource;
            pairs[i].lease = take_lease(c, &own);
        }
        for (int i = 0; i < PAIRS; i++)
            pthread_barrier_wait(&pairs[i].barrier);
        for (int i = 0; i < PAIRS; i++)
            pthread_barrier_wait(&pairs[i].barrier);
        for (int i = 0; i < PAIRS; i++) {
            check_pair(&pairs[i]);
            discard(pairs[i].lease);
        }
    }
    sleep_ms(100);
    for (int i = 0; i < PAIRS; i++)
        assert_true(redis_is_empty(pairs[i].resource)); /* and it stays so */
}

static void a_renewal_never_comes_after_the_release(void **state)
{
    (void)state;
    struct pair *pairs = test_alloc(PAIRS * sizeof *pairs);
    for (int i = 0; i < PAIRS; i++)
        start_pair(&pairs[i], i, true, 1500);
    race(pairs, &(struct fence_terms){.ttl_ms = LONG_TTL_MS});
}

static void a_watchdog_never_renews_after_the_release(void **state)
{
    (void)state;
    struct pair *pairs = test_alloc(PAIRS * sizeof *pairs);
    for (int i = 0; i < PAIRS; i++)
        start_pair(&pairs[i], i, false, 40000);
    race(pairs, &(struct fence_terms){.ttl_ms = slow_ms(FENCE_TTL_LEAST_MS)});
}

/* ---- What the server sees of it -------------------------------------------------------------- */

static void nothing_is_sent_after_the_release(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client = client_of(stub_url(stub));
    const int ttl_ms = slow_ms(60);
    unsigned seed = 6;
    int renewals = 0;
    stub_serve(stub, ttl_ms);
    stub_play(stub, RENEWALS, STEPS({.text = stub_lease(200, ttl_ms), .delay_ms = 5}));
    for (int round = 0; round < 50; round++) {
        struct fence_lease *lease =
            take_lease(client, &(struct fence_terms){.resource = "r", .ttl_ms = ttl_ms});
        usleep((useconds_t)(rand_r(&seed) % (ttl_ms * 1000)));
        EXPECT(FENCE_OK, fence_release(lease, &failure));
        sleep_ms(10); /* until the server has read what was sent */
        renewals = stub_count(stub, RENEWALS);
        sleep_ms(ttl_ms / 2);
        assert_int_equal(stub_count(stub, RENEWALS), renewals);
        discard(lease);
    }
    assert_true(renewals > 0);
}

static void a_renewal_that_hangs_does_not_delay_the_release(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client =
        client_with(&(struct fence_options){.url = stub_url(stub), .timeout_ms = 600000});
    const int ttl_ms = slow_ms(9000);
    struct loss *loss = loss_new();
    stub_serve(stub, ttl_ms);
    stub_play(stub, RENEWALS, STEPS({.end = STUB_HANG}));
    struct fence_terms terms = {.resource = "r", .ttl_ms = ttl_ms, .lost = note_loss, .arg = loss};
    for (int i = 0; i < 2; i++) { /* by the release; without it */
        struct fence_lease *lease = take_lease(client, &terms);
        stub_await(stub, RENEWALS, i + 1);
        long long start_ms = now_ms();
        if (i == 0)
            EXPECT(FENCE_OK, fence_release(lease, &failure));
        discard(lease);
        assert_true(now_ms() - start_ms < slow_ms(1500));
        assert_int_equal(loss->calls, 0);
    }
}

static void *renew_it(void *lease)
{
    return (void *)(uintptr_t)fence_renew(lease, 0, NULL);
}

/* A renewal by the program, that is under way when it calls fence_release(). */
static void a_renewal_that_ends_during_the_release_is_none(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client = client_of(stub_url(stub));
    const int delays_ms[] = {20, 300};
    for (int i = 0; i < 2; i++) {
        stub_serve(stub, LONG_TTL_MS);
        stub_play(stub, RENEWALS,
                  STEPS({.text = stub_lease(200, LONG_TTL_MS), .delay_ms = delays_ms[i]}));
        struct fence_lease *lease =
            take_lease(client, &(struct fence_terms){.resource = "r", .ttl_ms = LONG_TTL_MS});
        long long deadline_ms = fence_deadline_boot_ms(lease);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, renew_it, lease), 0);
        stub_await(stub, RENEWALS, i + 1);
        enum fence_status released = fence_release(lease, &failure);
        bool held = fence_still_held(lease);
        void *renewed;
        pthread_join(thread, &renewed);
        EXPECT(FENCE_OK, released);
        assert_false(held);
        assert_false(fence_still_held(lease));
        if ((uintptr_t)renewed != FENCE_OK) { /* else it had ended before */
            assert_int_equal((uintptr_t)renewed, FENCE_RELEASED);
            assert_int_equal(fence_deadline_boot_ms(lease), deadline_ms);
        }
        assert_int_equal(stub_count(stub, RENEWALS), i + 1);
    }
}

static void a_release_that_fails_can_be_repeated(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct loss *loss = loss_new();
    struct fence_client *client =
        client_with(&(struct fence_options){.url = stub_url(stub), .timeout_ms = slow_ms(500)});
    const int ttl_ms = slow_ms(600);
    stub_serve(stub, ttl_ms);
    stub_play(stub, RELEASES,
              STEPS({.text = stub_problem(503, "store_unavailable")}, {.end = STUB_HANG},
                    {.text = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", .end = STUB_CLOSE},
                    {.text = stub_json(200, "{\"released\":false}")}, {.text = stub_released()}));
    struct fence_lease *lease = take_lease(
        client,
        &(struct fence_terms){.resource = "r", .ttl_ms = ttl_ms, .lost = note_loss, .arg = loss});
    EXPECT_CODE(FENCE_BUSY, "store_unavailable", fence_release(lease, &failure));
    assert_false(fence_still_held(lease));
    int renewals = stub_count(stub, RENEWALS);
    EXPECT(FENCE_NO_ANSWER, fence_release(lease, &failure));
    EXPECT(FENCE_NO_ANSWER, fence_release(lease, &failure));
    EXPECT(FENCE_BAD_ANSWER, fence_release(lease, &failure));
    assert_false(fence_still_held(lease));
    EXPECT(FENCE_OK, fence_release(lease, &failure));
    EXPECT(FENCE_RELEASED, fence_renew(lease, 0, &failure));
    assert_int_equal(stub_count(stub, RENEWALS), renewals);
    assert_int_equal(loss->calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_renewal_never_comes_after_the_release),
        TEST(a_watchdog_never_renews_after_the_release),
        TEST(nothing_is_sent_after_the_release),
        TEST(a_renewal_that_hangs_does_not_delay_the_release),
        TEST(a_renewal_that_ends_during_the_release_is_none),
        TEST(a_release_that_fails_can_be_repeated),
    };
    return cmocka_run_group_tests(tests, start_servers, NULL);
}
