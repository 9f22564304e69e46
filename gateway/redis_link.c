/* redis_link.c - connecting, first words, losing the connection (redis_link.h); what is asked over
 * it is redis_commands.c.
 *
 *     DOWN ──connect──► connected ──AUTH, SELECT, SCRIPT LOAD, hello.lua──► READY or MISMATCH
 *      ▲                                                                        │
 *      └──────── any error, a passed deadline: drop, answer all, back off ◄─────┘
 *
 * While nothing else is asked, hello.lua is asked once a second: a dead link is noticed before
 * somebody needs it, and so is a database that has come back to us or gone to another store. */
#include "gateway/redis_link_private.h"

#include "gateway/clock.h"
#include "gateway/log.h"

#include <assert.h>
#include <hiredis/adapters/libev.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    IN_FLIGHT_MAX = 20000, /* commands sent or waiting */
    BACKOFF_FIRST_MS = 20,
    BACKOFF_MAX_MS = 1000,
    HEARTBEAT_MS = 1000,
    POLICY_INTERVAL_MS = 60 * 1000
};

/* ---- Losing the link ------------------------------------------------------------------------ */

void link_set_state(struct redis_link *link, enum redis_link_state state)
{
    if (link->state == state)
        return;
    link->state = state;
    link->was_ready |= state == REDIS_LINK_READY;
    if (state == REDIS_LINK_READY)
        log_info("redis ready");
    else if (state == REDIS_LINK_MISMATCH)
        log_error("redis belongs to another store: name another database, or take it over with "
                  "--adopt-redis");
    if (!link->closing)
        link->options.changed(link->options.arg);
}

static void retry_later(struct redis_link *link)
{
    link->failures++;
    if (link->closing)
        return;
    int64_t jitter_ms = random() % (link->backoff_ms / 4 + 1);
    ev_timer_stop(link->loop, &link->retry);
    ev_timer_set(&link->retry, (double)(link->backoff_ms + jitter_ms) / 1000.0, 0.0);
    ev_timer_start(link->loop, &link->retry);
    link->backoff_ms = link->backoff_ms * 2 < BACKOFF_MAX_MS ? link->backoff_ms * 2
                                                             : BACKOFF_MAX_MS;
}

static void note_loss(struct redis_link *link, const char *why)
{
    /* Our own server takes a moment to start; that is no loss. */
    bool starting = link->options.socket_path && !link->was_ready;
    if (!starting && (link->state != REDIS_LINK_DOWN || strcmp(link->last_error, why) != 0))
        log_warn("redis lost", LOG_STR("why", why),
                 LOG_INT("pending", (int64_t)link->command_count));
    snprintf(link->last_error, sizeof link->last_error, "%s", why);
    link_set_state(link, REDIS_LINK_DOWN);
}

/* Drops the connection. hiredis answers every pending callback with NULL, here or, where we are
 * inside one, when it returns. */
void link_drop(struct redis_link *link, const char *why)
{
    redisAsyncContext *context = link->context;
    if (!context)
        return;
    link->context = NULL;
    note_loss(link, why);
    ev_timer_stop(link->loop, &link->deadline);
    redisAsyncFree(context);
    commands_refuse_waiting(link);
    retry_later(link);
}

static void on_deadline(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    struct redis_link *link = timer->data;
    bool connecting = link->sent_count == 0 && link->context && link->state == REDIS_LINK_DOWN;
    if (connecting || commands_are_late(link))
        link_drop(link, "no answer in time");
    else
        commands_arm_deadline(link);
}

static void submit_plain(struct redis_link *link, redis_reply_fn done, const char *const *arguments,
                         size_t count)
{
    command_submit(link, SCRIPT_COUNT, 0, arguments, count, done, link);
}

/* ---- First words ---------------------------------------------------------------------------- */

static void on_first_words(void *arg, enum fg_status status, const redisReply *reply)
{
    (void)reply;
    struct redis_link *link = arg;
    if (status != FG_OK)
        link_drop(link, link->last_error[0] ? link->last_error : "no answer to the first words");
}

