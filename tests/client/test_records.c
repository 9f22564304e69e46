/* test_records.c - fenced records of libfence at a real gateway: put, get, delete.
 *
 * One gateway for all cases; each uses resources of its own. */
#include "tests/support/client.h"
#include "tests/support/waits.h"

enum { MAX_BODY = 100000 };

static struct gateway *g;
static struct fence_client *c;

static int start_servers(void **state)
{
    (void)state;
    g = gateway_start(redis_server_url(redis_server_start(NULL)),
                      LIST("--max-body", test_printf("%d", MAX_BODY)));
    c = client_of(g->url);
    cleanup_keep();
    return 0;
}

/* A record of a lease that is held, with its right to write. */
static struct fence_record held_record(const char *name, const char *key)
{
    struct fence_terms terms = {.resource = name, .ttl_ms = LONG_TTL_MS};
    return fence_lease_record(take_lease(c, &terms), key);
}

static enum fence_status put_text(const struct fence_record *record, const char *text)
{
    return fence_put(c, record, text, strlen(text), NULL, &failure);
}

static void free_value(void *value)
{
    fence_value_free(value);
}

/* Reads it, until the test ends. */
static const struct fence_value *read_value(const struct fence_record *record)
{
    struct fence_value *value = cleanup_add(free_value, test_alloc(sizeof *value));
    EXPECT(FENCE_OK, fence_get(c, record, value, &failure));
    assert_non_null(value->bytes);
    assert_int_equal(((const char *)value->bytes)[value->count], '\0');
    return value;
}

static void expect_text_of(const struct fence_record *record, const char *text)
{
    const struct fence_value *value = read_value(record);
    assert_int_equal(value->count, strlen(text));
    assert_string_equal(value->bytes, text);
}

/* ---- Written and read ------------------------------------------------------------------------ */

static void what_is_written_can_be_read(void **state)
{
    (void)state;
    struct fence_record record = held_record("written", "total");
    int64_t version = 0;
    EXPECT(FENCE_OK, fence_put(c, &record, "100", 3, &version, &failure));
    assert_int_equal(version, 1);
    EXPECT(FENCE_OK, fence_put(c, &record, "1000", 4, &version, &failure));
    assert_int_equal(version, 2);
    const struct fence_value *value = read_value(&record);
    assert_int_equal(value->count, 4);
    assert_memory_equal(value->bytes, "1000", 5);
    assert_int_equal(value->version, 2);
    assert_int_equal(value->token, record.token);
    assert_string_equal(value->content_type, "application/octet-stream");
    expect_body(fetch(g, "written", "total", 0), "1000");
}

static void a_record_of_a_lease_has_its_token_and_its_id(void **state)
{
    (void)state;
    struct fence_lease *a = take_lease(c, &(struct fence_terms){.resource = "of a lease"});
    struct fence_record record = fence_lease_record(a, "key");
    assert_string_equal(record.resource, "of a lease");
    assert_string_equal(record.key, "key");
    assert_int_equal(record.token, fence_lease_token(a));
    assert_string_equal(record.lease_id, fence_lease_id(a));
    assert_int_equal(record.if_version, FENCE_ANY_VERSION);
}

