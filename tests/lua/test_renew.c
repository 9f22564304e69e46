/* test_renew.c - renew.lua straight against Redis. */
#include "tests/support/cleanup.h"
#include "tests/support/lua.h"
#include "tests/support/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TTL_MS = 600000 };

/* The places in an answer. */
enum { EXPIRY = 1, NOW };

#define A "1:" SECRET_A
#define B "2:" SECRET_B

static int64_t score(const char *member)
{
    return redis_number(lua_server, "ZSCORE %s %s", LUA_HOLDERS, member);
}

static const char *counter(void)
{
    return redis_text(lua_server, "GET %s", LUA_COUNTER);
}

/* The answer is EXPIRED, and nothing else has happened. */
static void expect_expired(const char *member, int64_t token, int limit, int restore)
{
    const char *before = redis_everything();
    const redisReply *answer = lua_renew(member, token, TTL_MS, limit, restore);
    expect_word(answer, "EXPIRED");
    assert_int_equal(answer->elements, 1);
    assert_string_equal(redis_everything(), before);
}

/* ---- Renewing ---------------------------------------------------------------------------------
 */

static void the_expiry_is_moved(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    int64_t before_ms = redis_now_ms();
    const redisReply *answer = lua_renew(A, 1, TTL_MS * 2, 1, 1);
    expect_word(answer, "RENEWED");
    assert_int_equal(answer->elements, 3);
    assert_in_range(lua_number(answer, NOW), before_ms, redis_now_ms());
    assert_int_equal(lua_number(answer, EXPIRY), lua_number(answer, NOW) + TTL_MS * 2);
    assert_int_equal(score(A), lua_number(answer, EXPIRY));
    assert_int_equal(redis_expiry(LUA_COUNTER), lua_number(answer, EXPIRY) + LUA_MEMORY_MS);
    assert_int_equal(redis_expiry(LUA_HOLDERS), lua_number(answer, EXPIRY) + LUA_MEMORY_MS);
    assert_string_equal(counter(), "1");
}

static void it_may_be_shortened(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    int64_t before_ms = score(A);
    const redisReply *answer = lua_renew(A, 1, TTL_MS / 2, 1, 0);
    expect_word(answer, "RENEWED");
    assert_true(score(A) < before_ms);
    assert_int_equal(score(A), lua_number(answer, NOW) + TTL_MS / 2);
    assert_int_equal(redis_expiry(LUA_COUNTER), score(A) + LUA_MEMORY_MS);
}

/* ZADD XX CH answers 0 for "same score" as for "not there": two renewals within one millisecond are
 * two renewals all the same. Some of the thousand meet in one. */
static void the_same_score_again_is_renewed_too(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    int same = 0;
    for (int i = 0; i < 100000 && same < 10; i++) {
        int64_t before_ms = score(A);
        const redisReply *answer = lua_renew(A, 1, TTL_MS, 1, i % 2);
        expect_word(answer, "RENEWED");
        assert_int_equal(score(A), lua_number(answer, EXPIRY));
        same += score(A) == before_ms;
    }
    assert_int_equal(same, 10);
}

static void only_the_named_holder_moves(void **state)
{
    (void)state;
    lua_grant(0, 3, TTL_MS, SECRET_A);
    lua_grant(0, 3, TTL_MS, SECRET_B);
    int64_t other_ms = score(B);
    expect_word(lua_renew(A, 1, TTL_MS * 3, 3, 1), "RENEWED");
    assert_int_equal(score(B), other_ms);
    assert_int_equal(redis_number(lua_server, "ZCARD %s", LUA_HOLDERS), 2);
    assert_string_equal(counter(), "2"); /* an older token does not take it back */
}

static void a_shorter_renewal_never_shortens_what_others_need(void **state)
{
    (void)state;
    lua_grant(0, 2, TTL_MS * 2, SECRET_A);
    lua_grant(0, 2, TTL_MS, SECRET_B);
    int64_t forget_ms = score(A) + LUA_MEMORY_MS;
    expect_word(lua_renew(B, 2, 50, 2, 1), "RENEWED");
    assert_int_equal(redis_expiry(LUA_COUNTER), forget_ms);
    assert_int_equal(redis_expiry(LUA_HOLDERS), forget_ms);
}

static void a_full_resource_can_be_renewed(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    expect_word(lua_renew(A, 1, TTL_MS, 1, 0), "RENEWED");
    lua_put_holder(B, TTL_MS); /* more than the limit allows, since it was lowered */
    expect_word(lua_renew(A, 1, TTL_MS, 1, 0), "RENEWED");
}

/* ---- Never created again ----------------------------------------------------------------------
 */

static void an_expired_holder_is_not_renewed(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    lua_put_holder(A, -1);
    expect_expired(A, 1, 1, 0);
    expect_expired(A, 1, 1, 1);
    lua_put_holder(A, -TTL_MS);
    expect_expired(A, 1, 1, 1);
}

static void a_released_holder_is_not_renewed(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    lua_release(A);
    expect_expired(A, 1, 1, 1);
}

