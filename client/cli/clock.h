/* clock.h - how long to poll(2) until a time of the clock that leases go by. Any thread. */
#ifndef FENCE_CLI_CLOCK_H
#define FENCE_CLI_CLOCK_H

#include "client/boot_clock.h"

/* In ms, for something that is to be looked at at `until_ms`: 0 where that is past. */
static inline int cli_poll_ms(int64_t until_ms)
{
    int64_t left_ms = until_ms - boot_ms();
    return left_ms <= 0 ? 0 : left_ms < INT32_MAX ? (int)left_ms : INT32_MAX;
}

#endif
