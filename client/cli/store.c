/* store.c - fence put, get, rm: records, written by right of a token.
 *
 * The token is --token, or that of the environment, as `fence run` and `fence acquire -o env` set
 * it; but only where FENCE_RESOURCE is the very resource that is written: a token means nothing to
 * another one. A read is a plain read unless --token is given. */
#include "client/cli/answer.h"
#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "client/cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array)      (sizeof(array) / sizeof(array)[0])
#define NUMBER_MOST       INT64_C(9007199254740991)
#define VALUE_BYTES_FIRST ((size_t)1 << 16)
#define VALUE_BYTES_MOST  ((size_t)1 << 30) /* no gateway takes more */

enum { WHAT_BYTES = 512, HTTP_TOKEN_REQUIRED = 428 };

struct store {
    int64_t token;
    bool no_token;
    const char *lease_id;
    const char *if_version;
    const char *type;
    int output;
};

enum output { OUTPUT_RAW, OUTPUT_JSON };

/* clang-format off */
#define OPTION_TOKEN \
{'\0', "token", CLI_NUMBER, offsetof(struct store, token), "N", \
 "by right of this fencing token", 1, NUMBER_MOST}
#define OPTION_NO_TOKEN \
{'\0', "no-token", CLI_FLAG, offsetof(struct store, no_token), NULL, \
 "by right of none: the resource is not fenced", 0, 0}
#define OPTION_LEASE_ID \
{'\0', "lease-id", CLI_TEXT, offsetof(struct store, lease_id), "ID", \
 "the lease that the token has to belong to", 0, 0}

static const struct cli_option put_options[] = {
OPTION_TOKEN,
OPTION_NO_TOKEN,
OPTION_LEASE_ID,
{'\0', "if-version", CLI_TEXT, offsetof(struct store, if_version), "N|absent",
 "only where this is what is there", 0, 0},
{'\0', "type", CLI_TEXT, offsetof(struct store, type), "MIME",
 "the type; default application/octet-stream", 0, 0},
};

static const struct cli_option get_options[] = {
{'\0', "token", CLI_NUMBER, offsetof(struct store, token), "N",
 "only while this fencing token is live", 1, NUMBER_MOST},
{'o', "output", CLI_WORD, offsetof(struct store, output), "raw|json",
 "the form of the output; default raw", 0, 0},
};

static const struct cli_option rm_options[] = {
OPTION_TOKEN,
OPTION_NO_TOKEN,
OPTION_LEASE_ID,
{'\0', "if-version", CLI_TEXT, offsetof(struct store, if_version), "N",
 "only where this version is there", 0, 0},
};
/* clang-format on */

static const struct cli_form put_form = {
    .command = "put",
    .arguments = "RESOURCE KEY [VALUE|@FILE|-]",
    .purpose = "Writes a record and prints its new version. The value is VALUE, what FILE holds,\n"
               "or, with - or nothing, the standard input. The token is $FENCE_TOKEN where\n"
               "$FENCE_RESOURCE is RESOURCE. Exit status 80: it is stale; 1: another version.\n",
    .options = put_options,
    .option_count = COUNT(put_options),
    .least_names = 2,
    .most_names = 3,
};

static const struct cli_form get_form = {
    .command = "get",
    .arguments = "RESOURCE KEY",
    .purpose = "Prints the value of a record as it was written, and nothing else.\n",
    .options = get_options,
    .option_count = COUNT(get_options),
    .least_names = 2,
    .most_names = 2,
};

static const struct cli_form rm_form = {
    .command = "rm",
    .arguments = "RESOURCE KEY",
    .purpose = "Deletes a record. The token is as for put.\n",
    .options = rm_options,
    .option_count = COUNT(rm_options),
    .least_names = 2,
    .most_names = 2,
};

/* ---- By what right --------------------------------------------------------------------------- */

/* False: the variable is wrong; that has been said. */
static bool take_token_of_environment(const char *command, struct fence_record *record)
{
    const char *token = cli_variable("FENCE_TOKEN"), *resource = cli_variable("FENCE_RESOURCE");
    if (!token || !resource || strcmp(resource, record->resource) != 0)
        return true;
    if (!cli_read_number(token, 1, NUMBER_MOST, &record->token)) {
        cli_usage(command, "FENCE_TOKEN is no fencing token: \"%s\"", token);
        return false;
    }
    if (!record->lease_id)
        record->lease_id = cli_variable("FENCE_LEASE_ID");
    return true;
}

static bool take_version(const char *command, const char *text, bool may_be_absent,
                         int64_t *if_version)
{
    if (!text || cli_read_number(*text == 'v' ? text + 1 : text, 1, NUMBER_MOST, if_version))
        return true; /* "v3" is what put prints */
    if (may_be_absent && strcmp(text, "absent") == 0) {
        *if_version = FENCE_ABSENT;
        return true;
    }
    cli_usage(command, "--if-version takes the number of a version%s, not \"%s\"",
              may_be_absent ? " or \"absent\"" : "", text);
    return false;
}

/* What `put` and `rm` are to write. False: something is wrong; that has been said. */
static bool read_record(const char *command, const struct store *options, char **names,
                        bool may_be_absent, struct fence_record *record)
{
    *record = (struct fence_record){.resource = names[0],
                                    .key = names[1],
                                    .token = options->token,
                                    .lease_id = options->lease_id};
    if (options->no_token && (options->token || options->lease_id)) {
        cli_usage(command, "--no-token excludes --token and --lease-id");
        return false;
    }
    return take_version(command, options->if_version, may_be_absent, &record->if_version) &&
           (options->token || options->no_token || take_token_of_environment(command, record));
}

