/* list.h - the lists of the gateway, read and printed page by page: as a table for people, or
 * as one JSON object per line. Main thread only. */
#ifndef FENCE_CLI_LIST_H
#define FENCE_CLI_LIST_H

#include "client/cli/table.h"

#include <jansson.h>

enum cli_list_form { CLI_LIST_TEXT, CLI_LIST_JSON };

struct cli_list {
    const char *what;  /* for errors: "ls" */
    const char *path;  /* from "/" on */
    const char *query; /* "", or from "&" on */
    const struct cli_column *columns;
    size_t column_count;
    bool (*is_wanted)(const json_t *item, const void *arg); /* NULL: all are */
    const void *arg;
    void (*add)(struct cli_table *table, const json_t *item); /* one row */
};

/* Prints all of it to stdout. Returns the exit status; where it is not 0, that has been said, and
 * the pages before stand printed. */
int cli_list_print(const struct cli_list *list, enum cli_list_form form);

/* A text as the value of a query, percent-encoded; malloc()ed, never NULL. */
char *cli_list_encode(const char *text);

/* Adds a number of the item as a cell; "-" where it has none. */
void cli_list_add_number(struct cli_table *table, const json_t *item, const char *name);

/* False: it is empty, which no name is; that has been said. */
bool cli_list_has_name(const char *command, const char *resource);

#endif
