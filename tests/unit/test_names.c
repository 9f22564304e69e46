/* test_names.c - what is a name, what is UTF-8, and what percent-decoding makes of hostile text. */
#include "gateway/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- Names ----------------------------------------------------------------------------------- */

static void names_that_are_taken(void **state)
{
    (void)state;
    const char *const names[] = {
        "a",
        "invoice:1234",
        "orders/42",
        "...",
        ".a",
        "a.",
        " ",
        " a ",
        "%2F",
        "{r}",
        "a\\b\"c'd",
        "caf\xc3\xa9",
        "cafe\xcc\x81",
        "\xe2\x80\xae",     /* U+202E, right-to-left override: no control character */
        "\xc2\xa0",         /* U+00A0, just above the C1 controls */
        "\xef\xbf\xbf",     /* U+FFFF */
        "\xf0\x9f\x94\x92", /* U+1F512 */
        "\xf4\x8f\xbf\xbf", /* U+10FFFF */
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *fault = name_fault(names[i]);
        if (fault)
            fail_msg("name %zu, \"%s\": %s", i, names[i], fault);
    }
}

static void names_that_are_refused(void **state)
{
    (void)state;
    struct {
        const char *name, *fault;
    } cases[] = {
        {"", "A name has at least one byte."},
        {".", "A name is not \".\" or \"..\"."},
        {"..", "A name is not \".\" or \"..\"."},
        {"\x01", "A name has no control characters."},
        {"a\nb", "A name has no control characters."},
        {"a\t", "A name has no control characters."},
        {"\x1f", "A name has no control characters."},
        {"\x7f", "A name has no control characters."},
        {"a\xc2\x80", "A name has no control characters."},
        {"\xc2\x85", "A name has no control characters."},
        {"\xc2\x9f", "A name has no control characters."},
        {"\x80", "A name is valid UTF-8."},
        {"a\xff", "A name is valid UTF-8."},
        {"\xc2", "A name is valid UTF-8."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *fault = name_fault(cases[i].name);
        if (!fault || strcmp(fault, cases[i].fault) != 0)
            fail_msg("name %zu: %s, not: %s", i, fault ? fault : "taken", cases[i].fault);
    }
}

static void a_name_has_at_most_200_bytes_not_characters(void **state)
{
    (void)state;
    char name[300];
    memset(name, 'n', sizeof name);
    name[NAME_BYTES_MAX] = '\0';
    assert_null(name_fault(name));
    name[NAME_BYTES_MAX] = 'n';
    name[NAME_BYTES_MAX + 1] = '\0';
    assert_string_equal(name_fault(name), "A name has at most 200 bytes.");
    for (size_t i = 0; i < 204; i += 3)
        memcpy(name + i, "\xe2\x82\xac", 3);
    name[198] = '\0';
    assert_null(name_fault(name));
    memcpy(name + 198, "\xe2\x82\xac", 4);
    assert_string_equal(name_fault(name), "A name has at most 200 bytes.");
}

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

static void what_is_utf8(void **state)
{
    (void)state;
    struct {
        const char *what, *text;
        bool valid;
    } cases[] = {
        {"nothing", "", true},
        {"U+007F", "\x7f", true},
        {"U+0080, the first of two bytes", "\xc2\x80", true},
        {"U+07FF, the last of two bytes", "\xdf\xbf", true},
        {"U+0800, the first of three bytes", "\xe0\xa0\x80", true},
        {"U+D7FF, below the surrogates", "\xed\x9f\xbf", true},
        {"U+E000, above the surrogates", "\xee\x80\x80", true},
        {"U+10000, the first of four bytes", "\xf0\x90\x80\x80", true},
        {"U+10FFFF, the last", "\xf4\x8f\xbf\xbf", true},
        {"a continuation byte alone", "\x80", false},
        {"a last continuation byte alone", "\xbf", false},
        {"two bytes for NUL", "\xc0\x80", false},
        {"two bytes for U+007F", "\xc1\xbf", false},
        {"three bytes for NUL", "\xe0\x80\x80", false},
        {"three bytes for U+07FF", "\xe0\x9f\xbf", false},
        {"four bytes for U+FFFF", "\xf0\x8f\xbf\xbf", false},
        {"U+D800, a surrogate", "\xed\xa0\x80", false},
        {"U+DFFF, a surrogate", "\xed\xbf\xbf", false},
        {"U+110000, above the last", "\xf4\x90\x80\x80", false},
        {"a first byte that never is", "\xf5\x80\x80\x80", false},
        {"FE", "\xfe", false},
        {"FF", "\xff", false},
        {"two bytes, cut", "\xc3", false},
        {"three bytes, cut after one", "\xe2", false},
        {"three bytes, cut after two", "\xe2\x82", false},
        {"four bytes, cut after three", "\xf0\x9f\x94", false},
        {"a cut one before text", "\xc3z", false},
        {"a bad third byte", "\xe2\x82z", false},
        {"a bad fourth byte", "\xf0\x9f\x94z", false},
        {"a first byte as continuation", "\xe2\xe2\x82\xac", false},
        {"text behind it", "\xe2\x82\xac z", true},
        {"a fault at the end of much text", "0123456789012345678901234567890123456789\xc3", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (utf8_valid(cases[i].text, strlen(cases[i].text)) != cases[i].valid)
            fail_msg("%s: %s", cases[i].what, cases[i].valid ? "refused" : "taken");
    }
    assert_true(utf8_valid("a\0b", 3));
    assert_false(utf8_valid("\xc3\xa9", 1)); /* nothing behind the given length is looked at */
}

/* Encodes each number in the way of UTF-8, and is told apart by what is a character. */
static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t point = 1; point < 0x200000; point++) {
        char text[4];
        size_t bytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
        for (size_t i = bytes; i-- > 1;)
            text[i] = (char)(0x80 | (point >> 6 * (bytes - 1 - i) & 0x3f));
        const uint32_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
        text[0] = (char)(first[bytes] | point >> 6 * (bytes - 1));
        bool is_character = point < 0xd800 || (point > 0xdfff && point < 0x110000);
        if (utf8_valid(text, bytes) != is_character)
            fail_msg("U+%04X: %s", point, is_character ? "refused" : "taken");
        if (bytes > 1 && utf8_valid(text, bytes - 1))
            fail_msg("U+%04X, cut: taken", point);
    }
}

