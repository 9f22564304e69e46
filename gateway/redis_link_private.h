/* redis_link_private.h - what the two files of the Redis link share: redis_link.c, the life of the
 * connection, and redis_commands.c, what is asked over it. For no others. */
#ifndef FG_REDIS_LINK_PRIVATE_H
#define FG_REDIS_LINK_PRIVATE_H

#include "gateway/redis_link.h"
#include "gateway/redis_url.h"

#include <ev.h>
#include <hiredis/async.h>
#include <sys/queue.h>

enum { SHA_CHARS = 40 };

/* Something sent and not yet answered. */
struct command {
    TAILQ_ENTRY(command) entry;
    struct redis_link *link;
    int64_t deadline_ms; /* CLOCK_BOOTTIME */
    enum script script;  /* SCRIPT_COUNT: a plain command */
    redis_reply_fn done;
    void *arg;
    bool sent;
    bool resent; /* with its text, after NOSCRIPT */
    size_t key_count;
    size_t count;
    const char *arguments[]; /* point behind the array */
};

TAILQ_HEAD(command_list, command);

struct redis_link {
    struct ev_loop *loop;
    struct redis_link_options options;
    struct redis_url target;    /* unless options.socket_path names it */
    redisAsyncContext *context; /* NULL: none, or being given up */
    enum redis_link_state state;
    int failures;
    bool adopt;
    bool closing;
    bool was_ready;
    bool may_evict;          /* its maxmemory-policy is not noeviction; said once */
    int64_t policy_asked_ms; /* somebody may set it later */
    int64_t backoff_ms;
    int64_t answered_ms;         /* when Redis last said something */
    struct command_list sent;    /* and not yet answered */
    struct command_list waiting; /* for a place among them */
    size_t sent_count;
    size_t command_count; /* in both */
    char shas[SCRIPT_COUNT][SHA_CHARS + 1];
    ev_timer deadline; /* of the oldest command, or of connecting */
    ev_timer retry;
    ev_timer heartbeat;
    char last_error[64]; /* logged already */
};

/* ---- redis_link.c ---------------------------------------------------------------------------- */

/* Drops the connection; `why` is static. */
void link_drop(struct redis_link *link, const char *why);

void link_set_state(struct redis_link *link, enum redis_link_state state);

/* ---- redis_commands.c ------------------------------------------------------------------------ */

/* The text of a script; static. */
const char *script_text(enum script script);

/* Sends a command, or lets it wait for its place. SCRIPT_COUNT: a plain one, `key_count` 0. */
void command_submit(struct redis_link *link, enum script script, size_t key_count,
                    const char *const *arguments, size_t count, redis_reply_fn done, void *arg);

/* The connection is gone: answers those that wait. */
void commands_refuse_waiting(struct redis_link *link);

/* The deadline of the oldest command, from now on. */
void commands_arm_deadline(struct redis_link *link);

/* The deadline has come: true where the oldest command is late. */
bool commands_are_late(struct redis_link *link);

/* The socket can be read; in place of the callback of hiredis' adapter. */
void commands_on_readable(struct ev_loop *loop, ev_io *io, int events);

#endif
