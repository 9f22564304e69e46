/* show.c - fence ls, fence inspect: what there is, and who holds it. */
#include "client/cli/answer.h"
#include "client/cli/cli.h"
#include "client/cli/list.h"
#include "client/cli/options.h"
#include "client/cli/text.h"
#include "client/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { WHAT_BYTES = 256, CELL_BYTES = 1024, HOLDERS_SHOWN = 3 };

/* ---- fence ls -------------------------------------------------------------------------------- */

struct ls {
    bool keys;
    int output;
};

/* clang-format off */
static const struct cli_option ls_options[] = {
{'\0', "keys", CLI_FLAG, offsetof(struct ls, keys), NULL,
 "the records of a resource", 0, 0},
{'o', "output", CLI_WORD, offsetof(struct ls, output), "text|json",
 "the form of the output; default text", 0, 0},
};
/* clang-format on */

static const struct cli_form ls_form = {
    .command = "ls",
    .arguments = "[PREFIX] | --keys RESOURCE [PREFIX]",
    .purpose = "Lists the resources, or the records of one, whose names begin with PREFIX.\n"
               "With -o json each is an object on a line of its own.\n",
    .options = ls_options,
    .option_count = COUNT(ls_options),
    .most_names = 2,
};

static const struct cli_column resource_columns[] = {
    {"RESOURCE", false}, {"STATE", false}, {"HOLDERS", true},  {"LIMIT", true},
    {"WAITERS", true},   {"TOKEN", true},  {"HELD BY", false},
};

static bool has_prefix(const json_t *resource, const void *prefix)
{
    return strncmp(cli_string(resource, "resource", ""), prefix, strlen(prefix)) == 0;
}

/* How long a holder has it, where that is known. */
static const char *time_left(const json_t *holder, char text[CLI_DURATION_BYTES])
{
    int64_t left_ms = cli_number(holder, "expires_in_ms", -1);
    return left_ms < 0 ? "?" : cli_text_duration(left_ms, text);
}

/* "worker-A (12.4 s), worker-B (3.0 s), ..." */
static void join_holders(const json_t *holders, char *text, size_t bytes)
{
    size_t used = 0, count = json_array_size(holders);
    snprintf(text, bytes, "-");
    for (size_t i = 0; i < count && used < bytes; i++) {
        const json_t *holder = json_array_get(holders, i);
        char left[CLI_DURATION_BYTES];
        int added = i == HOLDERS_SHOWN
                        ? snprintf(text + used, bytes - used, ", ...")
                        : snprintf(text + used, bytes - used, "%s%.200s (%s)", i > 0 ? ", " : "",
                                   cli_string(holder, "owner", "somebody"),
                                   time_left(holder, left));
        used += (size_t)added;
        if (i == HOLDERS_SHOWN)
            break;
    }
}

static void add_resource(struct cli_table *table, const json_t *resource)
{
    const json_t *holders = json_object_get(resource, "holders");
    bool is_fenced = !json_is_false(json_object_get(resource, "fenced"));
    char held_by[CELL_BYTES];
    join_holders(holders, held_by, sizeof held_by);
    cli_table_add(table, cli_string(resource, "resource", NULL));
    if (!is_fenced)
        cli_table_add_coloured(table, "unfenced", CLI_YELLOW);
    else if (json_array_size(holders) > 0)
        cli_table_add_coloured(table, "held", CLI_GREEN);
    else
        cli_table_add(table, "free");
    cli_table_add_number(table, (int64_t)json_array_size(holders));
    cli_table_add_number(table, cli_number(resource, "limit", 1));
    cli_table_add_number(table, cli_number(resource, "waiters", 0));
    cli_table_add_number(table, cli_number(resource, "highest_fencing_token", 0));
    cli_table_add(table, held_by);
}

static const struct cli_column record_columns[] = {
    {"KEY", false},  {"VERSION", true}, {"TOKEN", true},
    {"BYTES", true}, {"TYPE", false},   {"UPDATED", false},
};

static void add_record(struct cli_table *table, const json_t *record)
{
    cli_table_add(table, cli_string(record, "key", NULL));
    cli_list_add_number(table, record, "version");
    cli_list_add_number(table, record, "fencing_token");
    cli_list_add_number(table, record, "bytes");
    cli_table_add(table, cli_string(record, "content_type", NULL));
    cli_table_add(table, cli_string(record, "updated_at", NULL));
}

static int list_resources(const char *prefix, enum cli_list_form form)
{
    struct cli_list list = {.what = "ls",
                            .path = "/resources",
                            .query = "",
                            .columns = resource_columns,
                            .column_count = COUNT(resource_columns),
                            .is_wanted = has_prefix,
                            .arg = prefix,
                            .add = add_resource};
    return cli_list_print(&list, form);
}

