/* wire.h - requests under way, over libcurl: the layer below http_call(), acquire.c and watchdog.c.
 *
 * A wire is a curl multi handle with its idle connections and a clock of its own: a timerfd of
 * CLOCK_BOOTTIME, because curl's timeouts stand still while the machine is suspended and a lease
 * does not. An exchange is one request on a wire. Several may run at a time; the thread that has
 * the wire drives all of them in wire_wait(). Ending an exchange that has no answer yet closes its
 * connection, which tells the gateway that nobody waits any more.
 *
 * A wire belongs to one thread at a time. The client keeps idle ones, so that connections are used
 * again: wire_take(), wire_give(). */
#ifndef FENCE_WIRE_H
#define FENCE_WIRE_H

#include "client/http.h"

#include <curl/curl.h>

struct wire;

struct exchange {
    struct http_answer answer;
    enum fence_status status; /* once it is done */
    struct fence_error error; /* likewise */
    int64_t sent_boot_ms;     /* when it was begun: the request left later than that */
    int64_t timeout_boot_ms;  /* for who waits: see exchange_time_out() */
    bool done;
    /* ours */
    struct wire *wire; /* it is under way, or done and not ended; NULL: neither */
    CURL *easy;
    char *url;
    struct curl_slist *headers;
    size_t body_room;
    size_t body_most;
    bool once;      /* must not be sent again on another connection */
    bool sent;      /* may have been received */
    int link;       /* the socket that it was sent on; 0: none, or not known */
    bool too_large; /* the answer */
    bool given_up;  /* see exchange_give_up() */
    char curl_error[CURL_ERROR_SIZE];
};

/* One from the client's idle ones, or a new one. NULL: memory or descriptors are out. */
struct wire *wire_take(struct fence_client *client);

/* Gives it back, without an exchange on it. */
void wire_give(struct fence_client *client, struct wire *wire);

/* Closes its connections. Without an exchange on it; NULL is fine. */
void wire_close(struct wire *wire);

/* Begins a request; body and path are copied. False: memory is out, `exchange` is zeroed. Otherwise
 * the caller ends it with exchange_end(), whatever becomes of it. */
bool exchange_begin(struct wire *wire, struct exchange *exchange,
                    const struct http_request *request);

/* Ends it, and frees its answer. One that is not done is hung up. A zeroed one is fine. */
void exchange_end(struct exchange *exchange);

/* Tells the gateway that nobody waits any more, and leaves the way back open: either it closes the
 * connection, or its answer was on the way and comes. Drive it until it is done, or long enough,
 * where `given_up` says that something may come. One that is done, or not there, is left alone. */
void exchange_give_up(struct exchange *exchange);

/* Its time has passed: it is done, with FENCE_NO_ANSWER or _UNREACHABLE. */
void exchange_time_out(struct exchange *exchange);

/* Drives the exchanges until one is done, `fd` (0: none) is readable, or the time (CLOCK_BOOTTIME)
 * has come: whichever is first. True: because of `fd`. */
bool wire_wait(struct wire *wire, int fd, int64_t until_boot_ms);

#endif
