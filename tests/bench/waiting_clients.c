/* waiting_clients.c - clients that wait for leases, thousands in one process (waiting.py).
 *
 *     waiting_clients hand-over PORT RESOURCE CLIENTS SECONDS
 *     waiting_clients park|park-used|idle PORT RESOURCES CLIENTS
 *
 * hand-over: all queue for one resource, which somebody else holds. Prints "queued". Whoever gets
 * it releases it at once, on the same connection, and with the answer to that queues again. After
 * SECONDS since the first grant the next one keeps it; then a line for each hand-over
 *
 *     <us from sending the DELETE> <us from the arrival of its answer>
 *
 * to the arrival of the next one's 201, and "done <hand-overs> <fewest> <most>": what the
 * unluckiest and the luckiest client got. The second number is 0 where the 201 was there first.
 *
 * park: CLIENTS wait for RESOURCES ("bench:000000" ...) in turn, which somebody else holds;
 * "parked" when all have asked. park-used: each has had an answer on its connection before. idle:
 * that answer, and no more. An answer to one that is parked is an error.
 *
 * One thread and epoll, so that what is measured is the gateway; times are taken when a read has
 * returned. Runs until it is ended; any surprise: one line and exit 1. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum {
    ANSWER_BYTES = 4096,
    REQUEST_BYTES = 512,
    LEASE_ID_BYTES = 128,
    EVENTS = 256,
    WAIT_MS = 600000, /* longer than anything here lasts */
    PATIENCE_MS = 30000,
    HAND_OVERS_MAX = 1000000
};

struct client {
    int fd;
    size_t used;
    char answer[ANSWER_BYTES + 1];
    struct hand_over *released; /* its own; its DELETE is under way */
    long grants;
};

struct hand_over {
    int64_t sent_ns;     /* the DELETE */
    int64_t answered_ns; /* 0: not yet */
    int64_t granted_ns;  /* likewise; the next one's 201 */
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("waiting_clients: ", stdout);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (!memory)
        die("out of memory");
    return memory;
}

static long read_number(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (*end || number < 1)
        die("%s is not a number", text);
    return number;
}

/* ---- HTTP ----------------------------------------------------------------------------------- */

static void client_open(struct client *client, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd < 0 || connect(client->fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect: %s", strerror(errno));
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

/* Requests are small and one at a time, so they fit into the socket's buffer. */
static void client_send(struct client *client, const char *method, const char *path,
                        const char *body)
{
    char text[REQUEST_BYTES];
    int bytes = snprintf(text, sizeof text,
                         "%s %s HTTP/1.1\r\nHost: bench\r\nContent-Length: %zu\r\n\r\n%s", method,
                         path, strlen(body), body);
    client->used = 0;
    if (bytes >= REQUEST_BYTES || send(client->fd, text, (size_t)bytes, MSG_NOSIGNAL) != bytes)
        die("cannot send %s %s: %s", method, path, strerror(errno));
}

static void client_ask(struct client *client, const char *resource, int wait_ms)
{
    char body[REQUEST_BYTES / 2];
    snprintf(body, sizeof body, "{\"resource\":\"%s\",\"wait_ms\":%d}", resource, wait_ms);
    client_send(client, "POST", "/leases", body);
}

/* The status of an answer that is there as a whole; 0: more is to come. */
static int client_status(const struct client *client)
{
    const char *end = strstr(client->answer, "\r\n\r\n");
    const char *length = strcasestr(client->answer, "\r\nContent-Length:");
    if (!end)
        return 0;
    if (!length || length > end)
        die("an answer without length: %s", client->answer);
    size_t head = (size_t)(end + 4 - client->answer);
    if (client->used < head + strtoul(length + strlen("\r\nContent-Length:"), NULL, 10))
        return 0;
    return atoi(client->answer + strlen("HTTP/1.1 "));
}

static int client_read(struct client *client)
{
    ssize_t bytes = recv(client->fd, client->answer + client->used, ANSWER_BYTES - client->used, 0);
    if (bytes <= 0)
        die("a connection was closed: %s", bytes < 0 ? strerror(errno) : client->answer);
    client->used += (size_t)bytes;
    client->answer[client->used] = '\0';
    return client_status(client);
}

static void client_expect(const struct client *client, int status, int wanted)
{
    if (status != wanted)
        die("%d was expected: %s", wanted, client->answer);
}

static struct client *clients_open(int epoll_fd, int port, long count)
{
    struct client *clients = allocate((size_t)count, sizeof *clients);
    for (long i = 0; i < count; i++) {
        client_open(&clients[i], port);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &clients[i]};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, clients[i].fd, &event) != 0)
            die("epoll: %s", strerror(errno));
    }
    return clients;
}

