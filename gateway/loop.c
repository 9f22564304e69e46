/* loop.c - starting, running and stopping a gateway (loop.h). */
#include "gateway/loop.h"

#include "gateway/clock.h"
#include "gateway/faults.h"
#include "gateway/leases.h"
#include "gateway/log.h"
#include "gateway/redis_child.h"
#include "gateway/redis_link.h"
#include "gateway/server.h"
#include "storage/store.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

enum {
    PRIVATE_REDIS_START_MS = 5000,
    START_POLL_MS = 2,
    ANSWER_TURNS = 200, /* of the loop, for the last commits */
    ANSWER_PAUSE_MS = 5,
    SEND_TURNS = 4 /* to send the last answers */
};

/* ---- Signals and draining ------------------------------------------------------------------- */

static bool drained(const struct loop *loop)
{
    return !loop->server || server_in_flight(loop->server) == 0;
}

void loop_work_done(struct loop *loop)
{
    if (loop->draining && drained(loop))
        ev_break(loop->ev, EVBREAK_ALL);
}

static void on_drain_timeout(struct ev_loop *ev, ev_timer *timer, int events)
{
    (void)timer;
    (void)events;
    log_warn("drain timeout: stopping with work in flight");
    ev_break(ev, EVBREAK_ALL);
}

static void on_signal(struct ev_loop *ev, ev_signal *signal, int events)
{
    (void)events;
    struct loop *loop = signal->data;
    if (loop->draining) {
        log_warn("second signal: stopping at once");
        _exit(128 + signal->signum);
    }
    loop->draining = true;
    size_t in_flight = loop->server ? server_in_flight(loop->server) : 0;
    log_info("draining", LOG_INT("signal", signal->signum),
             LOG_INT("in_flight", (int64_t)in_flight));
    notify_stopping(&loop->notify, in_flight);
    if (loop->leases)
        leases_drain(loop->leases);
    if (drained(loop)) {
        ev_break(ev, EVBREAK_ALL);
        return;
    }
    ev_timer_set(&loop->drain_timeout, (double)loop->config->drain_timeout_ms / 1000.0, 0.0);
    ev_timer_start(ev, &loop->drain_timeout);
}

static void watch_signals(struct loop *loop)
{
    ev_signal_init(&loop->terminate, on_signal, SIGTERM);
    ev_signal_init(&loop->interrupt, on_signal, SIGINT);
    ev_init(&loop->drain_timeout, on_drain_timeout);
    loop->terminate.data = loop->interrupt.data = loop;
    ev_signal_start(loop->ev, &loop->terminate);
    ev_signal_start(loop->ev, &loop->interrupt);
}

/* ---- The store ------------------------------------------------------------------------------ */

static void on_store_wake(struct ev_loop *ev, ev_async *async, int events)
{
    (void)ev;
    (void)events;
    struct loop *loop = async->data;
    store_collect(loop->store);
}

/* After the handlers of this turn, which have a higher priority. */
static void on_flush(struct ev_loop *ev, ev_prepare *prepare, int events)
{
    (void)ev;
    (void)events;
    struct loop *loop = prepare->data;
    store_flush(loop->store);
}

/* Writer and scan threads. */
static void wake_loop(void *arg)
{
    struct loop *loop = arg;
    ev_async_send(loop->ev, &loop->store_wake);
}

static int start_store(struct loop *loop)
{
    char why[512];
    const struct store_options options = {
        .data_dir = loop->config->data_dir,
        .ledger_max_age_ms = loop->config->ledger_max_age_ms,
        .ledger_max_rows = loop->config->ledger_max_rows,
        .lease_memory_ms = LEASE_MEMORY_MS,
        .wake = wake_loop,
        .wake_arg = loop,
    };
    ev_async_init(&loop->store_wake, on_store_wake);
    loop->store_wake.data = loop;
    ev_async_start(loop->ev, &loop->store_wake);
    if (FAULT(start_store))
        return EX_DATAERR;
    if (store_open(&loop->store, &options, why, sizeof why) == FG_OK) {
        ev_prepare_init(&loop->flush, on_flush);
        ev_set_priority(&loop->flush, EV_MINPRI);
        loop->flush.data = loop;
        ev_prepare_start(loop->ev, &loop->flush);
        return 0;
    }
    log_error("cannot open the store", LOG_STR("why", why),
              LOG_STR("data_dir", loop->config->data_dir));
    return EX_DATAERR;
}

/* ---- Redis ---------------------------------------------------------------------------------- */

static void on_redis_changed(void *arg)
{
    struct loop *loop = arg;
    if (loop->leases && redis_link_state(loop->redis) == REDIS_LINK_READY)
        leases_redis_ready(loop->leases);
}

struct redis_wait {
    struct loop *loop;
    int64_t deadline_ms;
};

/* Ends the wait for Redis: it has spoken, it has refused, we are to stop, or it takes too long. */
static void on_start_poll(struct ev_loop *ev, ev_timer *timer, int events)
{
    (void)events;
    const struct redis_wait *wait = timer->data;
    const struct loop *loop = wait->loop;
    bool refused = !loop->redis_child && redis_link_failures(loop->redis) > 0;
    if (redis_link_state(loop->redis) != REDIS_LINK_DOWN || refused || loop->draining ||
        clock_boot_ms() >= wait->deadline_ms)
        ev_break(ev, EVBREAK_ALL);
}

