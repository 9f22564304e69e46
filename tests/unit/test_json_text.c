/* test_json_text.c - JSON written straight into text: it must read back as what went in. */
#include "gateway/json_text.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct arena arena;

static int free_arena(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

static void expect_text(const struct json_text *text, const char *expected)
{
    assert_int_equal(text->bytes, strlen(expected));
    assert_memory_equal(text->start, expected, text->bytes);
}

static void an_object_of_everything(void **state)
{
    (void)state;
    struct json_text text;
    json_text_open(&text, &arena);
    json_text_begin(&text, NULL, '{');
    json_text_string(&text, "name", "invoice:1234");
    json_text_string(&text, "owner", NULL);
    json_text_number(&text, "least", INT64_MIN);
    json_text_number(&text, "greatest", INT64_MAX);
    json_text_number_or_null(&text, "some", 1);
    json_text_number_or_null(&text, "none", 0);
    json_text_bool(&text, "yes", true);
    json_text_bool(&text, "no", false);
    json_text_null(&text, "nothing");
    json_text_time(&text, "at", 1796000000007);
    json_text_time(&text, "never", 0);
    json_text_end(&text, '}');
    expect_text(&text, "{\"name\":\"invoice:1234\",\"owner\":null,\"least\":-9223372036854775808,"
                       "\"greatest\":9223372036854775807,\"some\":1,\"none\":null,\"yes\":true,"
                       "\"no\":false,\"nothing\":null,\"at\":\"2026-11-30T00:53:20.007Z\","
                       "\"never\":null}");
}

static void lists_and_empty_ones(void **state)
{
    (void)state;
    struct json_text text;
    json_text_open(&text, &arena);
    json_text_begin(&text, NULL, '{');
    json_text_begin(&text, "items", '[');
    json_text_begin(&text, NULL, '{');
    json_text_end(&text, '}');
    json_text_number(&text, NULL, 7);
    json_text_begin(&text, NULL, '[');
    json_text_end(&text, ']');
    json_text_end(&text, ']');
    json_text_string(&text, "next_cursor", NULL);
    json_text_end(&text, '}');
    expect_text(&text, "{\"items\":[{},7,[]],\"next_cursor\":null}");
}

/* Every byte that UTF-8 may hold, read back by a parser that is not ours. */
static void every_character_reads_back(void **state)
{
    (void)state;
    for (int byte = 1; byte < 0x80; byte++) {
        char value[] = {'a', (char)byte, 'z', '\0'};
        struct json_text text;
        json_text_open(&text, &arena);
        json_text_begin(&text, NULL, '[');
        json_text_string(&text, NULL, value);
        json_text_string(&text, NULL, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\x92");
        json_text_end(&text, ']');
        json_t *read = json_loadb(text.start, text.bytes, 0, NULL);
        assert_non_null(read);
        assert_string_equal(json_string_value(json_array_get(read, 0)), value);
        assert_string_equal(json_string_value(json_array_get(read, 1)),
                            "\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\x92");
        json_decref(read);
    }
}

/* The text moves while it grows; what was written stays. */
static void it_grows_as_it_must(void **state)
{
    (void)state;
    char longest[201];
    memset(longest, '\x01', sizeof longest - 1); /* six characters each */
    longest[sizeof longest - 1] = '\0';
    struct json_text text;
    json_text_open(&text, &arena);
    json_text_begin(&text, NULL, '[');
    for (int i = 0; i < 1000; i++)
        json_text_string(&text, NULL, longest);
    json_text_end(&text, ']');
    json_t *read = json_loadb(text.start, text.bytes, 0, NULL);
    assert_non_null(read);
    assert_int_equal(json_array_size(read), 1000);
    for (size_t i = 0; i < 1000; i++)
        assert_string_equal(json_string_value(json_array_get(read, i)), longest);
    json_decref(read);
}

#define TEST(function) cmocka_unit_test_teardown(function, free_arena)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_object_of_everything),
        TEST(lists_and_empty_ones),
        TEST(every_character_reads_back),
        TEST(it_grows_as_it_must),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
