/* process.h - programs that a test starts, watches and ends.
 *
 * stdout and stderr go to files, so that no pipe can fill up. A program is killed when its test
 * ends, and also when the test program itself dies (PR_SET_PDEATHSIG). Main thread only. */
#ifndef TESTS_PROCESS_H
#define TESTS_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

struct process;

/* A NULL-terminated list of strings: LIST("--listen", "127.0.0.1:0"). */
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Starts `argv` (argv[0] is looked up in PATH) with the variables in `env` ("NAME=value", or "NAME"
 * to remove one; NULL: none) added to the environment. Output goes to the files <log>.out and <log>
 * (stderr), appended. Fails the test where the program can't be run. */
struct process *process_start(const char *const *argv, const char *const *env, const char *log);

/* The process id. */
pid_t process_pid(const struct process *process);

/* Whether it runs still. */
bool process_running(struct process *process);

/* Waits until stderr, as written since the start, holds a whole line with `needle` in it; returns
 * that line. NULL after `timeout_ms`, or when the process ended without it. */
const char *process_await_line(struct process *process, const char *needle, int timeout_ms);

/* Sends a signal. One that has ended already is left in peace. */
void process_signal(struct process *process, int signal);

/* Waits for the end: the exit status 0 ... 255, or 128 + the signal that killed it. -1: it runs
 * still after `timeout_ms`. May be called again. */
int process_wait(struct process *process, int timeout_ms);

/* What it has written to stderr or to stdout since the start. Owned by the test. */
const char *process_errors(const struct process *process);
const char *process_output(const struct process *process);

/* A wait that is long enough on a slow machine: `ms`, times what `tests/run --slower` says. */
int slow_ms(int ms);

/* Sleeps for `ms` milliseconds. */
void sleep_ms(int ms);

/* Milliseconds on a clock that never jumps. */
long long now_ms(void);

/* Waits until the condition holds; false after `timeout_ms`. */
#define EVENTUALLY(condition, timeout_ms)                         \
    __extension__({                                               \
        long long give_up_ms_ = now_ms() + slow_ms(timeout_ms);   \
        bool holds_;                                              \
        while (!(holds_ = (condition)) && now_ms() < give_up_ms_) \
            sleep_ms(10);                                         \
        holds_;                                                   \
    })

#endif
