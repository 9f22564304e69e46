/* tempdir.c - mkdtemp(3) and its opposite. */
#include "tests/support/tempdir.h"

#include "tests/support/cleanup.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
    (void)info, (void)kind, (void)ftw;
    /* A server that is just ending may remove its own files at the same time: no error. */
    (void)remove(path);
    return 0;
}

static void remove_tree(void *path)
{
    if (getenv("FENCEGATE_KEEP"))
        fprintf(stderr, "kept: %s\n", (const char *)path);
    else
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(path);
}

const char *tempdir_new(void)
{
    const char *parent = getenv("TMPDIR");
    char *path;
    if (asprintf(&path, "%s/fencegate-test-XXXXXX", parent && *parent ? parent : "/tmp") < 0)
        abort();
    if (!mkdtemp(path)) {
        perror(path);
        abort();
    }
    return cleanup_add(remove_tree, path);
}
