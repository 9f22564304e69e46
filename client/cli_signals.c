/* cli_signals.c - the signals of `fence run` (cli_signals.h). A blocked signal is kept even where
 * it is ignored, so those are left out of the mask. */
#include "client/cli_signals.h"

#include <stddef.h>
#include <unistd.h>

static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

/* What the kernel raises where a program goes wrong: blocked, it would end us all the same. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};

static bool is_among(const int *numbers, size_t count, int number)
{
    for (size_t i = 0; i < count; i++) {
        if (numbers[i] == number)
            return true;
    }
    return false;
}

static bool is_end(int number)
{
    return is_among(ends, sizeof ends / sizeof ends[0], number);
}

/* Can it be forwarded? Not the two that the C library keeps for itself, either. */
static bool is_ours(int number)
{
    struct sigaction action;
    return number != SIGKILL && number != SIGSTOP && number != SIGPIPE &&
           !is_among(faults, sizeof faults / sizeof faults[0], number) &&
           sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN;
}

bool signals_open(struct signals *signals)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, standard = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &ignore, &signals->pipe_before);
    sigaction(SIGCHLD, &standard, &signals->child_before);

    sigset_t all;
    sigemptyset(&all);
    for (int number = 1; number < NSIG; number++) {
        if (is_ours(number))
            sigaddset(&all, number);
    }
    sigprocmask(SIG_BLOCK, &all, &signals->mask_before);
    signals->fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd >= 0;
}

void signals_close(struct signals *signals)
{
    if (signals->fd >= 0)
        close(signals->fd);
}

bool signals_next(struct signals *signals, struct signalfd_siginfo *info)
{
    if (read(signals->fd, info, sizeof *info) != (ssize_t)sizeof *info)
        return false;
    if (is_end((int)info->ssi_signo) && signals->ends++ == 0)
        signals->first_end = (int)info->ssi_signo;
    return true;
}

void signals_drain(struct signals *signals)
{
    struct signalfd_siginfo info;
    while (signals_next(signals, &info))
        ;
}

void signals_restore(const struct signals *signals)
{
    sigaction(SIGPIPE, &signals->pipe_before, NULL);
    sigaction(SIGCHLD, &signals->child_before, NULL);
    sigprocmask(SIG_SETMASK, &signals->mask_before, NULL);
}
