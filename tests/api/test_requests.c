/* test_requests.c - what every request must look like, and what every answer looks like. */
#include "tests/support/api.h"

#include "gateway/errors.h"

static struct gateway *g;
static struct lease lease; /* of the resource "r", with the record "k" */

static int start_servers(void **state)
{
    (void)state;
    g = gateway_start(NULL, LIST("--max-body", "4096"));
    lease = acquire(g, "r", LONG_TTL_MS);
    expect_status(put(g, "r", "k", lease.token, "value"), 201);
    cleanup_keep();
    return 0;
}

/* Nothing has changed the one record. */
static void expect_untouched(void)
{
    struct response *r = expect_status(fetch(g, "r", "k", 0), 200);
    expect_body(r, "value");
    expect_header(r, "ETag", "\"v1\"");
}

/* Sends text as it is; the answer to it. */
static struct response *raw(const char *method, const char *text)
{
    http_close(g->http);
    http_send_bytes(g->http, text, strlen(text));
    return http_receive(g->http, method);
}

/* ---- Routes -----------------------------------------------------------------------------------
 */

static void unknown_paths_are_not_found(void **state)
{
    (void)state;
    const char *const paths[] = {"/nothing",  "/leases/a/b/c",     "/leases/a/nothing",
                                 "/store",    "/store/r/k/more",   "/resources/r/nothing",
                                 "/problems", "/problems/nothing", "/LEASES",
                                 "/livez/x",  "/v1/leases"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        expect_problem(get(g, paths[i]), 404, "not_found");
        /* /problems/{code} is a path that exists, whatever the code. */
        if (strcmp(paths[i], "/problems/nothing") != 0)
            expect_problem(call(g, "DELETE", paths[i], NULL, NULL), 404, "not_found");
    }
}

static void what_comes_later_is_not_there(void **state)
{
    (void)state;
    expect_problem(get(g, "/metrics"), 404, "not_found");
    expect_problem(get(g, "/events"), 404, "not_found");
    expect_problem(get(g, "/ledger"), 404, "not_found");
    expect_problem(get(g, "/"), 404, "not_found");
    expect_problem(post(g, "/transactions", "{}"), 404, "not_found");
}

