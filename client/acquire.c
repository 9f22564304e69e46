/* acquire.c - taking a lease: one request, or a wait of many (fence_acquire() in fence.h).
 *
 * One request waits for at most a step. A longer wait is made of several, and so that it keeps its
 * turn, the next one takes its place in the gateway's queue when half a step is over:
 *
 *     |--------- first ---------|                      each is in the queue from | to |
 *                  |--------- second --------|
 *                               |--------- third ---------|
 *
 * The older of the two has stood there for half a step at least, at any time but the first. What is
 * granted to one ends the other: hanging up takes it out of the queue at once.
 *
 * A wait also survives the gateway: who has stood in the queue (a request of ours was open for
 * STOOD_MS) asks again when the connection is lost or the gateway says that it cannot now, for up
 * to PATIENCE_MS in a row. One that is turned away at the door is told so at once. */
#include "client/internal.h"
#include "client/wire.h"

#include <stdlib.h>
#include <string.h>

enum {
    ASKS_MAX = 2,
    STOOD_MS = 100,
    PATIENCE_MS = 60 * 1000,
    PAUSE_LEAST_MS = 50,
    PAUSE_MOST_MS = 1000,
    GIVE_BACK_MS = 2000, /* for the release of what nobody wants */
    OWNER_BYTES_MAX = 128,
    LIMIT_MAX = 1000
};

struct wait {
    struct fence_client *client;
    const struct fence_terms *terms;
    struct wire *wire;
    struct exchange asks[ASKS_MAX]; /* those with a wire are under way */
    int64_t begun_boot_ms;
    int64_t end_boot_ms; /* INT64_MAX: never */
    int64_t step_ms;
    int64_t next_boot_ms;    /* when the next request is made; INT64_MAX: none is due */
    int64_t pause_ms;        /* after the next failure */
    int64_t failing_boot_ms; /* since when there has been nothing but failures; 0: there was none */
    bool stood;              /* in the queue, at some time */
};

/* ---- What is asked for ---------------------------------------------------------------------- */

static enum fence_status check_terms(const struct fence_terms *terms, struct fence_error *error)
{
    size_t bytes = terms->resource ? strlen(terms->resource) : 0;
    if (bytes == 0 || bytes > NAME_BYTES_MAX)
        return fence_fail(error, FENCE_INVALID, "a resource's name has 1 to %d bytes, not %zu",
                          NAME_BYTES_MAX, bytes);
    if (terms->owner && strlen(terms->owner) > OWNER_BYTES_MAX)
        return fence_fail(error, FENCE_INVALID, "an owner has at most %d bytes", OWNER_BYTES_MAX);
    if (terms->ttl_ms != 0 &&
        (terms->ttl_ms < FENCE_TTL_LEAST_MS || terms->ttl_ms > FENCE_TTL_MOST_MS))
        return fence_fail(error, FENCE_INVALID, "a TTL is 50 ms to 24 h, not %lld ms",
                          (long long)terms->ttl_ms);
    if (terms->wait_ms < FENCE_WAIT_FOREVER)
        return fence_fail(error, FENCE_INVALID, "a wait of %lld ms", (long long)terms->wait_ms);
    if (terms->limit < 0 || terms->limit > LIMIT_MAX)
        return fence_fail(error, FENCE_INVALID, "a limit is 1 to %d, not %d", LIMIT_MAX,
                          terms->limit);
    if (terms->max_hold_ms < 0)
        return fence_fail(error, FENCE_INVALID, "max_hold_ms is %lld",
                          (long long)terms->max_hold_ms);
    if (terms->wait_step_ms < 0 || terms->wait_step_ms > FENCE_WAIT_STEP_MS)
        return fence_fail(error, FENCE_INVALID, "wait_step_ms is 1 to %d, not %lld",
                          FENCE_WAIT_STEP_MS, (long long)terms->wait_step_ms);
    return FENCE_OK;
}

/* The body of a request; NULL: memory is out, or a text is not UTF-8. */
static char *write_body(const struct fence_terms *terms, int64_t wait_ms)
{
    json_t *json = json_pack("{ss, sI, ss*}", "resource", terms->resource, "wait_ms",
                             (json_int_t)wait_ms, "owner", terms->owner);
    if (terms->ttl_ms != 0)
        json_object_set_new(json, "ttl_ms", json_integer(terms->ttl_ms));
    if (terms->limit != 0)
        json_object_set_new(json, "limit", json_integer(terms->limit));
    char *body = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return body;
}

/* ---- What is answered ----------------------------------------------------------------------- */

static bool read_integer(const json_t *json, const char *name, int64_t least, int64_t most,
                         int64_t *number)
{
    const json_t *value = json_object_get(json, name);
    *number = json_integer_value(value);
    return json_is_integer(value) && *number >= least && *number <= most;
}

