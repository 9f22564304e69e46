/* bare_loop.c - the limit that the gateway is measured against: its shape without its features.
 *
 *     bare_loop DATA_DIR REDIS_SOCKET
 *
 *     one libev loop                                   one writer thread
 *     libmicrohttpd ── PUT /store/{r}/{key} ─────────► BEGIN IMMEDIATE, op after op,
 *                   └─ POST /leases ─► acquire.lua ──► COMMIT (FULL): group commit
 *     answers ◄──────── ev_async, once per batch ◄──── done list
 *
 * The SQL, the script, the threads and the wake-ups are the gateway's. What it leaves out is what
 * the gateway adds: a walk over the headers, checks of names, JSON and tokens, conditions,
 * problems, deadlines, headers of the answer, the look at the mark before Redis is asked,
 * invariants, health, pruning, logs. Names are taken as they come; a body is searched for its name,
 * not parsed. Prints "listening http://127.0.0.1:<port>", runs until it is ended. */
#include "tests/bench/bare_http.h"
#include "tests/bench/bare_store.h"

#include <hiredis/adapters/libev.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { NAME_BYTES = 201, TTL_MS = 30000, SHA_BYTES = 41 };

extern const char embedded_acquire_lua[];

struct op {
    struct bare_request *request;
    struct bare_loop *loop;
    bool grant;
    char resource[NAME_BYTES];
    char key[NAME_BYTES];
    struct lease_pair pair; /* a write has the token only */
    char secret[2 * LEASE_SECRET_BYTES + 1];
    int64_t result; /* the version, or the resource's number */
    struct op *next;
};

struct op_list {
    struct op *head;
    struct op **tail;
};

struct bare_loop {
    struct bare_http http;
    redisAsyncContext *redis;
    char sha[SHA_BYTES];     /* of acquire.lua */
    struct bare_store store; /* the writer's */
    ev_async wake;
    pthread_mutex_t mutex;
    pthread_cond_t work;
    struct op_list queue; /* under the mutex */
    struct op_list done;  /* likewise */
};

/* ---- The queues ----------------------------------------------------------------------------- */

static void list_init(struct op_list *list)
{
    *list = (struct op_list){.tail = &list->head};
}

static void list_push(struct op_list *list, struct op *op)
{
    op->next = NULL;
    *list->tail = op;
    list->tail = &op->next;
}

static struct op *list_take(struct op_list *list)
{
    struct op *all = list->head;
    list_init(list);
    return all;
}

static void submit(struct op *op)
{
    struct bare_loop *loop = op->loop;
    pthread_mutex_lock(&loop->mutex);
    if (!loop->queue.head)
        pthread_cond_signal(&loop->work);
    list_push(&loop->queue, op);
    pthread_mutex_unlock(&loop->mutex);
}

/* ---- The writer thread ---------------------------------------------------------------------- */

static void apply(struct bare_store *store, struct op *op)
{
    if (op->grant)
        op->result = bare_store_grant(store, op->resource, &op->pair, TTL_MS);
    else
        op->result = bare_store_write(store, op->resource, op->key, op->pair.token,
                                      op->request->body, op->request->body_bytes);
}

static void hand_back(struct bare_loop *loop, struct op *all)
{
    pthread_mutex_lock(&loop->mutex);
    bool was_empty = !loop->done.head;
    while (all) {
        struct op *next = all->next;
        list_push(&loop->done, all);
        all = next;
    }
    pthread_mutex_unlock(&loop->mutex);
    if (was_empty)
        ev_async_send(loop->http.ev, &loop->wake);
}

__attribute__((noreturn)) static void *writer_main(void *arg)
{
    struct bare_loop *loop = arg;
    for (;;) {
        pthread_mutex_lock(&loop->mutex);
        while (!loop->queue.head)
            pthread_cond_wait(&loop->work, &loop->mutex);
        struct op *all = list_take(&loop->queue);
        pthread_mutex_unlock(&loop->mutex);
        bare_store_begin(&loop->store);
        for (struct op *op = all; op; op = op->next)
            apply(&loop->store, op);
        bare_store_commit(&loop->store);
        hand_back(loop, all);
    }
}

