/* client.c - the words of client.h. */
#include "tests/support/client.h"

#include <jansson.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 30000 };

struct fence_error failure;

/* ---- Expectations ---------------------------------------------------------------------------- */

const char *status_name(enum fence_status status)
{
    static const char *const names[] = {
        "FENCE_OK",          "FENCE_HELD",       "FENCE_CANCELLED",  "FENCE_TOO_SHORT",
        "FENCE_EXPIRED",     "FENCE_SUPERSEDED", "FENCE_REVOKED",    "FENCE_RELEASED",
        "FENCE_OUTLIVED",    "FENCE_FORKED",     "FENCE_STALE",      "FENCE_MISMATCH",
        "FENCE_NOT_FOUND",   "FENCE_REFUSED",    "FENCE_INVALID",    "FENCE_BUSY",
        "FENCE_UNREACHABLE", "FENCE_NO_ANSWER",  "FENCE_BAD_ANSWER", "FENCE_SYSTEM"};
    return (size_t)status < sizeof names / sizeof *names ? names[status] : "no status";
}

/* What must hold of every error. */
static const char *contradiction(enum fence_status status)
{
    if (failure.status != status)
        return test_printf("it holds %s", status_name(failure.status));
    if (!memchr(failure.code, '\0', sizeof failure.code) ||
        !memchr(failure.detail, '\0', sizeof failure.detail))
        return "a text has no end";
    if (failure.retry_after_ms < 0 || failure.highest_fencing_token < 0)
        return "a number is negative";
    if (status == FENCE_OK)
        return NULL;
    if (failure.detail[0] == '\0')
        return "there is no detail";
    if (failure.http_status == 0 && failure.code[0] != '\0')
        return "there is a code without an answer";
    return NULL;
}

void client_expect(enum fence_status expected, enum fence_status got, const char *call,
                   const char *file, int line)
{
    if (got != expected)
        fail_msg("%s:%d: %s: expected %s, got %s: %d %s %s", file, line, call,
                 status_name(expected), status_name(got), failure.http_status, failure.code,
                 failure.detail);
    const char *wrong = contradiction(got);
    if (wrong)
        fail_msg("%s:%d: %s: %s, but its error is wrong: %s", file, line, call, status_name(got),
                 wrong);
}

void client_expect_code(const char *code, const char *call, const char *file, int line)
{
    if (strcmp(failure.code, code) != 0)
        fail_msg("%s:%d: %s: expected the code %s, got \"%s\": %s", file, line, call, code,
                 failure.code, failure.detail);
}

long long boot_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- Clients and leases ---------------------------------------------------------------------- */

static void close_client(void *client)
{
    fence_close(client);
}

struct fence_client *client_with(const struct fence_options *options)
{
    struct fence_client *client = NULL;
    failure = (struct fence_error){0};
    EXPECT(FENCE_OK, fence_open(&client, options, &failure));
    assert_non_null(client);
    return cleanup_add(close_client, client);
}

struct fence_client *client_of(const char *url)
{
    return client_with(&(struct fence_options){.url = url, .timeout_ms = slow_ms(10000)});
}

static void free_lease(void *lease)
{
    fence_lease_free(lease);
}

struct fence_lease *adopt(struct fence_lease *lease)
{
    assert_non_null(lease);
    return cleanup_add(free_lease, lease);
}

void discard(struct fence_lease *lease)
{
    cleanup_forget(lease);
    fence_lease_free(lease);
}

struct fence_lease *take_lease(struct fence_client *client, const struct fence_terms *terms)
{
    struct fence_lease *lease = NULL;
    enum fence_status status = FENCE_TOO_SHORT;
    for (int i = 0; i < 50; i++) {
        status = fence_acquire(client, terms, &lease, &failure);
        if (status != FENCE_TOO_SHORT && strcmp(failure.code, "expired_while_granting") != 0)
            break;
    }
    EXPECT(FENCE_OK, status);
    return adopt(lease);
}

void take_away(struct gateway *gateway, const char *name)
{
    expect_status(post(gateway, test_printf("/resources/%s/revoke", encoded(name)),
                       "{\"reason\":\"the host is being taken down\"}"),
                  200);
}

/* ---- Losses ---------------------------------------------------------------------------------- */

struct loss *loss_new(void)
{
    return test_alloc(sizeof(struct loss));
}

void note_loss(struct fence_lease *lease, enum fence_status why, void *arg)
{
    struct loss *loss = arg;
    loss->at_boot_ms = boot_now_ms();
    loss->why = (int)why;
    loss->held = fence_still_held(lease) || fence_left_ms(lease) != 0;
    loss->lease = lease;
    loss->calls++;
}