static void a_replaced_holder_is_not_renewed(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    lua_release(A);
    lua_grant(1, 1, TTL_MS, SECRET_B);
    expect_expired(A, 1, 1, 1);
    expect_expired(A, 1, 5, 1); /* not even where there is room */
}

static void another_secret_is_another_holder(void **state)
{
    (void)state;
    lua_grant(0, 2, TTL_MS, SECRET_A);
    expect_expired("1:" SECRET_B, 1, 2, 1);
    expect_expired("2:" SECRET_A, 1, 2, 1);
}

/* All holders of a semaphore were lost. Whatever the order in which they renew, each comes back,
 * and the next token is above the store's mark. */
static void the_holders_of_a_semaphore_are_restored_in_any_order(void **state)
{
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const char *const members[] = {"1:" SECRET_A, "2:" SECRET_B, "5:" SECRET_C};
    static const int64_t tokens[] = {1, 2, 5};
    for (size_t i = 0; i < 6; i++) {
        redis_command(lua_server, "FLUSHALL");
        for (int turn = 0; turn < 2; turn++) { /* and once more: then they are renewed */
            for (size_t j = 0; j < 3; j++) {
                int at = orders[i][j];
                expect_word(lua_renew_beside(members[at], tokens[at], 1, TTL_MS, 3),
                            turn == 0 ? "RESTORED" : "RENEWED");
            }
        }
        expect_word(lua_renew_beside("3:" SECRET_D, 3, 1, TTL_MS, 3), "EXPIRED"); /* no room */
        redis_command(lua_server, "ZREM %s %s", LUA_HOLDERS, members[0]);
        assert_int_equal(lua_number(lua_acquire(5, 3, TTL_MS, SECRET_D), 1), 6);
    }
}

static void an_expired_holder_counts_as_there_so_it_is_not_restored(void **state)
{
    (void)state;
    lua_hello(LUA_UUID, 0);
    lua_put_holder(A, -1);
    redis_command(lua_server, "DEL %s", LUA_COUNTER);
    expect_expired(A, 1, 1, 1);
}

/* ---- Restored after a loss of data ------------------------------------------------------------
 */

static void after_a_loss_of_data_it_is_put_back(void **state)
{
    (void)state;
    lua_grant(41, 1, TTL_MS, SECRET_A);
    redis_command(lua_server, "FLUSHALL");
    const char *member = "42:" SECRET_A;
    const redisReply *answer = lua_renew(member, 42, TTL_MS, 1, 1);
    expect_word(answer, "RESTORED");
    assert_int_equal(answer->elements, 3);
    assert_int_equal(lua_number(answer, EXPIRY), lua_number(answer, NOW) + TTL_MS);
    assert_int_equal(score(member), lua_number(answer, EXPIRY));
    assert_string_equal(counter(), "42");
    assert_int_equal(redis_expiry(LUA_COUNTER), lua_number(answer, EXPIRY) + LUA_MEMORY_MS);
    assert_int_equal(redis_expiry(LUA_HOLDERS), lua_number(answer, EXPIRY) + LUA_MEMORY_MS);
    assert_string_equal(redis_text(lua_server, "GET %s", LUA_STORE), LUA_UUID);
    expect_word(lua_acquire(42, 1, TTL_MS, SECRET_B), "BUSY");
    expect_word(lua_renew(member, 42, TTL_MS, 1, 1), "RENEWED");
}

static void not_where_its_time_has_passed_by_our_clock(void **state)
{
    (void)state;
    lua_hello(LUA_UUID, 0);
    expect_expired("42:" SECRET_A, 42, 1, 0);
}

static void not_where_the_counter_has_reached_its_token(void **state)
{
    (void)state;
    lua_hello(LUA_UUID, 0);
    const char *const counters[] = {"42", "43", "9007199254740991"};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        redis_command(lua_server, "SET %s %s", LUA_COUNTER, counters[i]);
        expect_expired("42:" SECRET_A, 42, 1, 1);
    }
    redis_command(lua_server, "SET %s 41", LUA_COUNTER);
    expect_word(lua_renew("42:" SECRET_A, 42, TTL_MS, 1, 1), "RESTORED");
}

static void not_where_there_is_no_room(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_B); /* after the loss somebody else came first */
    expect_expired("42:" SECRET_A, 42, 1, 1);
    lua_grant(0, 2, TTL_MS, SECRET_C);
    expect_expired("42:" SECRET_A, 42, 2, 1);
    expect_word(lua_renew("42:" SECRET_A, 42, TTL_MS, 3, 1), "RESTORED");
    assert_int_equal(redis_number(lua_server, "ZCARD %s", LUA_HOLDERS), 3);
}

static void expired_ones_take_no_room(void **state)
{
    (void)state;
    lua_put_holder("1:" SECRET_B, -1);
    lua_put_holder("2:" SECRET_C, -TTL_MS);
    expect_word(lua_renew("42:" SECRET_A, 42, TTL_MS, 1, 1), "RESTORED");
}

