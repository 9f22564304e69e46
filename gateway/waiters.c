/* waiters.c - the queues of those who wait for a lease (waiters.h).
 *
 * A resource has a queue while somebody stands in it. Its first waiter asks Redis (an attempt,
 * acquire.h); at most one attempt of a queue is before Redis' answer at any time:
 *
 *        add ──► [w1 w2 w3 ...]            w1 asks
 *                    granted by Redis  ──► w1 leaves the queue while its fence commits; is there
 *                                          room for more, w2 asks at once, else the queue rests
 *                    busy              ──► the queue rests
 *
 * A queue rests until something can have changed: a removal from Redis (release, revoke, an undone
 * grant) has been *sent*, a limit was changed, a grant has fixed the limit, Redis has come back, or
 * the first expiry that Redis reported has come (a timer; a renewal that shortens a lease moves
 * it).
 *
 * No wake-up is lost: Redis runs the commands of our one connection in their order. Whatever frees
 * a place is sent before it wakes us, so an attempt that is sent after the wake-up sees the free
 * place. Where an attempt was already under way it may have been sent before: `again` is set, and
 * on its answer "busy" it asks once more instead of resting. What we did not send ourselves, an
 * expiry, has the timer.
 *
 * Nobody overtakes: a newcomer goes to the end of the queue where there is one. One that does not
 * want to wait is refused at once where the queue is known to be blocked (`busy`); while its first
 * attempt is still under way it takes its turn like the others, and is refused as soon as it is
 * known that there is no room.
 *
 * Redis down: nobody new is parked (503 at once), those who stand keep their place and their
 * deadline, and the queue looks again when the link is back. At its deadline a waiter gets 409, or
 * what the last attempt failed with. */
#include "gateway/waiters.h"

#include "gateway/clock.h"
#include "gateway/redis_link.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

enum {
    RETRY_MS = 1000,    /* after a failure of Redis that left the link up */
    EXPIRY_SLACK_MS = 1 /* its clock and ours count full milliseconds */
};

TAILQ_HEAD(waiter_list, waiter);

struct queue {
    const char *resource; /* first, for the tree; points behind the struct */
    struct waiters *waiters;
    LIST_ENTRY(queue) entry;
    struct waiter_list list;
    size_t count;
    size_t parked_count;
    size_t impatient_count; /* those who do not want to wait */
    struct waiter *asking;  /* its attempt is before Redis' answer; still in the list */
    bool running;           /* inside queue_ask() */
    bool next;              /* ... which is to go on with the next one */
    bool again;             /* woken while asking */
    bool busy;              /* the last answer left no room */
    enum fg_status failure; /* of the last attempt, where Redis was the reason; else FG_OK */
    ev_timer look;          /* at the first expiry, or after a failure */
};

LIST_HEAD(queue_list, queue);

struct waiters {
    struct ev_loop *ev;
    struct acquires *acquires;
    struct redis_link *redis;
    struct waiters_options options;
    void *by_resource; /* the queues, a tree of search.h */
    struct queue_list queues;
    size_t parked_count;
    bool draining;
};

/* ---- Queues --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static struct queue *queue_find(const struct waiters *waiters, const char *resource)
{
    void *const *found = tfind(&resource, (void *const *)&waiters->by_resource, compare);
    return found ? *(struct queue *const *)found : NULL;
}

static void queue_ask(struct queue *queue);

static void on_look(struct ev_loop *ev, ev_timer *timer, int events)
{
    (void)ev;
    (void)events;
    queue_ask(timer->data);
}

static struct queue *queue_new(struct waiters *waiters, const char *resource)
{
    size_t bytes = strlen(resource) + 1;
    struct queue *queue = calloc(1, sizeof *queue + bytes);
    if (!queue)
        abort();
    queue->resource = memcpy(queue + 1, resource, bytes);
    queue->waiters = waiters;
    TAILQ_INIT(&queue->list);
    ev_init(&queue->look, on_look);
    queue->look.data = queue;
    if (!tsearch(queue, &waiters->by_resource, compare))
        abort();
    LIST_INSERT_HEAD(&waiters->queues, queue, entry);
    return queue;
}

/* A queue ends with its last waiter. */
static void queue_settle(struct queue *queue)
{
    struct waiters *waiters = queue->waiters;
    if (queue->count > 0 || queue->running)
        return;
    ev_timer_stop(waiters->ev, &queue->look);
    tdelete(queue, &waiters->by_resource, compare);
    LIST_REMOVE(queue, entry);
    free(queue);
}

