/* json_text.h - writing JSON straight into text, for the answers of the hot path.
 *
 * A lease and a written record are answered tens of thousands of times a second; to build a tree of
 * jansson values, print it and free it again took as long as everything else the loop does for such
 * a request. Here each member is appended once. Rarer answers are built with jansson (reply.h).
 *
 *     struct json_text text;
 *     json_text_open(&text, arena);
 *     json_text_begin(&text, NULL, '{');
 *     json_text_number(&text, "version", 3);
 *     json_text_end(&text, '}');                      text.bytes bytes at text.start, no NUL
 *
 * Names are plain ASCII and written as they are. Values are UTF-8; what JSON needs escaped is. Loop
 * thread only. */
#ifndef FG_JSON_TEXT_H
#define FG_JSON_TEXT_H

#include "storage/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_text {
    struct arena *arena;
    char *start;  /* in the arena; moves while it grows */
    size_t bytes; /* written so far */
    size_t room;
    bool comma; /* the next value follows another one */
};

/* An empty text, which will lie in `arena`. */
void json_text_open(struct json_text *text, struct arena *arena);

/* Opens an object ('{') or array ('['). In each call `name` is the member's name, NULL inside an
 * array and at the top. */
void json_text_begin(struct json_text *text, const char *name, char bracket);

/* Closes it: '}' or ']'. */
void json_text_end(struct json_text *text, char bracket);

/* A string; NULL: null. */
void json_text_string(struct json_text *text, const char *name, const char *value);

void json_text_number(struct json_text *text, const char *name, int64_t value);

/* A number; 0: null. */
void json_text_number_or_null(struct json_text *text, const char *name, int64_t value);

void json_text_bool(struct json_text *text, const char *name, bool value);

void json_text_null(struct json_text *text, const char *name);

/* RFC 3339, from milliseconds of the wall clock; 0: null. */
void json_text_time(struct json_text *text, const char *name, int64_t wall_ms);

#endif
