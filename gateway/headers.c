/* headers.c - one walk over all headers (headers.h): a table of those we know, and their readers.
 */
#include "gateway/headers.h"

#include "gateway/digits.h"
#include "gateway/faults.h"
#include "gateway/lease_id.h"
#include "gateway/random.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CONTENT_TYPE_BYTES_MAX = 255, GENERATED_ID_BYTES = 8 };

enum known_header {
    HEADER_CONTENT_LENGTH,
    HEADER_TRANSFER_ENCODING,
    HEADER_HOST,
    HEADER_EXPECT,
    HEADER_CONTENT_TYPE,
    HEADER_IF_MATCH,
    HEADER_IF_NONE_MATCH,
    HEADER_FENCING_TOKEN,
    HEADER_LEASE_ID,
    HEADER_REQUEST_ID,
    HEADER_IDEMPOTENCY_KEY,
    HEADER_COUNT
};

static const char *const names[HEADER_COUNT] = {
    [HEADER_CONTENT_LENGTH] = "Content-Length",
    [HEADER_TRANSFER_ENCODING] = "Transfer-Encoding",
    [HEADER_HOST] = "Host",
    [HEADER_EXPECT] = "Expect",
    [HEADER_CONTENT_TYPE] = "Content-Type",
    [HEADER_IF_MATCH] = "If-Match",
    [HEADER_IF_NONE_MATCH] = "If-None-Match",
    [HEADER_FENCING_TOKEN] = "X-Fencing-Token",
    [HEADER_LEASE_ID] = "X-Lease-Id",
    [HEADER_REQUEST_ID] = "X-Request-Id",
    [HEADER_IDEMPOTENCY_KEY] = "Idempotency-Key",
};

/* What the walk found. */
struct walk {
    const char *values[HEADER_COUNT];
    unsigned counts[HEADER_COUNT];
    bool bad_name;    /* not a token, or a known name with something glued to it */
    const char *next; /* where the next header must begin */
    bool gap;         /* it did not */
};

static bool is_token(const char *name)
{
    static const char token_chars[] = "!#$%&'*+-.^_`|~0123456789"
                                      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    return name[0] != '\0' && name[strspn(name, token_chars)] == '\0';
}

static enum MHD_Result on_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    (void)kind;
    struct walk *walk = arg;
    if (!value)
        value = "";
    walk->gap |= name != walk->next;
    walk->next = value + strlen(value) + strlen("\r\n");
    if (!is_token(name)) {
        walk->bad_name = true;
        return MHD_YES;
    }
    for (size_t i = 0; i < HEADER_COUNT; i++) {
        size_t length = strlen(names[i]);
        if (strncasecmp(name, names[i], length) != 0)
            continue;
        if (name[length] == '\0') {
            if (PLANTED(first_header_wins) && walk->counts[i] > 0)
                continue;
            walk->values[i] = value;
            walk->counts[i]++;
        } else if (i != HEADER_HOST && i != HEADER_EXPECT) {
            walk->bad_name = true; /* a folded line, glued to the name: "X-Fencing-Token7" */
        }
    }
    return MHD_YES;
}

/* ---- Framing -------------------------------------------------------------------------------- */

/* The library ends strings in its buffer with NUL and hands out pointers into it, so a NUL that was
 * sent cuts a value short, or, at the start of a line, ends the head early, and cannot be seen. But
 * in an orderly head each part lies exactly where the one before it ends, and the head ends behind
 * the last one's blank line. Folded lines, bare line feeds and empty names leave a gap, too. */
static bool head_is_whole(const struct request_head *head, const struct walk *walk)
{
    return head->headers && !walk->gap && walk->next + strlen("\r\n") == head->end;
}

static const char *framing_fault(const struct request *request, const struct walk *walk)
{
    if (!head_is_whole(&request->head, walk))
        return "The head holds a NUL byte, a folded line, or a line that does not end in CRLF.";
    if (walk->bad_name)
        return "A header name holds characters that no header name may hold.";
    if (walk->counts[HEADER_CONTENT_LENGTH] > 1)
        return "There is more than one Content-Length.";
    if (walk->counts[HEADER_TRANSFER_ENCODING] > 1)
        return "There is more than one Transfer-Encoding.";
    if (walk->counts[HEADER_HOST] > 1)
        return "There is more than one Host.";
    if (walk->values[HEADER_CONTENT_LENGTH] && walk->values[HEADER_TRANSFER_ENCODING])
        return "Content-Length and Transfer-Encoding exclude each other.";
    if (walk->values[HEADER_TRANSFER_ENCODING] &&
        strcasecmp(walk->values[HEADER_TRANSFER_ENCODING], "chunked") != 0)
        return "Transfer-Encoding can only be chunked.";
    const char *length = walk->values[HEADER_CONTENT_LENGTH];
    if (length &&
        (length[0] == '\0' || length[strspn(length, "0123456789")] != '\0' || strlen(length) > 18))
        return "Content-Length is not a number.";
    return NULL;
}

