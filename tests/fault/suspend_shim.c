/* suspend_shim.c - a machine that was suspended, as a program sees it (LD_PRELOAD): CLOCK_MONOTONIC
 * stands still, CLOCK_BOOTTIME goes on.
 *
 * It stands still from the start of the process on, for as long as the file that SHIM_SUSPEND names
 * exists. The kernel's own timeouts (poll, timerfd) are not touched: on a suspended machine those
 * of the monotonic clock would come late, which is the reason not to rely on them. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec stopped_at[CLOCK_MONOTONIC_COARSE + 1];

static int is_monotonic(clockid_t clock)
{
    return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW ||
           clock == CLOCK_MONOTONIC_COARSE;
}

__attribute__((constructor)) static void start(void)
{
    for (clockid_t clock = 0; clock <= CLOCK_MONOTONIC_COARSE; clock++)
        syscall(SYS_clock_gettime, clock, &stopped_at[clock]);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    const char *path = getenv("SHIM_SUSPEND");
    if (is_monotonic(clock) && path && access(path, F_OK) == 0) {
        *time = stopped_at[clock];
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, clock, time);
}
