/* store_api.c - guarded records: put, get, delete, list. */
#include "gateway/api.h"

#include "gateway/conditions.h"
#include "gateway/faults.h"
#include "gateway/json_text.h"
#include "gateway/loop.h"
#include "gateway/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void etag_header(struct request *request, int64_t version)
{
    char etag[ETAG_BYTES];
    request_header(request, "ETag", etag_write(version, etag));
}

/* ---- PUT and DELETE ------------------------------------------------------------------------- */

static void reply_written(struct request *request, const struct store_op *op)
{
    const struct store_write *write = &op->write;
    etag_header(request, write->version);
    if (op->kind == STORE_DELETE) {
        reply_empty(request, 204);
        return;
    }
    struct json_text text;
    json_text_open(&text, &request->arena);
    json_text_begin(&text, NULL, '{');
    json_text_string(&text, "resource", write->resource);
    json_text_string(&text, "key", write->key);
    json_text_number(&text, "version", write->version);
    json_text_number_or_null(&text, "fencing_token", write->token);
    json_text_end(&text, '}');
    reply_text(request, write->created ? 201 : 200, &text);
}

static void reply_version_mismatch(struct request *request, const struct store_write *write)
{
    json_t *facts = json_pack("{s:s, s:s, s:I}", "resource", write->resource, "key", write->key,
                              "version", (json_int_t)write->version);
    if (write->version != 0)
        reply_problem(request, FG_VERSION_MISMATCH, facts, "%s is at version %" PRId64 ".",
                      write->key, write->version);
    else
        reply_problem(request, FG_VERSION_MISMATCH, facts, "There is no record %s.", write->key);
}

static void reply_no_record(struct request *request)
{
    reply_problem(
        request, FG_RECORD_NOT_FOUND,
        json_pack("{s:s, s:s}", "resource", request->parameters[0], "key", request->parameters[1]),
        "%s has no record %s.", request->parameters[0], request->parameters[1]);
}

static void on_written(struct store_op *op)
{
    struct request *request = op->arg;
    const struct store_write *write = &op->write;
    switch (op->status) {
    case FG_OK:
        reply_written(request, op);
        break;
    case FG_STALE_FENCING_TOKEN:
    case FG_FENCING_TOKEN_NOT_ISSUED:
    case FG_LEASE_MISMATCH:
        fence_refuse(request, op->status,
                     &(struct fence_refusal){.resource = write->resource,
                                             .token = write->token,
                                             .mark = write->mark,
                                             .state = write->lease_state,
                                             .ended_at_ms = write->ended_at_ms,
                                             .successor = write->successor});
        break;
    case FG_FENCING_TOKEN_REQUIRED: /* since the request came, the resource has been fenced */
    case FG_PRECONDITION_REQUIRED:
        request_refuse_unguarded(request, op->status);
        break;
    case FG_RECORD_NOT_FOUND:
        reply_no_record(request);
        break;
    case FG_VERSION_MISMATCH:
        reply_version_mismatch(request, write);
        break;
    default:
        reply_failure(request, op->status);
        break;
    }
    arena_free(&op->arena);
}

static void submit_write(struct request *request, enum store_op_kind kind)
{
    const struct request_headers *headers = &request->headers;
    if (PLANTED(check_outside_transaction) && headers->has_token &&
        !fence_admit(request, request->parameters[0]))
        return;
    struct store_op *op = arena_alloc(&request->arena, sizeof *op);
    op->kind = kind;
    op->write = (struct store_write){
        .resource = request->parameters[0],
        .key = request->parameters[1],
        .token = headers->token,
        .lease_shown = headers->has_lease,
        .lease = headers->lease,
        .condition = headers->condition,
        .condition_version = headers->condition_version,
        .content_type = headers->content_type ? headers->content_type : "application/octet-stream",
        .value = request->body,
        .value_bytes = request->body_bytes,
    };
    op->done = on_written;
    op->arg = request;
    store_submit(request->loop->store, op);
}

void api_record_put(struct request *request)
{
    submit_write(request, STORE_PUT);
}

void api_record_delete(struct request *request)
{
    submit_write(request, STORE_DELETE);
}

/* ---- GET ------------------------------------------------------------------------------------ */

void api_record_get(struct request *request)
{
    struct record_row row;
    if (request->headers.has_token && !fence_admit(request, request->parameters[0]))
        return;
    enum fg_status status = store_read_record(request->loop->store, request->parameters[0],
                                              request->parameters[1], &request->arena, &row);
    if (status == FG_RECORD_NOT_FOUND) {
        reply_no_record(request);
        return;
    }
    if (status != FG_OK) {
        reply_failure(request, status);
        return;
    }
    etag_header(request, row.version);
    if (row.token != 0) {
        char token[24];
        snprintf(token, sizeof token, "%" PRId64, row.token);
        request_header(request, "X-Written-With-Token", token);
    }
    if (request->headers.if_none_match &&
        none_match_names(request->headers.if_none_match, row.version)) {
        reply_empty(request, 304);
        return;
    }
    request_header(request, "X-Content-Type-Options", "nosniff");
    reply_bytes(request, 200, row.content_type, row.value, row.value_bytes);
}

/* ---- List ----------------------------------------------------------------------------------- */

static void on_scanned(struct store_op *op)
{
    struct request *request = op->arg;
    const struct store_scan *scan = &op->scan;
    if (op->status == FG_RESOURCE_NOT_FOUND) {
        reply_problem(request, FG_RESOURCE_NOT_FOUND,
                      json_pack("{s:s}", "resource", request->parameters[0]),
                      "%s does not exist: it was never granted, and nobody has created it.",
                      request->parameters[0]);
    } else if (op->status != FG_OK) {
        reply_failure(request, op->status);
    } else {
        json_t *items = json_array();
        for (size_t i = 0; i < scan->count; i++) {
            const struct record_row *row = &scan->records[i];
            json_array_append_new(items, json_pack("{s:s, s:I, s:o, s:I, s:s, s:o}", "key",
                                                   row->key, "version", (json_int_t)row->version,
                                                   "fencing_token", json_number_or_null(row->token),
                                                   "bytes", (json_int_t)row->value_bytes,
                                                   "content_type", row->content_type, "updated_at",
                                                   json_time_or_null(row->updated_at_ms)));
        }
        list_reply(request, items,
                   scan->more ? list_name_cursor(request, scan->records[scan->count - 1].key)
                              : NULL);
    }
    arena_free(&op->arena);
}

void api_record_list(struct request *request)
{
    struct store_op *op = list_scan(request, SCAN_RECORDS, on_scanned);
    if (!op)
        return;
    const char *prefix = request_query(request, "prefix");
    op->scan.resource = request->parameters[0];
    op->scan.prefix = prefix ? prefix : "";
    store_submit(request->loop->store, op);
}
