/* waits.c - the words of waits.h. */
#include "tests/support/waits.h"

const char *wait_body(const char *name, int wait_ms, const char *more)
{
    json_t *quoted = json_string(name);
    char *text = json_dumps(quoted, JSON_ENCODE_ANY);
    json_decref(quoted);
    assert_non_null(text);
    cleanup_add(free, text);
    return test_printf("{\"resource\":%s,\"ttl_ms\":%d,\"wait_ms\":%d%s}", text, LONG_TTL_MS,
                       wait_ms, more);
}

struct http *ask_for(struct gateway *gateway, const char *name, const char *more)
{
    struct http *http = http_new(gateway->port);
    const char *body = wait_body(name, LONG_WAIT_MS, more);
    http_send(http, "POST", "/leases", NULL, body, strlen(body));
    return http;
}

bool waiters_are(struct gateway *gateway, const char *name, long long count)
{
    return number_at(expect_status(resource(gateway, name), 200), "waiters") == count;
}

void await_waiters(struct gateway *gateway, const char *name, long long count)
{
    if (!EVENTUALLY(waiters_are(gateway, name, count), 10000))
        fail_msg("%s has not %lld waiters: %s", name, count, resource(gateway, name)->body);
}

struct http *wait_for(struct gateway *gateway, const char *name, const char *more)
{
    long long before = number_at(resource(gateway, name), "waiters");
    struct http *http = ask_for(gateway, name, more);
    await_waiters(gateway, name, before + 1);
    return http;
}

struct response *answer_to(struct http *http)
{
    struct response *response = http_receive(http, "POST");
    if (!response)
        fail_msg("the connection ended without an answer");
    return response;
}

struct lease granted_to(struct http *http)
{
    struct response *response = expect_status(answer_to(http), 201);
    return (struct lease){.id = text_at(response, "lease_id"),
                          .token = number_at(response, "fencing_token"),
                          .answer = response};
}
