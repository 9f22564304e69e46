/* http.h - a small blocking HTTP/1.1 client that shows a test everything a server sent.
 *
 * One connection with keep-alive; it is opened by the first request and opened again when the
 * server has closed it. What is unusual stays possible: any method, any header line, any target is
 * sent as given, and http_send_bytes() sends what no client would.
 *
 * Each exchange of http_call() is appended to the file that FENCEGATE_EXCHANGES names, as one line:
 *     {"method","target","request_headers":{},"request_body","status","headers":{},"body"}
 * where a body that is not UTF-8 is {"base64":"..."}. The contract test reads it. */
#ifndef TESTS_HTTP_H
#define TESTS_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct http;

struct http_header {
    const char *name; /* as sent */
    const char *value;
};

/* An answer. Owned by the test, as all that it points to. */
struct response {
    int status;
    struct http_header *headers;
    size_t header_count;
    const char *body; /* followed by a NUL that is not counted */
    size_t body_bytes;
    const char *asked; /* "PUT /store/r/k", for messages */
};

/* A client of 127.0.0.1:port. Closed when the test ends. */
struct http *http_new(int port);

/* Closes the connection; the next request opens a new one. */
void http_close(struct http *http);

/* Closes it so that the server gets a reset. */
void http_reset(struct http *http);

/* Sends a request and reads its answer. `headers` is a NULL-terminated list of lines ("Name:
 * value"); NULL: none. Host is added; Content-Length too, where `body` is not NULL, or the method
 * is PUT or POST. Fails the test where no answer comes within 30 s. */
struct response *http_call(struct http *http, const char *method, const char *target,
                           const char *const *headers, const void *body, size_t body_bytes);

/* The two halves of http_call(), without a record of the exchange: for requests that wait. `method`
 * must be the one that was sent: an answer to HEAD has no body. NULL: the server closed instead. */
void http_send(struct http *http, const char *method, const char *target,
               const char *const *headers, const void *body, size_t body_bytes);
struct response *http_receive(struct http *http, const char *method);

/* Sends these bytes as they are, then no more than that. */
void http_send_bytes(struct http *http, const void *bytes, size_t count);

/* Whether the server closes the connection within `timeout_ms`; bytes that arrive are thrown away.
 */
bool http_closed_by_server(struct http *http, int timeout_ms);

/* Leaves out of the record what comes next: for loops of equal requests. */
void http_record(struct http *http, bool on);

/* The value of a header, in any case; NULL where there is none. How often it was sent. */
const char *response_header(const struct response *response, const char *name);
size_t response_header_count(const struct response *response, const char *name);

/* The body as JSON. Fails the test where it isn't. Owned by the test. */
json_t *response_json(const struct response *response);

#endif
