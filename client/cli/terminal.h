/* terminal.h - the terminal that `fence run` was started on, and its job.
 *
 * The job has a process group of its own, so that all of it can be killed. On a terminal that makes
 * it a background job: it may write, but is stopped when it reads. So it is given the terminal, but
 * not before it asks for it by being stopped. Until then our own group keeps it: a Ctrl-C reaches
 * us (we forward it) and the shell script that runs us, and the `less` behind us can read its keys.
 *
 * Main thread only; SIGTTOU must be blocked. */
#ifndef FENCE_CLI_TERMINAL_H
#define FENCE_CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

struct terminal {
    int fd;               /* of /dev/tty; -1: it has not been asked for, or there is none */
    bool given;           /* the job's group is, or was, in the foreground */
    struct termios modes; /* as they were before */
};

enum { TERMINAL_NONE = -1 };

/* Makes the group the one in the foreground. False: that is not ours to give. */
bool terminal_give(struct terminal *terminal, pid_t group);

/* Takes back what was given. The modes too, where the job was killed: it could not see to that. */
void terminal_take_back(struct terminal *terminal, bool killed);

#endif
