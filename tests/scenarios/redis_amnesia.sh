#!/usr/bin/env bash
# redis_amnesia.sh - Redis loses everything while A holds the lease: who holds it, and how far the
# tokens had counted. The lock is gone, so B gets it at once. But the store remembers the highest
# token it ever granted: B's is larger, and A is refused.
#
# TTL=30 (seconds, of both leases), STEP=1. With FENCE_URL it does nothing: it empties only a Redis
# that it has started itself.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

long_ttl
TTL=${TTL:-$LONG_TTL}
check_ttl 0.05
need redis-server redis-cli

begin "fencegate: Redis forgets everything, the store does not."
if [[ -n ${FENCE_URL:-} ]]; then
    skip "FENCE_URL is set, and this script empties only a Redis that it has started itself."
fi
start_gateway_and_redis

part 1 "FLUSHALL between two grants"

worker A acquire="$TTL" release acquire="$TTL" after=B:acquire put renew
outcome A acquire "acquire $RESOURCE, ttl ${TTL}s" 201
outcome A release "release" 200
outcome A acquire "acquire $RESOURCE, ttl ${TTL}s" 201
first=$TOKEN

# Both in one transaction: it does not take the gateway long to write again.
transaction='MULTI\nFLUSHALL\nDBSIZE\nEXEC\n'
step "printf '$transaction' | redis-cli -s $REDIS_SOCKET"
mapfile -t answers < <(printf '%b' "$transaction" | redis)
report R FLUSHALL "${answers[3]:-none}" "keys=${answers[4]:-?}" # after OK, QUEUED, QUEUED
await R FLUSHALL
fact keys
line R "FLUSHALL" "$EVENT_STATUS" "$FACT keys left"
must "Redis has forgotten all" test "$EVENT_STATUS $FACT" = "OK 0"

note "To Redis nobody holds $RESOURCE, and the next token would be 1:"
worker B acquire="$TTL" after=A:renew put release
outcome B acquire "acquire $RESOURCE, ttl ${TTL}s" 201
must "B's token is larger than A's" test "$TOKEN" -gt "$first"
outcome A put "PUT charge, X-Fencing-Token: {token}" "412 stale_fencing_token"
outcome A renew "renew" "410 lease_superseded"
outcome B put "PUT charge, X-Fencing-Token: {token}" 201
outcome B release "release" 200

count_accepted
verdict "$GREEN" charges "$COUNT" 1 "CHARGED ONCE"

draw_lanes 40 A B
