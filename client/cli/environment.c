/* environment.c - the environment of the job of `fence run` (environment.h). The variables
 * of the lease stand first; what is left of ours is borrowed. */
#include "client/cli/environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OWN_COUNT = 7 };

static const char *const names[OWN_COUNT] = {
    "FENCE_URL",   "FENCE_RESOURCE", "FENCE_LEASE_ID",   "FENCE_TOKEN",
    "FENCE_OWNER", "FENCE_TTL_MS",   "FENCE_EXPIRES_AT",
};

static bool is_own(const char *variable)
{
    size_t length = strcspn(variable, "=");
    for (int i = 0; i < OWN_COUNT; i++) {
        if (strlen(names[i]) == length && memcmp(variable, names[i], length) == 0)
            return true;
    }
    return false;
}

static bool set_own(char **environment, const struct fence_lease *lease, const char *url)
{
    char token[24], ttl_ms[24];
    snprintf(token, sizeof token, "%" PRId64, fence_lease_token(lease));
    snprintf(ttl_ms, sizeof ttl_ms, "%" PRId64, fence_lease_ttl_ms(lease));
    const char *values[OWN_COUNT] = {url,
                                     fence_lease_resource(lease),
                                     fence_lease_id(lease),
                                     token,
                                     fence_lease_owner(lease),
                                     ttl_ms,
                                     fence_lease_expires_at(lease)};
    for (int i = 0; i < OWN_COUNT; i++) {
        if (asprintf(&environment[i], "%s=%s", names[i], values[i]) < 0) {
            environment[i] = NULL;
            return false;
        }
    }
    return true;
}

char **environment_of(const struct fence_lease *lease, const char *url)
{
    size_t count = 0;
    while (environ[count])
        count++;
    char **environment = calloc(OWN_COUNT + count + 1, sizeof *environment);
    if (!environment)
        return NULL;
    if (!set_own(environment, lease, url)) {
        environment_free(environment);
        return NULL;
    }
    char **next = environment + OWN_COUNT;
    for (size_t i = 0; i < count; i++) {
        if (!is_own(environ[i]))
            *next++ = environ[i];
    }
    return environment;
}

void environment_free(char **environment)
{
    for (int i = 0; environment && i < OWN_COUNT; i++)
        free(environment[i]);
    free(environment);
}
