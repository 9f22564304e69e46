/* process.c - fork, exec, wait. */
#include "tests/support/process.h"

#include "tests/support/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 5 };

struct process {
    pid_t pid;
    bool ended;
    int status;
    const char *errors_path;
    const char *output_path;
    off_t errors_start;
    off_t output_start;
};

static off_t size_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? info.st_size : 0;
}

static void redirect(int fd, const char *path, int flags)
{
    int file = open(path, flags | O_CLOEXEC, 0600);
    if (file < 0 || dup2(file, fd) < 0) {
        perror(path);
        _exit(127);
    }
}

/* The child's side of the fork. */
static void become(const char *const *argv, const char *const *env, const struct process *process,
                   pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
    redirect(STDOUT_FILENO, process->output_path, O_WRONLY | O_CREAT | O_APPEND);
    redirect(STDERR_FILENO, process->errors_path, O_WRONLY | O_CREAT | O_APPEND);
    for (; env && *env; env++) {
        if (strchr(*env, '='))
            putenv((char *)(size_t)*env);
        else
            unsetenv(*env);
    }
    execvp(argv[0], (char *const *)(size_t)argv);
    perror(argv[0]);
    _exit(127);
}

static void end(void *arg)
{
    struct process *process = arg;
    if (!process->ended) {
        kill(process->pid, SIGKILL);
        waitpid(process->pid, NULL, 0);
    }
    free(process);
}

struct process *process_start(const char *const *argv, const char *const *env, const char *log)
{
    struct process *process = calloc(1, sizeof *process);
    if (!process)
        abort();
    process->errors_path = test_printf("%s", log);
    process->output_path = test_printf("%s.out", log);
    process->errors_start = size_of(process->errors_path);
    process->output_start = size_of(process->output_path);

    pid_t parent = getpid();
    process->pid = fork();
    if (process->pid < 0) {
        perror("fork");
        abort();
    }
    if (process->pid == 0)
        become(argv, env, process, parent);
    return cleanup_add(end, process);
}

pid_t process_pid(const struct process *process)
{
    return process->pid;
}

bool process_running(struct process *process)
{
    return process_wait(process, 0) < 0;
}

void process_signal(struct process *process, int signal)
{
    if (!process->ended)
        kill(process->pid, signal);
}

int process_wait(struct process *process, int timeout_ms)
{
    long long give_up_ms = now_ms() + timeout_ms;
    while (!process->ended) {
        int status;
        pid_t pid = waitpid(process->pid, &status, WNOHANG);
        if (pid == process->pid) {
            process->ended = true;
            process->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        } else if (pid < 0 && errno != EINTR) {
            perror("waitpid");
            abort();
        } else if (now_ms() >= give_up_ms) {
            return -1;
        } else {
            sleep_ms(POLL_MS);
        }
    }
    return process->status;
}

static const char *read_from(const char *path, off_t start)
{
    off_t bytes = size_of(path) - start;
    char *text = test_alloc((size_t)(bytes > 0 ? bytes : 0) + 1);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        ssize_t got = bytes > 0 ? pread(file, text, (size_t)bytes, start) : 0;
        text[got > 0 ? got : 0] = '\0';
        close(file);
    }
    return text;
}

const char *process_errors(const struct process *process)
{
    return read_from(process->errors_path, process->errors_start);
}

const char *process_output(const struct process *process)
{
    return read_from(process->output_path, process->output_start);
}

static const char *find_line(const char *text, const char *needle)
{
    const char *at = strstr(text, needle);
    if (!at)
        return NULL;
    const char *end_of_line = strchr(at, '\n');
    if (!end_of_line)
        return NULL;
    while (at > text && at[-1] != '\n')
        at--;
    return test_printf("%.*s", (int)(end_of_line - at), at);
}

const char *process_await_line(struct process *process, const char *needle, int timeout_ms)
{
    long long give_up_ms = now_ms() + timeout_ms;
    for (;;) {
        /* In this order: what it wrote just before its end is seen. */
        bool running = process_running(process);
        const char *line = find_line(process_errors(process), needle);
        if (line || !running || now_ms() >= give_up_ms)
            return line;
        sleep_ms(POLL_MS);
    }
}

int slow_ms(int ms)
{
    const char *slower = getenv("FENCEGATE_SLOWER");
    int factor = slower ? atoi(slower) : 1;
    return factor > 1 ? ms * factor : ms;
}

void sleep_ms(int ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
