/* faults.c - what the fault build does at its failpoints (faults.h). Empty in an ordinary build. */
#include "gateway/faults.h"

#ifdef FG_FAILPOINTS

#include "gateway/log.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

enum action { ACTION_NONE, ACTION_CRASH, ACTION_ERROR, ACTION_SLEEP, ACTION_PAUSE };

struct point {
    const char *name;
    enum action action;
    int sleep_ms;
    int due; /* the how-manieth time; 0: every time */
    atomic_int count;
};

static struct point points[] = {
    {.name = "start_store"},  {.name = "start_redis"},
    {.name = "start_server"}, {.name = "after_redis_grant"},
    {.name = "before_fence"}, {.name = "after_fence_commit"},
    {.name = "in_batch"},     {.name = "before_commit"},
    {.name = "after_commit"}, {.name = "after_store_release"},
    {.name = "before_reply"},
};

static struct bug {
    const char *name;
    bool on;
} bugs[] = {
    {"raise_max", false},
    {"answer_before_fence", false},
    {"no_lease_check", false},
    {"check_ge", false},
    {"check_outside_transaction", false},
    {"ignore_failed_commit", false},
    {"deferred_begin", false},
    {"forget_ended_leases", false},
    {"skip_remaining_time", false},
    {"unescape_on", false},
    {"first_header_wins", false},
    {"reuse_timed_out_connection", false},
    {"no_noscript_fallback", false},
    {"fencing_off", false},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void usage(const char *variable, const char *word)
{
    fprintf(stderr, "fencegate: %s: what is \"%s\"?\n", variable, word);
    exit(EX_USAGE);
}

/* ---- Reading the variables ------------------------------------------------------------------ */

static bool parse_action(struct point *point, char *text)
{
    char *at = strchr(text, '@');
    point->due = 1;
    if (at) {
        point->due = strcmp(at, "@*") == 0 ? 0 : (int)strtol(at + 1, NULL, 10);
        *at = '\0';
    }
    if (strcmp(text, "crash") == 0)
        point->action = ACTION_CRASH;
    else if (strcmp(text, "error") == 0)
        point->action = ACTION_ERROR;
    else if (strcmp(text, "pause") == 0)
        point->action = ACTION_PAUSE;
    else if (strncmp(text, "sleep(", 6) == 0)
        point->action = ACTION_SLEEP;
    else
        return false;
    point->sleep_ms = point->action == ACTION_SLEEP ? (int)strtol(text + 6, NULL, 10) : 0;
    return true;
}

static void read_point(char *word)
{
    char *equals = strchr(word, '=');
    if (equals)
        *equals = '\0';
    for (size_t i = 0; equals && i < COUNT(points); i++) {
        if (strcmp(points[i].name, word) == 0 && parse_action(&points[i], equals + 1))
            return;
    }
    usage("FG_FAILPOINTS", word);
}

static void read_bug(char *word)
{
    for (size_t i = 0; i < COUNT(bugs); i++) {
        if (strcmp(bugs[i].name, word) == 0) {
            bugs[i].on = true;
            return;
        }
    }
    usage("FG_BUGS", word);
}

static void read_words(const char *variable, void (*read_word)(char *word))
{
    const char *value = getenv(variable);
    char *copy = value ? strdup(value) : NULL, *rest = copy;
    for (char *word = NULL; rest && (word = strsep(&rest, " ;")) != NULL;) {
        if (*word)
            read_word(word);
    }
    free(copy);
}

/* Before main(): no thread runs yet, so that later nothing needs a lock. */
__attribute__((constructor)) static void read_environment(void)
{
    read_words("FG_FAILPOINTS", read_point);
    read_words("FG_BUGS", read_bug);
}

/* ---- At the places -------------------------------------------------------------------------- */

static bool act(const struct point *point)
{
    switch (point->action) {
    case ACTION_CRASH:
        kill(getpid(), SIGKILL);
        pause();
        break;
    case ACTION_SLEEP:
        nanosleep(&(struct timespec){.tv_sec = point->sleep_ms / 1000,
                                     .tv_nsec = point->sleep_ms % 1000 * 1000000L},
                  NULL);
        break;
    case ACTION_PAUSE:
        kill(getpid(), SIGSTOP);
        break;
    case ACTION_ERROR:
    case ACTION_NONE:
        break;
    }
    return point->action == ACTION_ERROR;
}

bool fault_point(const char *name)
{
    for (size_t i = 0; i < COUNT(points); i++) {
        struct point *point = &points[i];
        if (strcmp(point->name, name) != 0)
            continue;
        if (point->action == ACTION_NONE)
            return false;
        int count = atomic_fetch_add(&point->count, 1) + 1;
        if (point->due != 0 && count != point->due)
            return false;
        log_warn("failpoint", LOG_STR("name", name), LOG_INT("count", count));
        return act(point);
    }
    usage("failpoint", name);
    return false;
}

bool fault_planted(const char *name)
{
    for (size_t i = 0; i < COUNT(bugs); i++) {
        if (strcmp(bugs[i].name, name) == 0)
            return bugs[i].on;
    }
    usage("planted bug", name);
    return false;
}

const char *fault_script(const char *name, const char *text)
{
    char path[4096];
    const char *dir = getenv("FG_SCRIPTS");
    if (!dir)
        return text;
    snprintf(path, sizeof path, "%s/%s.lua", dir, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return text;
    char *read = calloc(1, 65536);
    if (!read || fread(read, 1, 65535, file) == 0)
        usage("FG_SCRIPTS", path);
    fclose(file);
    return read;
}

#else

/* ISO C wants at least one declaration in a file. */
typedef int faults_are_not_built;

#endif
