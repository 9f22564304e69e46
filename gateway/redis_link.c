/* redis_link.c - connecting, first words, deadlines, NOSCRIPT (redis_link.h).
 *
 *     DOWN ──connect──► connected ──AUTH, SELECT, SCRIPT LOAD, hello.lua──► READY or MISMATCH
 *      ▲                                                                        │
 *      └──────── any error, a passed deadline: drop, answer all, back off ◄─────┘
 *
 * Commands are answered in the order they were sent, and all have the same timeout: the oldest has
 * the nearest deadline, so one timer is enough (hiredis 0.14 has none of its own). At most WINDOW
 * of them are with Redis, so that its deadline says something about Redis and not about how many
 * others asked before; the rest wait here, in their order, and one whose time has passed before its
 * turn came is refused (FG_OVERLOADED) without having been sent. While nothing
 * else is asked, hello.lua is asked once a second: a dead link is noticed before somebody needs
 * it, and so is a database that has come back to us or gone to another store. */
#include "gateway/redis_link.h"

#include "gateway/clock.h"
#include "gateway/faults.h"
#include "gateway/log.h"
#include "gateway/redis_url.h"

#include <assert.h>
#include <ev.h>
#include <hiredis/adapters/libev.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

enum {
    SHA_CHARS = 40,
    IN_FLIGHT_MAX = 20000,
    WINDOW = 512, /* of them, sent and not yet answered */
    BACKOFF_FIRST_MS = 20,
    BACKOFF_MAX_MS = 1000,
    HEARTBEAT_MS = 1000,
    POLICY_INTERVAL_MS = 60 * 1000,
    LOGGED_BYTES = 200 /* of an error that Redis gives */
};

extern const char embedded_acquire_lua[], embedded_renew_lua[], embedded_release_lua[],
    embedded_inspect_lua[], embedded_hello_lua[];

static const char *const script_texts[SCRIPT_COUNT] = {
    [SCRIPT_HELLO] = embedded_hello_lua,     [SCRIPT_ACQUIRE] = embedded_acquire_lua,
    [SCRIPT_RENEW] = embedded_renew_lua,     [SCRIPT_RELEASE] = embedded_release_lua,
    [SCRIPT_INSPECT] = embedded_inspect_lua,
};

static const char *script_text(enum script script)
{
#ifdef FG_FAILPOINTS
    static const char *const names[SCRIPT_COUNT] = {"hello", "acquire", "renew", "release",
                                                    "inspect"};
    return FAULT_SCRIPT(names[script], script_texts[script]);
#else
    return script_texts[script];
#endif
}

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

/* ---- Commands ------------------------------------------------------------------------------- */

static struct command *command_new(struct redis_link *link, enum script script, size_t key_count,
                                   const char *const *arguments, size_t count, redis_reply_fn done,
                                   void *arg)
{
    size_t text_bytes = 0;
    for (size_t i = 0; i < count; i++)
        text_bytes += strlen(arguments[i]) + 1;
    struct command *command =
        malloc(sizeof *command + count * sizeof command->arguments[0] + text_bytes);
    if (!command)
        abort();
    *command = (struct command){.link = link,
                                .deadline_ms = clock_boot_ms() + link->options.timeout_ms,
                                .script = script,
                                .done = done,
                                .arg = arg,
                                .key_count = key_count,
                                .count = count};
    char *text = (char *)&command->arguments[count];
    for (size_t i = 0; i < count; i++) {
        command->arguments[i] = text;
        text = stpcpy(text, arguments[i]) + 1;
    }
    return command;
}

static void arm_deadline(struct redis_link *link)
{
    struct command *oldest = TAILQ_FIRST(&link->sent);
    ev_timer_stop(link->loop, &link->deadline);
    if (!oldest)
        return;
    int64_t left_ms = oldest->deadline_ms - clock_boot_ms();
    ev_timer_set(&link->deadline, left_ms > 0 ? (double)left_ms / 1000.0 : 0.0, 0.0);
    ev_timer_start(link->loop, &link->deadline);
}

static void forget(struct redis_link *link, struct command *command)
{
    link->command_count--;
    if (!command->sent)
        return;
    TAILQ_REMOVE(&link->sent, command, entry);
    /* The timer of a command that was answered in time may fire early; it then looks again. */
    if (--link->sent_count == 0)
        ev_timer_stop(link->loop, &link->deadline);
}

/* One that waited has been taken from the list before. */
static void answer(struct command *command, enum fg_status status, const redisReply *reply)
{
    forget(command->link, command);
    command->done(command->arg, status, reply);
    free(command);
}

static void on_reply(redisAsyncContext *context, void *raw, void *data);

