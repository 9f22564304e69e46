/* test_headers.c - the one walk over a request's headers, as libmicrohttpd hands them over.
 *
 * The look-up of libmicrohttpd is replaced by a list, so that every odd thing its parser is known
 * to let through can be said plainly; that it does so is the business of the API tests. */
#include "gateway/headers.h"

#include "gateway/lease_id.h"

#include "tests/support/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <microhttpd.h>

struct header {
    const char *name, *value;
};

static const struct header *sent;

int MHD_get_connection_values(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                              MHD_KeyValueIterator iterator, void *arg)
{
    int count = 0;
    assert_null(connection);
    assert_int_equal(kind, MHD_HEADER_KIND);
    for (const struct header *header = sent; header->name; header++) {
        count++;
        if (iterator(arg, kind, header->name, header->value) == MHD_NO)
            break;
    }
    return count;
}

#define HEADERS(...) ((const struct header[]){__VA_ARGS__, {NULL, NULL}})

static struct request *request;
static const char *detail;
static bool framing;

/* As libmicrohttpd lays a head out: one buffer, line ends and colons replaced by NUL. */
static const struct header *lay_out(const struct header *headers)
{
    char *at = test_alloc(65536);
    size_t count = 0;
    while (headers[count].name)
        count++;
    struct header *laid = test_alloc((count + 1) * sizeof *laid);
    request->head.headers = at;
    for (size_t i = 0; i < count; i++) {
        laid[i].name = at;
        at = stpcpy(at, headers[i].name) + strlen(": ");
        laid[i].value = at;
        at = stpcpy(at, headers[i].value ? headers[i].value : "") + strlen("\r\n");
    }
    request->head.end = at + strlen("\r\n");
    return laid;
}

static enum fg_status read_headers(const struct header *headers)
{
    request = test_alloc(sizeof *request);
    sent = lay_out(headers);
    detail = NULL;
    framing = false;
    enum fg_status status = headers_read(request, &detail, &framing);
    assert_int_equal(status != FG_OK, detail != NULL);
    return status;
}

static void expect_taken(const struct header *headers)
{
    if (read_headers(headers) != FG_OK)
        fail_msg("%s: %s: %s", headers[0].name, headers[0].value, detail);
    assert_false(framing);
}

static void expect_refusal(const struct header *headers, enum fg_status status, bool of_framing)
{
    enum fg_status got = read_headers(headers);
    if (got != status || framing != of_framing)
        fail_msg("%s: %s: %s, %s", headers[0].name, headers[0].value,
                 got == FG_OK ? "taken" : fg_error(got)->code, framing ? "framing" : "no framing");
}

/* ---- Nothing special ------------------------------------------------------------------------- */

static void a_request_without_headers_is_fine(void **state)
{
    (void)state;
    expect_taken(HEADERS({NULL, NULL}));
    const struct request_headers *headers = &request->headers;
    assert_false(headers->has_token);
    assert_false(headers->has_lease);
    assert_false(headers->expects_continue);
    assert_null(headers->content_type);
    assert_null(headers->if_match);
    assert_null(headers->if_none_match);
    assert_int_equal(headers->content_length, -1);
}

static void what_we_know_is_read(void **state)
{
    (void)state;
    struct lease_key key = {.resource_id = 7, .token = 42, .secret = {1, 2, 3}};
    char id[LEASE_ID_CHARS + 1];
    lease_id_write(&key, id);
    expect_taken(HEADERS({"host", "x"}, {"content-LENGTH", "12"}, {"Content-Type", "text/x; y=z"},
                         {"If-Match", "\"v3\""}, {"If-None-Match", "*"}, {"X-FENCING-token", "42"},
                         {"x-lease-id", id}, {"X-Request-Id", "abc"}, {"Expect", "100-Continue"},
                         {"Accept", "*/*"}, {"Accept", "*/*"}));
    const struct request_headers *headers = &request->headers;
    assert_true(headers->has_token);
    assert_int_equal(headers->token, 42);
    assert_true(headers->has_lease);
    assert_int_equal(headers->lease.resource_id, 7);
    assert_int_equal(headers->lease.token, 42);
    assert_memory_equal(headers->lease.secret, key.secret, sizeof key.secret);
    assert_string_equal(headers->content_type, "text/x; y=z");
    assert_string_equal(headers->if_match, "\"v3\"");
    assert_string_equal(headers->if_none_match, "*");
    assert_true(headers->expects_continue);
    assert_int_equal(headers->content_length, 12);
    assert_string_equal(request->id, "abc");
}

