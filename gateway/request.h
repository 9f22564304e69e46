/* request.h - one HTTP request, from its headers to its answer.
 *
 *     libmicrohttpd                                         on the loop thread, all of it
 *       headers ──► request_check()   headers (headers.c), route (router.c), length, token
 *       body    ──► request_gather()
 *       end     ──► server.c          the route's handler, once
 *                     │ handler has answered: reply_*() set `response`    → queued at once
 *                     └ handler waits for Redis or the store              → connection suspended
 *       ...           done() of the service or the store: reply_*()       → connection resumed
 *       again   ──► server.c                                              → queued
 *       sent    ──► request_free()
 *
 * A handler never blocks and answers exactly once, at once or later. What it allocates in
 * request->arena lives until the answer has been sent. Loop thread only. */
#ifndef FG_REQUEST_H
#define FG_REQUEST_H

#include "gateway/errors.h"
#include "storage/arena.h"
#include "storage/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct MHD_Connection;
struct MHD_Response;
struct loop;
struct route;
struct waiter;

enum {
    REQUEST_PARAMETERS_MAX = 2,
    REQUEST_QUERY_MAX = 4,
    REQUEST_HEADERS_MAX = 6,
    REQUEST_ID_CHARS = 128
};

/* The headers that mean something to us, checked and decoded (headers.c). */
struct request_headers {
    bool has_token;
    int64_t token;
    bool has_lease;
    struct lease_key lease;           /* resource_id 0: what was sent is no lease id */
    const char *content_type;         /* NULL: none */
    const char *if_match;             /* raw; NULL: none */
    const char *if_none_match;        /* raw; NULL: none */
    enum version_condition condition; /* of a write, from these two */
    int64_t condition_version;
    bool expects_continue;
    bool chunked;
    int64_t content_length; /* -1: none */
};

/* Where the library's buffer holds the head, to see whether that is all of it (headers.c). */
struct request_head {
    const char
        *headers;    /* the first header must begin here; NULL: the request line hides something */
    const char *end; /* behind the blank line that ends the head */
};

struct query_parameter {
    const char *name;
    const char *value;
};

struct out_header {
    const char *name;
    const char *value;
};

struct request {
    struct loop *loop;
    struct MHD_Connection *connection;
    struct arena arena;
    const char *method;
    const char *target; /* the raw path */
    struct request_head head;
    const struct route *route;                      /* NULL: refused before */
    const char *parameters[REQUEST_PARAMETERS_MAX]; /* decoded, in the order of the path */
    struct query_parameter query[REQUEST_QUERY_MAX];
    size_t query_count;
    struct request_headers headers;
    char id[REQUEST_ID_CHARS + 1]; /* X-Request-Id */

    char *body;
    size_t body_bytes;
    size_t body_room;
    bool discard; /* answered already: what still comes of the body is thrown away */

    struct MHD_Response *response; /* the answer, once there is one */
    unsigned http;
    struct out_header out[REQUEST_HEADERS_MAX];
    size_t out_count;

    bool suspended;
    void (*client_left)(struct request *request); /* server_watch_client() */
    struct waiter *waiter;                        /* of a request that waits for a lease */
    void (*unanswered)(
        struct request *request); /* where the answer could not be sent; NULL: nothing */
    struct lease_key granted;     /* what has to be ended then */
    int64_t began_boot_ms;
};

/* A request whose request line and headers have been read. Strings are copied. */
struct request *request_new(struct loop *loop, struct MHD_Connection *connection,
                            const char *method, const char *target);

void request_free(struct request *request);

/* The checks before the body, in the contract's order; the first that fails answers. Returns false
 * where the connection must not be used any more. */
bool request_check(struct request *request);

/* Takes a piece of the body; what is over --max-body is thrown away, and the request answered.
 * False: far too much comes, drop the connection. */
bool request_gather(struct request *request, const char *data, size_t bytes);

/* The body has arrived: what could not be checked before. False: answered. */
bool request_complete(struct request *request);

/* 428, in words that say what to send: FG_FENCING_TOKEN_REQUIRED, FG_LEASE_ID_REQUIRED,
 * FG_PRECONDITION_REQUIRED. */
void request_refuse_unguarded(struct request *request, enum fg_status status);

/* The value of a query parameter, NULL where it was not sent. */
const char *request_query(const struct request *request, const char *name);

/* Adds a header to the answer; before reply_*(). `name` is static, `value` is copied. */
void request_header(struct request *request, const char *name, const char *value);

#endif
