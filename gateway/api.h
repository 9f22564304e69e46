/* api.h - the handlers of the route table (routes.c), and what they share. Each answers its request
 * exactly once (request.h). Loop thread only. */
#ifndef FG_API_H
#define FG_API_H

#include "gateway/leases.h"
#include "gateway/request.h"

#include <jansson.h>

/* lease_api.c */
void api_lease_acquire(struct request *request);
void api_lease_renew(struct request *request);
void api_lease_release(struct request *request);
void api_lease_get(struct request *request);
void api_lease_list(struct request *request);

/* resource_api.c */
void api_resource_list(struct request *request);
void api_resource_get(struct request *request);
void api_resource_put(struct request *request);
void api_resource_revoke(struct request *request);
void api_resource_check(struct request *request);
void api_resource_history(struct request *request);

/* store_api.c */
void api_record_put(struct request *request);
void api_record_get(struct request *request);
void api_record_delete(struct request *request);
void api_record_list(struct request *request);

/* system_api.c */
void api_livez(struct request *request);
void api_readyz(struct request *request);
void api_version(struct request *request);
void api_openapi(struct request *request);
void api_problem(struct request *request);

/* ---- Lists (list_api.c) --------------------------------------------------------------------- */

enum { PAGE_DEFAULT = 100 };

/* Begins a scan op in the request's arena: reads ?limit= and, where the list goes by name,
 * ?cursor=. NULL: the request has been answered. */
struct store_op *list_scan(struct request *request, enum store_scan_kind kind,
                           void (*done)(struct store_op *op));

/* The ?cursor= of a list that goes by one number, at least 0 (0 where it was not sent). */
bool list_cursor_number(struct request *request, int64_t *number);

/* Answers with a page. `next_cursor` is taken over; NULL: there is no further page. */
void list_reply(struct request *request, json_t *items, json_t *next_cursor);

/* A cursor that holds a name. */
json_t *list_name_cursor(struct request *request, const char *name);

/* ---- The fence, for reads (fence_api.c) ----------------------------------------------------- */

/* Judges the request's token (and lease, where shown) against the resource. True: live. False: the
 * request has been answered with 412 or a failure. */
bool fence_admit(struct request *request, const char *resource);

/* How a refused token ended, as the store tells it. */
struct fence_refusal {
    const char *resource;
    int64_t token;
    int64_t mark;
    enum lease_state state; /* LEASE_LIVE: unknown */
    int64_t ended_at_ms;
    struct lease_successor successor;
};

/* 412 for FG_STALE_FENCING_TOKEN, FG_FENCING_TOKEN_NOT_ISSUED or FG_LEASE_MISMATCH. */
void fence_refuse(struct request *request, enum fg_status status,
                  const struct fence_refusal *refusal);

/* {"fencing_token", "owner", "at"} or null. */
json_t *successor_json(const struct lease_successor *successor);

#endif