static void on_hello(void *arg, enum fg_status status, const redisReply *reply)
{
    (void)reply;
    struct redis_link *link = arg;
    if (status == FG_REDIS_UNAVAILABLE) {
        link_drop(link, link->last_error[0] ? link->last_error : "no answer to hello");
        return;
    }
    link->failures = 0;
    link->backoff_ms = BACKOFF_FIRST_MS;
    if (status == FG_OK) {
        link->adopt = false;
        link->last_error[0] = '\0';
    }
}

static void on_policy(void *arg, enum fg_status status, const redisReply *reply)
{
    struct redis_link *link = arg;
    if (status != FG_OK || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return;
    bool evicts = strcmp(reply->element[1]->str, "noeviction") != 0;
    if (evicts && !link->may_evict)
        log_warn("redis may evict leases: set maxmemory-policy to noeviction",
                 LOG_STR("maxmemory_policy", reply->element[1]->str));
    link->may_evict = evicts;
}

static void ask_policy(struct redis_link *link)
{
    const char *arguments[] = {"CONFIG", "GET", "maxmemory-policy"};
    link->policy_asked_ms = clock_boot_ms();
    submit_plain(link, on_policy, arguments, 3);
}

/* SCRIPT LOAD answers with the SHA-1 of the text, which EVALSHA then names. */
static void on_loaded(void *arg, enum fg_status status, const redisReply *reply)
{
    char *sha = arg;
    if (status == FG_OK && reply->type == REDIS_REPLY_STRING)
        snprintf(sha, SHA_CHARS + 1, "%s", reply->str);
}

static void say_hello(struct redis_link *link)
{
    const char *arguments[] = {"fencegate:store", link->options.store_uuid,
                               link->adopt ? "1" : "0"};
    command_submit(link, SCRIPT_HELLO, 1, arguments, 3, on_hello, link);
}

static void load_scripts(struct redis_link *link)
{
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        /* Until Redis has named it, a name that it can't know: the call falls back to EVAL. */
        memset(link->shas[i], '0', SHA_CHARS);
        const char *arguments[] = {"SCRIPT", "LOAD", script_text((enum script)i)};
        command_submit(link, SCRIPT_COUNT, 0, arguments, 3, on_loaded, link->shas[i]);
    }
}

static void speak_first(struct redis_link *link)
{
    const struct redis_url *to = &link->target;
    if (to->password[0]) {
        const char *with_user[] = {"AUTH", to->user, to->password};
        const char *without[] = {"AUTH", to->password};
        submit_plain(link, on_first_words, to->user[0] ? with_user : without, to->user[0] ? 3 : 2);
    }
    if (to->database != 0) {
        char database[16];
        snprintf(database, sizeof database, "%d", to->database);
        const char *arguments[] = {"SELECT", database};
        submit_plain(link, on_first_words, arguments, 2);
    }
    load_scripts(link);
    say_hello(link);
    ask_policy(link);
}

static void on_heartbeat(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    struct redis_link *link = timer->data;
    bool quiet = clock_boot_ms() - link->answered_ms >= HEARTBEAT_MS;
    if (link->context && link->command_count == 0 &&
        (link->state == REDIS_LINK_MISMATCH || (link->state == REDIS_LINK_READY && quiet)))
        say_hello(link);
    if (link->context && link->state == REDIS_LINK_READY &&
        clock_boot_ms() - link->policy_asked_ms >= POLICY_INTERVAL_MS)
        ask_policy(link);
}

/* ---- Connecting ----------------------------------------------------------------------------- */

/* hiredis frees the context itself after both of these. */
static void on_connect(const redisAsyncContext *context, int status)
{
    struct redis_link *link = context->data;
    if (link->context != context)
        return;
    if (status == REDIS_OK) {
        ev_timer_stop(link->loop, &link->deadline);
        speak_first(link);
        return;
    }
    link->context = NULL;
    ev_timer_stop(link->loop, &link->deadline);
    note_loss(link, context->errstr);
    commands_refuse_waiting(link);
    retry_later(link);
}

