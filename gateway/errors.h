/* errors.h - the one enum of outcomes, and what each looks like to a client.
 *
 * Every function that can fail returns enum fg_status; FG_OK is 0. The table is errors.def.
 * Lowest layer: includes nothing of ours, callable from any thread. */
#ifndef FG_ERRORS_H
#define FG_ERRORS_H

#include <stdbool.h>

enum fg_status {
    FG_OK = 0,
#define FG_ERROR(symbol, http, code, retryable, title, meaning) FG_##symbol,
#include "gateway/errors.def"
#undef FG_ERROR
    FG_STATUS_COUNT
};

/* One row of errors.def as a client sees it. */
struct fg_error {
    int http;          /* HTTP status, 400 ... 599 */
    const char *code;  /* stable, snake_case */
    const char *type;  /* "/problems/<code-with-dashes>", the RFC 9457 type */
    const char *title; /* a sentence without a full stop */
    bool retryable;
    const char *meaning; /* sentences, for /problems/{code} */
};

/* The row of a failure. `status` is not FG_OK. The row is static: nobody frees it. */
const struct fg_error *fg_error(enum fg_status status);

/* The failure whose code is `code`, written with underscores or with dashes
 * ("stale-fencing-token"). FG_OK where there is none. */
enum fg_status fg_error_find(const char *code);

#endif
