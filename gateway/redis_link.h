/* redis_link.h - the gateway's connection to Redis: connect, keep up, deadlines, scripts.
 *
 * One hiredis connection, run by the loop. A script call is answered exactly once: with Redis'
 * reply, or with FG_REDIS_UNAVAILABLE when the link is down, breaks, or the call's deadline passes.
 * After a deadline the outcome is unknown and the connection is dropped, never used again: a late
 * reply must not be taken for the answer to a later call. A lost link is made anew with back-off
 * and jitter; until then calls fail at once. hiredis is known here and in scripts.c only.
 *
 * Loop thread only. */
#ifndef FG_REDIS_LINK_H
#define FG_REDIS_LINK_H

#include "gateway/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ev_loop;
struct redis_link;
struct redisReply;

/* The scripts (lua/), in the order of the table in redis_link.c. */
enum script {
    SCRIPT_HELLO,
    SCRIPT_ACQUIRE,
    SCRIPT_RENEW,
    SCRIPT_RELEASE,
    SCRIPT_INSPECT,
    SCRIPT_COUNT
};

enum { REDIS_ARGUMENTS_MAX = 64 };

struct redis_link_options {
    const char *url;         /* redis://[user:password@]host:port[/db] or unix:///path[?db=N] */
    const char *socket_path; /* instead of a URL: the private server's */
    int64_t timeout_ms;      /* for connecting and for each call */
    const char *store_uuid;
    bool adopt;                 /* take the database over from another store, once */
    void (*changed)(void *arg); /* the link has come up, gone down, or changed its mind */
    void *arg;
};

enum redis_link_state {
    REDIS_LINK_DOWN,     /* not connected, or not yet through its first words */
    REDIS_LINK_MISMATCH, /* the database belongs to another store */
    REDIS_LINK_READY,
};

/* Starts connecting and returns; NULL with a line in `why` where the URL cannot be understood.
 * Strings are borrowed for the life of the link. */
struct redis_link *redis_link_open(struct ev_loop *loop, const struct redis_link_options *options,
                                   char *why, size_t why_bytes);

/* Disconnects for good: all that is pending, and every later call, is answered with
 * FG_REDIS_UNAVAILABLE. */
void redis_link_stop(struct redis_link *link);

/* Frees a stopped link. NULL is fine. */
void redis_link_free(struct redis_link *link);

/* Drops the connection, whose replies no longer fit the questions, and makes a new one. What is
 * pending is answered with FG_REDIS_UNAVAILABLE. May be called from inside an answer. `why` is
 * static. */
void redis_link_distrust(struct redis_link *link, const char *why);

enum redis_link_state redis_link_state(const struct redis_link *link);

/* How many times connecting has failed since the link was last up. */
int redis_link_failures(const struct redis_link *link);

/* `reply` is NULL unless status is FG_OK, and valid for the call only. FG_STORE_MISMATCH: the
 * script said that the database is another store's. */
typedef void (*redis_reply_fn)(void *arg, enum fg_status status, const struct redisReply *reply);

/* Runs a script. `arguments` are its `key_count` keys and then its ARGV; copied. May call `done`
 * before it returns, where the link is down (FG_REDIS_UNAVAILABLE) or full (FG_OVERLOADED). */
void redis_link_run(struct redis_link *link, enum script script, size_t key_count,
                    const char *const *arguments, size_t argument_count, redis_reply_fn done,
                    void *arg);

#endif
