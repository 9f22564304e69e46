/* gateway.c - starts and ends the program under test. */
#include "tests/support/gateway.h"

#include "tests/support/cleanup.h"
#include "tests/support/tempdir.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_ARGS = 96, START_MS = 20000, STOP_MS = 20000 };

/* The command line so far: [wrapper...] program */
static size_t begin(const char **argv)
{
    size_t count = 0;
    const char *wrapper = getenv("FENCEGATE_WRAPPER");
    char *words = test_printf("%s", wrapper ? wrapper : "");
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        argv[count++] = word;
    const char *program = getenv("FENCEGATE_BIN");
    argv[count++] = program ? program : "build/fencegate";
    return count;
}

static void start(struct gateway *gateway)
{
    const char *argv[MAX_ARGS] = {NULL};
    size_t count = begin(argv);
    argv[count++] = "--listen";
    argv[count++] = "127.0.0.1:0";
    argv[count++] = "--data-dir";
    argv[count++] = gateway->data_dir;
    if (gateway->redis) {
        argv[count++] = "--redis";
        argv[count++] = gateway->redis;
    }
    for (const char *const *arg = gateway->args; arg && *arg && count < MAX_ARGS - 1; arg++)
        argv[count++] = *arg;

    gateway->killed = false;
    gateway->process = process_start(argv, gateway->env, gateway->log);
    const char *line = process_await_line(gateway->process, "listening", slow_ms(START_MS));
    const char *url = line ? strstr(line, "http://") : NULL;
    if (!url || sscanf(url, "http://%*[^:]:%d", &gateway->port) != 1)
        fail_msg("the gateway does not start:\n%s", process_errors(gateway->process));
    gateway->url = test_printf("http://127.0.0.1:%d", gateway->port);
    gateway->http = http_new(gateway->port);
}

/* The environment of the gateway: ours without its own variables, so that nothing but the test sets
 * an option, and then `env`. */
static const char *const *clean(const char *const *env)
{
    const char **list = test_alloc(MAX_ARGS * sizeof *list);
    size_t count = 0;
    for (char **entry = environ; *entry && count < MAX_ARGS / 2; entry++)
        if (strncmp(*entry, "FENCEGATE_", strlen("FENCEGATE_")) == 0)
            list[count++] = test_printf("%.*s", (int)strcspn(*entry, "="), *entry);
    for (; env && *env && count < MAX_ARGS - 1; env++)
        list[count++] = test_printf("%s", *env);
    return list;
}

/* The test is over: the gateway has to end well, where the test hasn't ended it. */
static void finish(void *arg)
{
    struct gateway *gateway = arg;
    if (!gateway->process || gateway->killed)
        return;
    process_signal(gateway->process, SIGTERM);
    int status = process_wait(gateway->process, slow_ms(STOP_MS));
    if (status != 0)
        cleanup_fail("the gateway ended with status %d:\n%s", status,
                     process_errors(gateway->process));
}

/* Copies a list, whose array may live in a statement only. */
static const char *const *copy(const char *const *list)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    const char **strings = test_alloc((count + 1) * sizeof *strings);
    for (size_t i = 0; i < count; i++)
        strings[i] = test_printf("%s", list[i]);
    return strings;
}

struct gateway *gateway_start_in(const char *data_dir, const char *redis, const char *const *args,
                                 const char *const *env)
{
    struct gateway *gateway = test_alloc(sizeof *gateway);
    const char *folder = tempdir_new();
    gateway->data_dir = data_dir ? data_dir : test_printf("%s/data", folder);
    gateway->log = test_printf("%s/gateway.log", folder);
    gateway->redis = redis;
    gateway->args = copy(args);
    gateway->env = clean(env);
    start(gateway);
    return cleanup_add(finish, gateway);
}

struct gateway *gateway_start(const char *redis, const char *const *args)
{
    return gateway_start_in(NULL, redis, args, NULL);
}

void gateway_stop(struct gateway *gateway)
{
    process_signal(gateway->process, SIGTERM);
    int status = process_wait(gateway->process, slow_ms(STOP_MS));
    gateway->killed = true;
    http_close(gateway->http);
    if (status != 0)
        fail_msg("the gateway ended with status %d:\n%s", status, gateway_log(gateway));
}

void gateway_kill(struct gateway *gateway)
{
    gateway->killed = true;
    process_signal(gateway->process, SIGKILL);
    assert_int_equal(process_wait(gateway->process, slow_ms(STOP_MS)), 128 + SIGKILL);
    http_close(gateway->http);
}

void gateway_restart_with(struct gateway *gateway, const char *redis, const char *const *args)
{
    gateway->redis = redis;
    gateway->args = copy(args);
    gateway_restart(gateway);
}

void gateway_restart(struct gateway *gateway)
{
    start(gateway);
    /* What the start has added must outlive finish(): have that run first again. */
    cleanup_forget(gateway);
    cleanup_add(finish, gateway);
}

const char *gateway_log(const struct gateway *gateway)
{
    return process_errors(gateway->process);
}

int gateway_run(const char *const *args, const char *const *env, struct process **process)
{
    const char *argv[MAX_ARGS] = {NULL};
    size_t count = begin(argv);
    for (; args && *args && count < MAX_ARGS - 1; args++)
        argv[count++] = *args;
    struct process *running =
        process_start(argv, clean(env), test_printf("%s/gateway.log", tempdir_new()));
    int status = process_wait(running, slow_ms(STOP_MS));
    if (status < 0)
        fail_msg("the gateway does not end by itself:\n%s", process_errors(running));
    if (process)
        *process = running;
    return status;
}
