/* table.h - rows of text in columns, for people: printed page by page, so that a list of any
 * length needs the memory of a page. The widths come from the data; a later page may make a column
 * wider, never narrower. Main thread only. */
#ifndef FENCE_CLI_TABLE_H
#define FENCE_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLI_COLUMNS_MAX = 8 };

/* A few words of meaning; no colour is ever the only sign of anything. */
enum cli_colour { CLI_PLAIN, CLI_GREEN, CLI_YELLOW, CLI_RED };

struct cli_column {
    const char *name;
    bool is_number; /* to the right */
};

struct cli_table {
    const struct cli_column *columns;
    size_t column_count;
    size_t widths[CLI_COLUMNS_MAX];
    struct cli_cell *cells; /* of the page, row by row */
    size_t cell_count, cell_room;
    bool has_header; /* it was printed */
    bool is_coloured;
};

/* A table without rows. Its header comes with the first of them. */
void cli_table_open(struct cli_table *table, const struct cli_column *columns, size_t column_count);

/* Appends the next cell; a row is complete with its last column. `text` is escaped and copied; NULL
 * is "-". */
void cli_table_add(struct cli_table *table, const char *text);
void cli_table_add_number(struct cli_table *table, int64_t number);
void cli_table_add_coloured(struct cli_table *table, const char *text, enum cli_colour colour);

/* Prints the rows that were added since, to stdout. */
void cli_table_flush(struct cli_table *table);

/* Frees it, with what was not printed. */
void cli_table_close(struct cli_table *table);

#endif
