/* test_operators.c - revoking leases, setting limits, and resources that are not fenced. */
#include "tests/support/api.h"

#define REASON "the host is being taken down"

static struct redis_server *redis;
static struct gateway *g;
static struct gateway *strict; /* --require-lease-id */

static int start_servers(void **state)
{
    (void)state;
    redis = redis_server_start(NULL);
    g = gateway_start(redis_server_url(redis), NULL);
    strict = gateway_start(NULL, LIST("--require-lease-id"));
    cleanup_keep();
    return 0;
}

/* PUT /resources/{name} */
static struct response *configure(const char *name, const char *body)
{
    return call(g, "PUT", test_printf("/resources/%s", encoded(name)), NULL, body);
}

/* POST /resources/{name}/revoke; `token` 0: all. */
static struct response *revoke(const char *name, long long token)
{
    const char *one = token != 0 ? test_printf(",\"fencing_token\":%lld", token) : "";
    return post(g, test_printf("/resources/%s/revoke", encoded(name)),
                "{\"reason\":\"" REASON "\"%s}", one);
}

/* Three leases at once of one resource. */
static void acquire_three(const char *name, struct lease leases[3])
{
    expect_status(configure(name, "{\"limit\":3}"), 200);
    for (int i = 0; i < 3; i++)
        leases[i] = acquire(g, name, LONG_TTL_MS);
    expect_problem(try_acquire(g, name, LONG_TTL_MS), 409, "lease_held");
}

static struct response *put_if(const char *name, const char *key, const char *condition,
                               const char *value)
{
    return call(g, "PUT", store_path(name, key), LIST(condition), value);
}

/* ---- Revoking ---------------------------------------------------------------------------------
 */

static void a_revoked_holder_learns_it_and_writes_no_more(void **state)
{
    (void)state;
    struct lease a = acquire(g, "revoked", LONG_TTL_MS);
    expect_status(put(g, "revoked", "k", a.token, "before"), 201);
    struct response *r = expect_status(revoke("revoked", 0), 200);
    expect_members(r, "", LIST("revoked", "highest_fencing_token"));
    assert_int_equal(count_at(r, "revoked"), 1);
    expect_number(r, "revoked.0", a.token);
    expect_number(r, "highest_fencing_token", a.token + 1);

    r = expect_problem(put(g, "revoked", "k", a.token, "x"), 412, "stale_fencing_token");
    expect_text(r, "reason", "revoked");
    expect_number(r, "highest_fencing_token", a.token + 1);
    expect_null(r, "superseded_by");
    assert_true(time_of(text_at(r, "ended_at")) > 0);
    expect_problem(erase(g, "revoked", "k", a.token), 412, "stale_fencing_token");
    expect_problem(fetch(g, "revoked", "k", a.token), 412, "stale_fencing_token");
    expect_problem(check(g, "revoked", a.token), 412, "stale_fencing_token");
    expect_body(fetch(g, "revoked", "k", 0), "before");

    r = expect_problem(renew(g, a.id, 0), 410, "lease_revoked");
    expect_text(r, "reason", REASON);
    expect_text(r, "resource", "revoked");
    expect_number(r, "fencing_token", a.token);
    expect_text(expect_problem(release(g, a.id), 410, "lease_revoked"), "reason", REASON);
    expect_problem(release(g, a.id), 410, "lease_revoked");
    r = expect_status(inspect(g, a.id), 200);
    expect_text(r, "state", "revoked");
    expect_number(r, "expires_in_ms", 0);
    assert_int_equal(count_at(get(g, "/leases?resource=revoked"), "items"), 0);
}

static void the_place_of_a_revoked_lease_is_free_at_once(void **state)
{
    (void)state;
    struct lease a = acquire(g, "free at once", LONG_TTL_MS);
    expect_status(revoke("free at once", a.token), 200);
    struct response *r = resource(g, "free at once");
    assert_int_equal(count_at(r, "holders"), 0);
    expect_number(r, "highest_fencing_token", a.token + 1);
    struct lease b = acquire(g, "free at once", LONG_TTL_MS);
    assert_int_equal(b.token, a.token + 2);
    expect_status(put(g, "free at once", "k", b.token, "b"), 201);
}

