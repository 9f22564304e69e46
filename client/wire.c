/* wire.c - requests under way, over libcurl (wire.h).
 *
 * curl is told as little as possible: no timeout of its own but for connecting (each address of a
 * name gets its share of that), no redirects, no proxy, no second try. The last needs a word. Where
 * a connection that is used again dies before the first byte of an answer, curl sends the request
 * once more on a new one, also where the gateway had done it before it died. A renewal or a release
 * may be done twice; a grant or a write must not be. curl asks on_ready() each time just before it
 * sends: the second time it is refused, and the outcome is "not known". */
#include "client/wire.h"

#include "client/internal.h"
#include "gateway/version.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    QUIET_MS = 60 * 1000,  /* curl's poll ends at the latest then; it is begun again */
    KEEPALIVE_IDLE_S = 15, /* a connection that waits for ten minutes may have lost its peer */
    KEEPALIVE_EVERY_S = 5,
    LINKS_MAX = 32 /* connections of a wire whose sockets are known */
};

struct wire {
    CURLM *multi;
    int timer;            /* CLOCK_BOOTTIME */
    int links[LINKS_MAX]; /* the sockets that curl has open; 0: free */
};

/* ---- Wires ---------------------------------------------------------------------------------- */

static struct wire *wire_open(void)
{
    struct wire *wire = calloc(1, sizeof *wire);
    if (!wire)
        return NULL;
    wire->timer = boot_timer_new();
    wire->multi = wire->timer < 0 ? NULL : curl_multi_init();
    if (!wire->multi) {
        wire_close(wire);
        return NULL;
    }
    return wire;
}

void wire_close(struct wire *wire)
{
    if (!wire)
        return;
    if (wire->multi)
        curl_multi_cleanup(wire->multi);
    if (wire->timer >= 0)
        close(wire->timer);
    free(wire);
}

struct wire *wire_take(struct fence_client *client)
{
    struct wire *wire = NULL;
    pthread_mutex_lock(&client->mutex);
    if (client->idle_count > 0)
        wire = client->idle[--client->idle_count];
    pthread_mutex_unlock(&client->mutex);
    return wire ? wire : wire_open();
}

void wire_give(struct fence_client *client, struct wire *wire)
{
    pthread_mutex_lock(&client->mutex);
    if (client->idle_count < CLIENT_WIRES_MAX) {
        client->idle[client->idle_count++] = wire;
        wire = NULL;
    }
    pthread_mutex_unlock(&client->mutex);
    wire_close(wire);
}

/* ---- What curl calls ------------------------------------------------------------------------ */

static void replace_link(struct wire *wire, int from, int to)
{
    for (size_t i = 0; i < LINKS_MAX; i++) {
        if (wire->links[i] == from) {
            wire->links[i] = to;
            return;
        }
    }
}

/* No descriptor of ours is to live on in a program that the user starts. */
static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    int link = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (link > 0)
        replace_link(arg, 0, link);
    return link;
}

static int on_close(void *arg, curl_socket_t link)
{
    replace_link(arg, link, 0);
    return close(link);
}

/* The socket with that port at our end, which curl tells only afterwards; 0: not known. */
static int find_link(const struct wire *wire, int local_port)
{
    for (size_t i = 0; i < LINKS_MAX; i++) {
        union {
            struct sockaddr any;
            struct sockaddr_in v4;
            struct sockaddr_in6 v6;
        } address = {0};
        socklen_t bytes = sizeof address;
        if (wire->links[i] == 0 || getsockname(wire->links[i], &address.any, &bytes) < 0)
            continue;
        in_port_t port = address.any.sa_family == AF_INET6 ? address.v6.sin6_port
                                                           : address.v4.sin_port;
        if (ntohs(port) == local_port)
            return wire->links[i];
    }
    return 0;
}

static int on_ready(void *arg, char *ip, char *local_ip, int port, int local_port)
{
    (void)ip;
    (void)local_ip;
    (void)port;
    struct exchange *exchange = arg;
    if (exchange->sent && exchange->once)
        return CURL_PREREQFUNC_ABORT;
    exchange->sent = true;
    exchange->link = find_link(exchange->wire, local_port);
    return CURL_PREREQFUNC_OK;
}

static size_t on_body(char *bytes, size_t one, size_t count, void *arg)
{
    (void)one;
    struct exchange *exchange = arg;
    struct http_answer *answer = &exchange->answer;
    size_t needed = answer->body_bytes + count + 1;
    if (needed > exchange->body_most) {
        exchange->too_large = true;
        return 0;
    }
    if (needed > exchange->body_room) {
        size_t room = needed < 512 ? 512 : needed * 2;
        char *body = realloc(answer->body, room);
        if (!body)
            return 0;
        answer->body = body;
        exchange->body_room = room;
    }
    memcpy(answer->body + answer->body_bytes, bytes, count);
    answer->body_bytes += count;
    answer->body[answer->body_bytes] = '\0';
    return count;
}

