/* test_redis_child.c - the private redis-server: its start, its deaths, and those of its gateway.
 */
#include "gateway/redis_child.h"

#include "tests/support/cleanup.h"
#include "tests/support/process.h"
#include "tests/support/tempdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

/* ---- Helpers ---- */

static void stop_child(void *child)
{
    redis_child_stop(child);
}

static struct redis_child *start(const char *dir)
{
    char why[256] = "";
    struct redis_child *child = redis_child_start(ev_default_loop(0), dir, why, sizeof why);
    if (!child)
        fail_msg("not started: %s", why);
    return cleanup_add(stop_child, child);
}

static void stop(struct redis_child *child)
{
    cleanup_forget(child);
    redis_child_stop(child);
}

/* The answer to one command as a string of the test; NULL where there is none. */
static const char *ask(const char *socket, const char *command)
{
    const char *answer = NULL;
    redisContext *context = redisConnectUnixWithTimeout(socket, (struct timeval){.tv_sec = 2});
    if (context && !context->err) {
        redisSetTimeout(context, (struct timeval){.tv_sec = 2});
        redisReply *reply = redisCommand(context, command);
        if (reply && reply->str)
            answer = test_printf("%s", reply->str);
        freeReplyObject(reply);
    }
    redisFree(context);
    return answer;
}

static bool says(const char *socket, const char *command, const char *answer)
{
    const char *said = ask(socket, command);
    return said && strcmp(said, answer) == 0;
}

/* Lets the loop see deaths and timers, then asks for a PONG. */
static bool is_up(const char *socket)
{
    ev_run(ev_default_loop(0), EVRUN_NOWAIT);
    return says(socket, "PING", "PONG");
}

static pid_t server_pid(const char *socket)
{
    const char *info = ask(socket, "INFO server");
    const char *line = info ? strstr(info, "process_id:") : NULL;
    assert_non_null(line);
    return (pid_t)strtol(line + strlen("process_id:"), NULL, 10);
}

static const char *socket_in(const char *dir)
{
    return test_printf("%s/redis.sock", dir);
}

