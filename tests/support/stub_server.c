/* stub_server.c - one thread that accepts, and one for each connection.
 *
 * Everything that the threads share hangs on struct stub, under its mutex. A play is never changed
 * and never freed before all threads have ended, so that a step is used without the mutex. Who
 * waits, waits in poll(), also for `stop`: an eventfd that is readable from the end on. */
#include "tests/support/stub_server.h"

#include "gateway/errors.h"
#include "tests/support/cleanup.h"
#include "tests/support/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fnmatch.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEAD_BYTES = 16384, NAME_BYTES = 2048, BACKLOG = 128, AWAIT_MS = 20000 };

struct play {
    struct play *older;
    char *pattern;
    struct stub_step *steps;
    size_t count;
    size_t next;
};

struct request {
    struct request *before;
    char name[NAME_BYTES]; /* "GET /x" */
    char *text;
};

struct connection {
    struct connection *before;
    struct stub *stub;
    pthread_t thread;
    int fd;
};

struct stub {
    int port;
    const char *url;
    int listener;
    int stop;
    bool stopped;
    pthread_t acceptor;

    pthread_mutex_t lock; /* of all below */
    struct play *plays;
    struct request *requests;
    struct connection *connections;
    int connection_count;
};

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

/* ---- One connection -------------------------------------------------------------------------- */

/* Waits for `events` of the connection; false: it is time to end. `timeout_ms` -1: without end. */
static bool await(const struct connection *connection, short events, int timeout_ms)
{
    struct pollfd fds[] = {{.fd = connection->fd, .events = events},
                           {.fd = connection->stub->stop, .events = POLLIN}};
    while (poll(fds, 2, timeout_ms) < 0)
        if (errno != EINTR)
            abort();
    return fds[1].revents == 0;
}

/* Waits; false: it is time to end. */
static bool pause_ms(const struct connection *connection, int ms)
{
    struct pollfd stop = {.fd = connection->stub->stop, .events = POLLIN};
    if (ms > 0)
        poll(&stop, 1, ms);
    return stop.revents == 0;
}

static bool send_bytes(const struct connection *connection, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(connection->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN)
            return false;
        if (sent < 0 && !await(connection, POLLOUT, -1))
            return false;
        if (sent > 0) {
            bytes += sent;
            count -= (size_t)sent;
        }
    }
    return true;
}

/* Does what a step says; false: the connection is to be closed. */
static bool act(const struct connection *connection, const struct stub_step *step)
{
    if (!pause_ms(connection, step->delay_ms))
        return false;
    for (int i = 0; step->text && i < (step->times > 0 ? step->times : 1); i++) {
        size_t piece = step->drip_ms > 0 ? 1 : step->count;
        for (size_t at = 0; at < step->count; at += piece)
            if (!send_bytes(connection, step->text + at, piece) ||
                !pause_ms(connection, step->drip_ms))
                return false;
    }
    if (step->end == STUB_HANG)
        await(connection, POLLRDHUP, -1);
    if (step->end == STUB_RESET) {
        struct linger linger = {.l_onoff = 1, .l_linger = 0};
        setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    }
    return step->end == STUB_KEEP;
}

/* Keeps the request, and finds what to do with it; NULL: nothing was said about it. */
static const struct stub_step *admit(struct stub *stub, struct request *request)
{
    const struct stub_step *step = NULL;
    pthread_mutex_lock(&stub->lock);
    request->before = stub->requests;
    stub->requests = request;
    struct play *play = stub->plays;
    while (play && fnmatch(play->pattern, request->name, 0) != 0)
        play = play->older;
    if (play) {
        step = &play->steps[play->next];
        if (play->next + 1 < play->count)
            play->next++;
    }
    pthread_mutex_unlock(&stub->lock);
    return step;
}

/* The value of Content-Length in a head, or 0. */
static size_t body_bytes(const char *head)
{
    const char *line = strcasestr(head, "\r\nContent-Length:");
    return line ? strtoul(strchr(line, ':') + 1, NULL, 10) : 0;
}

/* Reads up to `count` bytes; fewer: the client or the test has ended. */
static size_t receive(const struct connection *connection, char *bytes, size_t count)
{
    size_t have = 0;
    while (have < count && await(connection, POLLIN, -1)) {
        ssize_t got = recv(connection->fd, bytes + have, count - have, 0);
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    return have;
}

/* Reads one request, byte by byte up to its empty line; NULL: there is no more. */
static struct request *read_request(const struct connection *connection)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    char head[HEAD_BYTES] = "";
    size_t have = 0;
    while (have < 4 || memcmp(head + have - 4, "\r\n\r\n", 4) != 0)
        if (have + 1 >= sizeof head || receive(connection, head + have++, 1) != 1)
            return NULL;

    size_t bytes = body_bytes(head);
    struct request *request = must(calloc(1, sizeof *request));
    request->text = must(calloc(1, have + bytes + 1));
    memcpy(request->text, head, have);
    size_t target = strcspn(head, " ") + 1;
    size_t name = target + strcspn(head + target, " ");
    snprintf(request->name, sizeof request->name, "%.*s", (int)name, head);
    if (strcasestr(head, "\r\nExpect:"))
        send_bytes(connection, go_on, sizeof go_on - 1);
    if (receive(connection, request->text + have, bytes) == bytes)
        return request;
    free(request->text);
    free(request);
    return NULL;
}

static void *serve(void *arg)
{
    static const char nothing[] = "HTTP/1.1 500 Nothing was said about it\r\n"
                                  "Content-Length: 0\r\n\r\n";
    static const struct stub_step unknown = {.text = nothing, .count = sizeof nothing - 1};
    struct connection *connection = arg;
    bool open = true;
    while (open) {
        struct request *request = read_request(connection);
        const struct stub_step *step = request ? admit(connection->stub, request) : NULL;
        open = request && act(connection, step ? step : &unknown);
    }
    close(connection->fd);
    return NULL;
}

