/* exchanges.c - one exchange as a line of JSON. */
#include "tests/support/exchanges.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *base64(const unsigned char *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((count + 2) / 3 * 4 + 1);
    if (!text)
        abort();
    char *to = text;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        unsigned triple = (unsigned)bytes[i] << 16 | (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) |
                          (left > 2 ? bytes[i + 2] : 0);
        *to++ = digits[triple >> 18];
        *to++ = digits[triple >> 12 & 63];
        *to++ = left > 1 ? digits[triple >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[triple & 63] : '=';
    }
    *to = '\0';
    return text;
}

static json_t *body_of(const void *bytes, size_t count)
{
    json_t *text = json_stringn(bytes ? bytes : "", bytes ? count : 0);
    if (text)
        return text;
    char *encoded = base64(bytes, count);
    json_t *object = json_pack("{s:s}", "base64", encoded);
    free(encoded);
    return object;
}

/* Header bytes are Latin-1 at worst; a value that is not UTF-8 is left out. */
static void add_header(json_t *object, const char *name, const char *value)
{
    json_t *text = json_string(value);
    if (text)
        json_object_set_new(object, name, text);
}

static json_t *request_headers(const char *const *lines)
{
    json_t *object = json_object();
    for (; lines && *lines; lines++) {
        const char *colon = strchr(*lines, ':');
        if (!colon)
            continue;
        char *name = strndup(*lines, (size_t)(colon - *lines));
        add_header(object, name, colon + 1 + strspn(colon + 1, " \t"));
        free(name);
    }
    return object;
}

static json_t *response_headers(const struct response *response)
{
    json_t *object = json_object();
    for (size_t i = 0; i < response->header_count; i++)
        add_header(object, response->headers[i].name, response->headers[i].value);
    return object;
}

void exchange_record(const struct response *response, const char *method, const char *target,
                     const char *const *headers, const void *body, size_t body_bytes)
{
    const char *path = getenv("FENCEGATE_EXCHANGES");
    if (!path || !*path)
        return;
    json_t *line = json_pack("{s:s, s:s, s:o, s:o, s:i, s:o, s:o}", "method", method, "target",
                             target, "request_headers", request_headers(headers), "request_body",
                             body_of(body, body_bytes), "status", response->status, "headers",
                             response_headers(response), "body",
                             body_of(response->body, response->body_bytes));
    if (!line)
        return; /* a target that is not UTF-8 */
    char *text = json_dumps(line, JSON_COMPACT);
    json_decref(line);

    char *with_newline;
    int bytes = asprintf(&with_newline, "%s\n", text);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (bytes < 0 || fd < 0 || write(fd, with_newline, (size_t)bytes) != bytes)
        perror(path);
    if (fd >= 0)
        close(fd);
    free(with_newline);
    free(text);
}
