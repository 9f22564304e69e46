/* test_watchdog.c - the watchdog at a real gateway: leases that are kept, and each way to lose one.
 *
 * One gateway and one Redis for the cases that break neither. What the watchdog does about answers
 * that are late, wrong or missing is in test_deadlines.c. */
#include "tests/support/client.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Short, and long enough for a machine that is busy. */
#define TTL_MS slow_ms(800)

static struct redis_server *redis;
static struct gateway *g;
static struct fence_client *c;

static int start_servers(void **state)
{
    (void)state;
    redis = redis_server_start(NULL);
    g = gateway_start(redis_server_url(redis), NULL);
    c = client_of(g->url);
    cleanup_keep();
    return 0;
}

/* A lease of a client that tells its loss-> */
static struct fence_lease *keep(struct fence_client *client, const char *name, int ttl_ms,
                                struct loss *loss)
{
    return take_lease(
        client,
        &(struct fence_terms){.resource = name, .ttl_ms = ttl_ms, .lost = note_loss, .arg = loss});
}

/* For so long it is held, at every look. */
static void expect_kept(const struct fence_lease *lease, const struct loss *loss, int ms)
{
    for (long long end_ms = now_ms() + ms; now_ms() < end_ms; sleep_ms(5))
        if (!fence_still_held(lease) || fence_left_ms(lease) <= 0 || loss->calls > 0)
            fail_msg("lost: %s", status_name((enum fence_status)loss->why));
}

static void expect_never_again(const struct loss *loss, enum fence_status why, int ms)
{
    expect_loss(loss, why);
    for (long long end_ms = now_ms() + ms; now_ms() < end_ms; sleep_ms(5))
        if (fence_still_held(loss->lease) || loss->calls != 1)
            fail_msg("it is held again, or lost %d times", loss->calls);
}

/* ---- Kept ------------------------------------------------------------------------------------ */

static void a_lease_lives_for_five_times_its_ttl(void **state)
{
    (void)state;
    struct loss *loss = loss_new();
    struct fence_lease *a = keep(c, "five ttls", TTL_MS, loss);
    for (int i = 0; i < 5; i++) {
        expect_kept(a, loss, TTL_MS);
        expect_text(inspect(g, fence_lease_id(a)), "state", "held");
    }
    assert_int_equal(fence_lease_ttl_ms(a), TTL_MS);
    EXPECT(FENCE_OK, fence_release(a, &failure));
    assert_int_equal(loss->calls, 0);
}

static void the_watchdog_goes_on_with_the_ttl_of_a_renewal(void **state)
{
    (void)state;
    struct loss *shorter = loss_new();
    struct loss *longer = loss_new();
    struct fence_lease *a = keep(c, "shorter", LONG_TTL_MS, shorter);
    struct fence_lease *b = keep(c, "longer", TTL_MS, longer);
    EXPECT(FENCE_OK, fence_renew(a, TTL_MS, &failure));
    EXPECT(FENCE_OK, fence_renew(b, LONG_TTL_MS, &failure));
    expect_kept(a, shorter, 3 * TTL_MS);
    assert_true(fence_still_held(b));
    assert_int_equal(longer->calls, 0);
    assert_in_range(fence_left_ms(a), 1, TTL_MS);
    assert_true(fence_left_ms(b) > LONG_TTL_MS / 2);
    assert_true(number_at(inspect(g, fence_lease_id(b)), "expires_in_ms") > LONG_TTL_MS / 2);
}

static void a_redis_that_loses_its_data_does_not_lose_the_lease(void **state)
{
    (void)state;
    struct loss *loss = loss_new();
    struct redis_server *weak = redis_server_start(NULL);
    struct gateway *gateway = gateway_start(redis_server_url(weak), NULL);
    const int ttl_ms = slow_ms(3000);
    struct fence_lease *a = keep(client_of(gateway->url), "r", ttl_ms, loss);
    redis_command(weak, "FLUSHALL");
    expect_kept(a, loss, ttl_ms / 2);
    redis_server_stop(weak); /* renewals answer 503 */
    expect_kept(a, loss, ttl_ms / 3);
    redis_server_restart(weak); /* empty */
    expect_kept(a, loss, ttl_ms + ttl_ms / 2);
    EXPECT(FENCE_OK, fence_release(a, &failure));
}

/* ---- Lost ------------------------------------------------------------------------------------ */

static void a_lease_that_is_taken_away_is_lost(void **state)
{
    (void)state;
    struct loss *loss = loss_new();
    struct fence_lease *a = keep(c, "revoked", TTL_MS, loss);
    take_away(g, "revoked");
    struct lease b = acquire(g, "revoked", LONG_TTL_MS);
    expect_never_again(loss, FENCE_REVOKED, TTL_MS);
    EXPECT(FENCE_REVOKED, fence_renew(a, 0, &failure));
    EXPECT(FENCE_REVOKED, fence_release(a, &failure));
    expect_text(inspect(g, b.id), "state", "held");
}

