/* server.h - HTTP: libmicrohttpd run by our loop, and the life of each request (request.h).
 *
 * libmicrohttpd's own epoll threads can hang together with suspend and resume (0.9.75), so its
 * daemon runs without threads: we watch its epoll descriptor and call MHD_run() once per turn of
 * the loop. Loop thread only. */
#ifndef FG_SERVER_H
#define FG_SERVER_H

#include <stdbool.h>
#include <stddef.h>

struct loop;
struct request;
struct server;

enum { SERVER_URL_BYTES = 128 };

/* Binds and listens, accepting from the next turn of the loop on. NULL: `why` says what failed. */
struct server *server_open(struct loop *loop, char *why, size_t why_bytes);

/* "http://127.0.0.1:8080", with the port that was really bound. */
const char *server_url(const struct server *server);

/* Requests whose headers have been read and whose answer has not been sent. */
size_t server_in_flight(const struct server *server);

/* Requests that wait for Redis or the store. */
size_t server_suspended(const struct server *server);

/* Stops listening, drops every connection. No request may be suspended. */
void server_close(struct server *server);

/* While the request is being worked on: calls `left` when its client leaves or half-closes. NULL:
 * no more. */
void server_watch_client(struct request *request, void (*left)(struct request *request));

/* Whether the request's client is still there. */
bool server_client_there(const struct request *request);

/* Cuts the client off: it gets nothing more. The request is answered all the same, to end it. */
void server_cut(struct request *request);

/* A request has its answer (reply.c): queue it, or resume its connection so that it is queued. */
void server_answered(struct request *request);

#endif
