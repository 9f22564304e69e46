/* run_options.h - the command line of `fence run`. */
#ifndef FENCE_CLI_RUN_OPTIONS_H
#define FENCE_CLI_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { RUN_OWNER_BYTES = 128 };

struct run_options {
    int64_t ttl_ms;
    int64_t wait_ms;                  /* or FENCE_WAIT_FOREVER */
    int64_t limit;                    /* 0: as it is set */
    int64_t not_held;                 /* the exit status where the lease is not obtained */
    int64_t kill_after_ms;            /* as it applies: cut to what the TTL allows */
    int64_t min_hold_ms, max_hold_ms; /* 0: no bound */
    bool no_wait;
    const char *owner;
    const char *resource;
    char **command; /* up to a NULL */
    char default_owner[RUN_OWNER_BYTES + 1];
};

/* Reads it. The texts are borrowed from argv, or its own: it must not be moved. False: there is
 * nothing to run, *exit_status is set, and what is to be said has been said. */
bool run_options_read(struct run_options *options, int argc, char **argv, int *exit_status);

#endif
