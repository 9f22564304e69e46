/* test_arguments.c - what libfence is called with: arguments that cannot be, URLs, and what it
 * takes from its surroundings, which is nothing.
 *
 * The server is a stub, so that a test can say: nothing was sent. */
#include "tests/support/client.h"

static struct stub *stub;
static struct fence_client *c;

static int start_stub(void **state)
{
    (void)state;
    stub = stub_start();
    stub_serve(stub, 30000);
    c = client_of(stub_url(stub));
    return 0;
}

#define STUB_TEST(function) cmocka_unit_test_setup_teardown(function, start_stub, cleanup_test)

static const char *letters(int count)
{
    char *text = test_alloc((size_t)count + 1);
    memset(text, 'a', (size_t)count);
    return text;
}

/* ---- Terms ----------------------------------------------------------------------------------- */

static void terms_that_cannot_be_are_not_sent(void **state)
{
    (void)state;
    const struct fence_terms wrong[] = {
        {.resource = NULL},
        {.resource = ""},
        {.resource = letters(201)},
        {.resource = "r", .owner = letters(129)},
        {.resource = "r", .ttl_ms = 49},
        {.resource = "r", .ttl_ms = 1},
        {.resource = "r", .ttl_ms = -1},
        {.resource = "r", .ttl_ms = FENCE_TTL_MOST_MS + 1},
        {.resource = "r", .ttl_ms = INT64_MAX},
        {.resource = "r", .ttl_ms = INT64_MIN},
        {.resource = "r", .limit = -1},
        {.resource = "r", .limit = 1001},
        {.resource = "r", .wait_ms = -2},
        {.resource = "r", .wait_ms = INT64_MIN},
        {.resource = "r", .max_hold_ms = -1},
        {.resource = "r", .wait_step_ms = -1},
        {.resource = "r", .wait_step_ms = FENCE_WAIT_STEP_MS + 1},
        {.resource = "\xff"},
        {.resource = "a\xc3"},
        {.resource = "r", .owner = "\xc0\x80"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct fence_lease *lease = (struct fence_lease *)&lease;
        enum fence_status status = fence_acquire(c, &wrong[i], &lease, &failure);
        if (status != FENCE_INVALID)
            fail_msg("terms %zu: %s", i, status_name(status));
        EXPECT(FENCE_INVALID, status);
        assert_int_equal(failure.http_status, 0);
        assert_null(lease);
    }
    assert_int_equal(stub_count(stub, "*"), 0);
    assert_int_equal(stub_connections(stub), 0);
}

static void the_extremes_are_sent(void **state)
{
    (void)state;
    const struct fence_terms right[] = {
        {.resource = "r", .owner = letters(128)},
        {.resource = "r", .ttl_ms = FENCE_TTL_MOST_MS, .limit = 1000},
        {.resource = "r", .max_hold_ms = INT64_MAX},
        {.resource = "r", .wait_ms = INT64_MAX, .wait_step_ms = FENCE_WAIT_STEP_MS},
        {.resource = "r", .wait_ms = FENCE_WAIT_FOREVER, .wait_step_ms = 1},
    };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct fence_lease *lease = take_lease(c, &right[i]);
        assert_true(fence_still_held(lease));
        EXPECT(FENCE_OK, fence_release(lease, &failure));
    }
}

static void a_request_says_what_was_asked_for(void **state)
{
    (void)state;
    take_lease(c, &(struct fence_terms){.resource = "r",
                                        .owner = "worker \"1\"",
                                        .ttl_ms = 45000,
                                        .wait_ms = 1234567,
                                        .limit = 3});
    const char *body = strstr(stub_last(stub, ACQUIRES), "\r\n\r\n") + 4;
    json_t *json = json_loads(body, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "resource")), "r");
    assert_string_equal(json_string_value(json_object_get(json, "owner")), "worker \"1\"");
    assert_int_equal(json_integer_value(json_object_get(json, "ttl_ms")), 45000);
    assert_int_equal(json_integer_value(json_object_get(json, "limit")), 3);
    assert_int_equal(json_integer_value(json_object_get(json, "wait_ms")), FENCE_WAIT_STEP_MS);
    assert_int_equal(json_object_size(json), 5);
    json_decref(json);
}

