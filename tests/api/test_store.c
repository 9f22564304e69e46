/* test_store.c - records: PUT, GET, HEAD, DELETE, list, conditions, fenced reads, lease ids, check.
 */
#include "tests/support/api.h"

static struct gateway *g;      /* as it comes */
static struct gateway *strict; /* --require-lease-id --max-body 1024 */

static int start_servers(void **state)
{
    (void)state;
    g = gateway_start(NULL, NULL);
    strict = gateway_start(NULL, LIST("--require-lease-id", "--max-body", "1024"));
    cleanup_keep();
    return 0;
}

static struct response *put_with(struct lease lease, const char *name, const char *key,
                                 const char *header, const char *value)
{
    return call(g, "PUT", store_path(name, key), LIST(token_header(lease.token), header), value);
}

/* ---- Put, get, delete -------------------------------------------------------------------------
 */

static void put_answers_the_version(void **state)
{
    (void)state;
    struct lease a = acquire(g, "put", LONG_TTL_MS);
    struct response *r = expect_status(put(g, "put", "k", a.token, "one"), 201);
    expect_header(r, "Content-Type", "application/json");
    expect_header(r, "ETag", "\"v1\"");
    expect_members(r, "", LIST("resource", "key", "version", "fencing_token"));
    expect_text(r, "resource", "put");
    expect_text(r, "key", "k");
    expect_number(r, "version", 1);
    expect_number(r, "fencing_token", a.token);

    r = expect_status(put(g, "put", "k", a.token, "two"), 200);
    expect_header(r, "ETag", "\"v2\"");
    expect_number(r, "version", 2);
    expect_number(expect_status(put(g, "put", "other", a.token, "one"), 201), "version", 1);
}

static void get_answers_the_bytes(void **state)
{
    (void)state;
    struct lease a = acquire(g, "get", LONG_TTL_MS);
    put_with(a, "get", "json", "Content-Type: application/json; charset=utf-8", "{\"a\": 1}");
    struct response *r = expect_status(fetch(g, "get", "json", 0), 200);
    expect_body(r, "{\"a\": 1}");
    expect_header(r, "Content-Type", "application/json; charset=utf-8");
    expect_header(r, "ETag", "\"v1\"");
    expect_header(r, "X-Written-With-Token", test_printf("%lld", a.token));

    put(g, "get", "plain", a.token, "text");
    expect_header(fetch(g, "get", "plain", 0), "Content-Type", "application/octet-stream");
    put(g, "get", "empty", a.token, "");
    expect_body(expect_status(fetch(g, "get", "empty", 0), 200), "");
}

static void values_are_any_bytes(void **state)
{
    (void)state;
    struct lease a = acquire(g, "bytes", LONG_TTL_MS);
    size_t count = 1048576; /* the largest by default */
    char *value = test_alloc(count);
    for (size_t i = 0; i < count; i++)
        value[i] = (char)(i * 7 % 251 ^ i >> 8);
    http_record(g->http, false);
    struct response *r = http_call(g->http, "PUT", store_path("bytes", "k"),
                                   LIST(token_header(a.token)), value, count);
    expect_status(r, 201);
    r = expect_status(fetch(g, "bytes", "k", 0), 200);
    http_record(g->http, true);
    assert_int_equal(r->body_bytes, count);
    assert_memory_equal(r->body, value, count);
}

static void head_is_get_without_the_body(void **state)
{
    (void)state;
    struct lease a = acquire(g, "head", LONG_TTL_MS);
    put_with(a, "head", "k", "Content-Type: text/plain", "value");
    struct response *r = call(g, "HEAD", "/store/head/k", NULL, NULL);
    expect_status(r, 200);
    expect_body(r, "");
    expect_header(r, "Content-Length", "5");
    expect_header(r, "Content-Type", "text/plain");
    expect_header(r, "ETag", "\"v1\"");
    expect_header(r, "X-Written-With-Token", "1");
    expect_status(call(g, "HEAD", "/store/head/none", NULL, NULL), 404);
    /* The connection is in step afterwards. */
    expect_body(fetch(g, "head", "k", 0), "value");
}

static void what_is_not_there_is_not_found(void **state)
{
    (void)state;
    struct lease a = acquire(g, "absent", LONG_TTL_MS);
    expect_problem(fetch(g, "absent", "k", 0), 404, "record_not_found");
    expect_problem(fetch(g, "absent resource", "k", 0), 404, "record_not_found");
    expect_problem(erase(g, "absent", "k", a.token), 404, "record_not_found");
    expect_problem(get(g, "/store/absent%20resource"), 404, "resource_not_found");
    assert_int_equal(count_at(expect_status(get(g, "/store/absent"), 200), "items"), 0);
}