static void queue_look_in(struct queue *queue, int64_t ms)
{
    struct ev_loop *ev = queue->waiters->ev;
    ev_timer_stop(ev, &queue->look);
    ev_timer_set(&queue->look, (double)ms / 1000.0, 0.0);
    ev_timer_start(ev, &queue->look);
}

/* ---- Joining and leaving -------------------------------------------------------------------- */

static int64_t wait_left_ms(const struct waiter *waiter)
{
    int64_t left_ms = waiter->acquire.came_boot_ms + waiter->wait_ms - clock_boot_ms();
    return left_ms > 0 ? left_ms : 0;
}

static void queue_join(struct queue *queue, struct waiter *waiter)
{
    waiter->queue = queue;
    TAILQ_INSERT_TAIL(&queue->list, waiter, entry);
    queue->count++;
    queue->impatient_count += waiter->wait_ms == 0;
}

static void queue_leave(struct waiter *waiter)
{
    struct queue *queue = waiter->queue;
    TAILQ_REMOVE(&queue->list, waiter, entry);
    queue->count--;
    queue->impatient_count -= waiter->wait_ms == 0;
    if (waiter->parked) {
        waiter->parked = false;
        queue->parked_count--;
        queue->waiters->parked_count--;
        ev_timer_stop(queue->waiters->ev, &waiter->deadline);
    }
    if (queue->asking == waiter)
        queue->asking = NULL;
    waiter->queue = NULL;
}

static void on_deadline(struct ev_loop *ev, ev_timer *timer, int events);

/* From here on it counts as waiting. */
static void park(struct waiter *waiter)
{
    struct queue *queue = waiter->queue;
    struct waiters *waiters = waiter->waiters;
    if (waiter->parked)
        return;
    waiter->parked = true;
    queue->parked_count++;
    waiters->parked_count++;
    ev_timer_init(&waiter->deadline, on_deadline, (double)wait_left_ms(waiter) / 1000.0, 0.0);
    waiter->deadline.data = waiter;
    ev_timer_start(waiters->ev, &waiter->deadline);
}

/* May one more wait? */
static bool has_place(const struct queue *queue)
{
    const struct waiters_options *options = &queue->waiters->options;
    return queue->waiters->parked_count < options->max &&
           queue->parked_count < options->max_per_resource;
}

/* ---- Answering ------------------------------------------------------------------------------ */

static void answer(struct waiter *waiter, enum fg_status status)
{
    waiter->acquire.status = waiter->gone ? FG_LEASE_RELEASED : status;
    waiter->waited_ms = waiter->wait_ms > 0 ? clock_boot_ms() - waiter->acquire.came_boot_ms : 0;
    waiter->done(waiter);
}

static void leave_with(struct waiter *waiter, enum fg_status status)
{
    queue_leave(waiter);
    answer(waiter, status);
}

/* 409 for one whose own attempt has not just told who holds it. */
static void leave_held(struct waiter *waiter)
{
    acquire_read_holders(waiter->waiters->acquires, &waiter->acquire);
    leave_with(waiter, FG_LEASE_HELD);
}

