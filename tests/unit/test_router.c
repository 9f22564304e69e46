/* test_router.c - the real route table: which path leads where, which methods it has, and what its
 * parameters are once decoded. */
#include "gateway/router.h"

#include "gateway/api.h"

#include "tests/support/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void free_arena(void *arg)
{
    arena_free(&((struct request *)arg)->arena);
}

static struct request *request_for(const char *method, const char *target)
{
    struct request *request = test_alloc(sizeof *request);
    request->method = method;
    request->target = target;
    return cleanup_add(free_arena, request);
}

static enum fg_status find(struct request *request, char allow[64])
{
    memset(allow, '!', 64);
    return router_find(request, allow, 64);
}

/* "handler", found and decoded: its parameters separated by blanks, each in brackets. */
static void expect_route(const char *method, const char *target, route_handler handler,
                         const char *parameters)
{
    char allow[64];
    const char *detail = NULL;
    struct request *request = request_for(method, target);
    if (find(request, allow) != FG_OK)
        fail_msg("%s %s: not found", method, target);
    if (request->route->handler != handler)
        fail_msg("%s %s leads to %s %s", method, target, request->route->method,
                 request->route->pattern);
    if (router_decode(request, &detail) != FG_OK)
        fail_msg("%s %s: %s", method, target, detail);
    const char *text = "";
    for (size_t i = 0; i < REQUEST_PARAMETERS_MAX && request->parameters[i]; i++)
        text = test_printf("%s[%s]", text, request->parameters[i]);
    assert_string_equal(text, parameters);
}

static void expect_not_found(const char *method, const char *target)
{
    char allow[64];
    struct request *request = request_for(method, target);
    if (find(request, allow) != FG_NOT_FOUND)
        fail_msg("%s %s is there", method, target);
    assert_string_equal(allow, "");
    assert_null(request->route);
}

static void expect_allow(const char *method, const char *target, const char *methods)
{
    char allow[64];
    struct request *request = request_for(method, target);
    if (find(request, allow) != FG_METHOD_NOT_ALLOWED)
        fail_msg("%s %s is not refused for its method", method, target);
    assert_string_equal(allow, methods);
    assert_null(request->route);
}

static void expect_invalid_name(const char *target, const char *sentence)
{
    char allow[64];
    const char *detail = NULL;
    struct request *request = request_for("GET", target);
    if (find(request, allow) != FG_OK)
        fail_msg("GET %s: not found", target);
    if (router_decode(request, &detail) != FG_INVALID_NAME)
        fail_msg("GET %s: taken", target);
    if (strcmp(detail, sentence) != 0)
        fail_msg("GET %s: %s", target, detail);
}

/* ---- Where it leads -------------------------------------------------------------------------- */

static void every_call_has_its_handler(void **state)
{
    (void)state;
    expect_route("POST", "/leases", api_lease_acquire, "");
    expect_route("GET", "/leases", api_lease_list, "");
    expect_route("GET", "/leases/abc", api_lease_get, "[abc]");
    expect_route("DELETE", "/leases/abc", api_lease_release, "[abc]");
    expect_route("POST", "/leases/abc/renew", api_lease_renew, "[abc]");
    expect_route("GET", "/resources", api_resource_list, "");
    expect_route("GET", "/resources/r", api_resource_get, "[r]");
    expect_route("PUT", "/resources/r", api_resource_put, "[r]");
    expect_route("POST", "/resources/r/revoke", api_resource_revoke, "[r]");
    expect_route("POST", "/resources/r/check", api_resource_check, "[r]");
    expect_route("GET", "/resources/r/history", api_resource_history, "[r]");
    expect_route("GET", "/store/r", api_record_list, "[r]");
    expect_route("GET", "/store/r/k", api_record_get, "[r][k]");
    expect_route("PUT", "/store/r/k", api_record_put, "[r][k]");
    expect_route("DELETE", "/store/r/k", api_record_delete, "[r][k]");
    expect_route("GET", "/livez", api_livez, "");
    expect_route("GET", "/readyz", api_readyz, "");
    expect_route("GET", "/version", api_version, "");
    expect_route("GET", "/openapi.yaml", api_openapi, "");
    expect_route("GET", "/problems/lease-held", api_problem, "[lease-held]");
}

