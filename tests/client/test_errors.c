/* test_errors.c - what libfence tells of a refusal: one status for each code of gateway/errors.def,
 * texts that fit, and numbers that mean something.
 *
 * The server is a stub. All calls read answers by the same code; these cases ask for a write. */
#include "gateway/errors.h"
#include "tests/support/client.h"

static struct stub *stub;
static struct fence_client *c;

static int start_stub(void **state)
{
    (void)state;
    stub = stub_start();
    c = client_of(stub_url(stub));
    return 0;
}

#define STUB_TEST(function) cmocka_unit_test_setup_teardown(function, start_stub, cleanup_test)

/* A write that is answered like this. */
static enum fence_status put_answered(const char *answer)
{
    struct fence_record record = {.resource = "r", .key = "k", .token = STUB_TOKEN};
    stub_play(stub, "PUT /store/r/k", STEPS({.text = answer}));
    return fence_put(c, &record, "v", 1, NULL, &failure);
}

/* The same with a problem whose members are these. */
static enum fence_status put_refused(int status, const char *members)
{
    return put_answered(stub_answer(status, "Content-Type: application/problem+json\r\n",
                                    test_printf("{\"status\":%d,%s}", status, members)));
}

/* ---- Codes ----------------------------------------------------------------------------------- */

/* Those that have a status of their own. Of the others, what may work later is FENCE_BUSY, and the
 * rest is FENCE_REFUSED. */
static const struct {
    const char *code;
    enum fence_status status;
} own[] = {
    {"lease_held", FENCE_HELD},
    {"lease_expired", FENCE_EXPIRED},
    {"lease_superseded", FENCE_SUPERSEDED},
    {"lease_released", FENCE_RELEASED},
    {"lease_revoked", FENCE_REVOKED},
    {"lease_not_found", FENCE_NOT_FOUND},
    {"resource_not_found", FENCE_NOT_FOUND},
    {"record_not_found", FENCE_NOT_FOUND},
    {"stale_fencing_token", FENCE_STALE},
    {"fencing_token_not_issued", FENCE_STALE},
    {"lease_mismatch", FENCE_STALE},
    {"version_mismatch", FENCE_MISMATCH},
};

static enum fence_status expected_of(const struct fg_error *error)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i].code, error->code) == 0)
            return own[i].status;
    return error->retryable ? FENCE_BUSY : FENCE_REFUSED;
}

static void every_code_of_the_gateway_has_its_status(void **state)
{
    (void)state;
    for (int known = FG_OK + 1; known < FG_STATUS_COUNT; known++) {
        const struct fg_error *error = fg_error((enum fg_status)known);
        EXPECT_CODE(expected_of(error), error->code,
                    put_answered(stub_problem(error->http, error->code)));
        assert_int_equal(failure.http_status, error->http);
        assert_string_equal(failure.detail, "It is so.");
        assert_int_equal(fence_status_retryable(failure.status), error->retryable);
    }
}

static void a_code_that_is_not_known_yet_is_told(void **state)
{
    (void)state;
    EXPECT_CODE(FENCE_REFUSED, "brand_new", put_answered(stub_problem(422, "brand_new")));
    EXPECT_CODE(FENCE_BUSY, "brand_new", put_answered(stub_problem(503, "brand_new")));
    EXPECT_CODE(FENCE_BUSY, "brand_new",
                put_refused(429, "\"code\":\"brand_new\",\"detail\":\"x\",\"retryable\":true"));
}

/* ---- Texts and numbers ----------------------------------------------------------------------- */

static void numbers_of_a_refusal_are_told(void **state)
{
    (void)state;
    EXPECT(FENCE_STALE, put_refused(412, "\"code\":\"stale_fencing_token\",\"detail\":\"late\","
                                         "\"fencing_token\":7,\"highest_fencing_token\":12"));
    assert_int_equal(failure.highest_fencing_token, 12);
    assert_int_equal(failure.retry_after_ms, 0);
    EXPECT(FENCE_BUSY, put_refused(503, "\"code\":\"overloaded\",\"detail\":\"much\","
                                        "\"retryable\":true,\"retry_after_ms\":1500"));
    assert_int_equal(failure.retry_after_ms, 1500);
    assert_int_equal(failure.highest_fencing_token, 0);
}

static void numbers_that_cannot_be_are_left_out(void **state)
{
    (void)state;
    const char *const values[] = {"-1", "\"5\"", "null", "1.5", "[]"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        EXPECT(FENCE_BUSY,
               put_refused(503, test_printf("\"code\":\"overloaded\",\"retryable\":true,"
                                            "\"retry_after_ms\":%s,\"highest_fencing_token\":%s",
                                            values[i], values[i])));
        assert_int_equal(failure.retry_after_ms, 0);
        assert_int_equal(failure.highest_fencing_token, 0);
    }
}

/* `count` times `piece`. */
static const char *repeated(const char *piece, size_t count)
{
    size_t bytes = strlen(piece);
    char *text = test_alloc(count * bytes + 1);
    for (size_t i = 0; i < count; i++)
        memcpy(text + i * bytes, piece, bytes);
    return text;
}

