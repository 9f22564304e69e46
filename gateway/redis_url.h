/* redis_url.h - where a Redis database is: the URL of --redis, taken apart.
 *
 *     redis://[[user]:password@]host:port[/database]
 *     unix:///path[?db=database]
 *
 * User, password and path are percent-decoded; a blank, a control character or a further @ in user
 * or password must be escaped. The port and, before an @, the password must be there. Nothing is
 * connected or resolved here. Any thread. */
#ifndef FG_REDIS_URL_H
#define FG_REDIS_URL_H

#include "gateway/address.h"

enum {
    REDIS_URL_PATH_BYTES = 108,   /* what a unix socket's address has room for, with the NUL */
    REDIS_URL_SECRET_BYTES = 256, /* user or password, with its NUL */
};

/* All texts end with a NUL; what the URL does not name is empty. */
struct redis_url {
    char host[ADDRESS_HOST_BYTES];   /* name or address without brackets; empty: a unix socket */
    int port;                        /* 1 ... 65535; 0: a unix socket */
    char path[REDIS_URL_PATH_BYTES]; /* of the unix socket, absolute; empty: TCP */
    char user[REDIS_URL_SECRET_BYTES];
    char password[REDIS_URL_SECRET_BYTES];
    int database; /* 0 ... 2^31-1; 0 where none is named */
};

/* Takes `url` apart into `out`. NULL, or a phrase (static, never part of `url`: a log may show it)
 * that says what is wrong; `out` is then unspecified. */
const char *redis_url_parse(const char *url, struct redis_url *out);

#endif
