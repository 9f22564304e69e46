/* conditions.h - If-Match and If-None-Match: a record's version as an ETag, "v3". */
#ifndef FG_CONDITIONS_H
#define FG_CONDITIONS_H

#include "storage/store.h"

#include <stdbool.h>
#include <stdint.h>

enum { ETAG_BYTES = 32 };

/* Writes the ETag of a version, quotes included; returns `out`. */
const char *etag_write(int64_t version, char out[ETAG_BYTES]);

/* Reads the condition of a write from its headers (NULL: not sent): If-Match is one ETag or *,
 * If-None-Match is *, not both. NULL, or a sentence (static) that says what is wrong. */
const char *condition_read(const char *if_match, const char *if_none_match,
                           enum version_condition *condition, int64_t *version);

/* Whether If-None-Match of a read names this version: a list of ETags, weak ones too, or *. */
bool none_match_names(const char *if_none_match, int64_t version);

#endif
