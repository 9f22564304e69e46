/* request.c - one request before its handler: its head is checked in the contract's order, its body
 * gathered (request.h). The order of the checks is part of the contract: of several faults the
 * first one is reported. */
#include "gateway/request.h"

#include "gateway/body.h"
#include "gateway/clock.h"
#include "gateway/conditions.h"
#include "gateway/config.h"
#include "gateway/headers.h"
#include "gateway/log.h"
#include "gateway/loop.h"
#include "gateway/names.h"
#include "gateway/reply.h"
#include "gateway/router.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Of a chunked body that turned out too large, this much more is read to be able to answer. */
    DISCARD_CHUNKED_MAX = 64 * 1024 * 1024
};

struct request *request_new(struct loop *loop, struct MHD_Connection *connection,
                            const char *method, const char *target)
{
    struct request *request = calloc(1, sizeof *request);
    if (!request)
        abort();
    request->loop = loop;
    request->connection = connection;
    request->method = arena_string(&request->arena, method);
    request->target = arena_string(&request->arena, target);
    request->began_boot_ms = clock_boot_ms();
    return request;
}

static void log_request(const struct request *request)
{
    if (log_enabled(LOG_DEBUG))
        log_debug("request", LOG_STR("method", request->method),
                  LOG_STR("route", request->route ? request->route->pattern : "none"),
                  LOG_INT("status", request->http),
                  LOG_INT("duration_ms", clock_boot_ms() - request->began_boot_ms),
                  LOG_STR("request_id", request->id));
}

void request_free(struct request *request)
{
    log_request(request);
    if (request->response)
        MHD_destroy_response(request->response);
    free(request->body);
    arena_free(&request->arena);
    free(request);
}

/* ---- Query ---------------------------------------------------------------------------------- */

const char *request_query(const struct request *request, const char *name)
{
    for (size_t i = 0; i < request->query_count; i++) {
        if (strcmp(request->query[i].name, name) == 0)
            return request->query[i].value;
    }
    return NULL;
}

static bool takes_query(const struct route *route, const char *name)
{
    size_t bytes = strlen(name);
    const char *at = route->query;
    while (*at) {
        size_t word = strcspn(at, " ");
        if (word == bytes && memcmp(at, name, bytes) == 0)
            return true;
        at += word;
        at += strspn(at, " ");
    }
    return false;
}

/* libmicrohttpd has split the query and turned "+" into a blank; escapes are still in it. */
static enum MHD_Result on_query(void *arg, enum MHD_ValueKind kind, const char *raw_name,
                                const char *raw_value)
{
    (void)kind;
    struct request *request = arg;
    if (!raw_value)
        raw_value = "";
    char *name = arena_alloc(&request->arena, strlen(raw_name) + 1);
    char *value = arena_alloc(&request->arena, strlen(raw_value) + 1);
    if (!percent_decode(raw_name, strlen(raw_name), name) ||
        !percent_decode(raw_value, strlen(raw_value), value) || !utf8_valid(name, strlen(name)) ||
        !utf8_valid(value, strlen(value)))
        query_refuse(request, "", "The query holds a bad percent escape or invalid UTF-8.");
    else if (!takes_query(request->route, name))
        query_refuse(request, name, "There is no such query parameter here.");
    else if (request_query(request, name))
        query_refuse(request, name, "This query parameter stands twice.");
    else if (request->query_count == REQUEST_QUERY_MAX)
        abort(); /* a row of routes.c that takes more parameters than there is room for */
    else
        request->query[request->query_count++] = (struct query_parameter){name, value};
    return request->response ? MHD_NO : MHD_YES;
}

static void refuse_method(struct request *request, const char *allow)
{
    json_t *methods = json_array();
    for (const char *at = allow; *at;) {
        size_t length = strcspn(at, ",");
        json_array_append_new(methods, json_stringn(at, length));
        at += length;
        at += strspn(at, ", ");
    }
    request_header(request, "Allow", allow);
    reply_problem(request, FG_METHOD_NOT_ALLOWED, json_pack("{s:o}", "allow", methods),
                  "%s has %s.", request->target, allow);
}

/* ---- The head ------------------------------------------------------------------------------- */

static void check_route(struct request *request)
{
    char allow[64];
    enum fg_status status = router_find(request, allow, sizeof allow);
    if (status == FG_METHOD_NOT_ALLOWED)
        refuse_method(request, allow);
    else if (status != FG_OK)
        reply_problem(request, status, NULL, "There is nothing at %s.", request->target);
}

