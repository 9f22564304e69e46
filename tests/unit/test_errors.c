/* test_errors.c - the table of failures: each row is whole, unique, and found by its code. */
#include "gateway/errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct fg_error *row(int status)
{
    return fg_error((enum fg_status)status);
}

static void every_row_is_whole(void **state)
{
    (void)state;
    assert_int_equal(FG_OK, 0);
    for (int i = FG_OK + 1; i < FG_STATUS_COUNT; i++) {
        const struct fg_error *error = row(i);
        assert_in_range(error->http, 400, 599);
        assert_true(strlen(error->code) > 0);
        assert_int_equal(strspn(error->code, "abcdefghijklmnopqrstuvwxyz_"), strlen(error->code));
        assert_true(strlen(error->title) > 0);
        assert_true(error->title[strlen(error->title) - 1] != '.');
    }
}

static void the_type_is_the_code_with_dashes(void **state)
{
    (void)state;
    for (int i = FG_OK + 1; i < FG_STATUS_COUNT; i++) {
        char expected[128];
        snprintf(expected, sizeof expected, "/problems/%s", row(i)->code);
        for (char *at = expected; *at; at++)
            *at = *at == '_' ? '-' : *at;
        assert_string_equal(row(i)->type, expected);
    }
    assert_string_equal(fg_error(FG_STALE_FENCING_TOKEN)->type, "/problems/stale-fencing-token");
}

static void codes_are_unique(void **state)
{
    (void)state;
    for (int i = FG_OK + 1; i < FG_STATUS_COUNT; i++) {
        for (int j = i + 1; j < FG_STATUS_COUNT; j++)
            assert_string_not_equal(row(i)->code, row(j)->code);
    }
}

/* The contract's table, for what exists so far. */
static void status_and_retryable_are_those_of_the_contract(void **state)
{
    (void)state;
    struct {
        const char *code;
        int http;
        bool retryable;
    } cases[] = {
        {"invalid_json", 400, false},
        {"invalid_request", 400, false},
        {"invalid_name", 400, false},
        {"fencing_token_malformed", 400, false},
        {"bad_header", 400, false},
        {"not_found", 404, false},
        {"lease_not_found", 404, false},
        {"resource_not_found", 404, false},
        {"record_not_found", 404, false},
        {"method_not_allowed", 405, false},
        {"lease_held", 409, true},
        {"limit_mismatch", 409, false},
        {"lease_expired", 410, false},
        {"lease_superseded", 410, false},
        {"lease_released", 410, false},
        {"lease_revoked", 410, false},
        {"stale_fencing_token", 412, false},
        {"fencing_token_not_issued", 412, false},
        {"lease_mismatch", 412, false},
        {"version_mismatch", 412, false},
        {"body_too_large", 413, false},
        {"fencing_token_required", 428, false},
        {"lease_id_required", 428, false},
        {"redis_unavailable", 503, true},
        {"store_unavailable", 503, true},
        {"store_mismatch", 503, true},
        {"draining", 503, true},
        {"overloaded", 503, true},
        {"grant_contended", 503, true},
        {"expired_while_granting", 503, true},
        {"storage_full", 507, true},
        {"tokens_exhausted", 507, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum fg_status status = fg_error_find(cases[i].code);
        if (status == FG_OK)
            fail_msg("there is no %s", cases[i].code);
        assert_string_equal(fg_error(status)->code, cases[i].code);
        assert_int_equal(fg_error(status)->http, cases[i].http);
        assert_int_equal(fg_error(status)->retryable, cases[i].retryable);
    }
}

static void every_row_is_found_by_its_code(void **state)
{
    (void)state;
    for (int i = FG_OK + 1; i < FG_STATUS_COUNT; i++) {
        assert_int_equal(fg_error_find(row(i)->code), i);
        assert_int_equal(fg_error_find(row(i)->type + strlen("/problems/")), i);
    }
}

static void what_is_no_code_is_not_found(void **state)
{
    (void)state;
    const char *const none[] = {"",
                                "ok",
                                "stale",
                                "stale_fencing_tokens",
                                "stale_fencing_toke",
                                "stale-fencing_token", /* neither form */
                                "STALE_FENCING_TOKEN",
                                "/problems/lease-held",
                                "lease held",
                                "lease_held ",
                                "-",
                                "\xff"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        if (fg_error_find(none[i]) != FG_OK)
            fail_msg("\"%s\" is found", none[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_whole),
        cmocka_unit_test(the_type_is_the_code_with_dashes),
        cmocka_unit_test(codes_are_unique),
        cmocka_unit_test(status_and_retryable_are_those_of_the_contract),
        cmocka_unit_test(every_row_is_found_by_its_code),
        cmocka_unit_test(what_is_no_code_is_not_found),
    };
    return cmocka_run_group_tests_name("errors", tests, NULL, NULL);
}
