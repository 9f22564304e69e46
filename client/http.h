/* http.h - one request to the gateway and its answer, over libcurl. Inside libfence and `fence`
 * only.
 *
 * The request is driven by the thread that asks, with curl's multi interface, so that two things
 * end it that curl knows nothing of: a descriptor that becomes readable, and a time of
 * CLOCK_BOOTTIME (curl's own timeouts stand still while the machine is suspended). Connections are
 * used again: the client keeps a few that are idle. */
#ifndef FENCE_HTTP_H
#define FENCE_HTTP_H

#include "client/fence.h"

#include <jansson.h>

enum {
    HTTP_HEADERS_MAX = 6,
    HTTP_JSON_MAX = 8 << 20, /* bytes of an answer; what is larger is FENCE_BAD_ANSWER */
    HTTP_VALUE_MAX = 1 << 30 /* likewise, of a record: what --max-body allows */
};

struct http_request {
    const char *method;
    const char *path; /* from "/" on, with its query; see http_path() */
    const char *body; /* NULL: none */
    size_t body_bytes;
    const char *content_type;              /* of the body; NULL: application/json */
    const char *headers[HTTP_HEADERS_MAX]; /* further ones, as "If-Match: \"v3\"", up to a NULL */
    int64_t timeout_ms;                    /* from now on; 0: the client's */
    int cancel_fd;                         /* readable: FENCE_CANCELLED; 0: none */
    int64_t connect_ms;                    /* for connecting; 0: timeout_ms */
    size_t answer_most;                    /* bytes of the answer; 0: HTTP_JSON_MAX */
    bool once;        /* doing it twice would be wrong: never sent again on another connection */
    const char *base; /* http_call() sets it: the client's URL */
};

struct http_answer {
    int status;
    char *body; /* with a NUL behind it; "" where there is none; freed by http_answer_free() */
    size_t body_bytes;
    char content_type[256]; /* "": not sent */
    int64_t version;        /* of ETag "v3"; 0: not sent */
    int64_t token;          /* X-Written-With-Token; 0: not sent */
    int64_t sent_boot_ms;   /* when the request was begun */
};

/* Asks and waits for the answer. FENCE_OK: the server has answered 2xx; else what became of it,
 * with `error` (NULL is fine) telling more. `answer` is filled wherever there is one (else zeroed)
 * and is the caller's to free, in every case. Any thread. */
enum fence_status http_call(struct fence_client *client, const struct http_request *request,
                            struct http_answer *answer, struct fence_error *error);

void http_answer_free(struct http_answer *answer);

/* What an answer means: FENCE_OK for 2xx, else a refusal, or FENCE_BAD_ANSWER where it is not one
 * of fencegate's. `error` is filled in every case. */
enum fence_status http_judge(const struct http_answer *answer, struct fence_error *error);

/* The answer's body as a JSON object; NULL, and `error`, where it is none. A new reference. */
json_t *http_answer_json(const struct http_answer *answer, struct fence_error *error);

/* A 2xx answer that is not what it must be: fills `error`, returns FENCE_BAD_ANSWER. */
enum fence_status http_bad_answer(const struct http_answer *answer, struct fence_error *error,
                                  const char *what);

/* A path of the names, percent-encoded: http_path("store", "a/b", "k") is "/store/a%2Fb/k". Up to
 * the first NULL; malloc()ed, NULL where memory is out. */
char *http_path(const char *first, ...) __attribute__((sentinel));

/* Fills `error` (NULL is fine) for a failure without an answer; returns `status`. */
enum fence_status fence_fail(struct fence_error *error, enum fence_status status,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
