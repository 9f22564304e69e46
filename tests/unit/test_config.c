/* test_config.c - options from arguments and environment, and the line of every refusal. */
#include "gateway/config.h"
#include "gateway/version.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUTPUT_BYTES = 16384 };

/* What the last run printed and set. */
static struct config config;
static char out_text[OUTPUT_BYTES], err_text[OUTPUT_BYTES];

/* A file without a name in the place of a standard stream. */
struct redirect {
    int fd, saved, file;
};

static struct redirect redirect_begin(int fd)
{
    struct redirect redirect = {fd, dup(fd), open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
    assert_true(redirect.saved >= 0 && redirect.file >= 0);
    dup2(redirect.file, fd);
    return redirect;
}

static void redirect_end(struct redirect redirect, char text[OUTPUT_BYTES])
{
    dup2(redirect.saved, redirect.fd);
    close(redirect.saved);
    ssize_t length = pread(redirect.file, text, OUTPUT_BYTES - 1, 0);
    text[length < 0 ? 0 : length] = '\0';
    close(redirect.file);
}

/* Reads the arguments up to the NULL. Returns the exit code, -1 for "go on". */
static int run(const char *first, ...)
{
    char *argv[32] = {"fencegate"};
    int argc = 1, exit_code = -1;
    va_list list;
    va_start(list, first);
    for (const char *word = first; word; word = va_arg(list, const char *))
        argv[argc++] = (char *)(uintptr_t)word;
    va_end(list);
    fflush(stdout);
    struct redirect out = redirect_begin(STDOUT_FILENO), err = redirect_begin(STDERR_FILENO);
    enum config_action action = config_read(&config, argc, argv, &exit_code);
    fflush(stdout);
    redirect_end(out, out_text);
    redirect_end(err, err_text);
    assert_int_equal(action, exit_code == -1 ? CONFIG_RUN : CONFIG_EXIT);
    return exit_code;
}

#define RUN(...) run(__VA_ARGS__, (char *)NULL)

/* Exit 64 with exactly one line on stderr, "fencegate: ..." with `part` in it. */
static void assert_refused(int exit_code, const char *part)
{
    assert_int_equal(exit_code, 64);
    assert_string_equal(out_text, "");
    assert_memory_equal(err_text, "fencegate: ", strlen("fencegate: "));
    assert_ptr_equal(strchr(err_text, '\n'), err_text + strlen(err_text) - 1);
    if (!strstr(err_text, part))
        fail_msg("\"%s\" is not in: %s", part, err_text);
}

static int clear_environment(void **state)
{
    (void)state;
    return clearenv();
}

static void without_options_the_defaults_hold(void **state)
{
    (void)state;
    assert_int_equal(run(NULL), -1);
    assert_string_equal(err_text, "");
    assert_string_equal(config.listen, "127.0.0.1:8080");
    assert_string_equal(config.data_dir, "./fencegate-data");
    assert_null(config.redis);
    assert_false(config.adopt_redis);
    assert_int_equal(config.redis_timeout_ms, 500);
    assert_int_equal(config.max_body_bytes, 1048576);
    assert_int_equal(config.max_connections, 10000);
    assert_int_equal(config.max_waiters, 7500);
    assert_int_equal(config.max_waiters_per_resource, 7500);
    assert_int_equal(config.request_timeout_ms, 10000);
    assert_false(config.require_lease_id);
    assert_int_equal(config.ledger_max_age_ms, 30 * INT64_C(86400000));
    assert_int_equal(config.ledger_max_rows, 10000000);
    assert_int_equal(config.drain_timeout_ms, 10000);
    assert_false(config.insecure);
    assert_int_equal(config.log_level, LOG_INFO);
    assert_int_equal(config.log_format, LOG_TEXT);
}

static void both_forms_of_a_value(void **state)
{
    (void)state;
    assert_int_equal(RUN("--data-dir", "/a", "--listen=[::1]:0", "--redis-timeout-ms", "10",
                         "--max-body=1073741824", "--adopt-redis", "--require-lease-id",
                         "--log-level", "debug", "--log-format=json", "--drain-timeout-ms=0"),
                     -1);
    assert_string_equal(config.data_dir, "/a");
    assert_string_equal(config.listen, "[::1]:0");
    assert_int_equal(config.redis_timeout_ms, 10);
    assert_int_equal(config.max_body_bytes, 1 << 30);
    assert_true(config.adopt_redis);
    assert_true(config.require_lease_id);
    assert_int_equal(config.log_level, LOG_DEBUG);
    assert_int_equal(config.log_format, LOG_JSON);
    assert_int_equal(config.drain_timeout_ms, 0);
    assert_int_equal(RUN("--data-dir=--odd=name"), -1);
    assert_string_equal(config.data_dir, "--odd=name");
}

static void what_is_no_option_is_refused(void **state)
{
    (void)state;
    assert_refused(RUN("serve"), "unexpected argument \"serve\"");
    assert_refused(RUN(""), "unexpected argument \"\"");
    assert_refused(RUN("--lissten=x"), "unknown option \"--lissten\"");
    assert_refused(RUN("--list"), "unknown option \"--list\"");
    assert_refused(RUN("-h"), "unknown option \"-h\"");
    assert_refused(RUN("--"), "unknown option \"--\"");
    assert_refused(RUN("--max-waiter", "5"), "unknown option \"--max-waiter\"");
    assert_refused(RUN("--bad\nname\x1b"), "unknown option \"--bad?name?\"");
    assert_refused(RUN("--data-dir"), "--data-dir needs a value");
    assert_refused(RUN("--data-dir", "--insecure"), "--data-dir needs a value");
    assert_refused(RUN("--data-dir="), "--data-dir must not be empty");
    assert_refused(RUN("--insecure=yes"), "--insecure takes no value");
    assert_refused(RUN("--insecure", "--insecure"), "--insecure is given twice");
    assert_refused(RUN("--max-body", "5000", "--max-body=5000"), "--max-body is given twice");
}

static void numbers_have_a_range(void **state)
{
    (void)state;
    assert_refused(RUN("--max-body", "1023"), "from 1024 to 1073741824, not \"1023\"");
    assert_refused(RUN("--max-body", "1073741825"), "--max-body must be a whole number");
    static const char *const bad[] = {
        "-5", "+5", "5k", "0x10", " 5", "5 ", "1e3", "", "99999999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(RUN("--redis-timeout-ms", bad[i]), "from 10 to 60000, not \"");
    assert_refused(RUN("--max-waiters", "0"), "--max-waiters must be a whole number from 1 to");
    assert_refused(RUN("--max-waiters-per-resource=1000001"), "from 1 to 1000000, not \"1000001\"");
    assert_int_equal(RUN("--max-waiters", "1", "--max-waiters-per-resource=1000000"), -1);
    assert_int_equal(config.max_waiters, 1);
    assert_int_equal(config.max_waiters_per_resource, 1000000);
    assert_int_equal(RUN("--ledger-max-rows", "1000000000000"), -1);
    assert_int_equal(config.ledger_max_rows, INT64_C(1000000000000));
    assert_int_equal(RUN("--redis-timeout-ms", "0060"), -1);
    assert_int_equal(config.redis_timeout_ms, 60);
}

static void ages_have_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"1500ms", 1500},
                {"90s", 90000},
                {"15m", 900000},
                {"12h", 43200000},
                {"30d", 2592000000},
                {"7", 7000},
                {"3650d", INT64_C(315360000000)},
                {"1s", 1000}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(RUN("--ledger-max-age", good[i].text), -1);
        assert_int_equal(config.ledger_max_age_ms, good[i].ms);
    }
    static const char *const bad[] = {"",
                                      "d",
                                      "500ms",
                                      "0",
                                      "3651d",
                                      "5w",
                                      "5 s",
                                      "-5s",
                                      "5S",
                                      "1.5h",
                                      "5ss",
                                      "9223372036854775807d",
                                      "315360000001ms"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(RUN("--ledger-max-age", bad[i]),
                       "--ledger-max-age must be from 1s to 3650d");
}

