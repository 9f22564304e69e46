/* list_api.c - what all lists share: page size, cursors, the envelope. */
#include "gateway/api.h"

#include "gateway/base64url.h"
#include "gateway/body.h"
#include "gateway/loop.h"
#include "gateway/names.h"
#include "gateway/reply.h"

#include <stdlib.h>
#include <string.h>

/* Lists by name carry the last name, so that it passes through any URL unharmed. */
static bool name_cursor(struct request *request, const char **name)
{
    const char *cursor = request_query(request, "cursor");
    size_t bytes;
    *name = NULL;
    if (!cursor)
        return true;
    char *decoded = arena_alloc(&request->arena, NAME_BYTES_MAX + 1);
    if (!base64url_read(cursor, decoded, NAME_BYTES_MAX, &bytes) || strlen(decoded) != bytes ||
        name_fault(decoded)) {
        query_refuse(request, "cursor", "This is not a cursor that a list has given.");
        return false;
    }
    *name = decoded;
    return true;
}

json_t *list_name_cursor(struct request *request, const char *name)
{
    size_t bytes = strlen(name);
    char *cursor = arena_alloc(&request->arena, BASE64URL_CHARS(bytes) + 1);
    base64url_write(name, bytes, cursor);
    return json_string(cursor);
}

bool list_cursor_number(struct request *request, int64_t *number)
{
    return query_integer(request, "cursor", 0, INT64_C(999999999999999999), 0, number);
}

struct store_op *list_scan(struct request *request, enum store_scan_kind kind,
                           void (*done)(struct store_op *op))
{
    int64_t limit;
    const char *after_name = NULL;
    bool by_name = kind == SCAN_RESOURCES || kind == SCAN_RECORDS;
    if (!query_integer(request, "limit", 1, STORE_PAGE_MAX, PAGE_DEFAULT, &limit) ||
        (by_name && !name_cursor(request, &after_name)))
        return NULL;
    struct store_op *op = arena_alloc(&request->arena, sizeof *op);
    op->kind = STORE_SCAN;
    op->scan = (struct store_scan){
        .kind = kind, .limit = (size_t)limit, .after_name = after_name, .prefix = ""};
    op->done = done;
    op->arg = request;
    return op;
}

void list_reply(struct request *request, json_t *items, json_t *next_cursor)
{
    reply_json(request, 200,
               json_pack("{s:o, s:o}", "items", items, "next_cursor",
                         next_cursor ? next_cursor : json_null()));
}
