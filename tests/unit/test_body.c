/* test_body.c - JSON bodies and query parameters by description.
 *
 * The answers of reply.h are replaced by notes, so that no server is needed: what matters here is
 * which refusal comes, and which faults it names. */
#include "gateway/body.h"

#include "gateway/reply.h"

#include "tests/support/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- What the server would do ---------------------------------------------------------------- */

static enum fg_status refusal; /* FG_OK: none */
static char refusal_detail[4096];
static json_t *refusal_facts;

void reply_problem(struct request *request, enum fg_status status, json_t *facts,
                   const char *format, ...)
{
    (void)request;
    assert_int_equal(refusal, FG_OK); /* a request is answered once */
    refusal = status;
    refusal_facts = facts;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal_detail, sizeof refusal_detail, format, arguments);
    va_end(arguments);
}

json_t *reply_error_at(const char *pointer, const char *text)
{
    return json_pack("{s:[{s:s, s:s}]}", "errors", "pointer", pointer, "detail", text);
}

static const struct query_parameter *query;

const char *request_query(const struct request *request, const char *name)
{
    (void)request;
    return query && strcmp(query->name, name) == 0 ? query->value : NULL;
}

/* ---- Reading --------------------------------------------------------------------------------- */

struct wish {
    const char *resource;
    const char *owner;
    const char *alias;
    const char *reason;
    int64_t ttl_ms;
    int fenced;
};

static const struct body_field fields[] = {
    {"resource", BODY_NAME, true, 0, 0, offsetof(struct wish, resource), "A name."},
    {"owner", BODY_STRING, false, 0, 8, offsetof(struct wish, owner), "Up to 8 bytes."},
    {"alias", BODY_NAME, false, 0, 0, offsetof(struct wish, alias), "A name."},
    {"ttl_ms", BODY_INTEGER, false, 50, 1000, offsetof(struct wish, ttl_ms), "50 to 1000."},
    {"reason", BODY_STRING, false, 2, 4, offsetof(struct wish, reason), "2 to 4 bytes."},
    {"fenced", BODY_BOOLEAN, false, 0, 0, offsetof(struct wish, fenced), "true or false."},
};

static struct wish wish;

static int forget(void **state)
{
    json_decref(refusal_facts);
    refusal_facts = NULL;
    refusal = FG_OK;
    query = NULL;
    return cleanup_test(state);
}

static void free_arena(void *arg)
{
    arena_free(&((struct request *)arg)->arena);
}

static bool read_bytes(const void *body, size_t bytes)
{
    struct request *request = cleanup_add(free_arena, test_alloc(sizeof *request));
    /* A copy of exact size, so that a sanitizer sees a read beyond it. */
    request->body = memcpy(test_alloc(bytes), body, bytes);
    request->body_bytes = bytes;
    json_decref(refusal_facts);
    refusal_facts = NULL;
    refusal = FG_OK;
    refusal_detail[0] = '\0';
    wish = (struct wish){.ttl_ms = 500, .fenced = -1};
    bool taken = body_read(request, fields, sizeof fields / sizeof *fields, &wish);
    assert_int_equal(taken, refusal == FG_OK);
    return taken;
}

static bool read_text(const char *body)
{
    return read_bytes(body, strlen(body));
}

/* The faults as "/ttl_ms /owner ". */
static const char *pointers(void)
{
    const char *text = "";
    size_t i;
    json_t *fault;
    json_array_foreach(json_object_get(refusal_facts, "errors"), i, fault)
    {
        const char *pointer = json_string_value(json_object_get(fault, "pointer"));
        const char *detail = json_string_value(json_object_get(fault, "detail"));
        assert_non_null(pointer);
        assert_non_null(detail);
        assert_true(detail[0] != '\0');
        text = test_printf("%s%s ", text, pointer);
    }
    return text;
}

