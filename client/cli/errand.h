/* errand.h - a request to the gateway that `fence run` does not wait for longer than it wants
 * to, whatever the gateway and the network do. Main thread only. */
#ifndef FENCE_CLI_ERRAND_H
#define FENCE_CLI_ERRAND_H

#include "client/cli/signals.h"

#include <stdint.h>

enum errand_end {
    ERRAND_DONE,
    ERRAND_FAILED, /* it was not begun: no threads or descriptors are left */
    /* It is still under way, and uses what `arg` points to: that must stay as it is, and we can
     * leave only by _exit(). */
    ERRAND_LATE, /* it was to be done by now */
    ERRAND_CUT,  /* we have been asked twice to end */
};

/* Calls work(arg) on a thread of its own, and waits for its end, until `until_ms` (CLOCK_BOOTTIME)
 * at most. A signal that asks us to end is counted, and makes the eventfd `cancel_fd` (0: none)
 * readable. If it is the second in all, or a later one, the work has only `grace_ms` left;
 * the next one after that ends the waiting. */
enum errand_end errand_run(void (*work)(void *arg), void *arg, int64_t until_ms, int cancel_fd,
                           int64_t grace_ms, struct signals *signals);

#endif