/* It becomes part of a path and of a shell's variable: nothing but what the gateway makes. */
static bool is_lease_id(const char *id)
{
    size_t bytes = id ? strlen(id) : 0;
    return bytes > 0 && bytes <= LEASE_ID_BYTES_MAX &&
           strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == bytes;
}

bool lease_answer_read(const json_t *json, const char *resource, struct lease_answer *answer)
{
    int64_t limit;
    const char *name = json_string_value(json_object_get(json, "resource"));
    const char *owner = json_string_value(json_object_get(json, "owner"));
    const char *state = json_string_value(json_object_get(json, "state"));
    answer->id = json_string_value(json_object_get(json, "lease_id"));
    answer->expires_at = json_string_value(json_object_get(json, "expires_at"));
    answer->owner = owner ? owner : "";
    if (!is_lease_id(answer->id) || !name || strcmp(name, resource) != 0 || !state ||
        strcmp(state, "held") != 0 || !answer->expires_at ||
        !read_integer(json, "fencing_token", 1, (INT64_C(1) << 53) - 1, &answer->token) ||
        !read_integer(json, "ttl_ms", 1, FENCE_TTL_MOST_MS, &answer->ttl_ms) ||
        !read_integer(json, "expires_in_ms", 0, FENCE_TTL_MOST_MS, &answer->expires_in_ms) ||
        !read_integer(json, "waited_ms", 0, INT64_MAX, &answer->waited_ms) ||
        !read_integer(json, "limit", 1, LIMIT_MAX, &limit))
        return false;
    answer->limit = (int)limit;
    return true;
}

/* Of a lease that nobody wants: it would end by its TTL in any case. */
static void give_back(struct fence_client *client, const char *id)
{
    char *path = is_lease_id(id) ? http_path("leases", id, NULL) : NULL;
    if (path)
        lease_give_back(client, path, GIVE_BACK_MS, NULL);
    free(path);
}

static void give_back_answered(struct fence_client *client, const struct http_answer *answer)
{
    json_t *json = http_answer_json(answer, NULL);
    give_back(client, json_string_value(json_object_get(json, "lease_id")));
    json_decref(json);
}

/* ---- The handle ----------------------------------------------------------------------------- */

static struct fence_lease *lease_new(const struct wait *wait, const struct lease_answer *answer)
{
    const struct fence_terms *terms = wait->terms;
    struct fence_lease *lease = calloc(1, sizeof *lease);
    if (!lease)
        return NULL;
    *lease = (struct fence_lease){
        .client = wait->client,
        .resource = strdup(terms->resource),
        .owner = strdup(answer->owner),
        .id = strdup(answer->id),
        .path = http_path("leases", answer->id, NULL),
        .expires_at = strdup(answer->expires_at),
        .token = answer->token,
        .limit = answer->limit,
        .waited_ms = boot_ms() - wait->begun_boot_ms,
        .lost = terms->lost,
        .arg = terms->arg,
        .wake = -1,
        .timer = -1,
    };
    pthread_mutex_init(&lease->mutex, NULL);
    pthread_mutex_init(&lease->stopping, NULL);
    pthread_cond_init(&lease->rested, NULL);
    return lease;
}

/* Begins its life. False: this machine cannot; nothing is left but memory to free. */
static bool lease_begin(struct fence_lease *lease, const struct fence_terms *terms,
                        const struct lease_answer *answer, int64_t sent_boot_ms)
{
    int64_t deadline = lease_deadline(sent_boot_ms, answer->ttl_ms, answer);
    lease->outlived_boot_ms =
        terms->max_hold_ms > 0 ? boot_ms() + at_most_a_century(terms->max_hold_ms) : INT64_MAX;
    if (deadline > lease->outlived_boot_ms)
        deadline = lease->outlived_boot_ms;
    atomic_store(&lease->ttl_ms, answer->ttl_ms);
    atomic_store(&lease->deadline_boot_ms, deadline);
    atomic_store(&lease->renewed_boot_ms, boot_ms() - sent_boot_ms < answer->waited_ms
                                              ? boot_ms()
                                              : sent_boot_ms + answer->waited_ms);
    return lease->resource && lease->owner && lease->id && lease->path && lease->expires_at &&
           (terms->no_watchdog || watchdog_start(lease));
}

/* A renewal takes as long as this answer took: where less than half of the TTL would be left, there
 * is no keeping the lease. */
static bool is_too_short(const struct lease_answer *answer, int64_t sent_boot_ms)
{
    int64_t usable_ms = answer->ttl_ms - lease_margin_ms(answer->ttl_ms);
    return lease_deadline(sent_boot_ms, answer->ttl_ms, answer) - boot_ms() < usable_ms / 2;
}

