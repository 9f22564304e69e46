/* api.c - the calls of api.h. Its expectations are in expect.c. */
#define TESTS_API_INSIDE
#include "tests/support/api.h"

#include "gateway/errors.h"

#include <stdio.h>

/* ---- What all answers have in common ----------------------------------------------------------
 */

static void check_retry_after(const struct response *response)
{
    const char *header = response_header(response, "Retry-After");
    if (!header)
        fail_msg("%s: %d without Retry-After", response->asked, response->status);
    long long after_ms = number_at(response, "retry_after_ms");
    assert_true(after_ms >= 0);
    assert_int_equal(atoll(header), (after_ms + 999) / 1000);
}

static void check_problem(struct response *response)
{
    expect_header(response, "Content-Type", "application/problem+json");
    const char *code = text_at(response, "code");
    enum fg_status known = fg_error_find(code);
    if (known == FG_OK)
        fail_msg("%s: an unknown code: %s", response->asked, response->body);
    const struct fg_error *error = fg_error(known);
    expect_text(response, "type", error->type);
    expect_text(response, "title", error->title);
    expect_number(response, "status", error->http);
    assert_int_equal(response->status, error->http);
    assert_true(*text_at(response, "detail"));
    (error->retryable ? expect_true : expect_false)(response, "retryable");
    if (response->status == 503 || known == FG_LEASE_HELD)
        check_retry_after(response);
}

struct response *call_on(struct http *http, const char *method, const char *target,
                         const char *const *headers, const char *body)
{
    struct response *response =
        http_call(http, method, target, headers, body, body ? strlen(body) : 0);
    if (response_header_count(response, "X-Request-Id") != 1)
        fail_msg("%s: %zu X-Request-Id", response->asked,
                 response_header_count(response, "X-Request-Id"));
    expect_header(response, "Cache-Control", "no-store");
    if (response->status >= 400 && strcmp(method, "HEAD") != 0)
        check_problem(response);
    return response;
}

struct response *call(struct gateway *gateway, const char *method, const char *target,
                      const char *const *headers, const char *body)
{
    return call_on(gateway->http, method, target, headers, body);
}

struct response *get(struct gateway *gateway, const char *target)
{
    return call(gateway, "GET", target, NULL, NULL);
}

struct response *post(struct gateway *gateway, const char *target, const char *format, ...)
{
    char *body;
    va_list args;
    va_start(args, format);
    int bytes = vasprintf(&body, format, args);
    va_end(args);
    if (bytes < 0)
        abort();
    cleanup_add(free, body);
    return call(gateway, "POST", target, LIST("Content-Type: application/json"), body);
}

/* ---- Leases -----------------------------------------------------------------------------------
 */

static const char *acquire_body(const char *name, int ttl_ms)
{
    json_t *body = json_pack("{s:s, s:i}", "resource", name, "ttl_ms", ttl_ms);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    assert_non_null(text);
    return cleanup_add(free, text);
}

struct response *try_acquire(struct gateway *gateway, const char *name, int ttl_ms)
{
    return post(gateway, "/leases", "%s", acquire_body(name, ttl_ms));
}

static struct lease lease_of(struct response *response)
{
    expect_status(response, 201);
    return (struct lease){.id = text_at(response, "lease_id"),
                          .token = number_at(response, "fencing_token"),
                          .answer = response};
}

struct lease acquire(struct gateway *gateway, const char *name, int ttl_ms)
{
    struct response *response = try_acquire(gateway, name, ttl_ms);
    for (int i = 0; i < 50 && response->status == 503; i++) {
        if (strcmp(text_at(response, "code"), "expired_while_granting") != 0)
            break;
        response = try_acquire(gateway, name, ttl_ms);
    }
    return lease_of(response);
}

struct lease acquire_within(struct gateway *gateway, const char *name, int ttl_ms, int timeout_ms)
{
    long long give_up_ms = now_ms() + slow_ms(timeout_ms);
    for (;;) {
        struct response *response = try_acquire(gateway, name, ttl_ms);
        if (response->status == 201 || now_ms() >= give_up_ms)
            return lease_of(response);
        sleep_ms(20);
    }
}

struct response *renew(struct gateway *gateway, const char *lease_id, int ttl_ms)
{
    const char *target = test_printf("/leases/%s/renew", lease_id);
    return ttl_ms ? post(gateway, target, "{\"ttl_ms\":%d}", ttl_ms)
                  : call(gateway, "POST", target, NULL, NULL);
}

struct response *release(struct gateway *gateway, const char *lease_id)
{
    return call(gateway, "DELETE", test_printf("/leases/%s", lease_id), NULL, NULL);
}

struct response *inspect(struct gateway *gateway, const char *lease_id)
{
    return get(gateway, test_printf("/leases/%s", lease_id));
}

static bool has_expired(struct gateway *gateway, const char *lease_id)
{
    return strcmp(text_at(inspect(gateway, lease_id), "state"), "expired") == 0;
}

void await_expiry(struct gateway *gateway, const char *lease_id)
{
    if (!EVENTUALLY(has_expired(gateway, lease_id), 10000))
        fail_msg("the lease does not expire");
    /* That was by Redis' clock; some answers go by the gateway's own, which may be a millisecond
     * behind. */
    sleep_ms(5);
}

/* ---- Records and resources --------------------------------------------------------------------
 */

const char *token_header(long long token)
{
    return test_printf("X-Fencing-Token: %lld", token);
}

static const char *const *token_headers(long long token)
{
    const char **headers = test_alloc(2 * sizeof *headers);
    if (token)
        headers[0] = token_header(token);
    return headers;
}

const char *encoded(const char *name)
{
    char *text = test_alloc(strlen(name) * 3 + 1);
    char *to = text;
    for (const unsigned char *from = (const unsigned char *)name; *from; from++) {
        if ((*from >= '0' && *from <= '9') || (*from >= 'A' && *from <= 'Z') ||
            (*from >= 'a' && *from <= 'z') || strchr("-._~:", *from))
            *to++ = (char)*from;
        else
            to += sprintf(to, "%%%02X", *from);
    }
    return text;
}

const char *store_path(const char *name, const char *key)
{
    return test_printf("/store/%s/%s", encoded(name), encoded(key));
}

struct response *put(struct gateway *gateway, const char *name, const char *key, long long token,
                     const char *value)
{
    return call(gateway, "PUT", store_path(name, key), token_headers(token), value);
}

struct response *fetch(struct gateway *gateway, const char *name, const char *key, long long token)
{
    return call(gateway, "GET", store_path(name, key), token_headers(token), NULL);
}

struct response *erase(struct gateway *gateway, const char *name, const char *key, long long token)
{
    return call(gateway, "DELETE", store_path(name, key), token_headers(token), NULL);
}

struct response *check(struct gateway *gateway, const char *name, long long token)
{
    return call(gateway, "POST", test_printf("/resources/%s/check", encoded(name)),
                token_headers(token), NULL);
}

struct response *resource(struct gateway *gateway, const char *name)
{
    return get(gateway, test_printf("/resources/%s", encoded(name)));
}

struct response *history(struct gateway *gateway, const char *name, const char *query)
{
    return get(gateway, test_printf("/resources/%s/history%s", encoded(name), query));
}
