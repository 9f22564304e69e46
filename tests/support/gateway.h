/* gateway.h - a real gateway for one test, on a free port, with a data directory of its own.
 *
 * The program is FENCEGATE_BIN (build/fencegate), run under FENCEGATE_WRAPPER where that is set
 * ("valgrind -q ..."). When the test ends, a gateway that still runs gets SIGTERM and must exit
 * with 0: so a report of a sanitizer or of valgrind fails the test that caused it. */
#ifndef TESTS_GATEWAY_H
#define TESTS_GATEWAY_H

#include "tests/support/http.h"
#include "tests/support/process.h"

#include <stdbool.h>

struct gateway {
    struct process *process;
    int port;
    const char *url;      /* "http://127.0.0.1:port" */
    const char *data_dir; /* created by the gateway */
    const char *log;      /* the file that gets its stderr */
    struct http *http;    /* a connection to it, for the calls of api.h */
    const char *redis;
    const char *const *args;
    const char *const *env;
    bool killed; /* by us: its end says nothing */
};

/* Starts a gateway and waits until it logs that it listens. `redis` is the value of --redis; NULL:
 * it runs a private redis-server. `args` are more arguments (LIST(...)); NULL: none. Fails the
 * test, with the log, where it isn't ready within 20 s. */
struct gateway *gateway_start(const char *redis, const char *const *args);

/* The same with environment variables ("NAME=value"), and in a data directory that may exist
 * already; NULL for both is gateway_start(). */
struct gateway *gateway_start_in(const char *data_dir, const char *redis, const char *const *args,
                                 const char *const *env);

/* SIGTERM; fails the test where it doesn't exit with 0 within 20 s. */
void gateway_stop(struct gateway *gateway);

/* SIGKILL. */
void gateway_kill(struct gateway *gateway);

/* Starts a stopped or killed one again: same data, same options, another port. */
void gateway_restart(struct gateway *gateway);

/* The same with other arguments from now on. */
void gateway_restart_with(struct gateway *gateway, const char *redis, const char *const *args);

/* What it has logged since its last start. Owned by the test. */
const char *gateway_log(const struct gateway *gateway);

/* Runs `fencegate args...` where it is expected to end by itself. Returns the exit status; fails
 * the test where it runs longer than 20 s. *process (NULL: not wanted) gives access to its output.
 */
int gateway_run(const char *const *args, const char *const *env, struct process **process);

#endif
