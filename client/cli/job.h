/* job.h - the job of `fence run`: a process group, from fork() to its last process.
 *
 *     job_start() ──► job_signal() job_look() ──► job_end() ──► job_exit_status()
 *
 * The number of the group is the pid of the job itself, and a number is used again when nobody has
 * it any more. So the job is not reaped before its group has been killed for the last time: until
 * then a signal cannot hit a stranger.
 *
 * What the job starts and what leaves the group (setsid) becomes our child when its parent ends, as
 * we are a subreaper. job_end() finds it there.
 *
 * Main thread only, but for job_kill(). */
#ifndef FENCE_CLI_JOB_H
#define FENCE_CLI_JOB_H

#include "client/cli/guardian.h"
#include "client/cli/inherited.h"
#include "client/cli/signals.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job {
    const struct signals *signals;
    struct guardian *guardian;
    const struct inherited *inherited;

    pid_t pid;             /* 0: it was not started */
    pthread_mutex_t mutex; /* of `group` */
    pid_t group;           /* 0: there is nobody to signal */
    int report_fd;         /* says why exec() failed, if it did */
    bool reaped;
    int wait_status; /* once it is reaped */
    int exec_error;  /* likewise: an errno; 0: it did run */
};

enum job_state { JOB_RUNS, JOB_STOPPED, JOB_ENDED };

/* Prepares `job`; nothing is started. The three are borrowed. */
void job_init(struct job *job, const struct signals *signals, struct guardian *guardian,
              const struct inherited *inherited);

/* Starts argv[0], found by PATH, with that environment, in a group of its own. It dies with us. If
 * it cannot be executed it has ended with `exec_error`. False: no process could be made, see
 * errno. */
bool job_start(struct job *job, char *const argv[], char *const environment[]);

/* Sends a signal to the group. */
void job_signal(struct job *job, int number);

/* Sends SIGKILL to the group. Any thread, at any time. */
void job_kill(struct job *job);

/* What has become of it since the last look; reaps its orphans. JOB_STOPPED: by the signal
 * *stop_signal. JOB_ENDED: it is there for job_end() to reap; its group may live on. */
enum job_state job_look(struct job *job, int *stop_signal);

/* Kills what is left of the group and reaps it; with `all` also what has left the group. Takes
 * until `until_ms` (CLOCK_BOOTTIME) at most. False: something of it still lives. */
bool job_end(struct job *job, bool all, int64_t until_ms);

/* As a shell says it: its exit status, or 128 and the signal; 126 or 127 where it did not run.
 * After job_end(). */
int job_exit_status(const struct job *job);

/* Reaps children of ours that have ended. After job_end(). */
void job_reap_others(void);

#endif
