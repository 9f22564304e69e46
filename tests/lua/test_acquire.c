/* test_acquire.c - acquire.lua straight against Redis. */
#include "tests/support/cleanup.h"
#include "tests/support/lua.h"
#include "tests/support/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { TTL_MS = 600000, DAY_MS = 86400000 };

static const int64_t token_max = 9007199254740991; /* 2^53 - 1 */

/* The places in an answer. */
enum { TOKEN = 1, NOW, HOLDERS, DROPPED };

static const char *counter(void)
{
    return redis_text(lua_server, "GET %s", LUA_COUNTER);
}

static void set_counter(const char *value)
{
    redis_command(lua_server, "SET %s %s", LUA_COUNTER, value);
}

/* ---- Grants and busy answers ------------------------------------------------------------------
 */

static void the_first_grant(void **state)
{
    (void)state;
    int64_t before_ms = redis_now_ms();
    const redisReply *answer = lua_acquire(0, 1, TTL_MS, SECRET_A);
    expect_word(answer, "GRANTED");
    assert_int_equal(answer->elements, 5);
    assert_string_equal(lua_text(answer, TOKEN), "1");
    assert_in_range(lua_number(answer, NOW), before_ms, redis_now_ms());
    assert_string_equal(lua_members(answer, HOLDERS), "1:0a");
    assert_int_equal(lua_expiry(answer, HOLDERS, "1:" SECRET_A), lua_number(answer, NOW) + TTL_MS);
    assert_string_equal(lua_members(answer, DROPPED), "");
    assert_string_equal(counter(), "1");
    assert_int_equal(redis_number(lua_server, "ZCARD %s", LUA_HOLDERS), 1);
    assert_int_equal(redis_number(lua_server, "ZSCORE %s 1:%s", LUA_HOLDERS, SECRET_A),
                     lua_number(answer, NOW) + TTL_MS);
    assert_int_equal(redis_number(lua_server, "DBSIZE"), 3); /* the store's UUID, too */
}

static void a_mutex_has_one_holder(void **state)
{
    (void)state;
    const redisReply *first = lua_acquire(0, 1, TTL_MS, SECRET_A);
    const char *before = redis_everything();
    const redisReply *answer = lua_acquire(1, 1, TTL_MS, SECRET_B);
    expect_word(answer, "BUSY");
    assert_int_equal(answer->elements, 5);
    assert_string_equal(lua_text(answer, TOKEN), "0");
    assert_string_equal(lua_members(answer, HOLDERS), "1:0a");
    assert_int_equal(lua_expiry(answer, HOLDERS, "1:" SECRET_A),
                     lua_expiry(first, HOLDERS, "1:" SECRET_A));
    assert_string_equal(lua_members(answer, DROPPED), "");
    assert_string_equal(redis_everything(), before);
}

static void a_semaphore_has_as_many_as_its_limit(void **state)
{
    (void)state;
    const char *const secrets[] = {SECRET_A, SECRET_B, SECRET_C};
    const char *const members[] = {"1:0a", "1:0a 2:0b", "1:0a 2:0b 3:0c"};
    for (int i = 0; i < 3; i++) {
        const redisReply *answer = lua_acquire(0, 3, TTL_MS + i * 1000, secrets[i]);
        expect_word(answer, "GRANTED");
        assert_int_equal(lua_number(answer, TOKEN), i + 1);
        assert_string_equal(lua_members(answer, HOLDERS), members[i]);
    }
    const redisReply *busy = lua_acquire(3, 3, TTL_MS, SECRET_D);
    expect_word(busy, "BUSY");
    assert_string_equal(lua_members(busy, HOLDERS), "1:0a 2:0b 3:0c");
    expect_word(lua_release("2:" SECRET_B), "OK");
    const redisReply *again = lua_acquire(3, 3, TTL_MS * 2, SECRET_D);
    expect_word(again, "GRANTED");
    assert_string_equal(lua_members(again, HOLDERS), "1:0a 3:0c 4:0d");
}