void expect_loss(const struct loss *loss, enum fence_status why)
{
    if (!EVENTUALLY(loss->calls > 0, PATIENCE_MS))
        fail_msg("the loss is never told");
    if (loss->why != (int)why)
        fail_msg("it is lost because of %s, not %s", status_name((enum fence_status)loss->why),
                 status_name(why));
    assert_int_equal(loss->calls, 1);
    assert_false(loss->held);
    assert_false(fence_still_held(loss->lease));
    assert_int_equal(fence_left_ms(loss->lease), 0);
}

/* ---- An acquire on a thread of its own ------------------------------------------------------- */

struct asking {
    pthread_t thread;
    struct fence_client *client;
    struct fence_terms terms;
    int cancel;
    atomic_bool done;
    bool joined;
    enum fence_status status;
    struct fence_lease *lease;
    struct fence_error error;
};

static void *run_asking(void *arg)
{
    struct asking *asking = arg;
    asking->status = fence_acquire(asking->client, &asking->terms, &asking->lease, &asking->error);
    asking->done = true;
    return NULL;
}

static void free_asking(void *arg)
{
    struct asking *asking = arg;
    if (!asking->joined) {
        asking_cancel(asking);
        pthread_join(asking->thread, NULL);
        fence_lease_free(asking->lease);
    }
    close(asking->cancel);
    free(asking);
}

struct asking *ask_meanwhile(struct fence_client *client, const struct fence_terms *terms)
{
    struct asking *asking = calloc(1, sizeof *asking);
    if (!asking)
        abort();
    asking->client = client;
    asking->terms = *terms;
    asking->cancel = eventfd(0, EFD_CLOEXEC);
    if (asking->terms.cancel_fd == 0)
        asking->terms.cancel_fd = asking->cancel;
    if (asking->cancel < 0 || pthread_create(&asking->thread, NULL, run_asking, asking) != 0)
        abort();
    return cleanup_add(free_asking, asking);
}

bool asking_is_done(const struct asking *asking)
{
    return asking->done;
}

void asking_cancel(struct asking *asking)
{
    eventfd_write(asking->cancel, 1);
}

enum fence_status asking_end(struct asking *asking, struct fence_lease **lease)
{
    if (!EVENTUALLY(asking->done, PATIENCE_MS))
        fail_msg("the acquire does not end");
    pthread_join(asking->thread, NULL);
    asking->joined = true;
    failure = asking->error;
    if (asking->lease)
        adopt(asking->lease);
    if (lease)
        *lease = asking->lease;
    return asking->status;
}

/* ---- Leases of a stub ------------------------------------------------------------------------ */

static json_t *lease_json(int ttl_ms, int expires_in_ms, int waited_ms)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:n, s:s, s:i, s:i, s:i, s:i, s:s, s:s, s:i}", "lease_id", STUB_LEASE_ID,
        "resource", "r", "owner", "state", "held", "fencing_token", STUB_TOKEN, "limit", 1,
        "ttl_ms", ttl_ms, "expires_in_ms", expires_in_ms, "expires_at", "2026-11-29T12:00:30.000Z",
        "acquired_at", "2026-11-29T12:00:00.000Z", "waited_ms", waited_ms);
    assert_non_null(json);
    return json;
}

static const char *text_of(json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    assert_non_null(text);
    return cleanup_add(free, text);
}

const char *lease_body(const char *member, const char *value)
{
    json_t *json = lease_json(30000, 30000, 0);
    if (value)
        json_object_set_new(json, member, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(json, member);
    return text_of(json);
}

const char *stub_lease_times(int status, int ttl_ms, int expires_in_ms, int waited_ms)
{
    return stub_json(status, text_of(lease_json(ttl_ms, expires_in_ms, waited_ms)));
}

const char *stub_lease(int status, int ttl_ms)
{
    return stub_lease_times(status, ttl_ms, ttl_ms, 0);
}

const char *stub_released(void)
{
    return stub_json(200, "{\"released\":true,\"expired\":false,\"held_ms\":5,\"remaining_ms\":5}");
}

void stub_serve(struct stub *stub, int ttl_ms)
{
    stub_play(stub, ACQUIRES, STEPS({.text = stub_lease(201, ttl_ms)}));
    stub_play(stub, RENEWALS, STEPS({.text = stub_lease(200, ttl_ms)}));
    stub_play(stub, RELEASES, STEPS({.text = stub_released()}));
}
