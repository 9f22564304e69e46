/* lease_api.c - POST /leases, renew, release, inspect, list. */
#include "gateway/api.h"

#include "gateway/body.h"
#include "gateway/clock.h"
#include "gateway/digits.h"
#include "gateway/json_text.h"
#include "gateway/lease_id.h"
#include "gateway/log.h"
#include "gateway/loop.h"
#include "gateway/reply.h"
#include "gateway/server.h"
#include "gateway/waiters.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How the answer to a client that has left is logged; nobody ever reads it. */
enum { CLIENT_CLOSED_REQUEST = 499 };

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- A lease as JSON ------------------------------------------------------------------------ */

static const char *state_name(const struct lease_view *view)
{
    switch (view->row.state) {
    case LEASE_LIVE:
        return view->expired ? "expired" : "held";
    case LEASE_SUPERSEDED:
        return "superseded";
    case LEASE_RELEASED:
        return "released";
    case LEASE_REVOKED:
        return "revoked";
    }
    return "held";
}

/* When the right ends or has ended; 0 where Redis, which knows, is away. */
static int64_t expires_at_ms(const struct lease_view *view)
{
    const struct lease_row *row = &view->row;
    if (row->state != LEASE_LIVE)
        return row->ended_at_ms;
    if (!view->expiry_known)
        return 0;
    int64_t left_ms = view->expires_in_ms;
    if (view->expired) {
        left_ms = row->deadline_boot_ms - clock_boot_ms();
        left_ms = left_ms < 0 ? left_ms : 0;
    }
    return clock_wall_ms() + left_ms;
}

static void lease_text(struct json_text *text, const struct lease_view *view, bool with_id)
{
    const struct lease_row *row = &view->row;
    json_text_begin(text, NULL, '{');
    if (with_id) {
        char id[LEASE_ID_CHARS + 1];
        lease_id_write(&row->key, id);
        json_text_string(text, "lease_id", id);
    }
    json_text_string(text, "resource", row->resource);
    json_text_string(text, "owner", row->owner);
    json_text_string(text, "state", state_name(view));
    json_text_number(text, "fencing_token", row->key.token);
    json_text_number(text, "limit", row->limit);
    json_text_number(text, "ttl_ms", row->ttl_ms);
    if (row->state == LEASE_LIVE && !view->expiry_known)
        json_text_null(text, "expires_in_ms");
    else
        json_text_number(text, "expires_in_ms", row->state == LEASE_LIVE ? view->expires_in_ms : 0);
    json_text_time(text, "expires_at", expires_at_ms(view));
    json_text_time(text, "acquired_at", row->acquired_at_ms);
    json_text_number(text, "waited_ms", row->waited_ms);
    json_text_end(text, '}');
}

static void reply_lease(struct request *request, unsigned http, const struct lease_view *view)
{
    struct json_text text;
    json_text_open(&text, &request->arena);
    lease_text(&text, view, true);
    reply_text(request, http, &text);
}

static void token_header(struct request *request, int64_t token)
{
    char text[DIGITS_CHARS];
    digits_write(text, token);
    request_header(request, "X-Fencing-Token", text);
}

/* Reads {id}; false: answered with 404, as an id that nobody was given is. */
static bool read_id(struct request *request, struct lease_key *key)
{
    if (lease_id_read(request->parameters[0], key))
        return true;
    reply_problem(request, FG_LEASE_NOT_FOUND, NULL, "There is no lease with this id.");
    return false;
}

/* 404 and 410: the lease is unknown, or over. */
static void reply_over(struct request *request, enum fg_status status, const struct lease_row *row,
                       const struct lease_successor *successor)
{
    if (status == FG_LEASE_NOT_FOUND) {
        reply_problem(request, status, NULL,
                      "There is no lease with this id, or it ended more than a day ago.");
        return;
    }
    json_t *facts = json_pack("{s:s, s:I}", "resource", row->resource, "fencing_token",
                              (json_int_t)row->key.token);
    switch (status) {
    case FG_LEASE_SUPERSEDED:
        json_object_set_new(facts, "superseded_by", successor_json(successor));
        reply_problem(request, status, facts,
                      "The lease ran out and token %" PRId64 " replaced token %" PRId64 ".",
                      successor->token, row->key.token);
        break;
    case FG_LEASE_REVOKED:
        json_object_set_new(facts, "reason", json_string_or_null(row->reason));
        reply_problem(request, status, facts, "The lease was revoked: %s.",
                      row->reason ? row->reason : "no reason was given");
        break;
    case FG_LEASE_RELEASED:
        reply_problem(request, status, facts, "The lease has been released.");
        break;
    default:
        reply_problem(request, status, facts,
                      "The lease has run out. Nobody has replaced it yet: it may write and be "
                      "released, not renewed.");
        break;
    }
}

