/* fuzz_redis_reply.c - what Redis, or what pretends to be it, answers to the lease scripts.
 *
 * Input: a byte that names the call, then the reply as it comes over the wire; hiredis reads it, as
 * in the gateway. */
#include "tests/fuzz/fuzz.h"

#include "gateway/scripts.h"

#include <hiredis/hiredis.h>

static redis_reply_fn reply_to;
static void *reply_arg;
static int answers, distrusted;

static const struct lease_pair pair = {.token = 7, .secret = {1, 2, 3}};

/* In the place of redis_link.c. */
void redis_link_run(struct redis_link *link, enum script script, size_t key_count,
                    const char *const *arguments, size_t argument_count, redis_reply_fn done,
                    void *arg)
{
    (void)link;
    (void)script;
    MUST(key_count < argument_count);
    for (size_t i = 0; i < argument_count; i++)
        MUST(strlen(arguments[i]) < 1024);
    reply_to = done;
    reply_arg = arg;
}

void redis_link_distrust(struct redis_link *link, const char *why)
{
    (void)link;
    MUST(why[0] != '\0');
    distrusted++;
}

static void check_holders(const struct lease_holder *holders, size_t count)
{
    for (size_t i = 0; i < count; i++)
        MUST(holders[i].pair.token >= 0);
}

static void on_answer(void *arg, const struct script_answer *answer)
{
    (void)arg;
    answers++;
    if (answer->status != FG_OK)
        return;
    check_holders(answer->holders, answer->holder_count);
    check_holders(answer->dropped, answer->dropped_count);
    MUST(answer->now_ms >= 0 && answer->expires_at_ms >= 0);
}

/* A grant is ours only if the holders say so. */
static void on_acquired(void *arg, const struct script_answer *answer)
{
    on_answer(arg, answer);
    if (answer->status != FG_OK || !answer->done)
        return;
    bool ours = false;
    for (size_t i = 0; i < answer->holder_count; i++)
        ours |= answer->holders[i].pair.token == answer->token &&
                lease_secret_equal(answer->holders[i].pair.secret, pair.secret);
    MUST(ours && answer->token >= 1 && answer->token <= FENCING_TOKEN_MAX);
}

static void call(uint8_t which)
{
    static const char uuid[] = "00000000-0000-4000-8000-000000000000";
    switch (which % 4) {
    case 0:
        script_acquire(NULL, uuid, "r", 6, 1, 1000, pair.secret, on_acquired, NULL);
        break;
    case 1:
        script_renew(NULL, uuid, "r", &pair, 1000, 1, 1, on_answer, NULL);
        break;
    case 2:
        script_release(NULL, uuid, "r", &pair, on_answer, NULL);
        break;
    default:
        script_inspect(NULL, uuid, "r", on_answer, NULL);
        break;
    }
}

/* hiredis 0.14 allocates as many pointers as an array announces, before it sees one element: more
 * memory than there is, where Redis lies. Not what is looked for here. */
static bool announces_much(const uint8_t *data, size_t size)
{
    size_t digits = 0;
    bool in_count = false;
    for (size_t i = 0; i < size && digits <= 6; i++) {
        in_count = data[i] == '*' || (in_count && data[i] >= '0' && data[i] <= '9');
        digits = in_count && data[i] != '*' ? digits + 1 : 0;
    }
    return digits > 6;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    void *reply = NULL;
    if (size == 0 || announces_much(data, size))
        return 0;
    redisReader *reader = redisReaderCreate();
    if (!reader)
        abort();
    redisReaderFeed(reader, (const char *)data + 1, size - 1);
    if (redisReaderGetReply(reader, &reply) == REDIS_OK && reply) {
        answers = distrusted = 0;
        call(data[0]);
        if (((redisReply *)reply)->type == REDIS_REPLY_ERROR) /* the link keeps these */
            reply_to(reply_arg, FG_REDIS_UNAVAILABLE, NULL);
        else
            reply_to(reply_arg, FG_OK, reply);
        MUST(answers == 1 && distrusted <= 1);
        freeReplyObject(reply);
    }
    redisReaderFree(reader);
    return 0;
}
