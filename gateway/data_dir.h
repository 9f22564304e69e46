/* data_dir.h - the data directory and its lock: exactly one gateway serves a store. */
#ifndef FG_DATA_DIR_H
#define FG_DATA_DIR_H

#include <stddef.h>

/* Creates the directory where it is missing (mode 0700, parents too) and locks <path>/gateway.lock
 * for as long as the process lives; the kernel lets go of it however we end. 0; 69 where another
 * gateway holds it, 73 where it cannot be created, with a line in `why`. Main thread, at start. */
int data_dir_lock(const char *path, char *why, size_t why_bytes);

#endif