/* ---- The token ------------------------------------------------------------------------------- */

static void tokens_that_are_taken(void **state)
{
    (void)state;
    struct {
        const char *text;
        int64_t token;
    } cases[] = {
        {"1", 1},
        {"9", 9},
        {"10", 10},
        {"1000000000000000", INT64_C(1000000000000000)},
        {"9007199254740990", FENCING_TOKEN_MAX - 1},
        {"9007199254740991", FENCING_TOKEN_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_taken(HEADERS({"X-Fencing-Token", cases[i].text}));
        assert_int_equal(request->headers.token, cases[i].token);
    }
}

static void tokens_that_are_malformed(void **state)
{
    (void)state;
    const char *const bad[] = {
        "",
        "0",
        "00",
        "01",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1\t",
        "1.0",
        "1e3",
        "0x1",
        "1,2",
        "1, 2",
        "1;",
        "one",
        "\"1\"",
        "1_000",
        "9007199254740992",
        "9999999999999999",
        "10000000000000000",
        "18446744073709551617",
        "99999999999999999999999999999999999999999",
        "\xd9\xa1",
        "\xef\xbc\x91",
        "1\n",
        "null",
        "NaN",
        "*",
        "1\x0b",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(HEADERS({"X-Fencing-Token", bad[i]}), FG_FENCING_TOKEN_MALFORMED, false);
    expect_refusal(HEADERS({"X-Fencing-Token", NULL}), FG_FENCING_TOKEN_MALFORMED, false);
}

static void there_is_exactly_one_token(void **state)
{
    (void)state;
    expect_refusal(HEADERS({"X-Fencing-Token", "5"}, {"X-Fencing-Token", "5"}),
                   FG_FENCING_TOKEN_MALFORMED, false);
    expect_refusal(HEADERS({"X-Fencing-Token", "5"}, {"x-fencing-token", "6"}),
                   FG_FENCING_TOKEN_MALFORMED, false);
    expect_refusal(HEADERS({"X-Fencing-Token", "5"}, {"X-Fencing-Token", ""}),
                   FG_FENCING_TOKEN_MALFORMED, false);
}

/* ---- The lease id ---------------------------------------------------------------------------- */

static void what_is_no_lease_id_matches_no_lease(void **state)
{
    (void)state;
    const char *const bad[] = {"x",
                               "0",
                               "../..",
                               "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                               "________________________________________",
                               " "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_taken(HEADERS({"X-Lease-Id", bad[i]}));
        assert_true(request->headers.has_lease);
        assert_int_equal(request->headers.lease.resource_id, 0);
    }
}

static void a_lease_id_is_one_and_not_empty(void **state)
{
    (void)state;
    expect_refusal(HEADERS({"X-Lease-Id", ""}), FG_BAD_HEADER, false);
    expect_refusal(HEADERS({"X-Lease-Id", NULL}), FG_BAD_HEADER, false);
    expect_refusal(HEADERS({"X-Lease-Id", "a"}, {"X-Lease-Id", "a"}), FG_BAD_HEADER, false);
}

/* ---- Framing --------------------------------------------------------------------------------- */

static void framing_that_cannot_be_trusted_is_refused(void **state)
{
    (void)state;
    const struct header *const cases[] = {
        HEADERS({"Content-Length", "1"}, {"Content-Length", "1"}),
        HEADERS({"Content-Length", "1"}, {"content-length", "2"}),
        HEADERS({"Content-Length", "1"}, {"Transfer-Encoding", "chunked"}),
        HEADERS({"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}),
        HEADERS({"Transfer-Encoding", "gzip, chunked"}),
        HEADERS({"Transfer-Encoding", "identity"}),
        HEADERS({"Transfer-Encoding", ""}),
        HEADERS({"Transfer-Encoding", "chunked, chunked"}),
        HEADERS({"Transfer-Encoding", "\x0b"
                                      "chunked"}),
        HEADERS({"Host", "a"}, {"Host", "a"}),
        HEADERS({"Content-Length", ""}),
        HEADERS({"Content-Length", "-1"}),
        HEADERS({"Content-Length", "+1"}),
        HEADERS({"Content-Length", "1 1"}),
        HEADERS({"Content-Length", "0x10"}),
        HEADERS({"Content-Length", "1, 1"}),
        HEADERS({"Content-Length", "9999999999999999999"}),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refusal(cases[i], FG_BAD_HEADER, true);
    expect_taken(HEADERS({"Transfer-Encoding", "Chunked"}));
    expect_taken(HEADERS({"Content-Length", "0"}));
    expect_taken(HEADERS({"Content-Length", "999999999999999999"}));
}

static void a_strange_header_name_is_a_fault_of_framing(void **state)
{
    (void)state;
    const char *const names[] = {
        "",
        "X Y",
        "X-Fencing-Token ",
        "X-Fencing-Token\t",
        " X-Fencing-Token",
        "a(b",
        "a\"b",
        "caf\xc3\xa9",
        "a\x01",
        "a/b",
        "[x]",
        "a,b",
        "a=b",
        "a@b",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_refusal(HEADERS({names[i], "1"}), FG_BAD_HEADER, true);
    expect_taken(HEADERS({"!#$%&'*+-.^_`|~09azAZ", "1"}));
}

/* A folded line is glued to the name of the header above it. */
static void a_folded_header_is_found_by_what_is_glued_to_its_name(void **state)
{
    (void)state;
    expect_refusal(HEADERS({"X-Fencing-Token7", "5"}), FG_BAD_HEADER, true);
    expect_refusal(HEADERS({"x-fencing-token7", "5"}), FG_BAD_HEADER, true);
    expect_refusal(HEADERS({"X-Lease-Idabc", "x"}), FG_BAD_HEADER, true);
    expect_refusal(HEADERS({"If-Match\"v1\"", "x"}), FG_BAD_HEADER, true);
    expect_refusal(HEADERS({"Content-Length0", "5"}), FG_BAD_HEADER, true);
    expect_refusal(HEADERS({"Transfer-Encodingx", "chunked"}), FG_BAD_HEADER, true);
    expect_taken(HEADERS({"Expect-CT", "x"}));
    expect_taken(HEADERS({"Hostess", "x"}));
    expect_taken(HEADERS({"X-Fencing-Toke", "x"}));
    expect_taken(HEADERS({"If", "x"}));
    assert_false(request->headers.has_token);
}

static void faults_of_framing_are_found_first(void **state)
{
    (void)state;
    expect_refusal(
        HEADERS({"X-Fencing-Token", "x"}, {"X-Lease-Id", ""}, {"Host", "a"}, {"Host", "b"}),
        FG_BAD_HEADER, true);
    expect_refusal(HEADERS({"Idempotency-Key", "x"}, {"a b", "c"}), FG_BAD_HEADER, true);
}

/* ---- The others ------------------------------------------------------------------------------ */

static void what_may_stand_once_stands_once(void **state)
{
    (void)state;
    const char *const names[] = {"Content-Type", "If-Match", "If-None-Match", "Expect"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_refusal(HEADERS({names[i], "100-continue"}, {names[i], "100-continue"}),
                       FG_BAD_HEADER, false);
    expect_taken(HEADERS({"Accept", "a"}, {"Accept", "b"}, {"Via", "c"}, {"Via", "d"}));
}

static void what_comes_later_is_refused(void **state)
{
    (void)state;
    expect_refusal(HEADERS({"Idempotency-Key", "abc"}), FG_BAD_HEADER, false);
    expect_refusal(HEADERS({"idempotency-key", ""}), FG_BAD_HEADER, false);
}

static void content_types(void **state)
{
    (void)state;
    expect_refusal(HEADERS({"Content-Type", ""}), FG_BAD_HEADER, false);
    expect_refusal(HEADERS({"Content-Type", "text/\x01"}), FG_BAD_HEADER, false);
    expect_refusal(HEADERS({"Content-Type", "text/\x7f"}), FG_BAD_HEADER, false);
    expect_refusal(HEADERS({"Content-Type", "caf\xc3\xa9"}), FG_BAD_HEADER, false);
    expect_refusal(HEADERS({"Content-Type", "a\tb"}), FG_BAD_HEADER, false);
    expect_refusal(HEADERS({"Content-Type", test_printf("%0256d", 7)}), FG_BAD_HEADER, false);
    expect_taken(HEADERS({"Content-Type", test_printf("%0255d", 7)}));
    expect_taken(HEADERS({"Content-Type", "anything goes"}));
}

static void expectations(void **state)
{
    (void)state;
    expect_refusal(HEADERS({"Expect", "200-ok"}), FG_BAD_HEADER, false);
    expect_refusal(HEADERS({"Expect", ""}), FG_BAD_HEADER, false);
    expect_taken(HEADERS({"Expect", "100-continue"}));
    assert_true(request->headers.expects_continue);
}

static void conditions_are_handed_on_as_they_are(void **state)
{
    (void)state;
    expect_taken(HEADERS({"If-Match", ""}, {"If-None-Match", "\xff"}));
    assert_string_equal(request->headers.if_match, "");
    assert_string_equal(request->headers.if_none_match, "\xff");
}

/* ---- Request ids ----------------------------------------------------------------------------- */

static bool is_generated(const char *id)
{
    return strlen(id) == 16 && strspn(id, "0123456789abcdef") == 16;
}

static void a_request_id_of_the_client_is_kept(void **state)
{
    (void)state;
    const char *longest = test_printf("%0128d", 7);
    const char *const good[] = {"a", "A.b-C_9", "...", "-", longest};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        expect_taken(HEADERS({"X-Request-Id", good[i]}));
        assert_string_equal(request->id, good[i]);
    }
}

static void any_other_is_replaced(void **state)
{
    (void)state;
    const char *const bad[] = {"",    "a b", "a/b",   "caf\xc3\xa9",
                               "a\n", "a:b", "a\x01", test_printf("%0129d", 7)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_taken(HEADERS({"X-Request-Id", bad[i]}));
        assert_true(is_generated(request->id));
    }
    expect_taken(HEADERS({"X-Request-Id", "one"}, {"X-Request-Id", "two"}));
    assert_true(is_generated(request->id));
    expect_taken(HEADERS({NULL, NULL}));
    const char *first = request->id;
    expect_taken(HEADERS({NULL, NULL}));
    assert_string_not_equal(request->id, first);
}

/* Also a refused request is answered with its id. */
static void a_refused_request_has_an_id_as_well(void **state)
{
    (void)state;
    expect_refusal(HEADERS({"X-Request-Id", "mine"}, {"Host", "a"}, {"Host", "b"}), FG_BAD_HEADER,
                   true);
    assert_string_equal(request->id, "mine");
}

#define TEST(function) cmocka_unit_test_teardown(function, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_without_headers_is_fine),
        TEST(what_we_know_is_read),
        TEST(tokens_that_are_taken),
        TEST(tokens_that_are_malformed),
        TEST(there_is_exactly_one_token),
        TEST(what_is_no_lease_id_matches_no_lease),
        TEST(a_lease_id_is_one_and_not_empty),
        TEST(framing_that_cannot_be_trusted_is_refused),
        TEST(a_strange_header_name_is_a_fault_of_framing),
        TEST(a_folded_header_is_found_by_what_is_glued_to_its_name),
        TEST(faults_of_framing_are_found_first),
        TEST(what_may_stand_once_stands_once),
        TEST(what_comes_later_is_refused),
        TEST(content_types),
        TEST(expectations),
        TEST(conditions_are_handed_on_as_they_are),
        TEST(a_request_id_of_the_client_is_kept),
        TEST(any_other_is_replaced),
        TEST(a_refused_request_has_an_id_as_well),
    };
    return cmocka_run_group_tests_name("headers", tests, NULL, NULL);
}
