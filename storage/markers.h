/* markers.h - files beside the database that tell when a part of the store has been lost.
 *
 *     store.uuid   the UUID of the store that lives here. Where it stands and the database is
 * missing or empty, the database was lost: creating another one would set every mark to 0.
 *     store.open   stands while the store is open. Where it stands and there is no write-ahead log,
 * the log was lost after a crash, and with it commits that were acknowledged.
 *
 * Inside storage/ only; at opening and closing. */
#ifndef FG_MARKERS_H
#define FG_MARKERS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct markers {
    char data_dir[PATH_MAX]; /* without symbolic links */
    char database_path[PATH_MAX];
    bool was_here; /* there has been a store */
    char uuid[64]; /* its UUID, where was_here */
};

/* Looks what stands in the data directory. False, with a line in `why`: a part of the store is
 * missing, or the path is too long. */
bool markers_read(struct markers *markers, const char *data_dir, char *why, size_t why_bytes);

/* Whether the database, whose UUID this is, is the store that lived here. False: see `why`. */
bool markers_agree(const struct markers *markers, const char *uuid, char *why, size_t why_bytes);

/* The write-ahead log exists: writes both markers where they are missing. False: they cannot be. */
bool markers_write(const struct markers *markers, const char *uuid, char *why, size_t why_bytes);

/* The store is about to be closed, its log still exists: takes store.open away. */
void markers_closing(const struct markers *markers);

#endif
