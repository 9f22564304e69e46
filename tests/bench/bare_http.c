/* bare_http.c - the smallest HTTP server of the gateway's shape (bare_http.h). */
#include "tests/bench/bare_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { BACKLOG = 1024, CONNECTIONS_MAX = 10000, IDLE_S = 75 };

/* ---- Requests ------------------------------------------------------------------------------- */

static void gather(struct bare_request *request, const char *data, size_t bytes)
{
    if (request->body_bytes + bytes > request->body_room) {
        request->body_room = (request->body_bytes + bytes) * 2;
        request->body = realloc(request->body, request->body_room);
        if (!request->body)
            abort();
    }
    memcpy(request->body + request->body_bytes, data, bytes);
    request->body_bytes += bytes;
}

static enum MHD_Result queue(struct bare_request *request)
{
    enum MHD_Result result =
        MHD_queue_response(request->connection, request->status, request->response);
    MHD_destroy_response(request->response);
    request->response = NULL;
    return result;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *target,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_bytes, void **context)
{
    (void)version;
    struct bare_request *request = *context;
    if (!request) {
        *context = request = calloc(1, sizeof *request);
        if (!request)
            abort();
        request->http = arg;
        request->connection = connection;
        return MHD_YES;
    }
    if (*data_bytes > 0) {
        gather(request, data, *data_bytes);
        *data_bytes = 0;
        return MHD_YES;
    }
    if (!request->response) {
        request->method = method;
        request->target = target;
        request->http->handle(request);
    }
    return request->response ? queue(request) : MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    (void)arg;
    (void)connection;
    (void)code;
    struct bare_request *request = *context;
    if (!request)
        return;
    *context = NULL;
    free(request->body);
    free(request->own);
    free(request);
}

void bare_suspend(struct bare_request *request)
{
    request->suspended = true;
    MHD_suspend_connection(request->connection);
}

void bare_answer(struct bare_request *request, unsigned status, const char *text, size_t bytes)
{
    request->status = status;
    request->response =
        MHD_create_response_from_buffer(bytes, (void *)(size_t)text, MHD_RESPMEM_MUST_COPY);
    if (!request->response)
        abort();
    if (!request->suspended)
        return;
    request->suspended = false;
    MHD_resume_connection(request->connection);
    request->http->dirty = true;
}

/* ---- The daemon in the loop ----------------------------------------------------------------- */

static void on_io(struct ev_loop *ev, ev_io *io, int events)
{
    (void)ev;
    (void)events;
    ((struct bare_http *)io->data)->dirty = true;
}

static void on_timeout(struct ev_loop *ev, ev_timer *timer, int events)
{
    (void)ev;
    (void)events;
    ((struct bare_http *)timer->data)->dirty = true;
}

static void on_prepare(struct ev_loop *ev, ev_prepare *prepare, int events)
{
    (void)events;
    struct bare_http *http = prepare->data;
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    if (!http->dirty)
        return;
    http->dirty = false;
    MHD_run(http->daemon);
    ev_timer_stop(ev, &http->timeout);
    if (http->dirty || MHD_get_timeout(http->daemon, &timeout_ms) == MHD_YES) {
        ev_timer_set(&http->timeout, http->dirty ? 0.0 : (double)timeout_ms / 1000.0, 0.0);
        ev_timer_start(ev, &http->timeout);
    }
}

static void print_url(struct MHD_Daemon *daemon)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    printf("listening http://127.0.0.1:%u\n", (unsigned)info->port);
    fflush(stdout);
}

void bare_http_open(struct bare_http *http)
{
    struct rlimit files = {CONNECTIONS_MAX + 64, CONNECTIONS_MAX + 64};
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, http,
        MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_LISTEN_BACKLOG_SIZE, (unsigned)BACKLOG,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_S, MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_END);
    if (!http->daemon) {
        fprintf(stderr, "cannot start the HTTP server\n");
        exit(EXIT_FAILURE);
    }
    int epoll_fd = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    ev_io_init(&http->io, on_io, epoll_fd, EV_READ);
    ev_prepare_init(&http->prepare, on_prepare);
    ev_init(&http->timeout, on_timeout);
    http->io.data = http->prepare.data = http->timeout.data = http;
    ev_io_start(http->ev, &http->io);
    ev_prepare_start(http->ev, &http->prepare);
    print_url(http->daemon);
}

void bare_http_run(struct bare_http *http)
{
    ev_run(http->ev, 0);
}