static void a_thousand_may_hold(void **state)
{
    (void)state;
    for (int i = 1; i <= 999; i++)
        lua_put_holder(test_printf("%d:%032d", i, i), TTL_MS);
    set_counter("999");
    const redisReply *answer = lua_acquire(999, 1000, TTL_MS, SECRET_A);
    expect_word(answer, "GRANTED");
    assert_int_equal(answer->element[HOLDERS]->elements, 2000);
    answer = lua_acquire(1000, 1000, TTL_MS, SECRET_B);
    expect_word(answer, "BUSY");
    assert_int_equal(answer->element[HOLDERS]->elements, 2000);
}

static void a_smaller_limit_admits_nobody_until_enough_have_left(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        lua_grant(0, 3, TTL_MS, SECRET_A);
    expect_word(lua_acquire(3, 2, TTL_MS, SECRET_B), "BUSY");
    lua_release("1:" SECRET_A);
    expect_word(lua_acquire(3, 2, TTL_MS, SECRET_B), "BUSY");
    lua_release("2:" SECRET_A);
    expect_word(lua_acquire(3, 2, TTL_MS, SECRET_B), "GRANTED");
}

/* ---- Expired holders --------------------------------------------------------------------------
 */

static void an_expired_holder_is_dropped_and_told_with_its_expiry(void **state)
{
    (void)state;
    set_counter("7");
    int64_t ran_out_ms = lua_put_holder("7:" SECRET_A, -5000);
    const redisReply *answer = lua_acquire(7, 1, TTL_MS, SECRET_B);
    expect_word(answer, "GRANTED");
    assert_int_equal(lua_number(answer, TOKEN), 8);
    assert_string_equal(lua_members(answer, HOLDERS), "8:0b");
    assert_string_equal(lua_members(answer, DROPPED), "7:0a");
    assert_int_equal(lua_expiry(answer, DROPPED, "7:" SECRET_A), ran_out_ms);
    assert_int_equal(redis_number(lua_server, "ZCARD %s", LUA_HOLDERS), 1);
}

static void only_the_expired_ones_are_dropped(void **state)
{
    (void)state;
    set_counter("3");
    int64_t first_ms = lua_put_holder("1:" SECRET_A, -2),
            third_ms = lua_put_holder("3:" SECRET_C, -70000);
    int64_t second_ms = lua_put_holder("2:" SECRET_B, TTL_MS);
    const redisReply *answer = lua_acquire(3, 2, TTL_MS * 2, SECRET_D);
    expect_word(answer, "GRANTED");
    assert_string_equal(lua_members(answer, HOLDERS), "2:0b 4:0d");
    assert_string_equal(lua_members(answer, DROPPED), "3:0c 1:0a");
    assert_int_equal(lua_expiry(answer, DROPPED, "1:" SECRET_A), first_ms);
    assert_int_equal(lua_expiry(answer, DROPPED, "3:" SECRET_C), third_ms);
    assert_int_equal(lua_expiry(answer, HOLDERS, "2:" SECRET_B), second_ms);
}

static void what_is_dropped_is_told_in_a_busy_answer_too(void **state)
{
    (void)state;
    lua_put_holder("1:" SECRET_A, -5);
    lua_put_holder("2:" SECRET_B, TTL_MS);
    const redisReply *answer = lua_acquire(2, 1, TTL_MS, SECRET_C);
    expect_word(answer, "BUSY");
    assert_string_equal(lua_members(answer, HOLDERS), "2:0b");
    assert_string_equal(lua_members(answer, DROPPED), "1:0a");
}

static void a_lease_runs_out_by_itself(void **state)
{
    (void)state;
    const char *member = lua_grant(0, 1, 50, SECRET_A);
    const redisReply *answer = NULL;
    assert_true(EVENTUALLY((answer = lua_acquire(1, 1, TTL_MS, SECRET_B)) &&
                               strcmp(lua_word(answer), "GRANTED") == 0,
                           10000));
    assert_true(lua_expiry(answer, DROPPED, member) <= lua_number(answer, NOW));
    assert_int_equal(lua_number(answer, TOKEN), 2);
}

/* ---- Tokens -----------------------------------------------------------------------------------
 */