/* ---- Percent-decoding ------------------------------------------------------------------------ */

static void what_is_decoded(void **state)
{
    (void)state;
    struct {
        const char *from, *to;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"orders%2F42", "orders/42"},
        {"%2f%2F", "//"},
        {"%252F", "%2F"}, /* once */
        {"%25%32%46", "%2F"},
        {"+", "+"},
        {"%2B", "+"},
        {"%C3%A9", "\xc3\xa9"},
        {"%ff%01", "\xff\x01"}, /* whether that is a name is asked afterwards */
        {"%aB%Ab", "\xab\xab"},
        {"a%20b", "a b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char to[64];
        memset(to, '!', sizeof to);
        assert_true(percent_decode(cases[i].from, strlen(cases[i].from), to));
        assert_string_equal(to, cases[i].to);
    }
}

static void what_is_not_decoded(void **state)
{
    (void)state;
    const char *const bad[] = {"%",     "a%",   "%2",     "a%2",       "%zz",   "%2g",  "%g2",
                               "%%",    "%%20", "%-1",    "% 1",       "%1 ",   "%0x1", "%00",
                               "a%00b", "%2F%", "%u0041", "%\xc3\xa9", "%2\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char to[64];
        if (percent_decode(bad[i], strlen(bad[i]), to))
            fail_msg("\"%s\" is decoded to \"%s\"", bad[i], to);
    }
}

static void every_byte_but_nul_can_be_escaped(void **state)
{
    (void)state;
    for (unsigned byte = 1; byte < 256; byte++) {
        char from[8], to[8];
        for (int upper = 0; upper < 2; upper++) {
            snprintf(from, sizeof from, upper ? "%%%02X" : "%%%02x", byte);
            assert_true(percent_decode(from, 3, to));
            assert_int_equal((unsigned char)to[0], byte);
            assert_int_equal(to[1], '\0');
        }
    }
}

static void only_the_given_bytes_are_decoded(void **state)
{
    (void)state;
    char to[8];
    assert_true(percent_decode("abc/def", 3, to));
    assert_string_equal(to, "abc");
    assert_false(percent_decode("%20", 2, to)); /* the 0 lies behind the end */
    assert_false(percent_decode("a%20", 3, to));
    assert_true(percent_decode("%20", 0, to));
    assert_string_equal(to, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_are_taken),
        cmocka_unit_test(names_that_are_refused),
        cmocka_unit_test(a_name_has_at_most_200_bytes_not_characters),
        cmocka_unit_test(what_is_utf8),
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(what_is_decoded),
        cmocka_unit_test(what_is_not_decoded),
        cmocka_unit_test(every_byte_but_nul_can_be_escaped),
        cmocka_unit_test(only_the_given_bytes_are_decoded),
    };
    return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
