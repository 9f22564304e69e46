/* ops.h - the store without a gateway: a test opens one in a folder, submits ops and waits for
 * them, and looks at the tables with a connection of its own.
 *
 *     struct bench *b = bench_open(NULL, NULL);
 *     expect_op(b, op_grant("r", 1, 1, HOLDERS(1)), FG_OK);
 *     expect_op(b, op_put("r", "key", 1, "value"), FG_OK);
 *
 * Leases are named by their token: the secret of a lease is made of it, unless a test says
 * otherwise. Main thread only. */
#ifndef TESTS_OPS_H
#define TESTS_OPS_H

#include "storage/store.h"

#include <stdbool.h>
#include <stdint.h>

struct bench {
    struct store *store; /* NULL: closed */
    const char *dir;
    int wake_fd;
    size_t collected; /* ops that came back */
};

enum { TTL_MS = 30000 };

/* Opens the store in `dir` (NULL: a new folder). `options`: ages, rows and memory (NULL: generous);
 * the other fields are filled in. Fails the test where it can't. */
struct bench *bench_open(const char *dir, const struct store_options *options);

/* Tries to, and returns why not; NULL: it has been opened, which fails the test. */
const char *bench_refusal(const char *dir);

/* Closes it. A bench that is still open at the end of the test is closed then. */
void bench_close(struct bench *bench);

/* Closes it and opens the same folder again. */
void bench_reopen(struct bench *bench, const struct store_options *options);

/* ---- Ops; owned by the test ------------------------------------------------------------------ */

/* Who holds it, by token: HOLDERS(2, 5). The lease being granted is among them. */
#define HOLDERS(...) ((const int64_t[]){__VA_ARGS__, 0})

/* A grant of `limit` (0: none named). Redis has the leases named by `holders`. */
struct store_op *op_grant(const char *resource, int64_t token, int limit, const int64_t *holders);

/* A holder as op_grant() makes it, with another secret or an expiry. */
struct lease_holder holder_of(int64_t token, int64_t secret, int64_t expires_at_ms);

struct store_op *op_release(struct lease_key lease);
struct store_op *op_renewal(struct lease_key lease, int64_t ttl_ms, int64_t deadline_boot_ms);
struct store_op *op_put(const char *resource, const char *key, int64_t token, const char *value);
struct store_op *op_delete(const char *resource, const char *key, int64_t token);
struct store_op *op_revoke(const char *resource, int64_t token, const char *reason);
struct store_op *op_configure(const char *resource, int limit, enum fence_setting fence);
struct store_op *op_scan(enum store_scan_kind kind, const char *resource, size_t limit);

/* The same write, that shows this lease; under this condition. */
struct store_op *op_showing(struct store_op *write, struct lease_key lease);
struct store_op *op_if(struct store_op *write, enum version_condition condition, int64_t version);

/* The lease that a grant made; one with this token of a resource. */
struct lease_key lease_of(const struct store_op *grant);
struct lease_key lease_key_of(int64_t resource_id, int64_t token, int64_t secret);

/* ---- Running --------------------------------------------------------------------------------- */

void bench_submit(struct bench *bench, struct store_op *op);

/* Waits until nothing is in flight. */
void bench_wait(struct bench *bench);

/* Submits one op, waits for it, and fails the test where its status is another. Returns `op`. */
struct store_op *expect_op(struct bench *bench, struct store_op *op, enum fg_status status);
void expect_status_of(const struct store_op *op, enum fg_status status);

/* Grants, and fails the test where it is not granted. */
struct lease_key grant(struct bench *bench, const char *resource, int64_t token);

/* ---- Looking --------------------------------------------------------------------------------- */

/* "mark 5, limit 1, live 3 5" of a resource, as store_read_fence() says. */
const char *fence_text(struct bench *bench, const char *resource);

/* Runs SQL on a connection of its own and returns SQLite's result code. */
int sql_run(const struct bench *bench, const char *sql);

/* The first column of the first row; the whole result as "a|b c|d". */
int64_t sql_number(const struct bench *bench, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *sql_text(const struct bench *bench, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Everything that is durable but the clock's traces: for "nothing has changed". */
const char *sql_everything(const struct bench *bench);

#endif