static void words_of_the_table_are_names_elsewhere(void **state)
{
    (void)state;
    expect_route("GET", "/resources/check", api_resource_get, "[check]");
    expect_route("GET", "/resources/history/history", api_resource_history, "[history]");
    expect_route("GET", "/store/leases/renew", api_record_get, "[leases][renew]");
    expect_route("GET", "/leases/renew", api_lease_get, "[renew]");
    expect_route("POST", "/leases/renew/renew", api_lease_renew, "[renew]");
    expect_route("GET", "/store/{r}/{key}", api_record_get, "[{r}][{key}]");
}

static void head_is_get_wherever_get_is(void **state)
{
    (void)state;
    char allow[64];
    for (const struct route *route = routes; route->method; route++) {
        struct request *get = request_for("GET", route->pattern);
        struct request *head = request_for("HEAD", route->pattern);
        enum fg_status status = find(get, allow);
        assert_int_equal(find(head, allow), status);
        assert_ptr_equal(head->route, get->route);
    }
    expect_allow("HEAD", "/leases/abc/renew", "POST");
    expect_allow("HEAD", "/resources/r/check", "POST");
}

static void every_row_is_reached_by_its_own_pattern(void **state)
{
    (void)state;
    char allow[64];
    size_t rows = 0;
    for (const struct route *route = routes; route->method; route++, rows++) {
        struct request *request = request_for(route->method, route->pattern);
        assert_int_equal(find(request, allow), FG_OK);
        assert_ptr_equal(request->route, route);
        assert_non_null(route->handler);
        assert_non_null(route->query);
    }
    assert_true(rows >= 18);
}

/* request->query and request->parameters have room for what a row may need. */
static void the_table_fits_the_request(void **state)
{
    (void)state;
    for (const struct route *route = routes; route->method; route++) {
        size_t parameters = 0, query = route->query[0] ? 1 : 0;
        for (const char *at = route->pattern; *at; at++)
            parameters += *at == '{';
        for (const char *at = route->query; *at; at++)
            query += *at == ' ';
        assert_true(parameters <= REQUEST_PARAMETERS_MAX);
        assert_true(query <= REQUEST_QUERY_MAX);
    }
}

/* ---- 404 and 405 ----------------------------------------------------------------------------- */

static void other_paths_are_not_found_by_any_method(void **state)
{
    (void)state;
    const char *const paths[] = {
        "/",
        "",
        "*",
        "leases",
        "//leases",
        "/leases//",
        "/leases/a/b",
        "/leases/a/renew/",
        "/leases/a/renew/b",
        "/Leases",
        "/leases ",
        "/leas",
        "/leasess",
        "/%6Ceases",
        "/leases%2Fabc",
        "/leases?x",
        "/resources/r/Check",
        "/resources/r/check/",
        "/resources/r/revoke/",
        "/resources/r/s/history",
        "/store",
        "/store/r/k/x",
        "/store/r/k/",
        "/store//r/k",
        "/problems",
        "/problems/a/b",
        "/livez/",
        "/livez/x",
        "/version/x",
        "/openapi",
        "/openapi.yam",
        "/openapi.yaml/",
        "/metrics",
        "/events",
        "/ledger",
        "/transactions",
        "/./leases",
        "/x/../leases",
        "\\leases",
    };
    const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", ""};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        for (size_t j = 0; j < sizeof methods / sizeof *methods; j++)
            expect_not_found(methods[j], paths[i]);
    }
}

