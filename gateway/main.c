/* main.c - fencegate: start everything in order, run until asked to stop, stop in the other order.
 *
 * Exit codes: 0 stopped; 64 bad option; 65 the store cannot be used; 69 another gateway, Redis or
 * the address is in the way; 73 no data directory; 74 an I/O error of the store; 78 Redis belongs
 * to another store. */
#include "gateway/clock.h"
#include "gateway/config.h"
#include "gateway/data_dir.h"
#include "gateway/log.h"
#include "gateway/loop.h"

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SPARE_DESCRIPTORS = 64 }; /* the store's, Redis', the log's */

/* Every connection needs a descriptor: raise the limit, or serve fewer connections. */
static void fit_descriptors(struct config *config)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)config->max_connections + SPARE_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= wanted)
        return;
    config->max_connections =
        limit.rlim_cur > 2UL * SPARE_DESCRIPTORS ? (int64_t)limit.rlim_cur - SPARE_DESCRIPTORS : 16;
    log_warn("fewer connections than asked for: the limit on open files is low",
             LOG_INT("max_connections", config->max_connections),
             LOG_INT("open_files", (int64_t)limit.rlim_cur));
}

int main(int argc, char **argv)
{
    struct config config;
    struct loop loop;
    char why[512];
    int code = 0;
    if (config_read(&config, argc, argv, &code) == CONFIG_EXIT)
        return code;
    log_configure(config.log_level, config.log_format);
    umask(077); /* what we write holds secrets: lease ids, and everybody's values */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of the write, not our end */
    json_object_seed(0);
    srandom((unsigned)(clock_boot_ms() ^ getpid()));
    fit_descriptors(&config);
    code = data_dir_lock(config.data_dir, why, sizeof why);
    if (code != 0) {
        log_error("cannot start", LOG_STR("why", why));
        return code;
    }
    code = loop_start(&loop, &config);
    if (code == 0)
        loop_run(&loop);
    loop_stop(&loop);
    return code > 0 ? code : 0;
}
