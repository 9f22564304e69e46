/* test_waits.c - fence_acquire() that waits: in one request, in steps, cancelled, through failures.
 *
 * One gateway for all cases; each uses resources of its own. What a gateway does only when it is in
 * trouble comes from a stub. */
#include "tests/support/client.h"
#include "tests/support/limits.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* Waits without end, in steps (0: of the server's maximum), and stands in the queue. */
static struct asking *stand_in_line(const char *name, int64_t step_ms)
{
    long long before = number_at(resource(g, name), "waiters");
    struct asking *asking = ask_meanwhile(c, &(struct fence_terms){.resource = name,
                                                                   .ttl_ms = LONG_TTL_MS,
                                                                   .wait_ms = FENCE_WAIT_FOREVER,
                                                                   .wait_step_ms = step_ms});
    await_waiters(g, name, before + 1);
    return asking;
}

static bool holders_are(const char *name, size_t count)
{
    return count_at(expect_status(resource(g, name), 200), "holders") == count;
}

/* ---- One request ----------------------------------------------------------------------------- */

static void a_wait_ends_with_the_release(void **state)
{
    (void)state;
    struct lease a = acquire(g, "handed over", LONG_TTL_MS);
    struct asking *first = stand_in_line("handed over", 0);
    struct asking *second = stand_in_line("handed over", 0);
    sleep_ms(50);
    release(g, a.id);
    struct fence_lease *b;
    EXPECT(FENCE_OK, asking_end(first, &b));
    assert_int_equal(fence_lease_token(b), a.token + 1);
    assert_true(fence_lease_waited_ms(b) >= 50);
    assert_false(asking_is_done(second));
    EXPECT(FENCE_OK, fence_release(b, &failure));
    EXPECT(FENCE_OK, asking_end(second, &b));
    assert_int_equal(fence_lease_token(b), a.token + 2);
}

static void a_wait_ends_when_its_time_has_passed(void **state)
{
    (void)state;
    struct fence_lease *b;
    acquire(g, "in vain", LONG_TTL_MS);
    const int64_t steps_ms[] = {0, 1, 70, 150, 600000};
    for (size_t i = 0; i < sizeof steps_ms / sizeof *steps_ms; i++) {
        struct fence_terms terms = {
            .resource = "in vain", .wait_ms = 300, .wait_step_ms = steps_ms[i]};
        long long start_ms = now_ms();
        EXPECT_CODE(FENCE_HELD, "lease_held", fence_acquire(c, &terms, &b, &failure));
        assert_true(now_ms() - start_ms >= 299);
        assert_null(b);
        await_waiters(g, "in vain", 0);
    }
}

static void the_ttl_starts_at_the_grant(void **state)
{
    (void)state;
    struct lease a = acquire(g, "late grant", LONG_TTL_MS);
    const int ttl_ms = slow_ms(2000);
    struct asking *asking = ask_meanwhile(c, &(struct fence_terms){.resource = "late grant",
                                                                   .ttl_ms = ttl_ms,
                                                                   .wait_ms = LONG_WAIT_MS,
                                                                   .no_watchdog = true});
    await_waiters(g, "late grant", 1);
    sleep_ms(ttl_ms + 100);
    release(g, a.id);
    struct fence_lease *b;
    EXPECT(FENCE_OK, asking_end(asking, &b));
    long long servers_ms = number_at(inspect(g, fence_lease_id(b)), "expires_in_ms");
    assert_in_range(fence_left_ms(b), 1, servers_ms);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void a_long_wait_is_made_of_short_requests(void **state)
{
    (void)state;
    struct lease a = acquire(g, "steps", LONG_TTL_MS);
    struct asking *asking = stand_in_line("steps", 100);
    for (int i = 0; i < 20; i++) {
        sleep_ms(50);
        assert_false(asking_is_done(asking));
    }
    release(g, a.id);
    struct fence_lease *b;
    EXPECT(FENCE_OK, asking_end(asking, &b));
    assert_true(fence_lease_waited_ms(b) >= 1000);
    await_waiters(g, "steps", 0);
    assert_true(EVENTUALLY(holders_are("steps", 1), 10000));
    expect_text(inspect(g, fence_lease_id(b)), "state", "held");
}

static void what_is_granted_twice_is_given_back(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        const char *name = test_printf("twice %d", round);
        struct lease holders[2];
        take(g, name, 2, 2, holders);
        struct asking *asking = stand_in_line(name, 500);
        await_waiters(g, name, 2); /* its second request has come */
        set_limit(g, name, 4);     /* lets both in */
        struct fence_lease *b;
        EXPECT(FENCE_OK, asking_end(asking, &b));
        await_waiters(g, name, 0);
        assert_true(EVENTUALLY(holders_are(name, 3), 10000));
        expect_text(inspect(g, fence_lease_id(b)), "state", "held");
    }
}

