/* test_inspect.c - inspect.lua straight against Redis. */
#include "tests/support/cleanup.h"
#include "tests/support/lua.h"
#include "tests/support/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { TTL_MS = 600000 };

/* The places in an answer. */
enum { ZERO = 1, NOW, HOLDERS };

/* Whatever it says, nothing changes. */
static const redisReply *inspect(void)
{
    const char *before = redis_everything();
    const redisReply *answer = lua_inspect();
    assert_string_equal(redis_everything(), before);
    return answer;
}

static void an_empty_database_has_no_holders(void **state)
{
    (void)state;
    int64_t before_ms = redis_now_ms();
    const redisReply *answer = inspect();
    expect_word(answer, "OK");
    assert_int_equal(answer->elements, 4);
    assert_string_equal(lua_text(answer, ZERO), "0");
    assert_in_range(lua_number(answer, NOW), before_ms, redis_now_ms());
    assert_string_equal(lua_members(answer, HOLDERS), "");
    assert_int_equal(redis_number(lua_server, "DBSIZE"), 0); /* not even our UUID */
}

static void holders_are_listed_with_their_expiries(void **state)
{
    (void)state;
    const redisReply *granted = lua_acquire(0, 2, TTL_MS, SECRET_A);
    lua_grant(1, 2, TTL_MS * 2, SECRET_B);
    const redisReply *answer = inspect();
    expect_word(answer, "OK");
    assert_string_equal(lua_members(answer, HOLDERS), "1:0a 2:0b");
    assert_int_equal(lua_expiry(answer, HOLDERS, "1:" SECRET_A),
                     lua_expiry(granted, HOLDERS, "1:" SECRET_A));
}

static void expired_ones_are_among_them_and_stay(void **state)
{
    (void)state;
    int64_t ran_out_ms = lua_put_holder("1:" SECRET_A, -5000);
    lua_put_holder("2:" SECRET_B, TTL_MS);
    const redisReply *answer = inspect();
    assert_string_equal(lua_members(answer, HOLDERS), "1:0a 2:0b");
    assert_int_equal(lua_expiry(answer, HOLDERS, "1:" SECRET_A), ran_out_ms);
    assert_true(lua_number(answer, NOW) >= ran_out_ms + 5000);
}

static void a_key_of_another_type_is_no_holders(void **state)
{
    (void)state;
    redis_command(lua_server, "LPUSH %s x", LUA_HOLDERS);
    const redisReply *answer = inspect();
    expect_word(answer, "OK");
    assert_string_equal(lua_members(answer, HOLDERS), "");
}

static void it_answers_without_memory(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    redis_run_out_of_memory();
    const redisReply *answer = inspect();
    expect_word(answer, "OK");
    assert_string_equal(lua_members(answer, HOLDERS), "1:0a");
}

static void another_stores_holders_are_not_told(void **state)
{
    (void)state;
    lua_hello(LUA_OTHER, 0);
    lua_put_holder("1:" SECRET_A, TTL_MS);
    const redisReply *answer = inspect();
    expect_word(answer, "WRONG_STORE");
    assert_int_equal(answer->elements, 1);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, lua_empty_server, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_empty_database_has_no_holders),
        TEST(holders_are_listed_with_their_expiries),
        TEST(expired_ones_are_among_them_and_stay),
        TEST(a_key_of_another_type_is_no_holders),
        TEST(it_answers_without_memory),
        TEST(another_stores_holders_are_not_told),
    };
    return cmocka_run_group_tests_name("inspect.lua", tests, lua_start_server, NULL);
}
