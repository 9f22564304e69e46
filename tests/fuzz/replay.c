/* replay.c - runs a fuzz target on inputs that are kept, without libFuzzer: any compiler will do.
 *
 *     build/tests/fuzz/fuzz_token             all of tests/fuzz/corpus/fuzz_token/
 *     build/tests/fuzz/fuzz_token FILE...     these
 *
 * An input that breaks something ends the process; the line before says which one it was. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <unistd.h>

enum { INPUT_BYTES_MAX = 1 << 20 };

static void replay(const char *path)
{
    static uint8_t input[INPUT_BYTES_MAX];
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    size_t size = fread(input, 1, sizeof input, file);
    fclose(file);
    fprintf(stderr, "%s\n", path);
    uint8_t *exact = malloc(size > 0 ? size : 1);
    if (!exact)
        abort();
    memcpy(exact, input, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static int replay_corpus(const char *target)
{
    char folder[PATH_MAX], path[PATH_MAX];
    struct dirent **entries;
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", target);
    int count = scandir(folder, &entries, NULL, alphasort), inputs = 0;
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name) < PATH_MAX) {
            replay(path);
            inputs++;
        }
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    if (inputs == 0)
        fprintf(stderr, "%s: no inputs\n", folder);
    return inputs > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    if (argc == 1)
        return replay_corpus(slash ? slash + 1 : argv[0]);
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    return 0;
}
