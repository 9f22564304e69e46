/* environment.h - the environment of the job of `fence run`: ours, and what it needs to know of
 * its lease. */
#ifndef FENCE_CLI_ENVIRONMENT_H
#define FENCE_CLI_ENVIRONMENT_H

#include "client/fence.h"

/* Ours with FENCE_URL, FENCE_RESOURCE, FENCE_LEASE_ID, FENCE_TOKEN, FENCE_OWNER, FENCE_TTL_MS and
 * FENCE_EXPIRES_AT set. NULL: memory is out. */
char **environment_of(const struct fence_lease *lease, const char *url);

/* NULL is fine. */
void environment_free(char **environment);

#endif