/* ---- Values --------------------------------------------------------------------------------- */

/* ^[1-9][0-9]{0,15}$ and at most 2^53 - 1 */
static bool read_token(const char *text, int64_t *token)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 16 || text[digits] != '\0' || text[0] == '0')
        return false;
    *token = strtoll(text, NULL, 10);
    return *token <= FENCING_TOKEN_MAX;
}

static bool printable(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e)
            return false;
    }
    return true;
}

static bool request_id_valid(const char *id)
{
    size_t length = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                               "0123456789._-");
    return length >= 1 && length <= REQUEST_ID_CHARS && id[length] == '\0';
}

static void take_request_id(struct request *request, const struct walk *walk)
{
    const char *sent = walk->values[HEADER_REQUEST_ID];
    if (sent && walk->counts[HEADER_REQUEST_ID] == 1 && request_id_valid(sent)) {
        memcpy(request->id, sent, strlen(sent) + 1);
        return;
    }
    uint8_t bytes[GENERATED_ID_BYTES];
    random_bytes(bytes, sizeof bytes);
    digits_write_hex(request->id, bytes, sizeof bytes);
}

static const char *doubled_fault(const struct walk *walk)
{
    for (size_t i = 0; i < HEADER_COUNT; i++) {
        if (walk->counts[i] > 1 && i != HEADER_FENCING_TOKEN && i != HEADER_REQUEST_ID)
            return "A header that may stand once stands twice.";
    }
    return NULL;
}

static const char *value_fault(const struct walk *walk)
{
    const char *type = walk->values[HEADER_CONTENT_TYPE];
    const char *expect = walk->values[HEADER_EXPECT];
    if (walk->values[HEADER_IDEMPOTENCY_KEY])
        return "Idempotency-Key is not supported yet.";
    if (type && (type[0] == '\0' || strlen(type) > CONTENT_TYPE_BYTES_MAX || !printable(type)))
        return "Content-Type is 1 to 255 printable ASCII characters.";
    if (walk->values[HEADER_LEASE_ID] && walk->values[HEADER_LEASE_ID][0] == '\0')
        return "X-Lease-Id is empty.";
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return "Expect can only be 100-continue.";
    return NULL;
}

enum fg_status headers_read(struct request *request, const char **detail, bool *framing)
{
    struct request_headers *headers = &request->headers;
    struct walk walk = {.next = request->head.headers};
    MHD_get_connection_values(request->connection, MHD_HEADER_KIND, on_header, &walk);
    take_request_id(request, &walk);
    headers->content_length = walk.values[HEADER_CONTENT_LENGTH]
                                  ? strtoll(walk.values[HEADER_CONTENT_LENGTH], NULL, 10)
                                  : -1;
    headers->content_type = walk.values[HEADER_CONTENT_TYPE];
    headers->if_match = walk.values[HEADER_IF_MATCH];
    headers->if_none_match = walk.values[HEADER_IF_NONE_MATCH];
    headers->chunked = walk.values[HEADER_TRANSFER_ENCODING] != NULL;
    headers->expects_continue = walk.values[HEADER_EXPECT] != NULL;
    headers->has_lease = walk.values[HEADER_LEASE_ID] != NULL;
    if (headers->has_lease && !lease_id_read(walk.values[HEADER_LEASE_ID], &headers->lease))
        headers->lease.resource_id = 0;
    headers->has_token = walk.values[HEADER_FENCING_TOKEN] != NULL;

    *detail = framing_fault(request, &walk);
    *framing = *detail != NULL;
    if (!*detail)
        *detail = doubled_fault(&walk);
    if (!*detail)
        *detail = value_fault(&walk);
    if (*detail)
        return FG_BAD_HEADER;
    if (headers->has_token && (walk.counts[HEADER_FENCING_TOKEN] != 1 ||
                               !read_token(walk.values[HEADER_FENCING_TOKEN], &headers->token))) {
        *detail =
            "X-Fencing-Token is exactly one number from 1 to 9007199254740991, in plain digits.";
        return FG_FENCING_TOKEN_MALFORMED;
    }
    return FG_OK;
}
