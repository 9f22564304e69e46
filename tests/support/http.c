/* http.c - one socket, a buffer for what has been read and not been used. */
#include "tests/support/http.h"

#include "tests/support/cleanup.h"
#include "tests/support/exchanges.h"
#include "tests/support/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { ANSWER_MS = 30000, READ_BYTES = 65536, MAX_HEADERS = 64 };

struct http {
    int port;
    int fd; /* -1: closed */
    bool recording;
    char *read; /* `have` bytes that came and belong to no answer yet */
    size_t have;
    size_t room;
};

static void http_free(void *arg)
{
    struct http *http = arg;
    http_close(http);
    free(http->read);
    free(http);
}

struct http *http_new(int port)
{
    struct http *http = calloc(1, sizeof *http);
    if (!http)
        abort();
    *http = (struct http){.port = port, .fd = -1, .recording = true};
    return cleanup_add(http_free, http);
}

void http_close(struct http *http)
{
    if (http->fd >= 0)
        close(http->fd);
    http->fd = -1;
    http->have = 0;
}

void http_reset(struct http *http)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    if (http->fd >= 0)
        setsockopt(http->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    http_close(http);
}

void http_record(struct http *http, bool on)
{
    http->recording = on;
}

/* ---- Sending ----------------------------------------------------------------------------------
 */

