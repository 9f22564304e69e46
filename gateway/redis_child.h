/* redis_child.h - the private redis-server that a gateway without --redis runs for itself.
 *
 * It listens on <data dir>/redis.sock only, keeps an append-only file in the data directory, has a
 * session of its own (Ctrl-C reaches it only through us), and ends when we end: on purpose by
 * SIGTERM, and by PR_SET_PDEATHSIG (SIGKILL,
 * which a stopped server obeys, too) where we are killed. It holds an inherited flock on
 * <data dir>/redis.lock for as long as it lives, so that the next gateway never starts a second
 * server on the same append-only file. When it dies it is started again, with back-off.
 *
 * Main thread only: PR_SET_PDEATHSIG fires when the *thread* that forked ends. */
#ifndef FG_REDIS_CHILD_H
#define FG_REDIS_CHILD_H

struct ev_loop;
struct redis_child;

/* Starts the server in `data_dir` and returns without waiting for it to accept. `loop` must be
 * libev's default loop (it watches the child). Waits up to 5 s for the server of a gateway before
 * us to be gone. `why` gets the reason on failure. NULL: see why. */
struct redis_child *redis_child_start(struct ev_loop *loop, const char *data_dir, char *why,
                                      unsigned why_bytes);

/* The path to connect to; short enough for sun_path however long the data directory's is. Owned by
 * the child. */
const char *redis_child_socket(const struct redis_child *child);

/* Ends the server: SIGTERM, up to 3 s, SIGKILL. Frees `child`. NULL is fine. */
void redis_child_stop(struct redis_child *child);

#endif
