/* settings.c - the FENCE_* variables that set up a client; durations and numbers (cli.h).
 *
 * A variable that is empty counts as not set. */
#include "client/cli/cli.h"

#include "gateway/digits.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *cli_variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

const char *cli_url(void)
{
    const char *url = cli_variable("FENCE_URL");
    return url ? url : CLI_DEFAULT_URL;
}

bool cli_wait_step(int64_t *wait_step_ms)
{
    const char *text = cli_variable("FENCE_WAIT_STEP");
    *wait_step_ms = 0;
    if (!text || (cli_read_duration(text, FENCE_WAIT_STEP_MS, wait_step_ms) && *wait_step_ms > 0))
        return true;
    cli_usage(NULL, "FENCE_WAIT_STEP is a duration from 1ms to 10m, not \"%s\"", text);
    return false;
}

struct fence_client *cli_open(int *exit_status)
{
    struct fence_client *client;
    struct fence_error error;
    struct fence_options options = {.url = cli_url()};
    enum fence_status status = fence_open(&client, &options, &error);
    if (status != FENCE_OK)
        *exit_status = cli_failed("FENCE_URL", status, &error);
    return client;
}

bool cli_read_duration(const char *text, int64_t most_ms, int64_t *ms)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    size_t digits = strspn(text, "0123456789");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        int64_t count;
        if (strcmp(text + digits, units[i].name) != 0)
            continue;
        if (!digits_read(text, digits, most_ms / units[i].ms, &count))
            return false;
        *ms = count * units[i].ms;
        return true;
    }
    return false;
}

bool cli_read_number(const char *text, int64_t least, int64_t most, int64_t *number)
{
    int64_t read;
    if (!digits_read(text, strlen(text), most, &read) || read < least)
        return false;
    *number = read;
    return true;
}
