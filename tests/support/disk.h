/* disk.h - a disk that a test can stop, fill and break.
 *
 * The program that links this file answers SQLite's fdatasync, pwrite64 and usleep itself (the
 * functions of an executable come before those of a shared library), so that the whole store runs
 * as it is while a test holds the writer in the middle of a COMMIT, counts commits exactly, or
 * lets them fail. Everything is undone when the test ends. */
#ifndef TESTS_DISK_H
#define TESTS_DISK_H

#include <stdbool.h>

/* Calls of fdatasync so far. */
long disk_syncs(void);

/* From now on each fdatasync waits before it does anything; returns at once. */
void disk_hold(void);

/* Waits until a thread stands in a held fdatasync; false after a long time. */
bool disk_await_held(void);

/* Lets the one that waits go on, and holds the next one. */
void disk_step(void);

/* Lets all go on. */
void disk_release(void);

/* From now on every write fails with ENOSPC, or works again. */
void disk_fill(bool full);

/* From now on every fdatasync fails with EIO. */
void disk_break(void);

/* From now on SQLite's sleeps between two tries for a lock take no time. */
void disk_hurry(void);

#endif