static void garbage_is_a_loss_of_data(void **state)
{
    (void)state;
    const char *const garbage[] = {
        "abc", "", " 99", "1e20", "-1", "99999999999999999999", "9007199254740992"};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        lua_empty_server(state);
        redis_command(lua_server, "SET %s %b", LUA_COUNTER, garbage[i], strlen(garbage[i]));
        redis_command(lua_server, "LPUSH %s x", LUA_HOLDERS);
        const redisReply *answer = lua_renew("42:" SECRET_A, 42, TTL_MS, 1, 1);
        if (strcmp(lua_word(answer), "RESTORED") != 0)
            fail_msg("with \"%s\": %s", garbage[i], lua_word(answer));
        assert_string_equal(counter(), "42");
    }
    lua_empty_server(state);
    redis_command(lua_server, "LPUSH %s x", LUA_COUNTER);
    expect_word(lua_renew("42:" SECRET_A, 42, TTL_MS, 1, 1), "RESTORED");
}

static void of_several_only_those_above_the_counter_are_put_back(void **state)
{
    (void)state;
    expect_word(lua_renew("5:" SECRET_B, 5, TTL_MS, 3, 1), "RESTORED");
    /* The counter has passed 4 now: it is not certain any more that its holder was lost. */
    expect_expired("4:" SECRET_A, 4, 3, 1);
    expect_word(lua_renew("6:" SECRET_C, 6, TTL_MS, 3, 1), "RESTORED");
    assert_string_equal(counter(), "6");
}

static void the_counter_never_falls_and_is_put_back_if_only_it_was_lost(void **state)
{
    (void)state;
    lua_grant(41, 1, TTL_MS, SECRET_A);
    redis_command(lua_server, "SET %s 50", LUA_COUNTER);
    expect_word(lua_renew("42:" SECRET_A, 42, TTL_MS, 1, 0), "RENEWED");
    assert_string_equal(counter(), "50");
    redis_command(lua_server, "DEL %s", LUA_COUNTER);
    expect_word(lua_renew("42:" SECRET_A, 42, TTL_MS, 1, 0), "RENEWED");
    assert_string_equal(counter(), "42");
}

static void great_tokens_keep_their_digits(void **state)
{
    (void)state;
    const char *const tokens[] = {"100000000000000", "1000000000000000", "9007199254740991"};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        lua_empty_server(state);
        const char *member = test_printf("%s:%s", tokens[i], SECRET_A);
        expect_word(lua_renew(member, atoll(tokens[i]), TTL_MS, 1, 1), "RESTORED");
        assert_string_equal(counter(), tokens[i]);
        expect_word(lua_renew(member, atoll(tokens[i]), TTL_MS, 1, 1), "RENEWED");
        assert_string_equal(counter(), tokens[i]);
    }
}

/* ---- The store, and memory --------------------------------------------------------------------
 */

static void another_stores_database_is_not_touched(void **state)
{
    (void)state;
    lua_hello(LUA_OTHER, 0);
    lua_put_holder(A, TTL_MS);
    const char *before = redis_everything();
    const redisReply *answer = lua_renew(A, 1, TTL_MS, 1, 1);
    expect_word(answer, "WRONG_STORE");
    assert_int_equal(answer->elements, 1);
    assert_string_equal(redis_everything(), before);
}

static void a_database_without_a_store_becomes_ours(void **state)
{
    (void)state;
    expect_word(lua_renew(A, 1, TTL_MS, 1, 0), "EXPIRED");
    assert_string_equal(redis_text(lua_server, "GET %s", LUA_STORE), LUA_UUID);
}

static void without_memory_it_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    lua_grant(0, 1, TTL_MS, SECRET_A);
    const char *before = redis_everything();
    redis_run_out_of_memory();
    expect_word(lua_renew(A, 1, TTL_MS * 2, 1, 1), "OOM");
    assert_string_equal(redis_everything(), before);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, lua_empty_server, cleanup_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_expiry_is_moved),
        TEST(it_may_be_shortened),
        TEST(the_same_score_again_is_renewed_too),
        TEST(only_the_named_holder_moves),
        TEST(a_shorter_renewal_never_shortens_what_others_need),
        TEST(a_full_resource_can_be_renewed),
        TEST(an_expired_holder_is_not_renewed),
        TEST(a_released_holder_is_not_renewed),
        TEST(a_replaced_holder_is_not_renewed),
        TEST(another_secret_is_another_holder),
        TEST(the_holders_of_a_semaphore_are_restored_in_any_order),
        TEST(an_expired_holder_counts_as_there_so_it_is_not_restored),
        TEST(after_a_loss_of_data_it_is_put_back),
        TEST(not_where_its_time_has_passed_by_our_clock),
        TEST(not_where_the_counter_has_reached_its_token),
        TEST(not_where_there_is_no_room),
        TEST(expired_ones_take_no_room),
        TEST(garbage_is_a_loss_of_data),
        TEST(of_several_only_those_above_the_counter_are_put_back),
        TEST(the_counter_never_falls_and_is_put_back_if_only_it_was_lost),
        TEST(great_tokens_keep_their_digits),
        TEST(another_stores_database_is_not_touched),
        TEST(a_database_without_a_store_becomes_ours),
        TEST(without_memory_it_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests_name("renew.lua", tests, lua_start_server, NULL);
}