static bool is_over(enum fg_status status)
{
    return status == FG_LEASE_NOT_FOUND || fg_error(status)->http == 410;
}

/* ---- POST /leases --------------------------------------------------------------------------- */

struct acquire_body {
    const char *resource;
    const char *owner;
    int64_t ttl_ms;
    int64_t limit;
    int64_t wait_ms;
};

static const struct body_field acquire_fields[] = {
    {"resource", BODY_NAME, true, 0, 0, offsetof(struct acquire_body, resource),
     "A string: the name of what you lock."},
    {"owner", BODY_STRING, false, 0, OWNER_BYTES_MAX, offsetof(struct acquire_body, owner),
     "A string of at most 128 bytes."},
    {"ttl_ms", BODY_INTEGER, false, TTL_MIN_MS, TTL_MAX_MS, offsetof(struct acquire_body, ttl_ms),
     "A whole number of milliseconds from 50 to 86400000."},
    {"limit", BODY_INTEGER, false, 1, LIMIT_MAX, offsetof(struct acquire_body, limit),
     "A whole number from 1 to 1000."},
    {"wait_ms", BODY_INTEGER, false, 0, WAIT_MAX_MS, offsetof(struct acquire_body, wait_ms),
     "A whole number of milliseconds from 0 to 600000."},
};

static void reply_held(struct request *request, const struct waiter *waiter)
{
    const struct acquire *acquire = &waiter->acquire;
    json_t *holders = json_array();
    for (size_t i = 0; i < acquire->holder_count; i++) {
        const struct lease_holder_view *holder = &acquire->holders[i];
        json_array_append_new(
            holders, json_pack("{s:I, s:o, s:I}", "fencing_token", (json_int_t)holder->token,
                               "owner", json_string_or_null(holder->owner), "expires_in_ms",
                               (json_int_t)holder->expires_in_ms));
    }
    char detail[512];
    snprintf(detail, sizeof detail,
             acquire->holder_count > 0
                 ? "%s is held. Try again when a holder has released it or its TTL has passed."
                 : "Others wait for %s already. Try again, or wait with wait_ms.",
             acquire->resource);
    reply_problem_later(request, FG_LEASE_HELD,
                        acquire->retry_after_ms > 0 ? acquire->retry_after_ms : 1,
                        json_pack("{s:s, s:o, s:I}", "resource", acquire->resource, "holders",
                                  holders, "waited_ms", (json_int_t)waiter->waited_ms),
                        detail);
}

static void reply_limit_mismatch(struct request *request, const struct acquire *acquire)
{
    struct fence fence = {0};
    store_read_fence(request->loop->store, acquire->resource, &fence);
    reply_problem(request, FG_LIMIT_MISMATCH,
                  json_pack("{s:s, s:i}", "resource", acquire->resource, "limit", fence.limit),
                  "%s has the limit %d, not %d. Leave the limit out to take what is set.",
                  acquire->resource, fence.limit, acquire->limit);
}

static void free_ended(struct lease_release *ended)
{
    arena_free(&ended->op.arena);
    free(ended);
}

/* The client has left before its answer could be sent: nobody knows of the lease. */
static void end_unanswered(struct request *request)
{
    struct lease_release *ended = calloc(1, sizeof *ended);
    if (!ended)
        abort();
    ended->key = request->granted;
    ended->reason = "client_gone";
    ended->done = free_ended;
    lease_release(request->loop->leases, ended);
}

static void reply_granted(struct request *request, const struct acquire *acquire)
{
    const struct lease_row *row = &acquire->lease.row;
    char location[sizeof "/leases/" + LEASE_ID_CHARS], ref[LEASE_REF_CHARS + 1];
    lease_id_write(&row->key, stpcpy(location, "/leases/"));
    request_header(request, "Location", location);
    token_header(request, row->key.token);
    request->granted = row->key;
    request->unanswered = end_unanswered;
    if (log_enabled(LOG_DEBUG)) {
        lease_ref_write(&row->key, ref);
        log_debug("granted", LOG_STR("resource", row->resource),
                  LOG_INT("fencing_token", row->key.token), LOG_STR("lease_ref", ref));
    }
    reply_lease(request, 201, &acquire->lease);
}

