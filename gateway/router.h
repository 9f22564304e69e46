/* router.h - from method and raw path to a handler.
 *
 * Paths are matched on raw segments, then each parameter is percent-decoded once: "orders%2F42" is
 * one segment and names "orders/42". Loop thread only. */
#ifndef FG_ROUTER_H
#define FG_ROUTER_H

#include "gateway/errors.h"
#include "gateway/request.h"

typedef void (*route_handler)(struct request *request);

/* What has to hold before the body is read. */
enum route_flags {
    ROUTE_PLAIN = 0,
    ROUTE_TOKEN = 1,    /* X-Fencing-Token is required */
    ROUTE_LEASE_ID = 2, /* X-Lease-Id too, with --require-lease-id */
    ROUTE_IF_MATCH = 4, /* If-Match may be sent */
    ROUTE_IF_NONE_MATCH = 8,
    ROUTE_UNFENCED = 16, /* of an unfenced resource a condition will do instead of the token */
};

struct route {
    const char *method;
    const char *pattern; /* segments; {name}: a name, {id} and {code}: any text */
    route_handler handler;
    unsigned flags;
    const char *query; /* the query parameters it takes, separated by blanks; "" for none */
};

/* The table (routes.c), ended by a row without a method. */
extern const struct route routes[];

/* Calls of the contract that are not built yet, "POST /store/{r}", ended by NULL: 404 although the
 * path has other methods. */
extern const char *const unbuilt_routes[];

/* Finds the route of request->method and request->target; HEAD is GET. FG_OK: request->route is
 * set. FG_NOT_FOUND; FG_METHOD_NOT_ALLOWED: `allow` has the methods, "GET, HEAD, PUT". */
enum fg_status router_find(struct request *request, char *allow, size_t allow_bytes);

/* Decodes the path's parameters. FG_OK or FG_INVALID_NAME with a sentence (static) in *detail. */
enum fg_status router_decode(struct request *request, const char **detail);

#endif
