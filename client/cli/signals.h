/* signals.h - the signals of `fence run`: read, not handled.
 *
 * All that can be forwarded to a job are blocked from the start on, before there is a thread or a
 * child, and are read from a descriptor. So none is lost, none ends us between two steps, and there
 * is one place where each is looked at. Left alone are SIGKILL and SIGSTOP, and what was ignored
 * when we were started: nohup(1) means us and the job.
 *
 * SIGCHLD is not ignored, whatever it was; the job finds it as we did. */
#ifndef FENCE_CLI_SIGNALS_H
#define FENCE_CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>

struct signals {
    int fd;        /* readable: one has come (not blocking) */
    int ends;      /* how many of those that were read asked us to end: */
    int first_end; /* SIGTERM, SIGINT, SIGHUP, SIGQUIT. The first of them; 0: none has come */
    sigset_t mask_before;
    struct sigaction child_before;
};

/* Begins. Main thread, before any other thread exists. False: no descriptors are left. */
bool signals_open(struct signals *signals);

void signals_close(struct signals *signals);

/* Reads the next one that has come, and counts it; false: there is none. */
bool signals_next(struct signals *signals, struct signalfd_siginfo *info);

/* Reads all that have come, and counts them: there is no job that they could be meant for. */
void signals_drain(struct signals *signals);

/* Makes everything as it was when we were started. For a child between fork() and exec(). */
void signals_restore(const struct signals *signals);

#endif
