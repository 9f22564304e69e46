/* test_lease_id.c - lease ids there and back, and what is none. */
#include "gateway/lease_id.h"

#include "gateway/base64url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ID_BYTES = 30, VERSION_AT = 16, RESOURCE_AT = 17, TOKEN_AT = 23 };

static const int64_t resource_max = (INT64_C(1) << 48) - 1;

static struct lease_key key_of(int64_t resource_id, int64_t token)
{
    struct lease_key key = {.resource_id = resource_id, .token = token};
    for (size_t i = 0; i < sizeof key.secret; i++)
        key.secret[i] = (uint8_t)(0xf0 + i * 37);
    return key;
}

static bool taken(const char *text)
{
    struct lease_key key;
    return lease_id_read(text, &key);
}

static void ids_come_back(void **state)
{
    (void)state;
    const int64_t resources[] = {1, 2, 255, 256, 65535, 1 << 24, resource_max};
    const int64_t tokens[] = {
        1, 255, 256, INT64_C(1) << 32, FENCING_TOKEN_MAX - 1, FENCING_TOKEN_MAX};
    for (size_t i = 0; i < sizeof resources / sizeof *resources; i++) {
        for (size_t j = 0; j < sizeof tokens / sizeof *tokens; j++) {
            struct lease_key key = key_of(resources[i], tokens[j]), back;
            char id[LEASE_ID_CHARS + 1];
            lease_id_write(&key, id);
            assert_int_equal(strlen(id), LEASE_ID_CHARS);
            assert_int_equal(strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                        "0123456789-_"),
                             LEASE_ID_CHARS);
            assert_true(lease_id_read(id, &back));
            assert_int_equal(back.resource_id, key.resource_id);
            assert_int_equal(back.token, key.token);
            assert_memory_equal(back.secret, key.secret, sizeof key.secret);
        }
    }
}

static void different_leases_have_different_ids(void **state)
{
    (void)state;
    char id[LEASE_ID_CHARS + 1], other[LEASE_ID_CHARS + 1];
    struct lease_key key = key_of(3, 5);
    lease_id_write(&key, id);
    for (size_t bit = 0; bit < 8 * sizeof key.secret; bit++) {
        struct lease_key changed = key;
        changed.secret[bit / 8] ^= (uint8_t)(1 << bit % 8);
        lease_id_write(&changed, other);
        assert_string_not_equal(id, other);
    }
    lease_id_write(&(struct lease_key){.resource_id = 5, .token = 3}, id);
    lease_id_write(&(struct lease_key){.resource_id = 3, .token = 5}, other);
    assert_string_not_equal(id, other);
}

static void text_of_another_length_or_alphabet_is_none(void **state)
{
    (void)state;
    char id[LEASE_ID_CHARS + 8];
    struct lease_key key = key_of(3, 5);
    lease_id_write(&key, id);
    assert_true(taken(id));
    for (size_t length = 0; length < LEASE_ID_CHARS; length++) {
        char cut[LEASE_ID_CHARS + 1];
        memcpy(cut, id, length);
        cut[length] = '\0';
        assert_false(taken(cut));
    }
    const char *const tails[] = {"A", "AAAA", "=", " ", "\n", "/renew"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        memcpy(id + LEASE_ID_CHARS, tails[i], strlen(tails[i]) + 1);
        assert_false(taken(id));
    }
    id[LEASE_ID_CHARS] = '\0';
    const char strange[] = " +/=.~%\n\x80\xff";
    for (size_t at = 0; at < LEASE_ID_CHARS; at++) {
        for (size_t i = 0; i < sizeof strange - 1; i++) {
            char before = id[at];
            id[at] = strange[i];
            assert_false(taken(id));
            id[at] = before;
        }
    }
    assert_true(taken(id));
}

