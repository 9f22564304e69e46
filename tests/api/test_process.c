/* test_process.c - starting, stopping, crashing: options, locks, drain, restarts, the private
 * Redis. */
#include "tests/support/api.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Options ----------------------------------------------------------------------------------
 */

/* Exactly one line on stderr. */
static void expect_one_line(const struct process *process)
{
    const char *errors = process_errors(process);
    const char *end = strchr(errors, '\n');
    if (!end || end[1] != '\0')
        fail_msg("not one line: %s", errors);
}

static void help_and_version_are_printed(void **state)
{
    (void)state;
    struct process *process;
    assert_int_equal(gateway_run(LIST("--help"), NULL, &process), 0);
    assert_non_null(strstr(process_output(process), "--data-dir"));
    assert_int_equal(gateway_run(LIST("--version"), NULL, &process), 0);
    assert_non_null(strstr(process_output(process), "fencegate "));
}

static void bad_usage_is_64_and_one_line(void **state)
{
    (void)state;
    const char *const *const cases[] = {
        LIST("--nonsense"),
        LIST("argument"),
        LIST("--max-body"),
        LIST("--max-body", "12x"),
        LIST("--redis-timeout-ms", "0"),
        LIST("--redis", "http://localhost"),
        LIST("--log-format", "xml"),
        LIST("--listen", "127.0.0.1"),
        LIST("--listen", "127.0.0.1:65536"),
        LIST("--listen", "0.0.0.0:0"),
        LIST("--api-keys", "file"), /* not built yet: never silently ignored */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct process *process;
        int status = gateway_run(cases[i], NULL, &process);
        if (status != 64)
            fail_msg("%s: %d %s", cases[i][0], status, process_errors(process));
        expect_one_line(process);
        assert_non_null(strstr(process_errors(process), cases[i][0]));
    }
    struct process *process;
    assert_int_equal(
        gateway_run(LIST("--listen", "127.0.0.1:0"), LIST("FENCEGATE_MAX_BODY=x"), &process), 64);
    assert_non_null(strstr(process_errors(process), "FENCEGATE_MAX_BODY"));
}

static void options_come_from_the_environment_too(void **state)
{
    (void)state;
    struct gateway *g = gateway_start_in(NULL, NULL, NULL, LIST("FENCEGATE_REQUIRE_LEASE_ID=1"));
    struct lease a = acquire(g, "r", LONG_TTL_MS);
    expect_problem(put(g, "r", "k", a.token, "x"), 428, "lease_id_required");
}

static void an_address_in_use_is_an_error(void **state)
{
    (void)state;
    struct gateway *g = gateway_start(NULL, NULL);
    struct process *process;
    int status = gateway_run(LIST("--listen", test_printf("127.0.0.1:%d", g->port), "--data-dir",
                                  test_printf("%s/other", tempdir_new())),
                             NULL, &process);
    assert_int_not_equal(status, 0);
    assert_true(status < 128);
    assert_non_null(strstr(process_errors(process), test_printf("%d", g->port)));
}

/* ---- The data directory -----------------------------------------------------------------------
 */

static void one_gateway_serves_a_data_directory(void **state)
{
    (void)state;
    struct gateway *g = gateway_start(NULL, NULL);
    struct process *process;
    assert_int_equal(
        gateway_run(LIST("--listen", "127.0.0.1:0", "--data-dir", g->data_dir), NULL, &process),
        69);
    expect_one_line(process);
    acquire(g, "r", 1000);
}

static void a_file_that_is_no_store_is_left_alone(void **state)
{
    (void)state;
    const char *folder = tempdir_new();
    const char *path = test_printf("%s/fencegate.db", folder);
    const char *text = "This is not a database, but somebody may need it. ....................."
                       ".................................................";
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);

    struct process *process;
    int status = gateway_run(LIST("--listen", "127.0.0.1:0", "--data-dir", folder), NULL, &process);
    assert_int_not_equal(status, 0);
    assert_true(status < 128);
    char *after = test_alloc(1000);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(after, 1, 999, file), strlen(text));
    fclose(file);
    assert_string_equal(after, text);
}

