/* run_options.c - the command line of `fence run` (run_options.h). Options stand before
 * RESOURCE: what stands behind it is the job's. */
#include "client/cli/run_options.h"

#include "client/cli/cli.h"
#include "client/cli/options.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIELD(name) offsetof(struct run_options, name)

/* clang-format off */
static const struct cli_option known[] = {
{'t', "ttl", CLI_DURATION, FIELD(ttl_ms), "TTL",
 "how long the others wait if we die; default 30s", FENCE_TTL_LEAST_MS, FENCE_TTL_MOST_MS},
{'w', "wait", CLI_DURATION, FIELD(wait_ms), "WAIT",
 "how long to wait for it; default: without end", 0, CLI_LONG_MS},
{'n', "no-wait", CLI_FLAG, FIELD(no_wait), NULL,
 "do not wait", 0, 0},
{'E', "exit-code", CLI_NUMBER, FIELD(not_held), "CODE",
 "exit status where it is not obtained; default 75", 0, 255},
{'\0', "limit", CLI_NUMBER, FIELD(limit), "N",
 "how many may hold it at once, 1 to 1000", 1, 1000},
{'\0', "kill-after", CLI_DURATION, FIELD(kill_after_ms), "DUR",
 "between TERM and KILL; default 5s, at most TTL/3", 0, CLI_LONG_MS},
{'\0', "min-hold", CLI_DURATION, FIELD(min_hold_ms), "DUR",
 "hold it at least that long, also after the job", 0, CLI_LONG_MS},
{'\0', "max-hold", CLI_DURATION, FIELD(max_hold_ms), "DUR",
 "end the job after that", 1, CLI_LONG_MS},
{'\0', "owner", CLI_TEXT, FIELD(owner), "NAME",
 "a label that others see; default HOST:PID", 0, 0},
};

static const struct cli_form form = {
    .command = "run",
    .arguments = "RESOURCE -- CMD [ARG...]",
    .purpose = "Waits for a lease of RESOURCE, runs CMD under it, and gives it back. CMD and all\n"
               "that it starts is killed before the lease can go to somebody else. It finds\n"
               "FENCE_TOKEN and FENCE_LEASE_ID in its environment, and so does \"fence put\".\n",
    .options = known,
    .option_count = sizeof known / sizeof known[0],
    .stops_at_names = true,
    .least_names = 2,
    .most_names = INT_MAX,
};
/* clang-format on */

/* HOST:PID */
static void set_default_owner(struct run_options *options)
{
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    snprintf(options->default_owner, sizeof options->default_owner, "%s:%d", host, (int)getpid());
    options->owner = options->default_owner;
}

/* The bounds that depend on each other. False: *exit_status is set. */
static bool settle(struct run_options *options, int *exit_status)
{
    if (options->no_wait && options->wait_ms != FENCE_WAIT_FOREVER) {
        *exit_status = cli_usage("run", "-n and -w exclude each other");
        return false;
    }
    if (options->max_hold_ms > 0 && options->min_hold_ms > options->max_hold_ms) {
        *exit_status = cli_usage("run", "--min-hold is longer than --max-hold");
        return false;
    }
    if (options->no_wait)
        options->wait_ms = 0;
    if (options->kill_after_ms > options->ttl_ms / 3)
        options->kill_after_ms = options->ttl_ms / 3;
    if (options->max_hold_ms > 0 && options->kill_after_ms >= options->max_hold_ms)
        options->kill_after_ms = options->max_hold_ms / 3;
    return true;
}

bool run_options_read(struct run_options *options, int argc, char **argv, int *exit_status)
{
    *options = (struct run_options){
        .ttl_ms = 30000,
        .wait_ms = FENCE_WAIT_FOREVER,
        .not_held = CLI_NOT_HELD,
        .kill_after_ms = 5000,
    };
    set_default_owner(options);
    int names = cli_options_read(&form, argc, argv, options, exit_status);
    if (names == 0)
        return false;
    options->resource = argv[names];
    options->command = argv + names + 1;
    const char *word = options->command[0];
    if (strcmp(word, "--") == 0) {
        options->command++;
    } else if (word[0] == '-') {
        *exit_status = cli_usage("run",
                                 "\"%s\" stands behind RESOURCE: options stand before it, "
                                 "and CMD behind --",
                                 word);
        return false;
    }
    if (!options->command[0]) {
        *exit_status = cli_usage("run", "a CMD is missing");
        return false;
    }
    return settle(options, exit_status);
}
