/* arena.h - memory that is freed all at once: the strings and arrays of one answer.
 *
 * A zeroed struct is an empty arena. Not thread-safe; an arena belongs to whoever holds it. Running
 * out of memory ends the process: a lock service that half works is worse than one that restarts.
 */
#ifndef FG_ARENA_H
#define FG_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks;
};

/* `bytes` zeroed bytes, aligned for anything; never NULL. */
void *arena_alloc(struct arena *arena, size_t bytes);

/* A copy of `bytes` bytes with a NUL behind it. */
char *arena_copy(struct arena *arena, const void *from, size_t bytes);

/* A copy of a string; NULL for NULL. */
char *arena_string(struct arena *arena, const char *from);

/* Frees everything; the arena is empty again. */
void arena_free(struct arena *arena);

#endif
