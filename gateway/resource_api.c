/* resource_api.c - resources: list, inspect, configure, revoke, check a token, history. */
#include "gateway/api.h"

#include "gateway/body.h"
#include "gateway/loop.h"
#include "gateway/operators.h"
#include "gateway/reply.h"
#include "gateway/waiters.h"

#include <inttypes.h>
#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- Resources with their holders ----------------------------------------------------------- */

/* A page of resources: the views of all their live leases lie one behind the other. */
struct resource_page {
    struct request *request;
    struct resource_row *rows;
    size_t count;
    struct lease_watch watch;
    struct store_op *op; /* of a list; NULL: one resource */
};

/* Who holds it: the live leases whose time has not passed. */
static json_t *resource_json(struct loop *loop, const struct resource_row *row,
                             const struct lease_view *views)
{
    json_int_t waiters = (json_int_t)waiters_count(leases_waiters(loop->leases), row->name);
    json_t *holders = json_array();
    for (size_t i = 0; i < row->live_count; i++) {
        if (views[i].expired)
            continue;
        json_t *left = views[i].expiry_known ? json_integer((json_int_t)views[i].expires_in_ms)
                                             : json_null();
        json_array_append_new(holders, json_pack("{s:I, s:o, s:o}", "fencing_token",
                                                 (json_int_t)views[i].row.key.token, "owner",
                                                 json_string_or_null(views[i].row.owner),
                                                 "expires_in_ms", left));
    }
    return json_pack("{s:s, s:i, s:b, s:I, s:o, s:I}", "resource", row->name, "limit",
                     row->limit != 0 ? row->limit : 1, "fenced", row->fenced,
                     "highest_fencing_token", (json_int_t)row->mark, "holders", holders, "waiters",
                     waiters);
}

static void on_watched(struct lease_watch *watch)
{
    struct resource_page *page = watch->arg;
    struct request *request = page->request;
    const struct lease_view *views = watch->views;
    if (!page->op) {
        reply_json(request, 200, resource_json(request->loop, &page->rows[0], views));
        return;
    }
    json_t *items = json_array();
    for (size_t i = 0; i < page->count; i++) {
        json_array_append_new(items, resource_json(request->loop, &page->rows[i], views));
        views += page->rows[i].live_count;
    }
    list_reply(request, items,
               page->op->scan.more ? list_name_cursor(request, page->rows[page->count - 1].name)
                                   : NULL);
    arena_free(&page->op->arena);
}

static void watch_page(struct request *request, struct resource_row *rows, size_t count,
                       struct store_op *op)
{
    size_t live_count = 0;
    for (size_t i = 0; i < count; i++)
        live_count += rows[i].live_count;
    struct resource_page *page = arena_alloc(&request->arena, sizeof *page);
    *page = (struct resource_page){.request = request, .rows = rows, .count = count, .op = op};
    struct lease_view *views = arena_alloc(&request->arena, live_count * sizeof *views);
    page->watch = (struct lease_watch){.views = views,
                                       .count = live_count,
                                       .done = on_watched,
                                       .arg = page,
                                       .arena = &request->arena};
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < rows[i].live_count; j++)
            (views++)->row = rows[i].live[j];
    }
    lease_watch(request->loop->leases, &page->watch);
}

static void reply_unknown(struct request *request)
{
    reply_problem(request, FG_RESOURCE_NOT_FOUND,
                  json_pack("{s:s}", "resource", request->parameters[0]),
                  "%s does not exist: it was never granted, and nobody has created it.",
                  request->parameters[0]);
}

void api_resource_get(struct request *request)
{
    struct resource_row *row = arena_alloc(&request->arena, sizeof *row);
    enum fg_status status =
        store_read_resource(request->loop->store, request->parameters[0], &request->arena, row);
    if (status == FG_RESOURCE_NOT_FOUND)
        reply_unknown(request);
    else if (status != FG_OK)
        reply_failure(request, status);
    else
        watch_page(request, row, 1, NULL);
}

static void on_scanned(struct store_op *op)
{
    struct request *request = op->arg;
    if (op->status != FG_OK) {
        arena_free(&op->arena);
        reply_failure(request, op->status);
        return;
    }
    watch_page(request, op->scan.resources, op->scan.count, op);
}

void api_resource_list(struct request *request)
{
    struct store_op *op = list_scan(request, SCAN_RESOURCES, on_scanned);
    if (op)
        store_submit(request->loop->store, op);
}

/* ---- PUT /resources/{r} --------------------------------------------------------------------- */

struct put_body {
    int64_t limit;
    int fenced; /* -1: not sent */
};

static const struct body_field put_fields[] = {
    {"limit", BODY_INTEGER, false, 1, LIMIT_MAX, offsetof(struct put_body, limit),
     "A whole number from 1 to 1000: how many may hold it at once."},
    {"fenced", BODY_BOOLEAN, false, 0, 0, offsetof(struct put_body, fenced), "true or false."},
};

/* Answers with the resource as it is now: somebody may have changed it once more meanwhile. */
static void on_configured(struct operator_configure *configure)
{
    struct request *request = configure->arg;
    arena_free(&configure->op.arena);
    if (configure->status == FG_OK)
        api_resource_get(request);
    else
        reply_failure(request, configure->status);
}