static enum fence_status take(const struct wait *wait, const struct http_answer *answer,
                              struct fence_lease **lease, struct fence_error *error)
{
    struct lease_answer granted;
    enum fence_status status = FENCE_OK;
    json_t *json = http_answer_json(answer, error);
    if (!json)
        return FENCE_BAD_ANSWER;
    if (answer->status != 201 || !lease_answer_read(json, wait->terms->resource, &granted)) {
        status = http_bad_answer(answer, error, "not a lease");
    } else if (is_too_short(&granted, answer->sent_boot_ms)) {
        status = fence_fail(error, FENCE_TOO_SHORT,
                            "a TTL of %lld ms is too short: the answer took %lld ms of it",
                            (long long)granted.ttl_ms,
                            (long long)(boot_ms() - answer->sent_boot_ms - granted.waited_ms));
    } else {
        *lease = lease_new(wait, &granted);
        if (!*lease || !lease_begin(*lease, wait->terms, &granted, answer->sent_boot_ms))
            status =
                fence_fail(error, FENCE_SYSTEM, "%s", "no memory, descriptors or threads left");
    }
    if (status != FENCE_OK) {
        fence_lease_free(*lease);
        *lease = NULL;
        give_back(wait->client, json_string_value(json_object_get(json, "lease_id")));
    }
    json_decref(json);
    return status;
}

/* ---- Asking --------------------------------------------------------------------------------- */

static int64_t left_ms(const struct wait *wait)
{
    int64_t now = boot_ms();
    return wait->end_boot_ms > now ? wait->end_boot_ms - now : 0;
}

static size_t asks_open(const struct wait *wait)
{
    size_t open = 0;
    for (size_t i = 0; i < ASKS_MAX; i++)
        open += wait->asks[i].wire != NULL;
    return open;
}

/* Takes one more place in the queue. */
static enum fence_status ask(struct wait *wait, struct fence_error *error)
{
    struct exchange *free_place = wait->asks[0].wire ? &wait->asks[1] : &wait->asks[0];
    int64_t wait_ms = left_ms(wait) < wait->step_ms ? left_ms(wait) : wait->step_ms;
    char *body = write_body(wait->terms, wait_ms);
    if (!body)
        return fence_fail(error, FENCE_INVALID, "%s", "a name or an owner is not UTF-8");
    struct http_request request = {
        .method = "POST",
        .base = wait->client->url,
        .path = "/leases",
        .body = body,
        .body_bytes = strlen(body),
        .timeout_ms = wait_ms + wait->client->timeout_ms,
        .connect_ms = wait->client->timeout_ms,
        .once = true,
    };
    bool begun = exchange_begin(wait->wire, free_place, &request);
    free(body);
    if (!begun)
        return fence_fail(error, FENCE_SYSTEM, "%s", "no memory left");
    bool has_next = left_ms(wait) > wait->step_ms;
    wait->next_boot_ms = has_next ? boot_ms() + (wait->step_ms + 1) / 2 : INT64_MAX;
    return FENCE_OK;
}

/* Is this a failure that a wait outlasts? */
static bool may_pass(struct wait *wait, const struct exchange *failed)
{
    int64_t now = boot_ms();
    if (failed->sent && now - failed->sent_boot_ms >= STOOD_MS) {
        wait->stood = true;
        if (now < failed->timeout_boot_ms) /* it stood there until something happened */
            wait->failing_boot_ms = 0;
    }
    if (strcmp(failed->error.code, "too_many_waiters") == 0)
        return left_ms(wait) > 0;
    if (!wait->stood || left_ms(wait) == 0 ||
        (failed->status != FENCE_BUSY && failed->status != FENCE_UNREACHABLE &&
         failed->status != FENCE_NO_ANSWER))
        return false;
    if (wait->failing_boot_ms == 0)
        wait->failing_boot_ms = now;
    return now - wait->failing_boot_ms < PATIENCE_MS;
}

/* One has ended without a lease. FENCE_OK: the wait goes on. */
static enum fence_status go_on(struct wait *wait, struct exchange *ended)
{
    enum fence_status status = ended->status;
    int64_t pause_ms = 0;
    if (status == FENCE_HELD) {
        wait->failing_boot_ms = 0;
        wait->pause_ms = PAUSE_LEAST_MS;
        if (left_ms(wait) == 0 || wait->terms->wait_ms == 0)
            return status;
        /* Where it was turned away before its time, not at once again. */
        if (boot_ms() - ended->sent_boot_ms < PAUSE_LEAST_MS)
            pause_ms = PAUSE_LEAST_MS;
    } else if (may_pass(wait, ended)) {
        pause_ms = wait->pause_ms;
        if (ended->error.retry_after_ms > pause_ms)
            pause_ms = ended->error.retry_after_ms;
        wait->pause_ms = wait->pause_ms * 2 < PAUSE_MOST_MS ? wait->pause_ms * 2 : PAUSE_MOST_MS;
    } else {
        return status;
    }
    exchange_end(ended);
    if (asks_open(wait) == 0) {
        wait->next_boot_ms = boot_ms() + pause_ms;
        if (wait->next_boot_ms > wait->end_boot_ms)
            wait->next_boot_ms = wait->end_boot_ms;
    }
    return FENCE_OK;
}

