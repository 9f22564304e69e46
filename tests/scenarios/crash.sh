#!/usr/bin/env bash
# crash.sh - the holder dies without a word. What renewed its lease dies with it, so the lease runs
# out by itself: nobody gets it before the TTL has passed, somebody does right after. And what the
# dead worker had sent before, and the network delivers late, is refused.
#
# TTL=2 (seconds, at least 1), STEP=1, FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

TTL=${TTL:-2}
check_ttl 1 # a third of it must be enough for a renewal, also on a slow machine
long_ttl # for B
ttl_us=$(($(seconds_to_ms "$TTL") * 1000))
printf -v third '%d.%03d' $((ttl_us / 3000000)) $((ttl_us / 3000 % 1000))

begin "fencegate: the holder dies with its lease."
start_gateway

part 1 "SIGKILL, while A holds the lease and renews it"

worker A acquire="$TTL" keep_renewing="$third"
outcome A acquire "acquire $RESOURCE, ttl ${TTL}s" 201
dead=$TOKEN
outcome A renew "renew, a third of the TTL later" 200
fact sent_us
renewed_us=$FACT
worker B acquire_retrying="$LONG_TTL" after=N:put put release
outcome B try "acquire $RESOURCE" "409 lease_held"
slay A "SIGKILL: no release, no goodbye"

killed_us=$EVENT_US
while ((EVENT_US <= killed_us)); do # the first answer to B since then
    await B try
done
judge B try "acquire $RESOURCE" "409 lease_held"
outcome B acquire "acquire $RESOURCE" 201
granted_us=$EVENT_US
must "B's token is larger than A's" test "$TOKEN" -gt "$dead"

# Did A renew again before it died? The lease lasts a TTL from its last renewal.
while next_event A renew; do
    fact sent_us
    renewed_us=$FACT
done
waited_us=$((granted_us - renewed_us))
printf -v waited '%d.%02d' $((waited_us / 1000000)) $((waited_us / 10000 % 100))
count_events B try
note "$COUNT times no, then yes: ${waited}s after A's last renewal"
# Redis counts milliseconds.
must "nobody gets the lease before its TTL" test "$waited_us" -ge $((ttl_us - 1000))
must "somebody gets it right after" test "$waited_us" -le $((ttl_us + 5000000))

note "A PUT of A was still on its way; the network (N) delivers it now:"
worker N token="$dead" put
outcome N put "PUT charge, X-Fencing-Token: {token}" "412 stale_fencing_token"
outcome B put "PUT charge, X-Fencing-Token: {token}" 201
outcome B release "release" 200

count_accepted
verdict "$GREEN" charges "$COUNT" 1 "CHARGED ONCE"

draw_lanes 40 A B N
