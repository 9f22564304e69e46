/* fuzz_token.c - request headers: fencing tokens, lease ids, conditions, framing.
 *
 * Input: one header a line, "name:value", as libmicrohttpd hands them over: a name may be anything,
 * values are not trimmed. */
#include "tests/fuzz/fuzz.h"

#include "gateway/conditions.h"
#include "gateway/headers.h"
#include "gateway/lease_id.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <strings.h>

enum { HEADERS_MAX = 64 };

static struct {
    const char *name, *value;
} sent[HEADERS_MAX];
static size_t sent_count;

int MHD_get_connection_values(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                              MHD_KeyValueIterator iterator, void *arg)
{
    (void)connection;
    for (size_t i = 0; i < sent_count; i++)
        iterator(arg, kind, sent[i].name, sent[i].value);
    return (int)sent_count;
}

/* Lays the head out as the library does: one buffer, colons and line ends replaced by NUL. */
static char *lay_out(struct request_head *head, size_t size)
{
    char *buffer = calloc(1, 4 * size + 8 * HEADERS_MAX + 8), *at = buffer;
    if (!buffer)
        abort();
    head->headers = at;
    for (size_t i = 0; i < sent_count; i++) {
        const char *name = sent[i].name, *value = sent[i].value ? sent[i].value : "";
        sent[i].name = at;
        at = stpcpy(at, name) + strlen(":");
        sent[i].value = at;
        at = stpcpy(at, value) + strlen("\r\n");
    }
    head->end = at + strlen("\r\n");
    return buffer;
}

/* How often a header was sent; its first value in `*value`. */
static size_t find(const char *name, const char **value)
{
    size_t count = 0;
    for (size_t i = 0; i < sent_count; i++) {
        if (strcasecmp(sent[i].name, name) == 0 && count++ == 0)
            *value = sent[i].value;
    }
    return count;
}

/* What was taken is exactly what was sent, once, in the one way to write it. */
static void check_taken(const struct request_headers *headers)
{
    char text[LEASE_ID_CHARS + 1];
    const char *value = NULL;
    MUST(headers->has_token == (find("X-Fencing-Token", &value) == 1));
    if (headers->has_token) {
        MUST(headers->token >= 1 && headers->token <= FENCING_TOKEN_MAX);
        snprintf(text, sizeof text, "%" PRId64, headers->token);
        MUST(strcmp(text, value) == 0);
    }
    MUST(headers->has_lease == (find("X-Lease-Id", &value) == 1));
    if (headers->has_lease && headers->lease.resource_id != 0) {
        lease_id_write(&headers->lease, text);
        MUST(strcmp(text, value) == 0);
    }
    MUST(find("Content-Length", &value) <= 1 && find("Transfer-Encoding", &value) <= 1);
    MUST(find("Content-Length", &value) == 0 || find("Transfer-Encoding", &value) == 0);
    MUST(headers->content_length >= 0 || find("Content-Length", &value) == 0);
}

static void check_conditions(const struct request_headers *headers)
{
    enum version_condition condition = VERSION_ANY;
    int64_t version = 0;
    char etag[ETAG_BYTES];
    const char *fault =
        condition_read(headers->if_match, headers->if_none_match, &condition, &version);
    if (!fault && condition == VERSION_EQUALS) {
        MUST(version >= 1);
        MUST(strcmp(etag_write(version, etag), headers->if_match) == 0);
        MUST(none_match_names(headers->if_match, version));
    }
    if (headers->if_none_match)
        none_match_names(headers->if_none_match, 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *lines = fuzz_text(data, size), *rest = lines;
    sent_count = 0;
    for (char *line; sent_count < HEADERS_MAX && (line = fuzz_part(&rest, '\n'));) {
        sent[sent_count].name = fuzz_part(&line, ':');
        sent[sent_count++].value = line;
    }

    struct request *request = calloc(1, sizeof *request);
    const char *detail = NULL;
    bool framing = false;
    if (!request)
        abort();
    char *buffer = lay_out(&request->head, size);
    enum fg_status status = headers_read(request, &detail, &framing);
    MUST((status == FG_OK) == (detail == NULL));
    MUST(!framing || status == FG_BAD_HEADER);
    MUST(sent_count > 0 || status == FG_OK);
    MUST(request->id[0] != '\0' && strlen(request->id) <= REQUEST_ID_CHARS);
    if (status == FG_OK) {
        check_taken(&request->headers);
        check_conditions(&request->headers);
    }
    arena_free(&request->arena);
    free(request);
    free(buffer);
    free(lines);
    return 0;
}
