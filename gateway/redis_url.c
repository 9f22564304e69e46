/* redis_url.c - the two forms of a Redis URL (redis_url.h).
 *
 * Escapes are decoded last: an @, : or / that came out of one never parts anything. */
#include "gateway/redis_url.h"

#include "gateway/digits.h"
#include "gateway/names.h"

#include <stdint.h>
#include <string.h>
#include <sys/un.h>

_Static_assert(REDIS_URL_PATH_BYTES == sizeof(((struct sockaddr_un *)0)->sun_path),
               "a path that was taken must fit into an address");

static const char too_long[] = "user or password is longer than 255 bytes";
static const char path_too_long[] =
    "the path is longer than 107 bytes, which no unix socket can have";
static const char bad_escape[] =
    "a % of user or password is not followed by two hex digits (a % itself is %25)";
static const char bad_path_escape[] =
    "a % of the path is not followed by two hex digits (a % itself is %25)";

/* Decodes into `to`; what is wrong, NULL: nothing. An escape is three bytes for one, so the text is
 * decoded aside before it is measured. */
static const char *decode(const char *from, size_t from_bytes, char *to, size_t to_bytes,
                          const char *if_long, const char *if_malformed)
{
    char aside[3 * REDIS_URL_SECRET_BYTES];
    if (from_bytes >= sizeof aside)
        return if_long;
    if (!percent_decode(from, from_bytes, aside))
        return if_malformed;
    size_t bytes = strlen(aside);
    if (bytes >= to_bytes)
        return if_long;
    memcpy(to, aside, bytes + 1);
    return NULL;
}

static bool read_database(const char *text, struct redis_url *out)
{
    int64_t number;
    if (!digits_read(text, strlen(text), INT32_MAX, &number))
        return false;
    out->database = (int)number;
    return true;
}

static const char *parse_credentials(const char *text, size_t length, struct redis_url *out)
{
    const char *colon = memchr(text, ':', length);
    if (!colon || colon + 1 == text + length)
        return "what stands before the @ is not user:password";
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte <= ' ' || byte == 0x7f || byte == '@')
            return "a character of user or password must be percent-encoded";
    }
    size_t user_bytes = (size_t)(colon - text);
    const char *fault = decode(text, user_bytes, out->user, sizeof out->user, too_long, bad_escape);
    return fault ? fault
                 : decode(colon + 1, length - user_bytes - 1, out->password, sizeof out->password,
                          too_long, bad_escape);
}

static const char *parse_tcp(const char *rest, struct redis_url *out)
{
    size_t length = strcspn(rest, "/?#");
    const char *at_sign = memrchr(rest, '@', length);
    const char *address = at_sign ? at_sign + 1 : rest;
    const char *fault = at_sign ? parse_credentials(rest, (size_t)(at_sign - rest), out) : NULL;
    if (fault)
        return fault;
    char copy[ADDRESS_HOST_BYTES + sizeof "[]:65535"];
    size_t address_bytes = length - (size_t)(address - rest);
    if (address_bytes >= sizeof copy)
        return "the host is too long";
    memcpy(copy, address, address_bytes);
    copy[address_bytes] = '\0';
    fault = address_split(copy, out->host, &out->port);
    if (fault)
        return fault;
    if (out->host[0] == '\0')
        return "the host is missing";
    if (out->port == 0)
        return "the port is 0";
    const char *tail = rest + length;
    if (*tail != '\0' && (*tail != '/' || !read_database(tail + 1, out)))
        return "what follows the port is not /N, the number of a database";
    return NULL;
}

static const char *parse_unix(const char *path, struct redis_url *out)
{
    size_t length = strcspn(path, "?");
    if (path[0] != '/' || length < 2)
        return "the path is not absolute";
    const char *fault =
        decode(path, length, out->path, sizeof out->path, path_too_long, bad_path_escape);
    if (fault)
        return fault;
    const char *query = path + length;
    if (*query != '\0' && (strncmp(query, "?db=", 4) != 0 || !read_database(query + 4, out)))
        return "what follows the path is not ?db=N";
    return NULL;
}

const char *redis_url_parse(const char *url, struct redis_url *out)
{
    static const char tcp[] = "redis://", local[] = "unix://", tls[] = "rediss://";
    *out = (struct redis_url){0};
    if (strncmp(url, tcp, sizeof tcp - 1) == 0)
        return parse_tcp(url + sizeof tcp - 1, out);
    if (strncmp(url, local, sizeof local - 1) == 0)
        return parse_unix(url + sizeof local - 1, out);
    return strncmp(url, tls, sizeof tls - 1) == 0 ? "TLS is not supported"
                                                  : "it begins with neither scheme";
}
