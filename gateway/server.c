/* server.c - the libmicrohttpd daemon, run by our loop, and the requests on it (server.h). */
#include "gateway/server.h"

#include "gateway/config.h"
#include "gateway/connections.h"
#include "gateway/faults.h"
#include "gateway/listener.h"
#include "gateway/log.h"
#include "gateway/loop.h"
#include "gateway/request.h"
#include "gateway/router.h"

#include <assert.h>
#include <ev.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the body of a refused request, this much is still read, so that the client reads the answer.
 */
enum { DISCARD_BYTES_MAX = 64 * 1024 * 1024 };

/* The library keeps this much for each connection, for a head and pieces of a body, and clears it
 * after each answer: more of it costs time and memory, less of it refuses larger heads (431). */
enum { CONNECTION_BYTES = 16 * 1024 };

struct server {
    struct loop *loop;
    struct MHD_Daemon *daemon;
    int listen_fd;
    char url[SERVER_URL_BYTES];
    bool dirty; /* something happened: MHD_run() is due */
    size_t in_flight;
    size_t suspended;
    struct connections *connections;
    ev_io io;
    ev_prepare prepare;
    ev_timer timeout; /* the library's next one */
};

/* ---- Connections ---------------------------------------------------------------------------- */

static void on_connection(void *arg, struct MHD_Connection *handle, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct server *server = arg;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = connection_new(
            server->connections,
            MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
    } else {
        if (*context)
            connection_free(*context);
        /* At the limit the library listens again only in its next run. */
        server->dirty = true;
    }
}

static struct connection *connection_of(struct MHD_Connection *handle)
{
    return MHD_get_connection_info(handle, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static void on_client_left(void *arg)
{
    struct request *request = arg;
    request->client_left(request);
}

void server_watch_client(struct request *request, void (*left)(struct request *request))
{
    request->client_left = left;
    connection_watch(connection_of(request->connection), left ? on_client_left : NULL, request);
}

bool server_client_there(const struct request *request)
{
    return connection_client_there(connection_of(request->connection));
}

void server_cut(struct request *request)
{
    connection_cut(connection_of(request->connection));
}

/* The request line has been read; `target` is as it was sent, query included. */
static void *on_request_line(void *arg, const char *target, struct MHD_Connection *handle)
{
    (void)arg;
    struct connection *connection = connection_of(handle);
    connection_enter(connection, CONNECTION_RECEIVING);
    connection_set_target_bytes(connection, target ? strlen(target) : 0);
    return NULL; /* becomes the context of on_request() */
}

/* ---- Requests ------------------------------------------------------------------------------- */

static enum MHD_Result queue_answer(struct request *request)
{
    if (FAULT(before_reply)) /* as if the network had gone away */
        connection_cut(connection_of(request->connection));
    enum MHD_Result result =
        MHD_queue_response(request->connection, request->http, request->response);
    MHD_destroy_response(request->response);
    request->response = NULL;
    return result;
}

static enum MHD_Result answer_and_close(struct request *request)
{
    MHD_add_response_header(request->response, "Connection", "close");
    return queue_answer(request);
}

/* Answering before the body has been read closes the connection, so a small body is read first. A
 * large one, or one that waits for "100 Continue", is not asked for. */
static bool worth_reading(const struct request *request)
{
    return !request->headers.expects_continue &&
           request->headers.content_length <= DISCARD_BYTES_MAX;
}

static enum MHD_Result request_begin(struct request *request)
{
    bool usable = request_check(request);
    if (!request->response)
        return MHD_YES;
    if (!usable || !worth_reading(request))
        return answer_and_close(request);
    request->discard = true;
    return MHD_YES;
}

void server_answered(struct request *request)
{
    if (!request->suspended)
        return;
    request->suspended = false;
    request->loop->server->suspended--;
    MHD_resume_connection(request->connection);
    request->loop->server->dirty = true;
}

static enum MHD_Result request_run(struct request *request)
{
    connection_enter(connection_of(request->connection), CONNECTION_WORKING);
    if (!request->response && request_complete(request))
        request->route->handler(request);
    if (request->response)
        return queue_answer(request);
    /* Suspended here, inside the library's call and before anything can answer: all answers
     * come from this thread. */
    request->suspended = true;
    request->loop->server->suspended++;
    MHD_suspend_connection(request->connection);
    return MHD_YES;
}

/* The library hands out pointers into what it has read, one part behind the other, and tells how
 * long the head was. A NUL byte in the request line leaves a gap. */
static struct request_head find_head(struct MHD_Connection *connection, const char *method,
                                     const char *target, const char *version)
{
    const char *target_end = target + connection_target_bytes(connection_of(connection));
    size_t bytes =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    if (target != method + strlen(method) + 1 || version != target_end + 1)
        return (struct request_head){0};
    return (struct request_head){.headers = version + strlen(version) + strlen("\r\n"),
                                 .end = method + bytes};
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *target,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_bytes, void **context)
{
    struct server *server = arg;
    struct request *request = *context;
    if (!request) {
        *context = request = request_new(server->loop, connection, method, target);
        request->head = find_head(connection, method, target, version);
        server->in_flight++;
        return request_begin(request);
    }
    if (*data_bytes > 0) {
        size_t bytes = *data_bytes;
        *data_bytes = 0;
        return request_gather(request, data, bytes) ? MHD_YES : MHD_NO;
    }
    return request->response ? queue_answer(request) : request_run(request);
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct server *server = arg;
    struct request *request = *context;
    if (!request)
        return;
    *context = NULL;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK && request->unanswered)
        request->unanswered(request);
    assert(!request->suspended);
    connection_enter(connection_of(connection), CONNECTION_IDLE);
    request_free(request);
    server->in_flight--;
    loop_work_done(server->loop);
}

/* ---- Running the daemon --------------------------------------------------------------------- */

static void on_io(struct ev_loop *ev, ev_io *io, int events)
{
    (void)ev;
    (void)events;
    ((struct server *)io->data)->dirty = true;
}

static void on_timeout(struct ev_loop *ev, ev_timer *timer, int events)
{
    (void)ev;
    (void)events;
    ((struct server *)timer->data)->dirty = true;
}

/* Once per turn of the loop, before it sleeps. */
static void on_prepare(struct ev_loop *ev, ev_prepare *prepare, int events)
{
    (void)events;
    struct server *server = prepare->data;
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    if (!server->dirty)
        return;
    server->dirty = false;
    MHD_run(server->daemon);
    ev_timer_stop(ev, &server->timeout);
    if (server->dirty) {
        ev_timer_set(&server->timeout, 0.0, 0.0);
        ev_timer_start(ev, &server->timeout);
    } else if (MHD_get_timeout(server->daemon, &timeout_ms) == MHD_YES) {
        ev_timer_set(&server->timeout, (double)timeout_ms / 1000.0, 0.0);
        ev_timer_start(ev, &server->timeout);
    }
}

/* Paths and queries stay as they were sent; we decode each part once, after splitting. */
static size_t keep_escapes(void *arg, struct MHD_Connection *connection, char *text)
{
    (void)arg;
    (void)connection;
    return PLANTED(unescape_on) ? MHD_http_unescape(text) : strlen(text);
}

static void on_library_log(void *arg, const char *format, va_list arguments)
{
    (void)arg;
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = '\0';
    log_debug("libmicrohttpd", LOG_STR("says", text));
}

static struct MHD_Daemon *start_daemon(struct server *server)
{
    const struct config *config = server->loop->config;
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request,
        server, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        server->listen_fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)config->max_connections + 1,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(CONNECTION_IDLE_MS / 1000), MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_URI_LOG_CALLBACK,
        on_request_line, server, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_END);
}

