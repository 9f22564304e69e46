/* guardian.h - a second process, for when `fence run` itself can do nothing any more.
 *
 * It holds the reading end of a pipe whose other end we have, and kills the job's group
 *
 *   - when we end, however that comes: the pipe ends;
 *   - at the deadline of the lease, as far as it was told: we may be stopped (SIGSTOP, a debugger).
 *
 * It has a session and a name of its own and blocks all signals, so that neither a terminal, nor a
 * signal to our group, nor `pkill -f fence` reaches it. Should it end all the same, we start
 * another one. Main thread only. */
#ifndef FENCE_CLI_GUARDIAN_H
#define FENCE_CLI_GUARDIAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct guardian {
    pid_t pid;
    int fd; /* the writing end; closed by exec(). POLLERR: the guardian has ended */
    pid_t group;
    int64_t deadline_ms; /* CLOCK_BOOTTIME */
};

/* Starts it; it guards nothing yet. False: see errno. */
bool guardian_start(struct guardian *guardian);

/* From now on it guards this process group, until the deadline that was told last; 0: none. Also
 * from a child between fork() and exec(). */
void guardian_guard(struct guardian *guardian, pid_t group);

/* The deadline has moved. */
void guardian_tell_deadline(struct guardian *guardian, int64_t deadline_ms);

/* It has ended: another one takes its place. False: there can be none; the job is not guarded. */
bool guardian_replace(struct guardian *guardian);

/* There is nothing to guard any more: it ends, without killing, while we go on. */
void guardian_dismiss(struct guardian *guardian);

/* Dismisses it, and waits for its end. */
void guardian_stop(struct guardian *guardian);

#endif
