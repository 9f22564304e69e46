/* headers.h - the request's headers and framing, checked before anything else.
 *
 * libmicrohttpd 0.9.75 parses loosely: it keeps doubled headers and a look-up gives the first, a
 * folded header changes its name, a space before the colon becomes part of the name, and
 * Content-Length beside Transfer-Encoding passes. For a fencing token any of these is a way past
 * the check, so all headers are walked once and what is doubled or malformed is refused. */
#ifndef FG_HEADERS_H
#define FG_HEADERS_H

#include "gateway/errors.h"
#include "gateway/request.h"

/* Fills request->headers and request->id. FG_OK; FG_BAD_HEADER or FG_FENCING_TOKEN_MALFORMED, with
 * a sentence (static) in *detail. `*framing`: the fault is one of framing, after which the
 * connection cannot be trusted. Faults of framing are found before all others. */
enum fg_status headers_read(struct request *request, const char **detail, bool *framing);

#endif
