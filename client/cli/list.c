/* list.c - the lists of the gateway (list.h). */
#include "client/cli/list.h"

#include "client/cli/answer.h"
#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "client/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 1000 };

/* Prints the items of a page. */
static void print_items(const struct cli_list *list, struct cli_table *table, const json_t *items,
                        enum cli_list_form form)
{
    size_t i;
    json_t *item;
    json_array_foreach(items, i, item)
    {
        if (list->is_wanted && !list->is_wanted(item, list->arg))
            continue;
        if (form == CLI_LIST_JSON)
            cli_print_json(json_incref(item));
        else
            list->add(table, item);
    }
    cli_table_flush(table);
}

/* Whether it is a page, and its cursor, if any, leads on: the same one again would never end. */
static bool is_page(const json_t *page, const char *cursor)
{
    size_t i;
    const json_t *item, *items = json_object_get(page, "items");
    const json_t *next = json_object_get(page, "next_cursor");
    json_array_foreach(items, i, item)
    {
        if (!json_is_object(item))
            return false;
    }
    return json_is_array(items) &&
           (json_is_null(next) ||
            (json_is_string(next) && strcmp(json_string_value(next), cursor) != 0));
}

/* As a segment of a path, without its slash. */
char *cli_list_encode(const char *text)
{
    char *path = cli_need(http_path(text, NULL));
    memmove(path, path + 1, strlen(path));
    return path;
}

/* Asks for the page behind `cursor` ("": the first one), and checks it. */
static enum fence_status read_page(struct fence_client *client, const struct cli_list *list,
                                   const char *cursor, json_t **page, struct fence_error *error)
{
    char *path, *after = cli_list_encode(cursor);
    int length = asprintf(&path, "%s?limit=%d%s%s%s", list->path, PAGE, list->query,
                          *cursor ? "&cursor=" : "", after);
    free(after);
    if (length < 0)
        path = NULL;
    enum fence_status status = cli_ask(client, "GET", cli_need(path), NULL, page, error);
    free(path);
    if (status == FENCE_OK && !is_page(*page, cursor))
        status = fence_fail(error, FENCE_BAD_ANSWER, "it is not a page of a list");
    return status;
}

/* Prints the page behind `*cursor`, and moves that on; to "" at the end. Returns the exit status.
 */
static int print_page(struct fence_client *client, const struct cli_list *list,
                      struct cli_table *table, char **cursor, enum cli_list_form form)
{
    json_t *page;
    struct fence_error error;
    enum fence_status status = read_page(client, list, *cursor, &page, &error);
    int exit_status;
    if (status == FENCE_OK) {
        print_items(list, table, json_object_get(page, "items"), form);
        free(*cursor);
        *cursor = cli_need(strdup(cli_string(page, "next_cursor", "")));
        exit_status = cli_finish(0);
    } else {
        exit_status = cli_failed(list->what, status, &error);
    }
    json_decref(page);
    return exit_status;
}

int cli_list_print(const struct cli_list *list, enum cli_list_form form)
{
    int exit_status;
    struct cli_table table;
    struct fence_client *client = cli_open(&exit_status);
    if (!client)
        return exit_status;
    char *cursor = cli_need(strdup(""));
    cli_table_open(&table, list->columns, list->column_count);
    do
        exit_status = print_page(client, list, &table, &cursor, form);
    while (exit_status == 0 && *cursor);
    cli_table_close(&table);
    free(cursor);
    fence_close(client);
    return exit_status;
}

void cli_list_add_number(struct cli_table *table, const json_t *item, const char *name)
{
    int64_t number = cli_number(item, name, -1);
    if (number < 0)
        cli_table_add(table, NULL);
    else
        cli_table_add_number(table, number);
}

bool cli_list_has_name(const char *command, const char *resource)
{
    if (*resource)
        return true;
    cli_usage(command, "a RESOURCE has at least one byte");
    return false;
}
