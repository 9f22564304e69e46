/* cli_guardian.c - the process that kills the job where `fence run` cannot (cli_guardian.h).
 *
 * A message is the number of a process group. The job announces itself, before it becomes what it
 * runs: so there is no moment at which it has begun and would be left alone. */
#include "client/cli_guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Leaves nothing open but the pipe: whoever waits for the end of our output is not to wait for the
 * guardian. */
static int keep_only(int fd)
{
    int kept = dup2(fd, 0);
    close_range(1, UINT_MAX, 0);
    return kept;
}

__attribute__((noreturn)) static void guard(int fd)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "lease-guardian");
    fd = keep_only(fd);
    pid_t group = 0, told;
    ssize_t got;
    while ((got = read(fd, &told, sizeof told)) != 0) {
        if (got == (ssize_t)sizeof told)
            group = told;
        else if (errno != EINTR)
            break;
    }
    if (group > 0)
        kill(-group, SIGKILL);
    _exit(0);
}

bool guardian_start(struct guardian *guardian)
{
    int ends[2];
    *guardian = (struct guardian){.fd = -1};
    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    guardian->pid = fork();
    if (guardian->pid == 0)
        guard(ends[0]);
    int error = errno;
    close(ends[0]);
    if (guardian->pid < 0) {
        guardian->pid = 0;
        close(ends[1]);
        errno = error;
        return false;
    }
    guardian->fd = ends[1];
    return true;
}

void guardian_guard(const struct guardian *guardian, pid_t group)
{
    ssize_t ignored = write(guardian->fd, &group, sizeof group); /* never full, never half */
    (void)ignored;
}

void guardian_dismiss(struct guardian *guardian)
{
    if (guardian->fd < 0)
        return;
    guardian_guard(guardian, 0);
    close(guardian->fd);
    guardian->fd = -1;
}

void guardian_stop(struct guardian *guardian)
{
    guardian_dismiss(guardian);
    while (guardian->pid > 0 && waitpid(guardian->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    guardian->pid = 0;
}
