/* fuzz_json.c - JSON bodies against a table of fields like that of POST /leases, and their
 * refusals.
 *
 * Input: the body. */
#include "tests/fuzz/fuzz.h"

#include "gateway/body.h"
#include "gateway/names.h"

struct wish {
    const char *resource;
    const char *owner;
    int64_t ttl_ms;
    int64_t limit;
};

static const struct body_field fields[] = {
    {"resource", BODY_NAME, true, 0, 0, offsetof(struct wish, resource), "A name."},
    {"owner", BODY_STRING, false, 0, 128, offsetof(struct wish, owner), "At most 128 bytes."},
    {"ttl_ms", BODY_INTEGER, false, 50, 86400000, offsetof(struct wish, ttl_ms), "50 to 86400000."},
    {"limit", BODY_INTEGER, false, 1, 1000, offsetof(struct wish, limit), "1 to 1000."},
};

static void read_with(const struct body_field *table, size_t count, const uint8_t *data,
                      size_t size)
{
    struct wish wish = {.ttl_ms = 30000};
    struct request *request = request_new(NULL, NULL, "POST", "/leases");
    request->body = fuzz_text(data, size);
    request->body_bytes = size;
    bool taken = body_read(request, table, count, &wish);
    MUST(taken == (request->response == NULL));
    MUST(taken || request->http == 400);
    if (taken && count > 0) {
        MUST(wish.resource && name_fault(wish.resource) == NULL);
        MUST(!wish.owner || strlen(wish.owner) <= 128);
        MUST(wish.ttl_ms >= 50 && wish.ttl_ms <= 86400000);
        MUST(wish.limit >= 0 && wish.limit <= 1000);
    }
    request_free(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_with(fields, sizeof fields / sizeof fields[0], data, size);
    read_with(NULL, 0, data, size);
    return 0;
}
