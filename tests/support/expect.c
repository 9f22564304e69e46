/* expect.c - the expectations of api.h: a failure shows the whole answer. */
#define TESTS_API_INSIDE
#include "tests/support/api.h"

#include <stdio.h>
#include <time.h>

static const char *test_file = "?";
static int test_line;

void expecting_at(const char *file, int line)
{
    test_file = file;
    test_line = line;
}

#define fail_here(format, ...) fail_msg("%s:%d: " format, test_file, test_line, __VA_ARGS__)

/* The answer as text, for messages. */
static const char *shown(const struct response *response)
{
    return test_printf("%s -> %d\n%s", response->asked, response->status, response->body);
}

struct response *expect_status(struct response *response, int status)
{
    if (response->status != status)
        fail_here("expected %d: %s", status, shown(response));
    return response;
}

struct response *expect_problem(struct response *response, int status, const char *code)
{
    expect_status(response, status);
    if (strcmp(text_at(response, "code"), code) != 0)
        fail_here("expected %s: %s", code, shown(response));
    return response;
}

json_t *json_at(const struct response *response, const char *path)
{
    json_t *at = response_json(response);
    char *rest = test_printf("%s", path);
    for (char *name = strtok(rest, "."); at && name; name = strtok(NULL, ".")) {
        char *end;
        size_t index = strtoul(name, &end, 10);
        at = *end == '\0' ? json_array_get(at, index) : json_object_get(at, name);
    }
    return at;
}

/* The member; fails where it is missing. */
static json_t *must_have(const struct response *response, const char *path)
{
    json_t *json = json_at(response, path);
    if (!json)
        fail_here("no %s: %s", path, shown(response));
    return json;
}

long long number_at(const struct response *response, const char *path)
{
    const json_t *json = must_have(response, path);
    if (!json_is_integer(json))
        fail_here("%s is not an integer: %s", path, shown(response));
    return json_integer_value(json);
}

const char *text_at(const struct response *response, const char *path)
{
    const json_t *json = must_have(response, path);
    if (!json_is_string(json))
        fail_here("%s is not a string: %s", path, shown(response));
    return json_string_value(json);
}

size_t count_at(const struct response *response, const char *path)
{
    const json_t *json = must_have(response, path);
    if (!json_is_array(json))
        fail_here("%s is not an array: %s", path, shown(response));
    return json_array_size(json);
}

void expect_number(const struct response *response, const char *path, long long expected)
{
    if (number_at(response, path) != expected)
        fail_here("expected %s %lld: %s", path, expected, shown(response));
}

void expect_text(const struct response *response, const char *path, const char *expected)
{
    if (strcmp(text_at(response, path), expected) != 0)
        fail_here("expected %s \"%s\": %s", path, expected, shown(response));
}

void expect_true(const struct response *response, const char *path)
{
    if (!json_is_true(must_have(response, path)))
        fail_here("expected %s true: %s", path, shown(response));
}

void expect_false(const struct response *response, const char *path)
{
    if (!json_is_false(must_have(response, path)))
        fail_here("expected %s false: %s", path, shown(response));
}

void expect_null(const struct response *response, const char *path)
{
    if (!json_is_null(must_have(response, path)))
        fail_here("expected %s null: %s", path, shown(response));
}

void expect_absent(const struct response *response, const char *path)
{
    if (json_at(response, path))
        fail_here("expected no %s: %s", path, shown(response));
}

void expect_header(const struct response *response, const char *name, const char *expected)
{
    const char *value = response_header(response, name);
    if (!expected ? value != NULL : !value || strcmp(value, expected) != 0)
        fail_here("header %s is %s, expected %s: %s", name, value ? value : "(absent)",
                  expected ? expected : "(absent)", shown(response));
    if (expected && response_header_count(response, name) != 1)
        fail_here("header %s came twice: %s", name, shown(response));
}

void expect_body(const struct response *response, const char *expected)
{
    if (response->body_bytes != strlen(expected) ||
        memcmp(response->body, expected, response->body_bytes) != 0)
        fail_here("expected the body \"%s\": %s", expected, shown(response));
}

void expect_members(const struct response *response, const char *path, const char *const *names)
{
    const json_t *object = must_have(response, path);
    size_t count = 0;
    for (; names[count]; count++)
        if (!json_object_get(object, names[count]))
            fail_here("no %s in %s: %s", names[count], path, shown(response));
    if (json_object_size(object) != count)
        fail_here("expected %zu members in \"%s\": %s", count, path, shown(response));
}

long long time_of(const char *rfc3339)
{
    struct tm parts = {0};
    int ms = -1;
    int used = 0;
    if (strlen(rfc3339) != sizeof "2026-11-29T12:00:00.123Z" - 1 ||
        sscanf(rfc3339, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &parts.tm_year, &parts.tm_mon,
               &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &ms, &used) != 7 ||
        used != (int)strlen(rfc3339))
        fail_here("not an RFC 3339 time in UTC with milliseconds: %s", rfc3339);
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    return (long long)timegm(&parts) * 1000 + ms;
}
