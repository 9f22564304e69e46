/* markers.c - store.uuid and store.open (markers.h).
 *
 * store.open is written after the log's directory entry is durable and removed before the log is,
 * so that no crash and no power cut leaves it standing without a log. */
#include "storage/markers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool path_in(const struct markers *markers, const char *name, char out[PATH_MAX])
{
    int length = snprintf(out, PATH_MAX, "%s/%s", markers->data_dir, name);
    return length > 0 && length < PATH_MAX;
}

static bool refuse(char *why, size_t why_bytes, const char *what)
{
    snprintf(why, why_bytes, "%s", what);
    return false;
}

/* ---- Reading -------------------------------------------------------------------------------- */

static bool read_uuid(struct markers *markers, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT; /* unreadable is not absent */
    ssize_t bytes = read(fd, markers->uuid, sizeof markers->uuid - 1);
    close(fd);
    markers->uuid[bytes > 0 ? bytes : 0] = '\0';
    return true;
}

bool markers_read(struct markers *markers, const char *data_dir, char *why, size_t why_bytes)
{
    char uuid_path[PATH_MAX], open_path[PATH_MAX], log_path[PATH_MAX];
    if (!realpath(data_dir, markers->data_dir))
        return refuse(why, why_bytes, "the data directory cannot be found");
    if (!path_in(markers, "fencegate.db", markers->database_path) ||
        !path_in(markers, "store.uuid", uuid_path) || !path_in(markers, "store.open", open_path) ||
        !path_in(markers, "fencegate.db-wal", log_path))
        return refuse(why, why_bytes, "the data directory's path is too long");
    markers->was_here = read_uuid(markers, uuid_path);
    if (access(open_path, F_OK) == 0 && access(log_path, F_OK) != 0)
        return refuse(why, why_bytes,
                      "the write-ahead log of the last run is gone, and acknowledged commits with "
                      "it; restore a backup (and remove store.open)");
    return true;
}

/* ---- Writing -------------------------------------------------------------------------------- */

static bool sync_directory(const struct markers *markers)
{
    int fd = open(markers->data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return synced;
}

/* Under another name first, so that a crash leaves either nothing or the whole. */
static bool write_whole(const struct markers *markers, const char *name, const char *text)
{
    char path[PATH_MAX], draft[PATH_MAX + 8];
    if (!path_in(markers, name, path))
        return false;
    snprintf(draft, sizeof draft, "%s.new", path);
    int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    size_t bytes = strlen(text);
    bool written = write(fd, text, bytes) == (ssize_t)bytes && fsync(fd) == 0;
    close(fd);
    return written && rename(draft, path) == 0;
}

bool markers_agree(const struct markers *markers, const char *uuid, char *why, size_t why_bytes)
{
    if (!markers->was_here || strcmp(markers->uuid, uuid) == 0)
        return true;
    snprintf(why, why_bytes, "the database is store %s, but store.uuid says %s", uuid,
             markers->uuid);
    return false;
}

bool markers_write(const struct markers *markers, const char *uuid, char *why, size_t why_bytes)
{
    if ((markers->was_here || write_whole(markers, "store.uuid", uuid)) &&
        sync_directory(markers) && write_whole(markers, "store.open", uuid))
        return true;
    snprintf(why, why_bytes, "cannot write beside the database: %s", strerror(errno));
    return false;
}

void markers_closing(const struct markers *markers)
{
    char path[PATH_MAX];
    if (path_in(markers, "store.open", path))
        unlink(path);
}
