/* run.c - fence run: a job that lives no longer than its lease.
 *
 *     guardian ──► lease ──► job, watched (watch.h) ──► its group is gone ──► release
 *
 * What is started is ended in the other order: nobody else can be granted the resource while a
 * process of the job's group lives. That holds while the gateway or the network is frozen, by the
 * deadline (watch.h); when we are killed or stopped, by the guardian (guardian.h); and when
 * we are asked to leave, because no job is started after that (a signal that comes while the lease
 * is waited for or is being granted) or because the signal goes to the job (from then on).
 *
 * The exit status is the job's, unless the lease was lost while it lived. */
#include "client/cli/cli.h"
#include "client/cli/clock.h"
#include "client/cli/environment.h"
#include "client/cli/errand.h"
#include "client/cli/run_options.h"
#include "client/cli/watch.h"
#include "client/http.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    LAST_WAIT_MS = 5000, /* for how long we wait for the gateway at the end, */
    LEAST_WAIT_MS = 1000 /* and for how long in any case */
};

struct run {
    const struct run_options *options;
    struct inherited inherited;
    struct signals signals;
    struct guardian guardian;
    struct job job;
    struct watch watch;
    struct fence_client *client;
    struct fence_lease *lease;
    int64_t granted_ms; /* CLOCK_BOOTTIME */

    /* The request that is under way, on a thread of its own, and what has come of it. */
    struct fence_terms terms;
    int64_t renew_ms;
    enum fence_status status;
    struct fence_error error;
    int cancel_fd;
    bool abandoned; /* it still is: we can leave only by _exit() */
};

/* ---- Requests -------------------------------------------------------------------------------- */

static void do_acquire(void *arg)
{
    struct run *run = arg;
    run->status = fence_acquire(run->client, &run->terms, &run->lease, &run->error);
}

static void do_renew(void *arg)
{
    struct run *run = arg;
    run->status = fence_renew(run->lease, run->renew_ms, &run->error);
}

static void do_release(void *arg)
{
    struct run *run = arg;
    run->status = fence_release(run->lease, &run->error);
}

/* Waits for a request up to `within_ms`, within reason. False: in vain. It is under way for ever
 * then (`abandoned`), or could not be begun. */
static bool request(struct run *run, void (*work)(void *arg), int64_t within_ms)
{
    int64_t until_ms = boot_ms() + (within_ms < LAST_WAIT_MS ? within_ms : LAST_WAIT_MS);
    /* Whoever sends two signals wants the job to end, not others to wait for its lease. */
    int64_t grace_ms = run->job.pid > 0 ? LEAST_WAIT_MS : 0;
    enum errand_end end = errand_run(work, run, until_ms, 0, grace_ms, &run->signals);
    if (end == ERRAND_DONE)
        return true;
    run->abandoned = end != ERRAND_FAILED;
    return false;
}

/* ---- The lease ------------------------------------------------------------------------------- */

/* False: two signals have come. */
static bool acquire_for(struct run *run, int64_t wait_ms)
{
    run->terms.wait_ms = wait_ms;
    enum errand_end end = errand_run(do_acquire, run, INT64_MAX, run->cancel_fd, 0, &run->signals);
    if (end == ERRAND_FAILED)
        run->status = fence_fail(&run->error, FENCE_SYSTEM, "no threads or descriptors are left");
    run->abandoned = end == ERRAND_CUT;
    return end != ERRAND_CUT;
}

/* On a terminal whoever waits is told for what. So the first request does not wait; that is no
 * disadvantage, as nobody is passed by it, either. */
static bool acquire(struct run *run)
{
    int64_t wait_ms = run->options->wait_ms, started_ms = boot_ms();
    if (wait_ms != 0 && isatty(STDERR_FILENO)) {
        if (!acquire_for(run, 0))
            return false;
        if (run->status != FENCE_HELD || run->signals.ends > 0)
            return true;
        cli_say("%s: waiting: %s", run->options->resource, run->error.detail);
        int64_t left_ms = wait_ms - (boot_ms() - started_ms);
        if (wait_ms != FENCE_WAIT_FOREVER)
            wait_ms = left_ms > 0 ? left_ms : 0;
    }
    return acquire_for(run, wait_ms);
}

