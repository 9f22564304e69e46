/* redis_child.c - starts, watches, restarts and ends the private redis-server.
 *
 * One server per append-only file, ever. <data dir>/redis.lock is locked by an open file that the
 * gateway and its server share: flock(2) belongs to the open file, so the lock falls only when both
 * are gone. A gateway that finds it taken waits for the server of a gateway before it, which
 * PR_SET_PDEATHSIG is just ending.
 *
 *     start: open directory, lock ──► spawn ──► running ──► on_end ──► restart_timer ─┐
 *                                       ▲                                (back-off)   │
 *                                       └─────────────────────────────────────────────┘
 *
 * The server changes into the data directory and binds "redis.sock" there, and we connect through
 * /proc/self/fd where the path is too long for a socket address. A stale redis.sock is replaced by
 * the server. Between fork() and exec() the child calls only what is safe in a signal handler:
 * other threads of ours may have held any lock. */
#include "gateway/redis_child.h"

#include "gateway/clock.h"
#include "gateway/log.h"

#include <assert.h>
#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LOCK_WAIT_MS = 5000,      /* for the server of a gateway before us to be gone */
    STOP_WAIT_MS = 3000,      /* between SIGTERM and SIGKILL */
    POLL_MS = 10,             /* between two looks while we wait for either */
    BACKOFF_LEAST_MS = 100,   /* before the first restart, then doubled each time */
    BACKOFF_MOST_MS = 5000,   /* up to this */
    HEALTHY_MS = 10000,       /* a server that lived this long starts with the least again */
    LOG_FILE_BYTES = 1 << 20, /* redis.log is emptied at a start when it is larger */
};

struct redis_child {
    struct ev_loop *loop;
    struct ev_child exit_watch;
    struct ev_timer restart_timer;
    char socket_path[sizeof((struct sockaddr_un *)0)->sun_path];
    int dir_fd;
    int lock_fd;
    pid_t pid; /* 0: none runs; then restart_timer is active */
    int64_t started_ms;
    int64_t backoff_ms;
};

/* What went wrong in the child before it became redis-server; sent through a pipe that closes on
 * exec. */
struct failure {
    int error;    /* errno; 0: nothing */
    bool at_exec; /* in execvp() itself */
};

/* clang-format off */
static char *const server_argv[] = {
    "redis-server",
    /* Reachable through the socket only, by our user only. */
    "--port", "0", "--unixsocket", "redis.sock", "--unixsocketperm", "700",
    /* Keeps all but perhaps the last second before a power loss (the store's marks stand in for
     * that), and refuses to forget anything for want of memory. */
    "--dir", ".", "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
    "--maxmemory-policy", "noeviction",
    /* A plain child of ours, whose stdout is redis.log. */
    "--daemonize", "no", "--loglevel", "warning", "--logfile", "",
    NULL,
};
/* clang-format on */

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* ---- In the child, between fork and exec ---- */

/* exec() keeps what is ignored, and libev's handlers must not run here: they would wake the
 * parent's loop. All signals are blocked until this is done. */
static void reset_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &standard, NULL); /* SIGKILL and SIGSTOP refuse, rightly */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Puts /dev/null and redis.log in the place of stdin, stdout and stderr. */
static int redirect_streams(void)
{
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int log_fd = open("redis.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    struct stat log_stat;
    if (null_fd < 0 || log_fd < 0 || fstat(log_fd, &log_stat) < 0)
        return -1;
    if (log_stat.st_size > LOG_FILE_BYTES && ftruncate(log_fd, 0) < 0)
        return -1;
    if (dup2(null_fd, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
        dup2(log_fd, STDERR_FILENO) < 0)
        return -1;
    return 0;
}

/* Everything up to exec. -1: see errno. */
static int prepare(const struct redis_child *child, pid_t parent)
{
    /* The order matters: a parent that died before the prctl() sends no signal any more. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -1;
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    if (setsid() < 0 || fchdir(child->dir_fd) < 0)
        return -1;
    umask(077);
    if (redirect_streams() < 0)
        return -1;
    /* All descriptors of ours close on exec by themselves; this is for those of libraries. Then the
     * lock is the one thing that goes with the server. */
    close_range(STDERR_FILENO + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC);
    if (fcntl(child->lock_fd, F_DUPFD, STDERR_FILENO + 1) < 0)
        return -1;
    reset_signals();
    return 0;
}

__attribute__((noreturn)) static void become_server(const struct redis_child *child, pid_t parent,
                                                    int report_fd)
{
    struct failure failure = {0};
    if (prepare(child, parent) == 0) {
        execvp(server_argv[0], server_argv);
        failure.at_exec = true;
    }
    failure.error = errno;
    ssize_t ignored = write(report_fd, &failure, sizeof failure);
    (void)ignored;
    _exit(EXIT_FAILURE);
}

/* ---- In the gateway ---- */

/* Waits until the child has become redis-server or has said why not. */
static struct failure read_report(int report_fd)
{
    struct failure failure = {0};
    ssize_t got;
    do
        got = read(report_fd, &failure, sizeof failure);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof failure ? failure : (struct failure){0};
}

static void reap(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* Starts a server and watches it. */
static struct failure spawn(struct redis_child *child)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0)
        return (struct failure){.error = errno};
    pid_t parent = getpid();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0)
        become_server(child, parent, report[1]);
    struct failure failure = {.error = pid < 0 ? errno : 0};
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(report[1]);
    if (pid > 0)
        failure = read_report(report[0]);
    close(report[0]);
    if (failure.error) {
        if (pid > 0)
            reap(pid);
        return failure;
    }

    child->pid = pid;
    child->started_ms = clock_boot_ms();
    ev_child_set(&child->exit_watch, pid, 0);
    ev_child_start(child->loop, &child->exit_watch);
    log_info("redis-server started", LOG_INT("pid", pid), LOG_STR("socket", child->socket_path));
    return failure;
}