static void other_methods_are_named(void **state)
{
    (void)state;
    struct {
        const char *method, *path, *allow[4];
    } cases[] = {
        {"PUT", "/leases", {"GET", "HEAD", "POST"}},
        {"DELETE", "/leases", {"GET", "HEAD", "POST"}},
        {"PATCH", "/leases/x", {"GET", "HEAD", "DELETE"}},
        {"GET", "/leases/x/renew", {"POST"}},
        {"POST", "/store/r/k", {"GET", "HEAD", "PUT", "DELETE"}},
        {"DELETE", "/store/r", {"GET", "HEAD"}},
        {"GET", "/resources/r/check", {"POST"}},
        {"POST", "/resources/r/history", {"GET", "HEAD"}},
        {"POST", "/livez", {"GET", "HEAD"}},
        {"FROB", "/version", {"GET", "HEAD"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct response *r = call(g, cases[i].method, cases[i].path, NULL, NULL);
        expect_problem(r, 405, "method_not_allowed");
        const char *allow = response_header(r, "Allow");
        assert_non_null(allow);
        for (int j = 0; j < 4 && cases[i].allow[j]; j++)
            if (!strstr(allow, cases[i].allow[j]))
                fail_msg("%s %s: Allow: %s", cases[i].method, cases[i].path, allow);
        assert_null(strstr(allow, cases[i].method));
    }
}

static void head_answers_as_get_does(void **state)
{
    (void)state;
    const char *const paths[] = {"/leases",
                                 "/resources",
                                 "/resources/r",
                                 "/resources/r/history",
                                 "/store/r",
                                 "/store/r/k",
                                 "/livez",
                                 "/version",
                                 "/openapi.yaml",
                                 "/problems/lease-held",
                                 "/nothing",
                                 "/store/r/none",
                                 test_printf("/leases/%s", lease.id)};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct response *full = get(g, paths[i]);
        struct response *head = call(g, "HEAD", paths[i], NULL, NULL);
        expect_status(head, full->status);
        expect_body(head, "");
        expect_header(head, "Content-Type", response_header(full, "Content-Type"));
        assert_non_null(response_header(head, "Content-Length"));
    }
}

static void the_small_pages_are_served(void **state)
{
    (void)state;
    expect_status(get(g, "/livez"), 200);
    struct response *r = expect_status(get(g, "/readyz"), 200);
    expect_members(r, "", LIST("status", "redis", "store"));
    expect_text(r, "status", "ok");
    r = expect_status(get(g, "/version"), 200);
    expect_header(r, "Content-Type", "application/json");
    r = expect_status(get(g, "/openapi.yaml"), 200);
    assert_non_null(strstr(r->body, "openapi: 3.1"));
    assert_non_null(strstr(r->body, "/leases"));
}

static void every_problem_has_a_page(void **state)
{
    (void)state;
    for (int status = FG_OK + 1; status < FG_STATUS_COUNT; status++) {
        const struct fg_error *error = fg_error((enum fg_status)status);
        struct response *r = expect_status(get(g, error->type), 200);
        assert_true(r->body_bytes > 0);
    }
    expect_problem(get(g, "/problems/nothing-of-ours"), 404, "not_found");
}

/* ---- Request ids ------------------------------------------------------------------------------
 */

static void a_request_id_is_echoed_or_made(void **state)
{
    (void)state;
    struct response *r = call(g, "GET", "/livez", LIST("X-Request-Id: a.B-3_x"), NULL);
    expect_header(r, "X-Request-Id", "a.B-3_x");
    const char *longest = test_printf("%0128d", 7);
    r = call(g, "GET", "/livez", LIST(test_printf("X-Request-Id: %s", longest)), NULL);
    expect_header(r, "X-Request-Id", longest);
    r = call(g, "GET", "/nothing", LIST("X-Request-Id: mine"), NULL);
    expect_header(r, "X-Request-Id", "mine");

    const char *const bad[] = {"with space", "semi;colon", "", "\xC3\xA4",
                               test_printf("%0129d", 7)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        r = call(g, "GET", "/livez", LIST(test_printf("X-Request-Id: %s", bad[i])), NULL);
        expect_status(r, 200);
        const char *made = response_header(r, "X-Request-Id");
        assert_true(*made);
        assert_string_not_equal(made, bad[i]);
    }
    const char *one = response_header(get(g, "/livez"), "X-Request-Id");
    assert_string_not_equal(one, response_header(get(g, "/livez"), "X-Request-Id"));
}

/* ---- Names ------------------------------------------------------------------------------------
 */

static void bad_names_in_a_path_are_refused(void **state)
{
    (void)state;
    const char *const names[] = {
        "a%00b", "%00", "%0A", "%1F", "%7F", "%FF", "%C3", "%C3%28", "%ED%A0%80",
        "%zz",   "%2",  "%",   "%4",  ".",   "..",  "%2E", "%2E%2E", test_printf("%0201d", 1)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *name = names[i];
        expect_problem(get(g, test_printf("/resources/%s", name)), 400, "invalid_name");
        expect_problem(get(g, test_printf("/store/%s/k", name)), 400, "invalid_name");
        expect_problem(get(g, test_printf("/store/r/%s", name)), 400, "invalid_name");
        expect_problem(
            call(g, "PUT", test_printf("/store/r/%s", name), LIST(token_header(lease.token)), "x"),
            400, "invalid_name");
    }
    assert_int_equal(count_at(get(g, "/store/r"), "items"), 1);
}

static void paths_are_decoded_once(void **state)
{
    (void)state;
    struct lease a = acquire(g, "orders/42", LONG_TTL_MS);
    struct response *r =
        call(g, "PUT", "/store/orders%2F42/total", LIST(token_header(a.token)), "1");
    expect_text(expect_status(r, 201), "resource", "orders/42");
    struct lease b = acquire(g, "orders%2F42", LONG_TTL_MS);
    r = call(g, "PUT", "/store/orders%252F42/a+b%20c", LIST(token_header(b.token)), "2");
    expect_text(expect_status(r, 201), "resource", "orders%2F42");
    expect_text(r, "key", "a+b c");
    expect_body(get(g, "/store/orders%2f42/total"), "1");
    expect_body(get(g, "/store/orders%2F42/tot%61l"), "1");
}

static void bad_names_in_a_body_are_refused(void **state)
{
    (void)state;
    const char *const names[] = {
        "", ".", "..", "\\u0001", "\\n", "\\u007f", test_printf("%0201d", 1)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_problem(post(g, "/leases", "{\"resource\":\"%s\"}", names[i]), 400, "invalid_name");
    /* Whether a NUL in a string is JSON at all is the parser's business. */
    expect_status(post(g, "/leases", "{\"resource\":\"a\\u0000b\"}"), 400);
    expect_status(post(g, "/leases", "{\"resource\":\"\xFF\"}"), 400);
}

/* ---- Headers ----------------------------------------------------------------------------------
 */

static struct response *put_with(const char *const *headers)
{
    return call(g, "PUT", "/store/r/k", headers, "x");
}

static void malformed_tokens_are_refused(void **state)
{
    (void)state;
    const char *const tokens[] = {"0",
                                  "01",
                                  "+1",
                                  "-1",
                                  "1.0",
                                  "1e0",
                                  "0x1",
                                  "abc",
                                  "",
                                  "1 2",
                                  "1,2",
                                  "1;",
                                  "\"1\"",
                                  "9007199254740992",
                                  "99999999999999999",
                                  "18446744073709551617",
                                  "\xEF\xBC\x91"};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const char *const *headers = LIST(test_printf("X-Fencing-Token: %s", tokens[i]));
        expect_problem(put_with(headers), 400, "fencing_token_malformed");
        expect_problem(call(g, "GET", "/store/r/k", headers, NULL), 400, "fencing_token_malformed");
        expect_problem(call(g, "POST", "/resources/r/check", headers, NULL), 400,
                       "fencing_token_malformed");
    }
    expect_problem(put_with(LIST("X-Fencing-Token: 9007199254740991")), 412,
                   "fencing_token_not_issued");
    expect_untouched();
}

static void a_token_comes_exactly_once(void **state)
{
    (void)state;
    const char *token = token_header(lease.token);
    expect_problem(put_with(LIST(token, token)), 400, "fencing_token_malformed");
    expect_problem(put_with(LIST(token, "x-fencing-token: 2")), 400, "fencing_token_malformed");
    expect_untouched();
}

/* A line that is folded, or has a space before its colon, names something else to one parser and
 * the token to another. Where the HTTP library refuses it by itself, the status is all that is
 * ours. */
static void a_token_line_is_unambiguous(void **state)
{
    (void)state;
    const char *const lines[] = {"X-Fencing-Token: 1\r\n 2",
                                 "X-Fencing-Token : 1",
                                 "X-Fencing-Token:\r\n\t1",
                                 "X-Fencing-Token\t: 1",
                                 " X-Fencing-Token: 1",
                                 "X-Fencing-Token 1",
                                 "X-Fencing-Token: 1\r\nX-Fencing-Token : 2"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct response *r = raw("PUT", test_printf("PUT /store/r/k HTTP/1.1\r\nHost: x\r\n%s\r\n"
                                                    "Content-Length: 1\r\n\r\nx",
                                                    lines[i]));
        if (r)
            expect_status(r, 400);
        http_close(g->http);
    }
    expect_untouched();
}

static void doubled_headers_are_refused(void **state)
{
    (void)state;
    const char *token = token_header(lease.token);
    const char *id = test_printf("X-Lease-Id: %s", lease.id);
    expect_problem(put_with(LIST(token, id, id)), 400, "bad_header");
    expect_problem(put_with(LIST(token, "If-Match: \"v1\"", "If-Match: \"v1\"")), 400,
                   "bad_header");
    expect_problem(put_with(LIST(token, "If-None-Match: *", "If-None-Match: *")), 400,
                   "bad_header");
    expect_problem(put_with(LIST(token, "Content-Type: a/b", "Content-Type: a/c")), 400,
                   "bad_header");
    expect_untouched();
}

static void an_idempotency_key_is_not_ignored(void **state)
{
    (void)state;
    const char *key = "Idempotency-Key: abc";
    expect_problem(call(g, "POST", "/leases", LIST(key), "{\"resource\":\"idem\"}"), 400,
                   "bad_header");
    expect_problem(put_with(LIST(token_header(lease.token), key)), 400, "bad_header");
    expect_problem(resource(g, "idem"), 404, "resource_not_found");
    expect_untouched();
}

static void framing_that_can_be_read_twice_is_refused(void **state)
{
    (void)state;
    const char *const lines[] = {"Content-Length: 1\r\nTransfer-Encoding: chunked",
                                 "Content-Length: 1\r\nContent-Length: 2", "Content-Length: +1",
                                 "Content-Length: -1", "Content-Length: 1x"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct response *r =
            raw("PUT", test_printf("PUT /store/r/k HTTP/1.1\r\nHost: x\r\n%s\r\n%s\r\n\r\n"
                                   "1\r\nx\r\n0\r\n\r\n",
                                   token_header(lease.token), lines[i]));
        if (r && (r->status < 400 || r->status >= 500))
            fail_msg("%s: %d", lines[i], r->status);
        http_close(g->http);
    }
    expect_untouched();
}

/* ---- Bodies and queries -----------------------------------------------------------------------
 */

static void a_body_is_strict_json(void **state)
{
    (void)state;
    const char *const bodies[] = {"{",
                                  "nonsense",
                                  "{\"resource\":\"j\"} x",
                                  "{'resource':'j'}",
                                  "{\"resource\":\"j\",}",
                                  "{\"resource\":\"j\",\"resource\":\"k\"}",
                                  "{\"resource\":\"j\"}{}",
                                  "{\"resource\":\"\xFF\"}",
                                  "{\"resource\":\"j\",\"ttl_ms\":NaN}",
                                  " "};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        expect_problem(post(g, "/leases", "%s", bodies[i]), 400, "invalid_json");

    char *deep = test_alloc(4000);
    memset(deep, '[', 3999);
    expect_status(post(g, "/leases", "%s", deep), 400);
    expect_problem(resource(g, "j"), 404, "resource_not_found");
}

static void a_body_is_an_object_of_known_members(void **state)
{
    (void)state;
    expect_problem(post(g, "/leases", "[]"), 400, "invalid_request");
    expect_status(post(g, "/leases", "\"r\""), 400);
    expect_status(post(g, "/leases", "null"), 400);

    struct response *r = expect_problem(post(g, "/leases", "%s", ""), 400, "invalid_request");
    expect_text(r, "errors.0.pointer", "/resource");
    expect_members(r, "errors.0", LIST("pointer", "detail"));
    r = expect_problem(post(g, "/leases", "{\"resource\":5}"), 400, "invalid_request");
    expect_text(r, "errors.0.pointer", "/resource");
    r = post(g, "/leases", "{\"resource\":\"j\",\"ttl\":5}");
    expect_text(expect_problem(r, 400, "invalid_request"), "errors.0.pointer", "/ttl");
    r = post(g, "/leases", "{\"resource\":\"j\",\"a/b~c\":5}");
    expect_text(expect_problem(r, 400, "invalid_request"), "errors.0.pointer", "/a~1b~0c");
    r = post(g, "/resources/r/check", "{\"x\":1}");
    expect_problem(r, 428, "fencing_token_required");
    r = call(g, "POST", "/resources/r/check", LIST(token_header(lease.token)), "{\"x\":1}");
    expect_problem(r, 400, "invalid_request");
    expect_problem(resource(g, "j"), 404, "resource_not_found");
}

static void a_content_type_is_not_needed_for_json(void **state)
{
    (void)state;
    const char *body = "{\"resource\":\"typeless\"}";
    expect_status(call(g, "POST", "/leases", NULL, body), 201);
    expect_status(call(g, "POST", "/leases", LIST("Content-Type: text/plain"), body), 409);
}

static void unknown_query_parameters_are_refused(void **state)
{
    (void)state;
    const char *const paths[] = {"/leases?x=1",
                                 "/leases?resource=r&Limit=5",
                                 "/resources?x",
                                 "/resources/r?x=1",
                                 "/resources/r/history?x=1",
                                 "/store/r?x=1",
                                 "/store/r/k?x=1",
                                 "/livez?x=1",
                                 "/version?x=1",
                                 test_printf("/leases/%s?x=1", lease.id)};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        expect_problem(get(g, paths[i]), 400, "invalid_request");
    expect_problem(post(g, "/leases?x=1", "{\"resource\":\"query\"}"), 400, "invalid_request");
    expect_problem(call(g, "PUT", "/store/r/k?x=1", LIST(token_header(lease.token)), "x"), 400,
                   "invalid_request");
    expect_problem(resource(g, "query"), 404, "resource_not_found");
    expect_untouched();
}

/* ---- Order of checks --------------------------------------------------------------------------
 */

static void calls_of_later_are_not_there_yet(void **state)
{
    (void)state;
    expect_problem(call(g, "POST", "/store/r", NULL, "{\"ops\":[]}"), 404, "not_found");
    expect_problem(call(g, "POST", "/transactions", NULL, "{}"), 404, "not_found");
    expect_problem(get(g, "/ledger"), 404, "not_found");
    expect_problem(get(g, "/metrics"), 404, "not_found");
}

/* The sentence of a problem quotes what was sent, and has an end. */
static void a_problem_about_strange_text_is_still_an_answer(void **state)
{
    (void)state;
    const char *accents = "";
    for (int i = 0; i < 600; i++)
        accents = test_printf("%s\xc3\xa9", accents);
    expect_problem(get(g, "/\xff"), 404, "not_found");
    expect_problem(call(g, "POST", "/resources/\xff", NULL, NULL), 405, "method_not_allowed");
    expect_problem(get(g, test_printf("/leases?%s=1", encoded(accents))), 400, "invalid_request");
    expect_problem(post(g, "/leases", "{\"resource\":\"r\",\"%s\":1}", accents), 400,
                   "invalid_request");
    expect_status(get(g, "/livez"), 200);
}

static void checks_come_in_their_order(void **state)
{
    (void)state;
    const char *large = test_printf("%05000d", 1);
    const char *token = token_header(lease.token);
    const char *stale = token_header(9999);
    const char *wrong_id = "X-Lease-Id: x";

    /* 404, 405 before names; names and headers before the length; the length before the token. */
    expect_problem(call(g, "PATCH", "/store/%00/k", NULL, NULL), 405, "method_not_allowed");
    expect_problem(call(g, "PUT", "/store/%00/k", NULL, large), 400, "invalid_name");
    expect_problem(call(g, "PUT", "/store/r/k", LIST("X-Fencing-Token: x"), large), 400,
                   "fencing_token_malformed");
    expect_problem(call(g, "PUT", "/store/r/k", LIST(token, "If-Match: x"), large), 400,
                   "bad_header");
    expect_problem(call(g, "PUT", "/store/r/k", NULL, large), 413, "body_too_large");
    expect_problem(call(g, "PUT", "/store/r/k", LIST(stale), large), 413, "body_too_large");
    /* A condition that is missing stands where a token that is missing does. */
    expect_status(call(g, "PUT", "/resources/free", NULL, "{\"fenced\":false}"), 200);
    expect_problem(call(g, "PUT", "/store/free/k", NULL, large), 413, "body_too_large");
    expect_problem(call(g, "PUT", "/store/free/k", NULL, "x"), 428, "precondition_required");
    expect_problem(call(g, "POST", "/resources/r/check", NULL, "{"), 428, "fencing_token_required");
    expect_problem(call(g, "POST", "/resources/r/check", LIST(stale), "{"), 400, "invalid_json");

    /* The fence, the lease id, the record, the version. */
    expect_problem(
        call(g, "DELETE", "/store/r/none", LIST(stale, wrong_id, "If-Match: \"v9\""), NULL), 412,
        "fencing_token_not_issued");
    expect_problem(
        call(g, "DELETE", "/store/r/none", LIST(token, wrong_id, "If-Match: \"v9\""), NULL), 412,
        "lease_mismatch");
    expect_problem(call(g, "DELETE", "/store/r/none", LIST(token, "If-Match: \"v9\""), NULL), 404,
                   "record_not_found");
    expect_problem(call(g, "DELETE", "/store/r/k", LIST(token, "If-Match: \"v9\""), NULL), 412,
                   "version_mismatch");
    expect_untouched();
}

/* ---- Connections ------------------------------------------------------------------------------
 */

static void pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    const char *text = test_printf("GET /store/r/k HTTP/1.1\r\nHost: x\r\n\r\n"
                                   "POST /leases HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n"
                                   "{\"resource\": \"pipe\"}"
                                   "PUT /store/r/none HTTP/1.1\r\nHost: x\r\n"
                                   "X-Fencing-Token: 9999\r\nContent-Length: 1\r\n\r\nx"
                                   "GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_body(expect_status(raw("GET", text), 200), "value");
    expect_text(expect_status(http_receive(g->http, "POST"), 201), "resource", "pipe");
    expect_problem(http_receive(g->http, "PUT"), 412, "fencing_token_not_issued");
    expect_status(http_receive(g->http, "GET"), 200);
}

static void a_client_that_leaves_disturbs_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct http *client = http_new(g->port);
        const char *body = test_printf("{\"resource\":\"leaver %d\"}", i);
        http_send(client, "POST", "/leases", NULL, body, strlen(body));
        (i % 2 ? http_close : http_reset)(client);
        const char *half = "PUT /store/r/k HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf";
        http_send_bytes(client, half, strlen(half));
        (i % 2 ? http_reset : http_close)(client);
    }
    expect_untouched();
}

