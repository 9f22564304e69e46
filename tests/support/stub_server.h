/* stub_server.h - an HTTP server that does what a test tells it to: it answers nonsense, half,
 * late, drop by drop or never.
 *
 *     struct stub *stub = stub_start();
 *     stub_play(stub, "POST /leases", STEPS({.text = stub_json(201, "{}")}));
 *     stub_play(stub, "POST /leases/<any>/renew", STEPS({.end = STUB_HANG}, {.text = fine}));
 *
 * with "*" for <any>. A request takes the next step of the play whose pattern it matches, the last
 * step again and again; of several plays the newest counts. What no play matches is answered with
 * 500. Bodies are read before a step begins, and all requests are kept for the test to look at.
 *
 * It has threads of its own, which block all signals. These calls: main thread only. */
#ifndef TESTS_STUB_SERVER_H
#define TESTS_STUB_SERVER_H

#include <stdbool.h>
#include <stddef.h>

struct stub;

/* What becomes of the connection after the bytes of a step. */
enum stub_end {
    STUB_KEEP,  /* it serves the next request */
    STUB_CLOSE, /* FIN */
    STUB_RESET, /* RST */
    STUB_HANG   /* nothing, until the client leaves */
};

/* What is done with one request. */
struct stub_step {
    int delay_ms;     /* before the first byte */
    const char *text; /* sent as it is, status line and all; NULL: nothing */
    size_t count;     /* its bytes; 0: up to its NUL */
    int times;        /* sent so often; 0: once */
    int drip_ms;      /* between any two bytes */
    enum stub_end end;
};

/* Steps for stub_play(). */
#define STEPS(...)                           \
    (const struct stub_step[]){__VA_ARGS__}, \
        sizeof((const struct stub_step[]){__VA_ARGS__}) / sizeof(struct stub_step)

/* A server on a free port of the loopback, until the test ends. */
struct stub *stub_start(void);

/* "http://127.0.0.1:port" */
const char *stub_url(const struct stub *stub);

/* Ends it: from now on its port refuses connections. */
void stub_stop(struct stub *stub);

/* What requests are met with whose "METHOD target" matches `pattern` (fnmatch(3), and "*" is also
 * for slashes). The steps are copied. */
void stub_play(struct stub *stub, const char *pattern, const struct stub_step *steps, size_t count);

/* How many requests have come that match; waits until so many have, and fails the test where they
 * never do. */
int stub_count(struct stub *stub, const char *pattern);
void stub_await(struct stub *stub, const char *pattern, int count);

/* The last request that matches: its head, an empty line, and its body up to a NUL. Fails the test
 * where there is none. */
const char *stub_last(struct stub *stub, const char *pattern);

/* How many connections were made. */
int stub_connections(struct stub *stub);

/* ---- Answers: strings that live until the test ends ------------------------------------------ */

/* One with these header lines (each ended by CR LF; Content-Length is added) and this body. */
const char *stub_answer(int status, const char *headers, const char *body);

/* The same, as application/json. */
const char *stub_json(int status, const char *body);

/* A problem document with this code, as fencegate's. */
const char *stub_problem(int status, const char *code);

#endif