static void wait_for_redis(struct loop *loop)
{
    int64_t most_ms = loop->redis_child ? PRIVATE_REDIS_START_MS : loop->config->redis_timeout_ms;
    struct redis_wait wait = {loop, clock_boot_ms() + most_ms};
    ev_timer poll;
    ev_timer_init(&poll, on_start_poll, START_POLL_MS / 1000.0, START_POLL_MS / 1000.0);
    poll.data = &wait;
    ev_timer_start(loop->ev, &poll);
    ev_run(loop->ev, 0);
    ev_timer_stop(loop->ev, &poll);
}

static int start_redis(struct loop *loop)
{
    char why[512];
    const struct config *config = loop->config;
    if (FAULT(start_redis))
        return EX_UNAVAILABLE;
    if (!config->redis) {
        loop->redis_child = redis_child_start(loop->ev, config->data_dir, why, sizeof why);
        if (!loop->redis_child) {
            log_error("cannot start the private redis-server", LOG_STR("why", why));
            return EX_UNAVAILABLE;
        }
    }
    const struct redis_link_options options = {
        .url = config->redis,
        .socket_path = loop->redis_child ? redis_child_socket(loop->redis_child) : NULL,
        .timeout_ms = config->redis_timeout_ms,
        .store_uuid = store_uuid(loop->store),
        .adopt = config->adopt_redis,
        .changed = on_redis_changed,
        .arg = loop,
    };
    loop->redis = redis_link_open(loop->ev, &options, why, sizeof why);
    if (!loop->redis) {
        log_error("cannot use --redis", LOG_STR("why", why));
        return EX_UNAVAILABLE;
    }
    wait_for_redis(loop);
    if (redis_link_state(loop->redis) == REDIS_LINK_MISMATCH)
        return EX_CONFIG; /* the link has said so */
    if (redis_link_state(loop->redis) == REDIS_LINK_DOWN && !loop->draining)
        log_warn("redis is not reachable: no leases until it is, writes go on");
    return 0;
}

/* However many wait, holders can come in to release: a quarter of the connections is theirs. */
static struct leases *open_leases(struct loop *loop)
{
    const struct config *config = loop->config;
    int64_t most = config->max_connections * 3 / 4;
    int64_t waiters = config->max_waiters < most ? config->max_waiters : most;
    return leases_open(loop->ev, loop->store, loop->redis,
                       &(struct leases_options){
                           .max_waiters = (size_t)waiters,
                           .max_waiters_per_resource = (size_t)config->max_waiters_per_resource,
                       });
}

/* ---- Start, run, stop ----------------------------------------------------------------------- */

int loop_start(struct loop *loop, const struct config *config)
{
    char why[512];
    *loop = (struct loop){.config = config};
    /* The default loop: it alone watches children and signals. */
    loop->ev = ev_default_loop(EVFLAG_AUTO);
    if (!loop->ev)
        abort();
    notify_open(&loop->notify, loop->ev);
    watch_signals(loop);
    int code = start_store(loop);
    if (code == 0)
        code = start_redis(loop);
    if (code != 0)
        return code;
    loop->leases = open_leases(loop);
    if (loop->draining)
        return -1;
    if (FAULT(start_server))
        return EX_UNAVAILABLE;
    loop->server = server_open(loop, why, sizeof why);
    if (!loop->server) {
        log_error("cannot serve", LOG_STR("why", why));
        return EX_UNAVAILABLE;
    }
    log_info("listening", LOG_STR("url", server_url(loop->server)));
    notify_ready(&loop->notify, server_url(loop->server));
    return 0;
}

void loop_run(struct loop *loop)
{
    ev_run(loop->ev, 0);
}

/* Lets what is suspended be answered: Redis calls fail, store ops finish, answers are sent. */
static void answer_the_rest(struct loop *loop)
{
    for (int turn = 0; turn < ANSWER_TURNS; turn++) {
        store_collect(loop->store);
        ev_run(loop->ev, EVRUN_NOWAIT);
        if (store_in_flight(loop->store) == 0 && server_suspended(loop->server) == 0)
            break;
        nanosleep(&(struct timespec){.tv_nsec = ANSWER_PAUSE_MS * 1000000L}, NULL);
    }
    for (int turn = 0; turn < SEND_TURNS; turn++)
        ev_run(loop->ev, EVRUN_NOWAIT);
}

void loop_stop(struct loop *loop)
{
    loop->draining = true;
    if (loop->leases)
        leases_drain(loop->leases);
    if (loop->redis)
        redis_link_stop(loop->redis);
    if (loop->server)
        answer_the_rest(loop);
    server_close(loop->server);
    if (loop->store) {
        ev_prepare_stop(loop->ev, &loop->flush);
        store_close(loop->store);
    }
    leases_close(loop->leases);
    redis_link_free(loop->redis);
    redis_child_stop(loop->redis_child);
    notify_close(&loop->notify);
    if (loop->server)
        log_info("stopped");
}
