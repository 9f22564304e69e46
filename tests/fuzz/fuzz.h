/* fuzz.h - what the fuzz targets share.
 *
 * A target is one function that takes any bytes, gives them to one parser of the gateway, and
 * checks what came out: MUST() ends the process where a property does not hold, sanitizers do where
 * memory was misused. The program around it is libFuzzer's (make fuzz) or replay.c (make test),
 * which runs the inputs under corpus/. Where a parser asks for something outside itself
 * (libmicrohttpd's list of headers, the Redis link), the target defines that function, and the
 * linker takes it from there. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes one input; always 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition) ((condition) ? (void)0 : fuzz_broken(#condition, __FILE__, __LINE__))

static inline void fuzz_broken(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

/* A copy of exactly `size` bytes and a NUL: a sanitizer sees any read beyond it. To be freed. */
static inline char *fuzz_text(const void *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* Cuts `*rest` at the first `separator`; returns the part before it, NULL where nothing is left. */
static inline char *fuzz_part(char **rest, char separator)
{
    char *part = *rest;
    if (!part)
        return NULL;
    char *end = strchr(part, separator);
    if (end)
        *end++ = '\0';
    *rest = end;
    return part;
}

#endif
