/* removals.c - sending removals, and keeping those that Redis has not answered (removals.h). */
#include "gateway/removals.h"

#include "gateway/scripts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum { REMOVALS_MAX = 100000 }; /* waiting and under way; beyond, orphans do */

struct removal {
    STAILQ_ENTRY(removal) entry; /* while it waits */
    struct removals *removals;
    struct lease_pair pair;
    char resource[];
};

STAILQ_HEAD(removal_list, removal);

struct removals {
    struct redis_link *redis;
    const char *store_uuid;
    struct removal_list waiting;
    size_t count; /* waiting and under way */
};

struct removals *removals_open(struct redis_link *redis, const char *store_uuid)
{
    struct removals *removals = calloc(1, sizeof *removals);
    if (!removals)
        abort();
    removals->redis = redis;
    removals->store_uuid = store_uuid;
    STAILQ_INIT(&removals->waiting);
    return removals;
}

static void removal_free(struct removal *removal)
{
    removal->removals->count--;
    free(removal);
}

void removals_close(struct removals *removals)
{
    while (!STAILQ_EMPTY(&removals->waiting)) {
        struct removal *removal = STAILQ_FIRST(&removals->waiting);
        STAILQ_REMOVE_HEAD(&removals->waiting, entry);
        removal_free(removal);
    }
    free(removals);
}

static void on_removed(void *arg, const struct script_answer *answer)
{
    struct removal *removal = arg;
    struct removals *removals = removal->removals;
    bool again = answer->status == FG_REDIS_UNAVAILABLE || answer->status == FG_OVERLOADED;
    if (again && removals->count <= REMOVALS_MAX)
        STAILQ_INSERT_TAIL(&removals->waiting, removal, entry);
    else
        removal_free(removal);
}

static void send_removal(struct removal *removal)
{
    struct removals *removals = removal->removals;
    script_release(removals->redis, removals->store_uuid, removal->resource, &removal->pair,
                   on_removed, removal);
}

void removals_add(struct removals *removals, const char *resource, const struct lease_pair *pair)
{
    size_t bytes = strlen(resource) + 1;
    struct removal *removal = malloc(sizeof *removal + bytes);
    if (!removal)
        abort();
    removal->removals = removals;
    removal->pair = *pair;
    memcpy(removal->resource, resource, bytes);
    removals->count++;
    send_removal(removal);
}

void removals_send(struct removals *removals)
{
    /* What fails again goes to the new list, not round and round in this one. */
    struct removal_list list = STAILQ_HEAD_INITIALIZER(list);
    STAILQ_CONCAT(&list, &removals->waiting);
    while (!STAILQ_EMPTY(&list)) {
        struct removal *removal = STAILQ_FIRST(&list);
        STAILQ_REMOVE_HEAD(&list, entry);
        send_removal(removal);
    }
}
