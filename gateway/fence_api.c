/* fence_api.c - refusals of the fence as problems, and the fence for reads. */
#include "gateway/api.h"

#include "gateway/loop.h"
#include "gateway/reply.h"

#include <inttypes.h>

json_t *successor_json(const struct lease_successor *successor)
{
    if (successor->token == 0)
        return json_null();
    return json_pack("{s:I, s:o, s:o}", "fencing_token", (json_int_t)successor->token, "owner",
                     json_string_or_null(successor->owner), "at",
                     json_time_or_null(successor->at_ms));
}

static const char *reason_of(enum lease_state state)
{
    switch (state) {
    case LEASE_SUPERSEDED:
        return "superseded";
    case LEASE_RELEASED:
        return "released";
    case LEASE_REVOKED:
        return "revoked";
    case LEASE_LIVE:
        break;
    }
    return "unknown";
}

static void refuse_stale(struct request *request, const struct fence_refusal *refusal)
{
    json_t *facts = json_pack("{s:s, s:I, s:I, s:s, s:o, s:o}", "resource", refusal->resource,
                              "fencing_token", (json_int_t)refusal->token, "highest_fencing_token",
                              (json_int_t)refusal->mark, "reason", reason_of(refusal->state),
                              "superseded_by", successor_json(&refusal->successor), "ended_at",
                              json_time_or_null(refusal->ended_at_ms));
    switch (refusal->state) {
    case LEASE_RELEASED:
        reply_problem(request, FG_STALE_FENCING_TOKEN, facts,
                      "The lease of token %" PRId64 " has been released. Acquire a new one.",
                      refusal->token);
        break;
    case LEASE_REVOKED:
        reply_problem(request, FG_STALE_FENCING_TOKEN, facts,
                      "The lease of token %" PRId64 " has been revoked. Acquire a new one.",
                      refusal->token);
        break;
    default:
        reply_problem(request, FG_STALE_FENCING_TOKEN, facts,
                      "Token %" PRId64 " may no longer write: the newest of %s is %" PRId64
                      ". Do not try again; acquire a new lease.",
                      refusal->token, refusal->resource, refusal->mark);
        break;
    }
}

void fence_refuse(struct request *request, enum fg_status status,
                  const struct fence_refusal *refusal)
{
    if (status == FG_STALE_FENCING_TOKEN) {
        refuse_stale(request, refusal);
    } else if (status == FG_FENCING_TOKEN_NOT_ISSUED) {
        reply_problem(request, status,
                      json_pack("{s:s, s:I, s:I}", "resource", refusal->resource, "fencing_token",
                                (json_int_t)refusal->token, "highest_fencing_token",
                                (json_int_t)refusal->mark),
                      "Token %" PRId64 " of %s was never issued; the newest is %" PRId64 ".",
                      refusal->token, refusal->resource, refusal->mark);
    } else {
        reply_problem(request, status,
                      json_pack("{s:s, s:I}", "resource", refusal->resource, "fencing_token",
                                (json_int_t)refusal->token),
                      "X-Lease-Id is not the lease of token %" PRId64 ".", refusal->token);
    }
}

static enum fg_status verdict_status(enum fence_verdict verdict)
{
    switch (verdict) {
    case FENCE_LIVE:
        return FG_OK;
    case FENCE_STALE:
        return FG_STALE_FENCING_TOKEN;
    case FENCE_NOT_ISSUED:
        return FG_FENCING_TOKEN_NOT_ISSUED;
    case FENCE_LEASE_MISMATCH:
        return FG_LEASE_MISMATCH;
    }
    return FG_STALE_FENCING_TOKEN;
}

bool fence_admit(struct request *request, const char *resource)
{
    struct store *store = request->loop->store;
    const struct request_headers *headers = &request->headers;
    struct fence fence;
    enum fg_status status = store_read_fence(store, resource, &fence);
    if (status != FG_OK) {
        reply_failure(request, status);
        return false;
    }
    status = verdict_status(
        fence_decide(&fence, headers->token, headers->has_lease ? &headers->lease : NULL));
    if (status == FG_OK)
        return true;
    struct fence_refusal refusal = {
        .resource = resource, .token = headers->token, .mark = fence.mark};
    struct lease_row ended;
    if (status == FG_STALE_FENCING_TOKEN &&
        store_read_ended(store, fence.resource_id, headers->token, &request->arena, &ended,
                         &refusal.successor) == FG_OK) {
        refusal.state = ended.state;
        refusal.ended_at_ms = ended.ended_at_ms;
    }
    fence_refuse(request, status, &refusal);
    return false;
}
