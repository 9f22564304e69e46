/* text.h - text for people and for shells: escaped, measured, quoted. Main thread only. */
#ifndef FENCE_CLI_TEXT_H
#define FENCE_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    CLI_ESCAPED_MOST = 6, /* bytes that one byte becomes at most */
    CLI_DURATION_BYTES = 32
};

/* Copies `text` to `out`, with everything escaped that could do more to a terminal than show a
 * character: controls and line ends (\n, \r, \t, \u001b), marks that turn the direction of
 * writing, and bytes that are not UTF-8 (\xff). What does not fit into `bytes`, with its NUL, is
 * cut between two characters. Returns the length. */
size_t cli_text_escape(const char *text, char *out, size_t bytes);

/* The columns that an escaped text takes on a terminal. */
size_t cli_text_columns(const char *escaped);

/* Whether all of it is UTF-8. */
bool cli_text_is_utf8(const char *text, size_t bytes);

/* Prints `text` as one word of sh, in single quotes. */
void cli_text_print_quoted(FILE *to, const char *text);

/* A duration for people: "850 ms", "12.4 s", "5 min 20 s", "3 h 10 min". Returns `out`. */
const char *cli_text_duration(int64_t ms, char out[CLI_DURATION_BYTES]);

/* Base64 with padding (RFC 4648); malloc()ed, never NULL. */
char *cli_text_base64(const void *bytes, size_t count);

/* `pointer`, which malloc() or json_...() gave; NULL: says that memory is out, and exits. */
void *cli_need(void *pointer);

#endif
