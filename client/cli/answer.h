/* answer.h - answers of the gateway, read leniently and printed: for the commands that ask it
 * without a lease of their own. Main thread only. */
#ifndef FENCE_CLI_ANSWER_H
#define FENCE_CLI_ANSWER_H

#include "client/fence.h"

#include <jansson.h>

/* Asks, and gives the JSON object of the answer in `*json`, a new reference. */
enum fence_status cli_ask(struct fence_client *client, const char *method, const char *path,
                          const char *body, json_t **json, struct fence_error *error);

/* The string or the number of a member; `none` where it is null, missing, or something else. */
const char *cli_string(const json_t *object, const char *name, const char *none);
int64_t cli_number(const json_t *object, const char *name, int64_t none);

/* Prints it to stdout: one line of JSON, all ASCII where that is a terminal. Takes the reference;
 * NULL: memory is out, and it exits. */
void cli_print_json(json_t *json);

/* Prints "name   value" to stdout, the value escaped, aligned with its neighbours. */
void cli_print_fact(const char *name, const char *value);
void cli_print_fact_number(const char *name, int64_t value);
void cli_print_fact_duration(const char *name, int64_t ms);

#endif
