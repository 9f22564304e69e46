/* test_fence.c - the fence decision: every combination of a token, a lease shown and a live set.
 *
 * The expected verdict is a table of its own (token x lease), because the shape of the live set
 * must not matter. Combinations that cannot be (a live token in an empty set) are counted, so that
 * none is left out by mistake. */
#include "storage/fence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { RESOURCE = 7, OTHER_RESOURCE = 8 };

static struct lease_pair pair_of(int64_t token)
{
    struct lease_pair pair = {.token = token};
    memset(pair.secret, 0xa5, sizeof pair.secret);
    memcpy(pair.secret, &token, sizeof token);
    return pair;
}

static struct lease_key key_of(int64_t token)
{
    struct lease_pair pair = pair_of(token);
    struct lease_key key = {.resource_id = RESOURCE, .token = token};
    memcpy(key.secret, pair.secret, sizeof key.secret);
    return key;
}

/* ---- The three axes -------------------------------------------------------------------------- */

enum token_case { BELOW_LIVE, EQUAL_LIVE, BELOW_ENDED, EQUAL_ENDED, ABOVE, TOKEN_CASES };

static const char *const token_names[TOKEN_CASES] = {
    [BELOW_LIVE] = "below the mark, live",
    [EQUAL_LIVE] = "equal to the mark, live",
    [BELOW_ENDED] = "below the mark, not live",
    [EQUAL_ENDED] = "equal to the mark, not live",
    [ABOVE] = "above the mark",
};

enum lease_case {
    NO_LEASE,
    OWN,
    OTHER_LIVE,
    OTHER_ENDED,
    OTHER_SECRET_FIRST_BYTE,
    OTHER_SECRET_LAST_BYTE,
    SAME_SECRET_OTHER_TOKEN,
    OF_OTHER_RESOURCE,
    NO_LEASE_ID,
    LEASE_CASES
};

static const char *const lease_names[LEASE_CASES] = {
    [NO_LEASE] = "no lease shown",
    [OWN] = "its own lease",
    [OTHER_LIVE] = "another live lease",
    [OTHER_ENDED] = "a lease that has ended",
    [OTHER_SECRET_FIRST_BYTE] = "its token, a secret whose first byte differs",
    [OTHER_SECRET_LAST_BYTE] = "its token, a secret whose last byte differs",
    [SAME_SECRET_OTHER_TOKEN] = "its secret, another token",
    [OF_OTHER_RESOURCE] = "token and secret, another resource",
    [NO_LEASE_ID] = "no lease id at all",
};

enum set_case { EMPTY, ONE, HOLE_IN_THE_MIDDLE, THOUSAND, SET_CASES };

static const char *const set_names[SET_CASES] = {
    [EMPTY] = "nothing live",
    [ONE] = "one live",
    [HOLE_IN_THE_MIDDLE] = "several live, ended ones between them",
    [THOUSAND] = "1000 live",
};

/* What has to come out, whatever the live set looks like. */
static enum fence_verdict expected(enum token_case token, enum lease_case lease)
{
    static const enum fence_verdict verdicts[TOKEN_CASES][LEASE_CASES] = {
        [BELOW_LIVE] = {FENCE_LIVE, FENCE_LIVE, FENCE_LEASE_MISMATCH, FENCE_LEASE_MISMATCH,
                        FENCE_LEASE_MISMATCH, FENCE_LEASE_MISMATCH, FENCE_LEASE_MISMATCH,
                        FENCE_LEASE_MISMATCH, FENCE_LEASE_MISMATCH},
        [EQUAL_LIVE] = {FENCE_LIVE, FENCE_LIVE, FENCE_LEASE_MISMATCH, FENCE_LEASE_MISMATCH,
                        FENCE_LEASE_MISMATCH, FENCE_LEASE_MISMATCH, FENCE_LEASE_MISMATCH,
                        FENCE_LEASE_MISMATCH, FENCE_LEASE_MISMATCH},
        [BELOW_ENDED] = {FENCE_STALE, FENCE_STALE, FENCE_STALE, FENCE_STALE, FENCE_STALE,
                         FENCE_STALE, FENCE_STALE, FENCE_STALE, FENCE_STALE},
        [EQUAL_ENDED] = {FENCE_STALE, FENCE_STALE, FENCE_STALE, FENCE_STALE, FENCE_STALE,
                         FENCE_STALE, FENCE_STALE, FENCE_STALE, FENCE_STALE},
        [ABOVE] = {FENCE_NOT_ISSUED, FENCE_NOT_ISSUED, FENCE_NOT_ISSUED, FENCE_NOT_ISSUED,
                   FENCE_NOT_ISSUED, FENCE_NOT_ISSUED, FENCE_NOT_ISSUED, FENCE_NOT_ISSUED,
                   FENCE_NOT_ISSUED},
    };
    return verdicts[token][lease];
}

/* ---- Making a case --------------------------------------------------------------------------- */

