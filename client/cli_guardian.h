/* cli_guardian.h - the process that outlives `fence run` by a moment, to kill its job.
 *
 * It holds the reading end of a pipe whose other end we have. When we end, however that comes, the
 * pipe ends, and it kills the job's group. It has a session of its own and blocks all signals, so
 * that neither a terminal nor a signal to our group reaches it; its name is "lease-guardian", so
 * that `killall -9 fence` does not either. Main thread only. */
#ifndef FENCE_CLI_GUARDIAN_H
#define FENCE_CLI_GUARDIAN_H

#include <stdbool.h>
#include <sys/types.h>

struct guardian {
    pid_t pid;
    int fd; /* the writing end; closed by exec() */
};

/* Starts it; it guards nothing yet. False: see errno. */
bool guardian_start(struct guardian *guardian);

/* From now on it guards this process group; 0: none. Also from a child between fork() and exec().
 */
void guardian_guard(const struct guardian *guardian, pid_t group);

/* There is nothing to guard any more: it ends, without killing, while we go on. */
void guardian_dismiss(struct guardian *guardian);

/* Dismisses it, and waits for its end. */
void guardian_stop(struct guardian *guardian);

#endif
