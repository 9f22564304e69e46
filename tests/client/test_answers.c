/* test_answers.c - what libfence makes of answers: the gateway's own, and everything else that may
 * stand at its address.
 *
 * The server is a stub. Nonsense gives FENCE_BAD_ANSWER, or FENCE_NO_ANSWER where it breaks off;
 * never a lease, never a crash. */
#include "tests/support/client.h"

static struct stub *stub;
static struct fence_client *c;

/* One whose connections nobody has closed yet. */
static void renew_client(void)
{
    c = client_of(stub_url(stub));
}

/* A stub of each test's own. */
static int start_stub(void **state)
{
    (void)state;
    stub = stub_start();
    renew_client();
    return 0;
}

#define STUB_TEST(function) cmocka_unit_test_setup_teardown(function, start_stub, cleanup_test)

/* Asks for a lease that is answered like this. If it is one, the test has it. */
static enum fence_status ask(const char *answer)
{
    struct fence_lease *lease = (struct fence_lease *)&lease;
    stub_play(stub, ACQUIRES, STEPS({.text = answer, .end = STUB_CLOSE}));
    renew_client();
    enum fence_status status =
        fence_acquire(c, &(struct fence_terms){.resource = "r"}, &lease, &failure);
    if (status == FENCE_OK)
        adopt(lease);
    else
        assert_null(lease);
    return status;
}

/* A lease with a renewal that is answered like this. */
static struct fence_lease *lease_renewed_with(const char *answer)
{
    stub_serve(stub, 600000);
    stub_play(stub, RENEWALS, STEPS({.text = answer}));
    return take_lease(c, &(struct fence_terms){.resource = "r", .ttl_ms = 600000});
}

/* ---- What is no answer of fencegate ---------------------------------------------------------- */

#define OK_JSON     "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
#define CHUNKED     OK_JSON "Transfer-Encoding: chunked\r\n\r\n"
#define LENGTH(n)   OK_JSON "Content-Length: " #n "\r\n\r\n"
#define REDIRECT(n) "HTTP/1.1 " #n " Elsewhere\r\nLocation: /leases\r\nContent-Length: 0\r\n\r\n"

static void nonsense_is_never_a_lease(void **state)
{
    (void)state;
    const char *const answers[] = {
        stub_answer(200, "Content-Type: text/html\r\n", "<html>It works!</html>"),
        stub_answer(201, "Content-Type: text/html\r\n", "<html>It works!</html>"),
        stub_answer(200, "", ""),
        stub_json(201, ""),
        stub_json(201, "{}"),
        stub_json(201, "[]"),
        stub_json(201, "null"),
        stub_json(201, "7"),
        stub_json(201, "\"lease\""),
        stub_json(201, "{\"lease_id\":"),
        stub_json(201, "\xff\xfe{}"),
        stub_json(201, "{\"error\":\"no\"}"),
        stub_json(201, test_printf("%s trailing", lease_body("limit", "1"))),
        stub_json(201, test_printf("%s%s", lease_body("limit", "1"), lease_body("limit", "1"))),
        stub_json(201, test_printf("[%s]", lease_body("limit", "1"))),
        stub_json(201, test_printf("{\"lease_id\":\"a\",%s", lease_body("limit", "1") + 1)),
        stub_json(204, ""),
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\n\r\n",
        REDIRECT(301),
        REDIRECT(302),
        REDIRECT(307),
        REDIRECT(308),
        stub_answer(400, "", "Bad Request"),
        stub_answer(401, "WWW-Authenticate: Basic realm=\"proxy\"\r\n", "who are you"),
        stub_answer(403, "Content-Type: text/html\r\n", "<html>no</html>"),
        stub_answer(404, "Content-Type: text/html\r\n", "<html>no</html>"),
        stub_answer(407, "Proxy-Authenticate: Basic realm=\"proxy\"\r\n", ""),
        stub_answer(409, "Content-Type: text/html\r\n", "conflict"),
        stub_answer(410, "", "gone"),
        stub_answer(500, "", ""),
        stub_answer(502, "Content-Type: text/html\r\n", "<html>bad gateway</html>"),
        stub_answer(503, "Content-Type: text/html\r\n", "<html>nginx</html>"),
        stub_answer(999, "", "what?"),
        stub_json(409, "{\"code\":7,\"status\":409}"),
        stub_json(409, "{\"status\":409}"),
        stub_json(409, "{\"status\":410,\"code\":\"lease_held\"}"),
        stub_problem(409, "lease_held") + 1,
        "HTTP/1.1 \r\n\r\n",
        "HTTP/9.9 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\x15\x03\x01\x02\x02\x16",
        "\r\n\r\n\r\n\r\n",
        LENGTH(-1) "{}",
        LENGTH(99999999999999999999) "{}",
        CHUNKED "zz\r\n{}\r\n0\r\n\r\n",
        CHUNKED "2\r\n{}\r\n0\r\n\r\n",
        CHUNKED "0\r\n\r\n",
        OK_JSON "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        enum fence_status status = ask(answers[i]);
        if (status != FENCE_BAD_ANSWER && status != FENCE_NO_ANSWER)
            fail_msg("%s: %s", answers[i], status_name(status));
        EXPECT(status, status);
        assert_string_equal(failure.code, "");
        assert_int_equal(stub_count(stub, "*"), (int)i + 1); /* nothing else was asked */
    }
}

