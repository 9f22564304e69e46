/* guardian.c - the process that kills the job where `fence run` cannot (guardian.h).
 *
 * The job announces itself, before it becomes what it runs: so there is no moment at which it has
 * begun and would be left alone. The deadline is told whenever a renewal has moved it. One that has
 * been told too late is too early, never too late.
 *
 * From fork() on the guardian calls only what is safe in a signal handler: a replacement is forked
 * while there are threads. */
#include "client/cli/guardian.h"

#include "client/boot_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "lease-guardian" /* at most 15 characters */

struct orders {
    pid_t group; /* 0: nobody */
    int64_t deadline_ms;
};

/* ---- The guardian --------------------------------------------------------------------------- */

/* Whoever looks for us by our command line is not to find it: what the arguments lie in is ours,
 * and /proc/self/cmdline shows how much that is. */
static void take_name(void)
{
    char page[512];
    size_t bytes = 0;
    ssize_t got;
    prctl(PR_SET_NAME, NAME);
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    while ((got = read(fd, page, sizeof page)) > 0)
        bytes += (size_t)got;
    close(fd);
    memset(program_invocation_name, 0, bytes);
    if (bytes > strlen(NAME))
        stpcpy(program_invocation_name, NAME);
}

/* Leaves nothing open but the pipe: whoever waits for the end of our output is not to wait for the
 * guardian. */
static int keep_only(int fd)
{
    int kept = dup2(fd, 0);
    close_range(1, UINT_MAX, 0);
    return kept;
}

/* Until there is something to read, or the deadline of whom we guard has passed. */
static void await(int fd, int timer, const struct orders *orders)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = timer, .events = POLLIN}};
    boot_timer_set(timer, orders->deadline_ms);
    poll(fds, orders->group > 0 ? 2 : 1, -1);
}

static void kill_group(struct orders *orders)
{
    if (orders->group > 0)
        kill(-orders->group, SIGKILL);
    orders->group = 0;
}

__attribute__((noreturn)) static void guard(int fd)
{
    struct orders orders = {0}, told;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    take_name();
    fd = keep_only(fd);
    int timer = boot_timer_new();
    for (;;) {
        await(fd, timer, &orders);
        ssize_t got = read(fd, &told, sizeof told);
        if (got == (ssize_t)sizeof told)
            orders = told;
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
            break;
        if (orders.group > 0 && boot_ms() >= orders.deadline_ms)
            kill_group(&orders);
    }
    kill_group(&orders);
    _exit(0);
}

/* ---- We ------------------------------------------------------------------------------------- */

/* Never full, unless the guardian is stopped, and never half. */
static void send_orders(const struct guardian *guardian)
{
    struct orders orders = {.group = guardian->group, .deadline_ms = guardian->deadline_ms};
    ssize_t ignored = write(guardian->fd, &orders, sizeof orders);
    (void)ignored;
}

bool guardian_start(struct guardian *guardian)
{
    int ends[2];
    *guardian = (struct guardian){.fd = -1};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
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

void guardian_guard(struct guardian *guardian, pid_t group)
{
    guardian->group = group;
    send_orders(guardian);
}

void guardian_tell_deadline(struct guardian *guardian, int64_t deadline_ms)
{
    if (deadline_ms == guardian->deadline_ms)
        return;
    guardian->deadline_ms = deadline_ms;
    send_orders(guardian);
}

bool guardian_replace(struct guardian *guardian)
{
    struct guardian ended = *guardian;
    close(ended.fd);
    waitpid(ended.pid, NULL, WNOHANG);
    if (!guardian_start(guardian))
        return false;
    guardian->deadline_ms = ended.deadline_ms;
    guardian_guard(guardian, ended.group);
    return true;
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
