/* notify.c - one datagram per message (notify.h).
 *
 * The socket is not connected: each message names the address, so that it still arrives where the
 * manager has been restarted and has bound the socket anew. */
#include "gateway/notify.h"

#include "gateway/digits.h"
#include "gateway/log.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    READY_WAIT_S = 5,
    MESSAGE_BYTES = 256,
    USEC_DIGITS = 15 /* 31 years */
};

/* ---- Sending -------------------------------------------------------------------------------- */

static void send_message(struct notify *notify, const char *message, int flags)
{
    if (notify->fd < 0)
        return;
    ssize_t sent;
    do
        sent = sendto(notify->fd, message, strlen(message), flags | MSG_NOSIGNAL,
                      (const struct sockaddr *)&notify->address, notify->address_bytes);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        log_debug("cannot tell the service manager", LOG_STR("message", message),
                  LOG_STR("why", strerror(errno)));
}

static void on_watchdog(struct ev_loop *ev, ev_timer *timer, int events)
{
    (void)ev;
    (void)events;
    send_message(timer->data, "WATCHDOG=1", MSG_DONTWAIT);
}

/* ---- The environment ------------------------------------------------------------------------ */

/* "/path", or "@name" in the abstract namespace. False: it is something else. */
static bool read_address(struct notify *notify, const char *text)
{
    size_t bytes = strlen(text);
    bool abstract = text[0] == '@';
    size_t room = sizeof notify->address.sun_path - (abstract ? 0 : 1); /* a path ends with NUL */
    if ((text[0] != '/' && !abstract) || bytes < 2 || bytes > room)
        return false;
    notify->address.sun_family = AF_UNIX;
    memcpy(notify->address.sun_path, text, bytes);
    if (abstract)
        notify->address.sun_path[0] = '\0';
    notify->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    return true;
}

static bool read_number(const char *name, int64_t *number)
{
    const char *text = getenv(name);
    size_t length = text ? strlen(text) : 0;
    return length <= USEC_DIGITS && digits_read(text ? text : "", length, INT64_MAX, number);
}

/* Half of the time that the manager gives us, in seconds; 0: it does not watch this process. */
static double watchdog_period_s(void)
{
    int64_t usec = 0;
    int64_t pid = 0;
    if (getenv("WATCHDOG_PID") && (!read_number("WATCHDOG_PID", &pid) || pid != getpid()))
        return 0;
    return read_number("WATCHDOG_USEC", &usec) ? (double)usec / 1e6 / 2 : 0;
}

static int open_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const struct timeval wait = {.tv_sec = READY_WAIT_S};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) == 0)
        return fd;
    close(fd);
    return -1;
}

/* ---- For loop.c ----------------------------------------------------------------------------- */

void notify_open(struct notify *notify, struct ev_loop *ev)
{
    const char *address = getenv("NOTIFY_SOCKET");
    double period_s = watchdog_period_s();
    *notify = (struct notify){.ev = ev, .fd = -1};
    ev_timer_init(&notify->watchdog, on_watchdog, period_s, period_s);
    notify->watchdog.data = notify;
    if (address && !read_address(notify, address))
        log_debug("NOTIFY_SOCKET is not an address that we know", LOG_STR("address", address));
    else if (address && (notify->fd = open_socket()) < 0)
        log_debug("no socket for the service manager", LOG_STR("why", strerror(errno)));
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void notify_ready(struct notify *notify, const char *url)
{
    char message[MESSAGE_BYTES];
    snprintf(message, sizeof message, "READY=1\nSTATUS=Listening on %s", url);
    send_message(notify, message, 0);
    if (notify->fd >= 0 && notify->watchdog.repeat > 0)
        ev_timer_start(notify->ev, &notify->watchdog);
}

void notify_stopping(struct notify *notify, size_t in_flight)
{
    char message[MESSAGE_BYTES];
    snprintf(message, sizeof message, "STOPPING=1\nSTATUS=Draining, %zu request%s in flight",
             in_flight, in_flight == 1 ? "" : "s");
    send_message(notify, message, MSG_DONTWAIT);
}

void notify_close(struct notify *notify)
{
    if (notify->fd < 0)
        return;
    ev_timer_stop(notify->ev, &notify->watchdog);
    close(notify->fd);
    notify->fd = -1;
}
