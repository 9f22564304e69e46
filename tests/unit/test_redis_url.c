/* test_redis_url.c - Redis URLs taken apart: every part, every refusal, every bound. */
#include "gateway/redis_url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Fails unless `url` is refused for exactly this reason. */
static void assert_fault(const char *url, const char *expected)
{
    struct redis_url parts;
    const char *fault = redis_url_parse(url, &parts);
    if (!fault || strcmp(fault, expected) != 0)
        fail_msg("%s: \"%s\", not \"%s\"", url, fault ? fault : "fine", expected);
}

static void good_urls_come_apart(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        struct redis_url parts;
    } rows[] = {
        {"redis://127.0.0.1:6379", {.host = "127.0.0.1", .port = 6379}},
        {"redis://redis_1.example.com:6379/0", {.host = "redis_1.example.com", .port = 6379}},
        {"redis://[::1]:65535/15", {.host = "::1", .port = 65535, .database = 15}},
        {"redis://h:1/2147483647", {.host = "h", .port = 1, .database = INT32_MAX}},
        {"redis://h:01/007", {.host = "h", .port = 1, .database = 7}},
        {"redis://app:pw@h:1", {.host = "h", .port = 1, .user = "app", .password = "pw"}},
        {"redis://:pw@h:1/2", {.host = "h", .port = 1, .password = "pw", .database = 2}},
        {"redis://a:b:c@h:1", {.host = "h", .port = 1, .user = "a", .password = "b:c"}},
        {"redis://a%40b:p%2Fq%25%3a@h:1",
         {.host = "h", .port = 1, .user = "a@b", .password = "p/q%:"}},
        {"redis://a%3Ab:%2540@h:1", {.host = "h", .port = 1, .user = "a:b", .password = "%40"}},
        {"redis://u:%01%20%ff\xc3\xa9@h:1",
         {.host = "h", .port = 1, .user = "u", .password = "\x01 \xff\xc3\xa9"}},
        {"unix:///run/redis.sock", {.path = "/run/redis.sock"}},
        {"unix:///run/redis.sock?db=3", {.path = "/run/redis.sock", .database = 3}},
        {"unix:///run/a%20b%3Fdb=1%25", {.path = "/run/a b?db=1%"}},
        {"unix:///run/x@y:z#", {.path = "/run/x@y:z#"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct redis_url parts;
        memset(&parts, 0xa5, sizeof parts);
        const char *fault = redis_url_parse(rows[i].url, &parts);
        if (fault)
            fail_msg("%s: %s", rows[i].url, fault);
        assert_string_equal(parts.host, rows[i].parts.host);
        assert_int_equal(parts.port, rows[i].parts.port);
        assert_string_equal(parts.path, rows[i].parts.path);
        assert_string_equal(parts.user, rows[i].parts.user);
        assert_string_equal(parts.password, rows[i].parts.password);
        assert_int_equal(parts.database, rows[i].parts.database);
    }
}

static void other_schemes_are_refused(void **state)
{
    (void)state;
    static const char *const urls[] = {"",
                                       "127.0.0.1:6379",
                                       "http://u:pw@h:1",
                                       "redis:/h:1",
                                       "REDIS://h:1",
                                       " redis://h:1",
                                       "/run/redis.sock"};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++)
        assert_fault(urls[i], "it begins with neither scheme");
    assert_fault("rediss://u:pw@h:1", "TLS is not supported");
}

static void bad_addresses_are_refused(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"redis://", "the port is missing"},
        {"redis://u:pw@h", "the port is missing"},
        {"redis://u:pw@[::1]", "the port is missing"},
        {"redis://u:pw@:6379", "the host is missing"},
        {"redis://:0", "the host is missing"},
        {"redis://h:0", "the port is 0"},
        {"redis://h:65536", "the port is not a number from 0 to 65535"},
        {"redis://u:pw/x@h:1", "the port is not a number from 0 to 65535"},
        {"redis://%68:1", "the host is malformed"},
        {"redis://::1:6379", "an IPv6 address needs [brackets]"},
        {"redis://127.1:6379", "the host is not an IPv4 address"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_fault(rows[i][0], rows[i][1]);
    char url[400];
    memset(url, 'a', sizeof url);
    memcpy(url, "redis://", 8);
    strcpy(url + sizeof url - 3, ":1");
    assert_fault(url, "the host is too long");
    strcpy(url + 8 + ADDRESS_HOST_BYTES, ":1");
    assert_fault(url, "the host is too long");
    strcpy(url + 8 + ADDRESS_HOST_BYTES - 1, ":1");
    struct redis_url parts;
    assert_null(redis_url_parse(url, &parts));
}

static void bad_databases_are_refused(void **state)
{
    (void)state;
    static const char *const tails[] = {
        "/",   "/x",    "/-1", "/1?x",        "/1/",
        "/ 1", "?db=1", "#1",  "/2147483648", "/99999999999999999999"};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        char url[64];
        snprintf(url, sizeof url, "redis://h:1%s", tails[i]);
        assert_fault(url, "what follows the port is not /N, the number of a database");
    }
    static const char *const queries[] = {"?",       "?db=",      "?db=x",
                                          "?db=-1",  "?db=1&x=2", "?DB=1",
                                          "?x&db=1", "?db=1?",    "?db=2147483648"};
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        char url[64];
        snprintf(url, sizeof url, "unix:///run/redis.sock%s", queries[i]);
        assert_fault(url, "what follows the path is not ?db=N");
    }
}