static int failed(const char *command, const struct fence_record *record, enum fence_status status,
                  const struct fence_error *error)
{
    char what[WHAT_BYTES];
    snprintf(what, sizeof what, "%s %.200s %.200s", command, record->resource, record->key);
    int exit_status = cli_failed(what, status, error);
    const char *token = cli_variable("FENCE_TOKEN"), *resource = cli_variable("FENCE_RESOURCE");
    if (error->http_status != HTTP_TOKEN_REQUIRED)
        return exit_status;
    if (token && resource && strcmp(resource, record->resource) != 0)
        cli_say("FENCE_TOKEN was not sent: it is for %.200s", resource);
    else if (!token)
        cli_say("fence run, eval \"$(fence acquire -o env ...)\" and --token give it one");
    return exit_status;
}

/* ---- Values ---------------------------------------------------------------------------------- */

struct value {
    char *bytes;
    size_t count, room;
};

static int unreadable(const char *name, const char *why)
{
    cli_say("put: %s: %s", name, why);
    return CLI_USAGE;
}

/* Reads the descriptor to its end. Returns 0 or an exit status. */
static int read_all(int fd, const char *name, struct value *value)
{
    for (;;) {
        if (value->count >= VALUE_BYTES_MOST)
            return unreadable(name, "too large for any gateway");
        if (value->count == value->room) {
            value->room = value->room > 0 ? 2 * value->room : VALUE_BYTES_FIRST;
            value->bytes = cli_need(realloc(value->bytes, value->room));
        }
        ssize_t got = read(fd, value->bytes + value->count, value->room - value->count);
        if (got == 0)
            return 0;
        if (got > 0)
            value->count += (size_t)got;
        else if (errno != EINTR)
            return unreadable(name, strerror(errno));
    }
}

static int read_file(const char *path, struct value *value)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return unreadable(path, strerror(errno));
    int exit_status = read_all(fd, path, value);
    close(fd);
    return exit_status;
}

static int read_value(const char *source, struct value *value)
{
    if (!source || strcmp(source, "-") == 0)
        return read_all(STDIN_FILENO, "standard input", value);
    if (*source == '@')
        return read_file(source + 1, value);
    value->bytes = cli_need(strdup(source));
    value->count = strlen(source);
    return 0;
}

/* ---- The commands ---------------------------------------------------------------------------- */

static int put(const struct fence_record *record, const struct store *options,
               const struct value *value)
{
    int exit_status = 0;
    struct fence_error error;
    int64_t version;
    struct fence_client *client = cli_open(&exit_status);
    if (!client)
        return exit_status;
    enum fence_status status =
        options->type ? fence_put_as(client, record, options->type, value->bytes, value->count,
                                     &version, &error)
                      : fence_put(client, record, value->bytes, value->count, &version, &error);
    fence_close(client);
    if (status != FENCE_OK)
        return failed("put", record, status, &error);
    printf("v%" PRId64 "\n", version);
    return cli_finish(0);
}

int cli_put(int argc, char **argv)
{
    struct store options = {0};
    struct fence_record record;
    struct value value = {0};
    int exit_status;
    int names = cli_options_read(&put_form, argc, argv, &options, &exit_status);
    if (names == 0)
        return exit_status;
    if (!read_record("put", &options, argv + names, true, &record))
        return CLI_USAGE;
    exit_status = read_value(argv[names + 2], &value);
    if (exit_status == 0)
        exit_status = put(&record, &options, &value);
    free(value.bytes);
    return exit_status;
}

static void print_record(const struct fence_record *record, const struct fence_value *value)
{
    bool is_text = cli_text_is_utf8(value->bytes, value->count);
    json_t *content;
    if (is_text) {
        content = json_stringn(value->bytes, value->count);
    } else {
        char *base64 = cli_text_base64(value->bytes, value->count);
        content = json_string(base64);
        free(base64);
    }
    cli_print_json(
        json_pack("{s:s, s:s, s:I, s:o, s:I, s:s?, s:o}", "resource", record->resource, "key",
                  record->key, "version", (json_int_t)value->version, "fencing_token",
                  value->token > 0 ? json_integer((json_int_t)value->token) : json_null(), "bytes",
                  (json_int_t)value->count, "content_type", value->content_type,
                  is_text ? "value" : "value_base64", content));
}

int cli_get(int argc, char **argv)
{
    struct store options = {0};
    int exit_status;
    int names = cli_options_read(&get_form, argc, argv, &options, &exit_status);
    if (names == 0)
        return exit_status;
    struct fence_client *client = cli_open(&exit_status);
    if (!client)
        return exit_status;
    struct fence_record record = {
        .resource = argv[names], .key = argv[names + 1], .token = options.token};
    struct fence_value value;
    struct fence_error error;
    enum fence_status status = fence_get(client, &record, &value, &error);
    fence_close(client);
    if (status != FENCE_OK)
        exit_status = failed("get", &record, status, &error);
    else if (options.output == OUTPUT_JSON)
        print_record(&record, &value);
    else
        fwrite(value.bytes, 1, value.count, stdout);
    fence_value_free(&value);
    return status == FENCE_OK ? cli_finish(0) : exit_status;
}

int cli_rm(int argc, char **argv)
{
    struct store options = {0};
    struct fence_record record;
    struct fence_error error;
    int exit_status;
    int names = cli_options_read(&rm_form, argc, argv, &options, &exit_status);
    if (names == 0)
        return exit_status;
    if (!read_record("rm", &options, argv + names, false, &record))
        return CLI_USAGE;
    struct fence_client *client = cli_open(&exit_status);
    if (!client)
        return exit_status;
    enum fence_status status = fence_delete(client, &record, &error);
    fence_close(client);
    return status == FENCE_OK ? 0 : failed("rm", &record, status, &error);
}