static void the_middle_one_of_three_is_revoked(void **state)
{
    (void)state;
    struct lease l[3];
    acquire_three("middle", l);
    struct response *r = expect_status(revoke("middle", l[1].token), 200);
    assert_int_equal(count_at(r, "revoked"), 1);
    expect_number(r, "revoked.0", l[1].token);
    expect_status(put(g, "middle", "k", l[0].token, "older"), 201);
    expect_status(put(g, "middle", "k", l[2].token, "younger"), 200);
    expect_problem(put(g, "middle", "k", l[1].token, "x"), 412, "stale_fencing_token");
    expect_status(renew(g, l[0].id, 0), 200);
    expect_status(renew(g, l[2].id, 0), 200);

    /* One place is free, no more. */
    struct lease d = acquire(g, "middle", LONG_TTL_MS);
    r = expect_problem(try_acquire(g, "middle", LONG_TTL_MS), 409, "lease_held");
    assert_int_equal(count_at(r, "holders"), 3);
    expect_problem(release(g, l[1].id), 410, "lease_revoked");
    expect_problem(try_acquire(g, "middle", LONG_TTL_MS), 409, "lease_held");

    r = expect_status(revoke("middle", 0), 200);
    assert_int_equal(count_at(r, "revoked"), 3);
    expect_number(r, "revoked.0", l[0].token);
    expect_number(r, "revoked.1", l[2].token);
    expect_number(r, "revoked.2", d.token);
    for (int i = 0; i < 3; i++)
        acquire(g, "middle", LONG_TTL_MS);
    expect_problem(try_acquire(g, "middle", LONG_TTL_MS), 409, "lease_held");
}

static void the_mark_rises_also_where_nobody_is_live(void **state)
{
    (void)state;
    struct lease a = acquire(g, "nobody", LONG_TTL_MS);
    release(g, a.id);
    const long long tokens[] = {0, a.token, a.token + 1, 9007199254740991};
    for (int i = 0; i < 4; i++) {
        struct response *r = expect_status(revoke("nobody", tokens[i]), 200);
        assert_int_equal(count_at(r, "revoked"), 0);
        expect_number(r, "highest_fencing_token", a.token + 1 + i);
    }
    assert_int_equal(acquire(g, "nobody", LONG_TTL_MS).token, a.token + 5);
    struct response *r = history(g, "nobody", "?kind=revoke");
    assert_int_equal(count_at(r, "items"), 4);
    expect_null(r, "items.0.fencing_token");
    expect_text(r, "items.0.reason", REASON);
}

static void an_expired_lease_is_revoked_as_well(void **state)
{
    (void)state;
    struct lease a = acquire(g, "expired", SHORT_TTL_MS);
    await_expiry(g, a.id);
    expect_status(check(g, "expired", a.token), 200);
    assert_int_equal(count_at(expect_status(revoke("expired", 0), 200), "revoked"), 1);
    expect_problem(check(g, "expired", a.token), 412, "stale_fencing_token");
    expect_problem(renew(g, a.id, 0), 410, "lease_revoked");
}

static void revoking_does_not_need_redis(void **state)
{
    (void)state;
    struct lease a = acquire(g, "no redis", LONG_TTL_MS);
    redis_server_pause(redis);
    expect_status(revoke("no redis", 0), 200);
    expect_problem(put(g, "no redis", "k", a.token, "x"), 412, "stale_fencing_token");
    expect_status(configure("no redis", "{\"limit\":2}"), 200);
    redis_server_resume(redis);
    /* Exactly what was revoked leaves Redis when it is back. */
    struct lease b = acquire_within(g, "no redis", LONG_TTL_MS, 10000);
    assert_true(b.token > a.token + 1);
    acquire_within(g, "no redis", LONG_TTL_MS, 10000);
    expect_problem(try_acquire(g, "no redis", LONG_TTL_MS), 409, "lease_held");
}

static void what_was_revoked_stays_so_over_a_restart(void **state)
{
    (void)state;
    struct gateway *own = gateway_start(NULL, NULL);
    struct lease a = acquire(own, "r", LONG_TTL_MS);
    expect_status(post(own, "/resources/r/revoke", "{\"reason\":\"" REASON "\"}"), 200);
    gateway_kill(own);
    gateway_restart(own);
    expect_problem(put(own, "r", "k", a.token, "x"), 412, "stale_fencing_token");
    expect_text(expect_problem(renew(own, a.id, 0), 410, "lease_revoked"), "reason", REASON);
    assert_true(acquire_within(own, "r", LONG_TTL_MS, 10000).token > a.token + 1);
}

