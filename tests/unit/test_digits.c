/* test_digits.c - numbers read and written, bytes written in hex, and random bytes. */
#include "gateway/digits.h"

#include "gateway/random.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void numbers_are_written_as_printf_writes_them(void **state)
{
    (void)state;
    int64_t numbers[200] = {INT64_MIN, INT64_MAX, 0, -1, 9, 10, -10, INT64_C(9007199254740991)};
    for (size_t i = 8; i < 200; i++)
        random_bytes(&numbers[i], 1 + i % sizeof numbers[i]);
    for (size_t i = 0; i < 200; i++) {
        char expected[DIGITS_CHARS], written[DIGITS_CHARS];
        int length = snprintf(expected, sizeof expected, "%" PRId64, numbers[i]);
        assert_ptr_equal(digits_write(written, numbers[i]), written + length);
        assert_string_equal(written, expected);
    }
}

static void padding_is_with_zeros(void **state)
{
    (void)state;
    char out[8] = "xxxxxxx";
    assert_ptr_equal(digits_write_padded(out, 42, 4), out + 4);
    assert_memory_equal(out, "0042xxx", 7);
    digits_write_padded(out, 0, 1);
    assert_memory_equal(out, "0042xxx", 7);
}

static void bytes_are_two_hex_digits_each(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0x00, 0x0f, 0xf0, 0xff, 0x5a};
    char out[2 * sizeof bytes + 1];
    assert_ptr_equal(digits_write_hex(out, bytes, sizeof bytes), out + 10);
    assert_string_equal(out, "000ff0ff5a");
}

static void only_digits_within_the_range_are_read(void **state)
{
    (void)state;
    int64_t number = -1;
    assert_true(digits_read("007", 3, 7, &number));
    assert_int_equal(number, 7);
    assert_true(digits_read("9223372036854775807", 19, INT64_MAX, &number));
    assert_int_equal(number, INT64_MAX);
    const char *const refused[] = {"", "8", "-1", "+1", " 1", "1 ", "9223372036854775808", "0x1"};
    number = 5;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_false(digits_read(refused[i], strlen(refused[i]), 7, &number));
    assert_int_equal(number, 5);
}

static int compare_pieces(const void *a, const void *b)
{
    return memcmp(a, b, 16);
}

/* Many more than fit into one page: no piece comes twice. */
static void random_pieces_never_repeat(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    static uint8_t pieces[COUNT][16];
    for (size_t i = 0; i < COUNT; i++)
        random_bytes(pieces[i], sizeof pieces[i]);
    qsort(pieces, COUNT, sizeof pieces[0], compare_pieces);
    for (size_t i = 1; i < COUNT; i++)
        assert_memory_not_equal(pieces[i - 1], pieces[i], sizeof pieces[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written_as_printf_writes_them),
        cmocka_unit_test(padding_is_with_zeros),
        cmocka_unit_test(bytes_are_two_hex_digits_each),
        cmocka_unit_test(only_digits_within_the_range_are_read),
        cmocka_unit_test(random_pieces_never_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
