/* cleanup.c - a stack of undo functions. */
#include "tests/support/cleanup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct entry {
    struct entry *below;
    void (*undo)(void *);
    void *arg;
};

static struct entry *top;
static struct entry *kept; /* this one and all below it are the file's */
static bool failed;

static void undo_down_to(const struct entry *bottom)
{
    while (top != bottom) {
        struct entry entry = *top;
        free(top);
        top = entry.below;
        entry.undo(entry.arg);
    }
}

static void undo_all(void)
{
    kept = NULL;
    undo_down_to(NULL);
    if (failed)
        _Exit(1); /* too late for a teardown to say so */
}

void *cleanup_add(void (*undo)(void *), void *arg)
{
    static bool registered;
    if (!registered) {
        registered = true;
        atexit(undo_all);
    }

    struct entry *entry = malloc(sizeof *entry);
    if (!entry)
        abort();
    *entry = (struct entry){.below = top, .undo = undo, .arg = arg};
    top = entry;
    return arg;
}

void cleanup_forget(const void *arg)
{
    for (struct entry **at = &top; *at; at = &(*at)->below) {
        struct entry *entry = *at;
        if (entry->arg != arg)
            continue;
        if (kept == entry)
            kept = entry->below;
        *at = entry->below;
        free(entry);
        return;
    }
}

void cleanup_keep(void)
{
    kept = top;
}

void cleanup_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    failed = true;
}

int cleanup_test(void **state)
{
    (void)state;
    undo_down_to(kept);
    bool result = failed;
    failed = false;
    return result ? -1 : 0;
}

void *test_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory)
        abort();
    return cleanup_add(free, memory);
}

char *test_printf(const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int bytes = vasprintf(&text, format, args);
    va_end(args);
    if (bytes < 0)
        abort();
    cleanup_add(free, text);
    return text;
}
