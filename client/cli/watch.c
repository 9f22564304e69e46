/* watch.c - the loop that runs while the job does (watch.h).
 *
 * It waits for nothing but its three descriptors, and each turn has an order:
 *
 *   1. the lease: if it is over, no SIGCONT of step 2 wakes a job that was stopped with us
 *   2. the signals
 *   3. the job: after the signals, so that no end is missed whose SIGCHLD was among them
 *   4. the lease again: a job has ended in time only if it was still held when we had seen that */
#include "client/cli/watch.h"

#include "client/cli/cli.h"
#include "client/cli/clock.h"

#include <inttypes.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    END_PATIENCE_MS = 5000, /* for processes that were killed and are not gone yet */
    SIGNALS_A_TURN = 64,
    TERMINAL_RETRY_MS = 200, /* while the job is stopped for want of the terminal */
    HOLD_SLACK_MS = 1000,    /* a deadline so close to the end of --max-hold comes from it */
};

bool watch_open(struct watch *watch)
{
    watch->lost_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->timer_fd = boot_timer_new();
    watch->terminal = (struct terminal){.fd = TERMINAL_NONE};
    return watch->lost_fd >= 0 && watch->timer_fd >= 0;
}

void watch_close(struct watch *watch)
{
    if (watch->lost_fd >= 0)
        close(watch->lost_fd);
    if (watch->timer_fd >= 0)
        close(watch->timer_fd);
}

/* ---- The lease ------------------------------------------------------------------------------- */

/* On the watchdog's thread. It is told first, so that nobody sees the job end and does not know
 * why. */
void watch_lost(struct fence_lease *lease, enum fence_status why, void *arg)
{
    (void)lease;
    struct watch *watch = arg;
    eventfd_write(watch->lost_fd, (eventfd_t)why);
    job_kill(watch->job);
}

bool watch_is_lost(struct watch *watch)
{
    eventfd_t why;
    if (eventfd_read(watch->lost_fd, &why) == 0)
        watch->why = (enum fence_status)why;
    return watch->why != FENCE_OK;
}

static int64_t deadline_ms(const struct watch *watch, const struct fence_lease *lease)
{
    int64_t deadline = fence_deadline_boot_ms(lease);
    return deadline < watch->hold_end_ms ? deadline : watch->hold_end_ms;
}

/* SIGCONT, as what is stopped hears nothing else. */
static void send_term(struct watch *watch, int64_t now_ms, int64_t deadline)
{
    job_signal(watch->job, SIGTERM);
    job_signal(watch->job, SIGCONT);
    watch->lost = true;
    watch->kill_ms = now_ms + watch->kill_after_ms;
    if (watch->kill_ms > deadline)
        watch->kill_ms = deadline;
    bool by_hold = watch->hold_end_ms - deadline < HOLD_SLACK_MS;
    cli_say("%s: the lease is about to end (%s): TERM", watch->resource,
            by_hold ? "--max-hold" : "it could not be renewed");
}

static void kill_job(struct watch *watch, const struct fence_lease *lease, bool in_time)
{
    job_kill(watch->job);
    watch->lost = watch->killed = true;
    if (watch->why != FENCE_OK)
        cli_say("%s: the lease is lost (%s): killed", watch->resource, fence_lost_detail(lease));
    else if (in_time)
        cli_say("%s: the job did not end after TERM: killed", watch->resource);
    else
        cli_say("%s: the lease is at its end: killed", watch->resource);
}

/* True: the lease is over, for this job, and it has been killed. */
static bool kill_if_over(struct watch *watch, const struct fence_lease *lease, enum job_state state)
{
    int64_t now_ms = boot_ms(), deadline = deadline_ms(watch, lease);
    bool kill_due = watch->kill_ms > 0 && now_ms >= watch->kill_ms && state != JOB_ENDED;
    if (!watch_is_lost(watch) && now_ms < deadline && !kill_due)
        return false;
    kill_job(watch, lease, now_ms < deadline);
    return true;
}

static void warn_if_due(struct watch *watch, const struct fence_lease *lease)
{
    int64_t now_ms = boot_ms(), deadline = deadline_ms(watch, lease);
    if (watch->kill_ms == 0 && now_ms >= deadline - watch->kill_after_ms)
        send_term(watch, now_ms, deadline);
}