static void a_lease_that_is_replaced_is_lost(void **state)
{
    (void)state;
    struct loss *loss = loss_new();
    struct fence_lease *a = keep(c, "superseded", slow_ms(3000), loss);
    struct response *r;
    do { /* a renewal may have put it back */
        redis_command(redis, "FLUSHALL");
        r = try_acquire(g, "superseded", LONG_TTL_MS);
    } while (r->status == 409);
    expect_status(r, 201);
    expect_never_again(loss, FENCE_SUPERSEDED, 100);
    EXPECT(FENCE_SUPERSEDED, fence_renew(a, 0, &failure));
    EXPECT(FENCE_SUPERSEDED, fence_release(a, &failure));
}

static void a_lease_that_another_releases_is_lost(void **state)
{
    (void)state;
    struct loss *loss = loss_new();
    struct fence_lease *a = keep(c, "released", TTL_MS, loss);
    expect_status(release(g, fence_lease_id(a)), 200);
    expect_never_again(loss, FENCE_RELEASED, TTL_MS);
    EXPECT(FENCE_OK, fence_release(a, &failure));
}

static void a_gateway_that_dies_costs_the_lease_at_its_deadline(void **state)
{
    (void)state;
    struct loss *loss = loss_new();
    struct gateway *mortal = gateway_start(redis_server_url(redis_server_start(NULL)), NULL);
    struct fence_lease *a = keep(client_of(mortal->url), "r", TTL_MS, loss);
    sleep_ms(TTL_MS / 2);
    gateway_kill(mortal);
    assert_true(fence_still_held(a)); /* nobody else can have it yet */
    expect_never_again(loss, FENCE_EXPIRED, 100);
    assert_true(loss->at_boot_ms >= fence_deadline_boot_ms(a));
    EXPECT(FENCE_EXPIRED, fence_renew(a, 0, &failure));
    EXPECT(FENCE_UNREACHABLE, fence_release(a, &failure));
}

static void a_gateway_that_stands_still_costs_the_lease_for_ever(void **state)
{
    (void)state;
    struct loss *loss = loss_new();
    struct gateway *frozen = gateway_start(redis_server_url(redis_server_start(NULL)), NULL);
    struct fence_lease *a = keep(client_of(frozen->url), "r", TTL_MS, loss);
    sleep_ms(TTL_MS / 2);
    process_signal(frozen->process, SIGSTOP);
    expect_loss(loss, FENCE_EXPIRED);
    assert_true(loss->at_boot_ms >= fence_deadline_boot_ms(a));
    process_signal(frozen->process, SIGCONT); /* with our renewals in its sockets */
    expect_never_again(loss, FENCE_EXPIRED, TTL_MS);
    await_expiry(frozen, fence_lease_id(a));
    EXPECT(FENCE_EXPIRED, fence_release(a, &failure));
}

static void a_lease_is_lost_when_it_was_held_for_long_enough(void **state)
{
    (void)state;
    const int ttls_ms[] = {TTL_MS, LONG_TTL_MS};
    for (int i = 0; i < 2; i++) {
        struct loss *loss = loss_new();
        const int most_ms = slow_ms(1500);
        long long start_ms = boot_now_ms();
        struct fence_lease *a =
            take_lease(c, &(struct fence_terms){.resource = test_printf("outlived %d", i),
                                                .ttl_ms = ttls_ms[i],
                                                .max_hold_ms = most_ms,
                                                .lost = note_loss,
                                                .arg = loss});
        long long granted_ms = boot_now_ms();
        while (fence_still_held(a)) {
            assert_true(fence_deadline_boot_ms(a) <= granted_ms + most_ms);
            sleep_ms(5);
        }
        expect_never_again(loss, FENCE_OUTLIVED, 100);
        assert_true(loss->at_boot_ms - start_ms >= most_ms);
        EXPECT(FENCE_OUTLIVED, fence_renew(a, 0, &failure));
        assert_true(fence_release(a, &failure) == FENCE_OK || failure.status == FENCE_EXPIRED);
    }
}

/* ---- What happens at a loss ------------------------------------------------------------------ */

struct last_words {
    enum fence_status renewed;
    enum fence_status put;
    enum fence_status acquired;
    struct fence_lease *other;
    atomic_bool said;
};

static void say_last_words(struct fence_lease *lease, enum fence_status why, void *arg)
{
    struct last_words *words = arg;
    struct fence_record record = fence_lease_record(lease, "key");
    (void)why;
    words->renewed = fence_renew(lease, 0, NULL);
    words->put = fence_put(c, &record, "late", 4, NULL, NULL);
    words->acquired =
        fence_acquire(c, &(struct fence_terms){.resource = "last words 2"}, &words->other, NULL);
    words->said = !fence_still_held(lease) && fence_left_ms(lease) == 0;
}

