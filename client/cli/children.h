/* children.h - what /proc knows about processes: our children, the members of a group. Main
 * thread only. */
#ifndef FENCE_CLI_CHILDREN_H
#define FENCE_CLI_CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

/* Writes up to `most` pids of children of ours, also of those that have ended and are not reaped.
 * With PR_SET_CHILD_SUBREAPER that includes what their parents left behind. Returns how many. */
int children_list(pid_t *pids, int most);

/* Does a process of this group live? One that has ended does nothing more, even if its parent
 * never reaps it. Where that cannot be known: yes. */
bool children_group_lives(pid_t group);

#endif
