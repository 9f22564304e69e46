/* children.c - processes as /proc tells of them (children.h). */
#include "client/cli/children.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int children_list(pid_t *pids, int most)
{
    /* Those of the main thread: it alone has started any, and gets what is orphaned. */
    char path[64], *line = NULL;
    size_t room = 0;
    int count = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (getline(&line, &room, file) > 0) {
        char *next = line, *end;
        for (long pid; count < most && (pid = strtol(next, &end, 10)) > 0; next = end)
            pids[count++] = (pid_t)pid;
    }
    free(line);
    fclose(file);
    return count;
}

/* "12 (a name) S 1 12 ...": state, parent, group. The name may hold anything. */
static bool is_alive_in(const char *pid, pid_t group)
{
    char path[300], line[512];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = '\0';
    char *name_end = strrchr(line, ')');
    if (!name_end || strlen(name_end) < sizeof ") S" - 1)
        return false;
    char state = name_end[2], *next = name_end + 3;
    strtol(next, &next, 10); /* the parent */
    return strtol(next, NULL, 10) == group && state != 'Z' && state != 'X';
}

bool children_group_lives(pid_t group)
{
    if (kill(-group, 0) < 0 && errno == ESRCH)
        return false;
    DIR *folder = opendir("/proc");
    if (!folder)
        return true;
    bool alive = false;
    for (struct dirent *entry; !alive && (entry = readdir(folder));)
        alive = isdigit((unsigned char)entry->d_name[0]) && is_alive_in(entry->d_name, group);
    closedir(folder);
    return alive;
}