static void the_callback_may_use_the_library(void **state)
{
    (void)state;
    struct last_words words = {0};
    struct fence_lease *a = take_lease(
        c, &(struct fence_terms){
               .resource = "last words", .ttl_ms = TTL_MS, .lost = say_last_words, .arg = &words});
    take_away(g, "last words");
    assert_true(EVENTUALLY(words.said, 20000));
    adopt(words.other);
    assert_int_equal(words.renewed, FENCE_REVOKED);
    assert_int_equal(words.put, FENCE_STALE);
    assert_int_equal(words.acquired, FENCE_OK);
    assert_true(fence_still_held(words.other));
    EXPECT(FENCE_REVOKED, fence_release(a, &failure));
}

static void no_loss_is_told_after_the_release(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct loss *loss = loss_new();
        struct fence_lease *a = keep(c, "told late", slow_ms(90), loss);
        take_away(g, "told late");
        sleep_ms(round * 3);
        enum fence_status released = fence_release(a, &failure);
        int calls = loss->calls;
        EXPECT(FENCE_REVOKED, released);
        sleep_ms(slow_ms(50));
        assert_int_equal(loss->calls, calls);
        assert_true(calls <= 1);
    }
}

/* ---- The end of it --------------------------------------------------------------------------- */

static void a_lease_that_is_freed_without_release_runs_out(void **state)
{
    (void)state;
    struct loss *loss = loss_new();
    struct fence_lease *a = keep(c, "freed", TTL_MS, loss);
    const char *id = test_printf("%s", fence_lease_id(a));
    sleep_ms(TTL_MS / 2);
    discard(a);
    await_expiry(g, id);
    assert_int_equal(loss->calls, 0);
}

/* What a child sees of a lease of its parent; a bit for each surprise. It waits for a SIGKILL: who
 * looks for leaks at an end would find the parent's connections, which a child leaves alone. */
static _Noreturn void be_a_child(struct fence_lease *lease, struct fence_client *client, int out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsigned char surprises = fence_still_held(lease) ? 1 : 0;
    surprises |= fence_left_ms(lease) != 0 ? 2 : 0;
    surprises |= fence_renew(lease, 0, NULL) != FENCE_FORKED ? 4 : 0;
    surprises |= fence_release(lease, NULL) != FENCE_FORKED ? 8 : 0;
    fence_lease_free(lease);
    fence_close(client);
    while (write(out, &surprises, 1) == 1)
        pause();
    _exit(1);
}

static void a_child_of_fork_has_no_lease(void **state)
{
    (void)state;
    struct loss *loss = loss_new();
    struct fence_lease *a = keep(c, "forked", TTL_MS, loss);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        be_a_child(a, c, ends[1]);
    assert_true(child > 0);
    close(ends[1]);
    expect_kept(a, loss, 2 * TTL_MS);
    unsigned char surprises = 255;
    assert_int_equal(read(ends[0], &surprises, 1), 1);
    assert_int_equal(surprises, 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ends[0]);
    expect_text(inspect(g, fence_lease_id(a)), "state", "held");
    EXPECT(FENCE_OK, fence_release(a, &failure));
}

static atomic_int handled;

static void handle(int number)
{
    (void)number;
    handled++;
}

static void signals_are_the_programs(void **state)
{
    (void)state;
    sigset_t ours;
    sigset_t before;
    sigset_t pending;
    struct loss *loss = loss_new();
    struct fence_lease *a = keep(c, "signals", TTL_MS, loss);
    struct sigaction count = {.sa_handler = handle};
    struct sigaction old;
    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR1);
    sigaction(SIGUSR1, &count, &old);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    kill(getpid(), SIGUSR1);
    expect_kept(a, loss, TTL_MS); /* through renewals */
    sigpending(&pending);
    assert_int_equal(handled, 0);
    assert_true(sigismember(&pending, SIGUSR1));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(handled, 1);
    sigaction(SIGUSR1, &old, NULL);
    EXPECT(FENCE_OK, fence_release(a, &failure));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lease_lives_for_five_times_its_ttl),
        TEST(the_watchdog_goes_on_with_the_ttl_of_a_renewal),
        TEST(a_redis_that_loses_its_data_does_not_lose_the_lease),
        TEST(a_lease_that_is_taken_away_is_lost),
        TEST(a_lease_that_is_replaced_is_lost),
        TEST(a_lease_that_another_releases_is_lost),
        TEST(a_gateway_that_dies_costs_the_lease_at_its_deadline),
        TEST(a_gateway_that_stands_still_costs_the_lease_for_ever),
        TEST(a_lease_is_lost_when_it_was_held_for_long_enough),
        TEST(the_callback_may_use_the_library),
        TEST(no_loss_is_told_after_the_release),
        TEST(a_lease_that_is_freed_without_release_runs_out),
        TEST(a_child_of_fork_has_no_lease),
        TEST(signals_are_the_programs),
    };
    return cmocka_run_group_tests(tests, start_servers, NULL);
}
