/* lease.c - fence renew, fence release: leases by their id. */
#include "client/cli/answer.h"
#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "client/cli/text.h"
#include "client/http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum {
    ID_BYTES_LEAST = 22, /* 128 random bits at least */
    ID_BYTES_MOST = 256
};

enum output { OUTPUT_TEXT, OUTPUT_JSON };

/* ---- What both do ---------------------------------------------------------------------------- */

static const char id_bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";

/* Takes the id out of argv, if there is one. It may begin with a dash, as one in 64 does, and would
 * be taken for options; but no option is as long, and without "=". */
static const char *take_id(int *argc, char **argv)
{
    for (int i = 1; i < *argc; i++) {
        size_t bytes = strlen(argv[i]);
        if (bytes < ID_BYTES_LEAST || strspn(argv[i], id_bytes) != bytes)
            continue;
        const char *id = argv[i];
        memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof *argv);
        (*argc)--;
        return id;
    }
    return NULL;
}

/* Reads the arguments of a command that takes an id; without one it is $FENCE_LEASE_ID. An id is a
 * secret, so it is not shown. NULL: *exit_status is set. */
static const char *read_id(const struct cli_form *form, int argc, char **argv, void *options,
                           int *exit_status)
{
    const char *taken = take_id(&argc, argv), *variable = cli_variable("FENCE_LEASE_ID");
    int names = cli_options_read(form, argc, argv, options, exit_status);
    if (names == 0)
        return NULL;
    const char *named = taken ? taken : argv[names], *id = named ? named : variable;
    if (taken && argv[names])
        *exit_status = cli_usage(form->command, "it takes one LEASE_ID");
    else if (!id || !*id)
        *exit_status =
            cli_usage(form->command, "there is no LEASE_ID, and FENCE_LEASE_ID is not set");
    else if (id[strspn(id, id_bytes)] || strlen(id) > ID_BYTES_MOST)
        *exit_status =
            cli_usage(form->command, "%s is not a lease id", named ? "LEASE_ID" : "FENCE_LEASE_ID");
    else
        return id;
    return NULL;
}

/* Asks about a lease. Returns the exit status; with 0 `*json` is the answer. */
static int ask(const char *command, const char *method, char *path, const char *body, json_t **json)
{
    int exit_status = 0;
    struct fence_client *client = cli_open(&exit_status);
    if (client) {
        struct fence_error error;
        enum fence_status status = cli_ask(client, method, cli_need(path), body, json, &error);
        if (status != FENCE_OK)
            exit_status = cli_failed(command, status, &error);
        if (status == FENCE_NOT_FOUND)
            exit_status = CLI_LOST;
        fence_close(client);
    }
    free(path);
    return exit_status;
}

static int bad_answer(const char *command, const char *why)
{
    struct fence_error error;
    return cli_failed(command, fence_fail(&error, FENCE_BAD_ANSWER, "%s", why), &error);
}

/* ---- fence renew ----------------------------------------------------------------------------- */

struct renew {
    int64_t ttl_ms;
    int output;
};

/* clang-format off */
static const struct cli_option renew_options[] = {
{'t', "ttl", CLI_DURATION, offsetof(struct renew, ttl_ms), "TTL",
 "from now on; default: that of the grant", FENCE_TTL_LEAST_MS, FENCE_TTL_MOST_MS},
{'o', "output", CLI_WORD, offsetof(struct renew, output), "text|json",
 "the form of the output; default text", 0, 0},
};
/* clang-format on */

static const struct cli_form renew_form = {
    .command = "renew",
    .arguments = "[LEASE_ID]",
    .purpose = "Lets a lease run on, and prints it. LEASE_ID is $FENCE_LEASE_ID where it is not\n"
               "given. One that has run out cannot be renewed: exit status 79.\n",
    .options = renew_options,
    .option_count = COUNT(renew_options),
    .most_names = 1,
};

static int print_renewed(json_t *lease, enum output output)
{
    int64_t token = cli_number(lease, "fencing_token", 0);
    int64_t expires_in_ms = cli_number(lease, "expires_in_ms", 0);
    if (token <= 0) {
        json_decref(lease);
        return bad_answer("renew", "it tells of no fencing token");
    }
    if (output == OUTPUT_JSON) {
        cli_print_json(lease);
        return cli_finish(0);
    }
    cli_print_fact("resource", cli_string(lease, "resource", ""));
    cli_print_fact_number("token", token);
    cli_print_fact("owner", cli_string(lease, "owner", ""));
    cli_print_fact_duration("expires in", expires_in_ms);
    json_decref(lease);
    return cli_finish(0);
}

int cli_renew(int argc, char **argv)
{
    struct renew options = {0};
    int exit_status;
    const char *id = read_id(&renew_form, argc, argv, &options, &exit_status);
    if (!id)
        return exit_status;
    char body[48] = "{}";
    if (options.ttl_ms > 0)
        snprintf(body, sizeof body, "{\"ttl_ms\":%" PRId64 "}", options.ttl_ms);
    json_t *lease;
    exit_status = ask("renew", "POST", http_path("leases", id, "renew", NULL), body, &lease);
    return exit_status == 0 ? print_renewed(lease, (enum output)options.output) : exit_status;
}

/* ---- fence release --------------------------------------------------------------------------- */

static const struct cli_form release_form = {
    .command = "release",
    .arguments = "[LEASE_ID]",
    .purpose = "Gives a lease back. LEASE_ID is $FENCE_LEASE_ID where it is not given. After\n"
               "that no write of its token is accepted. Releasing twice is fine; where the lease\n"
               "was replaced or revoked meanwhile, the exit status is 79.\n",
    .most_names = 1,
};

static void tell_released(const json_t *released)
{
    char held[CLI_DURATION_BYTES];
    if (json_is_true(json_object_get(released, "already_released")))
        cli_say("release: it had been released before");
    else if (json_is_true(json_object_get(released, "expired")))
        cli_say("release: it had run out, and nobody had replaced it");
    else if (isatty(STDERR_FILENO))
        cli_say("release: held for %s",
                cli_text_duration(cli_number(released, "held_ms", 0), held));
}

int cli_release(int argc, char **argv)
{
    int exit_status;
    const char *id = read_id(&release_form, argc, argv, NULL, &exit_status);
    if (!id)
        return exit_status;
    json_t *released;
    exit_status = ask("release", "DELETE", http_path("leases", id, NULL), NULL, &released);
    if (exit_status != 0)
        return exit_status;
    if (!json_is_true(json_object_get(released, "released")))
        exit_status = bad_answer("release", "it does not say that it released the lease");
    else
        tell_released(released);
    json_decref(released);
    return exit_status;
}
