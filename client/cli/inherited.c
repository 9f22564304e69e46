/* inherited.c - descriptors and children from before `fence run` began (inherited.h). */
#include "client/cli/inherited.h"

#include "client/cli/children.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static int compare(const void *left, const void *right)
{
    int a = *(const int *)left, b = *(const int *)right;
    return (a > b) - (a < b);
}

static bool append(struct inherited *inherited, int fd)
{
    size_t bytes = ((size_t)inherited->fd_count + 1) * sizeof fd;
    int *fds = realloc(inherited->fds, bytes);
    if (!fds)
        return false;
    inherited->fds = fds;
    fds[inherited->fd_count++] = fd;
    return true;
}

static bool read_fds(struct inherited *inherited)
{
    bool good = true;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        return true;
    for (struct dirent *entry; good && (entry = readdir(folder));) {
        int fd = (int)strtol(entry->d_name, NULL, 10);
        if (entry->d_name[0] != '.' && fd != dirfd(folder) && fcntl(fd, F_GETFD) == 0)
            good = append(inherited, fd);
    }
    closedir(folder);
    if (inherited->fds)
        qsort(inherited->fds, (size_t)inherited->fd_count, sizeof(int), compare);
    return good;
}

bool inherited_read(struct inherited *inherited)
{
    *inherited = (struct inherited){0};
    inherited->child_count = children_list(inherited->children, INHERITED_CHILDREN_MAX);
    return read_fds(inherited);
}

void inherited_free(struct inherited *inherited)
{
    free(inherited->fds);
    inherited->fds = NULL;
}

void inherited_close_others(const struct inherited *inherited)
{
    unsigned from = 0;
    if (!inherited->fds)
        return;
    for (int i = 0; i < inherited->fd_count; i++) {
        unsigned fd = (unsigned)inherited->fds[i];
        if (fd > from)
            close_range(from, fd - 1, CLOSE_RANGE_CLOEXEC);
        from = fd + 1;
    }
    close_range(from, UINT_MAX, CLOSE_RANGE_CLOEXEC);
}

bool inherited_is_child(const struct inherited *inherited, pid_t pid)
{
    for (int i = 0; i < inherited->child_count; i++) {
        if (inherited->children[i] == pid)
            return true;
    }
    return false;
}