static void revocations_stand_in_the_history(void **state)
{
    (void)state;
    struct response *a =
        expect_status(post(g, "/leases", "{\"resource\":\"told\",\"owner\":\"worker A\"}"), 201);
    revoke("told", 0);
    struct response *r = history(g, "told", "?kind=revoke");
    assert_int_equal(count_at(r, "items"), 1);
    expect_number(r, "items.0.fencing_token", number_at(a, "fencing_token"));
    expect_text(r, "items.0.owner", "worker A");
    expect_text(r, "items.0.reason", REASON);
    assert_true(time_of(text_at(r, "items.0.ended_at")) > 0);
}

static void a_revocation_needs_a_reason(void **state)
{
    (void)state;
    struct lease a = acquire(g, "reason", LONG_TTL_MS);
    const char *const bad[] = {"",
                               "{}",
                               "{\"reason\":\"\"}",
                               "{\"reason\":null}",
                               "{\"reason\":7}",
                               test_printf("{\"reason\":\"%0257d\"}", 1),
                               "{\"reason\":\"x\",\"fencing_token\":0}",
                               "{\"reason\":\"x\",\"fencing_token\":\"1\"}",
                               "{\"reason\":\"x\",\"fencing_token\":null}",
                               "{\"reason\":\"x\",\"fencing_token\":9007199254740992}",
                               "{\"reason\":\"x\",\"token\":1}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_problem(call(g, "POST", "/resources/reason/revoke", NULL, bad[i]), 400,
                       "invalid_request");
    expect_problem(call(g, "POST", "/resources/reason/revoke", NULL, "{"), 400, "invalid_json");
    expect_number(resource(g, "reason"), "highest_fencing_token", a.token);
    expect_status(check(g, "reason", a.token), 200);
    expect_status(post(g, "/resources/reason/revoke", "{\"reason\":\"%0256d\"}", 1), 200);

    expect_problem(revoke("never granted", 0), 404, "resource_not_found");
    /* The body is read before the resource is looked for. */
    expect_problem(post(g, "/resources/nothing/revoke", "{}"), 400, "invalid_request");
    expect_problem(call(g, "POST", "/resources/%00/revoke", NULL, "{}"), 400, "invalid_name");
    expect_problem(get(g, "/resources/reason/revoke"), 405, "method_not_allowed");
}

/* ---- Settings ---------------------------------------------------------------------------------
 */

static void put_creates_a_resource(void **state)
{
    (void)state;
    expect_problem(resource(g, "created"), 404, "resource_not_found");
    struct response *r = expect_status(configure("created", "{}"), 200);
    expect_members(
        r, "", LIST("resource", "limit", "fenced", "highest_fencing_token", "holders", "waiters"));
    expect_text(r, "resource", "created");
    expect_number(r, "limit", 1);
    expect_true(r, "fenced");
    expect_number(r, "highest_fencing_token", 0);
    assert_int_equal(count_at(r, "holders"), 0);
    expect_body(expect_status(resource(g, "created"), 200), r->body);
    assert_int_equal(count_at(expect_status(get(g, "/store/created"), 200), "items"), 0);
    assert_int_equal(acquire(g, "created", LONG_TTL_MS).token, 1);

    expect_number(expect_status(configure("no body", NULL), 200), "limit", 1);
    expect_number(expect_status(configure("with/limit", "{\"limit\":1000}"), 200), "limit", 1000);
    r = expect_status(configure("with both", "{\"limit\":2,\"fenced\":false}"), 200);
    expect_number(r, "limit", 2);
    expect_false(r, "fenced");
    expect_number(r, "highest_fencing_token", 0);
}

