/* environment.c - the variables of a lease, and the environment of its job (environment.h). There
 * they stand first; what is left of ours is borrowed. */
#include "client/cli/environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const environment_names[ENVIRONMENT_COUNT] = {
    "FENCE_URL",   "FENCE_RESOURCE", "FENCE_LEASE_ID",   "FENCE_TOKEN",
    "FENCE_OWNER", "FENCE_TTL_MS",   "FENCE_EXPIRES_AT",
};

void environment_read(const struct fence_lease *lease, const char *url,
                      struct environment_values *values)
{
    snprintf(values->token, sizeof values->token, "%" PRId64, fence_lease_token(lease));
    snprintf(values->ttl_ms, sizeof values->ttl_ms, "%" PRId64, fence_lease_ttl_ms(lease));
    const char *texts[ENVIRONMENT_COUNT] = {url,
                                            fence_lease_resource(lease),
                                            fence_lease_id(lease),
                                            values->token,
                                            fence_lease_owner(lease),
                                            values->ttl_ms,
                                            fence_lease_expires_at(lease)};
    memcpy(values->texts, texts, sizeof texts);
}

static bool is_own(const char *variable)
{
    size_t length = strcspn(variable, "=");
    for (int i = 0; i < ENVIRONMENT_COUNT; i++) {
        if (strlen(environment_names[i]) == length &&
            memcmp(variable, environment_names[i], length) == 0)
            return true;
    }
    return false;
}

static bool set_own(char **environment, const struct fence_lease *lease, const char *url)
{
    struct environment_values values;
    environment_read(lease, url, &values);
    for (int i = 0; i < ENVIRONMENT_COUNT; i++) {
        if (asprintf(&environment[i], "%s=%s", environment_names[i], values.texts[i]) < 0) {
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
    char **environment = calloc(ENVIRONMENT_COUNT + count + 1, sizeof *environment);
    if (!environment)
        return NULL;
    if (!set_own(environment, lease, url)) {
        environment_free(environment);
        return NULL;
    }
    char **next = environment + ENVIRONMENT_COUNT;
    for (size_t i = 0; i < count; i++) {
        if (!is_own(environ[i]))
            *next++ = environ[i];
    }
    return environment;
}

void environment_free(char **environment)
{
    for (int i = 0; environment && i < ENVIRONMENT_COUNT; i++)
        free(environment[i]);
    free(environment);
}