static void a_long_data_path_works(void **state)
{
    (void)state;
    const char *path = tempdir_new();
    for (int i = 0; i < 3; i++) {
        path = test_printf("%s/%060d", path, i);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    path = test_printf("%s/data", path);
    assert_true(strlen(path) > 107);
    struct gateway *g = gateway_start_in(path, NULL, NULL, NULL);
    struct lease a = acquire_within(g, "r", LONG_TTL_MS, 20000);
    gateway_stop(g);
    gateway_restart(g);
    expect_status(put(g, "r", "k", a.token, "x"), 201);
}

/* ---- Leases outlive the process ---------------------------------------------------------------
 */

/* After a restart everything is as it was. */
static void expect_survived(struct gateway *g, struct lease held, struct lease expired)
{
    expect_body(expect_status(fetch(g, "held", "k", held.token), 200), "before");
    expect_number(expect_status(put(g, "held", "k", held.token, "after"), 200), "version", 2);
    expect_status(put(g, "expired", "k", expired.token, "x"), 201);
    expect_text(inspect(g, held.id), "resource", "held");

    /* The private Redis may need a moment to load its file. */
    long long give_up_ms = now_ms() + slow_ms(20000);
    while (renew(g, held.id, 0)->status == 503 && now_ms() < give_up_ms)
        sleep_ms(50);
    expect_status(renew(g, held.id, 0), 200);
    expect_text(inspect(g, held.id), "state", "held");
    expect_problem(try_acquire(g, "held", 1000), 409, "lease_held");
    struct lease next = acquire(g, "expired", LONG_TTL_MS);
    assert_true(next.token > expired.token);
    expect_problem(put(g, "expired", "k", expired.token, "x"), 412, "stale_fencing_token");
    expect_status(release(g, held.id), 200);
    assert_true(acquire(g, "held", 1000).token > held.token);
}

static void leases_survive_a_restart(void **state)
{
    (void)state;
    struct gateway *g = gateway_start(NULL, NULL);
    struct lease held = acquire_within(g, "held", LONG_TTL_MS, 20000);
    struct lease expired = acquire(g, "expired", SHORT_TTL_MS);
    expect_status(put(g, "held", "k", held.token, "before"), 201);
    gateway_stop(g);
    sleep_ms(2 * SHORT_TTL_MS);
    gateway_restart(g);
    expect_survived(g, held, expired);
}

static void leases_survive_a_kill(void **state)
{
    (void)state;
    struct redis_server *redis = redis_server_start(NULL);
    struct gateway *g = gateway_start(redis_server_url(redis), NULL);
    struct lease held = acquire(g, "held", LONG_TTL_MS);
    struct lease expired = acquire(g, "expired", SHORT_TTL_MS);
    expect_status(put(g, "held", "k", held.token, "before"), 201);
    gateway_kill(g);
    sleep_ms(2 * SHORT_TTL_MS);
    gateway_restart(g);
    expect_survived(g, held, expired);
}

static void what_was_answered_survives_a_kill(void **state)
{
    (void)state;
    struct gateway *g = gateway_start(NULL, NULL);
    for (int round = 0; round < 3; round++) {
        const char *name = test_printf("round %d", round);
        struct lease a = acquire_within(g, name, LONG_TTL_MS, 20000);
        for (int i = 0; i < 20; i++)
            expect_status(put(g, name, test_printf("k%d", i), a.token, "x"), 201);
        gateway_kill(g);
        gateway_restart(g);
        struct response *r = expect_status(get(g, test_printf("/store/%s", encoded(name))), 200);
        assert_int_equal(count_at(r, "items"), 20);
        expect_number(resource(g, name), "highest_fencing_token", a.token);
        expect_status(check(g, name, a.token), 200);
    }
}

/* ---- The private Redis ------------------------------------------------------------------------
 */

/* Whether the command line or the working directory of a process names this folder. */
static bool belongs_to(const char *pid, const char *folder)
{
    char text[4096] = "";
    ssize_t bytes = readlink(test_printf("/proc/%s/cwd", pid), text, sizeof text - 1);
    if (bytes > 0 && strncmp(text, folder, strlen(folder)) == 0)
        return true;
    int file = open(test_printf("/proc/%s/cmdline", pid), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    bytes = read(file, text, sizeof text - 1);
    close(file);
    return bytes > 0 && memmem(text, (size_t)bytes, folder, strlen(folder)) != NULL;
}

/* The pid of the redis-server that serves a data directory; 0: none. */
static pid_t redis_of(const char *data_dir)
{
    char name[64];
    pid_t found = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        int file = open(test_printf("/proc/%s/comm", entry->d_name), O_RDONLY | O_CLOEXEC);
        ssize_t bytes = file < 0 ? 0 : read(file, name, sizeof name - 1);
        if (file >= 0)
            close(file);
        name[bytes > 0 ? bytes : 0] = '\0';
        if (strncmp(name, "redis-server", 12) == 0 && belongs_to(entry->d_name, data_dir))
            found = atoi(entry->d_name);
    }
    closedir(proc);
    return found;
}

static void the_private_redis_ends_with_the_gateway(void **state)
{
    (void)state;
    struct gateway *g = gateway_start(NULL, NULL);
    acquire_within(g, "r", 1000, 20000);
    assert_true(redis_of(g->data_dir) > 0);
    gateway_stop(g);
    assert_int_equal(redis_of(g->data_dir), 0);

    gateway_restart(g);
    acquire_within(g, "r", 1000, 20000);
    assert_true(redis_of(g->data_dir) > 0);
    gateway_kill(g);
    assert_true(EVENTUALLY(redis_of(g->data_dir) == 0, 10000));
}

static void the_private_redis_is_started_again(void **state)
{
    (void)state;
    struct gateway *g = gateway_start(NULL, NULL);
    struct lease a = acquire_within(g, "r", LONG_TTL_MS, 20000);
    for (int i = 0; i < 2; i++) {
        pid_t pid = redis_of(g->data_dir);
        assert_true(pid > 0);
        kill(pid, SIGKILL);
        expect_status(put(g, "r", test_printf("k%d", i), a.token, "x"), 201);
        acquire_within(g, test_printf("again %d", i), LONG_TTL_MS, 20000);
        /* It has kept what it knew, or the renewal puts it back. */
        expect_status(renew(g, a.id, 0), 200);
        expect_problem(try_acquire(g, "r", 1000), 409, "lease_held");
    }
}

/* ---- Drain ------------------------------------------------------------------------------------
 */

/* Begins a request and leaves it unfinished: work in flight. */
static struct http *half_a_put(struct gateway *g, long long token)
{
    struct http *http = http_new(g->port);
    const char *half = test_printf("PUT /store/r/slow HTTP/1.1\r\nHost: x\r\n%s\r\n"
                                   "Content-Length: 10\r\n\r\n12345",
                                   token_header(token));
    http_send_bytes(http, half, strlen(half));
    return http;
}

static bool is_draining(struct gateway *g)
{
    return get(g, "/readyz")->status == 503;
}

static void a_drain_lets_holders_finish(void **state)
{
    (void)state;
    const int signals[] = {SIGTERM, SIGINT};
    struct redis_server *redis = redis_server_start(NULL);
    for (size_t i = 0; i < 2; i++) {
        struct gateway *g = gateway_start(redis_server_url(redis),
                                          LIST("--drain-timeout-ms", "30000", "--adopt-redis"));
        struct lease a = acquire(g, "r", LONG_TTL_MS);
        struct lease b = acquire(g, "r2", LONG_TTL_MS);
        struct http *slow = half_a_put(g, a.token);
        sleep_ms(slow_ms(100));
        process_signal(g->process, signals[i]);

        assert_true(EVENTUALLY(is_draining(g), 5000));
        expect_problem(get(g, "/readyz"), 503, "draining");
        expect_problem(try_acquire(g, "r3", 1000), 503, "draining");
        expect_status(put(g, "r", "k", a.token, "x"), 201);
        expect_status(renew(g, a.id, 0), 200);
        expect_status(release(g, b.id), 200);
        expect_status(get(g, "/livez"), 200);
        http_close(g->http);

        http_send_bytes(slow, "67890", 5);
        struct response *r = http_receive(slow, "PUT");
        assert_non_null(r);
        expect_status(r, 201);
        http_close(slow);
        assert_int_equal(process_wait(g->process, slow_ms(10000)), 0);
    }
}

static void an_idle_gateway_stops_at_once(void **state)
{
    (void)state;
    struct gateway *g = gateway_start(NULL, LIST("--drain-timeout-ms", "60000"));
    acquire_within(g, "r", LONG_TTL_MS, 20000);
    /* Its own connection stays open, without a request. */
    process_signal(g->process, SIGTERM);
    assert_int_equal(process_wait(g->process, slow_ms(10000)), 0);
}

static void a_drain_ends_at_its_timeout(void **state)
{
    (void)state;
    struct gateway *g =
        gateway_start(NULL, LIST("--drain-timeout-ms", "300", "--request-timeout-ms", "60000"));
    struct lease a = acquire_within(g, "r", LONG_TTL_MS, 20000);
    half_a_put(g, a.token);
    sleep_ms(slow_ms(100));
    process_signal(g->process, SIGTERM);
    assert_int_equal(process_wait(g->process, slow_ms(15000)), 0);
}

static void a_second_signal_stops_at_once(void **state)
{
    (void)state;
    struct gateway *g =
        gateway_start(NULL, LIST("--drain-timeout-ms", "60000", "--request-timeout-ms", "60000"));
    struct lease a = acquire_within(g, "r", LONG_TTL_MS, 20000);
    half_a_put(g, a.token);
    sleep_ms(slow_ms(100));
    process_signal(g->process, SIGTERM);
    assert_true(EVENTUALLY(is_draining(g), 5000));
    process_signal(g->process, SIGTERM);
    int status = process_wait(g->process, slow_ms(10000));
    g->killed = true;
    assert_int_not_equal(status, -1);
    assert_true(EVENTUALLY(redis_of(g->data_dir) == 0, 10000));
}

/* ---- Logs -------------------------------------------------------------------------------------
 */

/* All that a lease goes through, with keys and values that must not be logged. */
static struct lease live_a_life(struct gateway *g)
{
    struct lease a = acquire_within(g, "r", LONG_TTL_MS, 20000);
    put(g, "r", "secret-key", a.token, "secret-value");
    put(g, "r", "secret-key", a.token + 5, "secret-value");
    renew(g, a.id, 0);
    renew(g, "no-such-lease", 0);
    call(g, "PUT", store_path("r", "secret-key"),
         LIST(token_header(a.token), test_printf("X-Lease-Id: %s", a.id)), "secret-value");
    release(g, a.id);
    return a;
}

static void the_log_is_json_where_it_is_asked_for(void **state)
{
    (void)state;
    struct gateway *g = gateway_start(NULL, LIST("--log-format", "json", "--log-level", "debug"));
    live_a_life(g);
    gateway_stop(g);
    char *log = test_printf("%s", gateway_log(g));
    bool listening = false;
    size_t lines = 0;
    for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (!json)
            fail_msg("not JSON: %s", line);
        assert_true(time_of(json_string_value(json_object_get(json, "ts"))) > 0);
        assert_non_null(json_string_value(json_object_get(json, "level")));
        const char *message = json_string_value(json_object_get(json, "msg"));
        assert_non_null(message);
        if (strstr(line, "listening") && strstr(line, g->url))
            listening = true;
        json_decref(json);
    }
    assert_true(lines > 0);
    assert_true(listening);
}

