/* watch.h - the time from the start of a job to its end: who ends it, and when.
 *
 *        grant          renewals move the deadline on      TERM          KILL
 *     ─────┼───────────────┼───────────────┼──────────────────┼─────────────┼───────┼─────►
 *          the job starts                                     deadline -    deadline, then the
 *                                                             kill_after    gateway's own
 *
 * The deadline is the library's (fence.h): it lies before the end of the lease by the gateway's
 * clock, and stands also where nothing is heard any more. SIGTERM comes kill_after before it, if no
 * renewal has moved it until then; SIGKILL kill_after later, whatever has been renewed meanwhile.
 * Where the gateway says that the lease is over, SIGKILL comes at once.
 *
 * Two threads see to that, each of them alone being enough: this one by a timer, and the
 * library's watchdog, whose call ends in watch_lost(). Both can be late only together, when the
 * whole process is stopped; for that there is the guardian. */
#ifndef FENCE_CLI_WATCH_H
#define FENCE_CLI_WATCH_H

#include "client/cli/job.h"
#include "client/cli/signals.h"
#include "client/cli/terminal.h"
#include "client/fence.h"

#include <stdint.h>

struct watch {
    /* Set by the caller, and borrowed. */
    struct job *job;
    struct signals *signals;
    const char *resource; /* for messages */
    int64_t kill_after_ms;
    int64_t max_hold_ms; /* 0: no bound */

    /* What has come of it. */
    bool lost;             /* the lease was over, or nearly, while the job lived */
    enum fence_status why; /* as the library has said it; FENCE_OK: it has not (yet) */
    bool killed;           /* by SIGKILL from us */
    bool gone;             /* nothing of the job lives */

    /* Its own. */
    int lost_fd;                  /* an eventfd: readable once `why` is known, which is its value */
    int timer_fd;                 /* of CLOCK_BOOTTIME */
    int64_t hold_end_ms, kill_ms; /* kill_ms 0: SIGTERM has not been sent */
    int quits;                    /* SIGTERM and SIGINT that came */
    bool wants_terminal;          /* the job is stopped because it wanted to use it */
    struct terminal terminal;
};

/* Prepares it; before the lease is taken. False: no descriptors are left. */
bool watch_open(struct watch *watch);

void watch_close(struct watch *watch);

/* For fence_terms.lost, with the watch as `arg`: kills the job. */
void watch_lost(struct fence_lease *lease, enum fence_status why, void *arg);

/* Watches the job that was just started until it has ended, and ends what is left of it. */
void watch_run(struct watch *watch, const struct fence_lease *lease);

/* Reads whether the library has said that the lease is lost; then `why` is set. */
bool watch_is_lost(struct watch *watch);

#endif
