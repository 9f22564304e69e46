/* notify.h - tells the service manager how we are: the small part of sd_notify(3) that we need.
 *
 * systemd gives a service with Type=notify the address of a datagram socket, NOTIFY_SOCKET, and
 * reads lines from it: READY=1 when it serves, STOPPING=1 when it drains, STATUS= for people, and,
 * where WATCHDOG_USEC is set, WATCHDOG=1 again and again, for as long as the loop turns; a gateway
 * whose loop hangs is killed and started anew. Without NOTIFY_SOCKET nothing here does anything.
 * What goes wrong here is logged at debug and harms nobody. Main thread only. */
#ifndef FG_NOTIFY_H
#define FG_NOTIFY_H

#include <ev.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
    struct ev_loop *ev;
    int fd; /* -1: nobody wants to be told */
    struct sockaddr_un address;
    socklen_t address_bytes;
    ev_timer watchdog; /* repeats every half of WATCHDOG_USEC; never: 0 */
};

/* Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment, so that no child
 * speaks in our name. Call it before there are children, or threads that read the environment. */
void notify_open(struct notify *notify, struct ev_loop *ev);

/* We serve on `url`. From now on the watchdog is fed. Waits for up to 5 s where the manager is
 * behind with reading: without this message it would take us for hung. */
void notify_ready(struct notify *notify, const char *url);

/* We drain, with so many requests in flight. */
void notify_stopping(struct notify *notify, size_t in_flight);

/* The last call with it. */
void notify_close(struct notify *notify);

#endif