static void explain(struct failure failure, char *why, size_t why_bytes)
{
    if (failure.at_exec && failure.error == ENOENT)
        snprintf(why, why_bytes,
                 "redis-server is not installed; install it or name one with --redis");
    else
        snprintf(why, why_bytes, "cannot start redis-server: %s", strerror(failure.error));
}

static void schedule_restart(struct redis_child *child, const char *why)
{
    log_warn("redis-server ended", LOG_STR("why", why), LOG_INT("restart_ms", child->backoff_ms),
             LOG_STR("see", "redis.log in the data directory"));
    ev_timer_set(&child->restart_timer, (double)child->backoff_ms / 1000, 0.);
    ev_timer_start(child->loop, &child->restart_timer);
    child->backoff_ms *= 2;
    if (child->backoff_ms > BACKOFF_MOST_MS)
        child->backoff_ms = BACKOFF_MOST_MS;
}

/* libev has reaped the server. */
static void on_end(struct ev_loop *loop, struct ev_child *watcher, int events)
{
    (void)events;
    struct redis_child *child = watcher->data;
    ev_child_stop(loop, watcher);
    child->pid = 0;
    if (clock_boot_ms() - child->started_ms >= HEALTHY_MS)
        child->backoff_ms = BACKOFF_LEAST_MS;
    char why[64];
    int status = watcher->rstatus;
    if (WIFSIGNALED(status))
        snprintf(why, sizeof why, "signal %d", WTERMSIG(status));
    else
        snprintf(why, sizeof why, "exit status %d", WEXITSTATUS(status));
    schedule_restart(child, why);
}

static void on_restart(struct ev_loop *loop, struct ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct redis_child *child = watcher->data;
    struct failure failure = spawn(child);
    if (failure.error == 0)
        return;
    char why[160];
    explain(failure, why, sizeof why);
    schedule_restart(child, why);
}

/* Takes the lock, waiting for a server that is just ending. False: see why. */
static bool take_lock(int lock_fd, const char *data_dir, char *why, size_t why_bytes)
{
    int64_t give_up_ms = clock_boot_ms() + LOCK_WAIT_MS;
    bool told = false;
    while (flock(lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            snprintf(why, why_bytes, "cannot lock %s/redis.lock: %s", data_dir, strerror(errno));
            return false;
        }
        if (clock_boot_ms() >= give_up_ms) {
            snprintf(why, why_bytes,
                     "the redis-server of another gateway still runs in %s (it holds redis.lock)",
                     data_dir);
            return false;
        }
        if (!told)
            log_info("waiting for the redis-server of an earlier gateway to end");
        told = true;
        sleep_ms(POLL_MS);
    }
    return true;
}

static void set_socket_path(struct redis_child *child, const char *data_dir)
{
    size_t room = sizeof child->socket_path;
    int length = snprintf(child->socket_path, room, "%s/redis.sock", data_dir);
    if (length < 0 || (size_t)length >= room)
        snprintf(child->socket_path, room, "/proc/self/fd/%d/redis.sock", child->dir_fd);
}

struct redis_child *redis_child_start(struct ev_loop *loop, const char *data_dir, char *why,
                                      unsigned why_bytes)
{
    assert(gettid() == getpid());
    struct redis_child *child = calloc(1, sizeof *child);
    if (!child) {
        snprintf(why, why_bytes, "out of memory");
        return NULL;
    }
    child->loop = loop;
    child->backoff_ms = BACKOFF_LEAST_MS;
    child->lock_fd = -1;
    ev_init(&child->exit_watch, on_end);
    ev_init(&child->restart_timer, on_restart);
    child->exit_watch.data = child->restart_timer.data = child;

    child->dir_fd = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (child->dir_fd >= 0)
        child->lock_fd = openat(child->dir_fd, "redis.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (child->lock_fd < 0) {
        snprintf(why, why_bytes, "cannot open %s%s: %s", data_dir,
                 child->dir_fd < 0 ? "" : "/redis.lock", strerror(errno));
        goto fail;
    }
    set_socket_path(child, data_dir);
    if (!take_lock(child->lock_fd, data_dir, why, why_bytes))
        goto fail;
    struct failure failure = spawn(child);
    if (failure.error) {
        explain(failure, why, why_bytes);
        goto fail;
    }
    return child;

fail:
    redis_child_stop(child);
    return NULL;
}

const char *redis_child_socket(const struct redis_child *child)
{
    return child->socket_path;
}

/* SIGTERM, and SIGKILL for what is left of it after STOP_WAIT_MS. */
static void end_server(pid_t pid)
{
    kill(pid, SIGTERM);
    kill(pid, SIGCONT); /* somebody may have stopped it */
    int64_t give_up_ms = clock_boot_ms() + STOP_WAIT_MS;
    pid_t reaped;
    while ((reaped = waitpid(pid, NULL, WNOHANG)) == 0 && clock_boot_ms() < give_up_ms)
        sleep_ms(POLL_MS);
    if (reaped != 0)
        return;
    log_warn("redis-server does not end by itself: killed", LOG_INT("pid", pid));
    kill(-pid, SIGKILL); /* it leads a group: one of its own children may be rewriting the file */
    reap(pid);
}

void redis_child_stop(struct redis_child *child)
{
    if (!child)
        return;
    ev_timer_stop(child->loop, &child->restart_timer);
    ev_child_stop(child->loop, &child->exit_watch);
    if (child->pid)
        end_server(child->pid);
    if (child->lock_fd >= 0)
        close(child->lock_fd);
    if (child->dir_fd >= 0)
        close(child->dir_fd);
    free(child);
}
