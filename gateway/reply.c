/* reply.c - building answers (reply.h). */
#include "gateway/reply.h"

#include "gateway/clock.h"
#include "gateway/json_text.h"
#include "gateway/names.h"
#include "gateway/server.h"

#include <assert.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_AFTER_DEFAULT_MS = 1000 };

void request_header(struct request *request, const char *name, const char *value)
{
    assert(request->out_count < REQUEST_HEADERS_MAX);
    request->out[request->out_count++] =
        (struct out_header){name, arena_string(&request->arena, value)};
}

static void finish(struct request *request, unsigned http, struct MHD_Response *response)
{
    assert(!request->response);
    if (!response)
        abort();
    MHD_add_response_header(response, "X-Request-Id", request->id);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    for (size_t i = 0; i < request->out_count; i++)
        MHD_add_response_header(response, request->out[i].name, request->out[i].value);
    request->response = response;
    request->http = http;
    server_answered(request);
}

static void finish_json(struct request *request, unsigned http, json_t *body,
                        const char *content_type)
{
    char *text = json_dumps(body, JSON_COMPACT);
    if (!text)
        abort();
    json_decref(body);
    request_header(request, "Content-Type", content_type);
    finish(request, http,
           MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE));
}

void reply_json(struct request *request, unsigned http, json_t *body)
{
    finish_json(request, http, body, "application/json");
}

void reply_text(struct request *request, unsigned http, const struct json_text *text)
{
    reply_bytes(request, http, "application/json", text->start, text->bytes);
}

void reply_bytes(struct request *request, unsigned http, const char *content_type,
                 const void *bytes, size_t count)
{
    request_header(request, "Content-Type", content_type);
    finish(
        request, http,
        MHD_create_response_from_buffer(count, (void *)(uintptr_t)bytes, MHD_RESPMEM_PERSISTENT));
}

void reply_empty(struct request *request, unsigned http)
{
    finish(request, http, MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

/* ---- Problems ------------------------------------------------------------------------------- */

static void add_retry_after(struct request *request, json_t *body, int64_t retry_after_ms)
{
    char seconds[24];
    snprintf(seconds, sizeof seconds, "%" PRId64, (retry_after_ms + 999) / 1000);
    request_header(request, "Retry-After", seconds);
    json_object_set_new(body, "retry_after_ms", json_integer(retry_after_ms));
}

static void problem(struct request *request, enum fg_status status, int64_t retry_after_ms,
                    json_t *facts, const char *detail)
{
    const struct fg_error *error = fg_error(status);
    /* It may quote what was sent, and may have been cut in the middle of a character. */
    char *shown = arena_string(&request->arena, detail);
    utf8_mend(shown);
    json_t *body = json_pack("{s:s, s:s, s:i, s:s, s:s, s:b}", "type", error->type, "title",
                             error->title, "status", error->http, "detail", shown, "code",
                             error->code, "retryable", error->retryable);
    if (!body)
        abort();
    if (error->retryable)
        add_retry_after(request, body, retry_after_ms);
    if (facts) {
        json_object_update(body, facts);
        json_decref(facts);
    }
    finish_json(request, (unsigned)error->http, body, "application/problem+json");
}

void reply_problem(struct request *request, enum fg_status status, json_t *facts,
                   const char *detail, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, detail);
    vsnprintf(text, sizeof text, detail, arguments);
    va_end(arguments);
    problem(request, status, RETRY_AFTER_DEFAULT_MS, facts, text);
}

void reply_problem_later(struct request *request, enum fg_status status, int64_t retry_after_ms,
                         json_t *facts, const char *detail)
{
    problem(request, status, retry_after_ms, facts, detail);
}

static const char *failure_detail(enum fg_status status)
{
    switch (status) {
    case FG_REDIS_UNAVAILABLE:
        return "Redis did not answer in time. Nothing was granted or extended; writes, reads and "
               "releases go on.";
    case FG_STORE_UNAVAILABLE:
        return "The store could not do it. Nothing was changed.";
    case FG_STORE_MISMATCH:
        return "The Redis database is used by another store. Writes go on; leases need "
               "--adopt-redis or another database.";
    case FG_TOO_MANY_WAITERS:
        return "As many requests wait for a lease as may. This one was not queued.";
    case FG_DRAINING:
        return "The gateway is shutting down and grants no more leases. Ask again in a moment.";
    case FG_OVERLOADED:
        return "Too much is waiting already. Nothing was done.";
    case FG_GRANT_CONTENDED:
        return "The grant lost a race three times. Nothing was granted.";
    case FG_EXPIRED_WHILE_GRANTING:
        return "Granting took as long as the TTL. The lease was ended before it was given out.";
    case FG_STORAGE_FULL:
        return "The store's disk is full. Nothing was changed.";
    case FG_TOKENS_EXHAUSTED:
        return "The resource has used up every fencing token below 2^53.";
    default:
        return fg_error(status)->title;
    }
}

void reply_failure(struct request *request, enum fg_status status)
{
    problem(request, status, RETRY_AFTER_DEFAULT_MS, NULL, failure_detail(status));
}

json_t *reply_error_at(const char *pointer, const char *detail)
{
    return json_pack("{s:[{s:s, s:s}]}", "errors", "pointer", pointer, "detail", detail);
}

/* ---- Values --------------------------------------------------------------------------------- */

json_t *json_string_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

json_t *json_time_or_null(int64_t wall_ms)
{
    char text[CLOCK_RFC3339_BYTES];
    return wall_ms != 0 ? json_string(clock_rfc3339(wall_ms, text)) : json_null();
}

json_t *json_number_or_null(int64_t number)
{
    return number != 0 ? json_integer(number) : json_null();
}
