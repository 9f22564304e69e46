/* fence_cli.c - fence: takes leases, runs jobs under them, writes with their tokens.
 *
 * One table of commands; each reads its own options (options.h) and returns the exit status
 * (cli.h lists them). */
#include "client/cli/cli.h"
#include "gateway/version.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *arguments;
    const char *summary;
} commands[] = {
    {"run", cli_run, "RESOURCE -- CMD [ARG...]", "run a job while holding a lease"},
    {"acquire", cli_acquire, "RESOURCE", "take a lease, for as long as its TTL"},
    {"renew", cli_renew, "[LEASE_ID]", "let a lease run on"},
    {"release", cli_release, "[LEASE_ID]", "give a lease back"},
    {"put", cli_put, "RESOURCE KEY [VALUE|@FILE|-]", "write a record"},
    {"get", cli_get, "RESOURCE KEY", "print a record's value"},
    {"rm", cli_rm, "RESOURCE KEY", "delete a record"},
    {"ls", cli_ls, "[PREFIX] | --keys RESOURCE", "list resources, or the records of one"},
    {"inspect", cli_inspect, "RESOURCE", "show who holds it, and for how long"},
    {"history", cli_history, "RESOURCE", "list what has happened to it"},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

/* It has to fit into 24 lines of 80 columns. */
static int print_help(void)
{
    printf("Usage: fence COMMAND [OPTION...] [ARGUMENT...]\n\n"
           "Takes leases from a fencegate, runs jobs under them, and writes what only the\n"
           "holder of the newest lease may write.\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        printf("  %-8s %-29s %s\n", commands[i].name, commands[i].arguments, commands[i].summary);
    printf("\n\"fence COMMAND --help\" lists its options; fence(1) tells everything.\n"
           "FENCE_URL is the gateway, %s where it is not set.\n\n"
           "Exit status: 0 done, 1 refused, 64 wrong usage, 69 no gateway, 75 not obtained,\n"
           "79 the lease is over, 80 stale token; of run: the job's, 126, 127.\n",
           CLI_DEFAULT_URL);
    return cli_finish(0);
}

static int print_version(void)
{
    printf("fence %s\n", FG_VERSION);
    return cli_finish(0);
}

/* A closed stdout is an error of the write, CLI_OUTPUT. But `run` has to hand on to its job what it
 * found, so it sees to its signals itself. */
static int run_command(const struct command *command, int argc, char **argv)
{
    if (command->run != cli_run)
        signal(SIGPIPE, SIG_IGN);
    return command->run(argc, argv);
}

/* "fence help COMMAND" is "fence COMMAND --help". */
static int help(int argc, char **argv)
{
    if (argc < 2)
        return print_help();
    const struct command *command = find_command(argv[1]);
    if (!command)
        return cli_usage(NULL, "there is no command \"%s\"", argv[1]);
    char option[] = "--help";
    return run_command(command, 2, (char *[]){argv[1], option, NULL});
}

/* What was closed at the start must not become the number of a socket. It is opened the wrong way
 * round, so that using it fails as before, and a job finds it closed. */
static void occupy_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    }
}

int main(int argc, char **argv)
{
    occupy_standard_descriptors();
    setlocale(LC_CTYPE, "C.UTF-8");
    if (argc < 2)
        return cli_usage(NULL, "a command is missing");
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return print_help();
    if (strcmp(name, "--version") == 0)
        return print_version();
    if (strcmp(name, "help") == 0)
        return help(argc - 1, argv + 1);
    const struct command *command = find_command(name);
    if (command)
        return run_command(command, argc - 1, argv + 1);
    return cli_usage(NULL, "there is no %s \"%s\"", *name == '-' ? "option" : "command", name);
}
