/* test_base64url.c - base64url there and back, and text that is none. */
#include "gateway/base64url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* RFC 4648, section 10, without padding; and the two characters that differ from plain base64. */
static void known_texts(void **state)
{
    (void)state;
    struct {
        const char *bytes, *text;
    } cases[] = {
        {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},          {"foo", "Zm9v"},
        {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}, {"\xfb\xff\xbf", "-_-_"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[16], bytes[16];
        size_t count = strlen(cases[i].bytes), got;
        base64url_write(cases[i].bytes, count, text);
        assert_string_equal(text, cases[i].text);
        assert_int_equal(strlen(text), BASE64URL_CHARS(count));
        assert_true(base64url_read(text, bytes, sizeof bytes, &got));
        assert_int_equal(got, count);
        assert_memory_equal(bytes, cases[i].bytes, count);
    }
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (size_t count = 0; count <= 100; count++) {
        uint8_t bytes[100], back[101];
        char text[140];
        for (size_t i = 0; i < count; i++)
            bytes[i] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
        memset(text, '!', sizeof text);
        base64url_write(bytes, count, text);
        assert_int_equal(strlen(text), BASE64URL_CHARS(count));
        size_t got;
        assert_true(base64url_read(text, back, count, &got));
        assert_int_equal(got, count);
        assert_memory_equal(back, bytes, count);
    }
}

static void text_that_is_none(void **state)
{
    (void)state;
    const char *const bad[] = {
        "Z",     "Zm9vY",                   /* one character over */
        "Zg==",  "Zg=",    "Zm8=",     "=", /* padding */
        "Zh",    "Zm9",    "Zm9vYmF",       /* stray bits at the end */
        "Zm 9v", "Zm9v\n", " Zm9v",    "Zm9v ",   "Zm+v",
        "Zm/v",  "Zm.v",   "Zm9v\x80", "\xffm9v", "Zm\xc3\xa9v",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char bytes[16];
        size_t count;
        if (base64url_read(bad[i], bytes, sizeof bytes, &count))
            fail_msg("\"%s\" is taken", bad[i]);
    }
}

/* Of the 64 last characters of a text only those without stray bits are taken: one way to write
 * each value. */
static void there_is_one_text_for_each_value(void **state)
{
    (void)state;
    const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    int two = 0, three = 0;
    for (size_t i = 0; i < 64; i++) {
        char bytes[4];
        size_t count;
        two += base64url_read((char[]){'A', alphabet[i], 0}, bytes, 4, &count);
        three += base64url_read((char[]){'A', 'A', alphabet[i], 0}, bytes, 4, &count);
        assert_true(base64url_read((char[]){'A', 'A', 'A', alphabet[i], 0}, bytes, 4, &count));
    }
    assert_int_equal(two, 4);
    assert_int_equal(three, 16);
}

static void every_byte_is_either_in_the_alphabet_or_refused(void **state)
{
    (void)state;
    int taken = 0;
    for (int byte = 1; byte < 256; byte++) {
        char bytes[4];
        size_t count;
        taken += base64url_read((char[]){'A', 'A', 'A', (char)byte, 0}, bytes, 4, &count);
    }
    assert_int_equal(taken, 64);
}

static void nothing_is_written_beyond_the_room(void **state)
{
    (void)state;
    uint8_t bytes[8];
    size_t count;
    memset(bytes, 0x77, sizeof bytes);
    assert_false(base64url_read("Zm9vYmFy", bytes, 5, &count));
    assert_int_equal(bytes[5], 0x77);
    assert_false(base64url_read("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", bytes, 0, &count));
    assert_true(base64url_read("Zm9vYmFy", bytes, 6, &count));
    assert_int_equal(bytes[6], 0x77);
    assert_true(base64url_read("", NULL, 0, &count));
    assert_int_equal(count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(text_that_is_none),
        cmocka_unit_test(there_is_one_text_for_each_value),
        cmocka_unit_test(every_byte_is_either_in_the_alphabet_or_refused),
        cmocka_unit_test(nothing_is_written_beyond_the_room),
    };
    return cmocka_run_group_tests_name("base64url", tests, NULL, NULL);
}
