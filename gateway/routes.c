/* routes.c - every route: method, path, handler, what it needs, query parameters it takes.
 *
 * {r} is a resource and {key} a record's key (names, percent-decoded once); {id} a lease id; {code}
 * an error code. HEAD is served wherever GET is. */
#include "gateway/api.h"
#include "gateway/router.h"

enum {
    WRITE = ROUTE_TOKEN | ROUTE_LEASE_ID | ROUTE_IF_MATCH | ROUTE_IF_NONE_MATCH | ROUTE_UNFENCED,
};

/* clang-format off */
const struct route routes[] = {
    {"POST",   "/leases",                api_lease_acquire,    ROUTE_PLAIN,         ""},
    {"GET",    "/leases",                api_lease_list,       ROUTE_PLAIN,         "resource owner limit cursor"},
    {"GET",    "/leases/{id}",           api_lease_get,        ROUTE_PLAIN,         ""},
    {"DELETE", "/leases/{id}",           api_lease_release,    ROUTE_PLAIN,         ""},
    {"POST",   "/leases/{id}/renew",     api_lease_renew,      ROUTE_PLAIN,         ""},

    {"GET",    "/resources",             api_resource_list,    ROUTE_PLAIN,         "limit cursor"},
    {"GET",    "/resources/{r}",         api_resource_get,     ROUTE_PLAIN,         ""},
    {"PUT",    "/resources/{r}",         api_resource_put,     ROUTE_PLAIN,         ""},
    {"POST",   "/resources/{r}/revoke",  api_resource_revoke,  ROUTE_PLAIN,         ""},
    {"POST",   "/resources/{r}/check",   api_resource_check,   ROUTE_TOKEN,         ""},
    {"GET",    "/resources/{r}/history", api_resource_history, ROUTE_PLAIN,         "kind after limit cursor"},

    {"GET",    "/store/{r}",             api_record_list,      ROUTE_PLAIN,         "prefix limit cursor"},
    {"GET",    "/store/{r}/{key}",       api_record_get,       ROUTE_IF_NONE_MATCH, ""},
    {"PUT",    "/store/{r}/{key}",       api_record_put,       WRITE,               ""},
    {"DELETE", "/store/{r}/{key}",       api_record_delete,    WRITE,               ""},

    {"GET",    "/livez",                 api_livez,            ROUTE_PLAIN,         ""},
    {"GET",    "/readyz",                api_readyz,           ROUTE_PLAIN,         ""},
    {"GET",    "/version",               api_version,          ROUTE_PLAIN,         ""},
    {"GET",    "/openapi.yaml",          api_openapi,          ROUTE_PLAIN,         ""},
    {"GET",    "/problems/{code}",       api_problem,          ROUTE_PLAIN,         ""},
    {0},
};
/* clang-format on */

const char *const unbuilt_routes[] = {
    "POST /store/{r}",
    NULL,
};