static void on_deadline(struct ev_loop *ev, ev_timer *timer, int events)
{
    (void)events;
    struct waiter *waiter = timer->data;
    struct queue *queue = waiter->queue;
    int64_t left_ms = wait_left_ms(waiter);
    if (left_ms > 0) { /* the loop's clock runs ahead of ours by up to a turn */
        ev_timer_set(timer, (double)left_ms / 1000.0, 0.0);
        ev_timer_start(ev, timer);
    } else if (waiter == queue->asking) {
        return; /* the attempt under way decides */
    } else if (queue->failure != FG_OK) {
        leave_with(waiter, queue->failure);
        queue_settle(queue);
    } else {
        leave_held(waiter);
        queue_settle(queue);
    }
}

/* ---- Asking --------------------------------------------------------------------------------- */

/* The first in the queue asks, unless an attempt is under way: then that one asks again. An attempt
 * may end before acquire_run() returns; the loop keeps a thousand of those off the stack. */
static void queue_ask(struct queue *queue)
{
    if (queue->asking || queue->running) {
        queue->again |= queue->asking != NULL;
        queue->next |= queue->running;
        return;
    }
    ev_timer_stop(queue->waiters->ev, &queue->look);
    queue->running = true;
    do {
        queue->next = false;
        queue->again = false;
        queue->asking = TAILQ_FIRST(&queue->list);
        if (queue->asking)
            acquire_run(queue->waiters->acquires, &queue->asking->acquire);
    } while (queue->next && !queue->asking);
    queue->running = false;
    queue_settle(queue);
}

/* There is no room until something changes or `look_ms` have passed: who has not been parked yet
 * is, or is told that it cannot. */
static void queue_rest(struct queue *queue, int64_t look_ms)
{
    struct waiter *waiter, *next;
    queue->busy = true;
    for (waiter = TAILQ_FIRST(&queue->list); waiter && queue->parked_count < queue->count;
         waiter = next) {
        next = TAILQ_NEXT(waiter, entry);
        if (waiter->parked)
            continue;
        if (waiter->wait_ms == 0)
            leave_held(waiter);
        else if (has_place(queue))
            park(waiter);
        else
            leave_with(waiter, FG_TOO_MANY_WAITERS);
    }
    queue_look_in(queue, look_ms);
}

/* Redis has granted the first one's attempt: it has its place, and leaves the queue to the next. */
static void on_proposed(struct acquire *acquire, int free, int64_t next_expiry_ms)
{
    struct waiter *waiter = (struct waiter *)acquire;
    struct queue *queue = waiter->queue;
    if (!queue) /* once more, for one that had lost its place */
        return;
    bool again = queue->again;
    queue_leave(waiter);
    queue->failure = FG_OK;
    if (free > 0 || again || queue->count == 0) {
        queue->busy = false;
        queue_ask(queue);
    } else {
        queue_rest(queue, next_expiry_ms + EXPIRY_SLACK_MS);
        queue_settle(queue);
    }
}

/* The attempt found no room. */
static void on_busy(struct waiter *waiter)
{
    struct queue *queue = waiter->queue;
    int64_t look_ms = waiter->acquire.retry_after_ms + EXPIRY_SLACK_MS;
    bool again = queue->again;
    queue->asking = NULL;
    queue->failure = FG_OK;
    if (waiter->waiters->draining)
        leave_with(waiter, FG_DRAINING);
    else if (waiter->gone || wait_left_ms(waiter) == 0) {
        acquire_name_owners(&waiter->acquire);
        leave_with(waiter, FG_LEASE_HELD);
    }
    if (again || queue->count == 0) {
        queue_ask(queue);
    } else {
        queue_rest(queue, look_ms);
        queue_settle(queue);
    }
}

/* Redis could not be asked. Who stands keeps its place; who has just come is told. */
static void on_unavailable(struct waiter *waiter)
{
    struct queue *queue = waiter->queue;
    struct waiter *next;
    enum fg_status failure = waiter->acquire.status;
    bool stays = waiter->parked && !waiter->gone && wait_left_ms(waiter) > 0;
    queue->asking = NULL;
    queue->failure = failure;
    if (waiter->waiters->draining)
        leave_with(waiter, FG_DRAINING);
    else if (!stays)
        leave_with(waiter, failure);
    for (waiter = TAILQ_FIRST(&queue->list); waiter && queue->parked_count < queue->count;
         waiter = next) {
        next = TAILQ_NEXT(waiter, entry);
        if (!waiter->parked)
            leave_with(waiter, failure);
    }
    if (queue->count > 0 && redis_link_state(queue->waiters->redis) == REDIS_LINK_READY)
        queue_look_in(queue, RETRY_MS);
    queue_settle(queue);
}