static void the_token_is_one_more_than_the_greater_of_counter_and_mark(void **state)
{
    (void)state;
    struct {
        const char *counter; /* NULL: none */
        int64_t mark, token;
    } cases[] = {
        {NULL, 0, 1},
        {NULL, 41, 42},
        {"5", 0, 6},
        {"5", 5, 6},
        {"5", 4, 6},
        {"5", 9, 10},
        {"0", 0, 1},
        {"99999999999999", 0, 100000000000000}, /* 1e14: no exponent */
        {"999999999999999", 0, 1000000000000000},
        {NULL, 99999999999999999 / 100, 1000000000000000},
        {"123456789012345", 123456789012346, 123456789012347},
        {"9007199254740989", 0, 9007199254740990},
        {"9007199254740990", 0, 9007199254740991}, /* the last one */
        {NULL, 9007199254740990, 9007199254740991},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lua_empty_server(state);
        if (cases[i].counter)
            set_counter(cases[i].counter);
        const redisReply *answer = lua_acquire(cases[i].mark, 1, TTL_MS, SECRET_A);
        expect_word(answer, "GRANTED");
        const char *token = test_printf("%lld", (long long)cases[i].token);
        assert_string_equal(lua_text(answer, TOKEN), token);
        assert_string_equal(counter(), token);
        assert_non_null(redis_text(lua_server, "ZSCORE %s %s:%s", LUA_HOLDERS, token, SECRET_A));
    }
}

static void a_counter_that_is_garbage_counts_as_lost(void **state)
{
    (void)state;
    const char *const garbage[] = {
        "",
        "abc",
        "12abc",
        " 5",
        "5 ",
        "-5",
        "+5",
        "5.0",
        "1e20",
        "1e3",
        "0x10",
        "inf",
        "nan",
        "5\n",
        "\x01",
        "\xff",
        "9007199254740992",
        "9999999999999999",
        "12345678901234567",
        "18446744073709551616",
        "99999999999999999999999999999999",
    };
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        lua_empty_server(state);
        redis_command(lua_server, "SET %s %b", LUA_COUNTER, garbage[i], strlen(garbage[i]));
        const redisReply *answer = lua_acquire(41, 1, TTL_MS, SECRET_A);
        if (strcmp(lua_word(answer), "GRANTED") != 0 || lua_number(answer, TOKEN) != 42)
            fail_msg("with \"%s\": %s", garbage[i], lua_word(answer));
        assert_string_equal(counter(), "42");
    }
}

static void leading_zeros_are_a_number(void **state)
{
    (void)state;
    set_counter("05");
    assert_string_equal(lua_grant(0, 1, TTL_MS, SECRET_A), "6:" SECRET_A);
    assert_string_equal(counter(), "6");
}

static void keys_of_another_type_count_as_lost(void **state)
{
    (void)state;
    const char *const counters[] = {"LPUSH %s x", "SADD %s x", "HSET %s x y", "ZADD %s 1 x",
                                    "XADD %s * x y"};
    const char *const holders[] = {"LPUSH %s x", "SADD %s x", "HSET %s x y", "SET %s x",
                                   "XADD %s * x y"};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        lua_empty_server(state);
        redis_command(lua_server, counters[i], LUA_COUNTER);
        redis_command(lua_server, holders[i], LUA_HOLDERS);
        const redisReply *answer = lua_acquire(41, 1, TTL_MS, SECRET_A);
        expect_word(answer, "GRANTED");
        assert_int_equal(lua_number(answer, TOKEN), 42);
        assert_string_equal(lua_members(answer, HOLDERS), "42:0a");
        assert_string_equal(counter(), "42");
        assert_string_equal(redis_text(lua_server, "TYPE %s", LUA_HOLDERS), "zset");
    }
}

