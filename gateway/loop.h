/* loop.h - one gateway: its event loop and all that hangs on it.
 *
 *     main.c ─► loop_start()  store ─ private Redis ─ Redis link ─ leases ─ HTTP server
 *               loop_run()    until SIGTERM or SIGINT, then drains
 *               loop_stop()   the same in the other order
 *
 * Nothing here is global, so that more loops could run. Main thread only. */
#ifndef FG_LOOP_H
#define FG_LOOP_H

#include "gateway/config.h"
#include "gateway/notify.h"

#include <ev.h>
#include <stdbool.h>

struct leases;
struct redis_child;
struct redis_link;
struct server;
struct store;

struct loop {
    struct ev_loop *ev;
    const struct config *config;
    struct store *store;
    struct redis_child *redis_child; /* NULL with --redis */
    struct redis_link *redis;
    struct leases *leases;
    struct server *server;
    bool draining; /* no new leases; ends when nothing is in flight */
    struct notify notify;
    ev_async store_wake;
    ev_prepare flush;
    ev_signal terminate, interrupt;
    ev_timer drain_timeout;
};

/* Starts everything; the data directory is locked. 0, or an exit code after a log line that says
 * why: 65 the store cannot be used, 69 Redis or the address cannot be used, 78 Redis belongs to
 * another store. -1: a signal asked to stop meanwhile; go on with loop_stop(). */
int loop_start(struct loop *loop, const struct config *config);

/* Runs until it has been asked to stop and what was in flight is done. */
void loop_run(struct loop *loop);

/* Ends everything that was started; what still waits is answered first. */
void loop_stop(struct loop *loop);

/* A request has ended: where we drain, this may have been the last. */
void loop_work_done(struct loop *loop);

#endif