static int list_records(const char *resource, const char *prefix, enum cli_list_form form)
{
    char what[WHAT_BYTES], *query, *value = cli_list_encode(prefix), *path;
    if (asprintf(&query, "%s%s", *prefix ? "&prefix=" : "", value) < 0)
        query = NULL;
    free(value);
    snprintf(what, sizeof what, "ls --keys %s", resource);
    path = cli_need(http_path("store", resource, NULL));
    struct cli_list list = {.what = what,
                            .path = path,
                            .query = cli_need(query),
                            .columns = record_columns,
                            .column_count = COUNT(record_columns),
                            .add = add_record};
    int exit_status = cli_list_print(&list, form);
    free(query);
    free(path);
    return exit_status;
}

int cli_ls(int argc, char **argv)
{
    struct ls options = {0};
    int exit_status;
    int names = cli_options_read(&ls_form, argc, argv, &options, &exit_status);
    if (names == 0)
        return exit_status;
    int count = argc - names;
    if (options.keys && count == 0)
        return cli_usage("ls", "--keys needs a RESOURCE");
    if (!options.keys && count == 2)
        return cli_usage("ls", "\"%s\" is too much: it takes [PREFIX]", argv[names + 1]);
    if (options.keys && !cli_list_has_name("ls", argv[names]))
        return CLI_USAGE;
    if (options.keys)
        return list_records(argv[names], count == 2 ? argv[names + 1] : "",
                            (enum cli_list_form)options.output);
    return list_resources(count == 1 ? argv[names] : "", (enum cli_list_form)options.output);
}

/* ---- fence inspect --------------------------------------------------------------------------- */

struct inspect {
    int output;
};

/* clang-format off */
static const struct cli_option inspect_options[] = {
{'o', "output", CLI_WORD, offsetof(struct inspect, output), "text|json",
 "the form of the output; default text", 0, 0},
};
/* clang-format on */

static const struct cli_form inspect_form = {
    .command = "inspect",
    .arguments = "RESOURCE",
    .purpose = "Shows a resource: who holds it and for how long, who waits, the newest token.\n",
    .options = inspect_options,
    .option_count = COUNT(inspect_options),
    .least_names = 1,
    .most_names = 1,
};

static const struct cli_column holder_columns[] = {
    {"TOKEN", true}, {"OWNER", false}, {"LEFT", false}};

static void print_resource(const json_t *resource)
{
    size_t i;
    json_t *holder, *holders = json_object_get(resource, "holders");
    bool is_fenced = !json_is_false(json_object_get(resource, "fenced"));
    cli_print_fact("resource", cli_string(resource, "resource", ""));
    cli_print_fact("fenced", is_fenced ? "yes" : "no");
    cli_print_fact_number("limit", cli_number(resource, "limit", 1));
    cli_print_fact_number("highest token", cli_number(resource, "highest_fencing_token", 0));
    cli_print_fact_number("waiters", cli_number(resource, "waiters", 0));
    cli_print_fact_number("holders", (int64_t)json_array_size(holders));
    if (json_array_size(holders) == 0)
        return;
    struct cli_table table;
    cli_table_open(&table, holder_columns, COUNT(holder_columns));
    json_array_foreach(holders, i, holder)
    {
        char left[CLI_DURATION_BYTES];
        cli_table_add_number(&table, cli_number(holder, "fencing_token", 0));
        cli_table_add(&table, cli_string(holder, "owner", NULL));
        cli_table_add(&table, time_left(holder, left));
    }
    putchar('\n');
    cli_table_flush(&table);
    cli_table_close(&table);
}

static int inspect(struct fence_client *client, const char *name, enum cli_list_form form)
{
    char what[WHAT_BYTES], *path = cli_need(http_path("resources", name, NULL));
    struct fence_error error;
    json_t *resource;
    int exit_status = 0;
    enum fence_status status = cli_ask(client, "GET", path, NULL, &resource, &error);
    if (status == FENCE_OK && !json_is_array(json_object_get(resource, "holders")))
        status = fence_fail(&error, FENCE_BAD_ANSWER, "it is not a resource");
    snprintf(what, sizeof what, "inspect %s", name);
    if (status != FENCE_OK)
        exit_status = cli_failed(what, status, &error);
    else if (form == CLI_LIST_JSON)
        cli_print_json(json_incref(resource));
    else
        print_resource(resource);
    json_decref(resource);
    free(path);
    return exit_status;
}

int cli_inspect(int argc, char **argv)
{
    struct inspect options = {0};
    int exit_status;
    int names = cli_options_read(&inspect_form, argc, argv, &options, &exit_status);
    if (names == 0)
        return exit_status;
    if (!cli_list_has_name("inspect", argv[names]))
        return CLI_USAGE;
    struct fence_client *client = cli_open(&exit_status);
    if (!client)
        return exit_status;
    exit_status = inspect(client, argv[names], (enum cli_list_form)options.output);
    fence_close(client);
    return exit_status == 0 ? cli_finish(0) : exit_status;
}