static void on_answered(struct waiter *waiter)
{
    struct request *request = waiter->arg;
    struct acquire *acquire = &waiter->acquire;
    server_watch_client(request, NULL);
    switch (acquire->status) {
    case FG_OK:
        reply_granted(request, acquire);
        break;
    case FG_LEASE_HELD:
        reply_held(request, waiter);
        break;
    case FG_LEASE_RELEASED: /* the client has left */
        server_cut(request);
        reply_empty(request, CLIENT_CLOSED_REQUEST);
        break;
    case FG_LIMIT_MISMATCH:
        reply_limit_mismatch(request, acquire);
        break;
    case FG_RESOURCE_UNFENCED:
        reply_problem(
            request, FG_RESOURCE_UNFENCED, json_pack("{s:s}", "resource", acquire->resource),
            "%s is not fenced: write to it under a condition, without a lease.", acquire->resource);
        break;
    default:
        reply_failure(request, acquire->status);
        break;
    }
    arena_free(&acquire->arena);
}

static void on_client_left(struct request *request)
{
    waiter_client_left(request->waiter);
}

static bool client_there(struct waiter *waiter)
{
    return server_client_there(waiter->arg);
}

void api_lease_acquire(struct request *request)
{
    struct acquire_body body = {.ttl_ms = TTL_DEFAULT_MS};
    if (!body_read(request, acquire_fields, COUNT(acquire_fields), &body))
        return;
    if (request->loop->draining) {
        reply_failure(request, FG_DRAINING);
        return;
    }
    struct waiter *waiter = arena_alloc(&request->arena, sizeof *waiter);
    waiter->acquire.resource = body.resource;
    waiter->acquire.owner = body.owner;
    waiter->acquire.ttl_ms = body.ttl_ms;
    waiter->acquire.limit = (int)body.limit;
    waiter->wait_ms = body.wait_ms;
    waiter->done = on_answered;
    waiter->client_there = client_there;
    waiter->arg = request;
    if (waiter->wait_ms > 0) {
        request->waiter = waiter;
        server_watch_client(request, on_client_left);
    }
    waiters_add(leases_waiters(request->loop->leases), waiter);
}

/* ---- POST /leases/{id}/renew ---------------------------------------------------------------- */

static const struct body_field renew_fields[] = {
    {"ttl_ms", BODY_INTEGER, false, TTL_MIN_MS, TTL_MAX_MS, 0,
     "A whole number of milliseconds from 50 to 86400000."},
};

static void on_renewed(struct lease_renew *renew)
{
    struct request *request = renew->arg;
    if (renew->status == FG_OK) {
        token_header(request, renew->lease.row.key.token);
        reply_lease(request, 200, &renew->lease);
    } else if (is_over(renew->status)) {
        reply_over(request, renew->status, &renew->lease.row, &renew->successor);
    } else {
        reply_failure(request, renew->status);
    }
}

void api_lease_renew(struct request *request)
{
    int64_t ttl_ms = 0;
    struct lease_key key;
    if (!body_read(request, renew_fields, COUNT(renew_fields), &ttl_ms) || !read_id(request, &key))
        return;
    struct lease_renew *renew = arena_alloc(&request->arena, sizeof *renew);
    renew->key = key;
    renew->ttl_ms = ttl_ms;
    renew->done = on_renewed;
    renew->arg = request;
    renew->arena = &request->arena;
    lease_renew(request->loop->leases, renew);
}

/* ---- DELETE /leases/{id} -------------------------------------------------------------------- */

static void reply_released(struct request *request, const struct store_release *outcome)
{
    struct json_text text;
    json_text_open(&text, &request->arena);
    json_text_begin(&text, NULL, '{');
    json_text_bool(&text, "released", true);
    json_text_bool(&text, "expired", outcome->row.remaining_ms == 0);
    json_text_number(&text, "held_ms", outcome->row.held_ms);
    json_text_number(&text, "remaining_ms", outcome->row.remaining_ms);
    if (outcome->again)
        json_text_bool(&text, "already_released", true);
    json_text_end(&text, '}');
    reply_text(request, 200, &text);
}

static void on_released(struct lease_release *release)
{
    struct request *request = release->arg;
    const struct store_release *outcome = &release->op.release;
    if (release->status == FG_OK) {
        reply_released(request, outcome);
    } else if (is_over(release->status)) {
        reply_over(request, release->status, &outcome->row, &outcome->successor);
    } else {
        reply_failure(request, release->status);
    }
    arena_free(&release->op.arena);
}

void api_lease_release(struct request *request)
{
    struct lease_key key;
    if (!body_read(request, NULL, 0, NULL) || !read_id(request, &key))
        return;
    struct lease_release *release = arena_alloc(&request->arena, sizeof *release);
    release->key = key;
    release->done = on_released;
    release->arg = request;
    lease_release(request->loop->leases, release);
}

