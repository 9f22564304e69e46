/* scripts.c - arguments and answers of the lease scripts (scripts.h, lua/README.md). */
#include "gateway/scripts.h"

#include "gateway/digits.h"
#include "gateway/names.h"
#include "storage/arena.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SECRET_CHARS = 2 * LEASE_SECRET_BYTES,
    MEMBER_CHARS = DIGITS_CHARS + SECRET_CHARS + 1,
    KEY_CHARS = 3 * 200 + 32 /* a name of 200 bytes, each escaped */
};

/* Counter and holders outlive the last expiry by a day. */
static const char memory_ms[] = "86400000";

/* ---- Arguments ------------------------------------------------------------------------------ */

/* "fencegate:{<resource>}:<what>". Braces in the name would end the hash tag early: escaped. */
static void write_key(char out[KEY_CHARS], const char *resource, const char *what)
{
    char *to = stpcpy(out, "fencegate:{");
    for (const char *from = resource; *from; from++) {
        const char *escape = *from == '{'   ? "%7B"
                             : *from == '}' ? "%7D"
                             : *from == '%' ? "%25"
                                            : NULL;
        if (escape)
            to = stpcpy(to, escape);
        else
            *to++ = *from;
    }
    to = stpcpy(to, "}:");
    stpcpy(to, what);
}

static void write_member(char out[MEMBER_CHARS + 1], const struct lease_pair *pair)
{
    char *to = digits_write(out, pair->token);
    *to++ = ':';
    digits_write_hex(to, pair->secret, LEASE_SECRET_BYTES);
}

/* ---- Answers -------------------------------------------------------------------------------- */

static bool read_number(const char *text, int64_t *number)
{
    char *end;
    *number = strtoll(text, &end, 10);
    return end != text && *end == '\0' && *number >= 0;
}

static bool read_hex(const char *text, uint8_t *out, size_t bytes)
{
    if (strlen(text) != 2 * bytes || strspn(text, "0123456789abcdef") != 2 * bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(hex_digit(text[2 * i]) * 16 + hex_digit(text[2 * i + 1]));
    return true;
}

/* "token:secret". Anything else in the set is not ours; it is skipped. */
static bool read_member(const char *text, struct lease_pair *pair)
{
    char token[DIGITS_CHARS];
    const char *colon = strchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof token)
        return false;
    memcpy(token, text, (size_t)(colon - text));
    token[colon - text] = '\0';
    return read_number(token, &pair->token) &&
           read_hex(colon + 1, pair->secret, sizeof pair->secret);
}

/* A score is a double in text; what no clock can show counts as the end of time. */
static int64_t read_score(const char *text)
{
    double score = strtod(text, NULL);
    if (!(score > 0))
        return 0;
    return score < (double)FENCING_TOKEN_MAX ? (int64_t)score : FENCING_TOKEN_MAX;
}

static size_t read_holders(const redisReply *list, struct arena *arena,
                           const struct lease_holder **out)
{
    if (list->type != REDIS_REPLY_ARRAY || list->elements < 2)
        return 0;
    struct lease_holder *holders = arena_alloc(arena, list->elements / 2 * sizeof *holders);
    size_t count = 0;
    for (size_t i = 0; i + 1 < list->elements; i += 2) {
        const redisReply *member = list->element[i];
        const redisReply *score = list->element[i + 1];
        if (member->type == REDIS_REPLY_STRING && score->type == REDIS_REPLY_STRING &&
            read_member(member->str, &holders[count].pair)) {
            holders[count].expires_at_ms = read_score(score->str);
            count++;
        }
    }
    *out = holders;
    return count;
}

/* Whether an answer has all its parts: so many strings, then so many lists. */
static bool has_parts(const redisReply *reply, size_t strings, size_t lists)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != strings + lists)
        return false;
    for (size_t i = 0; i < reply->elements; i++) {
        if (reply->element[i]->type != (i < strings ? REDIS_REPLY_STRING : REDIS_REPLY_ARRAY))
            return false;
    }
    return true;
}

static const char *string_at(const redisReply *reply, size_t at)
{
    return at < reply->elements && reply->element[at]->type == REDIS_REPLY_STRING
               ? reply->element[at]->str
               : "";
}

static int64_t number_at(const redisReply *reply, size_t at)
{
    int64_t number = 0;
    return read_number(string_at(reply, at), &number) ? number : 0;
}

/* {"GRANTED" | "BUSY" | "OK", token, now, holders, dropped} */
static void read_holder_answer(const redisReply *reply, struct arena *arena,
                               struct script_answer *answer)
{
    answer->token = number_at(reply, 1);
    answer->now_ms = number_at(reply, 2);
    if (reply->elements > 3)
        answer->holder_count = read_holders(reply->element[3], arena, &answer->holders);
    if (reply->elements > 4)
        answer->dropped_count = read_holders(reply->element[4], arena, &answer->dropped);
}