/* The timer fires when the next thing may be due; whether it is, is looked at then. */
static void set_timer(struct watch *watch, const struct fence_lease *lease)
{
    int64_t next_ms = deadline_ms(watch, lease);
    if (watch->kill_ms == 0)
        next_ms -= watch->kill_after_ms;
    else if (watch->kill_ms < next_ms)
        next_ms = watch->kill_ms;
    /* And often enough for the guardian to hear of each renewal before the next. */
    int64_t look_ms = boot_ms() + fence_lease_ttl_ms(lease) / 6;
    boot_timer_set(watch->timer_fd, next_ms < look_ms ? next_ms : look_ms);
}

/* ---- Signals and stops ----------------------------------------------------------------------- */

static void refuse_to_stop(const struct watch *watch)
{
    cli_say("%s: a job under a lease cannot be suspended", watch->resource);
}

static void forward(struct watch *watch, const struct signalfd_siginfo *info)
{
    int number = (int)info->ssi_signo;
    bool by_us = info->ssi_pid == (uint32_t)getpid(); /* a pipe of ours that nobody reads */
    if (number == SIGCHLD || (number == SIGPIPE && by_us))
        return;
    if (number == SIGTSTP && info->ssi_code == SI_KERNEL) { /* Ctrl-Z, which the job has not seen */
        refuse_to_stop(watch);
        return;
    }
    if ((number == SIGTERM || number == SIGINT) && watch->quits++ > 0)
        number = SIGKILL;
    job_signal(watch->job, number);
}

/* What more there is is read at the next turn, so that a flood does not keep us from the clock. */
static void forward_signals(struct watch *watch)
{
    struct signalfd_siginfo info;
    for (int i = 0; i < SIGNALS_A_TURN && signals_next(watch->signals, &info); i++)
        forward(watch, &info);
}

/* A background job has wanted to use the terminal. We cannot give it what we do not have: where a
 * shell has put us in the background, this is tried again until "fg", of which nobody tells us. */
static void try_terminal(struct watch *watch)
{
    if (!watch->wants_terminal || !terminal_give(&watch->terminal, watch->job->pid))
        return;
    watch->wants_terminal = false;
    job_signal(watch->job, SIGCONT);
}

/* Some stops are the terminal's doing. Any other is somebody's wish, and holds until the deadline.
 */
static void handle_stop(struct watch *watch, int stop_signal)
{
    watch->wants_terminal = stop_signal == SIGTTIN || stop_signal == SIGTTOU;
    if (stop_signal == SIGTSTP && watch->terminal.given) {
        refuse_to_stop(watch);
        job_signal(watch->job, SIGCONT);
    }
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void wait_for_something(struct watch *watch, const struct fence_lease *lease)
{
    struct guardian *guardian = watch->job->guardian;
    struct pollfd fds[] = {{.fd = watch->signals->fd, .events = POLLIN},
                           {.fd = watch->lost_fd, .events = POLLIN},
                           {.fd = watch->timer_fd, .events = POLLIN},
                           {.fd = guardian->fd}};
    set_timer(watch, lease);
    guardian_tell_deadline(guardian, deadline_ms(watch, lease));
    poll(fds, sizeof fds / sizeof fds[0], watch->wants_terminal ? TERMINAL_RETRY_MS : -1);
    if ((fds[3].revents & POLLERR) && !guardian_replace(guardian))
        cli_say("%s: nobody guards the job any more: no processes are left", watch->resource);
}

/* What is left of it, and what it leaves behind. */
static void end_job(struct watch *watch, const struct fence_lease *lease)
{
    int64_t patience_end_ms = boot_ms() + END_PATIENCE_MS;
    if (!watch->lost && deadline_ms(watch, lease) < patience_end_ms)
        patience_end_ms = deadline_ms(watch, lease);
    watch->gone = job_end(watch->job, watch->lost, patience_end_ms);
    if (!watch->gone)
        cli_say("%s: a process of the job cannot be killed", watch->resource);
    terminal_take_back(&watch->terminal, watch->killed);
}

void watch_run(struct watch *watch, const struct fence_lease *lease)
{
    watch->hold_end_ms = watch->max_hold_ms > 0 ? boot_ms() + watch->max_hold_ms : INT64_MAX;
    while (!kill_if_over(watch, lease, JOB_RUNS)) {
        int stop_signal = 0;
        forward_signals(watch);
        enum job_state state = job_look(watch->job, &stop_signal);
        if (kill_if_over(watch, lease, state) || state == JOB_ENDED)
            break;
        warn_if_due(watch, lease);
        if (state == JOB_STOPPED)
            handle_stop(watch, stop_signal);
        try_terminal(watch);
        wait_for_something(watch, lease);
    }
    end_job(watch, lease);
}
