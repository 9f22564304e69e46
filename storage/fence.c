/* fence.c - the fence decision (fence.h). */
#include "storage/fence.h"

#include "gateway/faults.h"

bool lease_secret_equal(const uint8_t a[LEASE_SECRET_BYTES], const uint8_t b[LEASE_SECRET_BYTES])
{
    unsigned differ = 0;
    for (size_t i = 0; i < LEASE_SECRET_BYTES; i++)
        differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}

const struct lease_pair *fence_find(const struct fence *fence, int64_t token)
{
    for (size_t i = 0; i < fence->live_count; i++) {
        if (fence->live[i].token == token)
            return &fence->live[i];
    }
    return NULL;
}

enum fence_verdict fence_decide(const struct fence *fence, int64_t token,
                                const struct lease_key *lease)
{
    const struct lease_pair *pair = fence_find(fence, token);
    if (PLANTED(fencing_off) || (PLANTED(check_ge) && token >= fence->mark))
        return FENCE_LIVE;
    if (!pair)
        return token > fence->mark ? FENCE_NOT_ISSUED : FENCE_STALE;
    if (lease && !PLANTED(no_lease_check) &&
        (lease->resource_id != fence->resource_id || lease->token != token ||
         !lease_secret_equal(lease->secret, pair->secret)))
        return FENCE_LEASE_MISMATCH;
    return FENCE_LIVE;
}
