/* redis_commands.c - what is asked of Redis over the link: places, deadlines, replies, NOSCRIPT.
 *
 * Commands are answered in the order they were sent, and all have the same timeout: the oldest has
 * the nearest deadline, so one timer is enough (hiredis 0.14 has none of its own). At most WINDOW
 * of them are with Redis, so that its deadline says something about Redis and not about how many
 * others asked before; the rest wait here, in their order, and one whose time has passed before its
 * turn came is refused (FG_OVERLOADED) without having been sent. */
#include "gateway/redis_link_private.h"

#include "gateway/clock.h"
#include "gateway/faults.h"
#include "gateway/log.h"

#include <assert.h>
#include <hiredis/adapters/libev.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    WINDOW = 512,      /* commands sent and not yet answered */
    LOGGED_BYTES = 200 /* of an error that Redis gives */
};

extern const char embedded_acquire_lua[], embedded_renew_lua[], embedded_release_lua[],
    embedded_inspect_lua[], embedded_hello_lua[];

static const char *const script_texts[SCRIPT_COUNT] = {
    [SCRIPT_HELLO] = embedded_hello_lua,     [SCRIPT_ACQUIRE] = embedded_acquire_lua,
    [SCRIPT_RENEW] = embedded_renew_lua,     [SCRIPT_RELEASE] = embedded_release_lua,
    [SCRIPT_INSPECT] = embedded_inspect_lua,
};

const char *script_text(enum script script)
{
#ifdef FG_FAILPOINTS
    static const char *const names[SCRIPT_COUNT] = {"hello", "acquire", "renew", "release",
                                                    "inspect"};
    return FAULT_SCRIPT(names[script], script_texts[script]);
#else
    return script_texts[script];
#endif
}

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

void commands_arm_deadline(struct redis_link *link)
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
        commands_arm_deadline(link);
}

void command_submit(struct redis_link *link, enum script script, size_t key_count,
                    const char *const *arguments, size_t count, redis_reply_fn done, void *arg)
{
    struct command *command = command_new(link, script, key_count, arguments, count, done, arg);
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

void commands_refuse_waiting(struct redis_link *link)
{
    struct command *command;
    while ((command = waiting_take(link)) != NULL)
        answer(command, FG_REDIS_UNAVAILABLE, NULL);
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
    commands_arm_deadline(link);
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

bool commands_are_late(struct redis_link *link)
{
    struct command *oldest = TAILQ_FIRST(&link->sent);
#ifdef FG_FAILPOINTS
    if (PLANTED(reuse_timed_out_connection) && oldest && oldest->done) {
        give_up_call(link, oldest);
        return false;
    }
#endif
    return oldest && oldest->deadline_ms <= clock_boot_ms();
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
        link_drop(link, "it has become a read-only replica");
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
        link_set_state(link, mismatch ? REDIS_LINK_MISMATCH : REDIS_LINK_READY);
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
        link_drop(link, "it answered more than was asked");
    send_waiting(link);
}

/* In place of the adapter's own. */
void commands_on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop;
    (void)events;
    redisAsyncContext *context = ((redisLibevEvents *)io->data)->context;
    struct redis_link *link = context->data;
    bool connected = (context->c.flags & REDIS_CONNECTED) != 0;
    if (connected && link->context == context && speaks_unasked(link))
        link_drop(link, "it spoke without being asked");
    else
        redisAsyncHandleRead(context);
}
