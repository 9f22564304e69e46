/* log.h - one line per event to stderr, as text or JSON.
 *
 * A line has a time, a level, a message of a few fixed words, and fields. It never holds a lease
 * id (at most 8 characters of its random part, as lease_ref) or a record's key or value.
 *
 *     log_info("redis lost", LOG_STR("why", reason), LOG_INT("retry_ms", backoff_ms));
 *
 *     text  2026-11-29T12:00:00.123Z INFO  redis lost why="connection reset" retry_ms=100
 *     json  {"ts":"2026-11-29T12:00:00.123Z","level":"info","msg":"redis lost","why":...}
 *
 * Any thread. A line is one write(2) of at most 4096 bytes (a longer one is cut and ends in " ..."
 * or "cut":true); where stderr is a pipe that nobody reads, the line is dropped and counted, never
 * waited for; the next line that gets through is preceded by one that says how many were lost. */
#ifndef FG_LOG_H
#define FG_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

struct log_field {
    const char *name;
    const char *string; /* NULL: the field is `number` */
    int64_t number;
};

#define LOG_STR(key, value) log_string_field((key), (value))
#define LOG_INT(key, value) ((struct log_field){.name = (key), .number = (value)})

/* LOG_STR: NULL is written as the empty string. */
static inline struct log_field log_string_field(const char *name, const char *value)
{
    return (struct log_field){.name = name, .string = value ? value : ""};
}

/* Sets what is written from now on; before it: LOG_INFO as text. Call before other threads run;
 * config_read() does. */
void log_configure(enum log_level least, enum log_format format);

/* Whether a line of this level would be written: for fields that cost something to compute. */
bool log_enabled(enum log_level level);

/* Writes one line. `message` and the fields are borrowed for the call; strings may hold any bytes:
 * control characters, quotes and invalid UTF-8 are escaped so that a line stays one line and
 * the JSON form stays valid JSON. Leaves errno alone. Not between fork() and exec(). */
void log_write(enum log_level level, const char *message, const struct log_field *fields,
               size_t count);

#define LOG_FIELDS(...) ((const struct log_field[]){__VA_ARGS__})
#define LOG_LINE(level, message, ...)                  \
    log_write(level, message, LOG_FIELDS(__VA_ARGS__), \
              sizeof LOG_FIELDS(__VA_ARGS__) / sizeof(struct log_field))

#define log_debug(message, ...) LOG_LINE(LOG_DEBUG, message, __VA_ARGS__)
#define log_info(message, ...)  LOG_LINE(LOG_INFO, message, __VA_ARGS__)
#define log_warn(message, ...)  LOG_LINE(LOG_WARN, message, __VA_ARGS__)
#define log_error(message, ...) LOG_LINE(LOG_ERROR, message, __VA_ARGS__)

#endif
