/* config.c - the option table, and how its rows are read from arguments and environment.
 *
 * A row knows the name, the parser (that is: the type and unit), the range, the default, the place
 * in struct config and the help text of one option; the environment variable follows from the name
 * (--data-dir: FENCEGATE_DATA_DIR). Everything below is a loop over the table.
 *
 * A parser checks one value and stores it; on failure it writes `why`, which goes on from the
 * option's name: "fencegate: --max-body" + " must be ...". Values are shown in such a line only
 * where they can't hold a password, and never with bytes that could break the line. */
#include "gateway/config.h"

#include "gateway/address.h"
#include "gateway/digits.h"
#include "gateway/redis_url.h"
#include "gateway/version.h"

/* For their version macros only; nothing of these libraries is called here. */
#include <ev.h>
#include <hiredis/hiredis.h>
#include <jansson.h>
#include <microhttpd.h>
#include <sqlite3.h>

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum {
    WHY_BYTES = 512,
    SHOWN_BYTES = 64, /* of a refused value, in an error line */
    ENV_BYTES = 64,   /* the name of a variable */
};

static const char env_prefix[] = "FENCEGATE_";

struct row {
    const char *name;       /* with its dashes */
    const char *value_name; /* of the value, in the help; NULL: a switch without one */
    const char *standard;   /* the default, written as a user would; NULL: none */
    bool (*parse)(const struct row *row, const char *text, void *field, char why[WHY_BYTES]);
    size_t offset;       /* of the field in struct config */
    int64_t least, most; /* of a number; of an age in milliseconds */
    const char *help;
};

static bool parse_text(const struct row *, const char *, void *, char[WHY_BYTES]);
static bool parse_listen(const struct row *, const char *, void *, char[WHY_BYTES]);
static bool parse_redis(const struct row *, const char *, void *, char[WHY_BYTES]);
static bool parse_switch(const struct row *, const char *, void *, char[WHY_BYTES]);
static bool parse_number(const struct row *, const char *, void *, char[WHY_BYTES]);
static bool parse_age(const struct row *, const char *, void *, char[WHY_BYTES]);
static bool parse_level(const struct row *, const char *, void *, char[WHY_BYTES]);
static bool parse_format(const struct row *, const char *, void *, char[WHY_BYTES]);

#define SECOND_MS INT64_C(1000)
#define DAY_MS    (86400 * SECOND_MS)
#define FIELD(f)  offsetof(struct config, f)

/* clang-format off */
static const struct row rows[] = {
{"--listen", "HOST:PORT", "127.0.0.1:8080", parse_listen, FIELD(listen), 0, 0,
 "address to serve HTTP on; port 0 takes a free one"},
{"--data-dir", "DIR", "./fencegate-data", parse_text, FIELD(data_dir), 0, 0,
 "directory of the store; created where it is missing"},
{"--redis", "URL", NULL, parse_redis, FIELD(redis), 0, 0,
 "redis://[user:password@]host:port[/db] or unix:///path[?db=N];\n"
 "without it a private redis-server runs in the data directory"},
{"--adopt-redis", NULL, "off", parse_switch, FIELD(adopt_redis), 0, 0,
 "take over a Redis database that belongs to another store"},
{"--redis-timeout-ms", "MS", "500", parse_number, FIELD(redis_timeout_ms), 10, 60000,
 "for connecting to Redis, and for each command"},
{"--max-body", "BYTES", "1048576", parse_number, FIELD(max_body_bytes), 1024, 1 << 30,
 "largest body of a request"},
{"--max-connections", "N", "10000", parse_number, FIELD(max_connections), 16, 1000000,
 "most connections at once"},
{"--max-waiters", "N", "7500", parse_number, FIELD(max_waiters), 1, 1000000,
 "most requests that wait for a lease at once; never more than three\n"
 "quarters of --max-connections, so that holders can always come in"},
{"--max-waiters-per-resource", "N", "7500", parse_number, FIELD(max_waiters_per_resource), 1, 1000000,
 "likewise, for one resource"},
{"--request-timeout-ms", "MS", "10000", parse_number, FIELD(request_timeout_ms), 100, 600000,
 "for a request to arrive completely"},
{"--require-lease-id", NULL, "off", parse_switch, FIELD(require_lease_id), 0, 0,
 "refuse writes without X-Lease-Id"},
{"--ledger-max-age", "AGE", "30d", parse_age, FIELD(ledger_max_age_ms), SECOND_MS, 3650 * DAY_MS,
 "forget ledger rows that are older (500ms, 90s, 15m, 12h, 30d)"},
{"--ledger-max-rows", "N", "10000000", parse_number, FIELD(ledger_max_rows), 1000, 1000000000000,
 "forget the oldest ledger rows beyond this many"},
{"--drain-timeout-ms", "MS", "10000", parse_number, FIELD(drain_timeout_ms), 0, 600000,
 "for the work in flight to end after SIGTERM or SIGINT"},
{"--insecure", NULL, "off", parse_switch, FIELD(insecure), 0, 0,
 "serve on an address that is not loopback, without authentication"},
{"--log-level", "LEVEL", "info", parse_level, FIELD(log_level), 0, 0,
 "debug, info, warn or error"},
{"--log-format", "FORMAT", "text", parse_format, FIELD(log_format), 0, 0,
 "text or json"},
};
/* clang-format on */

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

