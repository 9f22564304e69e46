/* bare_http.h - libmicrohttpd run from a libev loop, as gateway/server.c does, and nothing else.
 *
 * One struct bare_request for each request: its body is gathered, then `handle` is called once. It
 * answers at once (bare_answer()), or suspends and answers later, on the same thread. */
#ifndef FG_BARE_HTTP_H
#define FG_BARE_HTTP_H

#include <ev.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

struct bare_http;

struct bare_request {
    struct bare_http *http;
    struct MHD_Connection *connection;
    const char *method; /* while `handle` runs */
    const char *target; /* likewise */
    char *body;         /* not terminated */
    size_t body_bytes;
    size_t body_room;
    bool suspended;
    unsigned status;
    struct MHD_Response *response;
    void *own; /* the program's; free()d with the request */
};

struct bare_http {
    struct ev_loop *ev;
    void (*handle)(struct bare_request *request);
    void *arg; /* the program's */
    struct MHD_Daemon *daemon;
    bool dirty; /* something happened: MHD_run() is due */
    ev_io io;
    ev_prepare prepare;
    ev_timer timeout;
};

/* Listens on a free port of 127.0.0.1 and prints "listening http://127.0.0.1:<port>". `ev`,
 * `handle` and `arg` are set by the caller. Ends the process where it cannot. */
void bare_http_open(struct bare_http *http);

/* Parks a request inside `handle`. */
void bare_suspend(struct bare_request *request);

/* Answers with a copy of `text`; a suspended request is resumed. */
void bare_answer(struct bare_request *request, unsigned status, const char *text, size_t bytes);

/* Runs the loop until SIGTERM or SIGINT, which then end the process at once. */
void bare_http_run(struct bare_http *http);

#endif
