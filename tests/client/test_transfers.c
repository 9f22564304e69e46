/* test_transfers.c - how an answer may travel: at once or drop by drop, in chunks, broken off,
 * without end. What is in it is in test_answers.c.
 *
 * The server is a stub. */
#include "tests/support/client.h"

static struct stub *stub;
static struct fence_client *c;
static int patience_ms; /* the timeout of the next clients */

/* One whose connections nobody has closed yet. */
static void renew_client(void)
{
    c = client_with(&(struct fence_options){.url = stub_url(stub), .timeout_ms = patience_ms});
}

/* A stub of each test's own. */
static int start_stub(void **state)
{
    (void)state;
    stub = stub_start();
    patience_ms = slow_ms(10000);
    renew_client();
    return 0;
}

#define STUB_TEST(function) cmocka_unit_test_setup_teardown(function, start_stub, cleanup_test)

/* Asks for a lease that is answered like this. If it is one, the test has it. */
static enum fence_status ask(const struct stub_step *answer)
{
    struct fence_lease *lease = (struct fence_lease *)&lease;
    stub_play(stub, ACQUIRES, answer, 1);
    renew_client();
    enum fence_status status =
        fence_acquire(c, &(struct fence_terms){.resource = "r"}, &lease, &failure);
    if (status == FENCE_OK)
        adopt(lease);
    else
        assert_null(lease);
    return status;
}

#define OK_JSON   "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
#define CHUNKED   OK_JSON "Transfer-Encoding: chunked\r\n\r\n"
#define LENGTH(n) OK_JSON "Content-Length: " #n "\r\n\r\n"

static void an_answer_may_come_in_every_way_that_http_allows(void **state)
{
    (void)state;
    const char *body = lease_body("limit", "1");
    const char *whole = stub_json(201, body);
    const struct stub_step steps[] = {
        {.text = whole},
        {.text = whole, .end = STUB_CLOSE},
        {.text = whole, .drip_ms = 1},
        {.text = whole, .delay_ms = 300},
        {.text = test_printf("HTTP/1.1 100 Continue\r\n\r\n%s", whole)},
        {.text = test_printf("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n%s", whole)},
        {.text = test_printf(CHUNKED "%zx\r\n%s\r\n0\r\n\r\n", strlen(body), body)},
        {.text = test_printf(CHUNKED "1;x=y\r\n{\r\n%zx\r\n%s\r\n0\r\nTrailer: x\r\n\r\n",
                             strlen(body) - 1, body + 1)},
        {.text = test_printf(OK_JSON "\r\n%s", body), .end = STUB_CLOSE},
        {.text = test_printf("HTTP/1.0 201 Created\r\n\r\n%s", body), .end = STUB_CLOSE},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        EXPECT(FENCE_OK, ask(&steps[i]));
        assert_int_equal(failure.http_status, 201);
    }
}

static void an_answer_that_breaks_off_is_none(void **state)
{
    (void)state;
    enum { HEAD = 30 }; /* a part of it: may be taken for a whole answer */
    const char *whole = stub_json(201, lease_body("limit", "1"));
    const struct stub_step steps[] = {
        {.end = STUB_CLOSE},
        {.end = STUB_RESET},
        {.end = STUB_HANG},
        {.text = "H", .end = STUB_HANG},
        {.text = whole, .count = HEAD, .end = STUB_CLOSE},
        {.text = whole, .count = strlen(whole) - 1, .end = STUB_CLOSE},
        {.text = whole, .count = strlen(whole) - 1, .end = STUB_RESET},
        {.text = whole, .count = strlen(whole) - 1, .end = STUB_HANG},
        {.text = CHUNKED "2\r\n{}", .end = STUB_CLOSE},
        {.text = LENGTH(99999999999) "{}", .end = STUB_HANG},
        {.text = "HTTP/1.1 100 Continue\r\n\r\n", .end = STUB_HANG},
        {.text = "HTTP/1.1 100 Continue\r\n\r\n", .end = STUB_CLOSE},
        {.text = whole, .drip_ms = slow_ms(200)},
    };
    patience_ms = slow_ms(300);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        long long start_ms = now_ms();
        enum fence_status status = ask(&steps[i]);
        if (status != FENCE_NO_ANSWER && (status != FENCE_BAD_ANSWER || steps[i].count != HEAD))
            fail_msg("step %zu: %s: %s", i, status_name(status), failure.detail);
        assert_true(now_ms() - start_ms < slow_ms(10000));
    }
}

static void an_endless_answer_is_not_read_for_ever(void **state)
{
    (void)state;
    static const char head[] = "HTTP/1.1 201 Created\r\n\r\n{";
    enum { PIECE = 1 << 20, TIMES = 300 }; /* more than the 256 MiB of any answer */
    char *piece = test_alloc(PIECE + 1);
    memset(piece, ' ', PIECE);
    memcpy(piece, head, sizeof head - 1);
    EXPECT(FENCE_BAD_ANSWER,
           ask(&(struct stub_step){.text = piece, .times = TIMES, .end = STUB_CLOSE}));

    enum fence_status status = ask(&(struct stub_step){
        .text = "HTTP/1.1 100 Continue\r\n\r\n", .times = 200000, .end = STUB_CLOSE});
    assert_true(status == FENCE_BAD_ANSWER || status == FENCE_NO_ANSWER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STUB_TEST(an_answer_may_come_in_every_way_that_http_allows),
        STUB_TEST(an_answer_that_breaks_off_is_none),
        STUB_TEST(an_endless_answer_is_not_read_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
