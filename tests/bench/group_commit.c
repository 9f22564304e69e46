/* group_commit.c - what the store alone costs: SQLite on one thread, without HTTP.
 *
 *     group_commit DATA_DIR SECONDS
 *
 * Transactions of 1, 8, 64 and 256 fenced writes each, over 1000 resources, values of 100 bytes;
 * for SECONDS each. Prints one line per size: "<ops per commit> <writes a second>". Nothing that
 * commits so many writes together can be faster than this on this disk. */
#include "gateway/clock.h"
#include "tests/bench/bare_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESOURCES = 1000, VALUE_BYTES = 100, TTL_MS = 86400000 };

static const char *resource_name(int number, char out[32])
{
    snprintf(out, 32, "bench:%06d", number);
    return out;
}

static void grant_all(struct bare_store *store)
{
    char name[32];
    struct lease_pair pair = {.token = 1};
    bare_store_begin(store);
    for (int i = 0; i < RESOURCES; i++)
        bare_store_grant(store, resource_name(i, name), &pair, TTL_MS);
    bare_store_commit(store);
}

static double writes_per_second(struct bare_store *store, int group, double seconds)
{
    char name[32], value[VALUE_BYTES];
    int64_t writes = 0, began_ms = clock_boot_ms(), now_ms = began_ms;
    memset(value, 'x', sizeof value);
    while ((double)(now_ms - began_ms) < seconds * 1000.0) {
        bare_store_begin(store);
        for (int i = 0; i < group; i++) {
            int number = (int)(writes++ % RESOURCES);
            if (!bare_store_write(store, resource_name(number, name), "value", 1, value,
                                  sizeof value))
                abort();
        }
        bare_store_commit(store);
        now_ms = clock_boot_ms();
    }
    return (double)writes * 1000.0 / (double)(now_ms - began_ms);
}

int main(int argc, char **argv)
{
    static const int groups[] = {1, 8, 64, 256};
    struct bare_store store;
    if (argc != 3) {
        fprintf(stderr, "Usage: group_commit DATA_DIR SECONDS\n");
        return 64;
    }
    bare_store_open(&store, argv[1]);
    grant_all(&store);
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        printf("%d %.0f\n", groups[i], writes_per_second(&store, groups[i], strtod(argv[2], NULL)));
    bare_store_close(&store);
}
