/* body.c - decoding JSON bodies and query parameters (body.h). */
#include "gateway/body.h"

#include "gateway/names.h"
#include "gateway/reply.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_MAX = 8,
    FAULTS_MAX = 100 /* told of one body; a client does not read more */
};

static const double EXACT = 9007199254740992.0; /* doubles count without gaps up to here */

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

/* A body that is being read. */
struct reading {
    struct request *request;
    json_t *root;
    json_t *faults;
    bool inexact; /* a number has more than 64 bits: all numbers came as reals */
};

static json_t *load(const struct request *request, size_t more_flags, json_error_t *error)
{
    return json_loadb(request->body, request->body_bytes,
                      JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | more_flags, error);
}

static bool parse(struct reading *reading)
{
    struct request *request = reading->request;
    json_error_t error = {0};
    if (request->body_bytes == 0) {
        reading->root = json_object();
        return true;
    }
    if (too_deep(request->body, request->body_bytes)) {
        reply_problem(request, FG_INVALID_JSON, NULL, "The JSON is nested more than %d deep.",
                      DEPTH_MAX);
        return false;
    }
    reading->root = load(request, 0, &error);
    if (!reading->root && json_error_code(&error) == json_error_numeric_overflow) {
        /* Valid JSON all the same; so that the fault can be told where it is. */
        reading->inexact = true;
        reading->root = load(request, JSON_DECODE_INT_AS_REAL, &error);
    }
    if (!reading->root)
        reply_problem(request, FG_INVALID_JSON, NULL, "Line %d, column %d: %s.", error.line,
                      error.column, error.text);
    return reading->root != NULL;
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

static void add_fault(struct reading *reading, const char *field, const char *detail)
{
    if (json_array_size(reading->faults) >= FAULTS_MAX)
        return;
    json_array_append_new(reading->faults,
                          json_pack("{s:s, s:s}", "pointer",
                                    pointer_to(&reading->request->arena, field), "detail", detail));
}

/* ---- Fields --------------------------------------------------------------------------------- */

static bool whole_number(const struct reading *reading, const json_t *value, int64_t *number)
{
    double real = json_real_value(value);
    if (json_is_integer(value))
        *number = json_integer_value(value);
    else if (reading->inexact && real >= -EXACT && real <= EXACT && real == (double)(int64_t)real)
        *number = (int64_t)real;
    else
        return false;
    return true;
}

static void read_integer(struct reading *reading, const struct body_field *field,
                         const json_t *value, void *to)
{
    int64_t number;
    if (!whole_number(reading, value, &number) || number < field->least || number > field->greatest)
        add_fault(reading, field->name, field->what);
    else
        memcpy(to, &number, sizeof number);
}

static void read_boolean(struct reading *reading, const struct body_field *field,
                         const json_t *value, void *to)
{
    int truth = json_is_true(value);
    if (!json_is_boolean(value))
        add_fault(reading, field->name, field->what);
    else
        memcpy(to, &truth, sizeof truth);
}

static void read_string(struct reading *reading, const struct body_field *field,
                        const json_t *value, void *to)
{
    if (json_is_null(value) && !field->required)
        return;
    if (!json_is_string(value) ||
        (field->type == BODY_STRING && (json_string_length(value) < (size_t)field->least ||
                                        json_string_length(value) > (size_t)field->greatest))) {
        add_fault(reading, field->name, field->what);
        return;
    }
    const char *copy = arena_string(&reading->request->arena, json_string_value(value));
    memcpy(to, &copy, sizeof copy);
}

static void read_fields(struct reading *reading, const struct body_field *fields, size_t count,
                        void *out)
{
    for (size_t i = 0; i < count; i++) {
        const struct body_field *field = &fields[i];
        const json_t *value = json_object_get(reading->root, field->name);
        void *to = (char *)out + field->offset;
        if (!value && field->required)
            add_fault(reading, field->name, "This field is required.");
        else if (value && field->type == BODY_INTEGER)
            read_integer(reading, field, value, to);
        else if (value && field->type == BODY_BOOLEAN)
            read_boolean(reading, field, value, to);
        else if (value)
            read_string(reading, field, value, to);
    }
}

static void find_unknown(struct reading *reading, const struct body_field *fields, size_t count)
{
    const char *name;
    json_t *value;
    json_object_foreach(reading->root, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < count; i++)
            known |= strcmp(fields[i].name, name) == 0;
        if (!known)
            add_fault(reading, name, "There is no such field.");
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

/* Answers with all faults; the sentence is the first one's. */
static void refuse(struct reading *reading)
{
    const json_t *first = json_array_get(reading->faults, 0);
    const char *pointer = json_string_value(json_object_get(first, "pointer"));
    const char *detail = json_string_value(json_object_get(first, "detail"));
    reply_problem(reading->request, FG_INVALID_REQUEST,
                  json_pack("{s:O}", "errors", reading->faults), "%s%s%s",
                  pointer[0] ? pointer + 1 : "", pointer[0] ? ": " : "", detail);
}

bool body_read(struct request *request, const struct body_field *fields, size_t count, void *out)
{
    struct reading reading = {.request = request};
    if (!parse(&reading))
        return false;
    reading.faults = json_array();
    if (json_is_object(reading.root)) {
        read_fields(&reading, fields, count, out);
        find_unknown(&reading, fields, count);
    } else {
        json_array_append_new(reading.faults, json_pack("{s:s, s:s}", "pointer", "", "detail",
                                                        "The body is a JSON object."));
    }
    bool taken = json_array_size(reading.faults) == 0;
    if (!taken)
        refuse(&reading);
    json_decref(reading.root);
    json_decref(reading.faults);
    return taken && names_hold(request, fields, count, out);
}

/* ---- Query ---------------------------------------------------------------------------------- */

void query_refuse(struct request *request, const char *name, const char *detail)
{
    char *pointer = arena_alloc(&request->arena, strlen(name) + 2);
    stpcpy(stpcpy(pointer, "?"), name);
    reply_problem(request, FG_INVALID_REQUEST, reply_error_at(pointer, detail), "%s%s%s", name,
                  name[0] ? ": " : "", detail);
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
