/* acquire.c - fence acquire: a lease that outlives the command.
 *
 * There is no watchdog, as the command ends at once: the lease runs by its TTL until somebody
 * renews or releases it. The exit status is 0 only where the lease is there and its output is
 * written. What was obtained together with a signal, or could not be told, is released. With -o env
 * the exit status is also what the output evaluates to: a script that does not look at it would go
 * on without a lease. */
#include "client/cli/answer.h"
#include "client/cli/cli.h"
#include "client/cli/environment.h"
#include "client/cli/options.h"
#include "client/cli/text.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { OWNER_BYTES = 128, LINE_BYTES = 512, WHAT_BYTES = 256 };

enum output { OUTPUT_TEXT, OUTPUT_JSON, OUTPUT_ENV };

/* ---- Signals --------------------------------------------------------------------------------- */

static const int ending_signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
static volatile sig_atomic_t first_signal;
static bool handed_over; /* the lease has been told */
static int signalled_fd; /* an eventfd: readable from the first one on */

/* The first ends the wait, the second everything. The library's threads block all signals, so this
 * runs on the main thread. */
static void on_signal(int number)
{
    if (first_signal)
        _exit(CLI_SIGNALLED + number);
    int saved_errno = errno;
    first_signal = number;
    eventfd_write(signalled_fd, 1);
    errno = saved_errno;
}

/* Says once that it takes longer, to whoever sits there. */
static char waiting_line[LINE_BYTES];

static void on_alarm(int number)
{
    (void)number;
    int saved_errno = errno;
    ssize_t written = write(STDERR_FILENO, waiting_line, strlen(waiting_line));
    (void)written;
    errno = saved_errno;
}

static void announce_wait(const char *resource)
{
    char shown[LINE_BYTES / 2];
    cli_text_escape(resource, shown, sizeof shown);
    snprintf(waiting_line, sizeof waiting_line, "fence: waiting for %s\n", shown);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm}, NULL);
    alarm(1);
}

/* What is ignored, as with nohup(1), stays so. */
static bool watch_signals(void)
{
    signalled_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signalled_fd < 0)
        return false;
    for (size_t i = 0; i < COUNT(ending_signals); i++) {
        struct sigaction action;
        sigaction(ending_signals[i], NULL, &action);
        if (action.sa_handler == SIG_IGN)
            continue;
        action = (struct sigaction){.sa_handler = on_signal};
        sigaction(ending_signals[i], &action, NULL);
    }
    return true;
}

/* ---- fence acquire --------------------------------------------------------------------------- */

struct acquire {
    int64_t ttl_ms, wait_ms, limit, not_held;
    bool no_wait;
    const char *owner;
    int output;
};

/* clang-format off */
static const struct cli_option acquire_options[] = {
{'t', "ttl", CLI_DURATION, offsetof(struct acquire, ttl_ms), "TTL",
 "how long it lasts, 50ms to 24h; default 30s", FENCE_TTL_LEAST_MS, FENCE_TTL_MOST_MS},
{'w', "wait", CLI_DURATION, offsetof(struct acquire, wait_ms), "WAIT",
 "how long to wait for it; default: without end", 0, CLI_LONG_MS},
{'n', "no-wait", CLI_FLAG, offsetof(struct acquire, no_wait), NULL,
 "do not wait", 0, 0},
{'E', "exit-code", CLI_NUMBER, offsetof(struct acquire, not_held), "CODE",
 "exit status where it is not obtained; default 75", 0, 255},
{'\0', "limit", CLI_NUMBER, offsetof(struct acquire, limit), "N",
 "how many may hold it at once, 1 to 1000", 1, 1000},
{'\0', "owner", CLI_TEXT, offsetof(struct acquire, owner), "NAME",
 "a label that others see; default USER@HOST", 0, 0},
{'o', "output", CLI_WORD, offsetof(struct acquire, output), "text|json|env",
 "the form of the output; default text", 0, 0},
};
/* clang-format on */

static const struct cli_form acquire_form = {
    .command = "acquire",
    .arguments = "RESOURCE",
    .purpose = "Takes a lease and prints it. Nobody renews it: it ends with its TTL, unless\n"
               "\"fence renew\" or \"fence release\" comes before. In a shell:\n\n"
               "    eval \"$(fence acquire -o env invoice:1)\" &&\n"
               "        fence put invoice:1 state paid && fence release\n",
    .options = acquire_options,
    .option_count = COUNT(acquire_options),
    .least_names = 1,
    .most_names = 1,
};

/* USER@HOST; whoever runs it by a number that no name belongs to is that number. */
static const char *default_owner(char owner[OWNER_BYTES + 1])
{
    char host[65] = "", number[16];
    const struct passwd *user = getpwuid(geteuid());
    gethostname(host, sizeof host - 1);
    snprintf(number, sizeof number, "%u", (unsigned)geteuid());
    snprintf(owner, OWNER_BYTES + 1, "%.*s@%s", (int)(OWNER_BYTES - sizeof host),
             user ? user->pw_name : number, host);
    return owner;
}