/* {"RENEWED" | "RESTORED" | "EXPIRED", expiry, now} */
static void read_renew_answer(const redisReply *reply, struct script_answer *answer)
{
    answer->expires_at_ms = number_at(reply, 1);
    answer->now_ms = number_at(reply, 2);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

struct call {
    struct redis_link *link;
    enum script script;
    uint8_t secret[LEASE_SECRET_BYTES]; /* acquire: of this attempt */
    script_done_fn done;
    void *arg;
};

/* A grant is ours if the attempt's own pair is among the holders. */
static bool grant_is_ours(const struct call *call, const struct script_answer *answer)
{
    for (size_t i = 0; i < answer->holder_count; i++) {
        const struct lease_pair *pair = &answer->holders[i].pair;
        if (pair->token == answer->token && lease_secret_equal(pair->secret, call->secret))
            return answer->token <= FENCING_TOKEN_MAX;
    }
    return false;
}

/* Reads an answer by its first word. False: no answer that this script gives; whatever speaks there
 * does not speak of our question. */
static bool read_answer(const struct call *call, const redisReply *reply, struct arena *arena,
                        struct script_answer *answer)
{
    const char *word = reply->type == REDIS_REPLY_ARRAY ? string_at(reply, 0) : "";
    switch (call->script) {
    case SCRIPT_ACQUIRE:
        if (strcmp(word, "EXHAUSTED") == 0) {
            answer->status = FG_TOKENS_EXHAUSTED;
            return true;
        }
        read_holder_answer(reply, arena, answer);
        answer->done = strcmp(word, "GRANTED") == 0;
        return has_parts(reply, 3, 2) &&
               (answer->done ? grant_is_ours(call, answer) : strcmp(word, "BUSY") == 0);
    case SCRIPT_RENEW:
        read_renew_answer(reply, answer);
        answer->restored = strcmp(word, "RESTORED") == 0;
        answer->done = answer->restored || strcmp(word, "RENEWED") == 0;
        return answer->done ? has_parts(reply, 3, 0) : strcmp(word, "EXPIRED") == 0;
    case SCRIPT_INSPECT:
        read_holder_answer(reply, arena, answer);
        return strcmp(word, "OK") == 0 && has_parts(reply, 3, 1);
    default:
        return strcmp(word, "OK") == 0;
    }
}

static void on_reply(void *arg, enum fg_status status, const redisReply *reply)
{
    struct call *call = arg;
    struct script_answer answer = {.status = status};
    struct arena arena = {0};
    if (status == FG_OK && !read_answer(call, reply, &arena, &answer)) {
        answer = (struct script_answer){.status = FG_REDIS_UNAVAILABLE};
        redis_link_distrust(call->link, "an answer that makes no sense");
    }
    call->done(call->arg, &answer);
    arena_free(&arena);
    free(call);
}

static void run(struct redis_link *link, enum script script, size_t key_count,
                const char *const *arguments, size_t argument_count, const uint8_t *secret,
                script_done_fn done, void *arg)
{
    struct call *call = malloc(sizeof *call);
    if (!call)
        abort();
    *call = (struct call){.link = link, .script = script, .done = done, .arg = arg};
    if (secret)
        memcpy(call->secret, secret, LEASE_SECRET_BYTES);
    redis_link_run(link, script, key_count, arguments, argument_count, on_reply, call);
}

static const char store_key[] = "fencegate:store";

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

void script_acquire(struct redis_link *link, const char *store_uuid, const char *resource,
                    int64_t mark, int limit, int64_t ttl_ms,
                    const uint8_t secret[LEASE_SECRET_BYTES], script_done_fn done, void *arg)
{
    char counter[KEY_CHARS], holders[KEY_CHARS], hex[SECRET_CHARS + 1];
    char mark_text[DIGITS_CHARS], limit_text[DIGITS_CHARS], ttl_text[DIGITS_CHARS];
    write_key(counter, resource, "counter");
    write_key(holders, resource, "holders");
    digits_write(mark_text, mark);
    digits_write(limit_text, limit);
    digits_write(ttl_text, ttl_ms);
    digits_write_hex(hex, secret, LEASE_SECRET_BYTES);
    const char *arguments[] = {store_key,  counter,  holders, store_uuid, mark_text,
                               limit_text, ttl_text, hex,     memory_ms};
    run(link, SCRIPT_ACQUIRE, 3, arguments, COUNT(arguments), secret, done, arg);
}

void script_renew(struct redis_link *link, const char *store_uuid, const char *resource,
                  const struct lease_pair *pair, int64_t ttl_ms, int limit, int64_t oldest,
                  script_done_fn done, void *arg)
{
    char counter[KEY_CHARS], holders[KEY_CHARS], member[MEMBER_CHARS + 1];
    char token_text[DIGITS_CHARS], ttl_text[DIGITS_CHARS], limit_text[DIGITS_CHARS];
    char oldest_text[DIGITS_CHARS];
    write_key(counter, resource, "counter");
    write_key(holders, resource, "holders");
    write_member(member, pair);
    digits_write(token_text, pair->token);
    digits_write(ttl_text, ttl_ms);
    digits_write(limit_text, limit);
    digits_write(oldest_text, oldest);
    const char *arguments[] = {store_key,  counter,  holders,    store_uuid,  member,
                               token_text, ttl_text, limit_text, oldest_text, memory_ms};
    run(link, SCRIPT_RENEW, 3, arguments, COUNT(arguments), NULL, done, arg);
}

void script_release(struct redis_link *link, const char *store_uuid, const char *resource,
                    const struct lease_pair *pair, script_done_fn done, void *arg)
{
    char holders[KEY_CHARS], member[MEMBER_CHARS + 1];
    write_key(holders, resource, "holders");
    write_member(member, pair);
    const char *arguments[] = {store_key, holders, store_uuid, member};
    run(link, SCRIPT_RELEASE, 2, arguments, COUNT(arguments), NULL, done, arg);
}

void script_inspect(struct redis_link *link, const char *store_uuid, const char *resource,
                    script_done_fn done, void *arg)
{
    char holders[KEY_CHARS];
    write_key(holders, resource, "holders");
    const char *arguments[] = {store_key, holders, store_uuid};
    run(link, SCRIPT_INSPECT, 2, arguments, COUNT(arguments), NULL, done, arg);
}