/* ---- Waiting -------------------------------------------------------------------------------- */

static void expire(struct exchange *ask)
{
    if (ask->wire && !ask->done && boot_ms() >= ask->timeout_boot_ms)
        exchange_time_out(ask);
}

/* Time for the next request, and room for it? (It is due when the oldest ends, to the
 * millisecond.) */
static bool is_due(const struct wait *wait)
{
    return asks_open(wait) < ASKS_MAX && boot_ms() >= wait->next_boot_ms;
}

/* Until something has happened to one of the requests, or the next one is due. */
static bool look(struct wait *wait)
{
    int64_t until = asks_open(wait) < ASKS_MAX ? wait->next_boot_ms : INT64_MAX;
    for (size_t i = 0; i < ASKS_MAX; i++) {
        if (wait->asks[i].wire && wait->asks[i].timeout_boot_ms < until)
            until = wait->asks[i].timeout_boot_ms;
    }
    return wire_wait(wait->wire, wait->terms->cancel_fd, until);
}

static enum fence_status run(struct wait *wait, struct fence_lease **lease,
                             struct fence_error *error)
{
    for (;;) {
        if (is_due(wait)) {
            enum fence_status status = ask(wait, error);
            if (status != FENCE_OK)
                return status;
        }
        if (look(wait))
            return fence_fail(error, FENCE_CANCELLED, "%s", "the wait was given up");
        for (size_t i = 0; i < ASKS_MAX; i++) {
            struct exchange *asked = &wait->asks[i];
            expire(asked);
            if (!asked->done)
                continue;
            if (asked->status == FENCE_OK) {
                enum fence_status status = take(wait, &asked->answer, lease, error);
                exchange_end(asked);
                return status;
            }
            struct fence_error told = asked->error;
            enum fence_status status = go_on(wait, asked);
            if (status != FENCE_OK) {
                if (error)
                    *error = told;
                return status;
            }
        }
    }
}

static bool is_owed(const struct exchange *asked)
{
    return asked->given_up && !asked->done;
}

/* Leaves the queue. What is granted at this very moment is released: a lease that nobody knows of
 * would block the others until its TTL has passed. */
static void leave(struct wait *wait)
{
    for (size_t i = 0; i < ASKS_MAX; i++)
        exchange_give_up(&wait->asks[i]);
    int64_t until = boot_ms() + GIVE_BACK_MS;
    while ((is_owed(&wait->asks[0]) || is_owed(&wait->asks[1])) && boot_ms() < until)
        wire_wait(wait->wire, 0, until);
    for (size_t i = 0; i < ASKS_MAX; i++) {
        struct exchange *asked = &wait->asks[i];
        if (asked->done && asked->status == FENCE_OK)
            give_back_answered(wait->client, &asked->answer);
        exchange_end(asked);
    }
    wire_give(wait->client, wait->wire);
}

enum fence_status fence_acquire(struct fence_client *client, const struct fence_terms *terms,
                                struct fence_lease **lease, struct fence_error *error)
{
    *lease = NULL;
    enum fence_status status = check_terms(terms, error);
    if (status != FENCE_OK)
        return status;
    if (!client_is_ours(client))
        return fence_fail(error, FENCE_FORKED, "%s", "the client belongs to the parent process");
    int64_t now = boot_ms();
    struct wait wait = {
        .client = client,
        .terms = terms,
        .wire = wire_take(client),
        .begun_boot_ms = now,
        .end_boot_ms = terms->wait_ms == FENCE_WAIT_FOREVER
                           ? INT64_MAX
                           : now + at_most_a_century(terms->wait_ms),
        .step_ms = terms->wait_step_ms > 0 ? terms->wait_step_ms : FENCE_WAIT_STEP_MS,
        .next_boot_ms = now,
        .pause_ms = PAUSE_LEAST_MS,
    };
    if (!wait.wire)
        return fence_fail(error, FENCE_SYSTEM, "%s", "no memory or descriptors left");
    status = run(&wait, lease, error);
    leave(&wait);
    if (status == FENCE_OK && error)
        *error = (struct fence_error){.status = FENCE_OK, .http_status = 201, .detail = "done"};
    return status;
}