/* ---- Beginning ------------------------------------------------------------------------------ */

static bool add_header(struct exchange *exchange, const char *line)
{
    struct curl_slist *longer = curl_slist_append(exchange->headers, line);
    if (longer)
        exchange->headers = longer;
    return longer != NULL;
}

static bool add_headers(struct exchange *exchange, const struct http_request *request)
{
    bool added = add_header(exchange, "Expect:") && add_header(exchange, "Accept:");
    if (request->body) {
        char line[320];
        const char *type = request->content_type ? request->content_type : "application/json";
        snprintf(line, sizeof line, "Content-Type: %s", type);
        added = added && add_header(exchange, line);
    }
    for (size_t i = 0; i < HTTP_HEADERS_MAX && request->headers[i]; i++)
        added = added && add_header(exchange, request->headers[i]);
    return added;
}

static void set_body(CURL *easy, const struct http_request *request)
{
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    if (request->body) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
        curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, request->body);
    }
}

static void set_options(struct exchange *exchange)
{
    CURL *easy = exchange->easy;
    curl_easy_setopt(easy, CURLOPT_URL, exchange->url);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange->headers);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "libfence/" FG_VERSION);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* a hang-up does not wait for a resolver */
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_IDLE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_EVERY_S);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, exchange->wire);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, exchange->wire);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_ready);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->curl_error);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
}

bool exchange_begin(struct wire *wire, struct exchange *exchange,
                    const struct http_request *request)
{
    *exchange =
        (struct exchange){.wire = wire,
                          .once = request->once,
                          .body_most = request->answer_most ? request->answer_most : HTTP_JSON_MAX,
                          .sent_boot_ms = boot_ms(),
                          .answer.body = calloc(1, 1)};
    exchange->timeout_boot_ms = exchange->sent_boot_ms + request->timeout_ms;
    exchange->answer.sent_boot_ms = exchange->sent_boot_ms;
    exchange->easy = curl_easy_init();
    bool begun = exchange->easy && exchange->answer.body && add_headers(exchange, request) &&
                 asprintf(&exchange->url, "%s%s", request->base, request->path) >= 0;
    if (begun) {
        set_options(exchange);
        curl_easy_setopt(exchange->easy, CURLOPT_CONNECTTIMEOUT_MS,
                         (long)(request->connect_ms ? request->connect_ms : request->timeout_ms));
        set_body(exchange->easy, request);
        begun = curl_multi_add_handle(wire->multi, exchange->easy) == CURLM_OK;
    }
    if (!begun) {
        exchange->wire = NULL;
        exchange_end(exchange);
    }
    return begun;
}

void exchange_give_up(struct exchange *exchange)
{
    exchange->given_up = exchange->sent && !exchange->done && exchange->link > 0 &&
                         shutdown(exchange->link, SHUT_WR) == 0;
}

void exchange_end(struct exchange *exchange)
{
    if (exchange->easy) {
        if (exchange->wire)
            curl_multi_remove_handle(exchange->wire->multi, exchange->easy);
        curl_easy_cleanup(exchange->easy);
    }
    curl_slist_free_all(exchange->headers);
    free(exchange->url);
    http_answer_free(&exchange->answer);
    *exchange = (struct exchange){0};
}

/* ---- What became of it ---------------------------------------------------------------------- */