/* Whether nothing holds the directory's lock any more. */
static bool is_unlocked(const char *dir)
{
    int fd = open(test_printf("%s/redis.lock", dir), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    bool taken = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return taken;
}

/* A process that starts a server in `dir` and then does nothing until it is killed. */
static pid_t fork_gateway(const char *dir)
{
    int ready[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    struct ev_loop *loop = ev_default_loop(0);
    pid_t gateway = fork();
    assert_true(gateway >= 0);
    if (gateway == 0) {
        char why[256] = "";
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ev_loop_fork(loop);
        if (!redis_child_start(loop, dir, why, sizeof why) || write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char byte = 0;
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return gateway;
}

static void kill_gateway(pid_t gateway)
{
    assert_int_equal(kill(gateway, SIGKILL), 0);
    assert_int_equal(waitpid(gateway, NULL, 0), gateway);
}

/* ---- Tests ---- */

static void lives_from_start_to_stop(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    struct redis_child *child = start(dir);
    const char *socket = test_printf("%s", redis_child_socket(child));
    assert_string_equal(socket, socket_in(dir));
    assert_true(EVENTUALLY(is_up(socket), PATIENCE_MS));
    assert_false(is_unlocked(dir));
    pid_t pid = server_pid(socket);
    assert_int_equal(getsid(pid), pid);
    struct stat file;
    assert_int_equal(stat(socket, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0700);

    stop(child);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    assert_null(ask(socket, "PING"));
    assert_true(is_unlocked(dir));
}

static void a_long_path_works(void **state)
{
    (void)state;
    char name[151];
    memset(name, 'd', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const char *dir = test_printf("%s/%s", tempdir_new(), name);
    assert_int_equal(mkdir(dir, 0700), 0);
    struct redis_child *child = start(dir);
    const char *socket = redis_child_socket(child);
    assert_in_range(strlen(socket), 1, 107);
    assert_true(EVENTUALLY(is_up(socket), PATIENCE_MS));
    assert_int_equal(kill(server_pid(socket), SIGKILL), 0);
    assert_true(EVENTUALLY(!is_up(socket), PATIENCE_MS));
    assert_true(EVENTUALLY(is_up(socket), PATIENCE_MS));
    stop(child);
    assert_true(is_unlocked(dir));
}

static void comes_back_after_its_death_with_its_data(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    struct redis_child *child = start(dir);
    const char *socket = redis_child_socket(child);
    for (int round = 0; round < 3; round++) {
        assert_true(EVENTUALLY(is_up(socket), PATIENCE_MS));
        if (round > 0)
            assert_true(says(socket, "GET counter", test_printf("%d", round - 1)));
        assert_true(says(socket, test_printf("SET counter %d", round), "OK"));
        pid_t pid = server_pid(socket);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_true(EVENTUALLY(is_up(socket) && server_pid(socket) != pid, PATIENCE_MS));
    }
}

static void is_stopped_while_it_waits_to_restart(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    struct redis_child *child = start(dir);
    assert_true(EVENTUALLY(is_up(redis_child_socket(child)), PATIENCE_MS));
    assert_int_equal(kill(server_pid(redis_child_socket(child)), SIGKILL), 0);
    assert_true(EVENTUALLY(!is_up(redis_child_socket(child)), PATIENCE_MS));
    stop(child);
    assert_true(is_unlocked(dir));
    ev_run(ev_default_loop(0), EVRUN_NOWAIT);
    assert_null(ask(socket_in(dir), "PING"));
}

static void a_failing_start_is_tried_again(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    const char *obstacle = test_printf("%s/appendonlydir", dir);
    close(open(obstacle, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    struct redis_child *child = start(dir);
    for (int i = 0; i < 50; i++) {
        assert_false(is_up(redis_child_socket(child)));
        sleep_ms(10);
    }
    assert_int_equal(unlink(obstacle), 0);
    assert_true(EVENTUALLY(is_up(redis_child_socket(child)), PATIENCE_MS));
}

static void a_stopped_server_still_ends(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    struct redis_child *child = start(dir);
    assert_true(EVENTUALLY(is_up(redis_child_socket(child)), PATIENCE_MS));
    assert_int_equal(kill(server_pid(redis_child_socket(child)), SIGSTOP), 0);
    stop(child);
    assert_true(is_unlocked(dir));
}

/* Replaces redis-server by a script for the rest of the test. */
static void put_in_path(const char *script)
{
    const char *dir = tempdir_new();
    const char *file = test_printf("%s/redis-server", dir);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_int_equal(write(fd, script, strlen(script)), strlen(script));
    close(fd);
    setenv("PATH", test_printf("%s:%s", dir, getenv("PATH")), 1);
}

static void one_that_does_not_end_is_killed(void **state)
{
    (void)state;
    put_in_path("#!/bin/sh\ntrap '' TERM\necho $$ >pid\nwhile :; do sleep 1; done\n");
    const char *dir = tempdir_new();
    struct redis_child *child = start(dir);
    struct stat file;
    const char *pid_file = test_printf("%s/pid", dir);
    assert_true(EVENTUALLY(stat(pid_file, &file) == 0 && file.st_size > 0, PATIENCE_MS));
    stop(child);
    assert_true(EVENTUALLY(is_unlocked(dir), PATIENCE_MS)); /* its `sleep` is killed, too */
}

static void a_missing_redis_server_is_named(void **state)
{
    (void)state;
    char why[256] = "";
    const char *dir = tempdir_new();
    setenv("PATH", dir, 1);
    assert_null(redis_child_start(ev_default_loop(0), dir, why, sizeof why));
    assert_string_equal(why, "redis-server is not installed; install it or name one with --redis");
    assert_true(is_unlocked(dir));
    close(open(test_printf("%s/redis-server", dir), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    assert_null(redis_child_start(ev_default_loop(0), dir, why, sizeof why));
    assert_string_equal(why, "cannot start redis-server: Permission denied");
}

static void a_missing_directory_is_named(void **state)
{
    (void)state;
    char why[256] = "";
    const char *dir = test_printf("%s/nowhere", tempdir_new());
    assert_null(redis_child_start(ev_default_loop(0), dir, why, sizeof why));
    assert_string_equal(why, test_printf("cannot open %s: No such file or directory", dir));
    redis_child_stop(NULL);
}

/* The text of a small file. */
static const char *slurp(const char *path)
{
    char *text = test_alloc(8192);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, text, 8191) >= 0);
    close(fd);
    return text;
}

/* A set of signals in /proc/<pid>/status, as bits. Signals 32 and 33 are the C library's own: no
 * program can reset them, and whoever started this test may ignore them. */
static unsigned long long signal_set(const char *status, const char *name)
{
    const char *line = strstr(status, name);
    assert_non_null(line);
    return strtoull(line + strlen(name), NULL, 16) & ~(3ULL << 31);
}

/* Of our descriptors only the lock goes with the server, and no ignored or blocked signal does. The
 * signals are read from outside: a shell blocks all of them for a moment whenever it forks. */
static void inherits_only_the_lock(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    int leak = open("/dev/zero", O_RDONLY); /* on purpose without O_CLOEXEC */
    assert_true(leak > STDERR_FILENO);
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    put_in_path("#!/bin/sh\nls -l /proc/$$/fd >fds\necho $$ >pid\nexec sleep 60\n");
    struct redis_child *child = start(dir);
    signal(SIGXFSZ, before);
    close(leak);
    struct stat file;
    const char *pid_file = test_printf("%s/pid", dir);
    assert_true(EVENTUALLY(stat(pid_file, &file) == 0 && file.st_size > 0, PATIENCE_MS));
    long pid = strtol(slurp(pid_file), NULL, 10);
    const char *status = slurp(test_printf("/proc/%ld/status", pid));
    stop(child);
    assert_int_equal(signal_set(status, "SigIgn:"), 0);
    assert_int_equal(signal_set(status, "SigBlk:"), 0);
    const char *fds = slurp(test_printf("%s/fds", dir));
    assert_null(strstr(fds, "/dev/zero"));
    assert_non_null(strstr(fds, "/redis.lock"));
    assert_non_null(strstr(fds, "/redis.log"));
    assert_non_null(strstr(fds, "/dev/null"));
}

static void dies_with_its_gateway(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    const char *socket = socket_in(dir);
    pid_t gateway = fork_gateway(dir);
    assert_true(EVENTUALLY(says(socket, "PING", "PONG"), PATIENCE_MS));
    assert_true(says(socket, "SET counter 41", "OK"));
    kill_gateway(gateway);
    assert_true(EVENTUALLY(!ask(socket, "PING") && is_unlocked(dir), 5000));

    struct redis_child *child = start(dir);
    assert_true(EVENTUALLY(is_up(redis_child_socket(child)), PATIENCE_MS));
    assert_true(says(socket, "GET counter", "41"));
}

/* No pause between the kill and the next start, at every stage of the server's own start. */
static void the_next_gateway_waits_for_the_server_before(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    const char *socket = socket_in(dir);
    for (int round = 0; round < 8; round++) {
        pid_t gateway = fork_gateway(dir);
        if (round % 2 == 1) {
            assert_true(EVENTUALLY(says(socket, "PING", "PONG"), PATIENCE_MS));
            assert_true(says(socket, test_printf("SET counter %d", round), "OK"));
        }
        kill_gateway(gateway);
    }
    struct redis_child *child = start(dir);
    assert_true(EVENTUALLY(is_up(redis_child_socket(child)), PATIENCE_MS));
    assert_true(says(socket, "GET counter", "7"));
}

static void a_second_server_is_never_started(void **state)
{
    (void)state;
    const char *dir = tempdir_new();
    struct redis_child *child = start(dir);
    assert_true(EVENTUALLY(is_up(redis_child_socket(child)), PATIENCE_MS));
    pid_t pid = server_pid(redis_child_socket(child));
    char why[256] = "";
    assert_null(redis_child_start(ev_default_loop(0), dir, why, sizeof why));
    assert_non_null(strstr(why, "the redis-server of another gateway still runs"));
    assert_true(is_up(redis_child_socket(child)));
    assert_int_equal(server_pid(redis_child_socket(child)), pid);
}

static char *real_path;

static int restore_path(void **state)
{
    setenv("PATH", real_path, 1);
    return cleanup_test(state);
}

#define TEST(function) cmocka_unit_test_teardown(function, restore_path)

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as the gateway does: a server may die between connect and write */
    real_path = strdup(getenv("PATH"));
    const struct CMUnitTest tests[] = {
        TEST(lives_from_start_to_stop),
        TEST(a_long_path_works),
        TEST(comes_back_after_its_death_with_its_data),
        TEST(is_stopped_while_it_waits_to_restart),
        TEST(a_failing_start_is_tried_again),
        TEST(a_stopped_server_still_ends),
        TEST(one_that_does_not_end_is_killed),
        TEST(a_missing_redis_server_is_named),
        TEST(a_missing_directory_is_named),
        TEST(inherits_only_the_lock),
        TEST(dies_with_its_gateway),
        TEST(the_next_gateway_waits_for_the_server_before),
        TEST(a_second_server_is_never_started),
    };
    int failed = cmocka_run_group_tests_name("redis_child", tests, NULL, NULL);
    ev_loop_destroy(ev_default_loop(0));
    free(real_path);
    return failed;
}
