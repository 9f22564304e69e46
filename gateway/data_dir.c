/* data_dir.c - mkdir -p, and flock on a file of its own: closing a descriptor of the database
 * itself would drop SQLite's locks. The private redis-server has another lock (redis_child.c). */
#include "gateway/data_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

enum {
    LOCK_TRIES = 25, /* a gateway that was just killed may still be on its way out */
    LOCK_PAUSE_MS = 20
};

static int make_directories(const char *path)
{
    char part[PATH_MAX];
    size_t bytes = strlen(path);
    if (bytes == 0 || bytes >= sizeof part) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(part, path, bytes + 1);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return mkdir(part, 0700) != 0 && errno != EEXIST ? -1 : 0;
}

static int lock(int fd)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -1;
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_MS * 1000000L}, NULL);
    }
    errno = EWOULDBLOCK;
    return -1;
}

int data_dir_lock(const char *path, char *why, size_t why_bytes)
{
    char lock_path[PATH_MAX];
    int length = snprintf(lock_path, sizeof lock_path, "%s/gateway.lock", path);
    if (length < 0 || (size_t)length >= sizeof lock_path) {
        snprintf(why, why_bytes, "the data directory's path is too long");
        return EX_CANTCREAT;
    }
    int fd = make_directories(path) == 0
                 ? open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)
                 : -1;
    if (fd < 0) {
        snprintf(why, why_bytes, "cannot use the data directory %s: %s", path, strerror(errno));
        return EX_CANTCREAT;
    }
    if (lock(fd) == 0)
        return 0; /* the descriptor stays open: it is the lock */
    if (errno == EWOULDBLOCK)
        snprintf(why, why_bytes, "another gateway serves the data directory %s", path);
    else
        snprintf(why, why_bytes, "cannot lock %s: %s", lock_path, strerror(errno));
    close(fd);
    return EX_UNAVAILABLE;
}