static void start_watchers(struct server *server)
{
    struct ev_loop *ev = server->loop->ev;
    int epoll_fd = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    ev_io_init(&server->io, on_io, epoll_fd, EV_READ);
    ev_prepare_init(&server->prepare, on_prepare);
    ev_init(&server->timeout, on_timeout);
    server->io.data = server->prepare.data = server->timeout.data = server;
    ev_io_start(ev, &server->io);
    ev_prepare_start(ev, &server->prepare);
}

struct server *server_open(struct loop *loop, char *why, size_t why_bytes)
{
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        abort();
    server->loop = loop;
    server->listen_fd =
        listener_open(loop->config->listen, server->url, sizeof server->url, why, why_bytes);
    if (server->listen_fd < 0) {
        free(server);
        return NULL;
    }
    server->connections =
        connections_open(loop->ev, loop->config->request_timeout_ms, loop->config->max_connections);
    server->daemon = start_daemon(server);
    if (!server->daemon) {
        snprintf(why, why_bytes, "cannot start the HTTP server");
        connections_close(server->connections);
        close(server->listen_fd);
        free(server);
        return NULL;
    }
    start_watchers(server);
    return server;
}

const char *server_url(const struct server *server)
{
    return server->url;
}

size_t server_in_flight(const struct server *server)
{
    return server->in_flight;
}

size_t server_suspended(const struct server *server)
{
    return server->suspended;
}

void server_close(struct server *server)
{
    if (!server)
        return;
    struct ev_loop *ev = server->loop->ev;
    ev_io_stop(ev, &server->io);
    ev_prepare_stop(ev, &server->prepare);
    ev_timer_stop(ev, &server->timeout);
    MHD_stop_daemon(server->daemon);
    connections_close(server->connections);
    free(server);
}
