/* cli.h - what the commands of `fence` share: settings, durations, what they say, how they exit.
 *
 * Data goes to stdout and nothing else does; everything for people goes to stderr, as "fence: ...".
 * Main thread only. */
#ifndef FENCE_CLI_H
#define FENCE_CLI_H

#include "client/fence.h"

#include <stdbool.h>
#include <stdint.h>

/* How `fence` exits, beside 0 and what a job exits with. 64-78 are those of sysexits(3), 126 and
 * 127 those of env(1). */
enum {
    CLI_FAILED = 1,       /* refused for another reason: the server's code is said */
    CLI_USAGE = 64,       /* a wrong option, name or duration; nothing was done */
    CLI_UNREACHABLE = 69, /* no gateway, no answer, or it cannot serve now */
    CLI_SYSTEM = 71,      /* this machine: memory, descriptors, processes */
    CLI_OUTPUT = 74,      /* stdout could not be written */
    CLI_NOT_HELD = 75,    /* the lease was not obtained (-E names another code) */
    CLI_LOST = 79,        /* the lease is over: lost while the job ran, or not there to renew */
    CLI_STALE = 80,       /* the write was refused: its token is not the current one */
    CLI_CANNOT_RUN = 126, /* the job was found, but cannot be executed */
    CLI_NO_COMMAND = 127, /* the job was not found */
    CLI_SIGNALLED = 128   /* + the signal's number */
};

/* One of the commands: argv[0] is its name. Returns the exit status. SIGPIPE is ignored, but for
 * cli_run() it is as `fence` found it. */
int cli_run(int argc, char **argv);
int cli_acquire(int argc, char **argv);
int cli_renew(int argc, char **argv);
int cli_release(int argc, char **argv);
int cli_put(int argc, char **argv);
int cli_get(int argc, char **argv);
int cli_rm(int argc, char **argv);
int cli_ls(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_history(int argc, char **argv);

/* ---- Settings -------------------------------------------------------------------------------- */

#define CLI_DEFAULT_URL "http://127.0.0.1:8080"

/* The longest wait or hold that can be asked for: a year. */
#define CLI_LONG_MS (INT64_C(365) * 24 * 3600 * 1000)

/* A variable of the environment; NULL: it is not set, or empty. */
const char *cli_variable(const char *name);

/* $FENCE_URL, or CLI_DEFAULT_URL. */
const char *cli_url(void);

/* $FENCE_WAIT_STEP as a duration in ms: how long one request for a lease waits at most; 0: not set.
 * False: it is set and wrong; that has been said. */
bool cli_wait_step(int64_t *wait_step_ms);

/* A client of cli_url(); NULL: it cannot be, that has been said, and *exit_status is set. */
struct fence_client *cli_open(int *exit_status);

/* "1500ms", "30s", "5m", "2h": a whole number and a unit, 0 ... `most_ms`. False: it is something
 * else, and `ms` is left alone. */
bool cli_read_duration(const char *text, int64_t most_ms, int64_t *ms);

/* A decimal number without sign, `least` ... `most`. False: it is something else. */
bool cli_read_number(const char *text, int64_t least, int64_t most, int64_t *number);

/* ---- Talk ------------------------------------------------------------------------------------ */

/* One line to stderr: "fence: " and what is said, with what a terminal should not see escaped.
 * Never waits: where a pipe is full, the line is lost. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says what is wrong with the call, and where to read on; returns CLI_USAGE. `command` NULL: it is
 * wrong with all of them. */
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says what has become of a request ("acquire invoice:1234: somebody else holds it: ..."), and
 * returns the exit status that belongs to it: CLI_USAGE for FENCE_INVALID and for what the server
 * calls a bad request, CLI_UNREACHABLE for _BUSY, _UNREACHABLE, _NO_ANSWER and _BAD_ANSWER,
 * CLI_NOT_HELD for _HELD and _TOO_SHORT, CLI_LOST for an ended lease, CLI_STALE for _STALE,
 * CLI_SYSTEM for _SYSTEM, else CLI_FAILED. */
int cli_failed(const char *what, enum fence_status status, const struct fence_error *error);

/* Flushes stdout. Returns `exit_status`, or CLI_OUTPUT, said, where something could not be
 * written. */
int cli_finish(int exit_status);

#endif