/* ---- Records --------------------------------------------------------------------------------- */

static void records_that_cannot_be_are_not_sent(void **state)
{
    (void)state;
    const struct fence_record wrong[] = {
        {.resource = NULL, .key = "k"},
        {.resource = "r", .key = NULL},
        {.resource = "", .key = "k"},
        {.resource = "r", .key = ""},
        {.resource = letters(201), .key = "k"},
        {.resource = "r", .key = letters(201)},
        {.resource = "r", .key = "k", .token = -1},
        {.resource = "r", .key = "k", .token = INT64_C(1) << 53},
        {.resource = "r", .key = "k", .token = INT64_MAX},
        {.resource = "r", .key = "k", .if_version = -2},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct fence_value value;
        bool only_writes = wrong[i].if_version != 0; /* a read does not look at it */
        enum fence_status status = fence_put(c, &wrong[i], "v", 1, NULL, &failure);
        if (status != FENCE_INVALID)
            fail_msg("record %zu: %s", i, status_name(status));
        EXPECT(FENCE_INVALID, status);
        EXPECT(FENCE_INVALID, fence_delete(c, &wrong[i], &failure));
        if (!only_writes)
            EXPECT(FENCE_INVALID, fence_get(c, &wrong[i], &value, &failure));
    }
    assert_int_equal(stub_count(stub, "*"), 0);
}

static void a_write_says_by_what_right(void **state)
{
    (void)state;
    struct fence_record record = {
        .resource = "r", .key = "k", .token = 7, .lease_id = STUB_LEASE_ID, .if_version = 3};
    stub_play(stub, "PUT *", STEPS({.text = stub_answer(200, "ETag: \"v4\"\r\n", "{}")}));
    EXPECT(FENCE_OK, fence_put(c, &record, "value", 5, NULL, &failure));
    const char *request = stub_last(stub, "PUT /store/r/k");
    assert_non_null(strcasestr(request, "\r\nX-Fencing-Token: 7\r\n"));
    assert_non_null(strcasestr(request, "\r\nX-Lease-Id: " STUB_LEASE_ID "\r\n"));
    assert_non_null(strcasestr(request, "\r\nIf-Match: \"v3\"\r\n"));
    assert_null(strcasestr(request, "\r\nIf-None-Match:"));
    assert_non_null(strstr(request, "\r\n\r\nvalue"));
    record = (struct fence_record){.resource = "r", .key = "k", .if_version = FENCE_ABSENT};
    EXPECT(FENCE_OK, fence_put(c, &record, "value", 5, NULL, &failure));
    request = stub_last(stub, "PUT /store/r/k");
    assert_non_null(strcasestr(request, "\r\nIf-None-Match: *\r\n"));
    assert_null(strcasestr(request, "\r\nIf-Match:"));
    assert_null(strcasestr(request, "\r\nX-Fencing-Token:"));
    assert_null(strcasestr(request, "\r\nX-Lease-Id:"));
}

/* ---- Clients --------------------------------------------------------------------------------- */

static void a_client_needs_a_url_of_a_server(void **state)
{
    (void)state;
    const char *const wrong[] = {"",
                                 "nonsense",
                                 "127.0.0.1:8080",
                                 "ftp://127.0.0.1",
                                 "file:///etc/passwd",
                                 "http://",
                                 "http://127.0.0.1:99999",
                                 "http://127.0.0.1:port",
                                 "http://127.0.0.1:8080/?a=b",
                                 "http://127.0.0.1:8080/#a",
                                 "http://a b/",
                                 "http://127.0.0.1\r\nX: y"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct fence_client *client = (struct fence_client *)&client;
        enum fence_status status =
            fence_open(&client, &(struct fence_options){.url = wrong[i]}, &failure);
        if (status != FENCE_INVALID)
            fail_msg("\"%s\": %s", wrong[i], status_name(status));
        EXPECT(FENCE_INVALID, status);
        assert_null(client);
    }
    const int64_t timeouts_ms[] = {-1, INT64_MIN};
    for (size_t i = 0; i < sizeof timeouts_ms / sizeof *timeouts_ms; i++) {
        struct fence_client *client = (struct fence_client *)&client;
        struct fence_options options = {.timeout_ms = timeouts_ms[i]};
        EXPECT(FENCE_INVALID, fence_open(&client, &options, &failure));
        assert_null(client);
    }
}

