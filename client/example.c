/* example.c - a whole program with libfence: a job of five steps that only one process at a time
 * may do, and that goes on where the one before it stopped, however that ended. To try it:
 *
 *     cc example.c -o example $(pkg-config --cflags --libs libfence)
 *     ./example http://127.0.0.1:8080 report:2026-11
 *
 * How far the job has come is a record of the resource that is locked: it can only be written with
 * the token of the lease that is the current one. */
#include "fence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 5, TTL_MS = 3000, WAIT_MS = 60 * 1000 };

/* The work itself. A step may have been done, and not recorded, by one that was killed just then:
 * it must bear being done again. */
static void do_step(long step)
{
    printf("step %ld\n", step);
    fflush(stdout);
    usleep(200 * 1000);
}

static enum fence_status work(struct fence_client *client, struct fence_lease *lease,
                              struct fence_error *error)
{
    /* Names the record, and holds the token and the id of the lease. So it is read only while the
     * lease is the current one, and what is read here nobody else can change meanwhile. */
    struct fence_record record = fence_lease_record(lease, "steps-done");
    struct fence_value value;
    enum fence_status status = fence_get(client, &record, &value, error);
    long done = status == FENCE_OK ? strtol(value.bytes, NULL, 10) : 0;
    fence_value_free(&value);
    if (status != FENCE_OK && status != FENCE_NOT_FOUND) /* not found: nobody has begun */
        return status;

    while (done < STEPS) {
        /* Costs nothing: no request is made. It spares us the work that would be refused. */
        if (!fence_still_held(lease)) {
            snprintf(error->detail, sizeof error->detail, "the lease was lost");
            return FENCE_EXPIRED;
        }
        do_step(done + 1);
        char text[24];
        snprintf(text, sizeof text, "%ld", done + 1);
        /* This is what makes it safe: were we paused since the look above, it is refused. */
        status = fence_put(client, &record, text, strlen(text), NULL, error);
        if (status != FENCE_OK)
            return status;
        done++;
    }
    return FENCE_OK;
}

int main(int argc, char **argv)
{
    struct fence_client *client;
    struct fence_lease *lease;
    struct fence_error error;
    const struct fence_options options = {.url = argc > 1 ? argv[1] : NULL};
    const struct fence_terms terms = {
        .resource = argc > 2 ? argv[2] : "example",
        .owner = "example", /* for people who look who holds it */
        .ttl_ms = TTL_MS,   /* how long the others wait when we die; the watchdog renews it */
        .wait_ms = WAIT_MS, /* in the order of arrival */
    };
    if (fence_open(&client, &options, &error) != FENCE_OK ||
        fence_acquire(client, &terms, &lease, &error) != FENCE_OK) {
        fprintf(stderr, "no lease: %s\n", error.detail);
        fence_close(client);
        return error.status == FENCE_HELD ? 75 : EXIT_FAILURE;
    }
    printf("token %lld\n", (long long)fence_lease_token(lease));

    enum fence_status status = work(client, lease, &error);
    if (status == FENCE_STALE) /* whoever is next goes on where we were: nothing is to be undone */
        fprintf(stderr, "too late, and not written: %s\n", error.detail);
    else if (status != FENCE_OK)
        fprintf(stderr, "stopped: %s\n", error.detail);

    if (fence_release(lease, &error) == FENCE_OK && status == FENCE_OK)
        printf("done\n");
    fence_lease_free(lease);
    fence_close(client);
    return status == FENCE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