enum { MARK = 4000 };

static struct lease_pair live[LIMIT_MAX];

/* Live tokens are even, so that the odd ones between them have ended. The greatest is the mark
 * where the case says so, else it lies below it (a skipped number, or a release since). */
static struct fence make_fence(enum set_case set, bool greatest_is_mark)
{
    static const size_t counts[SET_CASES] = {
        [EMPTY] = 0, [ONE] = 1, [HOLE_IN_THE_MIDDLE] = 3, [THOUSAND] = LIMIT_MAX};
    size_t count = counts[set];
    int64_t greatest = greatest_is_mark ? MARK : MARK - 2;
    for (size_t i = 0; i < count; i++)
        live[i] = pair_of(greatest - 2 * (int64_t)(count - 1 - i));
    return (struct fence){.resource_id = RESOURCE,
                          .mark = MARK,
                          .limit = LIMIT_MAX,
                          .fenced = true,
                          .live = live,
                          .live_count = count};
}

/* The token of a case; 0: there is none in this set. */
static int64_t make_token(const struct fence *fence, enum token_case token, size_t which)
{
    bool ends_at_mark = fence->live_count > 0 && live[fence->live_count - 1].token == MARK;
    switch (token) {
    case BELOW_LIVE:
        return which < fence->live_count && live[which].token < MARK ? live[which].token : 0;
    case EQUAL_LIVE:
        return ends_at_mark ? MARK : 0;
    case BELOW_ENDED:
        return which < fence->live_count ? live[which].token + 1 - 2 * (live[which].token == MARK)
                                         : MARK - 1;
    case EQUAL_ENDED:
        return ends_at_mark ? 0 : MARK;
    case ABOVE:
        return MARK + 1 + (int64_t)which;
    case TOKEN_CASES:
        break;
    }
    return 0;
}

/* The lease shown; false: there is none in this set. */
static bool make_lease(const struct fence *fence, int64_t token, enum lease_case lease,
                       struct lease_key *key)
{
    *key = key_of(token);
    switch (lease) {
    case NO_LEASE:
    case OWN:
        return true;
    case OTHER_LIVE:
        for (size_t i = 0; i < fence->live_count; i++) {
            if (live[i].token != token) {
                *key = key_of(live[i].token);
                return true;
            }
        }
        return false;
    case OTHER_ENDED:
        *key = key_of(token == 1 ? 3 : 1);
        return true;
    case OTHER_SECRET_FIRST_BYTE:
        key->secret[0] ^= 0x01;
        return true;
    case OTHER_SECRET_LAST_BYTE:
        key->secret[LEASE_SECRET_BYTES - 1] ^= 0x80;
        return true;
    case SAME_SECRET_OTHER_TOKEN:
        key->token = token + 1;
        return true;
    case OF_OTHER_RESOURCE:
        key->resource_id = OTHER_RESOURCE;
        return true;
    case NO_LEASE_ID:
        *key = (struct lease_key){0};
        return true;
    case LEASE_CASES:
        break;
    }
    return false;
}

/* Judges one case; returns whether there was one. */
static bool judge(enum set_case set, bool greatest_is_mark, enum token_case token_case,
                  size_t which, enum lease_case lease_case)
{
    struct fence fence = make_fence(set, greatest_is_mark);
    struct lease_key lease;
    int64_t token = make_token(&fence, token_case, which);
    if (token == 0 || !make_lease(&fence, token, lease_case, &lease))
        return false;
    enum fence_verdict verdict =
        fence_decide(&fence, token, lease_case == NO_LEASE ? NULL : &lease);
    if (verdict != expected(token_case, lease_case))
        fail_msg("%s; %s; %s (token %lld): verdict %d, not %d", set_names[set],
                 token_names[token_case], lease_names[lease_case], (long long)token, (int)verdict,
                 (int)expected(token_case, lease_case));
    return true;
}

/* Judges a cell of the table for the first, the middle and the last token of the set. */
static bool judge_cell(enum set_case set, enum token_case token, enum lease_case lease)
{
    size_t count = make_fence(set, true).live_count;
    const size_t places[] = {0, count / 2, count > 0 ? count - 1 : 0};
    bool any = false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        any |= judge(set, true, token, places[i], lease);
        any |= judge(set, false, token, places[i], lease);
    }
    return any;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void every_combination(void **state)
{
    (void)state;
    int impossible = 0;
    for (int set = 0; set < SET_CASES; set++) {
        for (int token = 0; token < TOKEN_CASES; token++) {
            for (int lease = 0; lease < LEASE_CASES; lease++) {
                if (!judge_cell((enum set_case)set, (enum token_case)token, (enum lease_case)lease))
                    impossible++;
            }
        }
    }
    /* Nothing live: two token cases with nine leases each, and no other live lease for the other
     * three. One live: no other live lease for the two live token cases. */
    assert_int_equal(impossible, 2 * LEASE_CASES + 3 + 2);
}

