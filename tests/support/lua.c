/* lua.c - EVAL and the reading of its answers. */
#include "tests/support/lua.h"

#include "tests/support/cleanup.h"
#include "tests/support/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SCRIPT_BYTES_MAX = 65536, ARGUMENTS_MAX = 32 };

struct redis_server *lua_server;
static redisContext *link_to_server;

/* ---- The server -------------------------------------------------------------------------------
 */

static void close_link(void *arg)
{
    redisFree(arg);
}

int lua_start_server(void **state)
{
    (void)state;
    lua_server = redis_server_start(NULL);
    link_to_server = redisConnectUnix(redis_server_url(lua_server) + strlen("unix://"));
    assert_non_null(link_to_server);
    cleanup_add(close_link, link_to_server);
    assert_int_equal(link_to_server->err, 0);
    cleanup_keep();
    return 0;
}

int lua_empty_server(void **state)
{
    (void)state;
    redis_command(lua_server, "CONFIG SET maxmemory 0");
    redis_command(lua_server, "FLUSHALL");
    redis_command(lua_server, "SCRIPT FLUSH");
    return 0;
}

/* ---- Calls ------------------------------------------------------------------------------------
 */

static const char *read_script(const char *script)
{
    const char *path = test_printf("lua/%s.lua", script);
    char *text = test_alloc(SCRIPT_BYTES_MAX);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("there is no %s: tests run from the root of the repository", path);
    assert_in_range(read(fd, text, SCRIPT_BYTES_MAX), 1, SCRIPT_BYTES_MAX - 1);
    close(fd);
    return text;
}

redisReply *lua_run(const char *script, int keys, const char *const *arguments)
{
    const char *all[ARGUMENTS_MAX] = {"EVAL", read_script(script), test_printf("%d", keys)};
    int count = 3;
    for (; *arguments && count < ARGUMENTS_MAX; arguments++)
        all[count++] = *arguments;
    redisReply *reply = redisCommandArgv(link_to_server, count, all, NULL);
    if (!reply)
        fail_msg("%s: %s", script, link_to_server->errstr);
    return cleanup_add(freeReplyObject, reply);
}

static const char *decimal(int64_t number)
{
    return test_printf("%" PRId64, number);
}

redisReply *lua_acquire(int64_t mark, int limit, int64_t ttl_ms, const char *secret)
{
    return lua_run("acquire", 3,
                   LIST(LUA_STORE, LUA_COUNTER, LUA_HOLDERS, LUA_UUID, decimal(mark),
                        decimal(limit), decimal(ttl_ms), secret, decimal(LUA_MEMORY_MS)));
}

redisReply *lua_renew(const char *member, int64_t token, int64_t ttl_ms, int limit, int restore)
{
    return lua_run("renew", 3,
                   LIST(LUA_STORE, LUA_COUNTER, LUA_HOLDERS, LUA_UUID, member, decimal(token),
                        decimal(ttl_ms), decimal(limit), restore ? decimal(token) : "0",
                        decimal(LUA_MEMORY_MS)));
}

redisReply *lua_renew_beside(const char *member, int64_t token, int64_t oldest, int64_t ttl_ms,
                             int limit)
{
    return lua_run("renew", 3,
                   LIST(LUA_STORE, LUA_COUNTER, LUA_HOLDERS, LUA_UUID, member, decimal(token),
                        decimal(ttl_ms), decimal(limit), decimal(oldest), decimal(LUA_MEMORY_MS)));
}

redisReply *lua_release(const char *member)
{
    return lua_run("release", 2, LIST(LUA_STORE, LUA_HOLDERS, LUA_UUID, member));
}

redisReply *lua_inspect(void)
{
    return lua_run("inspect", 2, LIST(LUA_STORE, LUA_HOLDERS, LUA_UUID));
}

redisReply *lua_hello(const char *uuid, int adopt)
{
    return lua_run("hello", 1, LIST(LUA_STORE, uuid, decimal(adopt)));
}

/* ---- Answers ----------------------------------------------------------------------------------
 */

const char *lua_word(const redisReply *answer)
{
    if (answer->type == REDIS_REPLY_ERROR)
        return test_printf("%.*s", (int)strcspn(answer->str, " "), answer->str);
    return lua_text(answer, 0);
}