static void versions_go_on_over_a_delete(void **state)
{
    (void)state;
    struct lease a = acquire(g, "delete", LONG_TTL_MS);
    put(g, "delete", "k", a.token, "one");
    struct response *r = expect_status(erase(g, "delete", "k", a.token), 204);
    expect_body(r, "");
    expect_problem(fetch(g, "delete", "k", 0), 404, "record_not_found");
    expect_problem(erase(g, "delete", "k", a.token), 404, "record_not_found");
    assert_int_equal(count_at(get(g, "/store/delete"), "items"), 0);

    /* v1 the put, v2 the delete. */
    r = expect_status(put(g, "delete", "k", a.token, "three"), 201);
    expect_number(r, "version", 3);
    expect_number(resource(g, "delete"), "highest_fencing_token", a.token);
}

static void a_write_needs_a_token(void **state)
{
    (void)state;
    struct lease a = acquire(g, "428", LONG_TTL_MS);
    put(g, "428", "k", a.token, "value");
    expect_problem(put(g, "428", "k", 0, "x"), 428, "fencing_token_required");
    expect_problem(erase(g, "428", "k", 0), 428, "fencing_token_required");
    expect_problem(check(g, "428", 0), 428, "fencing_token_required");
    expect_body(fetch(g, "428", "k", 0), "value");
}

/* ---- Conditions -------------------------------------------------------------------------------
 */

static void if_match_names_the_version(void **state)
{
    (void)state;
    struct lease a = acquire(g, "if-match", LONG_TTL_MS);
    expect_problem(put_with(a, "if-match", "k", "If-Match: \"v1\"", "x"), 412, "version_mismatch");
    expect_problem(put_with(a, "if-match", "k", "If-Match: *", "x"), 412, "version_mismatch");
    put(g, "if-match", "k", a.token, "one");
    expect_status(put_with(a, "if-match", "k", "If-Match: \"v1\"", "two"), 200);
    expect_problem(put_with(a, "if-match", "k", "If-Match: \"v1\"", "x"), 412, "version_mismatch");
    expect_problem(put_with(a, "if-match", "k", "If-Match: \"v3\"", "x"), 412, "version_mismatch");
    expect_status(put_with(a, "if-match", "k", "If-Match: *", "three"), 200);
    expect_body(fetch(g, "if-match", "k", 0), "three");

    const char *path = store_path("if-match", "k");
    const char *token = token_header(a.token);
    expect_problem(call(g, "DELETE", path, LIST(token, "If-Match: \"v2\""), NULL), 412,
                   "version_mismatch");
    expect_status(call(g, "DELETE", path, LIST(token, "If-Match: \"v3\""), NULL), 204);
}

static void if_none_match_star_creates_only(void **state)
{
    (void)state;
    struct lease a = acquire(g, "create", LONG_TTL_MS);
    expect_status(put_with(a, "create", "k", "If-None-Match: *", "one"), 201);
    expect_problem(put_with(a, "create", "k", "If-None-Match: *", "x"), 412, "version_mismatch");
    expect_body(fetch(g, "create", "k", 0), "one");
    erase(g, "create", "k", a.token);
    expect_status(put_with(a, "create", "k", "If-None-Match: *", "three"), 201);
}

