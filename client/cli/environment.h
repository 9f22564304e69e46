/* environment.h - what the environment of a job says of its lease: for `fence run`, which starts
 * the job, and `fence acquire -o env`, whose output a shell evaluates. */
#ifndef FENCE_CLI_ENVIRONMENT_H
#define FENCE_CLI_ENVIRONMENT_H

#include "client/fence.h"

enum { ENVIRONMENT_COUNT = 7, ENVIRONMENT_NUMBER_BYTES = 24 };

/* FENCE_URL, FENCE_RESOURCE, FENCE_LEASE_ID, FENCE_TOKEN, FENCE_OWNER, FENCE_TTL_MS and
 * FENCE_EXPIRES_AT. */
extern const char *const environment_names[ENVIRONMENT_COUNT];

/* Their values, in the same order. */
struct environment_values {
    const char *texts[ENVIRONMENT_COUNT];
    char token[ENVIRONMENT_NUMBER_BYTES],
        ttl_ms[ENVIRONMENT_NUMBER_BYTES]; /* what two are made of */
};

/* Fills `values`, which then borrows from `lease`, `url` and itself. */
void environment_read(const struct fence_lease *lease, const char *url,
                      struct environment_values *values);

/* Our environment with these set. NULL: memory is out. */
char **environment_of(const struct fence_lease *lease, const char *url);

/* NULL is fine. */
void environment_free(char **environment);

#endif
