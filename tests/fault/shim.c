/* shim.c - a disk that fails, dawdles, and can show what a power cut would leave (LD_PRELOAD).
 *
 * test_disk_faults.py compiles it and starts a gateway with it. It looks at SQLite's three files
 * only (fencegate.db, its -wal and its -journal), and at everything that changes them: pwrite,
 * ftruncate, fdatasync, unlink. The -shm file is not looked at: it is memory, and built anew.
 *
 * SHIM_CONTROL names a file that the test maps too (struct control): the n-th call from now on can
 * fail with an errno, write only the half, or kill the process; a sync can take its time, or lie.
 *
 * SHIM_JOURNAL names a file to which every change is appended before it is made, and every sync
 * after it was done. With the files as they were at the start, the test can then put together what
 * may stand on the disk after a power cut: of each file all changes up to its last sync, and of the
 * later ones any. kill -9 alone can never show that, because the page cache survives it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

int open64(const char *path, int flags, ...);
int close(int fd);
int unlink(const char *path);
int fdatasync(int fd);
int ftruncate64(int fd, off64_t length);
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset);

enum call { CALL_NONE, CALL_SYNC, CALL_WRITE, CALL_TRUNCATE, CALL_UNLINK, CALL_COUNT };

/* What fails instead of with an errno. */
enum { FAIL_SHORT = 0, FAIL_KILL = -1 };

/* Mapped by both sides; all int64, in this order. */
struct control {
    int64_t call;      /* enum call: which one fails; CALL_NONE: none */
    int64_t file;      /* of which file: 'd', 'w', 'j'; 0: any */
    int64_t countdown; /* the n-th from now */
    int64_t for_ever;  /* and all after it */
    int64_t error;     /* an errno, FAIL_SHORT or FAIL_KILL */
    int64_t sync_us;   /* how long each sync takes */
    int64_t lying;     /* syncs say yes and do nothing */
    int64_t fired;     /* how many have failed */
    int64_t counts[CALL_COUNT];
};

enum { FDS_MAX = 4096 };

static struct control no_control;
static struct control *control = &no_control;
static int journal_fd = -1;
static char file_of[FDS_MAX]; /* 'd', 'w', 'j'; 0: not looked at */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- Start ---------------------------------------------------------------------------------- */