static void on_disconnect(const redisAsyncContext *context, int status)
{
    (void)status;
    struct redis_link *link = context->data;
    if (link->context != context)
        return;
    link->context = NULL;
    ev_timer_stop(link->loop, &link->deadline);
    note_loss(link, context->errstr && context->errstr[0] ? context->errstr : "closed");
    commands_refuse_waiting(link);
    retry_later(link);
}

static redisAsyncContext *connect_target(const struct redis_link *link)
{
    const struct redis_url *to = &link->target;
    if (link->options.socket_path)
        return redisAsyncConnectUnix(link->options.socket_path);
    if (to->host[0])
        return redisAsyncConnect(to->host, to->port);
    return redisAsyncConnectUnix(to->path);
}

static void start_connecting(struct redis_link *link)
{
    redisAsyncContext *context = connect_target(link);
    if (!context)
        abort();
    if (context->err) {
        note_loss(link, context->errstr);
        redisAsyncFree(context);
        retry_later(link);
        return;
    }
    context->data = link;
    link->context = context;
    redisLibevAttach(link->loop, context);
    ev_set_cb(&((redisLibevEvents *)context->ev.data)->rev, commands_on_readable);
    redisAsyncSetConnectCallback(context, on_connect);
    redisAsyncSetDisconnectCallback(context, on_disconnect);
    ev_timer_set(&link->deadline, (double)link->options.timeout_ms / 1000.0, 0.0);
    ev_timer_start(link->loop, &link->deadline);
}

static void on_retry(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    start_connecting(timer->data);
}

/* ---- The public half ------------------------------------------------------------------------ */

struct redis_link *redis_link_open(struct ev_loop *loop, const struct redis_link_options *options,
                                   char *why, size_t why_bytes)
{
    struct redis_link *link = calloc(1, sizeof *link);
    if (!link)
        abort();
    link->loop = loop;
    link->options = *options;
    link->adopt = options->adopt;
    link->backoff_ms = BACKOFF_FIRST_MS;
    TAILQ_INIT(&link->sent);
    TAILQ_INIT(&link->waiting);
    const char *fault = options->socket_path ? NULL : redis_url_parse(options->url, &link->target);
    if (fault) {
        snprintf(why, why_bytes, "cannot understand the Redis URL: %s", fault);
        free(link);
        return NULL;
    }
    ev_init(&link->deadline, on_deadline);
    /* After a pause of ours replies wait in the socket: they are read before a deadline is judged.
     */
    ev_set_priority(&link->deadline, EV_MINPRI);
    ev_init(&link->retry, on_retry);
    ev_timer_init(&link->heartbeat, on_heartbeat, HEARTBEAT_MS / 1000.0, HEARTBEAT_MS / 1000.0);
    link->deadline.data = link->retry.data = link->heartbeat.data = link;
    ev_timer_start(loop, &link->heartbeat);
    start_connecting(link);
    return link;
}

void redis_link_stop(struct redis_link *link)
{
    link->closing = true;
    link->state = REDIS_LINK_DOWN;
    redisAsyncContext *context = link->context;
    link->context = NULL;
    if (context)
        redisAsyncFree(context);
    commands_refuse_waiting(link);
    ev_timer_stop(link->loop, &link->deadline);
    ev_timer_stop(link->loop, &link->retry);
    ev_timer_stop(link->loop, &link->heartbeat);
}

void redis_link_free(struct redis_link *link)
{
    assert(!link || link->command_count == 0);
    free(link);
}

void redis_link_distrust(struct redis_link *link, const char *why)
{
    link_drop(link, why);
}

enum redis_link_state redis_link_state(const struct redis_link *link)
{
    return link->state;
}

int redis_link_failures(const struct redis_link *link)
{
    return link->failures;
}

void redis_link_run(struct redis_link *link, enum script script, size_t key_count,
                    const char *const *arguments, size_t argument_count, redis_reply_fn done,
                    void *arg)
{
    if (link->state == REDIS_LINK_DOWN || !link->context)
        done(arg, FG_REDIS_UNAVAILABLE, NULL);
    else if (link->command_count >= IN_FLIGHT_MAX)
        done(arg, FG_OVERLOADED, NULL);
    else
        command_submit(link, script, key_count, arguments, argument_count, done, arg);
}