static void expect_refusal(const char *body, enum fg_status status, const char *faults)
{
    if (read_text(body))
        fail_msg("taken: %s", body);
    if (refusal != status)
        fail_msg("%s: %s", body, fg_error(refusal)->code);
    if (strcmp(pointers(), faults) != 0)
        fail_msg("%s: faults: %s", body, pointers());
    assert_true(refusal_detail[0] != '\0');
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

static void fields_are_read_and_the_rest_keeps_its_defaults(void **state)
{
    (void)state;
    assert_true(read_text("{\"resource\":\"r\"}"));
    assert_string_equal(wish.resource, "r");
    assert_null(wish.owner);
    assert_int_equal(wish.ttl_ms, 500);
    assert_true(read_text(" { \"ttl_ms\" : 50 , \"owner\":\"me\", \"alias\":\"a\","
                          "\"resource\":\"caf\\u00e9\" }\n"));
    assert_string_equal(wish.resource, "caf\xc3\xa9");
    assert_string_equal(wish.owner, "me");
    assert_string_equal(wish.alias, "a");
    assert_int_equal(wish.ttl_ms, 50);
    assert_true(read_text("{\"resource\":\"a/b\",\"ttl_ms\":1000,\"owner\":\"12345678\"}"));
    assert_true(read_text("{\"resource\":\"r\",\"owner\":\"\"}"));
    assert_string_equal(wish.owner, "");
}

static void an_empty_body_is_an_empty_object(void **state)
{
    (void)state;
    expect_refusal("", FG_INVALID_REQUEST, "/resource ");
    assert_string_equal(refusal_detail, "resource: This field is required.");
    expect_refusal("{}", FG_INVALID_REQUEST, "/resource ");
    struct request *request = cleanup_add(free_arena, test_alloc(sizeof *request));
    refusal = FG_OK;
    assert_true(body_read(request, fields + 3, 1, &wish)); /* nothing required */
    assert_int_equal(wish.ttl_ms, 500);
}

static void null_counts_as_not_sent_where_a_string_is_optional(void **state)
{
    (void)state;
    assert_true(read_text("{\"resource\":\"r\",\"owner\":null,\"alias\":null}"));
    assert_null(wish.owner);
    assert_null(wish.alias);
    expect_refusal("{\"resource\":null}", FG_INVALID_REQUEST, "/resource ");
    expect_refusal("{\"resource\":\"r\",\"ttl_ms\":null}", FG_INVALID_REQUEST, "/ttl_ms ");
}

static void what_is_not_json_is_refused(void **state)
{
    (void)state;
    const char *const bad[] = {
        " ",
        "{",
        "}",
        "x",
        "{'resource':'r'}",
        "{resource:\"r\"}",
        "{\"resource\":\"r\",}",
        "{\"resource\":\"r\"}x",
        "{\"resource\":\"r\"}{}",
        "{\"resource\":\"r\"} // no",
        "{\"resource\":\"r\",\"resource\":\"s\"}", /* twice */
        "{\"resource\":\"r\",\"ttl_ms\":50,\"ttl_ms\":60}",
        "{\"resource\":\"r\",\"r\\u0065source\":\"s\"}",
        "{\"resource\":\"\\u0000\"}",
        "{\"resource\":\"a\\u0000b\"}",
        "{\"a\\u0000b\":1}",
        "{\"resource\":\"\\ud800\"}",
        "{\"resource\":\"\\udc00\\ud800\"}",
        "{\"resource\":\"\xff\"}",
        "{\"resource\":\"\xc0\xaf\"}",
        "{\"resource\":\"\xed\xa0\x80\"}",
        "{\"resource\":\"a\nb\"}",
        "{\"resource\":\"\\x41\"}",
        "{\"resource\":\"r\",\"ttl_ms\":NaN}",
        "{\"resource\":\"r\",\"ttl_ms\":01}",
        "{\"resource\":\"r\",\"ttl_ms\":+1}",
        "{\"resource\":\"r\",\"ttl_ms\":1e999}",
        "\xef\xbb\xbf{\"resource\":\"r\"}", /* a byte order mark */
        "resource=r",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(bad[i], FG_INVALID_JSON, "");
}

static void a_nul_in_the_body_does_not_end_it(void **state)
{
    (void)state;
    static const char hidden[] = "{\"resource\":\"r\"}\0{\"ttl_ms\":1}";
    assert_false(read_bytes(hidden, sizeof hidden - 1));
    assert_int_equal(refusal, FG_INVALID_JSON);
    static const char inside[] = "{\"resource\":\"a\0b\"}";
    assert_false(read_bytes(inside, sizeof inside - 1));
    assert_int_equal(refusal, FG_INVALID_JSON);
    assert_false(read_bytes("\0", 1));
    assert_int_equal(refusal, FG_INVALID_JSON);
}

static void only_an_object_is_a_body(void **state)
{
    (void)state;
    const char *const bad[] = {"[]", "[{\"resource\":\"r\"}]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(bad[i], FG_INVALID_REQUEST, " ");
    const char *const scalars[] = {"null", "true", "1", "\"resource\""};
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        assert_false(read_text(scalars[i]));
}

static void integers_are_integers_within_their_range(void **state)
{
    (void)state;
    const char *const bad[] = {"49",
                               "1001",
                               "-50",
                               "0",
                               "50.0",
                               "5e1",
                               "\"50\"",
                               "true",
                               "[50]",
                               "{}",
                               "999.9",
                               "9223372036854775807",
                               "-9223372036854775808",
                               "9223372036854775808", /* more than 64 bits is valid JSON */
                               "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_refusal(test_printf("{\"resource\":\"r\",\"ttl_ms\":%s}", bad[i]),
                       FG_INVALID_REQUEST, "/ttl_ms ");
        assert_string_equal(refusal_detail, "ttl_ms: 50 to 1000.");
    }
}

static void strings_can_have_a_least_length(void **state)
{
    (void)state;
    expect_refusal("{\"resource\":\"r\",\"reason\":\"\"}", FG_INVALID_REQUEST, "/reason ");
    expect_refusal("{\"resource\":\"r\",\"reason\":\"1\"}", FG_INVALID_REQUEST, "/reason ");
    expect_refusal("{\"resource\":\"r\",\"reason\":\"12345\"}", FG_INVALID_REQUEST, "/reason ");
    assert_string_equal(refusal_detail, "reason: 2 to 4 bytes.");
    assert_true(read_text("{\"resource\":\"r\",\"reason\":\"12\"}"));
    assert_true(read_text("{\"resource\":\"r\",\"reason\":\"1234\"}"));
    assert_string_equal(wish.reason, "1234");
}

static void booleans_are_true_or_false(void **state)
{
    (void)state;
    assert_true(read_text("{\"resource\":\"r\"}"));
    assert_int_equal(wish.fenced, -1);
    assert_true(read_text("{\"resource\":\"r\",\"fenced\":true}"));
    assert_int_equal(wish.fenced, 1);
    assert_true(read_text("{\"resource\":\"r\",\"fenced\":false}"));
    assert_int_equal(wish.fenced, 0);
    const char *const bad[] = {"null", "0", "1", "\"true\"", "[]", "{}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(test_printf("{\"resource\":\"r\",\"fenced\":%s}", bad[i]),
                       FG_INVALID_REQUEST, "/fenced ");
}

static void strings_are_strings_of_at_most_so_many_bytes(void **state)
{
    (void)state;
    const char *const bad[] = {"1",  "true",          "[]",
                               "{}", "\"123456789\"", "\"\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(test_printf("{\"resource\":\"r\",\"owner\":%s}", bad[i]), FG_INVALID_REQUEST,
                       "/owner ");
    assert_true(read_text("{\"resource\":\"r\",\"owner\":\"\\u00e9\\u00e9\\u00e9\\u00e9\"}"));
}

static void unknown_fields_are_refused(void **state)
{
    (void)state;
    expect_refusal("{\"resource\":\"r\",\"ttl\":50}", FG_INVALID_REQUEST, "/ttl ");
    assert_string_equal(refusal_detail, "ttl: There is no such field.");
    expect_refusal("{\"resource\":\"r\",\"TTL_MS\":50}", FG_INVALID_REQUEST, "/TTL_MS ");
    expect_refusal("{\"resource\":\"r\",\"\":50}", FG_INVALID_REQUEST, "/ ");
    expect_refusal("{\"resource\":\"r\",\"%n%s\":null}", FG_INVALID_REQUEST, "/%n%s ");
}

static void a_pointer_is_escaped_as_json_pointers_are(void **state)
{
    (void)state;
    expect_refusal("{\"resource\":\"r\",\"a/b\":1}", FG_INVALID_REQUEST, "/a~1b ");
    expect_refusal("{\"resource\":\"r\",\"~1\":1}", FG_INVALID_REQUEST, "/~01 ");
    expect_refusal("{\"resource\":\"r\",\"/~/\":1}", FG_INVALID_REQUEST, "/~1~0~1 ");
}

static void every_fault_is_told_at_once(void **state)
{
    (void)state;
    expect_refusal("{\"owner\":7,\"ttl_ms\":1,\"x\":1}", FG_INVALID_REQUEST,
                   "/resource /owner /ttl_ms /x ");
    assert_string_equal(refusal_detail, "resource: This field is required.");
}

static void names_are_judged_last_with_a_code_of_their_own(void **state)
{
    (void)state;
    expect_refusal("{\"resource\":\"\"}", FG_INVALID_NAME, "/resource ");
    assert_string_equal(refusal_detail, "resource: A name has at least one byte.");
    expect_refusal("{\"resource\":\"..\"}", FG_INVALID_NAME, "/resource ");
    expect_refusal("{\"resource\":\"a\\u0007\"}", FG_INVALID_NAME, "/resource ");
    expect_refusal("{\"resource\":\"a\\u0085\"}", FG_INVALID_NAME, "/resource ");
    expect_refusal(test_printf("{\"resource\":\"%0201d\"}", 7), FG_INVALID_NAME, "/resource ");
    assert_true(read_text(test_printf("{\"resource\":\"%0200d\"}", 7)));
    expect_refusal("{\"resource\":\"r\",\"alias\":\".\"}", FG_INVALID_NAME, "/alias ");
    expect_refusal("{\"resource\":\"\",\"ttl_ms\":1}", FG_INVALID_REQUEST, "/ttl_ms ");
    expect_refusal("{\"resource\":7}", FG_INVALID_REQUEST, "/resource ");
}

static const char *nested(int depth, const char *open, const char *inside, const char *close)
{
    const char *text = inside;
    for (int i = 0; i < depth; i++)
        text = test_printf("%s%s%s", open, text, close);
    return text;
}

static void deep_nesting_is_refused_before_it_is_parsed(void **state)
{
    (void)state;
    expect_refusal(test_printf("{\"x\":%s}", nested(7, "[", "", "]")), FG_INVALID_REQUEST,
                   "/resource /x ");
    expect_refusal(test_printf("{\"x\":%s}", nested(8, "[", "", "]")), FG_INVALID_JSON, "");
    expect_refusal(nested(9, "{\"x\":", "1", "}"), FG_INVALID_JSON, "");
    /* Text that would overflow the stack of a parser that recurses. */
    size_t bytes = 1000000;
    char *deep = test_alloc(bytes + 1);
    memset(deep, '[', bytes);
    assert_false(read_bytes(deep, bytes));
    assert_int_equal(refusal, FG_INVALID_JSON);
    /* Brackets in strings do not nest; a quote behind a backslash does not end one. */
    assert_true(read_text("{\"resource\":\"[[[[[[[[[[{{{{{{{{{{\"}"));
    assert_true(read_text("{\"resource\":\"\\\"[[[[[[[[[[{{{{{{{{{{\\\\\"}"));
    expect_refusal(test_printf("{\"x\\\\\":%s}", nested(8, "[", "", "]")), FG_INVALID_JSON, "");
}

static void the_cut_body_is_never_read_beyond_its_end(void **state)
{
    (void)state;
    const char *whole = "{\"resource\":\"caf\xc3\xa9\\u00e9\\\\\",\"ttl_ms\":100,\"owner\":null}";
    for (size_t bytes = 1; bytes < strlen(whole); bytes++) {
        assert_false(read_bytes(whole, bytes));
        assert_int_equal(refusal, FG_INVALID_JSON);
    }
    assert_true(read_text(whole));
}

/* ---- Query parameters ------------------------------------------------------------------------ */

static bool read_limit(const char *text, int64_t *number)
{
    const struct query_parameter sent = {"limit", text};
    query = text ? &sent : NULL;
    json_decref(refusal_facts);
    refusal_facts = NULL;
    refusal = FG_OK;
    struct request *request = cleanup_add(free_arena, test_alloc(sizeof *request));
    bool taken = query_integer(request, "limit", 1, 1000, 100, number);
    assert_int_equal(taken, refusal == FG_OK);
    query = NULL;
    return taken;
}

static void integers_of_the_query(void **state)
{
    (void)state;
    int64_t number;
    assert_true(read_limit(NULL, &number));
    assert_int_equal(number, 100);
    assert_true(read_limit("1", &number));
    assert_int_equal(number, 1);
    assert_true(read_limit("1000", &number));
    assert_int_equal(number, 1000);
    const char *const bad[] = {"",
                               "0",
                               "1001",
                               "-1",
                               "+1",
                               " 1",
                               "1 ",
                               "1.0",
                               "1e2",
                               "0x1",
                               "ten",
                               "1\n",
                               "99999999999999999999",
                               "999999999999999999",
                               "18446744073709551617"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (read_limit(bad[i], &number))
            fail_msg("taken: \"%s\"", bad[i]);
        assert_int_equal(refusal, FG_INVALID_REQUEST);
        assert_string_equal(pointers(), "?limit ");
        assert_string_equal(refusal_detail, "limit: A whole number from 1 to 1000.");
    }
}

#define TEST(function) cmocka_unit_test_teardown(function, forget)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(fields_are_read_and_the_rest_keeps_its_defaults),
        TEST(an_empty_body_is_an_empty_object),
        TEST(null_counts_as_not_sent_where_a_string_is_optional),
        TEST(what_is_not_json_is_refused),
        TEST(a_nul_in_the_body_does_not_end_it),
        TEST(only_an_object_is_a_body),
        TEST(integers_are_integers_within_their_range),
        TEST(strings_are_strings_of_at_most_so_many_bytes),
        TEST(strings_can_have_a_least_length),
        TEST(booleans_are_true_or_false),
        TEST(unknown_fields_are_refused),
        TEST(a_pointer_is_escaped_as_json_pointers_are),
        TEST(every_fault_is_told_at_once),
        TEST(names_are_judged_last_with_a_code_of_their_own),
        TEST(deep_nesting_is_refused_before_it_is_parsed),
        TEST(the_cut_body_is_never_read_beyond_its_end),
        TEST(integers_of_the_query),
    };
    return cmocka_run_group_tests_name("body", tests, NULL, NULL);
}
