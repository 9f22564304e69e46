/* errand.c - work on a thread of its own (errand.h). */
#include "client/cli/errand.h"

#include "client/cli/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { ENDS_AT_ONCE = 2 };

struct errand {
    void (*work)(void *arg);
    void *arg;
    int done_fd;
};

static void *run(void *arg)
{
    struct errand *errand = arg;
    errand->work(errand->arg);
    eventfd_write(errand->done_fd, 1);
    return NULL;
}

static enum errand_end await(const struct errand *errand, int64_t until_ms, int cancel_fd,
                             int64_t grace_ms, struct signals *signals)
{
    bool hurried = false;
    struct pollfd fds[] = {{.fd = errand->done_fd, .events = POLLIN},
                           {.fd = signals->fd, .events = POLLIN}};
    for (;;) {
        poll(fds, 2, cli_poll_ms(until_ms));
        if (fds[0].revents)
            return ERRAND_DONE;
        int before = signals->ends;
        signals_drain(signals);
        if (signals->ends > before && cancel_fd > 0)
            eventfd_write(cancel_fd, 1);
        if (signals->ends > before && signals->ends >= ENDS_AT_ONCE) {
            int64_t end_ms = boot_ms() + (hurried ? 0 : grace_ms);
            until_ms = end_ms < until_ms ? end_ms : until_ms;
            hurried = true;
        }
        if (boot_ms() >= until_ms)
            return hurried ? ERRAND_CUT : ERRAND_LATE;
    }
}

enum errand_end errand_run(void (*work)(void *arg), void *arg, int64_t until_ms, int cancel_fd,
                           int64_t grace_ms, struct signals *signals)
{
    struct errand *errand = malloc(sizeof *errand);
    pthread_t thread;
    if (!errand)
        return ERRAND_FAILED;
    *errand = (struct errand){.work = work, .arg = arg, .done_fd = eventfd(0, EFD_CLOEXEC)};
    enum errand_end end = ERRAND_FAILED;
    if (errand->done_fd >= 0 && pthread_create(&thread, NULL, run, errand) == 0) {
        end = await(errand, until_ms, cancel_fd, grace_ms, signals);
        if (end != ERRAND_DONE)
            return end; /* the thread has `errand` */
        pthread_join(thread, NULL);
    }
    if (errand->done_fd >= 0)
        close(errand->done_fd);
    free(errand);
    return end;
}