/* What the arguments said, by row. */
struct arguments {
    const char *value[ROW_COUNT]; /* NULL: not given */
};

/* ---- Saying what is wrong ---- */

static bool refuse(char why[WHY_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes `why`; false, so that a parser can return it. */
static bool refuse(char why[WHY_BYTES], const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, WHY_BYTES, format, list);
    va_end(list);
    return false;
}

static enum config_action usage_error(int *exit_code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The one line of exit 64. */
static enum config_action usage_error(int *exit_code, const char *format, ...)
{
    char line[WHY_BYTES + 2 * ENV_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    fprintf(stderr, "fencegate: %s\n", line);
    *exit_code = EX_USAGE;
    return CONFIG_EXIT;
}

/* A user's text for an error line: quoted, short, printable. What looks like a URL or like
 * user@host could hold a password that went to the wrong place. */
static const char *shown(const char *text, char out[SHOWN_BYTES])
{
    if (strstr(text, "://") || strchr(text, '@'))
        return "a value that is not shown here";
    size_t length = 0;
    out[length++] = '"';
    for (const char *at = text; *at; at++) {
        if (length == SHOWN_BYTES - 5) {
            memcpy(out + length, "...", 3);
            length += 3;
            break;
        }
        out[length++] = *at >= ' ' && *at <= '~' ? *at : '?';
    }
    out[length++] = '"';
    out[length] = '\0';
    return out;
}

/* ---- Parsers of plain types ---- */

static bool parse_text(const struct row *row, const char *text, void *field, char why[WHY_BYTES])
{
    (void)row;
    if (*text == '\0')
        return refuse(why, "must not be empty");
    *(const char **)field = text;
    return true;
}

static bool parse_switch(const struct row *row, const char *text, void *field, char why[WHY_BYTES])
{
    (void)row;
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *(bool *)field = i % 2 == 1;
            return true;
        }
    }
    char out[SHOWN_BYTES];
    return refuse(why, "must be 1, true, yes, on, 0, false, no or off, not %s", shown(text, out));
}

static bool parse_number(const struct row *row, const char *text, void *field, char why[WHY_BYTES])
{
    int64_t *number = field;
    if (digits_read(text, strlen(text), row->most, number) && *number >= row->least)
        return true;
    char out[SHOWN_BYTES];
    return refuse(why, "must be a whole number from %" PRId64 " to %" PRId64 ", not %s", row->least,
                  row->most, shown(text, out));
}

static bool parse_age(const struct row *row, const char *text, void *field, char why[WHY_BYTES])
{
    static const struct {
        const char *suffix;
        int64_t ms;
    } units[] = {{"ms", 1},     {"s", SECOND_MS}, {"m", 60 * SECOND_MS}, {"h", 3600 * SECOND_MS},
                 {"d", DAY_MS}, {"", SECOND_MS}};
    int64_t *age_ms = field, count;
    size_t digits = strspn(text, "0123456789");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text + digits, units[i].suffix) != 0)
            continue;
        if (!digits_read(text, digits, row->most / units[i].ms, &count))
            break;
        *age_ms = count * units[i].ms;
        if (*age_ms >= row->least)
            return true;
    }
    char out[SHOWN_BYTES];
    return refuse(why,
                  "must be from %" PRId64 "s to %" PRId64 "d (as 500ms, 90s, 15m, 12h, 30d; "
                  "a bare number is seconds), not %s",
                  row->least / SECOND_MS, row->most / DAY_MS, shown(text, out));
}

static bool parse_level(const struct row *row, const char *text, void *field, char why[WHY_BYTES])
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    (void)row;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *(enum log_level *)field = (enum log_level)i;
            return true;
        }
    }
    char out[SHOWN_BYTES];
    return refuse(why, "must be debug, info, warn or error, not %s", shown(text, out));
}