static void when_no_token_is_left_nothing_is_granted(void **state)
{
    (void)state;
    const int64_t marks[] = {token_max, 0};
    for (size_t i = 0; i < 2; i++) {
        lua_empty_server(state);
        lua_hello(LUA_UUID, 0);
        if (marks[i] == 0)
            set_counter("9007199254740991");
        const char *before = redis_everything();
        const redisReply *answer = lua_acquire(marks[i], 1, TTL_MS, SECRET_A);
        expect_word(answer, "EXHAUSTED");
        assert_int_equal(answer->elements, 1);
        assert_string_equal(redis_everything(), before);
    }
}

static void the_last_token_can_be_renewed_and_released(void **state)
{
    (void)state;
    const char *member = lua_grant(token_max - 1, 1, TTL_MS, SECRET_A);
    assert_string_equal(member, "9007199254740991:" SECRET_A);
    expect_word(lua_acquire(token_max, 1, TTL_MS, SECRET_B), "BUSY");
    expect_word(lua_renew(member, token_max, TTL_MS, 1, 0), "RENEWED");
    assert_string_equal(counter(), "9007199254740991");
    assert_string_equal(lua_text(lua_release(member), 1), "1");
    expect_word(lua_acquire(token_max, 1, TTL_MS, SECRET_B), "EXHAUSTED");
}

static void tokens_rise_whatever_is_lost(void **state)
{
    (void)state;
    int64_t mark = 0;
    for (int i = 0; i < 30; i++) {
        const redisReply *answer = lua_acquire(mark, 1, TTL_MS, SECRET_A);
        expect_word(answer, "GRANTED");
        assert_true(lua_number(answer, TOKEN) > mark);
        mark = lua_number(answer, TOKEN);
        if (i % 3 == 0)
            redis_command(lua_server, "FLUSHALL");
        else if (i % 3 == 1)
            redis_command(lua_server, "DEL %s %s", LUA_COUNTER, LUA_HOLDERS);
        else
            lua_release(test_printf("%lld:%s", (long long)mark, SECRET_A));
    }
}

/* ---- Expiry of the keys -----------------------------------------------------------------------
 */

static void keys_outlive_the_last_expiry_by_a_day(void **state)
{
    (void)state;
    const redisReply *answer = lua_acquire(0, 1, TTL_MS, SECRET_A);
    int64_t last_ms = lua_expiry(answer, HOLDERS, "1:" SECRET_A);
    assert_int_equal(redis_expiry(LUA_COUNTER), last_ms + LUA_MEMORY_MS);
    assert_int_equal(redis_expiry(LUA_HOLDERS), last_ms + LUA_MEMORY_MS);
    assert_int_equal(redis_expiry(LUA_STORE), -1);
    answer = lua_acquire(0, 2, DAY_MS, SECRET_B); /* the longest TTL that there is */
    last_ms = lua_expiry(answer, HOLDERS, "2:" SECRET_B);
    assert_int_equal(redis_expiry(LUA_COUNTER), last_ms + LUA_MEMORY_MS);
}

static void a_shorter_grant_never_shortens_it(void **state)
{
    (void)state;
    const redisReply *answer = lua_acquire(0, 3, TTL_MS, SECRET_A);
    int64_t forget_ms = lua_expiry(answer, HOLDERS, "1:" SECRET_A) + LUA_MEMORY_MS;
    answer = lua_acquire(1, 3, 50, SECRET_B);
    expect_word(answer, "GRANTED");
    assert_int_equal(redis_expiry(LUA_COUNTER), forget_ms);
    assert_int_equal(redis_expiry(LUA_HOLDERS), forget_ms);
    answer = lua_acquire(2, 3, TTL_MS * 2, SECRET_C);
    assert_true(redis_expiry(LUA_COUNTER) > forget_ms);
    assert_int_equal(redis_expiry(LUA_COUNTER), redis_expiry(LUA_HOLDERS));
    assert_int_equal(redis_expiry(LUA_COUNTER),
                     lua_expiry(answer, HOLDERS, "3:" SECRET_C) + LUA_MEMORY_MS);
}

