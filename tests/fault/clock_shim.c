/* clock_shim.c - a wall clock that a test can move (LD_PRELOAD).
 *
 * SHIM_CLOCK names a file that the test maps too: one int64, the microseconds that the wall clock
 * is off. The monotonic clocks are left alone. (libfaketime would do, but hangs in a redis-server
 * whose jemalloc asks for the time before libfaketime is ready.) */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t no_offset;
static const volatile int64_t *offset_us = &no_offset;

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("SHIM_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        abort();
    offset_us = map;
    close(fd);
}

/* By the system call: the C library's function may need what is not there yet. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (syscall(SYS_clock_gettime, clock, time) != 0)
        return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        int64_t ns = (int64_t)time->tv_sec * 1000000000 + time->tv_nsec + *offset_us * 1000;
        time->tv_sec = (time_t)(ns / 1000000000);
        time->tv_nsec = (long)(ns % 1000000000);
    }
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