static void print_text(const struct fence_lease *lease)
{
    cli_print_fact("resource", fence_lease_resource(lease));
    cli_print_fact_number("token", fence_lease_token(lease));
    cli_print_fact("lease id", fence_lease_id(lease));
    cli_print_fact("owner", fence_lease_owner(lease));
    cli_print_fact_duration("expires in", fence_left_ms(lease));
    cli_print_fact_duration("waited", fence_lease_waited_ms(lease));
}

static void print_json(const struct fence_lease *lease)
{
    const char *owner = fence_lease_owner(lease), *expires_at = fence_lease_expires_at(lease);
    cli_print_json(json_pack(
        "{s:s, s:s, s:s?, s:I, s:i, s:I, s:I, s:s?, s:I}", "lease_id", fence_lease_id(lease),
        "resource", fence_lease_resource(lease), "owner", *owner ? owner : NULL, "fencing_token",
        (json_int_t)fence_lease_token(lease), "limit", fence_lease_limit(lease), "ttl_ms",
        (json_int_t)fence_lease_ttl_ms(lease), "expires_in_ms", (json_int_t)fence_left_ms(lease),
        "expires_at", *expires_at ? expires_at : NULL, "waited_ms",
        (json_int_t)fence_lease_waited_ms(lease)));
}

static void print_env(const struct fence_lease *lease)
{
    struct environment_values values;
    environment_read(lease, cli_url(), &values);
    for (size_t i = 0; i < ENVIRONMENT_COUNT; i++) {
        printf("export %s=", environment_names[i]);
        cli_text_print_quoted(stdout, values.texts[i]);
        putchar('\n');
    }
}

/* Tells of the lease, or gives it back. From the moment in which it has been told a signal changes
 * nothing: whoever reads us has it. */
static int hand_over(struct fence_lease *lease, enum output output)
{
    static void (*const print[])(const struct fence_lease *lease) = {
        [OUTPUT_TEXT] = print_text, [OUTPUT_JSON] = print_json, [OUTPUT_ENV] = print_env};
    int exit_status;
    if (first_signal) {
        exit_status = CLI_SIGNALLED + first_signal;
    } else {
        print[output](lease);
        exit_status = cli_finish(0);
        handed_over = exit_status == 0;
    }
    if (exit_status != 0)
        fence_release(lease, NULL);
    fence_lease_free(lease);
    return exit_status;
}

static int acquire(struct fence_client *client, const struct fence_terms *terms,
                   const struct acquire *options)
{
    struct fence_lease *lease;
    struct fence_error error;
    char what[WHAT_BYTES];
    if (terms->wait_ms != 0 && isatty(STDERR_FILENO))
        announce_wait(terms->resource);
    enum fence_status status = fence_acquire(client, terms, &lease, &error);
    alarm(0);
    if (status == FENCE_OK)
        return hand_over(lease, (enum output)options->output);
    if (first_signal)
        return CLI_SIGNALLED + first_signal;
    if (status == FENCE_HELD && options->not_held == 0) /* that is no failure */
        return 0;
    snprintf(what, sizeof what, "acquire %s", terms->resource);
    int exit_status = cli_failed(what, status, &error);
    return status == FENCE_HELD ? (int)options->not_held : exit_status;
}

static int acquire_as_asked(const struct acquire *options, const char *resource)
{
    char owner[OWNER_BYTES + 1];
    struct fence_terms terms = {
        .resource = resource,
        .owner = options->owner ? options->owner : default_owner(owner),
        .ttl_ms = options->ttl_ms,
        .wait_ms = options->no_wait ? 0 : options->wait_ms,
        .limit = (int)options->limit,
        .no_watchdog = true,
    };
    int exit_status;
    if (!cli_wait_step(&terms.wait_step_ms))
        return CLI_USAGE;
    if (!watch_signals()) {
        cli_say("acquire: no descriptors are left");
        return CLI_SYSTEM;
    }
    terms.cancel_fd = signalled_fd;
    struct fence_client *client = cli_open(&exit_status);
    if (!client)
        return exit_status;
    exit_status = acquire(client, &terms, options);
    fence_close(client);
    return exit_status;
}

int cli_acquire(int argc, char **argv)
{
    struct acquire options = {.wait_ms = FENCE_WAIT_FOREVER, .not_held = CLI_NOT_HELD};
    int exit_status;
    int names = cli_options_read(&acquire_form, argc, argv, &options, &exit_status);
    if (names != 0 && options.no_wait && options.wait_ms != FENCE_WAIT_FOREVER)
        exit_status = cli_usage("acquire", "-n and -w exclude each other");
    else if (names != 0)
        exit_status = acquire_as_asked(&options, argv[names]);
    /* Evaluating nothing would succeed. */
    if (options.output == OUTPUT_ENV && !handed_over && exit_status != CLI_OUTPUT) {
        printf("(exit %d)\n", exit_status ? exit_status : CLI_NOT_HELD);
        fflush(stdout);
    }
    return exit_status;
}
