/* http.c - what an answer of the gateway means (http.h).
 *
 * A refusal is a problem (RFC 9457) with a code of the gateway's; anything else that is not 2xx
 * comes from somebody who is not fencegate, a proxy most likely, and says nothing about what was
 * done. */
#include "client/http.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *code;
    enum fence_status status;
} codes[] = {
    {"lease_held", FENCE_HELD},
    {"lease_expired", FENCE_EXPIRED},
    {"lease_superseded", FENCE_SUPERSEDED},
    {"lease_revoked", FENCE_REVOKED},
    {"lease_released", FENCE_RELEASED},
    {"stale_fencing_token", FENCE_STALE},
    {"fencing_token_not_issued", FENCE_STALE},
    {"lease_mismatch", FENCE_STALE},
    {"version_mismatch", FENCE_MISMATCH},
    {"lease_not_found", FENCE_NOT_FOUND},
    {"resource_not_found", FENCE_NOT_FOUND},
    {"record_not_found", FENCE_NOT_FOUND},
};

/* ---- Failures ------------------------------------------------------------------------------- */

static const char *const texts[] = {
    [FENCE_OK] = "done",
    [FENCE_HELD] = "somebody else holds it",
    [FENCE_CANCELLED] = "given up",
    [FENCE_TOO_SHORT] = "the TTL is too short for the way to the gateway and back",
    [FENCE_EXPIRED] = "the lease has run out",
    [FENCE_SUPERSEDED] = "another lease has replaced this one",
    [FENCE_REVOKED] = "the lease was revoked",
    [FENCE_RELEASED] = "the lease was released before",
    [FENCE_OUTLIVED] = "the lease was held for as long as it may be",
    [FENCE_FORKED] = "it belongs to the parent process",
    [FENCE_STALE] = "the fencing token is stale",
    [FENCE_MISMATCH] = "the record has another version",
    [FENCE_NOT_FOUND] = "there is no such thing",
    [FENCE_REFUSED] = "refused",
    [FENCE_INVALID] = "an argument is not valid",
    [FENCE_BUSY] = "the gateway cannot do it now",
    [FENCE_UNREACHABLE] = "the gateway cannot be reached",
    [FENCE_NO_ANSWER] = "no answer: it may have been done or not",
    [FENCE_BAD_ANSWER] = "not an answer of fencegate: it may have been done or not",
    [FENCE_SYSTEM] = "this machine is out of memory, descriptors or threads",
};

const char *fence_status_text(enum fence_status status)
{
    size_t count = sizeof texts / sizeof texts[0];
    return (size_t)status < count ? texts[status] : "an unknown status";
}

bool fence_status_retryable(enum fence_status status)
{
    return status == FENCE_HELD || status >= FENCE_BUSY;
}

/* Texts of the other side end up on terminals, and may have been cut in the middle of a character:
 * then its beginning goes, too. */
static void make_presentable(char *text, size_t room)
{
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        text[i] = (unsigned char)text[i] < ' ' || text[i] == 127 ? '?' : text[i];
    size_t start = length;
    while (start > 0 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--; /* bytes that go on with a character */
    if (start == 0 || length + 1 < room)
        return;
    unsigned char first = (unsigned char)text[start - 1];
    size_t wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    if (length - (start - 1) < wanted)
        text[start - 1] = '\0';
}

enum fence_status fence_fail(struct fence_error *error, enum fence_status status,
                             const char *format, ...)
{
    if (error) {
        va_list arguments;
        *error = (struct fence_error){.status = status};
        va_start(arguments, format);
        vsnprintf(error->detail, sizeof error->detail, format, arguments);
        va_end(arguments);
        make_presentable(error->detail, sizeof error->detail);
    }
    return status;
}

/* ---- Answers -------------------------------------------------------------------------------- */

static enum fence_status status_of_code(const char *code, int http_status, bool retryable)
{
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (strcmp(codes[i].code, code) == 0)
            return codes[i].status;
    }
    if (http_status == 503 || retryable)
        return FENCE_BUSY;
    return FENCE_REFUSED;
}

static int64_t number_of(const json_t *json, const char *name)
{
    int64_t number = json_integer_value(json_object_get(json, name));
    return number > 0 ? number : 0;
}

/* NULL: it is not a problem of the gateway. */
static json_t *problem_of(const struct http_answer *answer)
{
    json_t *json = http_answer_json(answer, NULL);
    if (json && json_integer_value(json_object_get(json, "status")) == answer->status &&
        json_is_string(json_object_get(json, "code")))
        return json;
    json_decref(json);
    return NULL;
}

enum fence_status http_judge(const struct http_answer *answer, struct fence_error *error)
{
    if (answer->status >= 200 && answer->status < 300) {
        *error = (struct fence_error){.status = FENCE_OK, .http_status = answer->status};
        snprintf(error->detail, sizeof error->detail, "%s", texts[FENCE_OK]);
        return FENCE_OK;
    }
    json_t *json = answer->status >= 400 ? problem_of(answer) : NULL;
    if (!json)
        return http_bad_answer(answer, error, "not a problem that fencegate reports");
    const char *code = json_string_value(json_object_get(json, "code"));
    const char *detail = json_string_value(json_object_get(json, "detail"));
    bool retryable = json_is_true(json_object_get(json, "retryable"));
    enum fence_status status = status_of_code(code, answer->status, retryable);
    fence_fail(error, status, "%s", detail && *detail ? detail : fence_status_text(status));
    snprintf(error->code, sizeof error->code, "%s", code);
    make_presentable(error->code, sizeof error->code);
    error->http_status = answer->status;
    error->retry_after_ms = number_of(json, "retry_after_ms");
    error->highest_fencing_token = number_of(json, "highest_fencing_token");
    json_decref(json);
    return status;
}

void http_answer_free(struct http_answer *answer)
{
    free(answer->body);
    answer->body = NULL;
}

enum fence_status http_bad_answer(const struct http_answer *answer, struct fence_error *error,
                                  const char *what)
{
    fence_fail(error, FENCE_BAD_ANSWER, "status %d, and %s", answer->status, what);
    if (error)
        error->http_status = answer->status;
    return FENCE_BAD_ANSWER;
}

json_t *http_answer_json(const struct http_answer *answer, struct fence_error *error)
{
    json_error_t why;
    json_t *json = json_loadb(answer->body ? answer->body : "", answer->body_bytes,
                              JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(json))
        return json;
    json_decref(json);
    http_bad_answer(answer, error, "a body that is not a JSON object");
    return NULL;
}

/* ---- Paths ---------------------------------------------------------------------------------- */

static bool is_plain(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-._~:@!$'()*,;=", c));
}

static char *put_encoded(char *out, const char *name)
{
    static const char hex[] = "0123456789ABCDEF";
    for (; *name; name++) {
        unsigned char byte = (unsigned char)*name;
        if (is_plain(*name)) {
            *out++ = *name;
        } else {
            *out++ = '%';
            *out++ = hex[byte >> 4];
            *out++ = hex[byte & 15];
        }
    }
    return out;
}

char *http_path(const char *first, ...)
{
    size_t bytes = 1;
    va_list names;
    va_start(names, first);
    for (const char *name = first; name; name = va_arg(names, const char *))
        bytes += 1 + 3 * strlen(name);
    va_end(names);

    char *path = malloc(bytes);
    if (!path)
        return NULL;
    char *out = path;
    va_start(names, first);
    for (const char *name = first; name; name = va_arg(names, const char *)) {
        *out++ = '/';
        out = put_encoded(out, name);
    }
    va_end(names);
    *out = '\0';
    return path;
}