/* A condition that nobody evaluates must not look as if it held. */
static void check_conditions(struct request *request)
{
    unsigned flags = request->route->flags;
    struct request_headers *headers = &request->headers;
    const char *fault = NULL;
    if (headers->if_match && !(flags & ROUTE_IF_MATCH))
        fault = "If-Match does not apply here.";
    else if (headers->if_none_match && !(flags & ROUTE_IF_NONE_MATCH))
        fault = "If-None-Match does not apply here.";
    else if (flags & ROUTE_IF_MATCH)
        fault = condition_read(headers->if_match, headers->if_none_match, &headers->condition,
                               &headers->condition_version);
    if (fault)
        reply_problem(request, FG_BAD_HEADER, NULL, "%s", fault);
}

static void refuse_length(struct request *request)
{
    int64_t most = request->loop->config->max_body_bytes;
    reply_problem(request, FG_BODY_TOO_LARGE,
                  json_pack("{s:I}", "max_body_bytes", (json_int_t)most),
                  "The body has more than %" PRId64 " bytes.", most);
}

void request_refuse_unguarded(struct request *request, enum fg_status status)
{
    const char *detail = "Send the fencing token of your lease in X-Fencing-Token.";
    if (status == FG_LEASE_ID_REQUIRED)
        detail = "Send the id of your lease in X-Lease-Id.";
    else if (status == FG_PRECONDITION_REQUIRED)
        detail = "The resource is not fenced: say in If-Match which version you have read, or in "
                 "If-None-Match that there is none.";
    reply_problem(request, status, NULL, "%s", detail);
}

/* What a request without a token lacks. Who shows a lease id wants to be fenced. */
static enum fg_status judge_tokenless(const struct request *request)
{
    struct fence fence;
    if (!(request->route->flags & ROUTE_UNFENCED) || request->headers.has_lease)
        return FG_FENCING_TOKEN_REQUIRED;
    enum fg_status status = store_read_fence(request->loop->store, request->parameters[0], &fence);
    return status != FG_OK ? status : store_write_lacks(&fence, request->headers.condition);
}

static void check_token(struct request *request)
{
    unsigned flags = request->route->flags;
    enum fg_status status = FG_OK;
    if ((flags & ROUTE_TOKEN) && !request->headers.has_token)
        status = judge_tokenless(request);
    else if ((flags & ROUTE_LEASE_ID) && request->loop->config->require_lease_id &&
             !request->headers.has_lease)
        status = FG_LEASE_ID_REQUIRED;
    if (status != FG_OK && fg_error(status)->http == 428)
        request_refuse_unguarded(request, status);
    else if (status != FG_OK)
        reply_failure(request, status);
}

bool request_check(struct request *request)
{
    const char *detail;
    bool framing;
    enum fg_status header_status = headers_read(request, &detail, &framing);
    if (framing) {
        reply_problem(request, header_status, NULL, "%s", detail);
        return false;
    }
    if (request->target[0] != '/') {
        reply_problem(request, FG_INVALID_REQUEST,
                      reply_error_at("", "The request target is a path."),
                      "The request target is not a path that begins with a slash.");
        return false;
    }
    check_route(request);
    if (request->response)
        return true;
    enum fg_status path_status = router_decode(request, &detail);
    if (path_status != FG_OK)
        reply_problem(request, path_status, NULL, "%s", detail);
    else if (header_status != FG_OK)
        reply_problem(request, header_status, NULL, "%s", detail);
    else
        check_conditions(request);
    if (!request->response)
        MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, on_query, request);
    if (!request->response &&
        request->headers.content_length > request->loop->config->max_body_bytes)
        refuse_length(request);
    /* How long a chunked body is shows only at its end, and that comes first. */
    if (!request->response && !request->headers.chunked)
        check_token(request);
    return true;
}

bool request_complete(struct request *request)
{
    if (request->headers.chunked)
        check_token(request);
    return !request->response;
}

/* ---- The body ------------------------------------------------------------------------------- */

bool request_gather(struct request *request, const char *data, size_t bytes)
{
    size_t most = (size_t)request->loop->config->max_body_bytes;
    request->body_bytes += bytes;
    if (!request->discard && request->body_bytes > most) {
        request->discard = true;
        refuse_length(request);
    }
    if (request->discard)
        return request->body_bytes <= most + DISCARD_CHUNKED_MAX;
    if (request->body_bytes > request->body_room) {
        size_t known = request->headers.content_length > 0 ? (size_t)request->headers.content_length
                                                           : request->body_bytes * 2;
        request->body_room = known > request->body_bytes ? known : request->body_bytes;
        request->body = realloc(request->body, request->body_room);
        if (!request->body)
            abort();
    }
    memcpy(request->body + request->body_bytes - bytes, data, bytes);
    return true;
}
