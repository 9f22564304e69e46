/* test_address.c - host and port apart, what is refused, and what counts as loopback. */
#include "gateway/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void good_addresses_come_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        int port;
    } rows[] = {
        {"127.0.0.1:8080", "127.0.0.1", 8080},
        {"0.0.0.0:0", "0.0.0.0", 0},
        {"255.255.255.255:65535", "255.255.255.255", 65535},
        {"localhost:080", "localhost", 80},
        {"redis_1.example-2.com:6379", "redis_1.example-2.com", 6379},
        {"[::1]:80", "::1", 80},
        {"[::ffff:127.0.0.1]:80", "::ffff:127.0.0.1", 80},
        {"[2001:DB8::1]:1", "2001:DB8::1", 1},
        {":8080", "", 8080},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char host[ADDRESS_HOST_BYTES];
        int port = -1;
        const char *fault = address_split(rows[i].text, host, &port);
        if (fault)
            fail_msg("%s: %s", rows[i].text, fault);
        assert_string_equal(host, rows[i].host);
        assert_int_equal(port, rows[i].port);
    }
}

static void bad_addresses_are_told_why(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"", "the port is missing"},
        {"8080", "the port is missing"},
        {"127.0.0.1", "the port is missing"},
        {"[::1]", "the port is missing"},
        {"[::1:80]", "the port is missing"},
        {"127.0.0.1:", "the port is not a number from 0 to 65535"},
        {"127.0.0.1:65536", "the port is not a number from 0 to 65535"},
        {"127.0.0.1:99999999999999999999", "the port is not a number from 0 to 65535"},
        {"127.0.0.1:-1", "the port is not a number from 0 to 65535"},
        {"127.0.0.1:+1", "the port is not a number from 0 to 65535"},
        {"127.0.0.1: 1", "the port is not a number from 0 to 65535"},
        {"127.0.0.1:0x50", "the port is not a number from 0 to 65535"},
        {"127.0.0.1:http", "the port is not a number from 0 to 65535"},
        {"localhost:80/", "the port is not a number from 0 to 65535"},
        {"http://localhost:80", "an IPv6 address needs [brackets]"},
        {"a b:80", "the host is malformed"},
        {"x@localhost:80", "the host is malformed"},
        {"h\xc3\xb6st:80", "the host is malformed"},
        {"%31:80", "the host is malformed"},
        {"::1:8080", "an IPv6 address needs [brackets]"},
        {"[::1:80", "an IPv6 address needs [brackets]"},
        {"127.1:80", "the host is not an IPv4 address"},
        {"1.2.3.4.5:80", "the host is not an IPv4 address"},
        {"300.0.0.1:80", "the host is not an IPv4 address"},
        {"1:80", "the host is not an IPv4 address"},
        {"[]:80", "the host is not an IPv6 address"},
        {"[127.0.0.1]:80", "the host is not an IPv6 address"},
        {"[localhost]:80", "the host is not an IPv6 address"},
        {"[::1%lo]:80", "the host is not an IPv6 address"},
        {"[[::1]]:80", "the host is not an IPv6 address"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char host[ADDRESS_HOST_BYTES];
        int port;
        const char *fault = address_split(rows[i][0], host, &port);
        if (!fault || strcmp(fault, rows[i][1]) != 0)
            fail_msg("%s: \"%s\", not \"%s\"", rows[i][0], fault ? fault : "fine", rows[i][1]);
        assert_false(address_is_loopback(rows[i][0]));
    }
}

static void a_host_has_at_most_253_bytes(void **state)
{
    (void)state;
    char text[ADDRESS_HOST_BYTES + 4], host[ADDRESS_HOST_BYTES];
    int port;
    memset(text, 'a', sizeof text);
    strcpy(text + ADDRESS_HOST_BYTES - 1, ":80");
    assert_null(address_split(text, host, &port));
    assert_int_equal(strlen(host), 253);
    text[ADDRESS_HOST_BYTES - 1] = 'a';
    strcpy(text + ADDRESS_HOST_BYTES, ":80");
    assert_string_equal(address_split(text, host, &port), "the host is too long");
}

static void loopback_is_what_only_this_machine_can_reach(void **state)
{
    (void)state;
    static const char *const loopback[] = {
        "127.0.0.1:0", "127.9.9.9:65535",        "localhost:80",     "LOCALHOST:80",
        "[::1]:8080",  "[0:0:0:0:0:0:0:1]:8080", "127.255.255.255:1"};
    static const char *const open[] = {":0",
                                       ":8080",
                                       "0.0.0.0:80",
                                       "10.0.0.1:80",
                                       "126.255.255.255:1",
                                       "128.0.0.1:1",
                                       "[::]:80",
                                       "[::2]:80",
                                       "[::ffff:127.0.0.1]:80",
                                       "[fe80::1]:80",
                                       "example.com:80",
                                       "localhost.example.com:80",
                                       "localhost.:80"};
    for (size_t i = 0; i < sizeof loopback / sizeof loopback[0]; i++)
        if (!address_is_loopback(loopback[i]))
            fail_msg("not loopback: %s", loopback[i]);
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        if (address_is_loopback(open[i]))
            fail_msg("loopback: %s", open[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses_come_apart),
        cmocka_unit_test(bad_addresses_are_told_why),
        cmocka_unit_test(a_host_has_at_most_253_bytes),
        cmocka_unit_test(loopback_is_what_only_this_machine_can_reach),
    };
    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
