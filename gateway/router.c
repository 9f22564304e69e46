/* router.c - matching the route table (router.h). */
#include "gateway/router.h"

#include "gateway/names.h"

#include <stdio.h>
#include <string.h>

/* One segment of a pattern or path: from `at` up to the next slash. */
static size_t segment_bytes(const char *at)
{
    return strcspn(at, "/");
}

static bool is_parameter(const char *segment)
{
    return segment[0] == '{';
}

/* Whether a path has the form of a pattern: literal segments equal, as many segments. */
static bool matches(const char *pattern, const char *path)
{
    while (*pattern == '/' && *path == '/') {
        pattern++;
        path++;
        size_t pattern_bytes = segment_bytes(pattern), path_bytes = segment_bytes(path);
        if (!is_parameter(pattern) &&
            (pattern_bytes != path_bytes || memcmp(pattern, path, path_bytes) != 0))
            return false;
        pattern += pattern_bytes;
        path += path_bytes;
    }
    return *pattern == '\0' && *path == '\0';
}

static void add_method(char *allow, size_t allow_bytes, const char *method)
{
    size_t used = strlen(allow);
    const char *also = strcmp(method, "GET") == 0 ? ", HEAD" : "";
    snprintf(allow + used, allow_bytes - used, "%s%s%s", used > 0 ? ", " : "", method, also);
}

static bool is_unbuilt(const struct request *request)
{
    size_t bytes = strlen(request->method);
    for (size_t i = 0; unbuilt_routes[i]; i++) {
        if (strncmp(unbuilt_routes[i], request->method, bytes) == 0 &&
            unbuilt_routes[i][bytes] == ' ' &&
            matches(unbuilt_routes[i] + bytes + 1, request->target))
            return true;
    }
    return false;
}

enum fg_status router_find(struct request *request, char *allow, size_t allow_bytes)
{
    const char *method = strcmp(request->method, "HEAD") == 0 ? "GET" : request->method;
    allow[0] = '\0';
    for (const struct route *route = routes; route->method; route++) {
        if (!matches(route->pattern, request->target))
            continue;
        if (strcmp(route->method, method) == 0) {
            request->route = route;
            return FG_OK;
        }
        add_method(allow, allow_bytes, route->method);
    }
    return allow[0] != '\0' && !is_unbuilt(request) ? FG_METHOD_NOT_ALLOWED : FG_NOT_FOUND;
}

/* {id} and {code} are looked up as they are; everything else in braces is a name. */
static bool is_name(const char *pattern_segment)
{
    return strncmp(pattern_segment, "{id}", 4) != 0 && strncmp(pattern_segment, "{code}", 6) != 0;
}

enum fg_status router_decode(struct request *request, const char **detail)
{
    const char *pattern = request->route->pattern;
    const char *path = request->target;
    size_t count = 0;
    for (; *pattern == '/'; pattern += segment_bytes(pattern), path += segment_bytes(path)) {
        pattern++;
        path++;
        if (!is_parameter(pattern))
            continue;
        size_t bytes = segment_bytes(path);
        char *decoded = arena_alloc(&request->arena, bytes + 1);
        if (!percent_decode(path, bytes, decoded)) {
            *detail = "The path holds a bad percent escape.";
            return FG_INVALID_NAME;
        }
        const char *fault = is_name(pattern) ? name_fault(decoded) : NULL;
        if (fault) {
            *detail = fault;
            return FG_INVALID_NAME;
        }
        request->parameters[count++] = decoded;
    }
    return FG_OK;
}