/* ---- GET /leases/{id} ----------------------------------------------------------------------- */

static void on_watched(struct lease_watch *watch)
{
    struct request *request = watch->arg;
    token_header(request, watch->views[0].row.key.token);
    reply_lease(request, 200, &watch->views[0]);
}

void api_lease_get(struct request *request)
{
    struct lease_key key;
    struct lease_successor successor = {0};
    if (!read_id(request, &key))
        return;
    struct lease_watch *watch = arena_alloc(&request->arena, sizeof *watch);
    *watch = (struct lease_watch){.views = arena_alloc(&request->arena, sizeof *watch->views),
                                  .count = 1,
                                  .done = on_watched,
                                  .arg = request,
                                  .arena = &request->arena};
    enum fg_status status = store_read_lease(request->loop->store, &key, &request->arena,
                                             &watch->views[0].row, &successor);
    if (status == FG_LEASE_NOT_FOUND)
        reply_over(request, status, &watch->views[0].row, &successor);
    else if (status != FG_OK)
        reply_failure(request, status);
    else if (watch->views[0].row.state == LEASE_LIVE)
        lease_watch(request->loop->leases, watch);
    else
        on_watched(watch);
}

/* ---- GET /leases ---------------------------------------------------------------------------- */

/* A list of live leases goes by (resource, token): the cursor is "<resource id>.<token>". */
static bool parse_cursor(const char *cursor, struct store_scan *scan)
{
    char *end;
    if (strlen(cursor) > 36 || strspn(cursor, "0123456789.") != strlen(cursor))
        return false;
    scan->after_id = strtoll(cursor, &end, 10);
    if (end == cursor || *end != '.')
        return false;
    cursor = end + 1;
    scan->after_number = strtoll(cursor, &end, 10);
    return end != cursor && *end == '\0';
}

static bool read_cursor(struct request *request, struct store_scan *scan)
{
    const char *cursor = request_query(request, "cursor");
    if (!cursor || parse_cursor(cursor, scan))
        return true;
    query_refuse(request, "cursor", "This is not a cursor that a list has given.");
    return false;
}

struct lease_page {
    struct store_op *op;
    struct lease_watch watch;
};

static void reply_page(struct lease_watch *watch)
{
    struct request *request = watch->arg;
    struct lease_page *page =
        (struct lease_page *)((char *)watch - offsetof(struct lease_page, watch));
    struct json_text text;
    json_text_open(&text, &request->arena);
    json_text_begin(&text, NULL, '{');
    json_text_begin(&text, "items", '[');
    for (size_t i = 0; i < watch->count; i++)
        lease_text(&text, &watch->views[i], false);
    json_text_end(&text, ']');
    char cursor[2 * DIGITS_CHARS];
    if (page->op->scan.more) {
        const struct lease_key *last = &watch->views[watch->count - 1].row.key;
        char *dot = digits_write(cursor, last->resource_id);
        *dot = '.';
        digits_write(dot + 1, last->token);
    }
    json_text_string(&text, "next_cursor", page->op->scan.more ? cursor : NULL);
    json_text_end(&text, '}');
    reply_text(request, 200, &text);
    arena_free(&page->op->arena);
}

static void on_scanned(struct store_op *op)
{
    struct request *request = op->arg;
    if (op->status != FG_OK) {
        arena_free(&op->arena);
        reply_failure(request, op->status);
        return;
    }
    struct lease_page *page = arena_alloc(&request->arena, sizeof *page);
    page->op = op;
    page->watch = (struct lease_watch){
        .views = arena_alloc(&request->arena, op->scan.count * sizeof *page->watch.views),
        .count = op->scan.count,
        .done = reply_page,
        .arg = request,
        .arena = &request->arena};
    for (size_t i = 0; i < op->scan.count; i++)
        page->watch.views[i].row = op->scan.leases[i];
    lease_watch(request->loop->leases, &page->watch);
}

/* An empty filter filters nothing. */
static const char *filter(const struct request *request, const char *name)
{
    const char *value = request_query(request, name);
    return value && value[0] ? value : NULL;
}

void api_lease_list(struct request *request)
{
    struct store_op *op = list_scan(request, SCAN_LEASES, on_scanned);
    if (!op || !read_cursor(request, &op->scan))
        return;
    op->scan.resource = filter(request, "resource");
    op->scan.owner = filter(request, "owner");
    store_submit(request->loop->store, op);
}