static void a_value_is_bytes(void **state)
{
    (void)state;
    struct fence_record record = held_record("bytes", "value");
    char bytes[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    EXPECT(FENCE_OK, fence_put(c, &record, bytes, sizeof bytes, NULL, &failure));
    const struct fence_value *value = read_value(&record);
    assert_int_equal(value->count, sizeof bytes);
    assert_memory_equal(value->bytes, bytes, sizeof bytes);

    EXPECT(FENCE_OK, fence_put(c, &record, "", 0, NULL, &failure));
    assert_int_equal(read_value(&record)->count, 0);
    EXPECT(FENCE_OK, fence_put(c, &record, NULL, 0, NULL, &failure));
    assert_int_equal(read_value(&record)->count, 0);
}

static void a_value_may_be_as_large_as_the_gateway_takes(void **state)
{
    (void)state;
    struct fence_record record = held_record("large", "value");
    char *bytes = test_alloc(MAX_BODY + 1);
    for (int i = 0; i < MAX_BODY; i++)
        bytes[i] = (char)(i % 251);
    EXPECT(FENCE_OK, fence_put(c, &record, bytes, MAX_BODY, NULL, &failure));
    const struct fence_value *value = read_value(&record);
    assert_int_equal(value->count, MAX_BODY);
    assert_memory_equal(value->bytes, bytes, MAX_BODY);
    EXPECT_CODE(FENCE_REFUSED, "body_too_large",
                fence_put(c, &record, bytes, MAX_BODY + 1, NULL, &failure));
    assert_int_equal(failure.http_status, 413);

    /* So large that the gateway closes the connection: no signal, and nothing was written. */
    bytes = test_alloc(64 << 20);
    enum fence_status status = fence_put(c, &record, bytes, 64 << 20, NULL, &failure);
    assert_true(status == FENCE_REFUSED || status == FENCE_NO_ANSWER);
    assert_int_equal(read_value(&record)->version, 1);
}

static void a_value_has_a_content_type(void **state)
{
    (void)state;
    struct fence_record record = held_record("type", "value");
    const char *const types[] = {"application/json", "text/plain; charset=utf-8", "x/y"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int64_t version = 0;
        EXPECT(FENCE_OK, fence_put_as(c, &record, types[i], "{}", 2, &version, &failure));
        assert_int_equal(version, i + 1);
        assert_string_equal(read_value(&record)->content_type, types[i]);
    }
}

static void a_content_type_cannot_smuggle_headers(void **state)
{
    (void)state;
    struct fence_record record = held_record("smuggled", "value");
    const char *const types[] = {"text/plain\r\nX-Fencing-Token: 9", "a/b\n", "a/b\r", "\n"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        EXPECT(FENCE_INVALID, fence_put_as(c, &record, types[i], "v", 1, NULL, &failure));
    record.lease_id = "id\r\nX-Other: 1";
    EXPECT(FENCE_INVALID, put_text(&record, "v"));
    struct fence_value value;
    EXPECT(FENCE_INVALID, fence_get(c, &record, &value, &failure));
    EXPECT(FENCE_INVALID, fence_delete(c, &record, &failure));
    expect_problem(fetch(g, "smuggled", "value", 0), 404, "record_not_found");
}

static void every_name_that_the_gateway_takes_can_be_written(void **state)
{
    (void)state;
    const char *const names[] = {"a/b",
                                 "/",
                                 "\xc3\xbc",
                                 "%",
                                 "%2F",
                                 "?",
                                 "a?b=c&d#e",
                                 " ",
                                 "a + b",
                                 "\"\\",
                                 "...",
                                 "{braces}",
                                 "~user",
                                 "\xf0\x9f\x94\x92",
                                 test_printf("%0200d", 7)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fence_record record = held_record(names[i], names[i]);
        EXPECT(FENCE_OK, put_text(&record, names[i]));
        expect_text_of(&record, names[i]);
        expect_body(fetch(g, names[i], names[i], 0), names[i]);
        EXPECT(FENCE_OK, fence_delete(c, &record, &failure));
    }
}

static void names_that_the_gateway_does_not_take_are_told(void **state)
{
    (void)state;
    const char *const names[] = {".", "..", "a\nb", "\xff"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fence_record record = {.resource = names[i], .key = "key", .token = 1};
        EXPECT_CODE(FENCE_REFUSED, "invalid_name", put_text(&record, "v"));
        record = (struct fence_record){.resource = "r", .key = names[i], .token = 1};
        EXPECT_CODE(FENCE_REFUSED, "invalid_name", put_text(&record, "v"));
    }
}

/* ---- Versions -------------------------------------------------------------------------------- */

static void a_write_may_ask_for_a_version(void **state)
{
    (void)state;
    struct fence_record record = held_record("versions", "value");
    record.if_version = 1;
    EXPECT_CODE(FENCE_MISMATCH, "version_mismatch", put_text(&record, "none is there"));
    record.if_version = FENCE_ABSENT;
    EXPECT(FENCE_OK, put_text(&record, "first"));
    EXPECT_CODE(FENCE_MISMATCH, "version_mismatch", put_text(&record, "there is one"));
    record.if_version = 2;
    EXPECT(FENCE_MISMATCH, put_text(&record, "too new"));
    record.if_version = 1;
    int64_t version = 0;
    EXPECT(FENCE_OK, fence_put(c, &record, "second", 6, &version, &failure));
    assert_int_equal(version, 2);
    EXPECT(FENCE_MISMATCH, put_text(&record, "too old"));
    expect_text_of(&record, "second"); /* whatever if_version says */

    EXPECT(FENCE_MISMATCH, fence_delete(c, &record, &failure));
    record.if_version = 2;
    EXPECT(FENCE_OK, fence_delete(c, &record, &failure));
    record.if_version = FENCE_ABSENT;
    EXPECT(FENCE_OK, fence_put(c, &record, "again", 5, &version, &failure));
    assert_int_equal(version, 4); /* it goes on */
}

static void what_is_not_there_is_not_found(void **state)
{
    (void)state;
    struct fence_record record = held_record("empty", "value");
    struct fence_value value;
    memset(&value, 7, sizeof value);
    EXPECT_CODE(FENCE_NOT_FOUND, "record_not_found", fence_get(c, &record, &value, &failure));
    assert_null(value.bytes);
    assert_null(value.content_type);
    assert_int_equal(value.count, 0);
    fence_value_free(&value);
    EXPECT_CODE(FENCE_NOT_FOUND, "record_not_found", fence_delete(c, &record, &failure));
    EXPECT(FENCE_OK, put_text(&record, "v"));
    EXPECT(FENCE_OK, fence_delete(c, &record, &failure));
    EXPECT(FENCE_NOT_FOUND, fence_get(c, &record, &value, &failure));
    fence_value_free(&value);
    fence_value_free(&value);
}

/* ---- Refused --------------------------------------------------------------------------------- */

static void expect_stale(const struct fence_record *record, long long highest)
{
    struct fence_value value;
    EXPECT_CODE(FENCE_STALE, "stale_fencing_token", put_text(record, "late"));
    assert_int_equal(failure.highest_fencing_token, highest);
    EXPECT_CODE(FENCE_STALE, "stale_fencing_token", fence_delete(c, record, &failure));
    assert_int_equal(failure.highest_fencing_token, highest);
    EXPECT_CODE(FENCE_STALE, "stale_fencing_token", fence_get(c, record, &value, &failure));
    fence_value_free(&value);
}

static void who_was_replaced_writes_nothing(void **state)
{
    (void)state;
    struct fence_terms terms = {
        .resource = "replaced", .ttl_ms = SHORT_TTL_MS, .no_watchdog = true};
    struct fence_lease *a = take_lease(c, &terms);
    struct fence_record old = fence_lease_record(a, "value");
    EXPECT(FENCE_OK, put_text(&old, "old"));
    await_expiry(g, fence_lease_id(a));
    EXPECT(FENCE_OK, put_text(&old, "nobody has replaced it"));
    struct fence_record new = held_record("replaced", "value");
    expect_stale(&old, new.token);
    EXPECT(FENCE_OK, put_text(&new, "new"));
    expect_text_of(&new, "new");
    old.token = 0;
    old.lease_id = NULL;
    expect_text_of(&old, "new"); /* a plain read is for everybody */
}

static void who_was_revoked_writes_nothing(void **state)
{
    (void)state;
    struct fence_record record = held_record("revoked", "value");
    EXPECT(FENCE_OK, put_text(&record, "before"));
    take_away(g, "revoked");
    expect_stale(&record, record.token + 1);
    record.token = 0;
    expect_text_of(&record, "before");
}

static void who_has_no_right_writes_nothing(void **state)
{
    (void)state;
    struct fence_record record = held_record("no right", "value");
    struct fence_record wrong = record;
    wrong.token = record.token + 5;
    EXPECT_CODE(FENCE_STALE, "fencing_token_not_issued", put_text(&wrong, "forged"));
    wrong = record;
    wrong.lease_id = STUB_LEASE_ID;
    EXPECT_CODE(FENCE_STALE, "lease_mismatch", put_text(&wrong, "another's"));
    wrong.lease_id = NULL; /* not sent, not asked for */
    EXPECT(FENCE_OK, put_text(&wrong, "mine"));
    wrong.token = 0;
    EXPECT_CODE(FENCE_REFUSED, "fencing_token_required", put_text(&wrong, "nobody's"));
    EXPECT_CODE(FENCE_REFUSED, "fencing_token_required", fence_delete(c, &wrong, &failure));
    expect_text_of(&record, "mine");
}

static void a_resource_without_fence_takes_conditional_writes(void **state)
{
    (void)state;
    expect_status(call(g, "PUT", "/resources/open", NULL, "{\"fenced\":false}"), 200);
    struct fence_record record = {.resource = "open", .key = "value"};
    EXPECT_CODE(FENCE_REFUSED, "precondition_required", put_text(&record, "blind"));
    record.if_version = FENCE_ABSENT;
    EXPECT(FENCE_OK, put_text(&record, "first"));
    record.if_version = 1;
    EXPECT(FENCE_OK, put_text(&record, "second"));
    const struct fence_value *value = read_value(&record);
    assert_int_equal(value->version, 2);
    assert_int_equal(value->token, 0);
    record.if_version = 2;
    EXPECT(FENCE_OK, fence_delete(c, &record, &failure));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_can_be_read),
        TEST(a_record_of_a_lease_has_its_token_and_its_id),
        TEST(a_value_is_bytes),
        TEST(a_value_may_be_as_large_as_the_gateway_takes),
        TEST(a_value_has_a_content_type),
        TEST(a_content_type_cannot_smuggle_headers),
        TEST(every_name_that_the_gateway_takes_can_be_written),
        TEST(names_that_the_gateway_does_not_take_are_told),
        TEST(a_write_may_ask_for_a_version),
        TEST(what_is_not_there_is_not_found),
        TEST(who_was_replaced_writes_nothing),
        TEST(who_was_revoked_writes_nothing),
        TEST(who_has_no_right_writes_nothing),
        TEST(a_resource_without_fence_takes_conditional_writes),
    };
    return cmocka_run_group_tests(tests, start_servers, NULL);
}