static void a_client_that_is_opened_says_so(void **state)
{
    (void)state;
    const struct fence_options *const options[] = {
        NULL, &(struct fence_options){0}, &(struct fence_options){.url = "https://[::1]:8443/a/b/"},
        &(struct fence_options){.url = "HTTP://LOCALHOST", .timeout_ms = INT64_MAX}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct fence_client *client = NULL;
        failure.status = FENCE_SYSTEM;
        EXPECT(FENCE_OK, fence_open(&client, options[i], &failure));
        assert_non_null(client);
        fence_close(client);
    }
    fence_close(NULL);
    fence_lease_free(NULL);
    fence_value_free(NULL);
}

static void a_url_may_have_a_prefix(void **state)
{
    (void)state;
    const char *const ends[] = {"", "/", "/prefix", "/prefix/", "/a%20b/c"};
    const char *const paths[] = {"/leases", "/leases", "/prefix/leases", "/prefix/leases",
                                 "/a%20b/c/leases"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct fence_client *client = client_of(test_printf("%s%s", stub_url(stub), ends[i]));
        stub_play(stub, "POST *", STEPS({.text = stub_lease(201, 30000)}));
        int before = stub_count(stub, test_printf("POST %s", paths[i]));
        take_lease(client, &(struct fence_terms){.resource = "r"});
        assert_int_equal(stub_count(stub, test_printf("POST %s", paths[i])), before + 1);
    }
}

static void connections_are_used_again(void **state)
{
    (void)state;
    stub_play(stub, "PUT *", STEPS({.text = stub_answer(200, "ETag: \"v4\"\r\n", "{}")}));
    struct fence_record record = {.resource = "r", .key = "k", .token = 7};
    for (int i = 0; i < 50; i++)
        EXPECT(FENCE_OK, fence_put(c, &record, "v", 1, NULL, &failure));
    assert_int_equal(stub_count(stub, "PUT *"), 50);
    assert_int_equal(stub_connections(stub), 1);
}

static void the_environment_changes_nothing(void **state)
{
    (void)state;
    const char *const names[] = {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "FENCE_URL"};
    struct stub *other = stub_start();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        setenv(names[i], stub_url(other), 1);
    struct fence_client *client = client_of(stub_url(stub));
    take_lease(client, &(struct fence_terms){.resource = "r"});
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    assert_int_equal(stub_connections(other), 0);
    assert_int_equal(stub_count(stub, ACQUIRES), 1);
}

static void a_timeout_is_kept(void **state)
{
    (void)state;
    struct fence_client *hasty =
        client_with(&(struct fence_options){.url = stub_url(stub), .timeout_ms = slow_ms(200)});
    struct fence_record record = {.resource = "r", .key = "k", .token = 7};
    const struct stub_step steps[] = {
        {.end = STUB_HANG},
        {.text = "HTTP/1.1 200 OK\r\nX: a line that never ends ...................",
         .drip_ms = slow_ms(50)},
    };
    for (size_t i = 0; i < 2; i++) {
        stub_play(stub, "PUT *", &steps[i], 1);
        long long start_ms = now_ms();
        EXPECT(FENCE_NO_ANSWER, fence_put(hasty, &record, "v", 1, NULL, &failure));
        assert_in_range(now_ms() - start_ms, slow_ms(200) - 1, slow_ms(2000));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STUB_TEST(terms_that_cannot_be_are_not_sent),
        STUB_TEST(the_extremes_are_sent),
        STUB_TEST(a_request_says_what_was_asked_for),
        STUB_TEST(records_that_cannot_be_are_not_sent),
        STUB_TEST(a_write_says_by_what_right),
        STUB_TEST(a_client_needs_a_url_of_a_server),
        STUB_TEST(a_client_that_is_opened_says_so),
        STUB_TEST(a_url_may_have_a_prefix),
        STUB_TEST(connections_are_used_again),
        STUB_TEST(the_environment_changes_nothing),
        STUB_TEST(a_timeout_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
