/* body.h - JSON bodies and query parameters by description.
 *
 * A handler names the fields it takes in a table and gets a filled struct, or the request has been
 * refused: invalid_json, or invalid_request with every fault and its JSON pointer. Unknown and
 * doubled fields are refused: a typo in "ttl_ms" must not quietly give the default. Loop thread
 * only. */
#ifndef FG_BODY_H
#define FG_BODY_H

#include "gateway/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum body_type {
    BODY_INTEGER, /* int64_t */
    BODY_STRING,  /* const char *, in the request's arena; null counts as not sent */
    BODY_NAME,    /* a string that is a name (names.h) */
    BODY_BOOLEAN, /* int: 0 or 1; what was not sent keeps its default */
};

struct body_field {
    const char *name;
    enum body_type type;
    bool required;
    int64_t least;    /* BODY_INTEGER: value; BODY_STRING: bytes */
    int64_t greatest; /* BODY_INTEGER: value; BODY_STRING: bytes */
    size_t offset;    /* in the struct to be filled */
    const char *what; /* the sentence for a value out of range */
};

/* Reads request->body into `out`, which holds the defaults. False: the request has been answered.
 * An empty body is {}. */
bool body_read(struct request *request, const struct body_field *fields, size_t count, void *out);

/* The query parameter `name` as an integer, `otherwise` where it was not sent. False: answered. */
bool query_integer(struct request *request, const char *name, int64_t least, int64_t greatest,
                   int64_t otherwise, int64_t *out);

/* Refuses a query parameter. */
void query_refuse(struct request *request, const char *name, const char *detail);

#endif