void api_resource_put(struct request *request)
{
    struct put_body body = {.fenced = -1};
    if (!body_read(request, put_fields, COUNT(put_fields), &body))
        return;
    struct operator_configure *configure = arena_alloc(&request->arena, sizeof *configure);
    configure->resource = request->parameters[0];
    configure->limit = (int)body.limit;
    if (body.fenced >= 0)
        configure->fence = body.fenced ? FENCE_ON : FENCE_OFF;
    configure->done = on_configured;
    configure->arg = request;
    operator_configure(request->loop->store, request->loop->leases, configure);
}

/* ---- POST /resources/{r}/revoke ------------------------------------------------------------- */

struct revoke_body {
    const char *reason;
    int64_t token;
};

static const struct body_field revoke_fields[] = {
    {"reason", BODY_STRING, true, 1, REASON_BYTES_MAX, offsetof(struct revoke_body, reason),
     "A string of 1 to 256 bytes: what the holders are told."},
    {"fencing_token", BODY_INTEGER, false, 1, FENCING_TOKEN_MAX,
     offsetof(struct revoke_body, token), "A whole number from 1 to 9007199254740991."},
};

static void on_revoked(struct operator_revoke *revoke)
{
    struct request *request = revoke->arg;
    const struct store_revoke *outcome = &revoke->op.revoke;
    if (revoke->status == FG_RESOURCE_NOT_FOUND) {
        reply_unknown(request);
    } else if (revoke->status != FG_OK) {
        reply_failure(request, revoke->status);
    } else {
        json_t *tokens = json_array();
        for (size_t i = 0; i < outcome->ended.count; i++)
            json_array_append_new(tokens, json_integer((json_int_t)outcome->ended.pairs[i].token));
        reply_json(request, 200,
                   json_pack("{s:o, s:I}", "revoked", tokens, "highest_fencing_token",
                             (json_int_t)outcome->mark));
    }
    arena_free(&revoke->op.arena);
}

void api_resource_revoke(struct request *request)
{
    struct revoke_body body = {0};
    if (!body_read(request, revoke_fields, COUNT(revoke_fields), &body))
        return;
    struct operator_revoke *revoke = arena_alloc(&request->arena, sizeof *revoke);
    revoke->resource = request->parameters[0];
    revoke->reason = body.reason;
    revoke->token = body.token;
    revoke->done = on_revoked;
    revoke->arg = request;
    operator_revoke(request->loop->store, request->loop->leases, revoke);
}

/* ---- POST /resources/{r}/check -------------------------------------------------------------- */

void api_resource_check(struct request *request)
{
    if (!body_read(request, NULL, 0, NULL) || !fence_admit(request, request->parameters[0]))
        return;
    reply_json(request, 200,
               json_pack("{s:b, s:I}", "current", true, "fencing_token",
                         (json_int_t)request->headers.token));
}

/* ---- GET /resources/{r}/history ------------------------------------------------------------- */

static json_t *row_json(const struct ledger_row *row)
{
    json_t *json = json_pack(
        "{s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "seq", (json_int_t)row->seq,
        "at", json_time_or_null(row->at_ms), "kind", ledger_kind_name(row->kind), "resource",
        json_string_or_null(row->resource), "fencing_token", json_number_or_null(row->token),
        "owner", json_string_or_null(row->owner), "key", json_string_or_null(row->key), "version",
        json_number_or_null(row->version), "code", json_string_or_null(row->code), "reason",
        json_string_or_null(row->reason), "ttl_ms", json_number_or_null(row->ttl_ms), "ended_at",
        json_time_or_null(row->ended_at_ms));
    if (row->kind == LEDGER_REFUSED_DROPPED)
        json_object_set_new(json, "count", json_integer((json_int_t)row->count));
    return json;
}

static void on_history(struct store_op *op)
{
    struct request *request = op->arg;
    const struct store_scan *scan = &op->scan;
    if (op->status == FG_RESOURCE_NOT_FOUND) {
        reply_unknown(request);
    } else if (op->status != FG_OK) {
        reply_failure(request, op->status);
    } else {
        json_t *items = json_array();
        for (size_t i = 0; i < scan->count; i++)
            json_array_append_new(items, row_json(&scan->ledger[i]));
        list_reply(request, items,
                   scan->more ? json_sprintf("%" PRId64, scan->ledger[scan->count - 1].seq) : NULL);
    }
    arena_free(&op->arena);
}

void api_resource_history(struct request *request)
{
    int64_t after, cursor;
    const char *kind = request_query(request, "kind");
    struct store_op *op = list_scan(request, SCAN_LEDGER, on_history);
    if (!op || !query_integer(request, "after", 0, INT64_C(999999999999999999), 0, &after) ||
        !list_cursor_number(request, &cursor))
        return;
    op->scan.resource = request->parameters[0];
    op->scan.after_number = cursor > after ? cursor : after;
    op->scan.ledger_kind = kind ? ledger_kind_find(kind) : 0;
    if (kind && op->scan.ledger_kind == 0)
        query_refuse(request, "kind", "There is no such kind of ledger row.");
    else
        store_submit(request->loop->store, op);
}