const char *lua_text(const redisReply *answer, size_t at)
{
    if (answer->type == REDIS_REPLY_ERROR)
        fail_msg("Redis says: %s", answer->str);
    assert_int_equal(answer->type, REDIS_REPLY_ARRAY);
    assert_true(at < answer->elements);
    assert_int_equal(answer->element[at]->type, REDIS_REPLY_STRING);
    return answer->element[at]->str;
}

int64_t lua_number(const redisReply *answer, size_t at)
{
    const char *text = lua_text(answer, at);
    char *end;
    int64_t number = strtoll(text, &end, 10);
    if (end == text || *end != '\0')
        fail_msg("\"%s\" is no number in plain digits", text);
    return number;
}

static const redisReply *list_at(const redisReply *answer, size_t at)
{
    assert_int_equal(answer->type, REDIS_REPLY_ARRAY);
    assert_true(at < answer->elements);
    const redisReply *list = answer->element[at];
    assert_int_equal(list->type, REDIS_REPLY_ARRAY);
    assert_int_equal(list->elements % 2, 0);
    return list;
}

const char *lua_members(const redisReply *answer, size_t at)
{
    const redisReply *list = list_at(answer, at);
    const char *text = "";
    for (size_t i = 0; i < list->elements; i += 2) {
        const char *member = lua_text(list, i);
        text =
            test_printf("%s%s%.*s", text, i > 0 ? " " : "", (int)strcspn(member, ":") + 3, member);
    }
    return text;
}

int64_t lua_expiry(const redisReply *answer, size_t at, const char *member)
{
    const redisReply *list = list_at(answer, at);
    for (size_t i = 0; i < list->elements; i += 2) {
        if (strcmp(lua_text(list, i), member) == 0)
            return lua_number(list, i + 1);
    }
    fail_msg("%s is not among %s", member, lua_members(answer, at));
    return 0;
}

void expect_word(const redisReply *answer, const char *word)
{
    if (strcmp(lua_word(answer), word) != 0)
        fail_msg("%s, not %s", answer->type == REDIS_REPLY_ERROR ? answer->str : lua_word(answer),
                 word);
}

const char *lua_grant(int64_t mark, int limit, int64_t ttl_ms, const char *secret)
{
    const redisReply *answer = lua_acquire(mark, limit, ttl_ms, secret);
    expect_word(answer, "GRANTED");
    return test_printf("%s:%s", lua_text(answer, 1), secret);
}

/* ---- What Redis holds -------------------------------------------------------------------------
 */

int64_t redis_now_ms(void)
{
    const redisReply *time = redis_command(lua_server, "TIME");
    return lua_number(time, 0) * 1000 + lua_number(time, 1) / 1000;
}

int64_t lua_put_holder(const char *member, int64_t in_ms)
{
    int64_t expiry = redis_now_ms() + in_ms;
    redis_command(lua_server, "ZADD %s %s %s", LUA_HOLDERS, decimal(expiry), member);
    return expiry;
}

int64_t redis_expiry(const char *key)
{
    return redis_number(lua_server, "PEXPIRETIME %s", key);
}

/* The strings of a reply, whatever its form. */
static const char *flat(const redisReply *reply)
{
    const char *text = reply->str ? reply->str : "";
    for (size_t i = 0; i < reply->elements; i++)
        text = test_printf("%s %s", text, flat(reply->element[i]));
    return text;
}

static int by_text(const void *a, const void *b)
{
    return strcmp((*(redisReply *const *)a)->str, (*(redisReply *const *)b)->str);
}

const char *redis_everything(void)
{
    const redisReply *keys = redis_command(lua_server, "KEYS *");
    const char *text = "";
    if (keys->elements > 0)
        qsort(keys->element, keys->elements, sizeof *keys->element, by_text);
    for (size_t i = 0; i < keys->elements; i++) {
        const char *key = keys->element[i]->str;
        const char *type = redis_text(lua_server, "TYPE %s", key);
        const char *value = "?";
        if (strcmp(type, "string") == 0)
            value = redis_text(lua_server, "GET %s", key);
        else if (strcmp(type, "zset") == 0)
            value = flat(redis_command(lua_server, "ZRANGE %s 0 -1 WITHSCORES", key));
        text = test_printf("%s%s (%s, until %s): %s\n", text, key, type, decimal(redis_expiry(key)),
                           value);
    }
    return text;
}

void redis_run_out_of_memory(void)
{
    redis_command(lua_server, "CONFIG SET maxmemory-policy noeviction");
    redis_command(lua_server, "CONFIG SET maxmemory 1");
}