static void other_methods_are_told_which_there_are(void **state)
{
    (void)state;
    expect_allow("PUT", "/leases", "POST, GET, HEAD");
    expect_allow("DELETE", "/leases", "POST, GET, HEAD");
    expect_allow("POST", "/leases/abc", "GET, HEAD, DELETE");
    expect_allow("PUT", "/leases/abc", "GET, HEAD, DELETE");
    expect_allow("GET", "/leases/abc/renew", "POST");
    expect_allow("POST", "/resources", "GET, HEAD");
    expect_allow("DELETE", "/resources/r", "GET, HEAD, PUT");
    expect_allow("GET", "/resources/r/revoke", "POST");
    expect_allow("GET", "/resources/r/check", "POST");
    expect_allow("DELETE", "/resources/r/history", "GET, HEAD");
    expect_allow("PUT", "/store/r", "GET, HEAD");
    expect_allow("DELETE", "/store/r", "GET, HEAD");
    expect_allow("POST", "/store/r/k", "GET, HEAD, PUT, DELETE");
    expect_allow("PATCH", "/store/r/k", "GET, HEAD, PUT, DELETE");
    expect_allow("POST", "/livez", "GET, HEAD");
    expect_allow("POST", "/readyz", "GET, HEAD");
    expect_allow("OPTIONS", "/version", "GET, HEAD");
    expect_allow("TRACE", "/openapi.yaml", "GET, HEAD");
    expect_allow("PUT", "/problems/x", "GET, HEAD");
}

static void methods_are_written_in_capitals(void **state)
{
    (void)state;
    const char *const methods[] = {"get", "Get", "post", "head", "GETX", "GE", "", "GET "};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        expect_allow(methods[i], "/leases", "POST, GET, HEAD");
}

/* A short buffer cuts the list, and nothing is written beyond it. */
static void allow_is_cut_to_its_buffer(void **state)
{
    (void)state;
    char allow[16];
    memset(allow, '!', sizeof allow);
    struct request *request = request_for("PATCH", "/store/r/k");
    assert_int_equal(router_find(request, allow, 10), FG_METHOD_NOT_ALLOWED);
    assert_string_equal(allow, "GET, HEAD");
    assert_int_equal(allow[10], '!');
}

/* ---- Parameters ------------------------------------------------------------------------------ */

static void an_escaped_slash_is_part_of_the_name(void **state)
{
    (void)state;
    expect_route("GET", "/store/orders%2F42/total", api_record_get, "[orders/42][total]");
    expect_route("GET", "/store/orders%2f42/total", api_record_get, "[orders/42][total]");
    expect_route("GET", "/store/%2F/%2F%2F", api_record_get, "[/][//]");
    expect_route("GET", "/resources/a%2Fhistory", api_resource_get, "[a/history]");
    expect_route("GET", "/resources/a%2F..%2Fb", api_resource_get, "[a/../b]");
}

static void names_are_decoded_once(void **state)
{
    (void)state;
    expect_route("GET", "/resources/a%252Fb", api_resource_get, "[a%2Fb]");
    expect_route("GET", "/resources/%2525", api_resource_get, "[%25]");
    expect_route("GET", "/resources/%252E%252E", api_resource_get, "[%2E%2E]");
    expect_route("GET", "/resources/a+b", api_resource_get, "[a+b]");
    expect_route("GET", "/resources/a%20b", api_resource_get, "[a b]");
    expect_route("GET", "/resources/caf%C3%A9", api_resource_get, "[caf\xc3\xa9]");
    expect_route("GET", "/resources/caf\xc3\xa9", api_resource_get, "[caf\xc3\xa9]");
    expect_route("GET", "/resources/a;b=c,d:e@f!$&'()*", api_resource_get, "[a;b=c,d:e@f!$&'()*]");
    expect_route("GET", "/resources/%3Fq%23f", api_resource_get, "[?q#f]");
}

static void bad_escapes_are_invalid_names(void **state)
{
    (void)state;
    const char *const bad[] = {"%", "%2", "a%", "%zz", "%%", "%00", "a%00b", "%G0", "%0", "%u0041"};
    const char *sentence = "The path holds a bad percent escape.";
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_invalid_name(test_printf("/resources/%s", bad[i]), sentence);
        expect_invalid_name(test_printf("/store/%s/k", bad[i]), sentence);
        expect_invalid_name(test_printf("/store/r/%s", bad[i]), sentence);
        expect_invalid_name(test_printf("/leases/%s", bad[i]), sentence);
        expect_invalid_name(test_printf("/problems/%s", bad[i]), sentence);
    }
}

static void an_escape_never_reaches_over_a_slash(void **state)
{
    (void)state;
    expect_invalid_name("/store/a%/2F", "The path holds a bad percent escape.");
    expect_invalid_name("/store/a%2/F", "The path holds a bad percent escape.");
}