static bool parse_format(const struct row *row, const char *text, void *field, char why[WHY_BYTES])
{
    (void)row;
    bool is_json = strcmp(text, "json") == 0;
    char out[SHOWN_BYTES];
    if (!is_json && strcmp(text, "text") != 0)
        return refuse(why, "must be text or json, not %s", shown(text, out));
    *(enum log_format *)field = is_json ? LOG_JSON : LOG_TEXT;
    return true;
}

/* ---- Addresses ---- */

static bool parse_listen(const struct row *row, const char *text, void *field, char why[WHY_BYTES])
{
    char host[ADDRESS_HOST_BYTES], out[SHOWN_BYTES];
    int port;
    (void)row;
    const char *wrong = address_split(text, host, &port);
    if (wrong)
        return refuse(why, "must be HOST:PORT, [IPV6]:PORT or :PORT, not %s: %s", shown(text, out),
                      wrong);
    *(const char **)field = text;
    return true;
}

/* Its form only; redis_link.c takes it apart once more. */
static bool parse_redis(const struct row *row, const char *text, void *field, char why[WHY_BYTES])
{
    struct redis_url url;
    (void)row;
    const char *wrong = redis_url_parse(text, &url);
    if (wrong)
        return refuse(why,
                      "must be redis://[user:password@]host:port[/db] or "
                      "unix:///path[?db=N]: %s",
                      wrong);
    *(const char **)field = text;
    return true;
}

/* ---- Help and version ---- */

/* The variable of a row: FENCEGATE_ and the name in capitals. Returns `out`. */
static const char *env_name(const struct row *row, char out[ENV_BYTES])
{
    const char *name = row->name + strlen("--");
    assert(strlen(name) < ENV_BYTES - sizeof env_prefix);
    char *to = stpcpy(out, env_prefix);
    for (; *name; name++)
        *to++ = *name == '-' ? '_' : (char)toupper((unsigned char)*name);
    *to = '\0';
    return out;
}

static void print_help(void)
{
    printf("Usage: fencegate [options]\n\n"
           "Hands out leases with fencing tokens over HTTP and keeps a store that refuses the\n"
           "writes of whoever holds its lease no longer.\n\n"
           "An option is given as --name VALUE, as --name=VALUE, or as a variable (switches: 1,\n"
           "true, yes, on, 0, false, no, off). An option beats its variable, which beats the\n"
           "default; an empty variable counts as not set.\n\n"
           "  %-27s %-17s %s\n",
           "Option", "Default", "Variable");
    for (size_t i = 0; i < ROW_COUNT; i++) {
        char option[64], variable[ENV_BYTES];
        snprintf(option, sizeof option, "%s %s", rows[i].name,
                 rows[i].value_name ? rows[i].value_name : "");
        printf("\n  %-27s %-17s %s\n", option, rows[i].standard ? rows[i].standard : "none",
               env_name(&rows[i], variable));
        for (const char *line = rows[i].help; line;) {
            const char *end = strchr(line, '\n');
            printf("      %.*s\n", end ? (int)(end - line) : (int)strlen(line), line);
            line = end ? end + 1 : NULL;
        }
    }
    printf("\n  %-27s print this and exit\n  %-27s print the versions and exit\n\n"
           "Exit codes: 0 done, 64 wrong usage, 65 the store cannot be used, 69 unavailable\n"
           "(another gateway serves the data directory, the address is in use, no redis-server),\n"
           "73 no data directory, 74 an I/O error of the store, 78 the Redis database belongs to\n"
           "another store.\n",
           "--help", "--version");
}

static void print_version(void)
{
    /* MHD_VERSION is written in hex digits to be read as decimal ones: 0x00097500 is 0.9.75. */
    printf("fencegate %s\nlibmicrohttpd %x.%x.%x\nhiredis %d.%d.%d\njansson %s\nsqlite %s\n"
           "libev %d.%d\n",
           FG_VERSION, MHD_VERSION >> 24, MHD_VERSION >> 16 & 0xff, MHD_VERSION >> 8 & 0xff,
           HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH, JANSSON_VERSION, SQLITE_VERSION,
           EV_VERSION_MAJOR, EV_VERSION_MINOR);
}

/* ---- Arguments, then environment, then defaults ---- */

/* The row of "--name" or "--name=value"; NULL: none. */
static const struct row *find_row(const char *argument)
{
    size_t length = strcspn(argument, "=");
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, argument, length) == 0)
            return &rows[i];
    return NULL;
}