static bool is_utf8(const char *text)
{
    json_t *json = json_string(text);
    json_decref(json);
    return json != NULL;
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    EXPECT(FENCE_REFUSED,
           put_refused(422, test_printf("\"code\":\"%s\",\"detail\":\"%s\"", repeated("code_", 100),
                                        repeated("detail ", 1000))));
    assert_int_equal(strncmp(failure.code, "code_code_", 10), 0);
    assert_int_equal(strncmp(failure.detail, "detail detail ", 14), 0);
    for (int before = 0; before < 4; before++) { /* not in the middle of a character */
        EXPECT(FENCE_REFUSED, put_refused(422, test_printf("\"code\":\"c\",\"detail\":\"%s%s\"",
                                                           repeated("x", (size_t)before),
                                                           repeated("\xf0\x9f\x94\x92", 300))));
        assert_true(strlen(failure.detail) > FENCE_DETAIL_BYTES - 8);
        assert_true(is_utf8(failure.detail));
    }
}

static void texts_do_nothing_to_a_terminal(void **state)
{
    (void)state;
    EXPECT(FENCE_REFUSED,
           put_refused(422,
                       "\"code\":\"a\\u001b[2Jb\",\"detail\":\"a\\u001b]0;b\\u0007\\nc\\u007f\""));
    assert_null(strpbrk(failure.detail, "\x1b\x07\n\x7f"));
    assert_null(strpbrk(failure.code, "\x1b\x07\n\x7f"));
}

static void a_refusal_without_detail_has_one_of_ours(void **state)
{
    (void)state;
    const char *const details[] = {"\"x\":1", "\"detail\":\"\"", "\"detail\":7", "\"detail\":null"};
    for (size_t i = 0; i < sizeof details / sizeof *details; i++) {
        EXPECT(FENCE_STALE,
               put_refused(412, test_printf("\"code\":\"lease_mismatch\",%s", details[i])));
        assert_true(failure.detail[0] != '\0');
    }
}

/* ---- Statuses -------------------------------------------------------------------------------- */

static void every_status_has_a_text_of_its_own(void **state)
{
    (void)state;
    for (int a = FENCE_OK; a <= FENCE_SYSTEM; a++) {
        const char *text = fence_status_text((enum fence_status)a);
        assert_non_null(text);
        assert_true(*text);
        for (int b = FENCE_OK; b < a; b++)
            assert_string_not_equal(text, fence_status_text((enum fence_status)b));
    }
    assert_non_null(fence_status_text((enum fence_status)(FENCE_SYSTEM + 1)));
    assert_non_null(fence_status_text((enum fence_status)9999));
    assert_non_null(fence_status_text((enum fence_status) - 1));
}

static void what_may_work_later_is_retryable(void **state)
{
    (void)state;
    for (int status = FENCE_OK; status <= FENCE_SYSTEM; status++)
        assert_int_equal(fence_status_retryable((enum fence_status)status),
                         status == FENCE_HELD || status >= FENCE_BUSY);
}

static void nobody_has_to_want_to_know(void **state)
{
    (void)state;
    struct fence_record record = {.resource = "r", .key = "k", .token = STUB_TOKEN};
    struct fence_value value;
    struct fence_lease *lease;
    stub_play(stub, "*", STEPS({.text = stub_problem(503, "overloaded")}));
    assert_int_equal(fence_put(c, &record, "v", 1, NULL, NULL), FENCE_BUSY);
    assert_int_equal(fence_get(c, &record, &value, NULL), FENCE_BUSY);
    assert_int_equal(fence_delete(c, &record, NULL), FENCE_BUSY);
    assert_int_equal(fence_acquire(c, &(struct fence_terms){.resource = "r"}, &lease, NULL),
                     FENCE_BUSY);
    stub_serve(stub, 30000);
    lease = take_lease(c, &(struct fence_terms){.resource = "r"});
    stub_play(stub, "*", STEPS({.text = "nonsense", .end = STUB_CLOSE}));
    assert_true(fence_renew(lease, 0, NULL) >= FENCE_BUSY);
    assert_int_equal(fence_renew(lease, 1, NULL), FENCE_INVALID);
    assert_true(fence_release(lease, NULL) >= FENCE_BUSY);
    stub_stop(stub);
    assert_int_equal(fence_put(c, &record, "v", 1, NULL, NULL), FENCE_UNREACHABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STUB_TEST(every_code_of_the_gateway_has_its_status),
        STUB_TEST(a_code_that_is_not_known_yet_is_told),
        STUB_TEST(numbers_of_a_refusal_are_told),
        STUB_TEST(numbers_that_cannot_be_are_left_out),
        STUB_TEST(long_texts_are_cut),
        STUB_TEST(texts_do_nothing_to_a_terminal),
        STUB_TEST(a_refusal_without_detail_has_one_of_ours),
        STUB_TEST(every_status_has_a_text_of_its_own),
        STUB_TEST(what_may_work_later_is_retryable),
        STUB_TEST(nobody_has_to_want_to_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