static void bytes_that_no_lease_has_are_none(void **state)
{
    (void)state;
    struct lease_key key = key_of(3, 5);
    char id[LEASE_ID_CHARS + 1];
    uint8_t bytes[ID_BYTES];
    size_t count;
    lease_id_write(&key, id);
    assert_true(base64url_read(id, bytes, sizeof bytes, &count));
    assert_int_equal(count, ID_BYTES);
    struct {
        const char *what;
        size_t at, length;
        uint8_t byte;
    } cases[] = {
        {"version 0", VERSION_AT, 1, 0},        {"version 2", VERSION_AT, 1, 2},
        {"version 255", VERSION_AT, 1, 255},    {"no resource", RESOURCE_AT, 6, 0},
        {"no token", TOKEN_AT, 7, 0},           {"a token above 2^53-1", TOKEN_AT, 7, 0xff},
        {"a token of 2^53", TOKEN_AT, 1, 0x20}, {"nothing at all", 0, ID_BYTES, 0},
        {"all ones", 0, ID_BYTES, 0xff},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t changed[ID_BYTES];
        memcpy(changed, bytes, sizeof changed);
        memset(changed + cases[i].at, cases[i].byte, cases[i].length);
        base64url_write(changed, sizeof changed, id);
        if (taken(id))
            fail_msg("%s: taken", cases[i].what);
    }
}

/* What is read is what is written: no two texts name one lease. */
static void what_is_read_is_written_the_same(void **state)
{
    (void)state;
    uint32_t random = 7;
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[ID_BYTES];
        char id[LEASE_ID_CHARS + 1], back[LEASE_ID_CHARS + 1];
        for (size_t j = 0; j < sizeof bytes; j++)
            bytes[j] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
        bytes[VERSION_AT] = 1;
        bytes[TOKEN_AT] &= 0x3f; /* about half are small enough */
        base64url_write(bytes, sizeof bytes, id);
        struct lease_key key;
        if (lease_id_read(id, &key)) {
            lease_id_write(&key, back);
            assert_string_equal(back, id);
            assert_in_range(key.token, 1, FENCING_TOKEN_MAX);
            assert_in_range(key.resource_id, 1, resource_max);
        } else {
            assert_true(bytes[TOKEN_AT] >= 0x20);
        }
    }
}

static void a_reference_is_the_beginning_of_the_random_part(void **state)
{
    (void)state;
    struct lease_key key = key_of(3, 5);
    char id[LEASE_ID_CHARS + 1], ref[LEASE_REF_CHARS + 1], other[LEASE_REF_CHARS + 1];
    lease_id_write(&key, id);
    lease_ref_write(&key, ref);
    assert_int_equal(strlen(ref), LEASE_REF_CHARS);
    assert_memory_equal(ref, id, LEASE_REF_CHARS);
    key.resource_id = 99;
    key.token = 77;
    lease_ref_write(&key, other);
    assert_string_equal(other, ref);
}

static void secrets_are_random(void **state)
{
    (void)state;
    enum { SECRETS = 1000 };
    static uint8_t secrets[SECRETS][LEASE_SECRET_BYTES];
    uint8_t any[LEASE_SECRET_BYTES] = {0}, all[LEASE_SECRET_BYTES];
    memset(all, 0xff, sizeof all);
    for (size_t i = 0; i < SECRETS; i++) {
        lease_secret_random(secrets[i]);
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(secrets[i], secrets[j], LEASE_SECRET_BYTES);
        for (size_t j = 0; j < LEASE_SECRET_BYTES; j++) {
            any[j] |= secrets[i][j];
            all[j] &= secrets[i][j];
        }
    }
    for (size_t j = 0; j < LEASE_SECRET_BYTES; j++) {
        assert_int_equal(any[j], 0xff); /* every bit was set once, and once not */
        assert_int_equal(all[j], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_come_back),
        cmocka_unit_test(different_leases_have_different_ids),
        cmocka_unit_test(text_of_another_length_or_alphabet_is_none),
        cmocka_unit_test(bytes_that_no_lease_has_are_none),
        cmocka_unit_test(what_is_read_is_written_the_same),
        cmocka_unit_test(a_reference_is_the_beginning_of_the_random_part),
        cmocka_unit_test(secrets_are_random),
    };
    return cmocka_run_group_tests_name("lease_id", tests, NULL, NULL);
}