static void a_whole_answer_of_somebody_else_is_a_bad_one(void **state)
{
    (void)state;
    EXPECT(FENCE_BAD_ANSWER, ask(stub_answer(200, "Content-Type: text/html\r\n", "<html>")));
    assert_int_equal(failure.http_status, 200);
    EXPECT(FENCE_BAD_ANSWER, ask(stub_answer(503, "Content-Type: text/html\r\n", "<html>")));
    assert_int_equal(failure.http_status, 503);
    EXPECT(FENCE_BAD_ANSWER, ask(REDIRECT(307)));
    assert_int_equal(failure.http_status, 307);
}

static void a_lease_with_one_wrong_member_is_none(void **state)
{
    (void)state;
    static const struct {
        const char *member;
        const char *values[12];
    } wrong[] = {
        {"lease_id",
         {NULL, "null", "\"\"", "7", "\"../admin\"", "\"a b\"", "\"a?b\"", "\"\xc3\xbc\""}},
        {"resource", {NULL, "null", "\"another\"", "7"}},
        {"fencing_token",
         {NULL, "null", "0", "-1", "9007199254740992", "1.5", "\"7\"", "9223372036854775807"}},
        {"ttl_ms", {NULL, "null", "-1", "\"30000\"", "1.5", "9223372036854775807"}},
        {"expires_in_ms", {NULL, "null", "-1", "\"30000\"", "1.5", "9223372036854775807"}},
        {"waited_ms", {NULL, "null", "-1", "\"0\"", "1.5"}},
        {"limit", {NULL, "null", "0", "-1", "\"1\"", "1.5", "9223372036854775807"}},
        {"expires_at", {NULL, "null", "7"}},
    };
    int asked = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        for (int j = 0; j == 0 || wrong[i].values[j]; j++) {
            enum fence_status status =
                ask(stub_json(201, lease_body(wrong[i].member, wrong[i].values[j])));
            if (status != FENCE_BAD_ANSWER)
                fail_msg("%s %s: %s", wrong[i].member, wrong[i].values[j], status_name(status));
            EXPECT(status, status);
            asked++;
        }
    }
    assert_int_equal(stub_count(stub, ACQUIRES), asked);
    assert_int_equal(stub_count(stub, RENEWALS), 0);
    EXPECT(FENCE_OK, ask(stub_json(201, lease_body("something_new", "{\"a\":[1]}"))));
}

/* ---- Renewals and releases ------------------------------------------------------------------- */

static void nonsense_renews_nothing(void **state)
{
    (void)state;
    const char *const answers[] = {
        stub_answer(200, "Content-Type: text/html\r\n", "<html>"),
        stub_json(200, "{}"),
        stub_json(200, lease_body("lease_id", "\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwe\"")),
        stub_json(200, lease_body("resource", "\"another\"")),
        stub_json(200, lease_body("fencing_token", "8")),
        stub_json(200, lease_body("expires_in_ms", "null")),
        stub_json(200, lease_body("expires_in_ms", "-5")),
        stub_json(204, ""),
        stub_answer(404, "", "no"),
        stub_answer(410, "", "no"),
        REDIRECT(302),
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct fence_lease *lease = lease_renewed_with(answers[i]);
        long long deadline_ms = fence_deadline_boot_ms(lease);
        sleep_ms(5);
        enum fence_status status = fence_renew(lease, 0, &failure);
        if (status != FENCE_BAD_ANSWER)
            fail_msg("%s: %s", answers[i], status_name(status));
        assert_true(fence_still_held(lease));
        assert_int_equal(fence_deadline_boot_ms(lease), deadline_ms);
        EXPECT(FENCE_OK, fence_release(lease, &failure));
    }
}

static void a_renewal_with_nothing_left_is_none(void **state)
{
    (void)state;
    struct fence_lease *lease = lease_renewed_with(stub_lease_times(200, 600000, 0, 0));
    assert_int_not_equal(fence_renew(lease, 0, &failure), FENCE_OK);
    assert_true(fence_left_ms(lease) <= 600000);
}