static void put_changes_what_it_names_and_nothing_else(void **state)
{
    (void)state;
    struct lease l[3];
    acquire_three("changes", l);
    struct response *rows = history(g, "changes", "");
    const char *const nothing[] = {"", "{}", "{\"limit\":3}", "{\"fenced\":true}"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        expect_number(expect_status(configure("changes", nothing[i]), 200), "limit", 3);
    assert_int_equal(count_at(history(g, "changes", ""), "items"), count_at(rows, "items"));
    expect_number(resource(g, "changes"), "highest_fencing_token", l[2].token);

    struct response *r = expect_status(configure("changes", "{\"limit\":1}"), 200);
    expect_number(r, "limit", 1);
    assert_int_equal(count_at(r, "holders"), 3);
    for (int i = 0; i < 3; i++)
        expect_status(check(g, "changes", l[i].token), 200);
    r = history(g, "changes", "?kind=config");
    assert_int_equal(count_at(r, "items"), 2);
    expect_text(r, "items.0.reason", "created, limit 3");
    expect_text(r, "items.1.reason", "limit 3 -> 1");
    expect_null(r, "items.1.fencing_token");
    expect_null(r, "items.1.ended_at");
}

static void malformed_settings_are_refused(void **state)
{
    (void)state;
    const char *const bad[] = {"{\"limit\":0}",
                               "{\"limit\":1001}",
                               "{\"limit\":-1}",
                               "{\"limit\":1.5}",
                               "{\"limit\":\"2\"}",
                               "{\"limit\":null}",
                               "{\"fenced\":0}",
                               "{\"fenced\":\"false\"}",
                               "{\"fenced\":null}",
                               "{\"waiters\":0}",
                               "[]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_problem(configure("malformed", bad[i]), 400, "invalid_request");
    expect_problem(configure("malformed", "{\"limit\":2,\"limit\":3}"), 400, "invalid_json");
    expect_problem(call(g, "PUT", "/resources/malformed", LIST("If-Match: \"v1\""), "{}"), 400,
                   "bad_header");
    expect_problem(call(g, "PUT", "/resources/..", NULL, "{}"), 400, "invalid_name");
    expect_problem(resource(g, "malformed"), 404, "resource_not_found");
}

/* ---- Whoever waits ----------------------------------------------------------------------------
 */

/* Somebody who waits for `name`, on a connection of its own. */
static struct http *wait_for(const char *name)
{
    struct http *http = http_new(g->port);
    const char *body = test_printf("{\"resource\":\"%s\",\"wait_ms\":60000}", name);
    http_send(http, "POST", "/leases", NULL, body, strlen(body));
    assert_true(EVENTUALLY(number_at(resource(g, name), "waiters") == 1, 20000));
    return http;
}

static void a_revocation_lets_the_next_one_in(void **state)
{
    (void)state;
    struct lease a = acquire(g, "next", LONG_TTL_MS);
    struct http *waiter = wait_for("next");
    expect_status(revoke("next", a.token), 200);
    struct response *r = expect_status(http_receive(waiter, "POST"), 201);
    assert_true(number_at(r, "fencing_token") > a.token + 1);
    expect_status(put(g, "next", "k", number_at(r, "fencing_token"), "v"), 201);
}

static void a_larger_limit_lets_the_next_one_in(void **state)
{
    (void)state;
    expect_status(configure("larger", "{\"limit\":2}"), 200);
    acquire(g, "larger", LONG_TTL_MS);
    acquire(g, "larger", LONG_TTL_MS);
    struct http *waiter = wait_for("larger");
    expect_status(configure("larger", "{\"limit\":3}"), 200);
    expect_number(expect_status(http_receive(waiter, "POST"), 201), "limit", 3);
}

static void unfencing_sends_away_whoever_waits(void **state)
{
    (void)state;
    acquire(g, "sent away", LONG_TTL_MS);
    struct http *waiter = wait_for("sent away");
    expect_status(configure("sent away", "{\"fenced\":false}"), 200);
    expect_problem(http_receive(waiter, "POST"), 409, "resource_unfenced");
}

/* ---- Unfenced resources -----------------------------------------------------------------------
 */

static void unfencing_ends_the_leases(void **state)
{
    (void)state;
    struct lease l[3];
    acquire_three("unfenced", l);
    struct response *r = expect_status(configure("unfenced", "{\"fenced\":false}"), 200);
    expect_false(r, "fenced");
    expect_number(r, "limit", 3);
    expect_number(r, "highest_fencing_token", l[2].token + 1);
    assert_int_equal(count_at(r, "holders"), 0);
    for (int i = 0; i < 3; i++) {
        expect_text(expect_problem(renew(g, l[i].id, 0), 410, "lease_revoked"), "reason",
                    "unfenced");
        r = expect_problem(put(g, "unfenced", "k", l[i].token, "x"), 412, "stale_fencing_token");
        expect_text(r, "reason", "revoked");
    }
    expect_problem(try_acquire(g, "unfenced", LONG_TTL_MS), 409, "resource_unfenced");
    r = history(g, "unfenced", "?kind=config");
    expect_text(r, "items.1.reason", "fenced -> unfenced");
    assert_int_equal(count_at(history(g, "unfenced", "?kind=revoke"), "items"), 3);

    /* Fenced again: the mark goes on, and all three places are free. */
    r = expect_status(configure("unfenced", "{\"fenced\":true}"), 200);
    expect_number(r, "highest_fencing_token", l[2].token + 1);
    assert_true(acquire(g, "unfenced", LONG_TTL_MS).token > l[2].token + 1);
    acquire(g, "unfenced", LONG_TTL_MS);
    acquire(g, "unfenced", LONG_TTL_MS);
    expect_problem(try_acquire(g, "unfenced", LONG_TTL_MS), 409, "lease_held");
}

static void an_unfenced_resource_takes_conditional_writes(void **state)
{
    (void)state;
    expect_status(configure("stock", "{\"fenced\":false}"), 200);
    const char *path = store_path("stock", "k");
    struct response *r = expect_status(put_if("stock", "k", "If-None-Match: *", "3"), 201);
    expect_members(r, "", LIST("resource", "key", "version", "fencing_token"));
    expect_header(r, "ETag", "\"v1\"");
    expect_number(r, "version", 1);
    expect_null(r, "fencing_token");
    expect_problem(put_if("stock", "k", "If-None-Match: *", "x"), 412, "version_mismatch");

    r = expect_status(fetch(g, "stock", "k", 0), 200);
    expect_body(r, "3");
    expect_header(r, "ETag", "\"v1\"");
    expect_header(r, "X-Written-With-Token", NULL);
    expect_status(call(g, "GET", path, LIST("If-None-Match: \"v1\""), NULL), 304);

    expect_null(expect_status(put_if("stock", "k", "If-Match: \"v1\"", "2"), 200), "fencing_token");
    expect_problem(put_if("stock", "k", "If-Match: \"v1\"", "x"), 412, "version_mismatch");
    expect_status(put_if("stock", "k", "If-Match: *", "1"), 200);
    r = expect_status(get(g, "/store/stock"), 200);
    expect_null(r, "items.0.fencing_token");
    expect_number(r, "items.0.version", 3);

    expect_problem(call(g, "DELETE", path, LIST("If-Match: \"v2\""), NULL), 412,
                   "version_mismatch");
    expect_status(call(g, "DELETE", path, LIST("If-Match: \"v3\""), NULL), 204);
    expect_problem(call(g, "DELETE", path, LIST("If-Match: \"v3\""), NULL), 404,
                   "record_not_found");
    r = history(g, "stock", "?kind=write");
    assert_int_equal(count_at(r, "items"), 3);
    expect_null(r, "items.0.fencing_token");
    expect_null(r, "items.0.owner");
    expect_null(history(g, "stock", "?kind=refuse"), "items.0.fencing_token");
}

static void a_write_without_a_token_must_be_conditional(void **state)
{
    (void)state;
    expect_status(configure("blind", "{\"fenced\":false}"), 200);
    expect_problem(put(g, "blind", "k", 0, "x"), 428, "precondition_required");
    expect_problem(erase(g, "blind", "k", 0), 428, "precondition_required");
    expect_problem(put_if("blind", "k", "If-Match: v1", "x"), 400, "bad_header");
    /* With a lease id somebody wants to be fenced. */
    expect_problem(
        call(g, "PUT", store_path("blind", "k"), LIST("X-Lease-Id: some", "If-None-Match: *"), "x"),
        428, "fencing_token_required");
    /* Of a fenced resource, and of one that does not exist, the token is what is missing. */
    expect_status(configure("fenced", "{}"), 200);
    expect_problem(put_if("fenced", "k", "If-None-Match: *", "x"), 428, "fencing_token_required");
    expect_problem(put_if("no such resource", "k", "If-None-Match: *", "x"), 428,
                   "fencing_token_required");
    expect_problem(fetch(g, "blind", "k", 0), 404, "record_not_found");
    expect_problem(fetch(g, "fenced", "k", 0), 404, "record_not_found");
    expect_problem(resource(g, "no such resource"), 404, "resource_not_found");
}

static void a_chunked_write_is_judged_in_the_same_way(void **state)
{
    (void)state;
    expect_status(configure("chunked", "{\"fenced\":false}"), 200);
    const char *head = "PUT /store/chunked/k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n";
    const char *body = "5\r\nhello\r\n0\r\n\r\n";
    const char *blind = test_printf("%s\r\n%s", head, body);
    http_send_bytes(g->http, blind, strlen(blind));
    expect_problem(http_receive(g->http, "PUT"), 428, "precondition_required");
    const char *create = test_printf("%sIf-None-Match: *\r\n\r\n%s", head, body);
    http_send_bytes(g->http, create, strlen(create));
    expect_status(http_receive(g->http, "PUT"), 201);
    expect_body(fetch(g, "chunked", "k", 0), "hello");
}

static void a_token_that_is_sent_is_still_checked(void **state)
{
    (void)state;
    struct lease a = acquire(g, "sent", LONG_TTL_MS);
    expect_status(configure("sent", "{\"fenced\":false}"), 200);
    expect_status(put_if("sent", "k", "If-None-Match: *", "one"), 201);
    const char *const *stale = LIST(token_header(a.token), "If-Match: \"v1\"");
    const char *const *forged = LIST(token_header(a.token + 2), "If-Match: \"v1\"");
    const char *path = store_path("sent", "k");
    expect_text(expect_problem(call(g, "PUT", path, stale, "x"), 412, "stale_fencing_token"),
                "reason", "revoked");
    expect_problem(call(g, "PUT", path, forged, "x"), 412, "fencing_token_not_issued");
    expect_problem(call(g, "DELETE", path, stale, NULL), 412, "stale_fencing_token");
    expect_problem(fetch(g, "sent", "k", a.token), 412, "stale_fencing_token");
    expect_problem(check(g, "sent", a.token), 412, "stale_fencing_token");
    expect_problem(check(g, "sent", a.token + 2), 412, "fencing_token_not_issued");
    expect_problem(check(g, "sent", 0), 428, "fencing_token_required");
    expect_body(fetch(g, "sent", "k", 0), "one");
}

static void fenced_again_writes_need_a_token(void **state)
{
    (void)state;
    expect_status(configure("again", "{\"fenced\":false}"), 200);
    expect_status(put_if("again", "k", "If-None-Match: *", "one"), 201);
    expect_status(configure("again", "{\"fenced\":true}"), 200);
    expect_problem(put_if("again", "k", "If-Match: \"v1\"", "x"), 428, "fencing_token_required");
    struct lease a = acquire(g, "again", LONG_TTL_MS);
    struct response *r = expect_status(put(g, "again", "k", a.token, "two"), 200);
    expect_number(r, "version", 2);
    expect_number(r, "fencing_token", a.token);
    expect_header(fetch(g, "again", "k", 0), "X-Written-With-Token", test_printf("%lld", a.token));
}

static void a_mandatory_lease_id_goes_with_a_token(void **state)
{
    (void)state;
    expect_status(call(strict, "PUT", "/resources/r", NULL, "{\"fenced\":false}"), 200);
    const char *path = store_path("r", "k");
    expect_status(call(strict, "PUT", path, LIST("If-None-Match: *"), "one"), 201);
    expect_problem(call(strict, "PUT", path, LIST("If-Match: \"v1\"", token_header(1)), "x"), 428,
                   "lease_id_required");
    expect_problem(put(strict, "r", "k", 0, "x"), 428, "precondition_required");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_revoked_holder_learns_it_and_writes_no_more),
        TEST(the_place_of_a_revoked_lease_is_free_at_once),
        TEST(the_middle_one_of_three_is_revoked),
        TEST(the_mark_rises_also_where_nobody_is_live),
        TEST(an_expired_lease_is_revoked_as_well),
        TEST(revoking_does_not_need_redis),
        TEST(what_was_revoked_stays_so_over_a_restart),
        TEST(revocations_stand_in_the_history),
        TEST(a_revocation_needs_a_reason),
        TEST(put_creates_a_resource),
        TEST(put_changes_what_it_names_and_nothing_else),
        TEST(malformed_settings_are_refused),
        TEST(a_revocation_lets_the_next_one_in),
        TEST(a_larger_limit_lets_the_next_one_in),
        TEST(unfencing_sends_away_whoever_waits),
        TEST(unfencing_ends_the_leases),
        TEST(an_unfenced_resource_takes_conditional_writes),
        TEST(a_write_without_a_token_must_be_conditional),
        TEST(a_chunked_write_is_judged_in_the_same_way),
        TEST(a_token_that_is_sent_is_still_checked),
        TEST(fenced_again_writes_need_a_token),
        TEST(a_mandatory_lease_id_goes_with_a_token),
    };
    return cmocka_run_group_tests_name("operators", tests, start_servers, NULL);
}
