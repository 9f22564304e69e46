/* inherited.h - what `fence run` had before it began, and so must leave as it was: open
 * descriptors, which its job is to find, and children, which are no part of its job. */
#ifndef FENCE_CLI_INHERITED_H
#define FENCE_CLI_INHERITED_H

#include <stdbool.h>
#include <sys/types.h>

enum { INHERITED_CHILDREN_MAX = 64 };

struct inherited {
    int *fds; /* ascending; NULL: not known, for want of /proc */
    int fd_count;
    pid_t children[INHERITED_CHILDREN_MAX];
    int child_count;
};

/* Looks. Main thread, before anything else is opened or started. False: memory is out. */
bool inherited_read(struct inherited *inherited);

void inherited_free(struct inherited *inherited);

/* Marks all other descriptors to be closed by exec(), also those of libraries. For a child between
 * fork() and exec(). */
void inherited_close_others(const struct inherited *inherited);

/* Was it our child before we began? (A shell may have started one, and then exec()ed us.) */
bool inherited_is_child(const struct inherited *inherited, pid_t pid);

#endif
