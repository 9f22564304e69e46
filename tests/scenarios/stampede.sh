#!/usr/bin/env bash
# stampede.sh - a page falls out of the cache while ten readers want it. Without a lock each of
# them makes it anew. With a lease one does, while the others wait for it (wait_ms), look again, and
# read. This is a lock for efficiency: should two make the page one day, the page is as good; so
# nobody sends a token.
#
# STEP=1 (the crowd does not wait for Enter), FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

READERS=10
long_ttl

begin "fencegate: ten readers miss the cache, one rebuilds it."
long_wait
start_gateway
name_resource "cache:front-page"
export CACHE=$DIR/front-page

# Starts the readers R1, R2 ..., and lets them go on when all have missed.
start_readers() { # STEP...
    local number
    rm -f "$CACHE"
    readers=()
    for ((number = 1; number <= READERS; number++)); do
        readers+=("R$number")
        STEP='' worker "R$number" look_up until=missed "$@"
    done
    await_each miss "${readers[@]}"
    find_first miss R
    line R "$READERS readers look into the cache" "$EVENT_STATUS" "all miss"
    say missed
}

part 1 "No lock: who misses makes the page"

start_readers rebuild
await_each rebuild "${readers[@]}"
line R "$READERS readers have the page" "$EVENT_STATUS"
count_all rebuild
verdict "$RED" "made, for one page" "$COUNT" "$READERS" "A STAMPEDE"

part 2 "Who misses takes the lease, and looks again before it makes the page"

start_readers wait="$LONG_WAIT" acquire="$LONG_TTL" look_up rebuild release
longest_ms=0 last_us=0
for name in "${readers[@]}"; do
    await "$name" acquire
    must "$name gets its turn" test "$EVENT_STATUS" = 201
    fact waited_ms
    longest_ms=$((FACT > longest_ms ? FACT : longest_ms))
    await "$name" release
    must "$name gives it back" test "$EVENT_STATUS" = 200
    last_us=$((EVENT_US > last_us ? EVENT_US : last_us))
done
find_first rebuild R
line R "one has made the page" "$EVENT_STATUS"
fact page
count_facts hit "page=$FACT"
EVENT_US=$last_us
line R "$COUNT have read it" ok "after a wait of $longest_ms ms at most"
must "all but one read what was made" test "$COUNT" = $((READERS - 1))
count_all rebuild
verdict "$GREEN" "made, for one page" "$COUNT" 1 "ONE WORKS, NINE WAIT"