static void words_are_checked(void **state)
{
    (void)state;
    assert_refused(RUN("--log-level", "INFO"), "must be debug, info, warn or error, not \"INFO\"");
    assert_refused(RUN("--log-format", "xml"), "--log-format must be text or json, not \"xml\"");
}

/* The tables of what is an address and a URL stand in test_address.c and test_redis_url.c. */

static void an_open_address_needs_insecure(void **state)
{
    (void)state;
    static const char *const loopback[] = {"127.0.0.1:0", "LOCALHOST:80", "[::1]:8080"};
    for (size_t i = 0; i < sizeof loopback / sizeof loopback[0]; i++)
        assert_int_equal(RUN("--listen", loopback[i]), -1);
    static const char *const open[] = {":0", "0.0.0.0:80", "[::]:80", "example.com:80"};
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++) {
        assert_refused(RUN("--listen", open[i]), " is not loopback");
        assert_non_null(strstr(err_text, open[i]));
        assert_non_null(strstr(err_text, "add --insecure"));
        assert_int_equal(RUN("--insecure", "--listen", open[i]), -1);
        assert_string_equal(config.listen, open[i]);
    }
}

static void malformed_addresses_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "\"\": the port is missing"},
        {"127.0.0.1:65536", "\"127.0.0.1:65536\": the port is not a number"},
        {"::1:8080", "\"::1:8080\": an IPv6 address needs [brackets]"},
        {"x@localhost:80", "a value that is not shown here: the host is malformed"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(RUN("--insecure", "--listen", bad[i][0]), bad[i][1]);
        assert_non_null(strstr(err_text, "--listen must be HOST:PORT, [IPV6]:PORT or :PORT, not "));
    }
}

