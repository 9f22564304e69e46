/* clock.c - CLOCK_BOOTTIME for durations, the wall clock for people. */
#include "gateway/clock.h"

#include "gateway/digits.h"

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
    const struct {
        int number;
        size_t digits;
        char after;
    } parts[] = {
        {utc.tm_year + 1900, 4, '-'},    {utc.tm_mon + 1, 2, '-'}, {utc.tm_mday, 2, 'T'},
        {utc.tm_hour, 2, ':'},           {utc.tm_min, 2, ':'},     {utc.tm_sec, 2, '.'},
        {(int)(wall_ms % 1000), 3, 'Z'},
    };
    char *at = out;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        at = digits_write_padded(at, parts[i].number, parts[i].digits);
        *at++ = parts[i].after;
    }
    *at = '\0';
    return out;
}
