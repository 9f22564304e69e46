/* conditions.c - reading and writing ETags (conditions.h). */
#include "gateway/conditions.h"

#include "gateway/digits.h"

#include <stdlib.h>
#include <string.h>

const char *etag_write(int64_t version, char out[ETAG_BYTES])
{
    char *end = digits_write(stpcpy(out, "\"v"), version);
    stpcpy(end, "\"");
    return out;
}

/* Reads "v<n>", quotes included, from the start of `text`; returns what is behind it or NULL. */
static const char *etag_read(const char *text, int64_t *version)
{
    if (strncmp(text, "\"v", 2) != 0)
        return NULL;
    const char *digits = text + 2;
    size_t count = strspn(digits, "0123456789");
    if (count == 0 || count > 18 || digits[0] == '0' || digits[count] != '"')
        return NULL;
    *version = strtoll(digits, NULL, 10);
    return digits + count + 1;
}

const char *condition_read(const char *if_match, const char *if_none_match,
                           enum version_condition *condition, int64_t *version)
{
    *condition = VERSION_ANY;
    if (if_match && if_none_match)
        return "If-Match and If-None-Match exclude each other.";
    if (if_none_match) {
        *condition = VERSION_ABSENT;
        return strcmp(if_none_match, "*") == 0 ? NULL : "If-None-Match on a write can only be *.";
    }
    if (!if_match)
        return NULL;
    if (strcmp(if_match, "*") == 0) {
        *condition = VERSION_EXISTS;
        return NULL;
    }
    *condition = VERSION_EQUALS;
    const char *end = etag_read(if_match, version);
    return end && *end == '\0' ? NULL : "If-Match is one ETag, as \"v3\", or *.";
}

bool none_match_names(const char *if_none_match, int64_t version)
{
    const char *at = if_none_match;
    while (*at) {
        int64_t named;
        at += strspn(at, " \t,");
        if (*at == '*')
            return true;
        if (strncmp(at, "W/", 2) == 0)
            at += 2;
        if (etag_read(at, &named) && named == version)
            return true;
        at += strcspn(at, ",");
    }
    return false;
}