static void dot_segments_are_no_names(void **state)
{
    (void)state;
    const char *const dots[] = {".", "..", "%2E", "%2e%2E", ".%2e"};
    const char *sentence = "A name is not \".\" or \"..\".";
    for (size_t i = 0; i < sizeof dots / sizeof *dots; i++) {
        expect_invalid_name(test_printf("/resources/%s", dots[i]), sentence);
        expect_invalid_name(test_printf("/resources/%s/history", dots[i]), sentence);
        expect_invalid_name(test_printf("/store/%s/k", dots[i]), sentence);
        expect_invalid_name(test_printf("/store/r/%s", dots[i]), sentence);
    }
    expect_route("GET", "/resources/...", api_resource_get, "[...]");
}

static void empty_segments_are_no_names(void **state)
{
    (void)state;
    const char *sentence = "A name has at least one byte.";
    expect_invalid_name("/resources/", sentence);
    expect_invalid_name("/resources//history", sentence);
    expect_invalid_name("/store/", sentence);
    expect_invalid_name("/store//k", sentence);
    expect_invalid_name("/store/r/", sentence);
    expect_invalid_name("/store//", sentence);
}

static void what_is_no_name_is_refused_in_the_path_too(void **state)
{
    (void)state;
    expect_invalid_name("/resources/a%0Ab", "A name has no control characters.");
    expect_invalid_name("/resources/%7F", "A name has no control characters.");
    expect_invalid_name("/resources/%C2%85", "A name has no control characters.");
    expect_invalid_name("/resources/\x01", "A name has no control characters.");
    expect_invalid_name("/resources/%FF", "A name is valid UTF-8.");
    expect_invalid_name("/resources/%C0%AF", "A name is valid UTF-8.");
    expect_invalid_name("/resources/%ED%A0%80", "A name is valid UTF-8.");
    expect_invalid_name("/store/r/\xff", "A name is valid UTF-8.");
    expect_invalid_name(test_printf("/resources/%0201d", 7), "A name has at most 200 bytes.");
    expect_route("GET", test_printf("/resources/%0200d", 7), api_resource_get,
                 test_printf("[%0200d]", 7));
    /* 600 characters that are 200 bytes. */
    const char *escaped = "", *plain = "";
    for (int i = 0; i < 200; i++) {
        escaped = test_printf("%s%%41", escaped);
        plain = test_printf("%sA", plain);
    }
    expect_route("GET", test_printf("/resources/%s", escaped), api_resource_get,
                 test_printf("[%s]", plain));
}

/* Looked up as they are: what they are not, is not found. */
static void lease_ids_and_codes_are_any_text(void **state)
{
    (void)state;
    expect_route("GET", "/leases/..", api_lease_get, "[..]");
    expect_route("GET", "/leases/%FF", api_lease_get, "[\xff]");
    expect_route("GET", test_printf("/leases/%0500d", 7), api_lease_get,
                 test_printf("[%0500d]", 7));
    expect_route("GET", "/leases/a%2Frenew", api_lease_get, "[a/renew]");
    expect_route("GET", "/problems/.", api_problem, "[.]");
}

#define TEST(function) cmocka_unit_test_teardown(function, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_call_has_its_handler),
        TEST(words_of_the_table_are_names_elsewhere),
        TEST(head_is_get_wherever_get_is),
        TEST(every_row_is_reached_by_its_own_pattern),
        TEST(the_table_fits_the_request),
        TEST(other_paths_are_not_found_by_any_method),
        TEST(other_methods_are_told_which_there_are),
        TEST(methods_are_written_in_capitals),
        TEST(allow_is_cut_to_its_buffer),
        TEST(an_escaped_slash_is_part_of_the_name),
        TEST(names_are_decoded_once),
        TEST(bad_escapes_are_invalid_names),
        TEST(an_escape_never_reaches_over_a_slash),
        TEST(dot_segments_are_no_names),
        TEST(empty_segments_are_no_names),
        TEST(what_is_no_name_is_refused_in_the_path_too),
        TEST(lease_ids_and_codes_are_any_text),
    };
    return cmocka_run_group_tests_name("router", tests, NULL, NULL);
}
