/* watchdog.c - the thread that keeps a lease, and says when it is lost.
 *
 *     sent            TTL/3                      2 TTL/3            deadline   TTL
 *      |----------------|==== a round ============|=====================|.......|
 *
 * A third of the TTL after the last good renewal was *sent* a round begins: renewals until one is
 * answered well, the server says that the lease is over, or the deadline has come. Two rounds'
 * worth of time may go wrong before that. Within a round
 *
 *   - a failure (refused connection, 503, nonsense) is followed by another try after a pause that
 *     doubles from TTL/100 to TTL/30, at most a second;
 *   - silence is not waited out: a tenth of the TTL later a second try goes out on another
 *     connection while the first may still be answered, and so on, ATTEMPTS_MAX at a time. One
 *     connection that hangs costs nothing, a slow gateway has half of the TTL to answer.
 *
 * Both pauses are at most a quarter of what is left: tries become denser as the deadline comes
 * near, and a gateway that is back at 0.9 TTL finds the lease still asked for. The deadline is
 * looked at with a timerfd of CLOCK_BOOTTIME, whatever curl is doing, and what is answered after it
 * changes nothing: a lost lease is never taken again.
 *
 * The thread ends with the lease (lost or released) and with the process. All signals are blocked
 * in it: they are the program's. */
#include "client/internal.h"
#include "client/wire.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    ATTEMPTS_MAX = 6,
    PAUSE_LEAST_MS = 5,
    PAUSE_MOST_MS = 1000,
    STACK_BYTES = 512 * 1024 /* curl and a TLS library run on it */
};

/* One round. */
struct round {
    struct fence_lease *lease;
    struct wire *wire;
    char *path;
    struct exchange attempts[ATTEMPTS_MAX]; /* those with a wire are under way */
    int64_t ttl_ms;
    int64_t pause_ms;     /* after the next failure */
    int64_t next_boot_ms; /* when the next attempt is made */
};

/* ---- Waiting -------------------------------------------------------------------------------- */

void watchdog_wake(const struct fence_lease *lease)
{
    uint64_t one = 1;
    if (lease->wake >= 0 && write(lease->wake, &one, sizeof one) < 0)
        return; /* it is readable already */
}

static void clear_wake(const struct fence_lease *lease)
{
    uint64_t count;
    if (read(lease->wake, &count, sizeof count) < 0)
        return; /* it was not readable */
}

static bool is_ending(struct fence_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    bool ending = lease->ending;
    pthread_mutex_unlock(&lease->mutex);
    return ending;
}

/* Until the time has come, or somebody wakes us. */
static void rest_until(const struct fence_lease *lease, int64_t until_boot_ms)
{
    struct pollfd fds[] = {{.fd = lease->timer, .events = POLLIN},
                           {.fd = lease->wake, .events = POLLIN}};
    boot_timer_set(lease->timer, until_boot_ms);
    poll(fds, 2, -1);
}

/* ---- A round -------------------------------------------------------------------------------- */

static int64_t bounded(int64_t ms, int64_t least, int64_t most)
{
    return ms < least ? least : ms > most ? most : ms;
}

/* A free place for one more; where there is none, that of the oldest, which is hung up. */
static struct exchange *next_attempt(struct round *round)
{
    struct exchange *next = &round->attempts[0];
    for (size_t i = 0; i < ATTEMPTS_MAX; i++) {
        if (!round->attempts[i].wire)
            return &round->attempts[i];
        if (round->attempts[i].sent_boot_ms < next->sent_boot_ms)
            next = &round->attempts[i];
    }
    exchange_end(next);
    return next;
}

/* After a pause, which becomes shorter as the deadline comes near. */
static void plan_attempt(struct round *round, int64_t pause_ms)
{
    int64_t now = boot_ms();
    int64_t left_ms = atomic_load(&round->lease->deadline_boot_ms) - now;
    int64_t most_ms = bounded(left_ms / 4, PAUSE_LEAST_MS, INT64_MAX);
    round->next_boot_ms = now + bounded(pause_ms, PAUSE_LEAST_MS, most_ms);
}

static void begin_attempt(struct round *round)
{
    char body[RENEWAL_BODY_BYTES];
    struct http_request request = lease_renewal(round->lease, round->path, round->ttl_ms, body);
    request.timeout_ms = round->ttl_ms;
    plan_attempt(round, round->ttl_ms / 10);
    exchange_begin(round->wire, next_attempt(round), &request);
}

/* An attempt has ended. Returns true where that decides the round: *why is then FENCE_OK, or why
 * the lease is over. */
static bool judge(struct round *round, const struct exchange *attempt, enum fence_status *why)
{
    *why = attempt->status;
    if (attempt->status == FENCE_OK)
        *why = lease_read_renewal(round->lease, round->ttl_ms, &attempt->answer, NULL);
    if (lease_has_ended(attempt->status)) {
        lease_is_over(round->lease, attempt->status, attempt->error.detail);
        return true;
    }
    if (*why == FENCE_OK)
        return true;
    /* Jitter, so that many clients do not come back at once. */
    int64_t jitter_ms = round->pause_ms > 3 ? boot_ms() % (round->pause_ms / 4 + 1) : 0;
    plan_attempt(round, round->pause_ms - jitter_ms);
    round->pause_ms = bounded(round->pause_ms * 2, PAUSE_LEAST_MS,
                              bounded(round->ttl_ms / 30, PAUSE_LEAST_MS, PAUSE_MOST_MS));
    return false;
}

