/* arena.c - a list of blocks; small requests share one. */
#include "storage/arena.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1024 };

struct arena_block {
    struct arena_block *next;
    size_t used;
    size_t size;
    alignas(max_align_t) unsigned char bytes[];
};

static struct arena_block *block_new(size_t size)
{
    struct arena_block *block = calloc(1, sizeof *block + size);
    if (!block) {
        fputs("fencegate: out of memory\n", stderr);
        abort();
    }
    block->size = size;
    return block;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    size_t rounded = (bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    struct arena_block *block = arena->blocks;
    if (!block || block->size - block->used < rounded) {
        block = block_new(rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES);
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *at = block->bytes + block->used;
    block->used += rounded;
    return at;
}

char *arena_copy(struct arena *arena, const void *from, size_t bytes)
{
    char *to = arena_alloc(arena, bytes + 1);
    if (bytes > 0)
        memcpy(to, from, bytes);
    return to;
}

char *arena_string(struct arena *arena, const char *from)
{
    return from ? arena_copy(arena, from, strlen(from)) : NULL;
}

void arena_free(struct arena *arena)
{
    struct arena_block *block = arena->blocks;
    while (block) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
    arena->blocks = NULL;
}