/* An attempt of the queue's first one has ended before Redis granted anything. */
static void on_asked(struct waiter *waiter)
{
    struct queue *queue = waiter->queue;
    switch (waiter->acquire.status) {
    case FG_LEASE_HELD:
        on_busy(waiter);
        break;
    case FG_REDIS_UNAVAILABLE:
    case FG_OVERLOADED:
        on_unavailable(waiter);
        break;
    default:
        leave_with(waiter, waiter->acquire.status);
        queue_ask(queue);
        break;
    }
}

/* Redis had granted it, but the grant was lost to a race, and now there is no room: it was first,
 * and is first again. */
static void on_lost_place(struct waiter *waiter)
{
    struct waiters *waiters = waiter->waiters;
    struct queue *queue = queue_find(waiters, waiter->acquire.resource);
    bool is_new = !queue;
    if (is_new)
        queue = queue_new(waiters, waiter->acquire.resource);
    queue_join(queue, waiter);
    TAILQ_REMOVE(&queue->list, waiter, entry);
    TAILQ_INSERT_HEAD(&queue->list, waiter, entry);
    park(waiter); /* whatever the limits say: it had a place */
    if (is_new)
        queue_rest(queue, waiter->acquire.retry_after_ms + EXPIRY_SLACK_MS);
}

static void on_acquired(struct acquire *acquire)
{
    struct waiter *waiter = (struct waiter *)acquire;
    struct waiters *waiters = waiter->waiters;
    bool held = acquire->status == FG_LEASE_HELD;
    /* It has fixed the limit, or replaced the one lease that had to be alone: there is more room
     * than Redis was told of. */
    if (acquire->status == FG_OK &&
        (acquire->limit_open || acquire->effective_limit < acquire->lease.row.limit))
        waiters_wake(waiters, acquire->resource);
    if (waiter->queue) {
        on_asked(waiter);
    } else if (held && !waiters->draining && !waiter->gone && wait_left_ms(waiter) > 0) {
        on_lost_place(waiter);
    } else {
        if (held)
            acquire_name_owners(acquire);
        answer(waiter, acquire->status);
    }
}

static bool is_wanted(struct acquire *acquire)
{
    struct waiter *waiter = (struct waiter *)acquire;
    return waiter->wait_ms == 0 || (!waiter->gone && waiter->client_there(waiter));
}

/* ---- The public half ------------------------------------------------------------------------ */

struct waiters *waiters_open(struct ev_loop *ev, struct acquires *acquires,
                             struct redis_link *redis, const struct waiters_options *options)
{
    struct waiters *waiters = calloc(1, sizeof *waiters);
    if (!waiters)
        abort();
    waiters->ev = ev;
    waiters->acquires = acquires;
    waiters->redis = redis;
    waiters->options = *options;
    LIST_INIT(&waiters->queues);
    return waiters;
}

void waiters_close(struct waiters *waiters)
{
    free(waiters);
}

static enum fg_status link_status(const struct waiters *waiters)
{
    switch (redis_link_state(waiters->redis)) {
    case REDIS_LINK_READY:
        return FG_OK;
    case REDIS_LINK_MISMATCH:
        return FG_STORE_MISMATCH;
    default:
        return FG_REDIS_UNAVAILABLE;
    }
}

/* Takes its turn behind those who are there. */
static void stand_in_line(struct queue *queue, struct waiter *waiter)
{
    queue_join(queue, waiter);
    if (queue->count == 1)
        queue_ask(queue);
    else if (queue->busy && waiter->wait_ms == 0)
        leave_held(waiter);
    else if (queue->busy && has_place(queue))
        park(waiter);
    else if (queue->busy)
        leave_with(waiter, FG_TOO_MANY_WAITERS);
}

