/* signals.c - the signals of `fence run` (signals.h). A blocked signal is kept even where
 * it is ignored, so those are left out of the mask. */
#include "client/cli/signals.h"

#include <stddef.h>
#include <unistd.h>

static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

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

/* Can it be forwarded? Not the two that the C library keeps for itself, either. (A fault of our own
 * ends us, blocked or not; the same signal from somebody else is for the job.) */
static bool is_ours(int number)
{
    struct sigaction action;
    return number != SIGKILL && number != SIGSTOP && sigaction(number, NULL, &action) == 0 &&
           action.sa_handler != SIG_IGN;
}

bool signals_open(struct signals *signals)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
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
    sigaction(SIGCHLD, &signals->child_before, NULL);
    sigprocmask(SIG_SETMASK, &signals->mask_before, NULL);
}
