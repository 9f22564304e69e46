/* fuzz_path.c - the head of a request: routes, percent-decoding, names, query, and every refusal
 * with its body.
 *
 * Input: "METHOD target", then one header a line, "name:value". The target is cut into path and
 * query as libmicrohttpd does, and nothing is unescaped. */
#include "tests/fuzz/fuzz.h"

#include "gateway/loop.h"
#include "gateway/names.h"
#include "gateway/request.h"
#include "gateway/router.h"

#include <microhttpd.h>

enum { PAIRS_MAX = 32 };

struct pairs {
    struct {
        const char *name, *value;
    } at[PAIRS_MAX];
    size_t count;
};

static struct pairs headers, query;

int MHD_get_connection_values(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                              MHD_KeyValueIterator iterator, void *arg)
{
    (void)connection;
    const struct pairs *pairs = kind == MHD_HEADER_KIND ? &headers : &query;
    for (size_t i = 0; i < pairs->count; i++) {
        if (iterator(arg, kind, pairs->at[i].name, pairs->at[i].value) == MHD_NO)
            break;
    }
    return (int)pairs->count;
}

static void take_pairs(struct pairs *pairs, char *text, char between, char inside)
{
    pairs->count = 0;
    for (char *part; pairs->count < PAIRS_MAX && (part = fuzz_part(&text, between));) {
        pairs->at[pairs->count].name = fuzz_part(&part, inside);
        pairs->at[pairs->count++].value = part;
    }
}

/* A parameter, escaped again, leads to the same place: decoding loses nothing and happens once. */
static void check_parameters(const struct request *request)
{
    for (size_t i = 0; i < REQUEST_PARAMETERS_MAX && request->parameters[i]; i++) {
        const char *name = request->parameters[i];
        size_t bytes = strlen(name);
        char *escaped = malloc(3 * bytes + 1), *decoded = malloc(bytes + 1);
        if (!escaped || !decoded)
            abort();
        for (size_t at = 0; at < bytes; at++)
            sprintf(escaped + 3 * at, "%%%02x", (unsigned)(unsigned char)name[at]);
        MUST(percent_decode(escaped, 3 * bytes, decoded) && strcmp(decoded, name) == 0);
        if (strstr(request->route->pattern, "{id}") == NULL &&
            strstr(request->route->pattern, "{code}") == NULL)
            MUST(name_fault(name) == NULL && utf8_valid(name, bytes) && bytes <= NAME_BYTES_MAX);
        free(escaped);
        free(decoded);
    }
}

static void check_head(const char *method, const char *path)
{
    static struct config config = {.max_body_bytes = 1 << 20};
    static struct loop loop = {.config = &config};
    struct request *request = request_new(&loop, NULL, method, path);
    bool usable = request_check(request);
    if (request->response) {
        MUST(request->http >= 400 && request->http < 500);
        MUST(usable || request->http == 400);
    } else {
        MUST(usable && request->route);
        check_parameters(request);
    }
    request_free(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *lines = text;
    char *target = fuzz_part(&lines, '\n');
    const char *method = fuzz_part(&target, ' ');
    if (target) {
        char *path = fuzz_part(&target, '?');
        for (char *plus = target; plus && (plus = strchr(plus, '+')) != NULL;)
            *plus = ' ';
        take_pairs(&query, target, '&', '=');
        take_pairs(&headers, lines, '\n', ':');
        check_head(method, path);
    }
    free(text);
    return 0;
}
