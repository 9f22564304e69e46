/* fuzz_config.c - options from arguments and environment, addresses, Redis URLs.
 *
 * Input: a line that begins with FENCEGATE_ is a variable, every other one a word of the command
 * line. Each line is also read as an address and as a Redis URL. */
#include "tests/fuzz/fuzz.h"

#include "gateway/address.h"
#include "gateway/config.h"
#include "gateway/redis_url.h"

enum { WORDS_MAX = 24, VARIABLES_MAX = 24 };

extern char **environ;

/* In the place of log.c: what it is given must be text, where it goes is not our matter. */
void log_configure(enum log_level least, enum log_format format)
{
    MUST(least >= LOG_DEBUG && least <= LOG_ERROR);
    MUST(format == LOG_TEXT || format == LOG_JSON);
}

bool log_enabled(enum log_level level)
{
    return level >= LOG_DEBUG;
}

void log_write(enum log_level level, const char *message, const struct log_field *fields,
               size_t count)
{
    (void)level;
    MUST(strlen(message) > 0);
    for (size_t i = 0; i < count; i++)
        MUST(strlen(fields[i].name) > 0 && (!fields[i].string || strlen(fields[i].string) < 4096));
}

static void check_address(const char *text)
{
    char host[ADDRESS_HOST_BYTES];
    int port = -1;
    if (address_split(text, host, &port)) {
        MUST(!address_is_loopback(text));
        return;
    }
    MUST(port >= 0 && port <= 65535);
    MUST(memchr(host, '\0', sizeof host) != NULL);
    MUST(host[0] != '\0' || !address_is_loopback(text));
}

static void check_url(const char *text)
{
    struct redis_url url;
    memset(&url, 'x', sizeof url);
    if (redis_url_parse(text, &url))
        return;
    MUST(memchr(url.host, '\0', sizeof url.host) && memchr(url.path, '\0', sizeof url.path));
    MUST(memchr(url.user, '\0', sizeof url.user) &&
         memchr(url.password, '\0', sizeof url.password));
    MUST((url.host[0] != '\0') != (url.path[0] == '/'));
    MUST(url.host[0] != '\0' ? url.port >= 1 && url.port <= 65535 : url.port == 0);
    MUST(url.database >= 0);
}

static void check_config(const struct config *config)
{
    char host[ADDRESS_HOST_BYTES];
    struct redis_url url;
    int port;
    MUST(address_split(config->listen, host, &port) == NULL);
    MUST(config->insecure || address_is_loopback(config->listen));
    MUST(config->data_dir[0] != '\0');
    MUST(!config->redis || redis_url_parse(config->redis, &url) == NULL);
    MUST(config->redis_timeout_ms >= 10 && config->redis_timeout_ms <= 60000);
    MUST(config->max_body_bytes >= 1024 && config->max_body_bytes <= 1 << 30);
    MUST(config->max_connections >= 16 && config->max_connections <= 1000000);
    MUST(config->request_timeout_ms >= 100 && config->request_timeout_ms <= 600000);
    MUST(config->ledger_max_age_ms >= 1000);
    MUST(config->ledger_max_rows >= 1000);
    MUST(config->drain_timeout_ms >= 0 && config->drain_timeout_ms <= 600000);
}

/* stdout and stderr go nowhere meanwhile. */
static enum config_action read_quietly(struct config *config, int argc, char **argv, int *exit_code)
{
    static FILE *nowhere;
    FILE *out = stdout, *err = stderr;
    if (!nowhere && !(nowhere = fopen("/dev/null", "we")))
        abort();
    stdout = stderr = nowhere;
    enum config_action action = config_read(config, argc, argv, exit_code);
    stdout = out;
    stderr = err;
    return action;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *lines = fuzz_text(data, size), *rest = lines, name[] = "fencegate";
    char *argv[WORDS_MAX + 1] = {name}, *variables[VARIABLES_MAX + 1] = {NULL};
    int argc = 1, variable_count = 0, exit_code = -1;
    for (char *line; (line = fuzz_part(&rest, '\n'));) {
        check_address(line);
        check_url(line);
        if (strncmp(line, "FENCEGATE_", strlen("FENCEGATE_")) != 0 && argc < WORDS_MAX)
            argv[argc++] = line;
        else if (strchr(line, '=') && variable_count < VARIABLES_MAX)
            variables[variable_count++] = line;
    }

    char **real_environ = environ;
    struct config config;
    environ = variables;
    if (read_quietly(&config, argc, argv, &exit_code) == CONFIG_RUN)
        check_config(&config);
    else
        MUST(exit_code == 0 || exit_code == 64);
    environ = real_environ;
    free(lines);
    return 0;
}
