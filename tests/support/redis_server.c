/* redis_server.c - starts redis-server, talks to it by hiredis. */
#include "tests/support/redis_server.h"

#include "tests/support/cleanup.h"
#include "tests/support/process.h"
#include "tests/support/tempdir.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// clang-format off
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

enum { MAX_ARGS = 64, START_MS = 10000, COMMAND_S = 10 };

struct redis_server {
    const char *folder;
    const char *socket; /* NULL: TCP */
    int port;
    const char *password;
    const char *url;
    const char *argv[MAX_ARGS];
    struct process *process;
    redisContext *link;
};

static void drop_link(struct redis_server *server)
{
    if (server->link)
        redisFree(server->link);
    server->link = NULL;
}

static void close_link(void *arg)
{
    drop_link(arg);
}

static redisContext *connect_to(const struct redis_server *server)
{
    struct timeval timeout = {.tv_sec = COMMAND_S};
    redisContext *link = server->socket
                             ? redisConnectUnixWithTimeout(server->socket, timeout)
                             : redisConnectWithTimeout("127.0.0.1", server->port, timeout);
    if (link && !link->err) {
        redisSetTimeout(link, timeout);
        if (!server->password)
            return link;
        redisReply *reply = redisCommand(link, "AUTH %s", server->password);
        bool fine = reply && reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
        if (fine)
            return link;
    }
    if (link)
        redisFree(link);
    return NULL;
}

static bool answers(struct redis_server *server)
{
    drop_link(server);
    server->link = connect_to(server);
    redisReply *reply = server->link ? redisCommand(server->link, "PING") : NULL;
    bool pong = reply && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    if (!pong)
        drop_link(server);
    return pong;
}

void redis_server_restart(struct redis_server *server)
{
    server->process =
        process_start(server->argv, NULL, test_printf("%s/redis.log", server->folder));
    bool up = EVENTUALLY(answers(server) || !process_running(server->process), START_MS);
    if (!up || !process_running(server->process))
        fail_msg("redis-server does not start: %s", process_output(server->process));
}

static struct redis_server *prepare(const char *password)
{
    struct redis_server *server = test_alloc(sizeof *server);
    server->folder = tempdir_new();
    server->password = password;
    if (!password)
        server->socket = test_printf("%s/redis.sock", server->folder);
    cleanup_add(close_link, server);
    return server;
}

struct redis_server *redis_server_start(const char *const *extra)
{
    struct redis_server *server = prepare(NULL);
    server->url = test_printf("unix://%s", server->socket);
    const char *const *fixed = LIST("redis-server", "--port", "0", "--unixsocket", server->socket,
                                    "--dir", server->folder, "--save", "", "--appendonly", "no");
    size_t count = 0;
    while (fixed[count]) {
        server->argv[count] = fixed[count];
        count++;
    }
    for (; extra && *extra && count < MAX_ARGS - 1; extra++)
        server->argv[count++] = *extra;
    redis_server_restart(server);
    return server;
}

/* A port that was free a moment ago. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    close(fd);
    return ntohs(address.sin_port);
}

struct redis_server *redis_server_start_tcp(const char *password)
{
    struct redis_server *server = prepare(password);
    server->port = free_port();
    server->url = test_printf("redis://:%s@127.0.0.1:%d", password, server->port);
    const char *const *fixed = LIST("redis-server", "--port", test_printf("%d", server->port),
                                    "--bind", "127.0.0.1", "--requirepass", password, "--dir",
                                    server->folder, "--save", "");
    for (size_t i = 0; fixed[i]; i++)
        server->argv[i] = fixed[i];
    redis_server_restart(server);
    return server;
}

const char *redis_server_url(const struct redis_server *server)
{
    return server->url;
}

void redis_server_stop(struct redis_server *server)
{
    drop_link(server);
    process_signal(server->process, SIGTERM);
    if (process_wait(server->process, slow_ms(START_MS)) != 0)
        fail_msg("redis-server does not stop: %s", process_output(server->process));
}

void redis_server_kill(struct redis_server *server)
{
    drop_link(server);
    process_signal(server->process, SIGKILL);
    assert_int_equal(process_wait(server->process, slow_ms(START_MS)), 128 + SIGKILL);
}

void redis_server_pause(struct redis_server *server)
{
    process_signal(server->process, SIGSTOP);
}

void redis_server_resume(struct redis_server *server)
{
    process_signal(server->process, SIGCONT);
}

static redisReply *command(struct redis_server *server, const char *format, va_list args)
{
    if (!server->link)
        server->link = connect_to(server);
    if (!server->link)
        fail_msg("no connection to redis-server for %s", format);
    redisReply *reply = redisvCommand(server->link, format, args);
    if (!reply)
        fail_msg("%s: %s", format, server->link->errstr);
    cleanup_add(freeReplyObject, reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply->str);
    return reply;
}

redisReply *redis_command(struct redis_server *server, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    redisReply *reply = command(server, format, args);
    va_end(args);
    return reply;
}

long long redis_number(struct redis_server *server, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const redisReply *reply = command(server, format, args);
    va_end(args);
    return reply->type == REDIS_REPLY_STRING ? atoll(reply->str) : reply->integer;
}

const char *redis_text(struct redis_server *server, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const redisReply *reply = command(server, format, args);
    va_end(args);
    return reply->type == REDIS_REPLY_NIL ? NULL : reply->str;
}