/* Renews until that is decided, by the deadline at the latest. FENCE_OK: renewed, or undecided. */
static enum fence_status run_round(struct round *round)
{
    struct fence_lease *lease = round->lease;
    enum fence_status why = FENCE_OK;
    int64_t deadline = atomic_load(&lease->deadline_boot_ms);
    while (boot_ms() < deadline && !is_ending(lease)) {
        if (boot_ms() >= round->next_boot_ms)
            begin_attempt(round);
        int64_t until = round->next_boot_ms < deadline ? round->next_boot_ms : deadline;
        if (wire_wait(round->wire, lease->wake, until))
            clear_wake(lease);
        for (size_t i = 0; i < ATTEMPTS_MAX; i++) {
            if (!round->attempts[i].done)
                continue;
            if (judge(round, &round->attempts[i], &why))
                return why;
            exchange_end(&round->attempts[i]);
        }
    }
    return FENCE_OK;
}

static enum fence_status renew(struct fence_lease *lease)
{
    int64_t ttl_ms = atomic_load(&lease->ttl_ms);
    struct round round = {
        .lease = lease,
        .wire = wire_take(lease->client),
        .path = http_path("leases", lease->id, "renew", NULL),
        .ttl_ms = ttl_ms,
        .pause_ms = bounded(ttl_ms / 100, PAUSE_LEAST_MS, PAUSE_MOST_MS),
    };
    enum fence_status why = FENCE_OK;
    if (round.wire && round.path)
        why = run_round(&round);
    for (size_t i = 0; i < ATTEMPTS_MAX; i++)
        exchange_end(&round.attempts[i]);
    if (round.wire)
        wire_give(lease->client, round.wire);
    free(round.path);
    return why;
}

/* ---- The thread ----------------------------------------------------------------------------- */

/* Tells it once: the thread ends after it. Not where it is being released. */
static void lose(struct fence_lease *lease, enum fence_status why)
{
    lease_is_over(lease, why, NULL);
    if (lease->lost && !is_ending(lease))
        lease->lost(lease, atomic_load(&lease->over), lease->arg);
}

/* A round, unless fence_renew() is at it: then we look again a little later. Returns when to go on,
 * or -1: the lease is lost. */
static int64_t keep(struct fence_lease *lease)
{
    int64_t ttl_ms = atomic_load(&lease->ttl_ms);
    int64_t later = boot_ms() + bounded(ttl_ms / 30, PAUSE_LEAST_MS, PAUSE_MOST_MS);
    if (!lease_renewal_begin(lease, false, false))
        return later;
    int64_t renewed = atomic_load(&lease->renewed_boot_ms);
    enum fence_status why = renew(lease);
    lease_renewal_end(lease);
    if (why != FENCE_OK) {
        lose(lease, why);
        return -1;
    }
    return atomic_load(&lease->renewed_boot_ms) != renewed ? 0 : later;
}

static void *watch(void *arg)
{
    struct fence_lease *lease = arg;
    int64_t not_before = 0;
    while (not_before >= 0 && !is_ending(lease)) {
        int64_t deadline = atomic_load(&lease->deadline_boot_ms);
        int64_t next = atomic_load(&lease->renewed_boot_ms) + atomic_load(&lease->ttl_ms) / 3;
        int64_t now = boot_ms();
        next = next > not_before ? next : not_before;
        enum fence_status over = atomic_load(&lease->over);
        if (over != FENCE_OK) { /* somebody has seen it, or it is being released */
            lose(lease, over);
            break;
        } else if (now >= deadline) {
            lose(lease, now >= lease->outlived_boot_ms ? FENCE_OUTLIVED : FENCE_EXPIRED);
            break;
        } else if (now >= next) {
            not_before = keep(lease);
        } else {
            rest_until(lease, next < deadline ? next : deadline);
            clear_wake(lease);
        }
    }
    return NULL;
}

bool watchdog_start(struct fence_lease *lease)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    lease->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    lease->timer = boot_timer_new();
    if (lease->wake < 0 || lease->timer < 0)
        return false;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lease->has_watchdog = pthread_create(&lease->watchdog, &attributes, watch, lease) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return lease->has_watchdog;
}

void watchdog_stop(struct fence_lease *lease)
{
    if (lease->wake >= 0 && pthread_equal(pthread_self(), lease->watchdog))
        return;
    pthread_mutex_lock(&lease->stopping);
    if (lease->has_watchdog) {
        watchdog_wake(lease);
        pthread_join(lease->watchdog, NULL);
        lease->has_watchdog = false;
    }
    pthread_mutex_unlock(&lease->stopping);
}
