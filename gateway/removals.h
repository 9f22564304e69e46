/* removals.h - holders that are to leave Redis: releases, undone grants, orphans.
 *
 * A removal names one (token, secret) pair, so it can never hit another lease, and may be repeated.
 * Where Redis is away it waits. One that is lost all the same leaves an orphan, which the next
 * acquire of that resource finds and removes. Nothing that is safe depends on any of it. Loop
 * thread only. */
#ifndef FG_REMOVALS_H
#define FG_REMOVALS_H

#include "storage/fence.h"

struct redis_link;
struct removals;

/* Both are borrowed for the life of the list. */
struct removals *removals_open(struct redis_link *redis, const char *store_uuid);

/* Forgets what still waits. The link has been stopped: nothing is under way. */
void removals_close(struct removals *removals);

/* Takes a pair out of Redis, now or when it is back. Where the link is up it is on its way when
 * this returns: whatever is asked of Redis from then on comes after it. Both are copied. */
void removals_add(struct removals *removals, const char *resource, const struct lease_pair *pair);

/* The link has come up: sends what has waited. */
void removals_send(struct removals *removals);

#endif
