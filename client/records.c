/* records.c - guarded values: put, get, delete (fence.h). */
#include "client/internal.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 64 + LEASE_ID_BYTES_MAX, TYPE_BYTES_MAX = 255 };

struct fence_record fence_lease_record(const struct fence_lease *lease, const char *key)
{
    return (struct fence_record){
        .resource = lease->resource, .key = key, .token = lease->token, .lease_id = lease->id};
}

/* The headers that say by what right, and their room. */
struct right {
    char token[HEADER_BYTES];
    char lease[HEADER_BYTES];
    char condition[HEADER_BYTES];
};

static bool is_name(const char *name)
{
    size_t bytes = name ? strlen(name) : 0;
    return bytes > 0 && bytes <= NAME_BYTES_MAX;
}

static enum fence_status check_record(const struct fence_record *record, struct fence_error *error)
{
    if (!is_name(record->resource) || !is_name(record->key))
        return fence_fail(error, FENCE_INVALID, "a resource and a key have 1 to %d bytes",
                          NAME_BYTES_MAX);
    if (record->token < 0 || record->token >= INT64_C(1) << 53)
        return fence_fail(error, FENCE_INVALID, "%lld is not a fencing token",
                          (long long)record->token);
    if (record->if_version < FENCE_ABSENT)
        return fence_fail(error, FENCE_INVALID, "%lld is not a version",
                          (long long)record->if_version);
    if (record->lease_id &&
        (strlen(record->lease_id) > LEASE_ID_BYTES_MAX || strpbrk(record->lease_id, "\r\n")))
        return fence_fail(error, FENCE_INVALID, "%s", "that is not a lease id");
    return FENCE_OK;
}

static void add_right(struct http_request *request, struct right *right,
                      const struct fence_record *record, bool writes)
{
    size_t count = 0;
    if (record->token > 0) {
        snprintf(right->token, HEADER_BYTES, "X-Fencing-Token: %lld", (long long)record->token);
        request->headers[count++] = right->token;
    }
    if (writes && record->lease_id) {
        snprintf(right->lease, HEADER_BYTES, "X-Lease-Id: %s", record->lease_id);
        request->headers[count++] = right->lease;
    }
    if (writes && record->if_version == FENCE_ABSENT) {
        request->headers[count++] = "If-None-Match: *";
    } else if (writes && record->if_version > 0) {
        snprintf(right->condition, HEADER_BYTES, "If-Match: \"v%lld\"",
                 (long long)record->if_version);
        request->headers[count++] = right->condition;
    }
}

/* Asks for the record. `answer` is the caller's to free, in every case. */
static enum fence_status call(struct fence_client *client, const struct fence_record *record,
                              const struct http_request *wanted, struct http_answer *answer,
                              struct fence_error *error)
{
    struct http_request request = *wanted;
    struct right right;
    *answer = (struct http_answer){0};
    enum fence_status status = check_record(record, error);
    if (status != FENCE_OK)
        return status;
    char *path = http_path("store", record->resource, record->key, NULL);
    if (!path)
        return fence_fail(error, FENCE_SYSTEM, "%s", "no memory left");
    bool writes = strcmp(request.method, "GET") != 0;
    request.path = path;
    request.once = writes;
    add_right(&request, &right, record, writes);
    status = http_call(client, &request, answer, error);
    free(path);
    return status;
}

enum fence_status fence_put_as(struct fence_client *client, const struct fence_record *record,
                               const char *content_type, const void *bytes, size_t count,
                               int64_t *version, struct fence_error *error)
{
    if (content_type && (strlen(content_type) > TYPE_BYTES_MAX || strpbrk(content_type, "\r\n")))
        return fence_fail(error, FENCE_INVALID, "%s", "that is not a content type");
    struct http_answer answer;
    struct http_request request = {
        .method = "PUT",
        .body = bytes ? bytes : "",
        .body_bytes = bytes ? count : 0,
        .content_type = content_type ? content_type : "application/octet-stream",
    };
    enum fence_status status = call(client, record, &request, &answer, error);
    if (status == FENCE_OK &&
        (answer.version == 0 || (answer.status != 200 && answer.status != 201)))
        status = http_bad_answer(&answer, error, "no version of what was written");
    if (status == FENCE_OK && version)
        *version = answer.version;
    http_answer_free(&answer);
    return status;
}

enum fence_status fence_put(struct fence_client *client, const struct fence_record *record,
                            const void *bytes, size_t count, int64_t *version,
                            struct fence_error *error)
{
    return fence_put_as(client, record, NULL, bytes, count, version, error);
}

enum fence_status fence_get(struct fence_client *client, const struct fence_record *record,
                            struct fence_value *value, struct fence_error *error)
{
    struct http_answer answer;
    struct http_request request = {.method = "GET", .answer_most = HTTP_VALUE_MAX};
    *value = (struct fence_value){0};
    enum fence_status status = call(client, record, &request, &answer, error);
    if (status == FENCE_OK && (answer.version == 0 || answer.status != 200))
        status = http_bad_answer(&answer, error, "not a record");
    if (status == FENCE_OK) {
        *value = (struct fence_value){.bytes = answer.body,
                                      .count = answer.body_bytes,
                                      .content_type = strdup(answer.content_type),
                                      .version = answer.version,
                                      .token = answer.token};
        answer.body = NULL;
    }
    http_answer_free(&answer);
    return status;
}

void fence_value_free(struct fence_value *value)
{
    if (!value)
        return;
    free(value->bytes);
    free(value->content_type);
    *value = (struct fence_value){0};
}

enum fence_status fence_delete(struct fence_client *client, const struct fence_record *record,
                               struct fence_error *error)
{
    struct http_answer answer;
    struct http_request request = {.method = "DELETE"};
    enum fence_status status = call(client, record, &request, &answer, error);
    if (status == FENCE_OK && answer.status != 204)
        status = http_bad_answer(&answer, error, "not what a deletion is answered with");
    http_answer_free(&answer);
    return status;
}
