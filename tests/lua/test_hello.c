/* test_hello.c - hello.lua straight against Redis, and what all scripts have in common. */
#include "tests/support/cleanup.h"
#include "tests/support/lua.h"
#include "tests/support/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char *store(void)
{
    return redis_text(lua_server, "GET %s", LUA_STORE);
}

static void an_empty_database_becomes_ours(void **state)
{
    (void)state;
    const redisReply *answer = lua_hello(LUA_UUID, 0);
    expect_word(answer, "OK");
    assert_int_equal(answer->elements, 1);
    assert_string_equal(store(), LUA_UUID);
    assert_int_equal(redis_expiry(LUA_STORE), -1);
    assert_int_equal(redis_number(lua_server, "DBSIZE"), 1);
}

static void our_own_is_greeted_and_stays_as_it_is(void **state)
{
    (void)state;
    lua_grant(0, 1, 30000, SECRET_A);
    const char *before = redis_everything();
    expect_word(lua_hello(LUA_UUID, 0), "OK");
    expect_word(lua_hello(LUA_UUID, 1), "OK");
    assert_string_equal(redis_everything(), before);
}

static void another_stores_database_is_left_to_it(void **state)
{
    (void)state;
    lua_hello(LUA_OTHER, 0);
    const char *before = redis_everything();
    const redisReply *answer = lua_hello(LUA_UUID, 0);
    expect_word(answer, "WRONG_STORE");
    assert_int_equal(answer->elements, 1);
    assert_string_equal(redis_everything(), before);
}

static void it_is_taken_over_only_when_asked_to(void **state)
{
    (void)state;
    lua_hello(LUA_OTHER, 0);
    expect_word(lua_hello(LUA_UUID, 1), "OK");
    assert_string_equal(store(), LUA_UUID);
    expect_word(lua_hello(LUA_OTHER, 0), "WRONG_STORE");
}

static void what_is_no_uuid_is_another_store(void **state)
{
    (void)state;
    const char *const others[] = {"", LUA_UUID "0", "11111111-2222-4333-8444-55555555555", "x"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        redis_command(lua_server, "SET %s %b", LUA_STORE, others[i], strlen(others[i]));
        expect_word(lua_hello(LUA_UUID, 0), "WRONG_STORE");
    }
}

/* ---- All scripts ------------------------------------------------------------------------------
 */

static const char *text_of(const char *script)
{
    char *text = test_alloc(65536);
    int fd = open(test_printf("lua/%s.lua", script), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, text, 65535) > 0);
    close(fd);
    return text;
}

static int occurrences(const char *text, const char *word)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

/* In Redis 7 TIME moves while a script runs: what is judged twice could be judged differently. */
static void time_is_read_once(void **state)
{
    (void)state;
    assert_int_equal(occurrences(text_of("acquire"), "'TIME'"), 1);
    assert_int_equal(occurrences(text_of("renew"), "'TIME'"), 1);
    assert_int_equal(occurrences(text_of("inspect"), "'TIME'"), 1);
    assert_int_equal(occurrences(text_of("release"), "'TIME'"), 0);
    assert_int_equal(occurrences(text_of("hello"), "'TIME'"), 0);
}

/* Without the first line Redis would start a script that it then refuses in the middle. */
static void every_script_says_what_it_needs_in_its_first_line(void **state)
{
    (void)state;
    struct {
        const char *script, *line;
    } cases[] = {
        {"acquire", "#!lua\n"},
        {"renew", "#!lua\n"},
        {"release", "#!lua flags=allow-oom\n"},
        {"hello", "#!lua flags=allow-oom\n"},
        {"inspect", "#!lua flags=no-writes,allow-oom\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_memory_equal(text_of(cases[i].script), cases[i].line, strlen(cases[i].line));
}

static void it_answers_without_memory_where_the_database_is_ours(void **state)
{
    (void)state;
    lua_hello(LUA_UUID, 0);
    redis_run_out_of_memory();
    expect_word(lua_hello(LUA_UUID, 0), "OK");
    expect_word(lua_hello(LUA_OTHER, 0), "WRONG_STORE");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, lua_empty_server, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_empty_database_becomes_ours),
        TEST(our_own_is_greeted_and_stays_as_it_is),
        TEST(another_stores_database_is_left_to_it),
        TEST(it_is_taken_over_only_when_asked_to),
        TEST(what_is_no_uuid_is_another_store),
        TEST(it_answers_without_memory_where_the_database_is_ours),
        TEST(time_is_read_once),
        TEST(every_script_says_what_it_needs_in_its_first_line),
    };
    return cmocka_run_group_tests_name("hello.lua", tests, lua_start_server, NULL);
}
