/* operators.c - revoking leases and configuring resources (operators.h): the store's op, then Redis
 * and whoever waits. */
#include "gateway/operators.h"

#include "gateway/leases.h"
#include "gateway/log.h"

static void remove_ended(struct leases *leases, const char *resource,
                         const struct ended_leases *ended)
{
    if (ended->count > 0)
        leases_remove(leases, resource, ended->pairs, ended->count);
}

static void on_revoked(struct store_op *op)
{
    struct operator_revoke *revoke = op->arg;
    revoke->status = op->status;
    if (op->status == FG_OK) {
        log_info("revoked", LOG_STR("resource", revoke->resource),
                 LOG_INT("leases", (int64_t)op->revoke.ended.count),
                 LOG_INT("highest_fencing_token", op->revoke.mark),
                 LOG_STR("reason", revoke->reason));
        remove_ended(revoke->leases, revoke->resource, &op->revoke.ended);
    }
    revoke->done(revoke);
}

void operator_revoke(struct store *store, struct leases *leases, struct operator_revoke *revoke)
{
    revoke->leases = leases;
    revoke->op = (struct store_op){
        .kind = STORE_REVOKE,
        .revoke = {.resource = revoke->resource, .reason = revoke->reason, .token = revoke->token},
        .done = on_revoked,
        .arg = revoke,
    };
    leases_revoking(leases, revoke->resource);
    store_submit(store, &revoke->op);
}

static void on_configured(struct store_op *op)
{
    struct operator_configure *configure = op->arg;
    configure->status = op->status;
    if (op->status == FG_OK && op->configure.changed) {
        log_info("configured", LOG_STR("resource", configure->resource),
                 LOG_INT("limit", op->configure.fixed_limit), /* 0: none yet */
                 LOG_STR("fenced", op->configure.fenced ? "yes" : "no"),
                 LOG_INT("revoked_leases", (int64_t)op->configure.ended.count));
        remove_ended(configure->leases, configure->resource, &op->configure.ended);
        leases_changed(configure->leases, configure->resource);
    }
    configure->done(configure);
}

void operator_configure(struct store *store, struct leases *leases,
                        struct operator_configure *configure)
{
    configure->leases = leases;
    configure->op = (struct store_op){
        .kind = STORE_CONFIGURE,
        .configure = {.resource = configure->resource,
                      .limit = configure->limit,
                      .fence = configure->fence},
        .done = on_configured,
        .arg = configure,
    };
    if (configure->fence == FENCE_OFF)
        leases_revoking(leases, configure->resource);
    store_submit(store, &configure->op);
}