/* As a number of digits; 0: there is no such header, or it is something else. */
static int64_t number_header(CURL *easy, const char *name, const char *before, const char *after)
{
    struct curl_header *header;
    if (curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
        return 0;
    const char *text = header->value;
    if (strncmp(text, before, strlen(before)) != 0)
        return 0;
    text += strlen(before);
    char *end;
    errno = 0;
    long long number = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : 0;
    return number > 0 && errno == 0 && strcmp(end, after) == 0 ? number : 0;
}

static void read_head(struct exchange *exchange)
{
    struct http_answer *answer = &exchange->answer;
    struct curl_header *type;
    long status = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    answer->status = (int)status;
    answer->version = number_header(exchange->easy, "ETag", "\"v", "\"");
    answer->token = number_header(exchange->easy, "X-Written-With-Token", "", "");
    if (curl_easy_header(exchange->easy, "Content-Type", 0, CURLH_HEADER, -1, &type) == CURLHE_OK)
        snprintf(answer->content_type, sizeof answer->content_type, "%s", type->value);
}

static enum fence_status status_of(const struct exchange *exchange, CURLcode result)
{
    switch (result) {
    case CURLE_OUT_OF_MEMORY:
    case CURLE_FAILED_INIT:
        return FENCE_SYSTEM;
    case CURLE_URL_MALFORMAT:
        return FENCE_INVALID;
    case CURLE_UNSUPPORTED_PROTOCOL: /* an answer of HTTP/0.9, which is any text */
        return exchange->sent ? FENCE_BAD_ANSWER : FENCE_INVALID;
    case CURLE_WRITE_ERROR:
        return exchange->too_large ? FENCE_BAD_ANSWER : FENCE_SYSTEM;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_BAD_CONTENT_ENCODING:
        return FENCE_BAD_ANSWER;
    default:
        return exchange->sent ? FENCE_NO_ANSWER : FENCE_UNREACHABLE;
    }
}

static void finish(struct exchange *exchange, CURLcode result)
{
    exchange->done = true;
    if (result == CURLE_OK) {
        read_head(exchange);
        exchange->status = http_judge(&exchange->answer, &exchange->error);
        return;
    }
    exchange->link = 0;
    const char *why = exchange->curl_error[0] ? exchange->curl_error : curl_easy_strerror(result);
    if (result == CURLE_ABORTED_BY_CALLBACK)
        why = "the connection was lost before the answer";
    exchange->status = fence_fail(&exchange->error, status_of(exchange, result), "%s", why);
}

void exchange_time_out(struct exchange *exchange)
{
    exchange->done = true;
    exchange->status =
        exchange->sent
            ? fence_fail(&exchange->error, FENCE_NO_ANSWER, "no answer after %lld ms",
                         (long long)(boot_ms() - exchange->sent_boot_ms))
            : fence_fail(&exchange->error, FENCE_UNREACHABLE, "no connection after %lld ms",
                         (long long)(boot_ms() - exchange->sent_boot_ms));
}

/* ---- Driving -------------------------------------------------------------------------------- */

/* Takes note of those that have ended. Returns whether there was one. */
static bool collect(const struct wire *wire)
{
    bool any = false;
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(wire->multi, &left))) {
        struct exchange *exchange = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        if (!exchange->done) {
            finish(exchange, message->data.result);
            any = true;
        }
    }
    return any;
}

bool wire_wait(struct wire *wire, int fd, int64_t until_boot_ms)
{
    struct curl_waitfd others[] = {{.fd = wire->timer, .events = CURL_WAIT_POLLIN},
                                   {.fd = fd, .events = CURL_WAIT_POLLIN}};
    boot_timer_set(wire->timer, until_boot_ms);
    for (;;) {
        int running;
        curl_multi_perform(wire->multi, &running);
        if (collect(wire) || boot_ms() >= until_boot_ms)
            return false;
        others[1].revents = 0;
        curl_multi_poll(wire->multi, others, fd > 0 ? 2 : 1, QUIET_MS, NULL);
        if (fd > 0 && others[1].revents)
            return true;
    }
}

/* ---- One request, waited for ---------------------------------------------------------------- */

enum fence_status http_call(struct fence_client *client, const struct http_request *request,
                            struct http_answer *answer, struct fence_error *error)
{
    struct exchange exchange;
    struct http_request whole = *request;
    *answer = (struct http_answer){0};
    if (!client_is_ours(client))
        return fence_fail(error, FENCE_FORKED, "%s", "the client belongs to the parent process");
    if (whole.timeout_ms == 0)
        whole.timeout_ms = client->timeout_ms;
    whole.base = client->url;
    struct wire *wire = wire_take(client);
    if (!wire || !exchange_begin(wire, &exchange, &whole)) {
        wire_close(wire);
        return fence_fail(error, FENCE_SYSTEM, "%s", "no memory or descriptors left");
    }
    bool cancelled = false;
    while (!exchange.done && !cancelled) {
        cancelled = wire_wait(wire, whole.cancel_fd, exchange.timeout_boot_ms);
        if (!exchange.done && !cancelled && boot_ms() >= exchange.timeout_boot_ms)
            exchange_time_out(&exchange);
    }
    enum fence_status status = exchange.status;
    if (!exchange.done)
        status = fence_fail(error, FENCE_CANCELLED, "%s", "the request was given up");
    else if (error)
        *error = exchange.error;
    *answer = exchange.answer;
    exchange.answer = (struct http_answer){0};
    exchange_end(&exchange);
    wire_give(client, wire);
    return status;
}
