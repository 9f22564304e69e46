/* options.c - the options of a command (options.h), over getopt_long(3), which permutes
 * argv, takes --name=VALUE and unique beginnings of a name. It knows an option by its number in the
 * table, from FIRST on, however it is spelt. */
#include "client/cli/options.h"

#include "client/cli/cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { OPTIONS_MAX = 16, FIRST = 0x100, HELP = FIRST + OPTIONS_MAX, HOUR_MS = 3600000 };

/* What getopt_long() is told. */
struct tables {
    struct option names[OPTIONS_MAX + 2];
    char letters[2 * OPTIONS_MAX + 4];
};

static void fill(struct tables *tables, const struct cli_form *form)
{
    char *letter = tables->letters;
    struct option *name = tables->names;
    if (form->stops_at_names)
        *letter++ = '+';
    *letter++ = ':'; /* a missing value is told apart */
    *letter++ = 'h';
    for (size_t i = 0; i < form->option_count; i++) {
        const struct cli_option *option = &form->options[i];
        bool takes_value = option->kind != CLI_FLAG;
        *name++ = (struct option){option->name, takes_value ? required_argument : no_argument, NULL,
                                  FIRST + (int)i};
        if (option->letter)
            *letter++ = option->letter;
        if (option->letter && takes_value)
            *letter++ = ':';
    }
    *letter = '\0';
    name[0] = (struct option){"help", no_argument, NULL, HELP};
    name[1] = (struct option){0};
}

/* The option that getopt_long() means by `code`; NULL: none. */
static const struct cli_option *find(const struct cli_form *form, int code)
{
    for (size_t i = 0; i < form->option_count; i++) {
        if (code == FIRST + (int)i || (code != 0 && code == form->options[i].letter))
            return &form->options[i];
    }
    return NULL;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* The place of `text` among the words of "text|json|env"; -1: it is none of them. */
static int word_place(const char *words, const char *text)
{
    size_t length = strlen(text);
    for (int place = 0;; place++) {
        size_t end = strcspn(words, "|");
        if (end == length && memcmp(words, text, length) == 0)
            return place;
        if (!words[end])
            return -1;
        words += end + 1;
    }
}

static int refuse(const struct cli_form *form, const struct cli_option *option, const char *text)
{
    switch (option->kind) {
    case CLI_DURATION:
        return cli_usage(form->command,
                         "--%s takes a duration as 500ms, 30s, 5m or 2h, from %" PRId64
                         "ms to %" PRId64 "h, not \"%s\"",
                         option->name, option->least, option->most / HOUR_MS, text);
    case CLI_NUMBER:
        return cli_usage(form->command,
                         "--%s takes a whole number from %" PRId64 " to %" PRId64 ", not \"%s\"",
                         option->name, option->least, option->most, text);
    default:
        return cli_usage(form->command, "--%s takes %s, not \"%s\"", option->name, option->value,
                         text);
    }
}

/* Stores what was given; false: it is wrong. */
static bool take(const struct cli_option *option, const char *text, void *field)
{
    int64_t ms;
    int place;
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)field = true;
        return true;
    case CLI_TEXT:
        *(const char **)field = text;
        return true;
    case CLI_DURATION:
        if (!cli_read_duration(text, option->most, &ms) || ms < option->least)
            return false;
        *(int64_t *)field = ms;
        return true;
    case CLI_NUMBER:
        return cli_read_number(text, option->least, option->most, field);
    case CLI_WORD:
        place = word_place(option->value, text);
        if (place >= 0)
            *(int *)field = place;
        return place >= 0;
    }
    return false;
}

/* ---- Help ------------------------------------------------------------------------------------ */

static void print_help(const struct cli_form *form)
{
    printf("Usage: fence %s %s%s\n\n%s", form->command,
           form->option_count > 0 ? "[OPTION...] " : "", form->arguments, form->purpose);
    for (size_t i = 0; i < form->option_count; i++) {
        const struct cli_option *option = &form->options[i];
        char left[64], letter[] = {'-', option->letter, ',', '\0'};
        snprintf(left, sizeof left, "%3s --%s%s%s", option->letter ? letter : "", option->name,
                 option->value ? " " : "", option->value ? option->value : "");
        printf("%s  %-27s %s\n", i == 0 ? "\n" : "", left, option->help);
    }
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* getopt_long() has found something that is no option, or one without its value. `word` is the
 * argument that it was looking at. */
static int refuse_option(const struct cli_form *form, int code, const char *word)
{
    const struct cli_option *option = find(form, optopt);
    if (code == ':' && option)
        return cli_usage(form->command, "--%s needs a value: %s", option->name, option->value);
    if (option || optopt == HELP)
        return cli_usage(form->command, "--%s takes no value", option ? option->name : "help");
    if (optopt)
        return cli_usage(form->command, "there is no option -%c", optopt);
    return cli_usage(form->command, "there is no option %s", word);
}

static bool read_options(const struct cli_form *form, int argc, char **argv, void *fields,
                         int *exit_status)
{
    struct tables tables = {0};
    fill(&tables, form);
    opterr = 0;
    for (optind = 0;;) {
        int code = getopt_long(argc, argv, tables.letters, tables.names, NULL);
        if (code == -1)
            return true;
        if (code == 'h' || code == HELP) {
            print_help(form);
            *exit_status = cli_finish(0);
            return false;
        }
        const struct cli_option *option = find(form, code);
        if (code == '?' || code == ':' || !option) {
            *exit_status = refuse_option(form, code, argv[optind - 1]);
            return false;
        }
        if (!take(option, optarg, (char *)fields + option->field)) {
            *exit_status = refuse(form, option, optarg);
            return false;
        }
    }
}

int cli_options_read(const struct cli_form *form, int argc, char **argv, void *fields,
                     int *exit_status)
{
    if (!read_options(form, argc, argv, fields, exit_status))
        return 0;
    int names = argc - optind;
    if (names >= form->least_names && names <= form->most_names)
        return optind;
    if (names < form->least_names)
        *exit_status = cli_usage(form->command, "it takes %s", form->arguments);
    else
        *exit_status = cli_usage(form->command, "\"%s\" is too much: it takes %s",
                                 argv[optind + form->most_names],
                                 form->most_names > 0 ? form->arguments : "no names");
    return 0;
}
