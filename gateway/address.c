/* address.c - taking host and port apart (address.h). */
#include "gateway/address.h"

#include "gateway/digits.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdint.h>
#include <string.h>

/* What is wrong with a host that stands outside brackets; NULL: nothing. Digits and dots alone must
 * be an IPv4 address, so that no resolver makes something surprising of "127.1". */
static const char *check_host(const char *host)
{
    struct in_addr ignored;
    if (strspn(host, "0123456789.") == strlen(host))
        return inet_pton(AF_INET, host, &ignored) == 1 ? NULL : "the host is not an IPv4 address";
    for (const char *at = host; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr(".-_", *at))
            return strchr(host, ':') ? "an IPv6 address needs [brackets]" : "the host is malformed";
    return NULL;
}

const char *address_split(const char *text, char host[ADDRESS_HOST_BYTES], int *port)
{
    const char *colon = strrchr(text, ':');
    int64_t number;
    if (!colon || strchr(colon, ']'))
        return "the port is missing";
    if (!digits_read(colon + 1, strlen(colon + 1), 65535, &number))
        return "the port is not a number from 0 to 65535";
    *port = (int)number;
    size_t length = (size_t)(colon - text);
    bool bracketed = length >= 2 && text[0] == '[' && text[length - 1] == ']';
    if (bracketed) {
        text++;
        length -= 2;
    }
    if (length >= ADDRESS_HOST_BYTES)
        return "the host is too long";
    memcpy(host, text, length);
    host[length] = '\0';
    struct in6_addr ignored;
    if (bracketed)
        return inet_pton(AF_INET6, host, &ignored) == 1 ? NULL : "the host is not an IPv6 address";
    return length == 0 ? NULL : check_host(host);
}

bool address_is_loopback(const char *text)
{
    char host[ADDRESS_HOST_BYTES];
    int port;
    if (address_split(text, host, &port))
        return false;
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    struct in6_addr v6;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return memcmp(&v6, &in6addr_loopback, sizeof v6) == 0;
    return strcasecmp(host, "localhost") == 0;
}
