/* system_api.c - whether we live and are ready, who we are, and our own description. */
#include "gateway/api.h"

#include "gateway/loop.h"
#include "gateway/redis_link.h"
#include "gateway/reply.h"
#include "gateway/version.h"

#include <string.h>

extern const char embedded_openapi_yaml[];

void api_livez(struct request *request)
{
    reply_json(request, 200, json_pack("{s:s}", "status", "ok"));
}

/* Ready means: writes are taken. Without Redis that is so, degraded: no leases are granted. */
void api_readyz(struct request *request)
{
    struct loop *loop = request->loop;
    enum redis_link_state redis = redis_link_state(loop->redis);
    if (loop->draining)
        reply_failure(request, FG_DRAINING);
    else if (store_health(loop->store) != FG_OK)
        reply_failure(request, FG_STORE_UNAVAILABLE);
    else if (redis == REDIS_LINK_MISMATCH)
        reply_failure(request, FG_STORE_MISMATCH);
    else
        reply_json(request, 200,
                   json_pack("{s:s, s:s, s:s}", "status",
                             redis == REDIS_LINK_READY ? "ok" : "degraded", "redis",
                             redis == REDIS_LINK_READY ? "ok" : "unreachable", "store", "ok"));
}

void api_version(struct request *request)
{
    reply_json(request, 200,
               json_pack("{s:s, s:s, s:s}", "name", "fencegate", "version", FG_VERSION, "store",
                         store_uuid(request->loop->store)));
}

void api_openapi(struct request *request)
{
    reply_bytes(request, 200, "application/yaml", embedded_openapi_yaml,
                strlen(embedded_openapi_yaml));
}

void api_problem(struct request *request)
{
    enum fg_status status = fg_error_find(request->parameters[0]);
    if (status == FG_OK) {
        reply_problem(request, FG_NOT_FOUND, NULL, "There is no problem of this name.");
        return;
    }
    const struct fg_error *error = fg_error(status);
    reply_json(request, 200,
               json_pack("{s:s, s:s, s:i, s:s, s:b, s:s}", "type", error->type, "title",
                         error->title, "status", error->http, "code", error->code, "retryable",
                         error->retryable, "detail", error->meaning));
}