#define REAL(name)                                            \
    ({                                                        \
        static __typeof__(&(name)) real;                      \
        if (!real)                                            \
            real = (__typeof__(real))dlsym(RTLD_NEXT, #name); \
        real;                                                 \
    })

__attribute__((constructor)) static void start(void)
{
    const char *control_path = getenv("SHIM_CONTROL"), *journal_path = getenv("SHIM_JOURNAL");
    if (control_path) {
        int fd = REAL(open64)(control_path, O_RDWR | O_CLOEXEC);
        void *map = fd < 0 ? MAP_FAILED
                           : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            abort();
        control = map;
        REAL(close)(fd);
    }
    if (journal_path) {
        journal_fd = REAL(open64)(journal_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (journal_fd < 0)
            abort();
    }
    unsetenv("LD_PRELOAD"); /* not for the private redis-server */
}

static char classify(const char *path)
{
    static const char name[] = "fencegate.db";
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    if (strncmp(base, name, sizeof name - 1) != 0)
        return 0;
    base += sizeof name - 1;
    if (*base == '\0')
        return 'd';
    if (strcmp(base, "-wal") == 0)
        return 'w';
    return strcmp(base, "-journal") == 0 ? 'j' : 0;
}

static char file_behind(int fd)
{
    return fd >= 0 && fd < FDS_MAX ? file_of[fd] : 0;
}

/* ---- What is done to a call ----------------------------------------------------------------- */

struct entry {
    char what; /* W, T, S, D */
    char file; /* x: the directory */
    char pad[6];
    int64_t offset;
    int64_t bytes;
};

static void note(char what, char file, int64_t offset, const void *bytes, size_t count)
{
    struct entry entry = {.what = what, .file = file, .offset = offset, .bytes = (int64_t)count};
    struct iovec parts[] = {{&entry, sizeof entry}, {(void *)(uintptr_t)bytes, count}};
    if (journal_fd >= 0 && writev(journal_fd, parts, count > 0 ? 2 : 1) < 0)
        abort();
}

/* Whether this call is to fail; then `error` says how. */
static int is_due(enum call call, char file, int64_t *error)
{
    __atomic_add_fetch(&control->counts[call], 1, __ATOMIC_SEQ_CST);
    if (control->call != call || (control->file && control->file != file))
        return 0;
    int64_t left = __atomic_sub_fetch(&control->countdown, 1, __ATOMIC_SEQ_CST);
    if (left > 0 || (left < 0 && !control->for_ever))
        return 0;
    __atomic_add_fetch(&control->fired, 1, __ATOMIC_SEQ_CST);
    *error = control->error;
    if (*error == FAIL_KILL) {
        kill(getpid(), SIGKILL);
        pause();
    }
    return 1;
}

/* ---- The calls ------------------------------------------------------------------------------ */

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    int fd = REAL(open64)(path, flags, mode);
    if (fd >= 0 && fd < FDS_MAX)
        file_of[fd] = classify(path);
    return fd;
}

int close(int fd)
{
    if (fd >= 0 && fd < FDS_MAX)
        file_of[fd] = 0;
    return REAL(close)(fd);
}

int unlink(const char *path)
{
    int64_t error = 0;
    char file = classify(path);
    if (!file)
        return REAL(unlink)(path);
    if (is_due(CALL_UNLINK, file, &error)) {
        errno = (int)error;
        return -1;
    }
    pthread_mutex_lock(&mutex);
    note('D', file, 0, NULL, 0);
    int result = REAL(unlink)(path);
    pthread_mutex_unlock(&mutex);
    return result;
}

int fdatasync(int fd)
{
    int64_t error = 0;
    char file = file_behind(fd);
    if (!file) { /* SQLite syncs nothing else but the directory */
        int synced = REAL(fdatasync)(fd);
        if (synced == 0 && !control->lying)
            note('S', 'x', 0, NULL, 0);
        return synced;
    }
    if (is_due(CALL_SYNC, file, &error)) {
        errno = (int)error;
        return -1;
    }
    if (control->sync_us > 0)
        nanosleep(&(struct timespec){.tv_sec = control->sync_us / 1000000,
                                     .tv_nsec = control->sync_us % 1000000 * 1000},
                  NULL);
    if (control->lying)
        return 0;
    pthread_mutex_lock(&mutex);
    int result = REAL(fdatasync)(fd);
    if (result == 0)
        note('S', file, 0, NULL, 0);
    pthread_mutex_unlock(&mutex);
    return result;
}

int ftruncate64(int fd, off64_t length)
{
    int64_t error = 0;
    char file = file_behind(fd);
    if (!file)
        return REAL(ftruncate64)(fd, length);
    if (is_due(CALL_TRUNCATE, file, &error)) {
        errno = (int)error;
        return -1;
    }
    pthread_mutex_lock(&mutex);
    note('T', file, length, NULL, 0);
    int result = REAL(ftruncate64)(fd, length);
    pthread_mutex_unlock(&mutex);
    return result;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    int64_t error = 0;
    char file = file_behind(fd);
    if (!file)
        return REAL(pwrite64)(fd, bytes, count, offset);
    if (is_due(CALL_WRITE, file, &error)) {
        if (error != FAIL_SHORT) {
            errno = (int)error;
            return -1;
        }
        count = count / 2 + 1;
    }
    pthread_mutex_lock(&mutex);
    note('W', file, offset, bytes, count);
    ssize_t result = REAL(pwrite64)(fd, bytes, count, offset);
    pthread_mutex_unlock(&mutex);
    return result;
}