static void a_request_that_drips_is_cut_off(void **state)
{
    (void)state;
    struct gateway *hasty = gateway_start(NULL, LIST("--request-timeout-ms", "1000"));
    struct http *slow = http_new(hasty->port);
    const char *head = "PUT /store/r/k HTTP/1.1\r\nHost: x\r\nX-Fencing-Token: 1\r\n"
                       "Content-Length: 1000\r\n\r\n";
    http_send_bytes(slow, head, strlen(head));
    long long start_ms = now_ms();
    bool closed = false;
    while (!closed && now_ms() - start_ms < slow_ms(20000)) {
        http_send_bytes(slow, "x", 1);
        closed = http_closed_by_server(slow, 200);
    }
    assert_true(closed);
    expect_status(get(hasty, "/livez"), 200);
}

static void oversized_heads_are_refused(void **state)
{
    (void)state;
    char *padding = test_alloc(300001);
    memset(padding, 'a', 300000);
    const char *const heads[] = {
        test_printf("GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", padding),
        test_printf("GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n", padding)};
    for (size_t i = 0; i < 2; i++) {
        struct response *r = raw("GET", heads[i]);
        if (r && (r->status < 400 || r->status >= 500))
            fail_msg("%d", r->status);
        http_close(g->http);
    }
    expect_untouched();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(unknown_paths_are_not_found),
        TEST(what_comes_later_is_not_there),
        TEST(other_methods_are_named),
        TEST(head_answers_as_get_does),
        TEST(the_small_pages_are_served),
        TEST(every_problem_has_a_page),
        TEST(a_request_id_is_echoed_or_made),
        TEST(bad_names_in_a_path_are_refused),
        TEST(paths_are_decoded_once),
        TEST(bad_names_in_a_body_are_refused),
        TEST(malformed_tokens_are_refused),
        TEST(a_token_comes_exactly_once),
        TEST(a_token_line_is_unambiguous),
        TEST(doubled_headers_are_refused),
        TEST(an_idempotency_key_is_not_ignored),
        TEST(framing_that_can_be_read_twice_is_refused),
        TEST(a_body_is_strict_json),
        TEST(a_body_is_an_object_of_known_members),
        TEST(a_content_type_is_not_needed_for_json),
        TEST(unknown_query_parameters_are_refused),
        TEST(calls_of_later_are_not_there_yet),
        TEST(a_problem_about_strange_text_is_still_an_answer),
        TEST(checks_come_in_their_order),
        TEST(pipelined_requests_are_answered_in_order),
        TEST(a_client_that_leaves_disturbs_nobody),
        TEST(a_request_that_drips_is_cut_off),
        TEST(oversized_heads_are_refused),
    };
    return cmocka_run_group_tests_name("requests", tests, start_servers, NULL);
}