static void redis_urls(void **state)
{
    (void)state;
    static const char *const good[] = {"redis://app:s3cret@[::1]:6379/15",
                                       "unix:///run/redis.sock?db=3"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(RUN("--redis", good[i]), -1);
        assert_string_equal(config.redis, good[i]);
    }
    static const char *const bad[][2] = {
        {"", "it begins with neither scheme"},
        {"rediss://u:s3cret@h:1", "TLS is not supported"},
        {"redis://u:s3cret@h", "the port is missing"},
        {"redis://s3cret@h:1", "not user:password"},
        {"redis://u:s3cret%zz@h:1", "two hex digits"},
        {"redis://u:s3cret/x@h:1", "the port is not a number"},
        {"unix:///run/redis.sock?db=1&x=s3cret", "not ?db=N"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(RUN("--redis", bad[i][0]), bad[i][1]);
        assert_non_null(strstr(err_text, "--redis must be redis://[user:password@]host:port[/db] "
                                         "or unix:///path[?db=N]: "));
        assert_null(strstr(err_text, "s3cret"));
    }
}

static void passwords_in_the_wrong_place_stay_secret(void **state)
{
    (void)state;
    static const char url[] = "redis://u:s3cret@h:1";
    assert_refused(RUN(url), "unexpected argument");
    assert_null(strstr(err_text, "s3cret"));
    assert_refused(RUN("--redsi=redis://u:s3cret@h:1"), "unknown option \"--redsi\"");
    assert_null(strstr(err_text, "s3cret"));
    assert_refused(RUN("--listen", url), "--listen must be");
    assert_null(strstr(err_text, "s3cret"));
    assert_refused(RUN("--redis", url, "--redis", url), "--redis is given twice");
    assert_null(strstr(err_text, "s3cret"));
    setenv("FENCEGATE_REDIS", "redis://u:s3cret@h", 1);
    assert_refused(run(NULL), "FENCEGATE_REDIS must be redis://");
    assert_null(strstr(err_text, "s3cret"));
    unsetenv("FENCEGATE_REDIS");
    setenv("FENCEGATE_REDIS_URL", url, 1);
    assert_int_equal(run(NULL), -1);
    assert_null(strstr(err_text, "s3cret"));
}

static void the_environment_comes_after_arguments(void **state)
{
    (void)state;
    setenv("FENCEGATE_DATA_DIR", "/env", 1);
    setenv("FENCEGATE_MAX_BODY", "2048", 1);
    setenv("FENCEGATE_LOG_FORMAT", "", 1);
    setenv("FENCEGATE_INSECURE", "", 1);
    assert_int_equal(RUN("--max-body", "4096"), -1);
    assert_string_equal(config.data_dir, "/env");
    assert_int_equal(config.max_body_bytes, 4096);
    assert_int_equal(config.log_format, LOG_TEXT);
    assert_false(config.insecure);
    assert_string_equal(err_text, "");
    setenv("FENCEGATE_MAX_BODY", "many", 1);
    assert_refused(run(NULL), "FENCEGATE_MAX_BODY must be a whole number");
    setenv("FENCEGATE_MAX_BODY", "2048", 1);
    setenv("FENCEGATE_LISTEN", "0.0.0.0:80", 1);
    assert_refused(run(NULL), "FENCEGATE_LISTEN \"0.0.0.0:80\" is not loopback");
    setenv("FENCEGATE_INSECURE", "1", 1);
    assert_int_equal(run(NULL), -1);
    assert_string_equal(config.listen, "0.0.0.0:80");
}

static void switches_in_the_environment(void **state)
{
    (void)state;
    static const char *const on[] = {"1", "true", "yes", "on"};
    static const char *const off[] = {"0", "false", "no", "off"};
    static const char *const bad[] = {"2", "y", "enabled", " 1", "on "};
    for (size_t i = 0; i < 4; i++) {
        setenv("FENCEGATE_REQUIRE_LEASE_ID", on[i], 1);
        assert_int_equal(run(NULL), -1);
        assert_true(config.require_lease_id);
        setenv("FENCEGATE_REQUIRE_LEASE_ID", off[i], 1);
        assert_int_equal(run(NULL), -1);
        assert_false(config.require_lease_id);
        assert_int_equal(RUN("--require-lease-id"), -1);
        assert_true(config.require_lease_id);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("FENCEGATE_REQUIRE_LEASE_ID", bad[i], 1);
        assert_refused(run(NULL), "FENCEGATE_REQUIRE_LEASE_ID must be 1, true, yes, on, 0");
    }
}

static void unknown_variables_are_only_a_warning(void **state)
{
    (void)state;
    setenv("FENCEGATE_PORT", "tcp://10.0.0.1:80", 1);
    setenv("FENCEGATE_SERVICE_HOST", "", 1);
    setenv("FENCEGATE", "x", 1);
    setenv("FENCE_URL", "x", 1);
    assert_int_equal(run(NULL), -1);
    const char *warning = strstr(err_text, " WARN  unknown variable ignored name=FENCEGATE_PORT\n");
    assert_non_null(warning);
    assert_ptr_equal(strchr(err_text, '\n'), err_text + strlen(err_text) - 1);
    assert_int_equal(RUN("--log-format=json"), -1);
    assert_non_null(strstr(err_text, "\"name\":\"FENCEGATE_PORT\"}\n"));
    assert_int_equal(RUN("--log-level=error"), -1);
    assert_string_equal(err_text, "");
}

static void help_lists_every_option_aligned(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"--listen HOST:PORT", "127.0.0.1:8080    FENCEGATE_LISTEN"},
        {"--data-dir DIR", "./fencegate-data  FENCEGATE_DATA_DIR"},
        {"--redis URL", "none              FENCEGATE_REDIS"},
        {"--adopt-redis", "off               FENCEGATE_ADOPT_REDIS"},
        {"--redis-timeout-ms MS", "500               FENCEGATE_REDIS_TIMEOUT_MS"},
        {"--max-body BYTES", "1048576           FENCEGATE_MAX_BODY"},
        {"--max-connections N", "10000             FENCEGATE_MAX_CONNECTIONS"},
        {"--request-timeout-ms MS", "10000             FENCEGATE_REQUEST_TIMEOUT_MS"},
        {"--require-lease-id", "off               FENCEGATE_REQUIRE_LEASE_ID"},
        {"--ledger-max-age AGE", "30d               FENCEGATE_LEDGER_MAX_AGE"},
        {"--ledger-max-rows N", "10000000          FENCEGATE_LEDGER_MAX_ROWS"},
        {"--drain-timeout-ms MS", "10000             FENCEGATE_DRAIN_TIMEOUT_MS"},
        {"--insecure", "off               FENCEGATE_INSECURE"},
        {"--log-level LEVEL", "info              FENCEGATE_LOG_LEVEL"},
        {"--log-format FORMAT", "text              FENCEGATE_LOG_FORMAT"},
        {"--help", "print this and exit"},
        {"--version", "print the versions and exit"},
    };
    setenv("FENCEGATE_MAX_BODY", "help does not look at this", 1);
    assert_int_equal(RUN("--help", "--nonsense"), 0);
    assert_string_equal(err_text, "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[128];
        snprintf(line, sizeof line, "\n  %-27s %s\n", rows[i][0], rows[i][1]);
        if (!strstr(out_text, line))
            fail_msg("not in --help: %s", line);
    }
    for (const char *line = out_text; *line; line = strchr(line, '\n') + 1)
        assert_in_range(strcspn(line, "\n"), 0, 84);
}

static void version_names_the_libraries(void **state)
{
    (void)state;
    assert_int_equal(RUN("--version"), 0);
    assert_string_equal(err_text, "");
    static const char first[] = "fencegate " FG_VERSION "\n";
    assert_memory_equal(out_text, first, sizeof first - 1);
    static const char *const names[] = {"libmicrohttpd 0.9.", "hiredis ", "jansson 2.", "sqlite 3.",
                                        "libev 4."};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_non_null(strstr(out_text, names[i]));
}

#define TEST(function) cmocka_unit_test_setup(function, clear_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_options_the_defaults_hold),
        TEST(both_forms_of_a_value),
        TEST(what_is_no_option_is_refused),
        TEST(numbers_have_a_range),
        TEST(ages_have_units),
        TEST(words_are_checked),
        TEST(an_open_address_needs_insecure),
        TEST(malformed_addresses_are_refused),
        TEST(redis_urls),
        TEST(passwords_in_the_wrong_place_stay_secret),
        TEST(the_environment_comes_after_arguments),
        TEST(switches_in_the_environment),
        TEST(unknown_variables_are_only_a_warning),
        TEST(help_lists_every_option_aligned),
        TEST(version_names_the_libraries),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
