/* fence.c - clients and leases: opening, asking, renewing, releasing (fence.h).
 *
 * A lease is in one of two states. It is held (`over` is FENCE_OK) until somebody says for the
 * first time why it is not: the watchdog, fence_renew() or fence_release(). That is for ever:
 * nothing extends the deadline of a lease that is over.
 *
 * Renewals come from the watchdog and from fence_renew(). Those with the lease's TTL may overlap:
 * whichever the gateway does last, the lease ends no earlier than by the last of them that was
 * answered. One with another TTL is made alone: the gateway could do it before an older one. */
#include "client/fence.h"

#include "client/internal.h"
#include "client/wire.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_TIMEOUT_MS = 10 * 1000, MARGIN_LEAST_MS = 10, MARGIN_MOST_MS = 1000 };

/* ---- Client --------------------------------------------------------------------------------- */

bool client_is_ours(const struct fence_client *client)
{
    return client->pid == getpid();
}

/* "http://host:port/" without the slash; NULL: curl cannot read it, or there is no memory. */
static char *read_url(const char *text)
{
    char *url = NULL, *scheme = NULL;
    CURLU *parts = curl_url();
    bool good = parts && curl_url_set(parts, CURLUPART_URL, text, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
                !strpbrk(text, "?#");
    if (good && (url = strdup(text))) {
        size_t length = strlen(url);
        while (length > 0 && url[length - 1] == '/')
            url[--length] = '\0';
    }
    curl_free(scheme);
    curl_url_cleanup(parts);
    return url;
}

enum fence_status fence_open(struct fence_client **client, const struct fence_options *options,
                             struct fence_error *error)
{
    const char *url = options && options->url ? options->url : "http://127.0.0.1:8080";
    int64_t timeout_ms = options ? options->timeout_ms : 0;
    *client = NULL;
    if (timeout_ms < 0)
        return fence_fail(error, FENCE_INVALID, "a timeout of %lld ms", (long long)timeout_ms);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return fence_fail(error, FENCE_SYSTEM, "%s", "libcurl cannot be initialized");
    struct fence_client *opened = calloc(1, sizeof *opened);
    if (opened)
        opened->url = read_url(url);
    if (!opened || !opened->url) {
        free(opened);
        curl_global_cleanup();
        return fence_fail(error, FENCE_INVALID, "\"%s\" is not an http:// or https:// URL", url);
    }
    opened->timeout_ms = timeout_ms > 0 ? at_most_a_century(timeout_ms) : DEFAULT_TIMEOUT_MS;
    opened->pid = getpid();
    pthread_mutex_init(&opened->mutex, NULL);
    *client = opened;
    return fence_fail(error, FENCE_OK, "%s", fence_status_text(FENCE_OK));
}

void fence_close(struct fence_client *client)
{
    if (!client)
        return;
    /* In a child the connections are the parent's: closing them properly would end them for both.
     */
    if (client_is_ours(client)) {
        while (client->idle_count > 0)
            wire_close(client->idle[--client->idle_count]);
        pthread_mutex_destroy(&client->mutex);
        curl_global_cleanup();
    }
    free(client->url);
    free(client);
}

/* ---- Deadlines ------------------------------------------------------------------------------ */

int64_t lease_margin_ms(int64_t ttl_ms)
{
    int64_t margin_ms = ttl_ms / 20;
    if (margin_ms < MARGIN_LEAST_MS)
        return MARGIN_LEAST_MS;
    return margin_ms < MARGIN_MOST_MS ? margin_ms : MARGIN_MOST_MS;
}

/* The gateway began to count when it granted, which was not before we had asked and waited. What it
 * says of that is held against our own clock: it cannot make the lease longer. */
int64_t lease_deadline(int64_t sent_boot_ms, int64_t ttl_ms, const struct lease_answer *answer)
{
    int64_t passed_ms = boot_ms() - sent_boot_ms;
    int64_t waited_ms = answer->waited_ms < passed_ms ? answer->waited_ms : passed_ms;
    int64_t left_ms = answer->expires_in_ms < ttl_ms ? answer->expires_in_ms : ttl_ms;
    return sent_boot_ms + waited_ms + left_ms - lease_margin_ms(ttl_ms);
}

/* With the mutex. */
static void end_lease(struct fence_lease *lease, enum fence_status why, const char *detail)
{
    if (atomic_load(&lease->over) != FENCE_OK)
        return;
    snprintf(lease->detail, sizeof lease->detail, "%s", detail ? detail : fence_status_text(why));
    atomic_store(&lease->over, why);
}

void lease_is_over(struct fence_lease *lease, enum fence_status why, const char *detail)
{
    pthread_mutex_lock(&lease->mutex);
    end_lease(lease, why, detail);
    pthread_mutex_unlock(&lease->mutex);
}

/* Whoever sees that the deadline has passed says so for ever: an answer that comes a moment later
 * does not bring the lease back. */
static enum fence_status state_now(struct fence_lease *lease)
{
    int64_t now = boot_ms();
    if (now >= atomic_load(&lease->deadline_boot_ms))
        lease_is_over(lease, now >= lease->outlived_boot_ms ? FENCE_OUTLIVED : FENCE_EXPIRED, NULL);
    return atomic_load(&lease->over);
}

bool lease_extend(struct fence_lease *lease, int64_t sent_boot_ms, int64_t ttl_ms,
                  const struct lease_answer *answer)
{
    int64_t deadline = lease_deadline(sent_boot_ms, ttl_ms, answer);
    if (deadline > lease->outlived_boot_ms)
        deadline = lease->outlived_boot_ms;
    if (boot_ms() >= deadline || state_now(lease) != FENCE_OK)
        return false;
    pthread_mutex_lock(&lease->mutex);
    bool held = atomic_load(&lease->over) == FENCE_OK;
    bool is_older = ttl_ms == atomic_load(&lease->ttl_ms) &&
                    deadline <= atomic_load(&lease->deadline_boot_ms);
    if (held && !is_older) {
        atomic_store(&lease->ttl_ms, ttl_ms);
        atomic_store(&lease->renewed_boot_ms, sent_boot_ms);
        atomic_store(&lease->deadline_boot_ms, deadline);
    }
    pthread_mutex_unlock(&lease->mutex);
    return held;
}

/* ---- Asking a lease ------------------------------------------------------------------------- */

int64_t fence_left_ms(const struct fence_lease *lease)
{
    /* The caller's view is const: what it is told has no other effect than to stay true. */
    if (!client_is_ours(lease->client) || state_now((struct fence_lease *)lease) != FENCE_OK)
        return 0;
    int64_t left_ms = atomic_load(&lease->deadline_boot_ms) - boot_ms();
    return left_ms > 0 ? left_ms : 0;
}

bool fence_still_held(const struct fence_lease *lease)
{
    return fence_left_ms(lease) > 0;
}

int64_t fence_deadline_boot_ms(const struct fence_lease *lease)
{
    return atomic_load(&lease->deadline_boot_ms);
}

const char *fence_lease_id(const struct fence_lease *lease)
{
    return lease->id;
}

int64_t fence_lease_token(const struct fence_lease *lease)
{
    return lease->token;
}

const char *fence_lease_resource(const struct fence_lease *lease)
{
    return lease->resource;
}

const char *fence_lease_owner(const struct fence_lease *lease)
{
    return lease->owner;
}

const char *fence_lease_expires_at(const struct fence_lease *lease)
{
    return lease->expires_at;
}

int64_t fence_lease_ttl_ms(const struct fence_lease *lease)
{
    return atomic_load(&lease->ttl_ms);
}

int fence_lease_limit(const struct fence_lease *lease)
{
    return lease->limit;
}

int64_t fence_lease_waited_ms(const struct fence_lease *lease)
{
    return lease->waited_ms;
}

const char *fence_lost_detail(const struct fence_lease *lease)
{
    return atomic_load(&lease->over) != FENCE_OK ? lease->detail : "";
}

/* ---- Renewing ------------------------------------------------------------------------------- */

static bool may_renew(const struct fence_lease *lease, bool alone)
{
    return alone ? lease->renewals == 0 : !lease->alone;
}

bool lease_renewal_begin(struct fence_lease *lease, bool alone, bool wait)
{
    pthread_mutex_lock(&lease->mutex);
    while (wait && !may_renew(lease, alone) && !lease->ending)
        pthread_cond_wait(&lease->rested, &lease->mutex);
    bool begun = may_renew(lease, alone) && !lease->ending;
    if (begun) {
        lease->renewals++;
        lease->alone = alone;
    }
    pthread_mutex_unlock(&lease->mutex);
    return begun;
}

void lease_renewal_end(struct fence_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    lease->renewals--;
    lease->alone = false;
    pthread_cond_broadcast(&lease->rested);
    pthread_mutex_unlock(&lease->mutex);
}

struct http_request lease_renewal(const struct fence_lease *lease, const char *path, int64_t ttl_ms,
                                  char body[RENEWAL_BODY_BYTES])
{
    int bytes = snprintf(body, RENEWAL_BODY_BYTES, "{\"ttl_ms\":%lld}", (long long)ttl_ms);
    return (struct http_request){.method = "POST",
                                 .base = lease->client->url,
                                 .path = path,
                                 .body = body,
                                 .body_bytes = (size_t)bytes};
}

/* Does the server say that the lease is over? (fence_renew()'s and the watchdog's reading.) */
bool lease_has_ended(enum fence_status status)
{
    return status == FENCE_EXPIRED || status == FENCE_SUPERSEDED || status == FENCE_REVOKED ||
           status == FENCE_RELEASED || status == FENCE_NOT_FOUND;
}

enum fence_status lease_read_renewal(struct fence_lease *lease, int64_t ttl_ms,
                                     const struct http_answer *answer, struct fence_error *error)
{
    struct lease_answer renewed;
    json_t *json = http_answer_json(answer, error);
    if (!json)
        return FENCE_BAD_ANSWER;
    enum fence_status status = FENCE_OK;
    if (!lease_answer_read(json, lease->resource, &renewed) || renewed.token != lease->token ||
        strcmp(renewed.id, lease->id) != 0 || answer->status != 200)
        status = http_bad_answer(answer, error, "not this lease");
    else if (!lease_extend(lease, answer->sent_boot_ms, ttl_ms, &renewed))
        status = atomic_load(&lease->over) != FENCE_OK ? atomic_load(&lease->over) : FENCE_EXPIRED;
    if (status != FENCE_OK && status != FENCE_BAD_ANSWER)
        fence_fail(error, status, "the answer to the renewal came too late: %s",
                   fence_status_text(status));
    json_decref(json);
    return status;
}

/* Why it cannot be renewed any more, or FENCE_OK. */
static enum fence_status check_renewable(struct fence_lease *lease, int64_t ttl_ms,
                                         struct fence_error *error)
{
    enum fence_status over = client_is_ours(lease->client) ? state_now(lease) : FENCE_FORKED;
    if (over != FENCE_OK)
        return fence_fail(error, over, "%s", fence_status_text(over));
    if (ttl_ms != 0 && (ttl_ms < FENCE_TTL_LEAST_MS || ttl_ms > FENCE_TTL_MOST_MS))
        return fence_fail(error, FENCE_INVALID, "a TTL of %lld ms", (long long)ttl_ms);
    return FENCE_OK;
}

/* A shorter TTL counts from when it is asked for: the answer may never come. */
static void shorten(struct fence_lease *lease, int64_t ttl_ms)
{
    int64_t deadline = boot_ms() + ttl_ms - lease_margin_ms(ttl_ms);
    if (deadline < atomic_load(&lease->deadline_boot_ms))
        atomic_store(&lease->deadline_boot_ms, deadline);
}

/* A renewal with another TTL, alone, has failed. Where it was certainly not done everything is as
 * before; else the shorter TTL may hold, and the watchdog makes sure, at once. */
static void settle_failed(struct fence_lease *lease, enum fence_status status, int64_t ttl_ms,
                          int64_t deadline_before)
{
    bool not_done = status == FENCE_UNREACHABLE || status == FENCE_REFUSED ||
                    status == FENCE_INVALID || status == FENCE_SYSTEM;
    pthread_mutex_lock(&lease->mutex);
    if (atomic_load(&lease->over) == FENCE_OK && not_done) {
        atomic_store(&lease->deadline_boot_ms, deadline_before);
    } else if (ttl_ms < atomic_load(&lease->ttl_ms)) {
        atomic_store(&lease->ttl_ms, ttl_ms);
        atomic_store(&lease->renewed_boot_ms, boot_ms() - ttl_ms);
    }
    pthread_mutex_unlock(&lease->mutex);
}

/* One with another TTL keeps the watchdog waiting, so it is given up early. */
static enum fence_status ask(struct fence_lease *lease, int64_t ttl_ms, bool alone,
                             struct fence_error *error)
{
    char body[RENEWAL_BODY_BYTES];
    struct http_answer answer;
    char *path = http_path("leases", lease->id, "renew", NULL);
    if (!path)
        return fence_fail(error, FENCE_SYSTEM, "%s", "no memory left");
    struct http_request request = lease_renewal(lease, path, ttl_ms, body);
    int64_t most_ms = fence_left_ms(lease) / 3 + 1;
    if (alone && most_ms < lease->client->timeout_ms)
        request.timeout_ms = most_ms;
    if (alone)
        shorten(lease, ttl_ms);
    enum fence_status status = http_call(lease->client, &request, &answer, error);
    if (status == FENCE_OK)
        status = lease_read_renewal(lease, ttl_ms, &answer, error);
    http_answer_free(&answer);
    free(path);
    return status;
}

enum fence_status fence_renew(struct fence_lease *lease, int64_t ttl_ms, struct fence_error *error)
{
    struct fence_error told = {0};
    error = error ? error : &told;
    enum fence_status status = check_renewable(lease, ttl_ms, error);
    if (status != FENCE_OK)
        return status;
    bool alone = ttl_ms != 0 && ttl_ms != atomic_load(&lease->ttl_ms);
    if (!lease_renewal_begin(lease, alone, true))
        return fence_fail(error, FENCE_RELEASED, "%s", "the lease is being released");
    int64_t deadline_before = atomic_load(&lease->deadline_boot_ms);
    status = check_renewable(lease, ttl_ms, error); /* it may have waited */
    if (status == FENCE_OK)
        status = ask(lease, alone ? ttl_ms : atomic_load(&lease->ttl_ms), alone, error);
    if (lease_has_ended(status))
        lease_is_over(lease, status, error->detail);
    else if (alone && status != FENCE_OK)
        settle_failed(lease, status, ttl_ms, deadline_before);
    lease_renewal_end(lease);
    watchdog_wake(lease); /* there is another deadline, or none */
    return status;
}

/* ---- Releasing ------------------------------------------------------------------------------ */

/* It is over, if it was not, and from here on nobody renews it: the watchdog is gone, and
 * fence_renew() is not let in. */
static void end_renewals(struct fence_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    lease->ending = true; /* before the next: the watchdog tells nobody of it */
    end_lease(lease, FENCE_RELEASED, NULL);
    pthread_cond_broadcast(&lease->rested);
    pthread_mutex_unlock(&lease->mutex);
    watchdog_stop(lease);
    pthread_mutex_lock(&lease->mutex);
    while (lease->renewals > 0) /* of fence_renew(), in other threads */
        pthread_cond_wait(&lease->rested, &lease->mutex);
    pthread_mutex_unlock(&lease->mutex);
}

static enum fence_status read_release(const struct http_answer *answer, struct fence_error *error)
{
    json_t *json = http_answer_json(answer, error);
    if (!json)
        return FENCE_BAD_ANSWER;
    enum fence_status status = FENCE_OK;
    if (answer->status != 200 || !json_is_true(json_object_get(json, "released")))
        status = http_bad_answer(answer, error, "not what a release is answered with");
    else if (json_is_true(json_object_get(json, "expired")))
        status =
            fence_fail(error, FENCE_EXPIRED, "%s", "the lease had run out when it was released");
    json_decref(json);
    return status;
}

enum fence_status lease_give_back(struct fence_client *client, const char *path, int64_t timeout_ms,
                                  struct fence_error *error)
{
    struct http_answer answer;
    struct http_request request = {.method = "DELETE", .path = path, .timeout_ms = timeout_ms};
    enum fence_status status = http_call(client, &request, &answer, error);
    if (status == FENCE_OK)
        status = read_release(&answer, error);
    http_answer_free(&answer);
    return status;
}

enum fence_status fence_release(struct fence_lease *lease, struct fence_error *error)
{
    if (!client_is_ours(lease->client))
        return fence_fail(error, FENCE_FORKED, "%s", fence_status_text(FENCE_FORKED));
    end_renewals(lease);
    return lease_give_back(lease->client, lease->path, 0, error);
}

void fence_lease_free(struct fence_lease *lease)
{
    if (!lease)
        return;
    if (client_is_ours(lease->client)) {
        end_renewals(lease);
        pthread_cond_destroy(&lease->rested);
        pthread_mutex_destroy(&lease->mutex);
        pthread_mutex_destroy(&lease->stopping);
    }
    if (lease->wake >= 0)
        close(lease->wake);
    if (lease->timer >= 0)
        close(lease->timer);
    free(lease->resource);
    free(lease->owner);
    free(lease->id);
    free(lease->path);
    free(lease->expires_at);
    free(lease);
}