static void bad_credentials_are_refused(void **state)
{
    (void)state;
    static const char not_both[] = "what stands before the @ is not user:password";
    static const char not_encoded[] = "a character of user or password must be percent-encoded";
    static const char bad_escape[] =
        "a % of user or password is not followed by two hex digits (a % itself is %25)";
    static const char *const rows[][2] = {
        {"@", not_both},          {"pw@", not_both},        {"user:@", not_both},
        {":@", not_both},         {"u%3Apw@", not_both},    {"u:pw@x@", not_encoded},
        {"u:p w@", not_encoded},  {"u:p\nw@", not_encoded}, {"u:p\x7fw@", not_encoded},
        {" :pw@", not_encoded},   {"u:pw%4@", bad_escape},  {"u:pw%@", bad_escape},
        {"u:pw%zz@", bad_escape}, {"u:pw%4g@", bad_escape}, {"u:pw%00@", bad_escape},
        {"u%:25@", bad_escape},   {"u%4:1@", bad_escape},   {"%00:pw@", bad_escape},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char url[64];
        snprintf(url, sizeof url, "redis://%sh:1", rows[i][0]);
        assert_fault(url, rows[i][1]);
    }
}

/* "redis://USER:PASSWORD@h:1", each `count` times its unit. */
static const char *url_of(const char *user_unit, int user_count, const char *password_unit,
                          int password_count)
{
    static char url[4096];
    char *to = stpcpy(url, "redis://");
    for (int i = 0; i < user_count; i++)
        to = stpcpy(to, user_unit);
    to = stpcpy(to, ":");
    for (int i = 0; i < password_count; i++)
        to = stpcpy(to, password_unit);
    strcpy(to, "@h:1");
    return url;
}

static void user_and_password_have_at_most_255_bytes_decoded(void **state)
{
    (void)state;
    static const char too_long[] = "user or password is longer than 255 bytes";
    struct redis_url parts;
    assert_null(redis_url_parse(url_of("u", 255, "%41", 255), &parts));
    assert_int_equal(strlen(parts.user), 255);
    assert_int_equal(strspn(parts.password, "A"), 255);
    assert_null(redis_url_parse(url_of("%41", 255, "p", 255), &parts));
    assert_int_equal(strspn(parts.user, "A"), 255);
    assert_int_equal(strlen(parts.password), 255);
    assert_fault(url_of("u", 256, "p", 1), too_long);
    assert_fault(url_of("u", 1, "p", 256), too_long);
    assert_fault(url_of("%41", 256, "p", 1), too_long);
    assert_fault(url_of("u", 1, "%41", 256), too_long);
    assert_fault(url_of("u", 1, "p", 3000), too_long);
}

static void bad_paths_are_refused(void **state)
{
    (void)state;
    static const char not_absolute[] = "the path is not absolute";
    static const char bad_escape[] =
        "a % of the path is not followed by two hex digits (a % itself is %25)";
    static const char *const rows[][2] = {
        {"unix://", not_absolute},
        {"unix:///", not_absolute},
        {"unix://run/redis.sock", not_absolute},
        {"unix:///?db=1", not_absolute},
        {"unix://%2Frun", not_absolute},
        {"unix:///run/%", bad_escape},
        {"unix:///run/%4", bad_escape},
        {"unix:///run/%zz", bad_escape},
        {"unix:///run/%00", bad_escape},
        {"unix:///run/%2?db=1", bad_escape},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_fault(rows[i][0], rows[i][1]);
}

static void a_path_has_at_most_107_bytes_decoded(void **state)
{
    (void)state;
    static const char too_long[] =
        "the path is longer than 107 bytes, which no unix socket can have";
    struct redis_url parts;
    char url[1024] = "unix:///";
    memset(url + 8, 'a', 107);
    assert_fault(url, too_long);
    url[8 + 106] = '\0';
    assert_null(redis_url_parse(url, &parts));
    assert_int_equal(strlen(parts.path), 107);
    for (int i = 0; i < 106; i++)
        memcpy(url + 8 + 3 * i, "%61", 4);
    assert_null(redis_url_parse(url, &parts));
    assert_int_equal(strlen(parts.path), 107);
    strcat(url, "a");
    assert_fault(url, too_long);
    memset(url + 8, 'a', sizeof url - 9);
    assert_fault(url, too_long);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_urls_come_apart),
        cmocka_unit_test(other_schemes_are_refused),
        cmocka_unit_test(bad_addresses_are_refused),
        cmocka_unit_test(bad_databases_are_refused),
        cmocka_unit_test(bad_credentials_are_refused),
        cmocka_unit_test(user_and_password_have_at_most_255_bytes_decoded),
        cmocka_unit_test(bad_paths_are_refused),
        cmocka_unit_test(a_path_has_at_most_107_bytes_decoded),
    };
    return cmocka_run_group_tests_name("redis_url", tests, NULL, NULL);
}
