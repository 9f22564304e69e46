#!/usr/bin/env bash
# queue.sh - five workers wait for a lease. They get it in the order in which they came; two that
# are killed while they wait leave the queue and cost nobody anything; one that does not want to
# wait longer is told so; and who asks again and again instead of waiting overtakes nobody.
#
# STEP=1, FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

long_ttl

begin "fencegate: five wait in order, and nobody polls."
long_wait
start_gateway

part 1 "H holds it, A to E wait, B and D are killed meanwhile"

worker H acquire="$LONG_TTL" after=Q:short release
outcome H acquire "acquire $RESOURCE" 201
last=$TOKEN

# It came before all of them.
worker P acquire_retrying="$LONG_TTL" release
outcome P try "asks again and again" "409 lease_held"

place=0
for name in A B C D E; do
    place=$((place + 1))
    worker "$name" wait="$LONG_WAIT" acquire="$LONG_TTL" work=0.1 release
    joins "$name" "$place" "waits, up to ${LONG_WAIT}s"
done
slay B "SIGKILL"
slay D "SIGKILL"
queue_has 3 ready "three wait: A C E"

worker G wait=0.5 acquire="$LONG_TTL"
await G wait
line G "waits, up to 0.5s"
outcome G acquire "acquire $RESOURCE" "409 lease_held"
fact waited_ms
must "G has waited as long as it wanted to" test "$FACT" -ge 500
queue_has 3 short "three wait: A C E"

outcome H release "release" 200
released_us=$EVENT_US slowest_us=0
for name in A C E P; do
    outcome "$name" acquire "acquire $RESOURCE" 201
    must "$name is next, and the dead took no token" test "$TOKEN" = $((last + 1))
    last=$TOKEN
    if [[ $name != P ]]; then
        gap_us=$((EVENT_US - released_us))
        slowest_us=$((gap_us > slowest_us ? gap_us : slowest_us))
        fact waited_ms && waited_ms=$FACT
        fact left_ms
        must "the TTL begins with the grant, not with the wait" \
            test $((FACT + waited_ms)) -gt "$(seconds_to_ms "$LONG_TTL")"
    fi
    outcome "$name" release "release" 200
    released_us=$EVENT_US
done
printf -v slowest '%d.%d' $((slowest_us / 1000)) $((slowest_us / 100 % 10))
note "from one's release to the next one's lease: $slowest ms at most, curl and bash included"
count_events P try
note "P asked $COUNT times in vain, and got it when nobody waited any more"

read_history grant owner
verdict "$GREEN" "the ledger's order" "$COLUMN" "H A C E P" "IN ORDER"

draw_lanes 44 H A B C D E G P