static bool send_command(struct redis_link *link, struct command *command)
{
    const char *argv[REDIS_ARGUMENTS_MAX];
    char keys[8];
    size_t argc = 0;
    assert(command->count + 3 <= REDIS_ARGUMENTS_MAX);
    if (command->script != SCRIPT_COUNT) {
        snprintf(keys, sizeof keys, "%zu", command->key_count);
        argv[argc++] = command->resent ? "EVAL" : "EVALSHA";
        argv[argc++] = command->resent ? script_text(command->script) : link->shas[command->script];
        argv[argc++] = keys;
    }
    memcpy(&argv[argc], command->arguments, command->count * sizeof argv[0]);
    argc += command->count;
    return redisAsyncCommandArgv(link->context, on_reply, command, (int)argc, argv, NULL) ==
           REDIS_OK;
}

static void send_now(struct redis_link *link, struct command *command)
{
    TAILQ_INSERT_TAIL(&link->sent, command, entry);
    link->sent_count++;
    command->sent = true;
    command->deadline_ms = clock_boot_ms() + link->options.timeout_ms;
    if (!link->context || !send_command(link, command)) {
        answer(command, FG_REDIS_UNAVAILABLE, NULL);
        return;
    }
    if (!ev_is_active(&link->deadline))
        arm_deadline(link);
}

static void submit(struct redis_link *link, struct command *command)
{
    link->command_count++;
    if (!link->context || (link->sent_count < WINDOW && TAILQ_EMPTY(&link->waiting)))
        send_now(link, command);
    else
        TAILQ_INSERT_TAIL(&link->waiting, command, entry);
}

static struct command *waiting_take(struct redis_link *link)
{
    struct command *command = TAILQ_FIRST(&link->waiting);
    if (command)
        TAILQ_REMOVE(&link->waiting, command, entry);
    return command;
}

/* Answers have made room: sends what has waited for it. */
static void send_waiting(struct redis_link *link)
{
    struct command *command;
    while (link->context && link->sent_count < WINDOW && (command = waiting_take(link)) != NULL) {
        if (command->deadline_ms <= clock_boot_ms())
            answer(command, FG_OVERLOADED, NULL);
        else
            send_now(link, command);
    }
}

static void refuse_waiting(struct redis_link *link)
{
    struct command *command;
    while ((command = waiting_take(link)) != NULL)
        answer(command, FG_REDIS_UNAVAILABLE, NULL);
}

static void submit_plain(struct redis_link *link, redis_reply_fn done, const char *const *arguments,
                         size_t count)
{
    submit(link, command_new(link, SCRIPT_COUNT, 0, arguments, count, done, link));
}

/* ---- Losing the link ------------------------------------------------------------------------ */

static void set_state(struct redis_link *link, enum redis_link_state state)
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
    set_state(link, REDIS_LINK_DOWN);
}

/* Drops the connection. hiredis answers every pending callback with NULL, here or, where we are
 * inside one, when it returns. */
static void drop(struct redis_link *link, const char *why)
{
    redisAsyncContext *context = link->context;
    if (!context)
        return;
    link->context = NULL;
    note_loss(link, why);
    ev_timer_stop(link->loop, &link->deadline);
    redisAsyncFree(context);
    refuse_waiting(link);
    retry_later(link);
}

#ifdef FG_FAILPOINTS
static void ignore_reply(void *arg, enum fg_status status, const redisReply *reply)
{
    (void)arg;
    (void)status;
    (void)reply;
}

/* The planted bug reuse_timed_out_connection: the call is given up, the connection kept ... */
static void give_up_call(struct redis_link *link, struct command *oldest)
{
    oldest->done(oldest->arg, FG_REDIS_UNAVAILABLE, NULL);
    oldest->done = NULL;
    oldest->deadline_ms = INT64_MAX;
    arm_deadline(link);
}

/* ... so its late reply is taken for the answer to the next one. */
static void shift_answers(struct command *command)
{
    struct command *next = TAILQ_NEXT(command, entry);
    command->done = next ? next->done : ignore_reply;
    command->arg = next ? next->arg : NULL;
    if (next)
        next->done = NULL;
}
#endif

static void on_deadline(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    struct redis_link *link = timer->data;
    struct command *oldest = TAILQ_FIRST(&link->sent);
#ifdef FG_FAILPOINTS
    if (PLANTED(reuse_timed_out_connection) && oldest && oldest->done) {
        give_up_call(link, oldest);
        return;
    }
#endif
    bool connecting = !oldest && link->context && link->state == REDIS_LINK_DOWN;
    if (connecting || (oldest && oldest->deadline_ms <= clock_boot_ms()))
        drop(link, "no answer in time");
    else
        arm_deadline(link);
}

/* ---- Replies -------------------------------------------------------------------------------- */

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static void log_refusal(const char *error)
{
    char shown[LOGGED_BYTES];
    snprintf(shown, sizeof shown, "%s", error);
    log_warn("redis refused", LOG_STR("error", shown));
}

