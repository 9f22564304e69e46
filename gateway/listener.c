/* listener.c - resolving, binding, listening (listener.h). */
#include "gateway/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024, HOST_BYTES = 256, PORT_BYTES = 16 };

/* "[::1]:80" and "127.0.0.1:80" apart; an empty host means all addresses. */
static int split(const char *listen, char host[HOST_BYTES], char port[PORT_BYTES])
{
    const char *colon = strrchr(listen, ':');
    if (!colon || strlen(colon + 1) >= PORT_BYTES)
        return -1;
    size_t bytes = (size_t)(colon - listen);
    if (bytes >= 2 && listen[0] == '[' && colon[-1] == ']') {
        listen++;
        bytes -= 2;
    }
    if (bytes >= HOST_BYTES)
        return -1;
    memcpy(host, listen, bytes);
    host[bytes] = '\0';
    snprintf(port, PORT_BYTES, "%s", colon + 1);
    return 0;
}

static void write_url(int fd, char *url, size_t url_bytes)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    char host[HOST_BYTES], port[PORT_BYTES];
    getsockname(fd, (struct sockaddr *)&address, &bytes);
    getnameinfo((struct sockaddr *)&address, bytes, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    const char *format = address.ss_family == AF_INET6 ? "http://[%s]:%s" : "http://%s:%s";
    snprintf(url, url_bytes, format, host, port);
}

static int try_address(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

int listener_open(const char *listen, char *url, size_t url_bytes, char *why, size_t why_bytes)
{
    char host[HOST_BYTES], port[PORT_BYTES];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *addresses;
    if (split(listen, host, port) != 0) {
        snprintf(why, why_bytes, "cannot understand the address %s", listen);
        return -1;
    }
    int rc = getaddrinfo(host[0] ? host : NULL, port, &hints, &addresses);
    if (rc != 0) {
        snprintf(why, why_bytes, "cannot resolve %s: %s", listen, gai_strerror(rc));
        return -1;
    }
    int fd = -1;
    for (struct addrinfo *address = addresses; address && fd < 0; address = address->ai_next)
        fd = try_address(address);
    if (fd < 0)
        snprintf(why, why_bytes, "cannot listen on %s: %s", listen, strerror(errno));
    else
        write_url(fd, url, url_bytes);
    freeaddrinfo(addresses);
    return fd;
}
