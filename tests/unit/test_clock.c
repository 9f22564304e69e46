/* test_clock.c - two clocks, and how times are written. */
#include "gateway/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void known_times(void **state)
{
    (void)state;
    struct {
        int64_t wall_ms;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {1, "1970-01-01T00:00:00.001Z"},
        {999, "1970-01-01T00:00:00.999Z"},
        {1000, "1970-01-01T00:00:01.000Z"},
        {951782399999, "2000-02-28T23:59:59.999Z"},
        {951782400000, "2000-02-29T00:00:00.000Z"}, /* a leap day */
        {1709164800050, "2024-02-29T00:00:00.050Z"},
        {2147483648000, "2038-01-19T03:14:08.000Z"}, /* beyond 32 bits */
        {4107542399007, "2100-02-28T23:59:59.007Z"},
        {4107542400000, "2100-03-01T00:00:00.000Z"}, /* no leap year */
        {253402300799999, "9999-12-31T23:59:59.999Z"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[CLOCK_RFC3339_BYTES];
        assert_ptr_equal(clock_rfc3339(cases[i].wall_ms, out), out);
        assert_string_equal(out, cases[i].text);
    }
}

static void times_are_utc_wherever_we_are(void **state)
{
    (void)state;
    char out[CLOCK_RFC3339_BYTES];
    setenv("TZ", "Asia/Kathmandu", 1);
    tzset();
    assert_string_equal(clock_rfc3339(1709164800050, out), "2024-02-29T00:00:00.050Z");
    unsetenv("TZ");
    tzset();
}

static void times_sort_as_text(void **state)
{
    (void)state;
    char before[CLOCK_RFC3339_BYTES] = "", now[CLOCK_RFC3339_BYTES];
    for (int64_t ms = 0; ms < INT64_C(4102444800000); ms += INT64_C(987654321)) {
        clock_rfc3339(ms, now);
        assert_true(strcmp(before, now) < 0);
        memcpy(before, now, sizeof now);
    }
}

static int64_t read_ms(clockid_t id)
{
    struct timespec now;
    assert_int_equal(clock_gettime(id, &now), 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Each of ours lies between two readings of the clock that it claims to be. */
static void each_clock_is_the_one_it_says(void **state)
{
    (void)state;
    int64_t before = read_ms(CLOCK_BOOTTIME);
    int64_t boot = clock_boot_ms();
    assert_in_range(boot, before, read_ms(CLOCK_BOOTTIME));
    before = read_ms(CLOCK_REALTIME);
    int64_t wall = clock_wall_ms();
    assert_in_range(wall, before, read_ms(CLOCK_REALTIME));
}

static void the_boot_clock_never_goes_back(void **state)
{
    (void)state;
    int64_t before = clock_boot_ms();
    for (int i = 0; i < 100000; i++) {
        int64_t now = clock_boot_ms();
        assert_true(now >= before);
        before = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_times),
        cmocka_unit_test(times_are_utc_wherever_we_are),
        cmocka_unit_test(times_sort_as_text),
        cmocka_unit_test(each_clock_is_the_one_it_says),
        cmocka_unit_test(the_boot_clock_never_goes_back),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