static void the_middle_one_has_ended_and_its_neighbours_live(void **state)
{
    (void)state;
    struct lease_pair set[] = {pair_of(3), pair_of(9)};
    struct fence fence = {.resource_id = RESOURCE, .mark = 9, .live = set, .live_count = 2};
    const enum fence_verdict verdicts[] = {
        [1] = FENCE_STALE, [2] = FENCE_STALE,       [3] = FENCE_LIVE,  [4] = FENCE_STALE,
        [5] = FENCE_STALE, [6] = FENCE_STALE,       [7] = FENCE_STALE, [8] = FENCE_STALE,
        [9] = FENCE_LIVE,  [10] = FENCE_NOT_ISSUED,
    };
    for (int64_t token = 1; token <= 10; token++) {
        struct lease_key own = key_of(token);
        assert_int_equal(fence_decide(&fence, token, NULL), verdicts[token]);
        assert_int_equal(fence_decide(&fence, token, &own), verdicts[token]);
    }
}

static void an_unknown_resource_has_issued_nothing(void **state)
{
    (void)state;
    struct fence fence = {.resource_id = 0, .mark = 0, .fenced = true};
    struct lease_key nobody = {0};
    assert_int_equal(fence_decide(&fence, 1, NULL), FENCE_NOT_ISSUED);
    assert_int_equal(fence_decide(&fence, FENCING_TOKEN_MAX, NULL), FENCE_NOT_ISSUED);
    assert_int_equal(fence_decide(&fence, 1, &nobody), FENCE_NOT_ISSUED);
}

static void what_lies_below_the_base_is_stale(void **state)
{
    (void)state;
    struct fence fence = {.resource_id = 0, .mark = 100, .fenced = true};
    assert_int_equal(fence_decide(&fence, 1, NULL), FENCE_STALE);
    assert_int_equal(fence_decide(&fence, 100, NULL), FENCE_STALE);
    assert_int_equal(fence_decide(&fence, 101, NULL), FENCE_NOT_ISSUED);
}

static void the_greatest_token_works(void **state)
{
    (void)state;
    struct lease_pair set[] = {pair_of(FENCING_TOKEN_MAX)};
    struct fence fence = {
        .resource_id = RESOURCE, .mark = FENCING_TOKEN_MAX, .live = set, .live_count = 1};
    struct lease_key own = key_of(FENCING_TOKEN_MAX), other = key_of(FENCING_TOKEN_MAX - 1);
    assert_int_equal(fence_decide(&fence, FENCING_TOKEN_MAX, &own), FENCE_LIVE);
    assert_int_equal(fence_decide(&fence, FENCING_TOKEN_MAX, &other), FENCE_LEASE_MISMATCH);
    assert_int_equal(fence_decide(&fence, FENCING_TOKEN_MAX - 1, &other), FENCE_STALE);
}

static void a_lease_without_resource_matches_nothing_even_in_a_resource_without_a_row(void **state)
{
    (void)state;
    struct lease_pair set[] = {pair_of(1)};
    struct fence fence = {.resource_id = RESOURCE, .mark = 1, .live = set, .live_count = 1};
    struct lease_key nobody = key_of(1);
    nobody.resource_id = 0;
    assert_int_equal(fence_decide(&fence, 1, &nobody), FENCE_LEASE_MISMATCH);
}

static void pairs_are_found_by_their_token(void **state)
{
    (void)state;
    struct fence fence = make_fence(THOUSAND, true);
    for (size_t i = 0; i < fence.live_count; i++) {
        assert_ptr_equal(fence_find(&fence, live[i].token), &live[i]);
        assert_null(fence_find(&fence, live[i].token - 1));
    }
    assert_null(fence_find(&fence, MARK + 1));
    fence.live_count = 0;
    assert_null(fence_find(&fence, MARK));
}

static void secrets_differ_in_any_single_bit(void **state)
{
    (void)state;
    uint8_t a[LEASE_SECRET_BYTES], b[LEASE_SECRET_BYTES];
    memset(a, 0x3c, sizeof a);
    memcpy(b, a, sizeof b);
    assert_true(lease_secret_equal(a, b));
    for (size_t bit = 0; bit < 8 * sizeof a; bit++) {
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(lease_secret_equal(a, b));
        assert_false(lease_secret_equal(b, a));
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(lease_secret_equal(a, b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination),
        cmocka_unit_test(the_middle_one_has_ended_and_its_neighbours_live),
        cmocka_unit_test(an_unknown_resource_has_issued_nothing),
        cmocka_unit_test(what_lies_below_the_base_is_stale),
        cmocka_unit_test(the_greatest_token_works),
        cmocka_unit_test(a_lease_without_resource_matches_nothing_even_in_a_resource_without_a_row),
        cmocka_unit_test(pairs_are_found_by_their_token),
        cmocka_unit_test(secrets_differ_in_any_single_bit),
    };
    return cmocka_run_group_tests_name("fence", tests, NULL, NULL);
}