void waiters_add(struct waiters *waiters, struct waiter *waiter)
{
    struct acquire *acquire = &waiter->acquire;
    waiter->waiters = waiters;
    acquire->came_boot_ms = waiter->wait_ms > 0 ? clock_boot_ms() : 0;
    acquire->done = on_acquired;
    acquire->wanted = is_wanted;
    acquire->proposed = on_proposed;
    if (waiter->wait_ms > 0 && !waiter->client_there(waiter)) {
        waiter->gone = true;
        answer(waiter, FG_LEASE_RELEASED);
        return;
    }
    struct queue *queue = queue_find(waiters, acquire->resource);
    if (!queue && waiter->wait_ms == 0) {
        acquire_run(waiters->acquires, acquire);
        return;
    }
    if (!queue) { /* its attempt begins now, and tells what is wrong */
        stand_in_line(queue_new(waiters, acquire->resource), waiter);
        return;
    }
    struct acquire_terms terms = acquire_read_terms(waiters->acquires, acquire->resource);
    enum fg_status status = acquire_allowed(&terms, acquire->limit);
    if (status == FG_OK)
        status = link_status(waiters);
    if (status != FG_OK)
        answer(waiter, status);
    else
        stand_in_line(queue, waiter);
}

void waiter_client_left(struct waiter *waiter)
{
    struct queue *queue = waiter->queue;
    waiter->gone = true;
    if (!queue || waiter == queue->asking)
        return; /* is_wanted() tells the attempt */
    leave_with(waiter, FG_LEASE_RELEASED);
    queue_settle(queue);
}

void waiters_wake(struct waiters *waiters, const char *resource)
{
    struct queue *queue = queue_find(waiters, resource);
    if (queue)
        queue_ask(queue);
}

void waiters_configured(struct waiters *waiters, const char *resource)
{
    struct queue *queue = queue_find(waiters, resource);
    struct waiter *waiter, *next;
    if (!queue)
        return;
    struct acquire_terms terms = acquire_read_terms(waiters->acquires, resource);
    for (waiter = TAILQ_FIRST(&queue->list); waiter; waiter = next) {
        next = TAILQ_NEXT(waiter, entry);
        enum fg_status status = acquire_allowed(&terms, waiter->acquire.limit);
        if (status != FG_OK && waiter != queue->asking)
            leave_with(waiter, status);
    }
    queue_ask(queue);
}

void waiters_expiry(struct waiters *waiters, const char *resource, int64_t ms)
{
    struct queue *queue = queue_find(waiters, resource);
    if (queue && ev_is_active(&queue->look) &&
        ev_timer_remaining(waiters->ev, &queue->look) * 1000.0 > (double)(ms + EXPIRY_SLACK_MS))
        queue_look_in(queue, ms + EXPIRY_SLACK_MS);
}

void waiters_wake_all(struct waiters *waiters)
{
    struct queue *queue, *next;
    for (queue = LIST_FIRST(&waiters->queues); queue; queue = next) {
        next = LIST_NEXT(queue, entry);
        queue_ask(queue);
    }
}

void waiters_drain(struct waiters *waiters)
{
    struct queue *queue, *next_queue;
    waiters->draining = true;
    for (queue = LIST_FIRST(&waiters->queues); queue; queue = next_queue) {
        struct waiter *waiter, *next;
        next_queue = LIST_NEXT(queue, entry);
        for (waiter = TAILQ_FIRST(&queue->list); waiter; waiter = next) {
            next = TAILQ_NEXT(waiter, entry);
            if (waiter != queue->asking)
                leave_with(waiter, FG_DRAINING);
        }
        queue_settle(queue);
    }
}

size_t waiters_count(const struct waiters *waiters, const char *resource)
{
    const struct queue *queue = queue_find(waiters, resource);
    return queue ? queue->parked_count : 0;
}
