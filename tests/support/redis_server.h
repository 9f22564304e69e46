/* redis_server.h - a real redis-server for one test, on a unix socket in a folder of its own.
 *
 * It keeps nothing on disk unless told so: stopped and started again, it is empty. */
#ifndef TESTS_REDIS_SERVER_H
#define TESTS_REDIS_SERVER_H

#include <hiredis/hiredis.h>

struct redis_server;

/* Starts one and waits until it answers PING. `extra` holds more arguments of redis-server (LIST(
 * "--appendonly", "yes")); NULL: none. */
struct redis_server *redis_server_start(const char *const *extra);

/* The same on a TCP port of the loopback, with a password; user "default". */
struct redis_server *redis_server_start_tcp(const char *password);

/* What --redis takes: "unix:///path", or "redis://:password@127.0.0.1:port". */
const char *redis_server_url(const struct redis_server *server);

/* Ends it: SIGTERM or SIGKILL, and waits. */
void redis_server_stop(struct redis_server *server);
void redis_server_kill(struct redis_server *server);

/* Starts a stopped one again, at the same place with the same arguments. */
void redis_server_restart(struct redis_server *server);

/* SIGSTOP and SIGCONT: its sockets accept connections and bytes, nothing answers. */
void redis_server_pause(struct redis_server *server);
void redis_server_resume(struct redis_server *server);

/* Runs a command (the format is hiredis') and returns its reply, which the test owns. Fails the
 * test where Redis doesn't answer within 10 s, or answers with an error. */
redisReply *redis_command(struct redis_server *server, const char *format, ...);

/* The same, for replies that are one number or one string; a nil is 0 or NULL. */
long long redis_number(struct redis_server *server, const char *format, ...);
const char *redis_text(struct redis_server *server, const char *format, ...);

#endif
