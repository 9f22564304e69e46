/* connections.c - three lists and a sweep (connections.h). */
#include "gateway/connections.h"

#include "gateway/clock.h"

#include <ev.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SWEEP_MS = 250,
    LEAVING_MS = 250, /* for what the client sent before it left */
    LEAVERS_AT_ONCE = 64,
    FRESH_MS = 1000,
    LOOKED_AT = 64 /* idle ones, to find a silent one */
};

struct connection {
    TAILQ_ENTRY(connection) entry; /* in the list that list_of() names, if any */
    struct connections *all;
    int fd;
    enum connection_phase phase;
    bool served;      /* it has asked for something before */
    bool half_closed; /* the client sends no more */
    void (*left)(void *arg);
    void *left_arg;
    int64_t since_boot_ms;
    size_t target_bytes;
};

TAILQ_HEAD(connection_list, connection);

struct connections {
    struct ev_loop *ev;
    int64_t receive_ms;
    int64_t max;
    int64_t count;
    struct connection_list idle, receiving, leaving;
    int leave_fd; /* an epoll set: reports who half-closes, once each */
    ev_io leave;
    ev_timer sweep;
};

/* ---- Lists ---------------------------------------------------------------------------------- */

static struct connection_list *list_of(const struct connection *connection)
{
    struct connections *all = connection->all;
    if (connection->phase == CONNECTION_WORKING)
        return NULL;
    if (connection->half_closed)
        return &all->leaving;
    return connection->phase == CONNECTION_IDLE ? &all->idle : &all->receiving;
}

static void list_leave(struct connection *connection)
{
    struct connection_list *list = list_of(connection);
    if (list)
        TAILQ_REMOVE(list, connection, entry);
}

static void list_join(struct connection *connection)
{
    struct connection_list *list = list_of(connection);
    connection->since_boot_ms = clock_boot_ms();
    if (list)
        TAILQ_INSERT_TAIL(list, connection, entry);
}

void connection_cut(struct connection *connection)
{
    shutdown(connection->fd, SHUT_RDWR);
}

/* Cuts one off for good: it stands in no list until the library closes it. */
static void give_up(struct connection *connection)
{
    connection_cut(connection);
    list_leave(connection);
    connection->phase = CONNECTION_WORKING;
}

/* Has it nothing to say? One that has never asked for anything may be about to: it has a moment. */
static bool is_silent(const struct connection *connection)
{
    struct pollfd socket = {.fd = connection->fd, .events = POLLIN};
    bool had_time = clock_boot_ms() - connection->since_boot_ms >= FRESH_MS;
    return (connection->served || had_time) && poll(&socket, 1, 0) == 0;
}

/* Where all places are taken nobody new could come in: of those that have been idle longest, a
 * silent one gives up its own. */
static void make_room(struct connections *connections)
{
    if (connections->count <= connections->max)
        return;
    struct connection *connection = TAILQ_FIRST(&connections->idle);
    for (int i = 0; connection && i < LOOKED_AT; i++) {
        if (is_silent(connection)) {
            give_up(connection);
            return;
        }
        connection = TAILQ_NEXT(connection, entry);
    }
}

void connection_enter(struct connection *connection, enum connection_phase phase)
{
    list_leave(connection);
    connection->phase = phase;
    connection->served |= phase == CONNECTION_WORKING;
    list_join(connection);
    if (phase == CONNECTION_IDLE)
        make_room(connection->all);
}

/* ---- Sweeping ------------------------------------------------------------------------------- */

static void sweep_list(struct connection_list *list, int64_t allowed_ms)
{
    int64_t now_ms = clock_boot_ms();
    struct connection *connection, *next;
    for (connection = TAILQ_FIRST(list);
         connection && now_ms - connection->since_boot_ms > allowed_ms; connection = next) {
        next = TAILQ_NEXT(connection, entry);
        give_up(connection);
    }
}

static void on_sweep(struct ev_loop *ev, ev_timer *timer, int events)
{
    (void)ev;
    (void)events;
    struct connections *connections = timer->data;
    make_room(connections);
    sweep_list(&connections->idle, CONNECTION_IDLE_MS);
    sweep_list(&connections->receiving, connections->receive_ms);
    sweep_list(&connections->leaving, LEAVING_MS);
}

/* ---- Leaving -------------------------------------------------------------------------------- */

static void on_leave(struct ev_loop *ev, ev_io *io, int events)
{
    (void)ev;
    (void)events;
    struct connections *connections = io->data;
    struct epoll_event found[LEAVERS_AT_ONCE];
    int count = epoll_wait(connections->leave_fd, found, LEAVERS_AT_ONCE, 0);
    for (int i = 0; i < count; i++) {
        struct connection *connection = found[i].data.ptr;
        list_leave(connection);
        connection->half_closed = true;
        list_join(connection);
        if (connection->left)
            connection->left(connection->left_arg);
    }
}

void connection_watch(struct connection *connection, void (*left)(void *arg), void *arg)
{
    connection->left = left;
    connection->left_arg = arg;
}

bool connection_client_there(const struct connection *connection)
{
    struct pollfd socket = {.fd = connection->fd, .events = POLLRDHUP};
    return poll(&socket, 1, 0) == 0;
}

/* Edge-triggered on the FIN alone: it is reported once, and data never is. Closing the descriptor
 * takes it out of the set. */
static void watch_for_leaving(struct connection *connection)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = connection};
    epoll_ctl(connection->all->leave_fd, EPOLL_CTL_ADD, connection->fd, &event);
}

/* ---- The public half ------------------------------------------------------------------------ */

struct connections *connections_open(struct ev_loop *ev, int64_t receive_ms, int64_t max)
{
    struct connections *connections = calloc(1, sizeof *connections);
    if (!connections)
        abort();
    connections->ev = ev;
    connections->receive_ms = receive_ms;
    connections->max = max;
    TAILQ_INIT(&connections->idle);
    TAILQ_INIT(&connections->receiving);
    TAILQ_INIT(&connections->leaving);
    connections->leave_fd = epoll_create1(EPOLL_CLOEXEC);
    if (connections->leave_fd < 0)
        abort();
    ev_io_init(&connections->leave, on_leave, connections->leave_fd, EV_READ);
    ev_timer_init(&connections->sweep, on_sweep, SWEEP_MS / 1000.0, SWEEP_MS / 1000.0);
    connections->leave.data = connections->sweep.data = connections;
    ev_io_start(ev, &connections->leave);
    ev_timer_start(ev, &connections->sweep);
    return connections;
}

void connections_close(struct connections *connections)
{
    ev_io_stop(connections->ev, &connections->leave);
    ev_timer_stop(connections->ev, &connections->sweep);
    close(connections->leave_fd);
    free(connections);
}

struct connection *connection_new(struct connections *connections, int fd)
{
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection)
        abort();
    connection->all = connections;
    connection->fd = fd;
    connection->phase = CONNECTION_IDLE;
    connections->count++;
    list_join(connection);
    make_room(connections);
    watch_for_leaving(connection);
    return connection;
}

void connection_free(struct connection *connection)
{
    list_leave(connection);
    connection->all->count--;
    epoll_ctl(connection->all->leave_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    free(connection);
}

void connection_set_target_bytes(struct connection *connection, size_t bytes)
{
    connection->target_bytes = bytes;
}

size_t connection_target_bytes(const struct connection *connection)
{
    return connection->target_bytes;
}
