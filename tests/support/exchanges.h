/* exchanges.h - the record of what tests and gateway said to each other (see http.h). */
#ifndef TESTS_EXCHANGES_H
#define TESTS_EXCHANGES_H

#include "tests/support/http.h"

/* Appends one line to the file that FENCEGATE_EXCHANGES names; nothing where it names none. One
 * write, so that tests that run at the same time don't mix their lines. */
void exchange_record(const struct response *response, const char *method, const char *target,
                     const char *const *headers, const void *body, size_t body_bytes);

#endif