/* Why there is none. */
static int tell_not_obtained(const struct run *run)
{
    const struct run_options *options = run->options;
    if (run->status == FENCE_HELD && options->not_held == 0)
        return 0; /* then it is no failure */
    int exit_status = cli_failed(options->resource, run->status, &run->error);
    return run->status == FENCE_HELD ? (int)options->not_held : exit_status;
}

/* False: there is none, and *exit_status is set. */
static bool take_lease(struct run *run, int *exit_status)
{
    const struct run_options *options = run->options;
    run->terms = (struct fence_terms){
        .resource = options->resource,
        .owner = options->owner,
        .ttl_ms = options->ttl_ms,
        .limit = (int)options->limit,
        .max_hold_ms = options->max_hold_ms,
        .cancel_fd = run->cancel_fd,
        .lost = watch_lost,
        .arg = &run->watch,
    };
    if (!cli_wait_step(&run->terms.wait_step_ms)) {
        *exit_status = CLI_USAGE;
        return false;
    }
    bool answered = acquire(run);
    run->granted_ms = boot_ms();
    if (answered && run->status == FENCE_OK)
        return true;
    *exit_status = run->signals.ends > 0 ? CLI_SIGNALLED + run->signals.first_end
                                         : tell_not_obtained(run);
    return false;
}

/* For how long the gateway keeps the lease for us, at most. What --max-hold ends is the job. */
static int64_t lease_left_ms(const struct run *run)
{
    if (run->options->max_hold_ms > 0)
        return run->options->ttl_ms;
    int64_t left_ms = fence_deadline_boot_ms(run->lease) - boot_ms();
    return left_ms > LEAST_WAIT_MS ? left_ms : LEAST_WAIT_MS;
}

static void tell_not_released(const struct run *run, const char *why)
{
    cli_say("%s: not released (%s): the lease ends by itself, in %" PRId64 " s at most",
            run->options->resource, why, lease_left_ms(run) / 1000 + 2);
}

/* Waits for it as long as the lease lasts. False: the gateway says that it has gone to somebody
 * else, or was taken away. */
static bool release(struct run *run)
{
    if (!request(run, do_release, lease_left_ms(run))) {
        tell_not_released(run, run->abandoned ? "no answer" : "no thread for it");
        return true;
    }
    if (run->status == FENCE_SUPERSEDED || run->status == FENCE_REVOKED) {
        cli_failed(run->options->resource, run->status, &run->error);
        return false;
    }
    if (run->status != FENCE_OK && run->status != FENCE_EXPIRED && run->status != FENCE_RELEASED)
        tell_not_released(run, fence_status_text(run->status));
    return true;
}

/* ---- After the job --------------------------------------------------------------------------- */

/* So that the lease lasts to the end of --min-hold without us. */
static void renew_for_the_last_time(struct run *run, int64_t left_ms)
{
    run->renew_ms = left_ms < FENCE_TTL_MOST_MS ? left_ms : FENCE_TTL_MOST_MS;
    if (!request(run, do_renew, fence_left_ms(run->lease)))
        cli_say("%s: not renewed for --min-hold: no answer", run->options->resource);
    else if (run->status != FENCE_OK)
        cli_say("%s: not renewed for --min-hold: %s", run->options->resource,
                fence_status_text(run->status));
}

/* Keeps the lease until --min-hold is over. True: then it is to be released. */
static bool hold_on(struct run *run)
{
    int64_t end_ms = run->granted_ms + run->options->min_hold_ms;
    struct pollfd fds[] = {{.fd = run->signals.fd, .events = POLLIN},
                           {.fd = run->watch.lost_fd, .events = POLLIN}};
    for (;;) {
        int64_t left_ms = end_ms - boot_ms();
        signals_drain(&run->signals);
        job_reap_others();
        if (left_ms <= 0)
            return true;
        if (watch_is_lost(&run->watch)) {
            if (run->watch.why == FENCE_OUTLIVED)
                return true;
            cli_say("%s: the lease was lost after the job, before the end of --min-hold (%s)",
                    run->options->resource, fence_status_text(run->watch.why));
            return false;
        }
        if (run->signals.ends > 0 && left_ms >= FENCE_TTL_LEAST_MS) {
            renew_for_the_last_time(run, left_ms);
            return false;
        }
        poll(fds, 2, cli_poll_ms(end_ms));
    }
}

