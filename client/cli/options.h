/* options.h - the options of a command as a table, and what follows from it: reading them into
 * a struct, saying what is wrong, --help. Main thread only.
 *
 * Options may stand before, between and behind the names; "--" ends them. One that is given twice
 * counts as it was given last. */
#ifndef FENCE_CLI_OPTIONS_H
#define FENCE_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an option takes, and the type of its field. */
enum cli_kind {
    CLI_FLAG,     /* nothing: bool */
    CLI_TEXT,     /* anything: const char * */
    CLI_DURATION, /* a duration, least ... most ms: int64_t */
    CLI_NUMBER,   /* a number, least ... most: int64_t */
    CLI_WORD,     /* one of the words of `value`, as "text|json": int, its place among them */
};

struct cli_option {
    char letter; /* '\0': there is only the name */
    const char *name;
    enum cli_kind kind;
    size_t field; /* offset in the command's struct */
    const char *value;
    const char *help; /* a line of up to 50 columns */
    int64_t least, most;
};

struct cli_form {
    const char *command;
    const char *arguments; /* as --help shows them: "RESOURCE KEY" */
    const char *purpose;   /* whole lines */
    const struct cli_option *options;
    size_t option_count;
    bool stops_at_names; /* options stand before the names only: these hold a command line */
    int least_names, most_names;
};

/* Reads argv (argv[0]: the command) into `fields`, which holds the defaults. Returns where the
 * names begin in argv, which is reordered so that they stand at its end; or 0: there is nothing
 * more to do, and *exit_status is set: --help was asked for, or something is wrong and has been
 * said. */
int cli_options_read(const struct cli_form *form, int argc, char **argv, void *fields,
                     int *exit_status);

#endif