static void open_connection(struct http *http)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)http->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    http->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(http->fd >= 0);
    if (connect(http->fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail_msg("connect to port %d: %s", http->port, strerror(errno));
    setsockopt(http->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

/* Opens the connection, again where the server has closed it since the last answer. */
static void be_connected(struct http *http)
{
    char byte;
    if (http->fd >= 0 && http->have == 0) {
        ssize_t got = recv(http->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            http_close(http);
    }
    if (http->fd < 0)
        open_connection(http);
}

void http_send_bytes(struct http *http, const void *bytes, size_t count)
{
    be_connected(http);
    for (size_t sent = 0; sent < count;) {
        ssize_t more = send(http->fd, (const char *)bytes + sent, count - sent, MSG_NOSIGNAL);
        if (more < 0 && errno != EINTR)
            return; /* refused before all was sent: the answer, if any, says why */
        sent += more > 0 ? (size_t)more : 0;
    }
}

void http_send(struct http *http, const char *method, const char *target,
               const char *const *headers, const void *body, size_t body_bytes)
{
    char *head;
    size_t head_bytes;
    FILE *out = open_memstream(&head, &head_bytes);
    assert_non_null(out);
    fprintf(out, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n", method, target, http->port);
    for (const char *const *line = headers; line && *line; line++)
        fprintf(out, "%s\r\n", *line);
    if (body || strcmp(method, "PUT") == 0 || strcmp(method, "POST") == 0)
        fprintf(out, "Content-Length: %zu\r\n", body_bytes);
    fputs("\r\n", out);
    if (body && body_bytes)
        fwrite(body, 1, body_bytes, out);
    fclose(out);
    http_send_bytes(http, head, head_bytes);
    free(head);
}

/* ---- Receiving --------------------------------------------------------------------------------
 */

/* Reads more into the buffer. False at the end of the connection, or after ANSWER_MS. */
static bool read_more(struct http *http)
{
    struct pollfd ready = {.fd = http->fd, .events = POLLIN};
    if (poll(&ready, 1, slow_ms(ANSWER_MS)) <= 0)
        return false;
    if (http->room - http->have < READ_BYTES) {
        http->room = http->room * 2 + READ_BYTES;
        http->read = realloc(http->read, http->room);
        if (!http->read)
            abort();
    }
    ssize_t got = recv(http->fd, http->read + http->have, http->room - http->have, 0);
    if (got > 0)
        http->have += (size_t)got;
    return got > 0;
}

/* Takes `count` bytes off the front of the buffer. */
static void use_up(struct http *http, size_t count)
{
    http->have -= count;
    memmove(http->read, http->read + count, http->have);
}

/* One line without its CRLF; NULL: the connection ended first. */
static char *read_line(struct http *http)
{
    char *end = NULL;
    while (http->have == 0 || !(end = memmem(http->read, http->have, "\r\n", 2)))
        if (!read_more(http))
            return NULL;
    size_t bytes = (size_t)(end - http->read);
    char *line = test_printf("%.*s", (int)bytes, http->read);
    use_up(http, bytes + 2);
    return line;
}

static void read_headers(struct http *http, struct response *response)
{
    response->headers = test_alloc(MAX_HEADERS * sizeof *response->headers);
    response->header_count = 0;
    for (;;) {
        char *line = read_line(http);
        if (!line)
            fail_msg("%s: the connection ended inside the headers", response->asked);
        if (!*line)
            return;
        char *colon = strchr(line, ':');
        if (!colon || response->header_count == MAX_HEADERS)
            fail_msg("%s: a bad header line: %s", response->asked, line);
        *colon = '\0';
        response->headers[response->header_count++] =
            (struct http_header){.name = line, .value = colon + 1 + strspn(colon + 1, " \t")};
    }
}

static void append(struct response *response, const char *bytes, size_t count)
{
    char *body = test_alloc(response->body_bytes + count + 1);
    if (response->body_bytes)
        memcpy(body, response->body, response->body_bytes);
    memcpy(body + response->body_bytes, bytes, count);
    response->body = body;
    response->body_bytes += count;
}

static void read_exactly(struct http *http, struct response *response, size_t count)
{
    while (http->have < count)
        if (!read_more(http))
            fail_msg("%s: the connection ended inside the body", response->asked);
    append(response, http->read, count);
    use_up(http, count);
}

static void read_chunks(struct http *http, struct response *response)
{
    for (;;) {
        const char *line = read_line(http);
        if (!line)
            fail_msg("%s: the connection ended inside a chunk", response->asked);
        size_t count = strtoul(line, NULL, 16);
        if (count)
            read_exactly(http, response, count);
        read_line(http); /* the chunk's end; after the last one, the end of no trailers */
        if (!count)
            return;
    }
}

static void read_body(struct http *http, struct response *response, const char *method)
{
    response->body = "";
    const char *length = response_header(response, "Content-Length");
    const char *encoding = response_header(response, "Transfer-Encoding");
    if (strcmp(method, "HEAD") == 0 || response->status == 204 || response->status == 304)
        return;
    if (encoding && strcasecmp(encoding, "chunked") == 0) {
        read_chunks(http, response);
    } else if (length) {
        read_exactly(http, response, strtoul(length, NULL, 10));
    } else {
        while (read_more(http))
            ;
        append(response, http->read, http->have);
        http_close(http);
    }
}

struct response *http_receive(struct http *http, const char *method)
{
    struct response *response = test_alloc(sizeof *response);
    response->asked = method;
    do {
        const char *line = read_line(http);
        if (!line) {
            http_close(http);
            return NULL;
        }
        if (sscanf(line, "HTTP/1.%*1d %3d", &response->status) != 1)
            fail_msg("not an HTTP answer: %s", line);
        read_headers(http, response);
    } while (response->status < 200);
    read_body(http, response, method);

    const char *connection = response_header(response, "Connection");
    if (connection && strcasecmp(connection, "close") == 0)
        http_close(http);
    return response;
}

struct response *http_call(struct http *http, const char *method, const char *target,
                           const char *const *headers, const void *body, size_t body_bytes)
{
    http_send(http, method, target, headers, body, body_bytes);
    struct response *response = http_receive(http, method);
    if (!response)
        fail_msg("%s %s: the connection ended without an answer", method, target);
    response->asked = test_printf("%s %s", method, target);
    if (http->recording)
        exchange_record(response, method, target, headers, body, body_bytes);
    return response;
}

bool http_closed_by_server(struct http *http, int timeout_ms)
{
    long long give_up_ms = now_ms() + timeout_ms;
    char bytes[4096];
    for (;;) {
        long long left_ms = give_up_ms - now_ms();
        struct pollfd ready = {.fd = http->fd, .events = POLLIN};
        if (left_ms <= 0 || poll(&ready, 1, (int)left_ms) <= 0)
            return false;
        if (recv(http->fd, bytes, sizeof bytes, 0) <= 0)
            break;
    }
    http_close(http);
    return true;
}

/* ---- Answers ----------------------------------------------------------------------------------
 */

const char *response_header(const struct response *response, const char *name)
{
    for (size_t i = 0; i < response->header_count; i++)
        if (strcasecmp(response->headers[i].name, name) == 0)
            return response->headers[i].value;
    return NULL;
}

size_t response_header_count(const struct response *response, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < response->header_count; i++)
        count += strcasecmp(response->headers[i].name, name) == 0;
    return count;
}

static void decref(void *json)
{
    json_decref(json);
}

json_t *response_json(const struct response *response)
{
    json_error_t error;
    json_t *json = json_loadb(response->body, response->body_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json)
        fail_msg("%s: not JSON: %s: %s", response->asked, error.text, response->body);
    return cleanup_add(decref, json);
}