static void no_log_holds_a_secret(void **state)
{
    (void)state;
    struct gateway *g = gateway_start(NULL, LIST("--log-level", "debug"));
    struct lease a = live_a_life(g);
    gateway_stop(g);
    const char *log = gateway_log(g);
    assert_null(strstr(log, a.id));
    assert_null(strstr(log, test_printf("%.9s", a.id)));
    assert_null(strstr(log, "secret-key"));
    assert_null(strstr(log, "secret-value"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(help_and_version_are_printed),
        TEST(bad_usage_is_64_and_one_line),
        TEST(options_come_from_the_environment_too),
        TEST(an_address_in_use_is_an_error),
        TEST(one_gateway_serves_a_data_directory),
        TEST(a_file_that_is_no_store_is_left_alone),
        TEST(a_long_data_path_works),
        TEST(leases_survive_a_restart),
        TEST(leases_survive_a_kill),
        TEST(what_was_answered_survives_a_kill),
        TEST(the_private_redis_ends_with_the_gateway),
        TEST(the_private_redis_is_started_again),
        TEST(a_drain_lets_holders_finish),
        TEST(an_idle_gateway_stops_at_once),
        TEST(a_drain_ends_at_its_timeout),
        TEST(a_second_signal_stops_at_once),
        TEST(the_log_is_json_where_it_is_asked_for),
        TEST(no_log_holds_a_secret),
    };
    return cmocka_run_group_tests_name("process", tests, NULL, NULL);
}
