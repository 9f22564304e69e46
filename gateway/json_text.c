/* json_text.c - appending JSON to a growing text (json_text.h). */
#include "gateway/json_text.h"

#include "gateway/clock.h"
#include "gateway/digits.h"

#include <string.h>

enum { FIRST_ROOM = 768 }; /* a lease with a name and an owner of usual length */

void json_text_open(struct json_text *text, struct arena *arena)
{
    *text = (struct json_text){
        .arena = arena, .start = arena_alloc(arena, FIRST_ROOM), .room = FIRST_ROOM};
}

/* Where `bytes` more can be written. */
static char *reserve(struct json_text *text, size_t bytes)
{
    if (text->room - text->bytes < bytes) {
        size_t room = 2 * text->room > text->bytes + bytes ? 2 * text->room : text->bytes + bytes;
        char *moved = arena_alloc(text->arena, room);
        memcpy(moved, text->start, text->bytes);
        text->start = moved;
        text->room = room;
    }
    return text->start + text->bytes;
}

static void append(struct json_text *text, const char *from, size_t bytes)
{
    memcpy(reserve(text, bytes), from, bytes);
    text->bytes += bytes;
}

/* What comes before a value: a comma, its name. */
static void begin_value(struct json_text *text, const char *name)
{
    char *at = reserve(text, (name ? strlen(name) : 0) + 5);
    char *to = at;
    if (text->comma)
        *to++ = ',';
    if (name) {
        *to++ = '"';
        to = stpcpy(to, name);
        *to++ = '"';
        *to++ = ':';
    }
    text->bytes += (size_t)(to - at);
    text->comma = true;
}

void json_text_begin(struct json_text *text, const char *name, char bracket)
{
    begin_value(text, name);
    append(text, &bracket, 1);
    text->comma = false;
}

void json_text_end(struct json_text *text, char bracket)
{
    append(text, &bracket, 1);
    text->comma = true;
}

static char *escape(char *to, unsigned char byte)
{
    static const char short_forms[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    *to++ = '\\';
    for (const char *form = short_forms; *form; form += 2) {
        if ((unsigned char)*form == byte) {
            *to++ = form[1];
            return to;
        }
    }
    to = stpcpy(to, "u00");
    return digits_write_hex(to, &byte, 1);
}

void json_text_string(struct json_text *text, const char *name, const char *value)
{
    if (!value) {
        json_text_null(text, name);
        return;
    }
    begin_value(text, name);
    /* Room for the worst case, each byte as \u00xx, and the quotes; and hex digits end in a NUL. */
    char *at = reserve(text, 6 * strlen(value) + 3);
    char *to = at;
    *to++ = '"';
    for (const char *from = value; *from; from++) {
        unsigned char byte = (unsigned char)*from;
        if (byte < 0x20 || byte == '"' || byte == '\\')
            to = escape(to, byte);
        else
            *to++ = *from;
    }
    *to++ = '"';
    text->bytes += (size_t)(to - at);
}

void json_text_number(struct json_text *text, const char *name, int64_t value)
{
    begin_value(text, name);
    char *at = reserve(text, DIGITS_CHARS);
    text->bytes += (size_t)(digits_write(at, value) - at);
}

void json_text_number_or_null(struct json_text *text, const char *name, int64_t value)
{
    if (value != 0)
        json_text_number(text, name, value);
    else
        json_text_null(text, name);
}

static void append_word(struct json_text *text, const char *name, const char *word)
{
    begin_value(text, name);
    append(text, word, strlen(word));
}

void json_text_bool(struct json_text *text, const char *name, bool value)
{
    append_word(text, name, value ? "true" : "false");
}

void json_text_null(struct json_text *text, const char *name)
{
    append_word(text, name, "null");
}

void json_text_time(struct json_text *text, const char *name, int64_t wall_ms)
{
    char time[CLOCK_RFC3339_BYTES];
    json_text_string(text, name, wall_ms != 0 ? clock_rfc3339(wall_ms, time) : NULL);
}
