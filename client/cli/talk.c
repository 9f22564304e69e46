/* talk.c - what `fence` says to people, and the exit status that goes with it (cli.h).
 *
 * A line goes to stderr in one write(2), never waits, and never holds more than one line: what came
 * from a user or a server is escaped. `fence run` talks between a deadline and a kill, so a reader
 * of stderr that sleeps must not stop it: a line that a full pipe has no room for is dropped. */
#include "client/cli/cli.h"
#include "client/cli/text.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LINE_BYTES = 2048, /* with its newline */
    HTTP_BAD_REQUEST = 400
};
_Static_assert(LINE_BYTES <= PIPE_BUF, "a pipe must take a line whole");

static void say(const char *text)
{
    char line[LINE_BYTES] = "fence: ";
    size_t prefix = strlen(line);
    size_t length = prefix + cli_text_escape(text, line + prefix, sizeof line - prefix - 1);
    line[length++] = '\n';
    struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
    ssize_t written;
    do {
        if (poll(&to, 1, 0) != 1 || to.revents != POLLOUT)
            return;
        written = write(STDERR_FILENO, line, length);
    } while (written < 0 && errno == EINTR);
}

void cli_say(const char *format, ...)
{
    char text[LINE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    say(text);
}

int cli_usage(const char *command, const char *format, ...)
{
    char what[LINE_BYTES / 2];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (command)
        cli_say("%s: %s; try fence %s --help", command, what, command);
    else
        cli_say("%s; try fence --help", what);
    return CLI_USAGE;
}

static int exit_status_of(enum fence_status status)
{
    switch (status) {
    case FENCE_OK:
        return 0;
    case FENCE_HELD:
    case FENCE_TOO_SHORT:
        return CLI_NOT_HELD;
    case FENCE_EXPIRED:
    case FENCE_SUPERSEDED:
    case FENCE_REVOKED:
    case FENCE_RELEASED:
    case FENCE_OUTLIVED:
    case FENCE_FORKED:
        return CLI_LOST;
    case FENCE_STALE:
        return CLI_STALE;
    case FENCE_INVALID:
        return CLI_USAGE;
    case FENCE_BUSY:
    case FENCE_UNREACHABLE:
    case FENCE_NO_ANSWER:
    case FENCE_BAD_ANSWER:
        return CLI_UNREACHABLE;
    case FENCE_SYSTEM:
        return CLI_SYSTEM;
    case FENCE_CANCELLED:
    case FENCE_MISMATCH:
    case FENCE_NOT_FOUND:
    case FENCE_REFUSED:
        break;
    }
    return CLI_FAILED;
}

/* The server's sentence about what was refused or not found says all that the status does. */
static bool says_enough(enum fence_status status, const struct fence_error *error)
{
    return error->http_status > 0 && (status == FENCE_REFUSED || status == FENCE_NOT_FOUND);
}

int cli_failed(const char *what, enum fence_status status, const struct fence_error *error)
{
    static const struct fence_error nothing_more = {0};
    error = error ? error : &nothing_more;
    const char *text = fence_status_text(status), *detail = error->detail, *code = error->code;
    if (!*detail || strcmp(detail, text) == 0)
        cli_say("%s: %s", what, text);
    else if (says_enough(status, error))
        cli_say("%s: %s (%s)", what, detail, code);
    else
        cli_say("%s: %s: %s%s%s%s", what, text, detail, *code ? " (" : "", code, *code ? ")" : "");
    bool is_our_fault = status == FENCE_REFUSED && error->http_status == HTTP_BAD_REQUEST;
    return is_our_fault ? CLI_USAGE : exit_status_of(status);
}

int cli_finish(int exit_status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_status;
    cli_say("stdout: %s", errno ? strerror(errno) : "could not be written");
    return CLI_OUTPUT;
}