/* The lease was lost, or had to be: the sooner it is free, the better, where it is not. */
static int leave_lost(struct run *run)
{
    bool may_be_ours = fence_left_ms(run->lease) > 0 || run->options->max_hold_ms > 0;
    bool is_over = watch_is_lost(&run->watch) && run->watch.why != FENCE_OUTLIVED;
    if (run->watch.gone && may_be_ours && !is_over)
        release(run);
    return CLI_LOST;
}

/* The job has ended in time. */
static int leave(struct run *run)
{
    int exit_status = job_exit_status(&run->job);
    if (!run->watch.gone) {
        tell_not_released(run, "the job is not quite gone");
        return exit_status;
    }
    /* What happens to the lease in --min-hold has not happened to the job. */
    bool outlived = boot_ms() < run->granted_ms + run->options->min_hold_ms;
    if (!run->job.exec_error && !hold_on(run))
        return exit_status;
    return release(run) || outlived ? exit_status : CLI_LOST;
}

/* ---- The job --------------------------------------------------------------------------------- */

static void tell_not_run(const struct run *run, int error)
{
    cli_say("%s: %s", run->options->command[0], strerror(error));
}

/* Returns the exit status. The lease has been taken. */
static int run_job(struct run *run)
{
    const struct run_options *options = run->options;
    signals_drain(&run->signals);
    if (run->signals.ends > 0) {
        release(run);
        return CLI_SIGNALLED + run->signals.first_end;
    }
    guardian_tell_deadline(&run->guardian, fence_deadline_boot_ms(run->lease));
    char **environment = environment_of(run->lease, cli_url());
    if (!environment || !job_start(&run->job, options->command, environment)) {
        tell_not_run(run, errno);
        environment_free(environment);
        release(run);
        return CLI_SYSTEM;
    }
    environment_free(environment);
    watch_run(&run->watch, run->lease);
    guardian_dismiss(&run->guardian);
    if (run->job.exec_error)
        tell_not_run(run, run->job.exec_error);
    return run->watch.lost ? leave_lost(run) : leave(run);
}

/* ---- fence run ------------------------------------------------------------------------------- */

/* The order matters: what we inherited before anything is opened, signals before there is a thread
 * or a child, the guardian before there is a thread. */
static bool prepare(struct run *run)
{
    run->watch = (struct watch){
        .job = &run->job,
        .signals = &run->signals,
        .resource = run->options->resource,
        .kill_after_ms = run->options->kill_after_ms,
        .max_hold_ms = run->options->max_hold_ms,
        .lost_fd = -1,
        .timer_fd = -1,
    };
    job_init(&run->job, &run->signals, &run->guardian, &run->inherited);
    bool good = inherited_read(&run->inherited) && signals_open(&run->signals) &&
                prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && guardian_start(&run->guardian) &&
                watch_open(&run->watch) &&
                (run->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0;
    if (!good)
        cli_say("run: %s", strerror(errno));
    return good;
}

static int run_prepared(struct run *run)
{
    int exit_status;
    run->client = cli_open(&exit_status);
    if (!run->client)
        return exit_status;
    if (take_lease(run, &exit_status))
        exit_status = run_job(run);
    return exit_status;
}

int cli_run(int argc, char **argv)
{
    struct run_options options;
    struct run run = {
        .options = &options, .signals = {.fd = -1}, .guardian = {.fd = -1}, .cancel_fd = -1};
    int exit_status;
    if (!run_options_read(&options, argc, argv, &exit_status))
        return exit_status;
    exit_status = prepare(&run) ? run_prepared(&run) : CLI_SYSTEM;
    guardian_stop(&run.guardian);
    if (run.abandoned)
        _exit(exit_status);
    fence_lease_free(run.lease);
    fence_close(run.client);
    if (run.cancel_fd >= 0)
        close(run.cancel_fd);
    watch_close(&run.watch);
    signals_close(&run.signals);
    inherited_free(&run.inherited);
    return exit_status;
}
