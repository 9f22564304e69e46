/* faults.h - failpoints and planted bugs, for tests; nothing of it is in an ordinary build.
 *
 * A failpoint is a named place where the fault build (make build-faults, -DFG_FAILPOINTS) can be
 * told to misbehave; a planted bug is a switch that takes one safeguard away, so that the tests can
 * show that they would notice (tests/fault/README.md has both lists).
 *
 *     FG_FAILPOINTS="after_redis_grant=crash"           the first time
 *     FG_FAILPOINTS="before_commit=sleep(200)@3 ..."    the third time only
 *     FG_FAILPOINTS="in_batch=error@*"                  every time
 *     FG_BUGS="check_ge ..."
 *     FG_SCRIPTS=dir                                    Lua scripts read from there, not built in
 *
 * crash: SIGKILL to ourselves. error: the place behaves as if what comes next had failed.
 * sleep(ms). pause: SIGSTOP to ourselves, until somebody continues us. An unknown name in either
 * variable ends the program with 64, so that no test runs without its fault. Any thread. */
#ifndef FG_FAULTS_H
#define FG_FAULTS_H

#include <stdbool.h>

#ifdef FG_FAILPOINTS

/* Takes the action that is due at this place; true: `error`. */
bool fault_point(const char *name);

/* Whether this bug is switched on. */
bool fault_planted(const char *name);

/* The text of lua/<name>.lua from FG_SCRIPTS; `text` where the variable is not set. Never freed. */
const char *fault_script(const char *name, const char *text);

#define FAULT(name)              fault_point(#name)
#define PLANTED(name)            fault_planted(#name)
#define FAULT_SCRIPT(name, text) fault_script(name, text)

#else

#define FAULT(name)              false
#define PLANTED(name)            false
#define FAULT_SCRIPT(name, text) (text)

#endif

#endif