static void one_place_in_the_queue_is_enough(void **state)
{
    (void)state;
    struct gateway *narrow = gateway_start(NULL, LIST("--max-waiters-per-resource", "1"));
    struct fence_client *other = client_of(narrow->url);
    struct lease a = acquire(narrow, "r", LONG_TTL_MS);
    struct fence_terms terms = {
        .resource = "r", .wait_ms = FENCE_WAIT_FOREVER, .wait_step_ms = 200};
    struct asking *asking = ask_meanwhile(other, &terms);
    await_waiters(narrow, "r", 1);
    sleep_ms(1000);
    assert_false(asking_is_done(asking));
    release(narrow, a.id);
    EXPECT(FENCE_OK, asking_end(asking, NULL));
}

/* It is tried again until the time is over, and the last try does not wait any more. */
static void no_place_in_the_queue_is_told(void **state)
{
    (void)state;
    struct gateway *narrow = gateway_start(NULL, LIST("--max-waiters-per-resource", "1"));
    struct fence_lease *lease;
    acquire(narrow, "r", LONG_TTL_MS);
    wait_for(narrow, "r", "");
    enum fence_status status = fence_acquire(client_of(narrow->url),
                                             &(struct fence_terms){.resource = "r", .wait_ms = 200},
                                             &lease, &failure);
    if (status != FENCE_HELD)
        EXPECT_CODE(FENCE_BUSY, "too_many_waiters", status);
    assert_null(lease);
}

/* ---- Cancelled ------------------------------------------------------------------------------- */

/* Cancels it, which takes no time: a job is being ended, and somebody waits for that. */
static enum fence_status cancelled_soon(struct asking *asking, struct fence_lease **lease)
{
    long long start_ms = now_ms();
    asking_cancel(asking);
    enum fence_status status = asking_end(asking, lease);
    assert_true(now_ms() - start_ms < slow_ms(1000));
    return status;
}

static void a_wait_can_be_cancelled(void **state)
{
    (void)state;
    struct lease a = acquire(g, "cancelled", LONG_TTL_MS);
    const int64_t steps_ms[] = {0, 100};
    for (size_t i = 0; i < 2; i++) {
        struct asking *asking = stand_in_line("cancelled", steps_ms[i]);
        sleep_ms(20 + (int)steps_ms[i]);
        struct fence_lease *b;
        EXPECT(FENCE_CANCELLED, cancelled_soon(asking, &b));
        assert_null(b);
        await_waiters(g, "cancelled", 0); /* it has left the queue */
    }
    release(g, a.id);
    assert_true(EVENTUALLY(holders_are("cancelled", 0), 10000));
}

static void a_wait_that_was_cancelled_before_does_not_begin(void **state)
{
    (void)state;
    acquire(g, "no wait", LONG_TTL_MS);
    int fd = eventfd(1, EFD_CLOEXEC);
    struct fence_lease *b;
    struct fence_terms terms = {
        .resource = "no wait", .wait_ms = FENCE_WAIT_FOREVER, .cancel_fd = fd};
    long long start_ms = now_ms();
    EXPECT(FENCE_CANCELLED, fence_acquire(c, &terms, &b, &failure));
    assert_true(now_ms() - start_ms < slow_ms(1000));
    assert_null(b);
    await_waiters(g, "no wait", 0);
    eventfd_t value = 0;
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, 0), 1); /* it is not read */
    assert_int_equal(eventfd_read(fd, &value), 0);
    assert_int_equal(value, 1);
    close(fd);
}

static void a_server_that_is_silent_does_not_delay_the_cancelling(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client =
        client_with(&(struct fence_options){.url = stub_url(stub), .timeout_ms = 600000});
    stub_play(stub, ACQUIRES, STEPS({.end = STUB_HANG}));
    const int64_t waits_ms[] = {0, 60000, FENCE_WAIT_FOREVER};
    for (int i = 0; i < 3; i++) {
        struct asking *asking =
            ask_meanwhile(client, &(struct fence_terms){.resource = "r", .wait_ms = waits_ms[i]});
        stub_await(stub, ACQUIRES, i + 1);
        EXPECT(FENCE_CANCELLED, cancelled_soon(asking, NULL));
    }
}

/* It is granted and cancelled at about the same time. Whatever wins, nothing is held that nobody
 * knows of, not even until its TTL has passed. */
static void a_grant_that_meets_the_cancelling_is_not_lost(void **state)
{
    (void)state;
    int granted = 0;
    unsigned seed = 6;
    for (int round = 0; round < 100; round++) {
        const char *name = test_printf("meets %d", round % 10);
        struct lease a = acquire_within(g, name, LONG_TTL_MS, 10000);
        struct fence_terms terms = {
            .resource = name, .ttl_ms = LONG_TTL_MS, .wait_ms = LONG_WAIT_MS};
        struct asking *asking = ask_meanwhile(c, &terms);
        await_waiters(g, name, 1);
        release(g, a.id);
        usleep((useconds_t)(rand_r(&seed) % 1500));
        asking_cancel(asking);
        struct fence_lease *b;
        enum fence_status status = asking_end(asking, &b);
        if (status != FENCE_CANCELLED) {
            EXPECT(FENCE_OK, status);
            EXPECT(FENCE_OK, fence_release(b, &failure));
            granted++;
        }
        assert_true(status == FENCE_OK || !b);
        assert_true(EVENTUALLY(holders_are(name, 0), 10000));
    }
    print_message("granted %d times of 100\n", granted);
}

