/* body.c - decoding JSON bodies and query parameters (body.h). */
#include "gateway/body.h"

#include "gateway/names.h"
#include "gateway/reply.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 8 };

/* jansson recurses as deep as the text nests; what we take is flat. */
static bool too_deep(const char *text, size_t bytes)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        if (in_string) {
            if (text[i] == '\\')
                i++;
            else if (text[i] == '"')
                in_string = false;
        } else if (text[i] == '"') {
            in_string = true;
        } else if (text[i] == '{' || text[i] == '[') {
            if (++depth > DEPTH_MAX)
                return true;
        } else if (text[i] == '}' || text[i] == ']') {
            depth--;
        }
    }
    return false;
}

static json_t *parse(struct request *request)
{
    json_error_t error;
    if (request->body_bytes == 0)
        return json_object();
    if (too_deep(request->body, request->body_bytes)) {
        reply_problem(request, FG_INVALID_JSON, NULL, "The JSON is nested more than %d deep.",
                      DEPTH_MAX);
        return NULL;
    }
    json_t *root = json_loadb(request->body, request->body_bytes,
                              JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!root)
        reply_problem(request, FG_INVALID_JSON, NULL, "Line %d, column %d: %s.", error.line,
                      error.column, error.text);
    return root;
}

/* A field's JSON pointer (RFC 6901): "~" and "/" in its name are escaped. */
static char *pointer_to(struct arena *arena, const char *field)
{
    char *pointer = arena_alloc(arena, 2 * strlen(field) + 2);
    char *to = pointer;
    *to++ = '/';
    for (; *field; field++) {
        if (*field == '~' || *field == '/') {
            *to++ = '~';
            *to++ = *field == '~' ? '0' : '1';
        } else {
            *to++ = *field;
        }
    }
    return pointer;
}

static void add_fault(struct request *request, json_t *faults, const char *field,
                      const char *detail)
{
    json_array_append_new(faults, json_pack("{s:s, s:s}", "pointer",
                                            pointer_to(&request->arena, field), "detail", detail));
}

/* ---- Fields --------------------------------------------------------------------------------- */

static void read_integer(struct request *request, const struct body_field *field,
                         const json_t *value, void *to, json_t *faults)
{
    int64_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < field->least || number > field->greatest)
        add_fault(request, faults, field->name, field->what);
    else
        memcpy(to, &number, sizeof number);
}

static void read_string(struct request *request, const struct body_field *field,
                        const json_t *value, void *to, json_t *faults)
{
    if (json_is_null(value) && !field->required)
        return;
    if (!json_is_string(value) ||
        (field->type == BODY_STRING && json_string_length(value) > (size_t)field->greatest)) {
        add_fault(request, faults, field->name, field->what);
        return;
    }
    const char *copy = arena_string(&request->arena, json_string_value(value));
    memcpy(to, &copy, sizeof copy);
}

static void read_fields(struct request *request, const json_t *root,
                        const struct body_field *fields, size_t count, void *out, json_t *faults)
{
    for (size_t i = 0; i < count; i++) {
        const struct body_field *field = &fields[i];
        const json_t *value = json_object_get(root, field->name);
        void *to = (char *)out + field->offset;
        if (!value && field->required)
            add_fault(request, faults, field->name, "This field is required.");
        else if (value && field->type == BODY_INTEGER)
            read_integer(request, field, value, to, faults);
        else if (value)
            read_string(request, field, value, to, faults);
    }
}

static void find_unknown(struct request *request, json_t *root, const struct body_field *fields,
                         size_t count, json_t *faults)
{
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < count; i++)
            known |= strcmp(fields[i].name, name) == 0;
        if (!known)
            add_fault(request, faults, name, "There is no such field.");
    }
}

/* Names are judged last, with a code of their own. */
static bool names_hold(struct request *request, const struct body_field *fields, size_t count,
                       const void *out)
{
    for (size_t i = 0; i < count; i++) {
        const char *name;
        if (fields[i].type != BODY_NAME)
            continue;
        memcpy(&name, (const char *)out + fields[i].offset, sizeof name);
        const char *fault = name ? name_fault(name) : NULL;
        if (fault) {
            const char *pointer = pointer_to(&request->arena, fields[i].name);
            reply_problem(request, FG_INVALID_NAME, reply_error_at(pointer, fault), "%s: %s",
                          fields[i].name, fault);
            return false;
        }
    }
    return true;
}

bool body_read(struct request *request, const struct body_field *fields, size_t count, void *out)
{
    json_t *root = parse(request);
    if (!root)
        return false;
    json_t *faults = json_array();
    if (!json_is_object(root)) {
        json_array_append_new(
            faults, json_pack("{s:s, s:s}", "pointer", "", "detail", "The body is a JSON object."));
    } else {
        read_fields(request, root, fields, count, out, faults);
        find_unknown(request, root, fields, count, faults);
    }
    json_decref(root);
    if (json_array_size(faults) > 0) {
        const json_t *first = json_array_get(faults, 0);
        const char *pointer = json_string_value(json_object_get(first, "pointer"));
        const char *detail = json_string_value(json_object_get(first, "detail"));
        reply_problem(request, FG_INVALID_REQUEST, json_pack("{s:o}", "errors", faults), "%s%s%s",
                      pointer[0] ? pointer + 1 : "", pointer[0] ? ": " : "", detail);
        return false;
    }
    json_decref(faults);
    return names_hold(request, fields, count, out);
}

/* ---- Query ---------------------------------------------------------------------------------- */

void query_refuse(struct request *request, const char *name, const char *detail)
{
    char *pointer = arena_alloc(&request->arena, strlen(name) + 2);
    stpcpy(stpcpy(pointer, "?"), name);
    reply_problem(request, FG_INVALID_REQUEST, reply_error_at(pointer, detail), "%s: %s", name,
                  detail);
}

bool query_integer(struct request *request, const char *name, int64_t least, int64_t greatest,
                   int64_t otherwise, int64_t *out)
{
    const char *text = request_query(request, name);
    *out = otherwise;
    if (!text)
        return true;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || text[digits] != '\0' || strtoll(text, NULL, 10) < least ||
        strtoll(text, NULL, 10) > greatest) {
        char detail[96];
        snprintf(detail, sizeof detail, "A whole number from %" PRId64 " to %" PRId64 ".", least,
                 greatest);
        query_refuse(request, name, detail);
        return false;
    }
    *out = strtoll(text, NULL, 10);
    return true;
}
