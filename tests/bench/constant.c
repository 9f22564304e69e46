/* constant.c - what HTTP alone costs: libmicrohttpd, run from a loop, answers every request with
 * the same few bytes at once. No store, no Redis, no second thread: no gateway of this shape can be
 * faster than this. Prints "listening http://127.0.0.1:<port>", runs until it is ended. */
#include "tests/bench/bare_http.h"

#include <string.h>

static void handle(struct bare_request *request)
{
    static const char text[] = "{\"resource\":\"bench:000000\",\"key\":\"value\",\"version\":1,"
                               "\"fencing_token\":1}";
    bare_answer(request, MHD_HTTP_OK, text, strlen(text));
}

int main(void)
{
    struct bare_http http = {.ev = ev_default_loop(EVFLAG_AUTO), .handle = handle};
    bare_http_open(&http);
    bare_http_run(&http);
}
