/* job.c - starting, signalling, killing and reaping a process group (job.h).
 *
 * Why nobody escapes job_kill(): kill(2) reaches every member of the group at one moment, and a
 * fork() that it interrupts is not done. So after it the whole group is doomed, and nothing needs
 * to be killed twice.
 *
 * Between fork() and exec() the child calls only what is safe in a signal handler: the watchdog may
 * have held any lock. It cannot be interrupted until it restores the signals: one that was sent to
 * the group by then ends it there. */
#include "client/cli/job.h"

#include "client/cli/children.h"
#include "client/cli/cli.h"
#include "client/cli/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STRAYS_MAX = 256,      /* that are killed in one look */
    PAUSE_LEAST_US = 200,  /* between two looks at those who are dying */
    PAUSE_MOST_US = 20000, /* after doubling each time */
};

void job_init(struct job *job, const struct signals *signals, struct guardian *guardian,
              const struct inherited *inherited)
{
    *job = (struct job){
        .signals = signals,
        .guardian = guardian,
        .inherited = inherited,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .report_fd = -1,
    };
}

/* ---- Starting -------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void become(const struct job *job, pid_t parent, int report_fd,
                                             char *const argv[], char *const environment[])
{
    /* The order matters: a parent that died before the prctl() sends no signal any more. */
    if (setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0) {
        if (getppid() != parent)
            _exit(CLI_SYSTEM);
        guardian_guard(job->guardian, getpid());
        inherited_close_others(job->inherited);
        signals_restore(job->signals);
        execvpe(argv[0], argv, environment);
    }
    int error = errno;
    ssize_t ignored = write(report_fd, &error, sizeof error);
    (void)ignored;
    _exit(CLI_CANNOT_RUN);
}

bool job_start(struct job *job, char *const argv[], char *const environment[])
{
    int report[2];
    if (pipe2(report, O_CLOEXEC | O_NONBLOCK) < 0)
        return false;
    pid_t parent = getpid();
    pthread_mutex_lock(&job->mutex);
    pid_t pid = fork();
    if (pid == 0)
        become(job, parent, report[1], argv, environment);
    int error = errno;
    if (pid > 0) {
        setpgid(pid, pid); /* the child does it too, and the next: whoever is first */
        guardian_guard(job->guardian, pid);
        job->pid = job->group = pid;
    }
    pthread_mutex_unlock(&job->mutex);
    close(report[1]);
    if (pid < 0)
        close(report[0]);
    else
        job->report_fd = report[0];
    errno = error;
    return pid > 0;
}

/* ---- Signals --------------------------------------------------------------------------------- */

void job_signal(struct job *job, int number)
{
    pthread_mutex_lock(&job->mutex);
    if (job->group > 0)
        kill(-job->group, number);
    pthread_mutex_unlock(&job->mutex);
}

void job_kill(struct job *job)
{
    job_signal(job, SIGKILL);
}

/* ---- Looking --------------------------------------------------------------------------------- */

enum job_state job_look(struct job *job, int *stop_signal)
{
    siginfo_t info;
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            break;
        if (info.si_pid == job->pid)
            return JOB_ENDED;
        waitpid(info.si_pid, NULL, WNOHANG);
    }
    info.si_pid = 0;
    if (waitid(P_PID, (id_t)job->pid, &info, WSTOPPED | WNOHANG) < 0 || info.si_pid == 0)
        return JOB_RUNS;
    *stop_signal = info.si_status;
    return JOB_STOPPED;
}

void job_reap_others(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

/* ---- The end --------------------------------------------------------------------------------- */

static void reap(struct job *job)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != job->pid)
            continue;
        job->reaped = true;
        job->wait_status = status;
        if (read(job->report_fd, &job->exec_error, sizeof job->exec_error) < 0)
            job->exec_error = 0;
    }
}

/* Kills what has become our child, or is. What a killed one leaves behind does so next: in the end
 * there is nobody. Only we can reap them, so none of these numbers belongs to a stranger. Returns
 * how many there were. */
static int kill_strays(const struct job *job)
{
    pid_t pids[STRAYS_MAX];
    int count = children_list(pids, STRAYS_MAX), killed = 0;
    for (int i = 0; i < count; i++) {
        if (pids[i] == job->guardian->pid || inherited_is_child(job->inherited, pids[i]))
            continue;
        kill(pids[i], SIGKILL);
        killed++;
    }
    return killed;
}

bool job_end(struct job *job, bool all, int64_t until_ms)
{
    job_kill(job);
    pthread_mutex_lock(&job->mutex);
    job->group = 0;
    pthread_mutex_unlock(&job->mutex);
    guardian_guard(job->guardian, 0);

    bool gone = false;
    for (useconds_t pause_us = PAUSE_LEAST_US;; pause_us *= 2) {
        reap(job);
        int strays = all ? kill_strays(job) : 0;
        gone = job->reaped && strays == 0 && !children_group_lives(job->pid);
        if (gone || boot_ms() >= until_ms)
            break;
        usleep(pause_us < PAUSE_MOST_US ? pause_us : PAUSE_MOST_US);
    }
    close(job->report_fd);
    job->report_fd = -1;
    return gone;
}

int job_exit_status(const struct job *job)
{
    if (!job->reaped)
        return CLI_SIGNALLED + SIGKILL;
    if (job->exec_error)
        return job->exec_error == ENOENT ? CLI_NO_COMMAND : CLI_CANNOT_RUN;
    return WIFSIGNALED(job->wait_status) ? CLI_SIGNALLED + WTERMSIG(job->wait_status)
                                         : WEXITSTATUS(job->wait_status);
}
