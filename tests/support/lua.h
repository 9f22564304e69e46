/* lua.h - the lease scripts, run straight against a redis-server, without the gateway.
 *
 * The scripts are read from lua/ in the repository (tests run from its root). All calls are about
 * one resource, "r", and one store, LUA_UUID. An answer is the test's; an error of Redis is an
 * answer, too. */
#ifndef TESTS_LUA_H
#define TESTS_LUA_H

#include "tests/support/redis_server.h"

#include <stdint.h>

#define LUA_STORE   "fencegate:store"
#define LUA_COUNTER "fencegate:{r}:counter"
#define LUA_HOLDERS "fencegate:{r}:holders"
#define LUA_UUID    "11111111-2222-4333-8444-555555555555"
#define LUA_OTHER   "99999999-2222-4333-8444-555555555555"

/* How long counter and holders outlive the last expiry. */
enum { LUA_MEMORY_MS = 86400000 };

/* The secrets of the tests: 32 hex digits. */
#define SECRET_A "0a000000000000000000000000000001"
#define SECRET_B "0b000000000000000000000000000002"
#define SECRET_C "0c000000000000000000000000000003"
#define SECRET_D "0d000000000000000000000000000004"

/* The one server of a test program: a group setup; and a setup that empties it for each test. */
int lua_start_server(void **state);
int lua_empty_server(void **state);
extern struct redis_server *lua_server;

/* Runs lua/<script>.lua with `keys` keys out of `arguments` (LIST(...)). */
redisReply *lua_run(const char *script, int keys, const char *const *arguments);

redisReply *lua_acquire(int64_t mark, int limit, int64_t ttl_ms, const char *secret);
/* `restore`: it may be put back; it is the oldest that may. _beside: `oldest` is. */
redisReply *lua_renew(const char *member, int64_t token, int64_t ttl_ms, int limit, int restore);
redisReply *lua_renew_beside(const char *member, int64_t token, int64_t oldest, int64_t ttl_ms,
                             int limit);
redisReply *lua_release(const char *member);
redisReply *lua_inspect(void);
redisReply *lua_hello(const char *uuid, int adopt);

/* ---- Answers: each fails the test where there is something else -------------------------------
 */

/* The first word of an answer; of an error its first word: "OOM". */
const char *lua_word(const redisReply *answer);

/* The string, the number at a place. */
const char *lua_text(const redisReply *answer, size_t at);
int64_t lua_number(const redisReply *answer, size_t at);

/* The members of a list like {member, expiry, ...} at a place, with their tokens and the first two
 * digits of their secrets: "1:0a 2:0b". */
const char *lua_members(const redisReply *answer, size_t at);

/* The expiry of a member in a list at a place. */
int64_t lua_expiry(const redisReply *answer, size_t at, const char *member);

void expect_word(const redisReply *answer, const char *word);

/* Grants, and returns the new member. */
const char *lua_grant(int64_t mark, int limit, int64_t ttl_ms, const char *secret);

/* ---- What Redis holds -------------------------------------------------------------------------
 */

/* Milliseconds by Redis' clock. */
int64_t redis_now_ms(void);

/* Puts a holder into the set, that expires `in_ms` from now (or did, where it is negative). */
int64_t lua_put_holder(const char *member, int64_t in_ms);

/* Everything, with types, values and expiries: for "nothing has changed". */
const char *redis_everything(void);

/* When a key expires; -1: never, -2: there is none. */
int64_t redis_expiry(const char *key);

/* No memory is left: from now on Redis refuses what could take more. */
void redis_run_out_of_memory(void);

#endif
