/* test_log.c - the form of log lines, and that a full pipe loses lines instead of blocking. */
#include "gateway/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_BYTES = 4096, PIPE_BYTES = 65536 };

/* stderr as a pipe: what the code under test writes there is what the test reads. */
struct capture {
    int real_stderr;
    int reader;
    char text[2 * PIPE_BYTES];
};

static struct capture capture;

static void capture_begin(void)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    capture.real_stderr = dup(STDERR_FILENO);
    capture.reader = ends[0];
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
}

/* Everything that lies in the pipe now. */
static const char *capture_read(void)
{
    size_t length = 0;
    struct pollfd from = {.fd = capture.reader, .events = POLLIN};
    while (poll(&from, 1, 0) == 1 && from.revents & POLLIN) {
        ssize_t got = read(capture.reader, capture.text + length, sizeof capture.text - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    capture.text[length] = '\0';
    return capture.text;
}

static const char *capture_end(void)
{
    dup2(capture.real_stderr, STDERR_FILENO);
    close(capture.real_stderr);
    capture_read();
    close(capture.reader);
    return capture.text;
}

/* The line without its time, after a look at it. */
static const char *after_time(const char *line, const char *before)
{
    assert_memory_equal(line, before, strlen(before));
    const char *time = line + strlen(before);
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ";
    for (size_t i = 0; form[i]; i++) {
        if (form[i] == 'd')
            assert_in_range(time[i], '0', '9');
        else
            assert_int_equal(time[i], form[i]);
    }
    return time + strlen(form);
}

static const char *text_line(const struct log_field *fields, size_t count)
{
    log_configure(LOG_INFO, LOG_TEXT);
    capture_begin();
    log_write(LOG_INFO, "it happened", fields, count);
    return after_time(capture_end(), "");
}

static const char *json_line(const struct log_field *fields, size_t count)
{
    log_configure(LOG_INFO, LOG_JSON);
    capture_begin();
    log_write(LOG_INFO, "it happened", fields, count);
    return after_time(capture_end(), "{\"ts\":\"");
}

#define COUNT(...) (sizeof LOG_FIELDS(__VA_ARGS__) / sizeof(struct log_field))
#define TEXT(...)  text_line(LOG_FIELDS(__VA_ARGS__), COUNT(__VA_ARGS__))
#define JSON(...)  json_line(LOG_FIELDS(__VA_ARGS__), COUNT(__VA_ARGS__))

static void text_quotes_only_what_needs_it(void **state)
{
    (void)state;
    assert_string_equal(TEXT(), " INFO  it happened\n");
    assert_string_equal(TEXT(LOG_INT("n", -5)), " INFO  it happened n=-5\n");
    assert_string_equal(TEXT(LOG_INT("n", INT64_MIN)),
                        " INFO  it happened n=-9223372036854775808\n");
    assert_string_equal(TEXT(LOG_STR("a", "plain:1/2"), LOG_STR("b", "two words")),
                        " INFO  it happened a=plain:1/2 b=\"two words\"\n");
    assert_string_equal(TEXT(LOG_STR("a", ""), LOG_STR("b", (const char *)NULL)),
                        " INFO  it happened a=\"\" b=\"\"\n");
    assert_string_equal(TEXT(LOG_STR("a", "x=y")), " INFO  it happened a=\"x=y\"\n");
}

static void text_escapes(void **state)
{
    (void)state;
    assert_string_equal(TEXT(LOG_STR("a", "say \"hi\"\\\n\t\r\x1b[31m\x7f")),
                        " INFO  it happened a=\"say \\\"hi\\\"\\\\\\n\\t\\r\\u001b[31m\\u007f\"\n");
    assert_string_equal(TEXT(LOG_STR("a", "\xff\xc3")), " INFO  it happened a=\"\\xff\\xc3\"\n");
    assert_string_equal(TEXT(LOG_STR("a", "M\xc3\xbcller")),
                        " INFO  it happened a=\"M\xc3\xbcller\"\n");
}

static void json_escapes(void **state)
{
    (void)state;
    assert_string_equal(JSON(LOG_STR("a", "say \"hi\"\\\n\x01"), LOG_INT("n", 7)),
                        "\",\"level\":\"info\",\"msg\":\"it happened\","
                        "\"a\":\"say \\\"hi\\\"\\\\\\n\\u0001\",\"n\":7}\n");
    /* A lone byte, an overlong slash, a surrogate, past U+10FFFF, a character that breaks off. */
    assert_string_equal(JSON(LOG_STR("a", "\x80.\xc0\xaf.\xed\xa0\x80.\xf4\x90\x80\x80.\xe2\x82")),
                        "\",\"level\":\"info\",\"msg\":\"it happened\",\"a\":\"\\ufffd."
                        "\\ufffd\\ufffd.\\ufffd\\ufffd\\ufffd.\\ufffd\\ufffd\\ufffd\\ufffd."
                        "\\ufffd\\ufffd\"}\n");
    /* Two, three and four bytes pass; a C1 control and the line separator do not. */
    assert_string_equal(JSON(LOG_STR("a", "\xc3\xbc\xe2\x82\xac\xf0\x9f\x94\x92\xc2\x85"
                                          "\xe2\x80\xa8")),
                        "\",\"level\":\"info\",\"msg\":\"it happened\",\"a\":\"\xc3\xbc\xe2\x82\xac"
                        "\xf0\x9f\x94\x92\\u0085\\u2028\"}\n");
}

/* One line of JSON strings and integers in an object, checked by hand: this test needs no parser
 * but this. Bytes from 0x80 on are looked at by json_escapes. */
static void assert_json_line(const char *line)
{
    size_t length = strlen(line);
    assert_in_range(length, 2, LINE_BYTES);
    assert_int_equal(line[length - 1], '\n');
    const char *at = line;
    assert_int_equal(*at++, '{');
    bool name = true;
    do {
        if (*at == '"') {
            for (at++; *at != '"'; at++) {
                assert_true((unsigned char)*at >= 0x20);
                if (*at == '\\')
                    assert_non_null(strchr("\"\\nrtu", *++at));
            }
            at++;
        } else if (strncmp(at, "true", 4) == 0) {
            at += 4;
        } else {
            strtoll(at, (char **)&at, 10);
        }
        assert_int_equal(*at, name ? ':' : *at == '}' ? '}' : ',');
        name = !name;
    } while (*at++ != '}');
    assert_true(name);
    assert_string_equal(at, "\n");
}

static void json_is_valid_for_any_bytes(void **state)
{
    (void)state;
    log_configure(LOG_INFO, LOG_JSON);
    unsigned seed = 1;
    for (int round = 0; round < 2000; round++) {
        char a[3000], b[3000];
        size_t a_bytes = (size_t)rand_r(&seed) % sizeof a, b_bytes = (size_t)rand_r(&seed) % 40;
        for (size_t i = 0; i < a_bytes; i++)
            a[i] = (char)(rand_r(&seed) % 255 + 1);
        for (size_t i = 0; i < b_bytes; i++)
            b[i] = (char)(rand_r(&seed) % 255 + 1);
        a[a_bytes] = b[b_bytes] = '\0';
        capture_begin();
        log_info(b, LOG_STR(b, a), LOG_INT("n", round), LOG_STR("b", b));
        assert_json_line(capture_end());
    }
}

/* Every length around the limit: the line is cut, stays well formed, and says so. */
static void a_long_line_is_cut(void **state)
{
    (void)state;
    static char value[2 * LINE_BYTES];
    for (size_t bytes = 3950; bytes < 4100; bytes++) {
        memset(value, 'v', bytes);
        value[bytes] = '\0';
        log_configure(LOG_INFO, LOG_JSON);
        capture_begin();
        log_info("m", LOG_STR("a", value), LOG_INT("number", 123456), LOG_STR("b", "end"));
        const char *line = capture_end();
        assert_json_line(line);
        assert_true(!strstr(line, "\"cut\":true}") == !!strstr(line, "\"b\":\"end\"}"));

        log_configure(LOG_INFO, LOG_TEXT);
        capture_begin();
        log_info("m", LOG_STR("a", value), LOG_INT("number", 123456), LOG_STR("b", "end"));
        line = capture_end();
        size_t length = strlen(line);
        assert_in_range(length, 1, LINE_BYTES);
        assert_true(strcmp(line + length - 5, " ...\n") == 0 ||
                    strcmp(line + length - 7, " b=end\n") == 0);
    }
    memset(value, 'v', sizeof value - 1);
    capture_begin();
    log_info(value, LOG_INT("n", 1));
    const char *line = capture_end();
    assert_in_range(strlen(line), LINE_BYTES - 32, LINE_BYTES);
    assert_string_equal(line + strlen(line) - 6, "v ...\n");
}

static void levels_below_the_least_are_silent(void **state)
{
    (void)state;
    log_configure(LOG_WARN, LOG_TEXT);
    capture_begin();
    errno = ENOENT;
    log_debug("one");
    log_info("two");
    log_warn("three", LOG_INT("n", 3));
    log_error("four");
    assert_int_equal(errno, ENOENT);
    const char *lines = capture_end();
    assert_string_equal(strchr(lines, ' '), strstr(lines, " WARN  three n=3\n"));
    assert_non_null(strstr(lines, "Z ERROR four\n"));
    assert_null(strstr(lines, "one"));
    assert_null(strstr(lines, "two"));
    assert_false(log_enabled(LOG_INFO));
    assert_true(log_enabled(LOG_ERROR));
}

/* The test would hang here if a line waited for the pipe. */
static void a_full_pipe_loses_lines_and_says_how_many(void **state)
{
    (void)state;
    log_configure(LOG_INFO, LOG_TEXT);
    static char value[2000];
    memset(value, 'v', sizeof value - 1);
    enum { WRITTEN = 500 };
    capture_begin();
    for (int i = 0; i < WRITTEN; i++)
        log_info("fill", LOG_STR("a", value));
    const char *lines = capture_read();
    int arrived = 0;
    for (const char *at = lines; (at = strstr(at, " INFO  fill a=vv")); at++)
        arrived++;
    assert_in_range(arrived, 1, WRITTEN - 1);
    assert_int_equal(lines[strlen(lines) - 1], '\n');

    log_info("through again");
    log_info("and again");
    char loss[64];
    snprintf(loss, sizeof loss, " WARN  log lines lost count=%d\n", WRITTEN - arrived);
    lines = capture_end();
    const char *first = after_time(lines, "");
    assert_memory_equal(first, loss, strlen(loss));
    const char *second = after_time(first + strlen(loss), "");
    assert_memory_equal(second, " INFO  through again\n", 21);
    assert_string_equal(after_time(second + 21, ""), " INFO  and again\n");
}

/* In a process of its own, where SIGPIPE would be fatal. */
static void a_closed_pipe_is_survived(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int ends[2];
        if (pipe(ends) != 0)
            _exit(1);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        log_error("nobody reads this");
        close(STDERR_FILENO);
        log_error("nor this");
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

enum { THREADS = 4, LINES_PER_THREAD = 100 };

static void *write_lines(void *argument)
{
    for (int i = 0; i < LINES_PER_THREAD; i++)
        log_info("from", LOG_STR("thread", argument), LOG_INT("i", i));
    return NULL;
}

static void threads_do_not_mix_lines(void **state)
{
    (void)state;
    log_configure(LOG_INFO, LOG_TEXT);
    pthread_t threads[THREADS];
    static char names[THREADS][2] = {"a", "b", "c", "d"};
    capture_begin();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int lines = 0, thread_seen[THREADS] = {0};
    for (const char *at = capture_end(); *at; lines++) {
        char name;
        int i, used = 0;
        at = after_time(at, "");
        assert_int_equal(sscanf(at, " INFO  from thread=%c i=%d%n", &name, &i, &used), 2);
        assert_in_range(name, 'a', 'd');
        assert_int_equal(i, thread_seen[name - 'a']++);
        assert_int_equal(at[used], '\n');
        at += used + 1;
    }
    assert_int_equal(lines, THREADS * LINES_PER_THREAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_quotes_only_what_needs_it),
        cmocka_unit_test(text_escapes),
        cmocka_unit_test(json_escapes),
        cmocka_unit_test(json_is_valid_for_any_bytes),
        cmocka_unit_test(a_long_line_is_cut),
        cmocka_unit_test(levels_below_the_least_are_silent),
        cmocka_unit_test(a_full_pipe_loses_lines_and_says_how_many),
        cmocka_unit_test(a_closed_pipe_is_survived),
        cmocka_unit_test(threads_do_not_mix_lines),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
