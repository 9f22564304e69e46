/* clock.h - the two clocks of the gateway.
 *
 * How long something takes is measured on CLOCK_BOOTTIME: it never jumps and goes on while the
 * machine is suspended, as a lease does. The wall clock is for people: log lines, "at" columns,
 * RFC 3339 times in answers. No decision of the fence depends on either. Any thread. */
#ifndef FG_CLOCK_H
#define FG_CLOCK_H

#include <stdint.h>

/* Room for an RFC 3339 time with milliseconds and its NUL: "2026-11-29T12:00:00.000Z". */
enum { CLOCK_RFC3339_BYTES = 32 };

/* Milliseconds of CLOCK_BOOTTIME. */
int64_t clock_boot_ms(void);

/* Milliseconds since 1970 by the wall clock. */
int64_t clock_wall_ms(void);

/* Writes `wall_ms` (milliseconds since 1970) as RFC 3339 in UTC; returns `out`. */
const char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_BYTES]);

#endif
