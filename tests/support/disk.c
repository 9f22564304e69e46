/* disk.c - fdatasync, pwrite64 and usleep with switches. */
#include "tests/support/disk.h"

#include "tests/support/cleanup.h"
#include "tests/support/process.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_long syncs;
static atomic_bool full, broken, hurried;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool holding;    /* under mutex */
static int held, steps; /* under mutex: threads that wait; how many may go on all the same */

enum { PATIENCE_S = 60 };

static void wait_while_held(void)
{
    pthread_mutex_lock(&mutex);
    held++;
    pthread_cond_broadcast(&changed);
    while (holding && steps == 0)
        pthread_cond_wait(&changed, &mutex);
    held--;
    if (holding)
        steps--;
    pthread_mutex_unlock(&mutex);
}

int fdatasync(int fd)
{
    if (gettid() != getpid()) /* the test itself, opening a store, is never held */
        wait_while_held();
    atomic_fetch_add(&syncs, 1);
    if (atomic_load(&broken)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at)
{
    if (atomic_load(&full)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, from, bytes, at);
}

int usleep(useconds_t us)
{
    if (!atomic_load(&hurried)) {
        struct timespec time = {us / 1000000, (long)(us % 1000000) * 1000};
        nanosleep(&time, NULL);
    }
    return 0;
}

/* ---- The switches ---------------------------------------------------------------------------- */

static void set_holding(bool hold)
{
    pthread_mutex_lock(&mutex);
    holding = hold;
    steps = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void undo_all(void *arg)
{
    (void)arg;
    set_holding(false);
    atomic_store(&full, false);
    atomic_store(&hurried, false);
}

long disk_syncs(void)
{
    return atomic_load(&syncs);
}

void disk_hold(void)
{
    cleanup_add(undo_all, NULL);
    set_holding(true);
}

bool disk_await_held(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += slow_ms(PATIENCE_S);
    int failed = 0;
    pthread_mutex_lock(&mutex);
    while ((held == 0 || steps > 0) && failed == 0)
        failed = pthread_cond_timedwait(&changed, &mutex, &until);
    pthread_mutex_unlock(&mutex);
    return failed == 0;
}

void disk_step(void)
{
    pthread_mutex_lock(&mutex);
    steps++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

void disk_release(void)
{
    set_holding(false);
}

void disk_fill(bool now_full)
{
    cleanup_add(undo_all, NULL);
    atomic_store(&full, now_full);
}

void disk_break(void)
{
    atomic_store(&broken, true);
}

void disk_hurry(void)
{
    cleanup_add(undo_all, NULL);
    atomic_store(&hurried, true);
}