/* ---- Answers -------------------------------------------------------------------------------- */

static void answer(struct op *op)
{
    char text[2 * NAME_BYTES + 256];
    int bytes;
    unsigned status = op->grant         ? MHD_HTTP_CREATED
                      : op->result == 1 ? MHD_HTTP_CREATED
                                        : MHD_HTTP_OK;
    if (op->result == 0) {
        bytes = snprintf(text, sizeof text, "{}");
        status = MHD_HTTP_PRECONDITION_FAILED;
    } else if (op->grant) {
        bytes = snprintf(text, sizeof text,
                         "{\"lease_id\":\"%s\",\"resource\":\"%s\",\"fencing_token\":%" PRId64
                         ",\"limit\":1,\"ttl_ms\":%d}",
                         op->secret, op->resource, op->pair.token, TTL_MS);
    } else {
        bytes = snprintf(text, sizeof text,
                         "{\"resource\":\"%s\",\"key\":\"%s\",\"version\":%" PRId64
                         ",\"fencing_token\":%" PRId64 "}",
                         op->resource, op->key, op->result, op->pair.token);
    }
    bare_answer(op->request, status, text, (size_t)bytes);
}

static void on_wake(struct ev_loop *ev, ev_async *async, int events)
{
    (void)ev;
    (void)events;
    struct bare_loop *loop = async->data;
    pthread_mutex_lock(&loop->mutex);
    struct op *op = list_take(&loop->done);
    pthread_mutex_unlock(&loop->mutex);
    while (op) {
        struct op *next = op->next;
        answer(op); /* the op is freed with its request, later */
        op = next;
    }
}

/* ---- Grants: Redis first -------------------------------------------------------------------- */

static void on_reply(redisAsyncContext *redis, void *raw, void *arg)
{
    (void)redis;
    const redisReply *reply = raw;
    struct op *op = arg;
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
        strcmp(reply->element[0]->str, "GRANTED") != 0) {
        bare_answer(op->request, MHD_HTTP_CONFLICT, "{}", 2);
        return;
    }
    op->pair.token = strtoll(reply->element[1]->str, NULL, 10);
    submit(op);
}

/* From the kernel for many at a time: a call for each is a microsecond. */
static void random_secret(uint8_t secret[LEASE_SECRET_BYTES])
{
    static uint8_t pool[16 * LEASE_SECRET_BYTES];
    static size_t left;
    if (left == 0) {
        if (getrandom(pool, sizeof pool, 0) != (ssize_t)sizeof pool)
            abort();
        left = sizeof pool;
    }
    left -= LEASE_SECRET_BYTES;
    memcpy(secret, pool + left, LEASE_SECRET_BYTES);
}

static void acquire(struct op *op)
{
    char counter[NAME_BYTES + 32], holders[NAME_BYTES + 32];
    random_secret(op->pair.secret);
    for (size_t i = 0; i < LEASE_SECRET_BYTES; i++) {
        static const char digits[] = "0123456789abcdef";
        op->secret[2 * i] = digits[op->pair.secret[i] >> 4];
        op->secret[2 * i + 1] = digits[op->pair.secret[i] & 15];
    }
    snprintf(counter, sizeof counter, "fencegate:{%s}:counter", op->resource);
    snprintf(holders, sizeof holders, "fencegate:{%s}:holders", op->resource);
    const char *arguments[] = {"EVALSHA", op->loop->sha, "3",        "fencegate:store",
                               counter,   holders,       "bare",     "0",
                               "1",       "30000",       op->secret, "86400000"};
    redisAsyncCommandArgv(op->loop->redis, on_reply, op, sizeof arguments / sizeof arguments[0],
                          arguments, NULL);
}