static void released_names_leave_only_counters_with_an_expiry(void **state)
{
    (void)state;
    enum { NAMES = 100 };
    for (int i = 0; i < NAMES; i++) {
        const char *counter_key = test_printf("fencegate:{name %d}:counter", i);
        const char *holders_key = test_printf("fencegate:{name %d}:holders", i);
        expect_word(lua_run("acquire", 3,
                            LIST(LUA_STORE, counter_key, holders_key, LUA_UUID, "0", "1", "30000",
                                 SECRET_A, "86400000")),
                    "GRANTED");
        expect_word(lua_run("release", 2, LIST(LUA_STORE, holders_key, LUA_UUID, "1:" SECRET_A)),
                    "OK");
    }
    assert_int_equal(redis_number(lua_server, "DBSIZE"), NAMES + 1);
    const redisReply *keys = redis_command(lua_server, "KEYS fencegate:{name*");
    assert_int_equal(keys->elements, NAMES);
    int64_t now_ms = redis_now_ms();
    for (size_t i = 0; i < keys->elements; i++) {
        assert_non_null(strstr(keys->element[i]->str, ":counter"));
        int64_t left_ms = redis_expiry(keys->element[i]->str) - now_ms;
        assert_in_range(left_ms, LUA_MEMORY_MS - slow_ms(60000), LUA_MEMORY_MS + 30000);
    }
}

/* ---- The store --------------------------------------------------------------------------------
 */

static void another_stores_database_is_not_touched(void **state)
{
    (void)state;
    lua_hello(LUA_OTHER, 0);
    lua_put_holder("1:" SECRET_A, -5);
    const char *before = redis_everything();
    const redisReply *answer = lua_acquire(0, 1, TTL_MS, SECRET_B);
    expect_word(answer, "WRONG_STORE");
    assert_int_equal(answer->elements, 1);
    assert_string_equal(redis_everything(), before);
}

static void a_database_without_a_store_becomes_ours(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    assert_string_equal(redis_text(lua_server, "GET %s", LUA_STORE), LUA_UUID);
    redis_command(lua_server, "DEL %s", LUA_STORE);
    expect_word(lua_acquire(1, 1, TTL_MS, SECRET_B), "BUSY"); /* also where nothing is granted */
    assert_string_equal(redis_text(lua_server, "GET %s", LUA_STORE), LUA_UUID);
}

/* ---- Out of memory ----------------------------------------------------------------------------
 */

static void without_memory_it_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    lua_grant(0, 2, TTL_MS, SECRET_A);
    lua_put_holder("9:" SECRET_B, -5);
    const char *before = redis_everything();
    redis_run_out_of_memory();
    expect_word(lua_acquire(9, 2, TTL_MS, SECRET_C), "OOM");
    assert_string_equal(redis_everything(), before);
    redis_command(lua_server, "CONFIG SET maxmemory 0");
    expect_word(lua_acquire(9, 2, TTL_MS, SECRET_C), "GRANTED");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, lua_empty_server, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_grant),
        TEST(a_mutex_has_one_holder),
        TEST(a_semaphore_has_as_many_as_its_limit),
        TEST(a_thousand_may_hold),
        TEST(a_smaller_limit_admits_nobody_until_enough_have_left),
        TEST(an_expired_holder_is_dropped_and_told_with_its_expiry),
        TEST(only_the_expired_ones_are_dropped),
        TEST(what_is_dropped_is_told_in_a_busy_answer_too),
        TEST(a_lease_runs_out_by_itself),
        TEST(the_token_is_one_more_than_the_greater_of_counter_and_mark),
        TEST(a_counter_that_is_garbage_counts_as_lost),
        TEST(leading_zeros_are_a_number),
        TEST(keys_of_another_type_count_as_lost),
        TEST(when_no_token_is_left_nothing_is_granted),
        TEST(the_last_token_can_be_renewed_and_released),
        TEST(tokens_rise_whatever_is_lost),
        TEST(keys_outlive_the_last_expiry_by_a_day),
        TEST(a_shorter_grant_never_shortens_it),
        TEST(released_names_leave_only_counters_with_an_expiry),
        TEST(another_stores_database_is_not_touched),
        TEST(a_database_without_a_store_becomes_ours),
        TEST(without_memory_it_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests_name("acquire.lua", tests, lua_start_server, NULL);
}