/* ---- The server ------------------------------------------------------------------------------ */

static void start_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(thread, NULL, run, arg) != 0)
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void *accept_all(void *arg)
{
    struct stub *stub = arg;
    const struct connection listener = {.stub = stub, .fd = stub->listener};
    while (await(&listener, POLLIN, -1)) {
        int fd = accept4(stub->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        struct connection *connection = must(calloc(1, sizeof *connection));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        connection->stub = stub;
        connection->fd = fd;
        pthread_mutex_lock(&stub->lock);
        connection->before = stub->connections;
        stub->connections = connection;
        stub->connection_count++;
        start_thread(&connection->thread, serve, connection);
        pthread_mutex_unlock(&stub->lock);
    }
    return NULL;
}

void stub_stop(struct stub *stub)
{
    if (stub->stopped)
        return;
    stub->stopped = true;
    eventfd_write(stub->stop, 1);
    pthread_join(stub->acceptor, NULL);
    close(stub->listener);
    while (stub->connections) {
        struct connection *connection = stub->connections;
        pthread_join(connection->thread, NULL);
        stub->connections = connection->before;
        free(connection);
    }
}

static void stub_free(void *arg)
{
    struct stub *stub = arg;
    stub_stop(stub);
    close(stub->stop);
    while (stub->plays) {
        struct play *play = stub->plays;
        stub->plays = play->older;
        for (size_t i = 0; i < play->count; i++)
            free((char *)(uintptr_t)play->steps[i].text);
        free(play->steps);
        free(play->pattern);
        free(play);
    }
    while (stub->requests) {
        struct request *request = stub->requests;
        stub->requests = request->before;
        free(request->text);
        free(request);
    }
    pthread_mutex_destroy(&stub->lock);
    free(stub);
}

struct stub *stub_start(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    struct stub *stub = must(calloc(1, sizeof *stub));
    stub->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    stub->stop = eventfd(0, EFD_CLOEXEC);
    assert_true(stub->listener >= 0 && stub->stop >= 0);
    assert_int_equal(bind(stub->listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(stub->listener, BACKLOG), 0);
    assert_int_equal(getsockname(stub->listener, (struct sockaddr *)&address, &bytes), 0);
    stub->port = ntohs(address.sin_port);
    stub->url = test_printf("http://127.0.0.1:%d", stub->port);
    pthread_mutex_init(&stub->lock, NULL);
    start_thread(&stub->acceptor, accept_all, stub);
    return cleanup_add(stub_free, stub);
}

const char *stub_url(const struct stub *stub)
{
    return stub->url;
}

/* ---- What it is told and what it tells ------------------------------------------------------- */

void stub_play(struct stub *stub, const char *pattern, const struct stub_step *steps, size_t count)
{
    struct play *play = must(calloc(1, sizeof *play));
    play->pattern = must(strdup(pattern));
    play->steps = must(calloc(count, sizeof *steps));
    play->count = count;
    for (size_t i = 0; i < count; i++) {
        struct stub_step *step = &play->steps[i];
        *step = steps[i];
        if (!steps[i].text)
            continue;
        step->count = steps[i].count > 0 ? steps[i].count : strlen(steps[i].text);
        step->text = memcpy(must(malloc(step->count + 1)), steps[i].text, step->count);
    }
    pthread_mutex_lock(&stub->lock);
    play->older = stub->plays;
    stub->plays = play;
    pthread_mutex_unlock(&stub->lock);
}

int stub_count(struct stub *stub, const char *pattern)
{
    int count = 0;
    pthread_mutex_lock(&stub->lock);
    for (const struct request *request = stub->requests; request; request = request->before)
        count += fnmatch(pattern, request->name, 0) == 0;
    pthread_mutex_unlock(&stub->lock);
    return count;
}

void stub_await(struct stub *stub, const char *pattern, int count)
{
    if (!EVENTUALLY(stub_count(stub, pattern) >= count, AWAIT_MS))
        fail_msg("%s came %d times, not %d", pattern, stub_count(stub, pattern), count);
}

const char *stub_last(struct stub *stub, const char *pattern)
{
    pthread_mutex_lock(&stub->lock);
    const struct request *request = stub->requests;
    while (request && fnmatch(pattern, request->name, 0) != 0)
        request = request->before;
    const char *text = request ? test_printf("%s", request->text) : NULL;
    pthread_mutex_unlock(&stub->lock);
    if (!text)
        fail_msg("%s never came", pattern);
    return text;
}

int stub_connections(struct stub *stub)
{
    pthread_mutex_lock(&stub->lock);
    int count = stub->connection_count;
    pthread_mutex_unlock(&stub->lock);
    return count;
}

/* ---- Answers --------------------------------------------------------------------------------- */

const char *stub_answer(int status, const char *headers, const char *body)
{
    return test_printf("HTTP/1.1 %d Status\r\n%sContent-Length: %zu\r\n\r\n%s", status, headers,
                       strlen(body), body);
}

const char *stub_json(int status, const char *body)
{
    return stub_answer(status, "Content-Type: application/json\r\n", body);
}

const char *stub_problem(int status, const char *code)
{
    enum fg_status known = fg_error_find(code);
    bool retryable = known != FG_OK && fg_error(known)->retryable;
    return stub_answer(status, "Content-Type: application/problem+json\r\n",
                       test_printf("{\"type\":\"/problems/x\",\"title\":\"X\",\"status\":%d,"
                                   "\"detail\":\"It is so.\",\"code\":\"%s\",\"retryable\":%s}",
                                   status, code, retryable ? "true" : "false"));
}
