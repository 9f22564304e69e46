/* test_threads.c - one client of libfence, one lease of it, used by many threads at a time.
 *
 * One gateway for all cases. Most of it says most under ThreadSanitizer. */
#include "tests/support/client.h"

#include <pthread.h>

enum { THREADS = 8, ROUNDS = 200, TURNS = 25 };

static struct gateway *g;
static struct fence_client *c;

static int start_servers(void **state)
{
    (void)state;
    g = gateway_start(redis_server_url(redis_server_start(NULL)), NULL);
    c = client_of(g->url);
    cleanup_keep();
    return 0;
}

/* ---- One client ------------------------------------------------------------------------------ */

struct worker {
    pthread_t thread;
    const char *resource;
    int rounds;
    int64_t wait_ms;
    atomic_int *inside;   /* how many hold the resource; NULL: not looked at */
    atomic_int *overlaps; /* how often it were two */
    const char *failed;   /* the call that did */
    struct fence_error error;
};

/* What a holder does. Returns the call that failed, or NULL. */
static const char *hold(struct worker *worker, struct fence_lease *lease)
{
    struct fence_record record = fence_lease_record(lease, "key");
    if (worker->inside && atomic_fetch_add(worker->inside, 1) != 0)
        atomic_fetch_add(worker->overlaps, 1);
    enum fence_status status = fence_put(c, &record, "value", 5, NULL, &worker->error);
    bool held = fence_still_held(lease);
    if (worker->inside)
        atomic_fetch_sub(worker->inside, 1);
    if (status != FENCE_OK)
        return "put";
    if (!held)
        return "still held";
    return fence_release(lease, &worker->error) == FENCE_OK ? NULL : "release";
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct fence_terms terms = {.resource = worker->resource, .wait_ms = worker->wait_ms};
    for (int i = 0; i < worker->rounds && !worker->failed; i++) {
        struct fence_lease *lease;
        if (fence_acquire(c, &terms, &lease, &worker->error) == FENCE_OK)
            worker->failed = hold(worker, lease);
        else
            worker->failed = "acquire";
        fence_lease_free(lease);
    }
    return NULL;
}

static void run_workers(struct worker workers[THREADS])
{
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].failed)
            fail_msg("%s: %s: %s", workers[i].failed, status_name(workers[i].error.status),
                     workers[i].error.detail);
}

static void eight_threads_share_one_client(void **state)
{
    (void)state;
    struct worker workers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        workers[i].resource = test_printf("thread %d", i);
        workers[i].rounds = ROUNDS;
    }
    run_workers(workers);
    for (int i = 0; i < THREADS; i++)
        expect_number(resource(g, workers[i].resource), "highest_fencing_token", ROUNDS);
}

static void eight_threads_take_turns_at_one_resource(void **state)
{
    (void)state;
    atomic_int inside = 0;
    atomic_int overlaps = 0;
    struct worker workers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.resource = "turns",
                                     .rounds = TURNS,
                                     .wait_ms = LONG_TTL_MS,
                                     .inside = &inside,
                                     .overlaps = &overlaps};
    run_workers(workers);
    assert_int_equal(overlaps, 0);
    expect_number(resource(g, "turns"), "highest_fencing_token", (long long)THREADS * TURNS);
}

/* ---- One lease ------------------------------------------------------------------------------- */

struct user {
    pthread_t thread;
    struct fence_lease *lease;
    atomic_bool *end;
    atomic_int calls;
    enum fence_status bad; /* of a call, neither OK nor RELEASED */
};

/* Everything that may be done with a lease of others. */
static void *use(void *arg)
{
    struct user *user = arg;
    while (!*user->end) {
        bool held = fence_still_held(user->lease);
        int64_t left_ms = fence_left_ms(user->lease);
        enum fence_status status = fence_renew(user->lease, user->calls % 2 ? 30000 : 20000, NULL);
        if (status != FENCE_OK && status != FENCE_RELEASED)
            user->bad = status;
        if (left_ms < 0 || left_ms > 30000 || fence_lease_token(user->lease) <= 0 ||
            fence_deadline_boot_ms(user->lease) <= 0 || (!held && status == FENCE_OK))
            user->bad = FENCE_INVALID;
        user->calls++;
    }
    return NULL;
}

static void many_threads_use_one_lease_while_it_is_released(void **state)
{
    (void)state;
    struct fence_lease *lease = take_lease(c, &(struct fence_terms){.resource = "shared lease"});
    atomic_bool end = false;
    struct user users[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        users[i].lease = lease;
        users[i].end = &end;
        assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_true(EVENTUALLY(users[i].calls > 2, 20000));
    enum fence_status released = fence_release(lease, &failure);
    bool held = fence_still_held(lease);
    for (int i = 0; i < THREADS; i++) {
        int calls = users[i].calls;
        assert_true(EVENTUALLY(users[i].calls > calls + 2, 20000));
    }
    end = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(users[i].thread, NULL);
    EXPECT(FENCE_OK, released);
    assert_false(held);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(users[i].bad, FENCE_OK);
    expect_text(inspect(g, fence_lease_id(lease)), "state", "released");
}

static void *release_it(void *lease)
{
    return (void *)(uintptr_t)fence_release(lease, NULL);
}

static void many_threads_release_one_lease(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct fence_lease *lease =
            take_lease(c, &(struct fence_terms){.resource = "released often"});
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, release_it, lease), 0);
        for (int i = 0; i < THREADS; i++) {
            void *status;
            pthread_join(threads[i], &status);
            assert_int_equal((uintptr_t)status, FENCE_OK);
        }
        expect_text(inspect(g, fence_lease_id(lease)), "state", "released");
    }
}

static void hundred_leases_are_kept_at_once(void **state)
{
    (void)state;
    enum { LEASES = 100 };
    struct fence_lease *leases[LEASES];
    struct loss *loss = loss_new();
    const int ttl_ms = slow_ms(2000);
    for (int i = 0; i < LEASES; i++)
        leases[i] = take_lease(c, &(struct fence_terms){.resource = test_printf("many %d", i),
                                                        .ttl_ms = ttl_ms,
                                                        .lost = note_loss,
                                                        .arg = loss});
    sleep_ms(2 * ttl_ms);
    for (int i = 0; i < LEASES; i++) {
        assert_true(fence_still_held(leases[i]));
        assert_int_equal(loss->calls, 0);
        EXPECT(FENCE_OK, fence_release(leases[i], &failure));
        discard(leases[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(eight_threads_share_one_client),
        TEST(eight_threads_take_turns_at_one_resource),
        TEST(many_threads_use_one_lease_while_it_is_released),
        TEST(many_threads_release_one_lease),
        TEST(hundred_leases_are_kept_at_once),
    };
    return cmocka_run_group_tests(tests, start_servers, NULL);
}
