/* history.c - fence history: the ledger's rows of a resource. */
#include "client/cli/answer.h"
#include "client/cli/cli.h"
#include "client/cli/list.h"
#include "client/cli/options.h"
#include "client/cli/text.h"
#include "client/http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define SEQ_MOST     INT64_C(9007199254740991)

enum { WHAT_BYTES = 256, DETAILS_BYTES = 1024 };

struct history {
    const char *kind;
    int64_t after;
    int output;
};

/* clang-format off */
static const struct cli_option history_options[] = {
{'\0', "kind", CLI_TEXT, offsetof(struct history, kind), "KIND",
 "only grant, renew, release, expire, revoke, write,\n"
 "                              delete, refuse, refused_dropped or config", 0, 0},
{'\0', "after", CLI_NUMBER, offsetof(struct history, after), "SEQ",
 "only what came after this one", 0, SEQ_MOST},
{'o', "output", CLI_WORD, offsetof(struct history, output), "text|json",
 "the form of the output; default text", 0, 0},
};
/* clang-format on */

static const struct cli_form history_form = {
    .command = "history",
    .arguments = "RESOURCE",
    .purpose = "Lists what has happened to a resource, oldest first. With -o json each is an\n"
               "object on a line of its own.\n",
    .options = history_options,
    .option_count = COUNT(history_options),
    .least_names = 1,
    .most_names = 1,
};

static const struct cli_column history_columns[] = {
    {"SEQ", true},    {"TIME", false}, {"KIND", false},    {"TOKEN", true},
    {"OWNER", false}, {"KEY", false},  {"DETAILS", false},
};

static enum cli_colour colour_of(const char *kind)
{
    static const struct {
        const char *kind;
        enum cli_colour colour;
    } colours[] = {{"grant", CLI_GREEN},
                   {"expire", CLI_YELLOW},
                   {"revoke", CLI_YELLOW},
                   {"refuse", CLI_RED},
                   {"refused_dropped", CLI_RED}};
    for (size_t i = 0; i < COUNT(colours); i++) {
        if (strcmp(colours[i].kind, kind) == 0)
            return colours[i].colour;
    }
    return CLI_PLAIN;
}

/* What a row tells beside its columns, as "v3", "stale_fencing_token: superseded", "for 30.0 s";
 * and when it happened, where that was before the row was written. */
static void describe(const json_t *row, char *text, size_t bytes)
{
    const char *code = cli_string(row, "code", ""), *reason = cli_string(row, "reason", "");
    const char *ended_at = cli_string(row, "ended_at", cli_string(row, "at", ""));
    int64_t version = cli_number(row, "version", 0), ttl_ms = cli_number(row, "ttl_ms", 0);
    int64_t count = cli_number(row, "count", 0);
    char duration[CLI_DURATION_BYTES];
    if (count > 0)
        snprintf(text, bytes, "%" PRId64 " more", count);
    else if (*code || *reason)
        snprintf(text, bytes, "%s%s%s", code, *code && *reason ? ": " : "", reason);
    else if (version > 0)
        snprintf(text, bytes, "v%" PRId64, version);
    else if (ttl_ms > 0)
        snprintf(text, bytes, "for %s", cli_text_duration(ttl_ms, duration));
    else if (strcmp(ended_at, cli_string(row, "at", "")) != 0)
        snprintf(text, bytes, "at %s", ended_at);
    else
        snprintf(text, bytes, "-");
}

static void add_row(struct cli_table *table, const json_t *row)
{
    const char *kind = cli_string(row, "kind", "?");
    char details[DETAILS_BYTES];
    describe(row, details, sizeof details);
    cli_list_add_number(table, row, "seq");
    cli_table_add(table, cli_string(row, "at", NULL));
    cli_table_add_coloured(table, kind, colour_of(kind));
    cli_list_add_number(table, row, "fencing_token");
    cli_table_add(table, cli_string(row, "owner", NULL));
    cli_table_add(table, cli_string(row, "key", NULL));
    cli_table_add(table, details);
}

int cli_history(int argc, char **argv)
{
    struct history options = {0};
    int exit_status;
    int names = cli_options_read(&history_form, argc, argv, &options, &exit_status);
    if (names == 0)
        return exit_status;
    if (!cli_list_has_name("history", argv[names]))
        return CLI_USAGE;
    char what[WHAT_BYTES], *query, *path;
    char *kind = cli_list_encode(options.kind ? options.kind : "");
    if (asprintf(&query, "%s%s&after=%" PRId64, options.kind ? "&kind=" : "", kind, options.after) <
        0)
        query = NULL;
    free(kind);
    path = cli_need(http_path("resources", argv[names], "history", NULL));
    snprintf(what, sizeof what, "history %s", argv[names]);
    struct cli_list list = {.what = what,
                            .path = path,
                            .query = cli_need(query),
                            .columns = history_columns,
                            .column_count = COUNT(history_columns),
                            .add = add_row};
    exit_status = cli_list_print(&list, (enum cli_list_form)options.output);
    free(query);
    free(path);
    return exit_status;
}