static void on_error_reply(struct redis_link *link, struct command *command,
                           const redisReply *reply)
{
    if (begins(reply->str, "NOSCRIPT") && !PLANTED(no_noscript_fallback) &&
        command->script != SCRIPT_COUNT && !command->resent) {
        command->resent = true; /* it has not run: the same arguments, with the text, once */
        if (!link->context || !send_command(link, command))
            answer(command, FG_REDIS_UNAVAILABLE, NULL);
        return;
    }
    if (strncmp(link->last_error, reply->str, sizeof link->last_error - 1) != 0)
        log_refusal(reply->str);
    snprintf(link->last_error, sizeof link->last_error, "%s", reply->str);
    bool demoted = begins(reply->str, "READONLY");
    answer(command, FG_REDIS_UNAVAILABLE, NULL);
    if (demoted)
        drop(link, "it has become a read-only replica");
}

static void take_reply(struct command *command, const redisReply *reply)
{
    struct redis_link *link = command->link;
#ifdef FG_FAILPOINTS
    if (!command->done)
        shift_answers(command);
#endif
    if (!reply) {
        answer(command, FG_REDIS_UNAVAILABLE, NULL);
        return;
    }
    link->answered_ms = clock_boot_ms();
    if (reply->type == REDIS_REPLY_ERROR) {
        on_error_reply(link, command, reply);
        return;
    }
    bool mismatch = command->script != SCRIPT_COUNT && reply->type == REDIS_REPLY_ARRAY &&
                    reply->elements > 0 && reply->element[0]->type == REDIS_REPLY_STRING &&
                    strcmp(reply->element[0]->str, "WRONG_STORE") == 0;
    if (command->script != SCRIPT_COUNT)
        set_state(link, mismatch ? REDIS_LINK_MISMATCH : REDIS_LINK_READY);
    if (mismatch)
        answer(command, FG_STORE_MISMATCH, NULL);
    else
        answer(command, FG_OK, reply);
}

/* hiredis aborts on a reply that nobody asked for. None may reach it: neither one that comes while
 * nothing is pending, nor one behind the answer to the last question. */
static bool speaks_unasked(const struct redis_link *link)
{
    char byte;
    return TAILQ_EMPTY(&link->sent) &&
           recv(link->context->c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static bool says_too_much(const struct redis_link *link)
{
    const redisReader *reader = link->context ? link->context->c.reader : NULL;
    return reader && TAILQ_EMPTY(&link->sent) && reader->pos < reader->len;
}

static void on_reply(redisAsyncContext *context, void *raw, void *data)
{
    (void)context;
    struct command *command = data;
    struct redis_link *link = command->link;
    take_reply(command, raw);
    if (says_too_much(link))
        drop(link, "it answered more than was asked");
    send_waiting(link);
}

/* In place of the adapter's own. */
static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop;
    (void)events;
    redisAsyncContext *context = ((redisLibevEvents *)io->data)->context;
    struct redis_link *link = context->data;
    bool connected = (context->c.flags & REDIS_CONNECTED) != 0;
    if (connected && link->context == context && speaks_unasked(link))
        drop(link, "it spoke without being asked");
    else
        redisAsyncHandleRead(context);
}

/* ---- First words ---------------------------------------------------------------------------- */

static void on_first_words(void *arg, enum fg_status status, const redisReply *reply)
{
    (void)reply;
    struct redis_link *link = arg;
    if (status != FG_OK)
        drop(link, link->last_error[0] ? link->last_error : "no answer to the first words");
}

static void on_hello(void *arg, enum fg_status status, const redisReply *reply)
{
    (void)reply;
    struct redis_link *link = arg;
    if (status == FG_REDIS_UNAVAILABLE) {
        drop(link, link->last_error[0] ? link->last_error : "no answer to hello");
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
    submit(link, command_new(link, SCRIPT_HELLO, 1, arguments, 3, on_hello, link));
}

static void load_scripts(struct redis_link *link)
{
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        /* Until Redis has named it, a name that it can't know: the call falls back to EVAL. */
        memset(link->shas[i], '0', SHA_CHARS);
        const char *arguments[] = {"SCRIPT", "LOAD", script_text((enum script)i)};
        submit(link, command_new(link, SCRIPT_COUNT, 0, arguments, 3, on_loaded, link->shas[i]));
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
    refuse_waiting(link);
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
    refuse_waiting(link);
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
    ev_set_cb(&((redisLibevEvents *)context->ev.data)->rev, on_readable);
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
    refuse_waiting(link);
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
    drop(link, why);
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
        submit(link, command_new(link, script, key_count, arguments, argument_count, done, arg));
}