/* ---- Failures -------------------------------------------------------------------------------- */

static void a_wait_outlasts_a_server_that_fails(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    stub_serve(stub, 30000);
    stub_play(
        stub, ACQUIRES,
        STEPS({.delay_ms = 300, .end = STUB_CLOSE}, {.delay_ms = 100, .end = STUB_RESET},
              {.delay_ms = 100, .text = stub_problem(503, "draining")},
              {.text = "HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{", .end = STUB_CLOSE},
              {.text = stub_problem(503, "redis_unavailable")}, {.text = stub_lease(201, 30000)}));
    struct fence_lease *lease = take_lease(client_of(stub_url(stub)), &(struct fence_terms){
                                                                          .resource = "r",
                                                                          .wait_ms = LONG_WAIT_MS,
                                                                      });
    assert_int_equal(stub_count(stub, ACQUIRES), 6);
    EXPECT(FENCE_OK, fence_release(lease, &failure));
}

static void who_does_not_wait_is_told_at_once(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client = client_of(stub_url(stub));
    struct fence_lease *lease;
    struct fence_terms terms = {.resource = "r"};
    stub_play(stub, ACQUIRES,
              STEPS({.text = stub_problem(503, "redis_unavailable")}, {.end = STUB_CLOSE},
                    {.end = STUB_RESET}));
    EXPECT_CODE(FENCE_BUSY, "redis_unavailable", fence_acquire(client, &terms, &lease, &failure));
    assert_int_equal(stub_count(stub, ACQUIRES), 1);
    EXPECT(FENCE_NO_ANSWER, fence_acquire(client, &terms, &lease, &failure));
    EXPECT(FENCE_NO_ANSWER, fence_acquire(client, &terms, &lease, &failure));
    assert_null(lease);
    stub_stop(stub);
    EXPECT(FENCE_UNREACHABLE, fence_acquire(client, &terms, &lease, &failure));
    assert_null(lease);
    terms.wait_ms = 300;
    EXPECT(FENCE_UNREACHABLE, fence_acquire(client, &terms, &lease, &failure));
    assert_null(lease);
}

static void a_server_that_never_comes_back_ends_the_wait(void **state)
{
    (void)state;
    struct stub *stub = stub_start();
    struct fence_client *client = client_of(stub_url(stub));
    stub_play(stub, ACQUIRES, STEPS({.end = STUB_HANG}));
    struct asking *asking = ask_meanwhile(
        client, &(struct fence_terms){.resource = "r", .wait_ms = 1000, .wait_step_ms = 300});
    stub_await(stub, ACQUIRES, 1);
    stub_stop(stub);
    struct fence_lease *lease;
    enum fence_status status = asking_end(asking, &lease);
    assert_true(status == FENCE_UNREACHABLE || status == FENCE_NO_ANSWER || status == FENCE_HELD);
    EXPECT(status, status);
    assert_null(lease);
}

/* A port whose queue of connections is full: to connect is to wait for nothing. */
static const char *url_of_a_deaf_host(int sockets[], int count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    for (int i = 0; i < count; i++)
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(sockets[0], (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(sockets[0], 0), 0);
    getsockname(sockets[0], (struct sockaddr *)&address, &bytes);
    for (int i = 1; i < count; i++)
        connect(sockets[i], (struct sockaddr *)&address, bytes);
    return test_printf("http://127.0.0.1:%d", ntohs(address.sin_port));
}

static void the_time_for_connecting_is_no_part_of_the_wait(void **state)
{
    (void)state;
    int sockets[6];
    const char *url = url_of_a_deaf_host(sockets, 6);
    struct fence_client *client =
        client_with(&(struct fence_options){.url = url, .timeout_ms = 300});
    struct fence_lease *lease;
    long long begun_ms = boot_now_ms();
    EXPECT(FENCE_UNREACHABLE,
           fence_acquire(client,
                         &(struct fence_terms){.resource = "r", .wait_ms = FENCE_WAIT_FOREVER},
                         &lease, &failure));
    assert_in_range(boot_now_ms() - begun_ms, 1, 30000);
    for (int i = 0; i < 6; i++)
        close(sockets[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_time_for_connecting_is_no_part_of_the_wait),
        TEST(a_wait_ends_with_the_release),
        TEST(a_wait_ends_when_its_time_has_passed),
        TEST(the_ttl_starts_at_the_grant),
        TEST(a_long_wait_is_made_of_short_requests),
        TEST(what_is_granted_twice_is_given_back),
        TEST(one_place_in_the_queue_is_enough),
        TEST(no_place_in_the_queue_is_told),
        TEST(a_wait_can_be_cancelled),
        TEST(a_wait_that_was_cancelled_before_does_not_begin),
        TEST(a_server_that_is_silent_does_not_delay_the_cancelling),
        TEST(a_grant_that_meets_the_cancelling_is_not_lost),
        TEST(a_wait_outlasts_a_server_that_fails),
        TEST(who_does_not_wait_is_told_at_once),
        TEST(a_server_that_never_comes_back_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, start_servers, NULL);
}