/* ---- hand-over ------------------------------------------------------------------------------ */

static struct race {
    const char *resource;
    int64_t end_ns; /* 0: nobody has got it yet */
    struct hand_over *hand_overs;
    size_t count;
    bool over;
} race;

/* `Location: /leases/<id>` names what is to be released. */
static void release(struct client *client)
{
    char path[LEASE_ID_BYTES] = "";
    const char *location = strcasestr(client->answer, "\r\nLocation: ");
    if (!location || sscanf(location, "%*s %127s", path) != 1)
        die("a grant without Location: %s", client->answer);
    client->released = &race.hand_overs[race.count++];
    client->released->sent_ns = now_ns();
    client_send(client, "DELETE", path, "");
}

static void on_granted(struct client *client, int64_t read_ns, int64_t length_ns)
{
    client->grants++;
    if (race.end_ns == 0)
        race.end_ns = read_ns + length_ns;
    if (race.count > 0)
        race.hand_overs[race.count - 1].granted_ns = read_ns;
    race.over = read_ns >= race.end_ns || race.count == HAND_OVERS_MAX;
    if (!race.over)
        release(client);
}

static void on_answer(struct client *client, int64_t length_ns)
{
    int status = client_read(client);
    int64_t read_ns = now_ns();
    if (status == 0)
        return;
    if (client->released) {
        client_expect(client, status, 200);
        client->released->answered_ns = read_ns;
        client->released = NULL;
        client_ask(client, race.resource, WAIT_MS);
    } else {
        client_expect(client, status, 201);
        on_granted(client, read_ns, length_ns);
    }
}

static void print_hand_overs(const struct client *clients, long count)
{
    long fewest = clients[0].grants, most = clients[0].grants;
    for (size_t i = 0; i < race.count; i++) {
        const struct hand_over *each = &race.hand_overs[i];
        int64_t answered_ns = each->granted_ns - each->answered_ns;
        if (each->answered_ns == 0 || answered_ns < 0)
            answered_ns = 0;
        printf("%" PRId64 " %" PRId64 "\n", (each->granted_ns - each->sent_ns) / 1000,
               answered_ns / 1000);
    }
    for (long i = 1; i < count; i++) {
        fewest = clients[i].grants < fewest ? clients[i].grants : fewest;
        most = clients[i].grants > most ? clients[i].grants : most;
    }
    printf("done %zu %ld %ld\n", race.count, fewest, most);
}

static void hand_over(int port, const char *resource, long count, long seconds)
{
    struct epoll_event events[EVENTS];
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct client *clients = clients_open(epoll_fd, port, count);
    race.resource = resource;
    race.hand_overs = allocate(HAND_OVERS_MAX, sizeof *race.hand_overs);
    for (long i = 0; i < count; i++)
        client_ask(&clients[i], resource, WAIT_MS);
    puts("queued");
    while (!race.over) {
        int ready = epoll_wait(epoll_fd, events, EVENTS, PATIENCE_MS);
        if (ready <= 0)
            die("nobody was answered for %d ms", PATIENCE_MS);
        for (int i = 0; i < ready && !race.over; i++)
            on_answer(events[i].data.ptr, seconds * 1000000000);
    }
    print_hand_overs(clients, count);
    pause();
}

/* ---- park ----------------------------------------------------------------------------------- */

static const char *resource_name(long number, char out[32])
{
    snprintf(out, 32, "bench:%06ld", number);
    return out;
}

static void park(int port, long resources, long count, bool used, bool ask)
{
    struct epoll_event event;
    char name[32];
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct client *clients = clients_open(epoll_fd, port, count);
    for (long i = 0; used && i < count; i++) {
        int status;
        client_ask(&clients[i], resource_name(i % resources, name), 0);
        while ((status = client_read(&clients[i])) == 0)
            continue;
        client_expect(&clients[i], status, 409);
    }
    for (long i = 0; ask && i < count; i++)
        client_ask(&clients[i], resource_name(i % resources, name), WAIT_MS);
    puts("parked");
    epoll_wait(epoll_fd, &event, 1, -1);
    client_read(event.data.ptr);
    die("one that waits was answered: %s", ((struct client *)event.data.ptr)->answer);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *work = argc > 1 ? argv[1] : "";
    if (argc == 6 && strcmp(work, "hand-over") == 0)
        hand_over((int)read_number(argv[2]), argv[3], read_number(argv[4]), read_number(argv[5]));
    else if (argc == 5)
        park((int)read_number(argv[2]), read_number(argv[3]), read_number(argv[4]),
             strcmp(work, "park") != 0, strcmp(work, "idle") != 0);
    else
        die("bad arguments");
}