static void malformed_conditions_are_refused(void **state)
{
    (void)state;
    struct lease a = acquire(g, "bad condition", LONG_TTL_MS);
    put(g, "bad condition", "k", a.token, "one");
    const char *const bad[] = {"If-Match: v1", "If-Match: \"v1", "If-Match: 1",
                               "If-None-Match: \"v1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_problem(put_with(a, "bad condition", "k", bad[i], "x"), 400, "bad_header");
    expect_problem(call(g, "PUT", store_path("bad condition", "k"),
                        LIST(token_header(a.token), "If-Match: \"v1\"", "If-Match: \"v1\""), "x"),
                   400, "bad_header");
    expect_body(fetch(g, "bad condition", "k", 0), "one");
}

static void a_known_version_is_not_sent_again(void **state)
{
    (void)state;
    struct lease a = acquire(g, "304", LONG_TTL_MS);
    put(g, "304", "k", a.token, "value");
    struct response *r =
        call(g, "GET", store_path("304", "k"), LIST("If-None-Match: \"v1\""), NULL);
    expect_status(r, 304);
    expect_body(r, "");
    expect_header(r, "ETag", "\"v1\"");
    expect_status(call(g, "HEAD", store_path("304", "k"), LIST("If-None-Match: \"v1\""), NULL),
                  304);
    r = call(g, "GET", store_path("304", "k"), LIST("If-None-Match: \"v2\""), NULL);
    expect_body(expect_status(r, 200), "value");
    put(g, "304", "k", a.token, "more");
    r = call(g, "GET", store_path("304", "k"), LIST("If-None-Match: \"v1\""), NULL);
    expect_body(expect_status(r, 200), "more");
}

/* ---- Fenced reads, lease ids, check -----------------------------------------------------------
 */

static void a_read_with_a_token_is_fenced(void **state)
{
    (void)state;
    struct lease a = acquire(g, "fenced read", SHORT_TTL_MS);
    put(g, "fenced read", "k", a.token, "value");
    expect_body(expect_status(fetch(g, "fenced read", "k", a.token), 200), "value");
    struct lease b = acquire_within(g, "fenced read", LONG_TTL_MS, 10000);

    expect_problem(fetch(g, "fenced read", "k", a.token), 412, "stale_fencing_token");
    expect_body(expect_status(fetch(g, "fenced read", "k", b.token), 200), "value");
    expect_problem(fetch(g, "fenced read", "k", b.token + 1), 412, "fencing_token_not_issued");
    /* The fence comes before 404 and 304. */
    expect_problem(fetch(g, "fenced read", "none", a.token), 412, "stale_fencing_token");
    expect_problem(fetch(g, "fenced read", "none", b.token), 404, "record_not_found");
    struct response *r = call(g, "GET", store_path("fenced read", "k"),
                              LIST(token_header(a.token), "If-None-Match: \"v1\""), NULL);
    expect_problem(r, 412, "stale_fencing_token");
}

static void a_lease_id_must_be_that_of_the_token(void **state)
{
    (void)state;
    struct lease a = acquire(g, "lease id", LONG_TTL_MS);
    struct lease other = acquire(g, "lease id 2", LONG_TTL_MS);
    const char *right = test_printf("X-Lease-Id: %s", a.id);
    expect_status(put_with(a, "lease id", "k", right, "one"), 201);
    const char *const wrong[] = {test_printf("X-Lease-Id: %s", other.id), "X-Lease-Id: x",
                                 test_printf("X-Lease-Id: %.39s", a.id),
                                 test_printf("X-Lease-Id: %sA", a.id)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_problem(put_with(a, "lease id", "k", wrong[i], "x"), 412, "lease_mismatch");
    expect_problem(
        call(g, "PUT", store_path("lease id", "k"), LIST(token_header(a.token), right, right), "x"),
        400, "bad_header");
    expect_body(fetch(g, "lease id", "k", 0), "one");
}

static void a_lease_id_can_be_made_mandatory(void **state)
{
    (void)state;
    struct lease a = acquire(strict, "strict", LONG_TTL_MS);
    expect_problem(put(strict, "strict", "k", a.token, "x"), 428, "lease_id_required");
    expect_problem(erase(strict, "strict", "k", a.token), 428, "lease_id_required");
    /* Without a token, too, the token is what is missing. */
    expect_problem(put(strict, "strict", "k", 0, "x"), 428, "fencing_token_required");
    const char *const *both = LIST(token_header(a.token), test_printf("X-Lease-Id: %s", a.id));
    expect_status(call(strict, "PUT", store_path("strict", "k"), both, "one"), 201);
    expect_body(expect_status(fetch(strict, "strict", "k", 0), 200), "one");
    expect_status(call(strict, "DELETE", store_path("strict", "k"), both, NULL), 204);
}

static void check_tells_whether_a_token_may_write(void **state)
{
    (void)state;
    struct lease a = acquire(g, "check", SHORT_TTL_MS);
    struct response *r = expect_status(check(g, "check", a.token), 200);
    expect_members(r, "", LIST("current", "fencing_token"));
    expect_true(r, "current");
    expect_number(r, "fencing_token", a.token);

    /* Expired, but nobody has replaced it. */
    await_expiry(g, a.id);
    expect_status(check(g, "check", a.token), 200);
    struct lease b = acquire(g, "check", LONG_TTL_MS);
    expect_problem(check(g, "check", a.token), 412, "stale_fencing_token");
    expect_status(check(g, "check", b.token), 200);
    expect_problem(check(g, "check", b.token + 1), 412, "fencing_token_not_issued");
    expect_problem(check(g, "check nothing", 1), 412, "fencing_token_not_issued");
}

/* ---- List and limits --------------------------------------------------------------------------
 */

static void records_are_listed_by_key(void **state)
{
    (void)state;
    struct lease a = acquire(g, "list", LONG_TTL_MS);
    put(g, "list", "b/2", a.token, "22");
    put(g, "list", "a", a.token, "1");
    put(g, "list", "b/1", a.token, "");
    put(g, "list", "gone", a.token, "x");
    erase(g, "list", "gone", a.token);
    put_with(a, "list", "a", "Content-Type: text/plain", "12345");

    struct response *r = expect_status(get(g, "/store/list"), 200);
    expect_members(r, "", LIST("items", "next_cursor"));
    expect_null(r, "next_cursor");
    assert_int_equal(count_at(r, "items"), 3);
    expect_members(r, "items.0",
                   LIST("key", "version", "fencing_token", "bytes", "content_type", "updated_at"));
    expect_text(r, "items.0.key", "a");
    expect_number(r, "items.0.version", 2);
    expect_number(r, "items.0.fencing_token", a.token);
    expect_number(r, "items.0.bytes", 5);
    expect_text(r, "items.0.content_type", "text/plain");
    assert_true(time_of(text_at(r, "items.0.updated_at")) > 0);
    expect_text(r, "items.1.key", "b/1");
    expect_number(r, "items.1.bytes", 0);
    expect_text(r, "items.2.key", "b/2");

    r = expect_status(get(g, "/store/list?prefix=b%2F"), 200);
    assert_int_equal(count_at(r, "items"), 2);
    r = expect_status(get(g, "/store/list?prefix=b%2F&limit=1"), 200);
    expect_text(r, "items.0.key", "b/1");
    r = get(g, test_printf("/store/list?prefix=b%%2F&limit=1&cursor=%s",
                           encoded(text_at(r, "next_cursor"))));
    expect_text(expect_status(r, 200), "items.0.key", "b/2");
    expect_null(r, "next_cursor");
    r = expect_status(get(g, "/store/list?prefix=zzz"), 200);
    assert_int_equal(count_at(r, "items"), 0);
}

static void a_prefix_holds_no_wildcards(void **state)
{
    (void)state;
    struct lease a = acquire(g, "wildcards", LONG_TTL_MS);
    put(g, "wildcards", "abc", a.token, "1");
    const char *const prefixes[] = {"%25", "_", "*", "?", "a%25", "A", "%5Ba-z%5D"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        struct response *r = get(g, test_printf("/store/wildcards?prefix=%s", prefixes[i]));
        assert_int_equal(count_at(expect_status(r, 200), "items"), 0);
    }
}

static void a_body_has_a_greatest_size(void **state)
{
    (void)state;
    struct lease a = acquire(strict, "large", LONG_TTL_MS);
    const char *const *both = LIST(token_header(a.token), test_printf("X-Lease-Id: %s", a.id));
    const char *fits = test_printf("%01024d", 1);
    const char *over = test_printf("%01025d", 1);
    expect_status(call(strict, "PUT", store_path("large", "k"), both, fits), 201);
    expect_problem(call(strict, "PUT", store_path("large", "k"), both, over), 413,
                   "body_too_large");
    expect_problem(post(strict, "/leases", "%s", over), 413, "body_too_large");
    expect_number(get(strict, "/store/large"), "items.0.version", 1);
}

static void a_chunked_body_has_it_too(void **state)
{
    (void)state;
    struct lease a = acquire(strict, "chunked", LONG_TTL_MS);
    const char *head = test_printf("PUT /store/chunked/k HTTP/1.1\r\nHost: x\r\n%s\r\n"
                                   "X-Lease-Id: %s\r\nTransfer-Encoding: chunked\r\n\r\n",
                                   token_header(a.token), a.id);
    const char *small = test_printf("%s5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", head);
    http_send_bytes(strict->http, small, strlen(small));
    expect_status(http_receive(strict->http, "PUT"), 201);
    expect_body(fetch(strict, "chunked", "k", 0), "hello world");

    const char *large = test_printf("%s401\r\n%01025d\r\n0\r\n\r\n", head, 1);
    http_send_bytes(strict->http, large, strlen(large));
    expect_problem(http_receive(strict->http, "PUT"), 413, "body_too_large");
    expect_body(fetch(strict, "chunked", "k", 0), "hello world");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(put_answers_the_version),
        TEST(get_answers_the_bytes),
        TEST(values_are_any_bytes),
        TEST(head_is_get_without_the_body),
        TEST(what_is_not_there_is_not_found),
        TEST(versions_go_on_over_a_delete),
        TEST(a_write_needs_a_token),
        TEST(if_match_names_the_version),
        TEST(if_none_match_star_creates_only),
        TEST(malformed_conditions_are_refused),
        TEST(a_known_version_is_not_sent_again),
        TEST(a_read_with_a_token_is_fenced),
        TEST(a_lease_id_must_be_that_of_the_token),
        TEST(a_lease_id_can_be_made_mandatory),
        TEST(check_tells_whether_a_token_may_write),
        TEST(records_are_listed_by_key),
        TEST(a_prefix_holds_no_wildcards),
        TEST(a_body_has_a_greatest_size),
        TEST(a_chunked_body_has_it_too),
    };
    return cmocka_run_group_tests_name("store", tests, start_servers, NULL);
}
