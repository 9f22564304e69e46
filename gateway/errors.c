/* errors.c - errors.def as a table. */
#include "gateway/errors.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

enum { CODE_BYTES = 64 };

static const char problem_prefix[] = "/problems/";

/* The type is the prefix and the code with dashes. A constant expression can't replace the
 * underscores, so the table is finished before main() and read-only from then on. */
static char types[FG_STATUS_COUNT][sizeof problem_prefix + CODE_BYTES];

static struct fg_error errors[FG_STATUS_COUNT] = {
#define FG_ERROR(symbol, http, code, retryable, title, meaning) \
    [FG_##symbol] = {http, code, types[FG_##symbol], title, retryable, meaning},
#include "gateway/errors.def"
#undef FG_ERROR
};

__attribute__((constructor)) static void write_types(void)
{
    for (size_t i = FG_OK + 1; i < FG_STATUS_COUNT; i++) {
        char *to = types[i];
        memcpy(to, problem_prefix, sizeof problem_prefix - 1);
        to += sizeof problem_prefix - 1;
        assert(strlen(errors[i].code) < CODE_BYTES);
        for (const char *from = errors[i].code; *from; from++)
            *to++ = *from == '_' ? '-' : *from;
    }
}

const struct fg_error *fg_error(enum fg_status status)
{
    assert(status > FG_OK && status < FG_STATUS_COUNT);
    return &errors[status];
}

enum fg_status fg_error_find(const char *code)
{
    for (size_t i = FG_OK + 1; i < FG_STATUS_COUNT; i++) {
        const char *dashed = types[i] + sizeof problem_prefix - 1;
        if (strcmp(code, errors[i].code) == 0 || strcmp(code, dashed) == 0)
            return (enum fg_status)i;
    }
    return FG_OK;
}
