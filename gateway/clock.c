/* clock.c - CLOCK_BOOTTIME for durations, the wall clock for people. */
#include "gateway/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_ms(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t clock_boot_ms(void)
{
    return read_ms(CLOCK_BOOTTIME);
}

int64_t clock_wall_ms(void)
{
    return read_ms(CLOCK_REALTIME);
}

const char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_BYTES])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    char date[24];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out, CLOCK_RFC3339_BYTES, "%s.%03dZ", date, (int)(wall_ms % 1000));
    return out;
}
