/* log.c - builds a line on the stack and hands it to stderr in one write(2).
 *
 * Never waiting: a line is at most PIPE_BUF bytes, which a pipe takes whole or not at all, and
 * poll(2) calls a pipe writable only while it has room for that much. So "poll, then write" under
 * one mutex can't block, and no thread waits long for the mutex. O_NONBLOCK would be shorter, but
 * it belongs to the open file, which our parent and siblings share.
 *
 * Always well formed: text is appended in units (a character, an escape, a number) that fit as a
 * whole or not at all, and TAIL_BYTES are kept free for what closes the line. */
#include "gateway/log.h"

#include "gateway/clock.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LINE_BYTES = 4096, /* with its newline */
    TAIL_BYTES = 16,   /* the longest tail: ",\"cut\":true}\n" after a closing quote */
};
_Static_assert(LINE_BYTES <= PIPE_BUF, "a pipe must take a line whole");

struct line {
    char bytes[LINE_BYTES];
    size_t length;
    bool cut; /* something did not fit: nothing more is appended but the tail */
};

static const char *const text_levels[] = {"DEBUG", "INFO ", "WARN ", "ERROR"};
static const char *const json_levels[] = {"debug", "info", "warn", "error"};

static enum log_level least_level = LOG_INFO;
static bool json;

static pthread_mutex_t stderr_mutex = PTHREAD_MUTEX_INITIALIZER;
static int64_t lost_lines; /* guarded by stderr_mutex */

void log_configure(enum log_level least, enum log_format format)
{
    least_level = least;
    json = format == LOG_JSON;
}

bool log_enabled(enum log_level level)
{
    return level >= least_level;
}

/* Appends one unit, or marks the line as cut. */
static void put(struct line *line, const char *unit)
{
    size_t length = strlen(unit);
    if (line->cut || line->length + length > LINE_BYTES - TAIL_BYTES) {
        line->cut = true;
        return;
    }
    memcpy(line->bytes + line->length, unit, length);
    line->length += length;
}

/* Appends a piece of the tail, which always fits. */
static void put_tail(struct line *line, const char *piece)
{
    size_t length = strlen(piece);
    assert(length <= LINE_BYTES - line->length);
    memcpy(line->bytes + line->length, piece, length);
    line->length += length;
}

/* The bytes of the UTF-8 character at `at` and its code point; 0 where there is no valid one. Never
 * reads past the NUL, which can't continue a character. */
static size_t decode(const unsigned char *at, uint32_t *code)
{
    *code = at[0];
    if (at[0] < 0x80)
        return 1;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    size_t length = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    *code &= 0x7fu >> length;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (at[i] & 0x3f);
    }
    static const uint32_t smallest[] = {[2] = 0x80, [3] = 0x800, [4] = 0x10000};
    bool surrogate = *code >= 0xd800 && *code <= 0xdfff;
    return *code < smallest[length] || *code > 0x10ffff || surrogate ? 0 : length;
}

/* Whether a character would leave its line, its quotes or the terminal's good manners: C0 and C1
 * controls, DEL, and the two Unicode line ends. */
static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
}

/* Appends a string with everything escaped that must be, in a form that JSON reads, too. A byte
 * that is not UTF-8 becomes \xHH in text and U+FFFD in JSON, which knows no bytes. */
static void put_escaped(struct line *line, const char *string)
{
    const unsigned char *at = (const unsigned char *)string;
    while (*at && !line->cut) {
        uint32_t code;
        size_t length = decode(at, &code);
        char unit[8] = "";
        if (length == 0 && json)
            strcpy(unit, "\\ufffd");
        else if (length == 0)
            snprintf(unit, sizeof unit, "\\x%02x", at[0]);
        else if (code == '"' || code == '\\')
            snprintf(unit, sizeof unit, "\\%c", (char)code);
        else if (code == '\n' || code == '\r' || code == '\t')
            snprintf(unit, sizeof unit, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
        else if (is_control(code))
            snprintf(unit, sizeof unit, "\\u%04x", (unsigned)code & 0xffff);
        else
            memcpy(unit, at, length);
        put(line, unit);
        at += length ? length : 1;
    }
}

/* Whether a value of the text form could be misread without quotes. */
static bool needs_quotes(const char *value)
{
    for (const char *at = value; *at; at++)
        if (*at <= ' ' || *at > '~' || *at == '"' || *at == '\\' || *at == '=')
            return true;
    return *value == '\0';
}

/* A field whose name or number does not fit is left out; a string is cut. */
static void put_field(struct line *line, const struct log_field *field)
{
    size_t start = line->length;
    bool quoted = field->string && (json || needs_quotes(field->string));
    put(line, json ? ",\"" : " ");
    put_escaped(line, field->name);
    put(line, json ? "\":" : "=");
    if (quoted)
        put(line, "\"");
    if (!field->string) {
        char number[24];
        snprintf(number, sizeof number, "%" PRId64, field->number);
        put(line, number);
    }
    if (line->cut) {
        line->length = start;
        return;
    }
    if (field->string)
        put_escaped(line, field->string);
    if (quoted)
        put_tail(line, "\"");
}

static void build(struct line *line, enum log_level level, const char *message,
                  const struct log_field *fields, size_t count)
{
    char now[CLOCK_RFC3339_BYTES];
    clock_rfc3339(clock_wall_ms(), now);
    line->length = 0;
    line->cut = false;
    put(line, json ? "{\"ts\":\"" : "");
    put(line, now);
    put(line, json ? "\",\"level\":\"" : " ");
    put(line, json ? json_levels[level] : text_levels[level]);
    put(line, json ? "\",\"msg\":\"" : " ");
    put_escaped(line, message);
    put_tail(line, json ? "\"" : "");
    for (size_t i = 0; i < count && !line->cut; i++)
        put_field(line, &fields[i]);
    if (line->cut)
        put_tail(line, json ? ",\"cut\":true" : " ...");
    put_tail(line, json ? "}\n" : "\n");
}

/* Whether the line was written. A pipe without a reader counts as full: writing is SIGPIPE. */
static bool emit(const struct line *line)
{
    struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&to, 1, 0) != 1 || to.revents != POLLOUT)
        return false;
    ssize_t written;
    do
        written = write(STDERR_FILENO, line->bytes, line->length);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)line->length;
}

/* Writes the line that says how many were lost. With stderr_mutex. */
static bool emit_loss(void)
{
    struct line line;
    build(&line, LOG_WARN, "log lines lost", LOG_FIELDS(LOG_INT("count", lost_lines)), 1);
    if (!emit(&line))
        return false;
    lost_lines = 0;
    return true;
}

void log_write(enum log_level level, const char *message, const struct log_field *fields,
               size_t count)
{
    if (!log_enabled(level))
        return;
    int saved_errno = errno;
    struct line line;
    build(&line, level, message, fields, count);

    pthread_mutex_lock(&stderr_mutex);
    bool through = (lost_lines == 0 || emit_loss()) && emit(&line);
    if (!through)
        lost_lines++;
    pthread_mutex_unlock(&stderr_mutex);
    errno = saved_errno;
}
