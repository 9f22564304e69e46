/* lease_api.c - POST /leases, renew, release, inspect, list. */
#include "gateway/api.h"

#include "gateway/body.h"
#include "gateway/clock.h"
#include "gateway/lease_id.h"
#include "gateway/log.h"
#include "gateway/loop.h"
#include "gateway/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* When the right ends or has ended; null where Redis, which knows, is away. */
static json_t *expires_at(const struct lease_view *view)
{
    const struct lease_row *row = &view->row;
    if (row->state != LEASE_LIVE)
        return json_time_or_null(row->ended_at_ms);
    if (!view->expiry_known)
        return json_null();
    int64_t left_ms = view->expires_in_ms;
    if (view->expired) {
        left_ms = row->deadline_boot_ms - clock_boot_ms();
        left_ms = left_ms < 0 ? left_ms : 0;
    }
    return json_time_or_null(clock_wall_ms() + left_ms);
}

static json_t *lease_json(const struct lease_view *view, bool with_id)
{
    const struct lease_row *row = &view->row;
    bool unknown = row->state == LEASE_LIVE && !view->expiry_known;
    json_t *lease = json_object();
    if (with_id) {
        char id[LEASE_ID_CHARS + 1];
        lease_id_write(&row->key, id);
        json_object_set_new(lease, "lease_id", json_string(id));
    }
    json_t *rest = json_pack(
        "{s:s, s:o, s:s, s:I, s:i, s:I, s:o, s:o, s:o, s:I}", "resource", row->resource, "owner",
        json_string_or_null(row->owner), "state", state_name(view), "fencing_token",
        (json_int_t)row->key.token, "limit", row->limit, "ttl_ms", (json_int_t)row->ttl_ms,
        "expires_in_ms",
        unknown ? json_null()
                : json_integer(row->state == LEASE_LIVE ? (json_int_t)view->expires_in_ms : 0),
        "expires_at", expires_at(view), "acquired_at", json_time_or_null(row->acquired_at_ms),
        "waited_ms", (json_int_t)row->waited_ms);
    json_object_update(lease, rest);
    json_decref(rest);
    return lease;
}

static void token_header(struct request *request, int64_t token)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, token);
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
    {"limit", BODY_INTEGER, false, 1, 1, offsetof(struct acquire_body, limit),
     "Only 1 for now: semaphores are not supported yet."},
    {"wait_ms", BODY_INTEGER, false, 0, 0, offsetof(struct acquire_body, wait_ms),
     "Only 0 for now: waiting is not supported yet."},
};

static void reply_held(struct request *request, const struct lease_acquire *acquire)
{
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
             "%s is held. Try again when the holder has released it or its "
             "TTL has passed.",
             acquire->resource);
    reply_problem_later(request, FG_LEASE_HELD,
                        acquire->retry_after_ms > 0 ? acquire->retry_after_ms : 1,
                        json_pack("{s:s, s:o, s:i}", "resource", acquire->resource, "holders",
                                  holders, "waited_ms", 0),
                        detail);
}

static void reply_granted(struct request *request, const struct lease_acquire *acquire)
{
    const struct lease_row *row = &acquire->lease.row;
    char id[LEASE_ID_CHARS + 1], location[sizeof "/leases/" + LEASE_ID_CHARS];
    char ref[LEASE_REF_CHARS + 1];
    lease_id_write(&row->key, id);
    snprintf(location, sizeof location, "/leases/%s", id);
    request_header(request, "Location", location);
    token_header(request, row->key.token);
    if (log_enabled(LOG_DEBUG)) {
        lease_ref_write(&row->key, ref);
        log_debug("granted", LOG_STR("resource", row->resource),
                  LOG_INT("fencing_token", row->key.token), LOG_STR("lease_ref", ref));
    }
    reply_json(request, 201, lease_json(&acquire->lease, true));
}

static void on_acquired(struct lease_acquire *acquire)
{
    struct request *request = acquire->arg;
    if (acquire->status == FG_OK)
        reply_granted(request, acquire);
    else if (acquire->status == FG_LEASE_HELD)
        reply_held(request, acquire);
    else if (acquire->status == FG_LIMIT_MISMATCH)
        reply_problem(request, FG_LIMIT_MISMATCH, NULL, "%s has another limit than the one named.",
                      acquire->resource);
    else
        reply_failure(request, acquire->status);
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
    struct lease_acquire *acquire = arena_alloc(&request->arena, sizeof *acquire);
    acquire->resource = body.resource;
    acquire->owner = body.owner;
    acquire->ttl_ms = body.ttl_ms;
    acquire->limit = (int)body.limit;
    acquire->done = on_acquired;
    acquire->arg = request;
    acquire->arena = &request->arena;
    lease_acquire(request->loop->leases, acquire);
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
        reply_json(request, 200, lease_json(&renew->lease, true));
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

static void on_released(struct lease_release *release)
{
    struct request *request = release->arg;
    const struct store_release *outcome = &release->op.release;
    if (release->status == FG_OK) {
        json_t *body = json_pack("{s:b, s:b, s:I, s:I}", "released", true, "expired",
                                 outcome->row.remaining_ms == 0, "held_ms",
                                 (json_int_t)outcome->row.held_ms, "remaining_ms",
                                 (json_int_t)outcome->row.remaining_ms);
        if (outcome->again)
            json_object_set_new(body, "already_released", json_true());
        reply_json(request, 200, body);
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
    reply_json(request, 200, lease_json(&watch->views[0], true));
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
    json_t *items = json_array();
    json_t *next = NULL;
    for (size_t i = 0; i < watch->count; i++)
        json_array_append_new(items, lease_json(&watch->views[i], false));
    struct lease_page *page =
        (struct lease_page *)((char *)watch - offsetof(struct lease_page, watch));
    if (page->op->scan.more) {
        const struct lease_key *last = &watch->views[watch->count - 1].row.key;
        next = json_sprintf("%" PRId64 ".%" PRId64, last->resource_id, last->token);
    }
    list_reply(request, items, next);
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