static void nonsense_releases_nothing(void **state)
{
    (void)state;
    const char *const answers[] = {
        stub_answer(200, "Content-Type: text/html\r\n", "<html>"),
        stub_json(200, "{}"),
        stub_json(200, "{\"released\":false}"),
        stub_json(200, "{\"released\":\"true\"}"),
        stub_answer(204, "", ""),
        stub_answer(404, "", "no"),
        stub_answer(410, "", "no"),
        REDIRECT(302),
    };
    struct fence_lease *lease = lease_renewed_with(stub_lease(200, 600000));
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        stub_play(stub, RELEASES, STEPS({.text = answers[i]}));
        enum fence_status status = fence_release(lease, &failure);
        if (status != FENCE_BAD_ANSWER && status != FENCE_NO_ANSWER)
            fail_msg("%s: %s", answers[i], status_name(status));
        EXPECT(status, status);
        assert_false(fence_still_held(lease));
    }
}

/* ---- Records --------------------------------------------------------------------------------- */

static const struct fence_record record = {.resource = "r", .key = "k", .token = STUB_TOKEN};

static void nonsense_is_never_a_write(void **state)
{
    (void)state;
    const char *const answers[] = {
        stub_answer(200, "Content-Type: text/html\r\n", "<html>"),
        stub_json(200, "{}"),
        stub_json(200, "{\"resource\":\"r\",\"key\":\"k\",\"fencing_token\":7}"),
        stub_json(200, "{\"resource\":\"r\",\"key\":\"k\",\"version\":0,\"fencing_token\":7}"),
        stub_json(200, "{\"resource\":\"r\",\"key\":\"k\",\"version\":-3,\"fencing_token\":7}"),
        stub_json(200, "{\"resource\":\"r\",\"key\":\"k\",\"version\":\"3\",\"fencing_token\":7}"),
        stub_json(200, "[3]"),
        stub_answer(204, "", ""),
        stub_answer(404, "", "no"),
        stub_answer(412, "", "no"),
        stub_answer(413, "", "too large"),
        REDIRECT(307),
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        int64_t version = 0;
        renew_client();
        stub_play(stub, "PUT /store/r/k", STEPS({.text = answers[i]}));
        enum fence_status status = fence_put(c, &record, "v", 1, &version, &failure);
        if (status != FENCE_BAD_ANSWER)
            fail_msg("%s: %s", answers[i], status_name(status));
        EXPECT(status, status);
        assert_int_equal(version, 0);
    }
    stub_play(stub, "DELETE /store/r/k", STEPS({.text = answers[0]}, {.text = answers[8]}));
    EXPECT(FENCE_BAD_ANSWER, fence_delete(c, &record, &failure));
    EXPECT(FENCE_BAD_ANSWER, fence_delete(c, &record, &failure));
}

static void nonsense_is_never_a_value(void **state)
{
    (void)state;
    const char *const answers[] = {
        stub_answer(200, "Content-Type: text/html\r\n", "<html>log in first</html>"),
        stub_answer(200, "ETag: \"3\"\r\n", "100"),
        stub_answer(200, "ETag: W/\"v3\"\r\n", "100"),
        stub_answer(200, "ETag: \"v0\"\r\n", "100"),
        stub_answer(200, "ETag: \"v-1\"\r\n", "100"),
        stub_answer(200, "ETag: \"v3x\"\r\n", "100"),
        stub_answer(200, "ETag: \"v99999999999999999999\"\r\n", "100"),
        stub_answer(204, "ETag: \"v3\"\r\n", ""),
        stub_answer(304, "ETag: \"v3\"\r\n", ""),
        stub_answer(404, "", "no"),
        REDIRECT(302),
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct fence_value value;
        memset(&value, 7, sizeof value);
        renew_client();
        stub_play(stub, "GET /store/r/k", STEPS({.text = answers[i], .end = STUB_CLOSE}));
        enum fence_status status = fence_get(c, &record, &value, &failure);
        if (status != FENCE_BAD_ANSWER)
            fail_msg("%s: %s", answers[i], status_name(status));
        EXPECT(status, status);
        assert_null(value.bytes);
        assert_null(value.content_type);
        assert_int_equal(value.count, 0);
        fence_value_free(&value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STUB_TEST(nonsense_is_never_a_lease),
        STUB_TEST(a_whole_answer_of_somebody_else_is_a_bad_one),
        STUB_TEST(a_lease_with_one_wrong_member_is_none),
        STUB_TEST(nonsense_renews_nothing),
        STUB_TEST(a_renewal_with_nothing_left_is_none),
        STUB_TEST(nonsense_releases_nothing),
        STUB_TEST(nonsense_is_never_a_write),
        STUB_TEST(nonsense_is_never_a_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