/* ---- Requests ------------------------------------------------------------------------------- */

/* {"resource":"<name>", ... */
static bool find_name(const struct bare_request *request, char name[NAME_BYTES])
{
    static const char field[] = "\"resource\":\"";
    const char *found = memmem(request->body, request->body_bytes, field, strlen(field));
    if (!found)
        return false;
    found += strlen(field);
    const char *end = memchr(found, '"', request->body_bytes - (size_t)(found - request->body));
    if (!end || end - found >= NAME_BYTES)
        return false;
    memcpy(name, found, (size_t)(end - found));
    name[end - found] = '\0';
    return true;
}

/* /store/<resource>/<key> */
static bool split_target(const char *target, char resource[NAME_BYTES], char key[NAME_BYTES])
{
    static const char prefix[] = "/store/";
    if (strncmp(target, prefix, strlen(prefix)) != 0)
        return false;
    target += strlen(prefix);
    const char *slash = strchr(target, '/');
    if (!slash || slash - target >= NAME_BYTES || strlen(slash + 1) >= NAME_BYTES)
        return false;
    memcpy(resource, target, (size_t)(slash - target));
    resource[slash - target] = '\0';
    strcpy(key, slash + 1);
    return true;
}

static void handle(struct bare_request *request)
{
    struct op *op = calloc(1, sizeof *op);
    if (!op)
        abort();
    request->own = op;
    op->request = request;
    op->loop = request->http->arg;
    op->grant = strcmp(request->method, "POST") == 0;
    if (op->grant ? !find_name(request, op->resource)
                  : !split_target(request->target, op->resource, op->key)) {
        bare_answer(request, MHD_HTTP_BAD_REQUEST, "{}", 2);
        return;
    }
    bare_suspend(request);
    if (op->grant) {
        acquire(op);
        return;
    }
    const char *token =
        MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, "X-Fencing-Token");
    op->pair.token = token ? strtoll(token, NULL, 10) : 0;
    submit(op);
}

/* ---- Start ---------------------------------------------------------------------------------- */

static void load_script(struct bare_loop *loop, const char *socket_path)
{
    redisContext *redis = redisConnectUnix(socket_path);
    redisReply *reply =
        redis && !redis->err ? redisCommand(redis, "SCRIPT LOAD %s", embedded_acquire_lua) : NULL;
    if (!reply || reply->type != REDIS_REPLY_STRING) {
        fprintf(stderr, "bare_loop: no Redis at %s\n", socket_path);
        exit(EXIT_FAILURE);
    }
    snprintf(loop->sha, sizeof loop->sha, "%s", reply->str);
    freeReplyObject(reply);
    redisFree(redis);
    loop->redis = redisAsyncConnectUnix(socket_path);
    if (!loop->redis || loop->redis->err)
        abort();
    redisLibevAttach(loop->http.ev, loop->redis);
}

int main(int argc, char **argv)
{
    static struct bare_loop loop = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                                    .work = PTHREAD_COND_INITIALIZER};
    pthread_t writer;
    if (argc != 3) {
        fprintf(stderr, "Usage: bare_loop DATA_DIR REDIS_SOCKET\n");
        return 64;
    }
    loop.http =
        (struct bare_http){.ev = ev_default_loop(EVFLAG_AUTO), .handle = handle, .arg = &loop};
    list_init(&loop.queue);
    list_init(&loop.done);
    bare_store_open(&loop.store, argv[1]);
    load_script(&loop, argv[2]);
    ev_async_init(&loop.wake, on_wake);
    loop.wake.data = &loop;
    ev_async_start(loop.http.ev, &loop.wake);
    if (pthread_create(&writer, NULL, writer_main, &loop) != 0)
        abort();
    bare_http_open(&loop.http);
    bare_http_run(&loop.http);
}
