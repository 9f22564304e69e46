/* reply.h - answers: JSON, problems (RFC 9457), bytes. A request is answered by exactly one call.
 *
 * Each resumes the connection where it is suspended. Loop thread only. */
#ifndef FG_REPLY_H
#define FG_REPLY_H

#include "gateway/errors.h"
#include "gateway/request.h"

#include <jansson.h>

struct json_text;

/* A JSON body. Takes over the reference to `body`. */
void reply_json(struct request *request, unsigned http, json_t *body);

/* A JSON body that was written as text, in request->arena. */
void reply_text(struct request *request, unsigned http, const struct json_text *text);

/* Bytes, borrowed until the answer has been sent: static, or in request->arena. */
void reply_bytes(struct request *request, unsigned http, const char *content_type,
                 const void *bytes, size_t count);

/* No body: 204, 304. */
void reply_empty(struct request *request, unsigned http);

/* A problem: the row of `status` in errors.def, `detail` (a sentence for people) and the facts of
 * the case, whose reference is taken over (NULL: none). 503, 507 and what is retryable get
 * Retry-After. */
void reply_problem(struct request *request, enum fg_status status, json_t *facts,
                   const char *detail, ...) __attribute__((format(printf, 4, 5)));

/* As reply_problem(), with the time after which trying again makes sense. */
void reply_problem_later(struct request *request, enum fg_status status, int64_t retry_after_ms,
                         json_t *facts, const char *detail);

/* A problem that needs no other words than those of its row: Redis or the store is away, the
 * gateway is overloaded ... */
void reply_failure(struct request *request, enum fg_status status);

/* {"errors": [{"pointer", "detail"}]} for FG_INVALID_REQUEST and FG_INVALID_NAME. */
json_t *reply_error_at(const char *pointer, const char *detail);

/* A string that may be NULL, a time in milliseconds of the wall clock (0: null), a number (0: null)
 */
json_t *json_string_or_null(const char *text);
json_t *json_time_or_null(int64_t wall_ms);
json_t *json_number_or_null(int64_t number);

#endif
