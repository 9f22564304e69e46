/* connections.h - the deadlines of client connections, and those whose client has left.
 *
 * libmicrohttpd knows idle time only, which a client that sends a byte now and then never reaches;
 * and it does not see a FIN that arrives together with data. So each connection is in one of three
 * lists, in the order of time, and a timer looks at their heads:
 *
 *     idle       between requests: the next request line within CONNECTION_IDLE_MS
 *     receiving  from the request line on: headers and body within --request-timeout-ms
 *     leaving    the client sends no more (half-closed), and nothing of it is being worked on
 *
 * Where all places are taken, one that has been idle longest makes room: whoever has to release can
 * always come in.
 *
 * A late one is shut down; the library notices that and cleans up. A request that is being worked
 * on has no deadline here: whatever it waits for has its own. Loop thread only. */
#ifndef FG_CONNECTIONS_H
#define FG_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection;
struct connections;
struct ev_loop;

enum { CONNECTION_IDLE_MS = 75 * 1000 };

enum connection_phase { CONNECTION_IDLE, CONNECTION_RECEIVING, CONNECTION_WORKING };

/* `receive_ms`: --request-timeout-ms; `max`: --max-connections. */
struct connections *connections_open(struct ev_loop *ev, int64_t receive_ms, int64_t max);

/* All connections have been closed. */
void connections_close(struct connections *connections);

/* A client has connected; it is idle. `fd` is borrowed until connection_free(). */
struct connection *connection_new(struct connections *connections, int fd);

/* The library is about to close it. */
void connection_free(struct connection *connection);

/* Moves it to a phase; its time starts anew. */
void connection_enter(struct connection *connection, enum connection_phase phase);

/* The raw request target's length, as the request line had it: kept from the line to the headers.
 */
void connection_set_target_bytes(struct connection *connection, size_t bytes);
size_t connection_target_bytes(const struct connection *connection);

/* While the connection is being worked on: calls `left(arg)` when its client leaves, also where it
 * only half-closes. NULL: no more. */
void connection_watch(struct connection *connection, void (*left)(void *arg), void *arg);

/* Asks the kernel whether the client is still there, and sends. */
bool connection_client_there(const struct connection *connection);

/* Cuts it off, as a network that goes away would. */
void connection_cut(struct connection *connection);

#endif
