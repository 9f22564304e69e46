/* listener.c - resolving, binding, listening (listener.h). */
#include "gateway/listener.h"

#include "gateway/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024, PORT_BYTES = 16 };

static void write_url(int fd, char *url, size_t url_bytes)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    char host[ADDRESS_HOST_BYTES], port[PORT_BYTES];
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
    char host[ADDRESS_HOST_BYTES], port[PORT_BYTES];
    int number;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *addresses;
    const char *fault = address_split(listen, host, &number);
    if (fault) {
        snprintf(why, why_bytes, "cannot understand the address %s: %s", listen, fault);
        return -1;
    }
    snprintf(port, sizeof port, "%d", number);
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
