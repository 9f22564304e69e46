/* limits.c - the words of limits.h. */
#include "tests/support/limits.h"

/* ---- Limits ---- */

struct response *ask(struct gateway *gateway, const char *name, int ttl_ms, const char *fields)
{
    return post(gateway, "/leases", "{\"resource\":\"%s\",\"ttl_ms\":%d%s}", name, ttl_ms, fields);
}

const char *limit_field(int limit)
{
    return test_printf(",\"limit\":%d", limit);
}

void set_limit(struct gateway *gateway, const char *name, int limit)
{
    const char *body = test_printf("{\"limit\":%d}", limit);
    struct response *r =
        call(gateway, "PUT", test_printf("/resources/%s", encoded(name)), NULL, body);
    expect_number(expect_status(r, 200), "limit", limit);
}

void take(struct gateway *gateway, const char *name, int limit, int count, struct lease *leases)
{
    set_limit(gateway, name, limit);
    for (int i = 0; i < count; i++)
        leases[i] = acquire(gateway, name, LONG_TTL_MS);
}

/* ---- Who holds it ---- */

void expect_full(struct gateway *gateway, const char *name)
{
    expect_problem(ask(gateway, name, LONG_TTL_MS, ""), 409, "lease_held");
}

void expect_holders(struct gateway *gateway, const char *name, size_t count)
{
    struct response *r = expect_status(resource(gateway, name), 200);
    if (count_at(r, "holders") != count)
        fail_msg("%zu holders are expected: %s", count, r->body);
}

bool may_write(struct gateway *gateway, const char *name, struct lease lease)
{
    struct response *r = put(gateway, name, "k", lease.token, "v");
    if (r->status >= 300)
        expect_problem(r, 412, "stale_fencing_token");
    return r->status < 300;
}

void expect_writer(struct gateway *gateway, const char *name, struct lease lease)
{
    assert_true(may_write(gateway, name, lease));
}

void expect_replaced(struct gateway *gateway, const char *name, struct lease lease,
                     struct lease newer)
{
    struct response *r =
        expect_problem(put(gateway, name, "k", lease.token, "x"), 412, "stale_fencing_token");
    expect_text(r, "reason", "superseded");
    expect_number(r, "superseded_by.fencing_token", newer.token);
    expect_problem(check(gateway, name, lease.token), 412, "stale_fencing_token");
    expect_problem(fetch(gateway, name, "k", lease.token), 412, "stale_fencing_token");
    expect_problem(erase(gateway, name, "k", lease.token), 412, "stale_fencing_token");
    expect_problem(renew(gateway, lease.id, 0), 410, "lease_superseded");
    expect_problem(release(gateway, lease.id), 410, "lease_superseded");
}

/* ---- Who waits ---- */

void queue_up(struct gateway *gateway, const char *name, int count, struct http **waiters)
{
    for (int i = 0; i < count; i++)
        waiters[i] = wait_for(gateway, name, "");
}
