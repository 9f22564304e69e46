/* answer.c - answers of the gateway, read and printed (answer.h). */
#include "client/cli/answer.h"

#include "client/cli/text.h"
#include "client/http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_COLUMNS = 15 }; /* of a fact: the longest and two spaces */

enum fence_status cli_ask(struct fence_client *client, const char *method, const char *path,
                          const char *body, json_t **json, struct fence_error *error)
{
    struct http_request request = {
        .method = method, .path = path, .body = body, .body_bytes = body ? strlen(body) : 0};
    struct http_answer answer;
    enum fence_status status = http_call(client, &request, &answer, error);
    *json = NULL;
    if (status == FENCE_OK && !(*json = http_answer_json(&answer, error)))
        status = FENCE_BAD_ANSWER;
    http_answer_free(&answer);
    return status;
}

const char *cli_string(const json_t *object, const char *name, const char *none)
{
    const char *string = json_string_value(json_object_get(object, name));
    return string ? string : none;
}

int64_t cli_number(const json_t *object, const char *name, int64_t none)
{
    const json_t *number = json_object_get(object, name);
    return json_is_integer(number) ? json_integer_value(number) : none;
}

void cli_print_json(json_t *json)
{
    /* jansson escapes the controls of ASCII only, and a terminal knows others. */
    size_t flags = JSON_COMPACT | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0U);
    char *line = cli_need(json_dumps(cli_need(json), flags));
    puts(line);
    free(line);
    json_decref(json);
}

void cli_print_fact(const char *name, const char *value)
{
    size_t bytes = CLI_ESCAPED_MOST * strlen(value) + 1;
    char *escaped = cli_need(malloc(bytes));
    cli_text_escape(value, escaped, bytes);
    printf("%-*s%s\n", NAME_COLUMNS, name, escaped);
    free(escaped);
}

void cli_print_fact_number(const char *name, int64_t value)
{
    printf("%-*s%" PRId64 "\n", NAME_COLUMNS, name, value);
}

void cli_print_fact_duration(const char *name, int64_t ms)
{
    char text[CLI_DURATION_BYTES];
    printf("%-*s%s\n", NAME_COLUMNS, name, cli_text_duration(ms, text));
}
