/* test_release.c - release.lua straight against Redis. */
#include "tests/support/cleanup.h"
#include "tests/support/lua.h"
#include "tests/support/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { TTL_MS = 600000 };

static void expect_removed(const redisReply *answer, int64_t count)
{
    expect_word(answer, "OK");
    assert_int_equal(answer->elements, 2);
    assert_int_equal(lua_number(answer, 1), count);
}

/* The holders as inspect.lua lists them. */
static const char *holders(void)
{
    return lua_members(lua_inspect(), 3);
}

static void exactly_the_named_holder_is_removed(void **state)
{
    (void)state;
    lua_grant(0, 3, TTL_MS, SECRET_A);
    lua_grant(0, 3, TTL_MS * 2, SECRET_B);
    lua_grant(0, 3, TTL_MS * 3, SECRET_C);
    int64_t forget_ms = redis_expiry(LUA_COUNTER);
    expect_removed(lua_release("2:" SECRET_B), 1);
    assert_string_equal(holders(), "1:0a 3:0c");
    expect_removed(lua_release("2:" SECRET_B), 0); /* once more */
    assert_string_equal(holders(), "1:0a 3:0c");
    assert_string_equal(redis_text(lua_server, "GET %s", LUA_COUNTER), "3");
    assert_int_equal(redis_expiry(LUA_COUNTER), forget_ms);
    assert_int_equal(redis_expiry(LUA_HOLDERS), forget_ms);
}

static void who_is_not_named_in_full_stays(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    const char *before = redis_everything();
    const char *const others[] = {
        "1:" SECRET_B, "2:" SECRET_A, "1:", "1",    "01:" SECRET_A, "1:" SECRET_A " ",
        "*",           "1:*",         "",   "-inf", "+inf"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        expect_removed(lua_release(others[i]), 0);
    assert_string_equal(redis_everything(), before);
}

/* The undo of a grant comes late: somebody else may hold the resource by then. */
static void a_late_removal_never_hits_the_next_holder(void **state)
{
    (void)state;
    const char *first = lua_grant(0, 1, TTL_MS, SECRET_A);
    expect_removed(lua_release(first), 1);
    lua_grant(1, 1, TTL_MS, SECRET_B);
    expect_removed(lua_release(first), 0);
    assert_string_equal(holders(), "2:0b");
    redis_command(lua_server, "FLUSHALL"); /* the same token again, for somebody else */
    assert_string_equal(lua_grant(0, 1, TTL_MS, SECRET_C), "1:" SECRET_C);
    expect_removed(lua_release(first), 0);
    assert_string_equal(holders(), "1:0c");
}

static void several_may_be_named(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        lua_grant(0, 5, TTL_MS + i, SECRET_A);
    expect_removed(lua_run("release", 2,
                           LIST(LUA_STORE, LUA_HOLDERS, LUA_UUID, "1:" SECRET_A, "9:" SECRET_A,
                                "3:" SECRET_A)),
                   2);
    assert_string_equal(holders(), "2:0a 4:0a");
}

static void an_expired_holder_can_be_removed(void **state)
{
    (void)state;
    lua_put_holder("1:" SECRET_A, -1);
    expect_removed(lua_release("1:" SECRET_A), 1);
    assert_int_equal(redis_number(lua_server, "EXISTS %s", LUA_HOLDERS), 0);
}

static void the_last_one_leaves_only_the_counter_behind(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    expect_removed(lua_release("1:" SECRET_A), 1);
    assert_int_equal(redis_number(lua_server, "EXISTS %s", LUA_HOLDERS), 0);
    assert_true(redis_expiry(LUA_COUNTER) > redis_now_ms());
    assert_int_equal(redis_number(lua_server, "DBSIZE"), 2);
    assert_string_equal(lua_grant(1, 1, TTL_MS, SECRET_B), "2:" SECRET_B);
}

static void nothing_is_created_where_nothing_is(void **state)
{
    (void)state;
    expect_removed(lua_release("1:" SECRET_A), 0);
    assert_int_equal(redis_number(lua_server, "EXISTS %s", LUA_HOLDERS), 0);
    redis_command(lua_server, "SET %s x", LUA_HOLDERS);
    expect_removed(lua_release("1:" SECRET_A), 0);
    assert_string_equal(redis_text(lua_server, "GET %s", LUA_HOLDERS), "x");
}

static void it_runs_without_memory(void **state)
{
    (void)state;
    lua_grant(0, 2, TTL_MS, SECRET_A);
    lua_grant(0, 2, TTL_MS, SECRET_B);
    redis_run_out_of_memory();
    expect_word(lua_acquire(2, 3, TTL_MS, SECRET_C), "OOM");
    expect_removed(lua_release("1:" SECRET_A), 1);
    expect_removed(lua_release("1:" SECRET_A), 0);
    assert_string_equal(holders(), "2:0b");
}

static void another_stores_database_is_not_touched(void **state)
{
    (void)state;
    lua_hello(LUA_OTHER, 0);
    lua_put_holder("1:" SECRET_A, TTL_MS);
    const char *before = redis_everything();
    const redisReply *answer = lua_release("1:" SECRET_A);
    expect_word(answer, "WRONG_STORE");
    assert_int_equal(answer->elements, 1);
    assert_string_equal(redis_everything(), before);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, lua_empty_server, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(exactly_the_named_holder_is_removed),
        TEST(who_is_not_named_in_full_stays),
        TEST(a_late_removal_never_hits_the_next_holder),
        TEST(several_may_be_named),
        TEST(an_expired_holder_can_be_removed),
        TEST(the_last_one_leaves_only_the_counter_behind),
        TEST(nothing_is_created_where_nothing_is),
        TEST(it_runs_without_memory),
        TEST(another_stores_database_is_not_touched),
    };
    return cmocka_run_group_tests_name("release.lua", tests, lua_start_server, NULL);
}
