/* table.c - rows of text in columns (table.h). */
#include "client/cli/table.h"

#include "client/cli/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELLS_FIRST = 256, GAP = 2 };

struct cli_cell {
    char *text; /* escaped */
    size_t columns;
    enum cli_colour colour;
};

/* Only on a terminal that can, and not where NO_COLOR is set, to whatever. */
static bool may_colour(void)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && (!no_color || !*no_color) && term && strcmp(term, "dumb") != 0;
}

void cli_table_open(struct cli_table *table, const struct cli_column *columns, size_t column_count)
{
    *table = (struct cli_table){
        .columns = columns, .column_count = column_count, .is_coloured = may_colour()};
    for (size_t i = 0; i < column_count; i++)
        table->widths[i] = strlen(columns[i].name);
}

void cli_table_add_coloured(struct cli_table *table, const char *text, enum cli_colour colour)
{
    if (!text)
        text = "-";
    if (table->cell_count == table->cell_room) {
        table->cell_room = table->cell_room > 0 ? 2 * table->cell_room : CELLS_FIRST;
        table->cells = cli_need(realloc(table->cells, table->cell_room * sizeof *table->cells));
    }
    size_t bytes = CLI_ESCAPED_MOST * strlen(text) + 1;
    struct cli_cell *cell = &table->cells[table->cell_count];
    cell->text = cli_need(malloc(bytes));
    cli_text_escape(text, cell->text, bytes);
    cell->columns = cli_text_columns(cell->text);
    cell->colour = colour;
    size_t *width = &table->widths[table->cell_count++ % table->column_count];
    *width = cell->columns > *width ? cell->columns : *width;
}

void cli_table_add(struct cli_table *table, const char *text)
{
    cli_table_add_coloured(table, text, CLI_PLAIN);
}

void cli_table_add_number(struct cli_table *table, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    cli_table_add(table, text);
}

/* The last column is not filled up: no line ends with spaces. */
static void print_cell(const struct cli_table *table, size_t column, const struct cli_cell *cell)
{
    static const char *const begin[] = {"", "\033[32m", "\033[33m", "\033[31m"};
    bool coloured = table->is_coloured && cell->colour != CLI_PLAIN;
    bool last = column + 1 == table->column_count;
    int fill = (int)(table->widths[column] - cell->columns);
    if (table->columns[column].is_number)
        printf("%*s", fill, "");
    printf("%s%s%s", coloured ? begin[cell->colour] : "", cell->text, coloured ? "\033[0m" : "");
    if (!last)
        printf("%*s", GAP + (table->columns[column].is_number ? 0 : fill), "");
    else
        putchar('\n');
}

static void print_header(struct cli_table *table)
{
    for (size_t i = 0; i < table->column_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s", table->columns[i].name);
        struct cli_cell cell = {.text = name, .columns = strlen(name)};
        print_cell(table, i, &cell);
    }
    table->has_header = true;
}

static void drop_cells(struct cli_table *table)
{
    for (size_t i = 0; i < table->cell_count; i++)
        free(table->cells[i].text);
    table->cell_count = 0;
}

void cli_table_flush(struct cli_table *table)
{
    if (!table->has_header && table->cell_count > 0)
        print_header(table);
    for (size_t i = 0; i < table->cell_count; i++)
        print_cell(table, i % table->column_count, &table->cells[i]);
    drop_cells(table);
}

void cli_table_close(struct cli_table *table)
{
    drop_cells(table);
    free(table->cells);
    *table = (struct cli_table){0};
}
