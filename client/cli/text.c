/* text.c - text for people and for shells (text.h). */
#include "client/cli/text.h"

#include "client/cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* The bytes of the UTF-8 character at `at` and its code point; 0 where there is none. Never reads
 * behind `left` bytes. */
static size_t decode(const unsigned char *at, size_t left, uint32_t *code)
{
    static const uint32_t smallest[] = {[2] = 0x80, [3] = 0x800, [4] = 0x10000};
    *code = at[0];
    if (at[0] < 0x80)
        return 1;
    size_t length = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (at[0] < 0xc2 || at[0] > 0xf4 || left < length)
        return 0;
    *code &= 0x7fU >> length;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (at[i] & 0x3fU);
    }
    bool surrogate = *code >= 0xd800 && *code <= 0xdfff;
    return *code < smallest[length] || *code > 0x10ffff || surrogate ? 0 : length;
}

/* Controls, the line ends of Unicode, and what turns the direction of writing. */
static bool is_unshown(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069) || code == 0x200e || code == 0x200f || code == 0xfeff;
}

/* Writes what stands for the character at `at`; returns how many bytes of the text that was. */
static size_t escape_one(const char *at, size_t left, char unit[8])
{
    uint32_t code;
    size_t length = decode((const unsigned char *)at, left, &code);
    if (length == 0) {
        snprintf(unit, 8, "\\x%02x", (unsigned char)*at);
        return 1;
    }
    if (code == '\n' || code == '\r' || code == '\t') {
        snprintf(unit, 8, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    } else if (is_unshown(code)) {
        snprintf(unit, 8, "\\u%04x", (unsigned)(code & 0xffff));
    } else {
        memcpy(unit, at, length);
        unit[length] = '\0';
    }
    return length;
}

size_t cli_text_escape(const char *text, char *out, size_t bytes)
{
    size_t used = 0, left = strlen(text);
    while (left > 0) {
        char unit[8];
        size_t taken = escape_one(text, left, unit), length = strlen(unit);
        if (used + length >= bytes)
            break;
        memcpy(out + used, unit, length);
        used += length;
        text += taken;
        left -= taken;
    }
    out[used] = '\0';
    return used;
}

size_t cli_text_columns(const char *escaped)
{
    size_t columns = 0, left = strlen(escaped);
    while (left > 0) {
        uint32_t code;
        size_t length = decode((const unsigned char *)escaped, left, &code);
        /* Without a locale that knows the character wcwidth() is -1. */
        int width = code < 0x80 ? 1 : wcwidth((wchar_t)code);
        columns += width < 0 ? 1 : (size_t)width;
        length = length ? length : 1;
        escaped += length;
        left -= length;
    }
    return columns;
}

bool cli_text_is_utf8(const char *text, size_t bytes)
{
    while (bytes > 0) {
        uint32_t code;
        size_t length = decode((const unsigned char *)text, bytes, &code);
        if (length == 0)
            return false;
        text += length;
        bytes -= length;
    }
    return true;
}

/* Within single quotes a shell leaves everything alone but the single quote. */
void cli_text_print_quoted(FILE *to, const char *text)
{
    putc('\'', to);
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", to);
        else
            putc(*text, to);
    }
    putc('\'', to);
}

const char *cli_text_duration(int64_t ms, char out[CLI_DURATION_BYTES])
{
    enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };
    if (ms < SECOND)
        snprintf(out, CLI_DURATION_BYTES, "%" PRId64 " ms", ms);
    else if (ms < MINUTE)
        snprintf(out, CLI_DURATION_BYTES, "%" PRId64 ".%" PRId64 " s", ms / SECOND,
                 ms % SECOND / 100);
    else if (ms < HOUR)
        snprintf(out, CLI_DURATION_BYTES, "%" PRId64 " min %" PRId64 " s", ms / MINUTE,
                 ms % MINUTE / SECOND);
    else
        snprintf(out, CLI_DURATION_BYTES, "%" PRId64 " h %" PRId64 " min", ms / HOUR,
                 ms % HOUR / MINUTE);
    return out;
}

char *cli_text_base64(const void *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    char *text = cli_need(malloc((count + 2) / 3 * 4 + 1)), *to = text;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t group = (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                         (left > 2 ? from[i + 2] : 0U);
        *to++ = digits[group >> 18];
        *to++ = digits[group >> 12 & 63];
        *to++ = '=';
        *to++ = '=';
        if (left > 1)
            to[-2] = digits[group >> 6 & 63];
        if (left > 2)
            to[-1] = digits[group & 63];
    }
    *to = '\0';
    return text;
}

void *cli_need(void *pointer)
{
    if (pointer)
        return pointer;
    cli_say("out of memory");
    exit(CLI_SYSTEM);
}
