/* boot_clock.h - the clock of leases: CLOCK_BOOTTIME, which never jumps and goes on while the
 * machine is suspended. Any thread.
 *
 * By the system calls, not by the C library's functions: those are what a preloaded libfaketime
 * replaces, for tests of the program around us, and a deadline that a test moves would be late. */
#ifndef FENCE_BOOT_CLOCK_H
#define FENCE_BOOT_CLOCK_H

#include <stdint.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* Now, in ms. */
static inline int64_t boot_ms(void)
{
    struct timespec now = {0};
    syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A timer that becomes readable when that time comes; -1: there can be none. */
static inline int boot_timer_new(void)
{
    return timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
}

/* Sets it to that time, of the past as well. */
static inline void boot_timer_set(int timer, int64_t at_boot_ms)
{
    int64_t at_ms = at_boot_ms > 0 ? at_boot_ms : 1; /* 0 would disarm it */
    struct itimerspec when = {
        .it_value = {.tv_sec = at_ms / 1000, .tv_nsec = at_ms % 1000 * 1000000}};
    syscall(SYS_timerfd_settime, timer, TFD_TIMER_ABSTIME, &when, NULL);
}

#endif
