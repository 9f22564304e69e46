/* config.h - the options of the fencegate command: one table, read from arguments and environment.
 *
 * Precedence: argument, then FENCEGATE_* variable, then default. The table (config.c) is the only
 * place that knows an option's name, unit, range, default and help text; fencegate.8 and --help
 * list them for people. Main thread, at start. */
#ifndef FG_CONFIG_H
#define FG_CONFIG_H

#include "gateway/log.h"

#include <stdbool.h>
#include <stdint.h>

struct config {
    const char *listen;               /* "host:port", "[v6]:port"; port 0 takes a free one */
    const char *data_dir;             /* created where it is missing */
    const char *redis;                /* redis:// or unix:// URL; NULL: a private redis-server */
    bool adopt_redis;                 /* take a Redis database over from another store */
    int64_t redis_timeout_ms;         /* 10 ... 60000; for connecting and for each command */
    int64_t max_body_bytes;           /* 1024 ... 1 GiB */
    int64_t max_connections;          /* 16 ... 1000000 */
    int64_t max_waiters;              /* 1 ... 1000000; in effect at most 3/4 of max_connections */
    int64_t max_waiters_per_resource; /* 1 ... 1000000 */
    int64_t request_timeout_ms;       /* 100 ... 600000; headers seen until body complete */
    bool require_lease_id;            /* writes need X-Lease-Id */
    int64_t ledger_max_age_ms;        /* 1 s ... 10 years */
    int64_t ledger_max_rows;          /* 1000 ... 10^12 */
    int64_t drain_timeout_ms;         /* 0 ... 600000 */
    bool insecure;                    /* allow an address that is not loopback, without API keys */
    enum log_level log_level;
    enum log_format log_format;
};

enum config_action { CONFIG_RUN, CONFIG_EXIT };

/* Reads argv and the environment into `config`. Strings are borrowed from either: they live as long
 * as the process. CONFIG_RUN: go on; the log is configured, and a FENCEGATE_* variable that is not
 * ours got a warning. CONFIG_EXIT: leave with *exit_code: 0 after --help or --version (printed to
 * stdout; 74 where it could not be), 64 after one line to stderr that names the bad option or
 * value. No line ever holds a password. Refused here too: a --listen that is not loopback without
 * --insecure. Checked is the form of `listen` and `redis`, not whether anything is there. */
enum config_action config_read(struct config *config, int argc, char **argv, int *exit_code);

#endif