/* Takes the option at argv[*at], and moves *at to its last word. */
static enum config_action take_option(struct arguments *arguments, int argc, char **argv, int *at,
                                      int *exit_code)
{
    const char *word = argv[*at];
    const struct row *row = find_row(word);
    char name[SHOWN_BYTES], out[SHOWN_BYTES];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    if (!row)
        return usage_error(exit_code, "unknown option %s; fencegate --help lists all",
                           shown(name, out));
    const char **value = &arguments->value[row - rows];
    if (*value)
        return usage_error(exit_code, "%s is given twice", row->name);
    const char *equals = strchr(word, '=');
    if (!row->value_name && equals)
        return usage_error(exit_code, "%s takes no value", row->name);
    if (!row->value_name)
        *value = "on";
    else if (equals)
        *value = equals + 1;
    else if (*at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0)
        *value = argv[++*at];
    else
        return usage_error(exit_code, "%s needs a value: %s %s", row->name, row->name,
                           row->value_name);
    return CONFIG_RUN;
}

static enum config_action read_arguments(struct arguments *arguments, int argc, char **argv,
                                         int *exit_code)
{
    for (int at = 1; at < argc; at++) {
        bool help = strcmp(argv[at], "--help") == 0;
        if (help || strcmp(argv[at], "--version") == 0) {
            if (help)
                print_help();
            else
                print_version();
            *exit_code = fflush(stdout) == 0 ? EX_OK : EX_IOERR;
            return CONFIG_EXIT;
        }
        char out[SHOWN_BYTES];
        if (argv[at][0] != '-')
            return usage_error(exit_code, "unexpected argument %s; fencegate takes options only",
                               shown(argv[at], out));
        if (take_option(arguments, argc, argv, &at, exit_code) == CONFIG_EXIT)
            return CONFIG_EXIT;
    }
    return CONFIG_RUN;
}

/* Where the value of a row comes from, for error lines: its name, or its variable's in `out`. */
static const char *source_name(const struct arguments *arguments, const struct row *row,
                               char out[ENV_BYTES])
{
    return arguments->value[row - rows] ? row->name : env_name(row, out);
}

static enum config_action set_row(struct config *config, const struct arguments *arguments,
                                  const struct row *row, int *exit_code)
{
    char variable[ENV_BYTES], why[WHY_BYTES];
    const char *text = arguments->value[row - rows];
    if (!text)
        text = getenv(env_name(row, variable));
    if (!text || (*text == '\0' && !arguments->value[row - rows]))
        text = row->standard;
    if (!text || row->parse(row, text, (char *)config + row->offset, why))
        return CONFIG_RUN;
    return usage_error(exit_code, "%s %s", source_name(arguments, row, variable), why);
}

/* A misspelt variable would be silent otherwise; but it is no error: Kubernetes sets
 * FENCEGATE_PORT and the like for a service called "fencegate". */
static void warn_of_unknown_variables(void)
{
    for (char **entry = environ; entry && *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, env_prefix, strlen(env_prefix)) != 0 || strlen(*entry) <= length + 1)
            continue;
        bool known = false;
        for (size_t i = 0; i < ROW_COUNT && !known; i++) {
            char name[ENV_BYTES];
            env_name(&rows[i], name);
            known = strlen(name) == length && memcmp(*entry, name, length) == 0;
        }
        char name[2 * ENV_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)length, *entry);
        if (!known)
            log_warn("unknown variable ignored", LOG_STR("name", name));
    }
}

enum config_action config_read(struct config *config, int argc, char **argv, int *exit_code)
{
    struct arguments arguments = {0};
    *config = (struct config){0};
    if (read_arguments(&arguments, argc, argv, exit_code) == CONFIG_EXIT)
        return CONFIG_EXIT;
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (set_row(config, &arguments, &rows[i], exit_code) == CONFIG_EXIT)
            return CONFIG_EXIT;
    if (!address_is_loopback(config->listen) && !config->insecure) {
        char variable[ENV_BYTES], out[SHOWN_BYTES];
        return usage_error(exit_code,
                           "%s %s is not loopback, and requests are not authenticated: "
                           "listen on 127.0.0.1, or add --insecure if everybody who can reach it "
                           "may take leases and write",
                           source_name(&arguments, find_row("--listen"), variable),
                           shown(config->listen, out));
    }
    log_configure(config->log_level, config->log_format);
    warn_of_unknown_variables();
    return CONFIG_RUN;
}
