#!/usr/bin/env bash
# semaphore.sh - a database takes twenty connections. Three hosts with a pool of ten each open
# thirty. Twenty permits that all hosts share keep sixty workers within twenty, also when some of
# them die inside: their permits come back when their TTL has passed, and not before.
#
# The workers count who is inside with them (lib/permits.sh).
#
# TTL=2 (seconds, of those who die), STEP=1 (the crowd does not wait for Enter), FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

LIMIT=20 STAYING=15 DYING=5 WAITING=40
TTL=${TTL:-2}
check_ttl 0.05
long_ttl

begin "fencegate: twenty at once, sixty workers, five of them die."
long_wait
start_gateway
name_resource "db:connections"

part 1 "Three hosts, each with a pool of 10 of its own, 20 jobs each"

for host in A B C; do
    STEP='' worker "$host" pool=10:20
done
await_count counted 30
for host in A B C; do
    await "$host" counted
    count_events "$host" enter
    line "$host" "its pool is full" "$EVENT_STATUS" "inside: $COUNT of its own"
done
say leave
await_each pool A B C
find_most_inside
count_all leave
note "$COUNT jobs done"
must "all jobs are done" test "$COUNT" = 60
verdict "$RED" "most at once, of 20" "$MOST" 30 "TOO MANY"

part 2 "Twenty permits for all, 60 workers"

# Workers PREFIX1, PREFIX2 ... that do the same. Sets CROWD, their names.
crowd() { # PREFIX COUNT STEP...
    local number
    CROWD=()
    for ((number = 1; number <= $2; number++)); do
        CROWD+=("$1$number")
        STEP='' worker "$1$number" limit="$LIMIT" wait="$LONG_WAIT" "${@:3}"
    done
}

# All of a crowd have their permit and are inside.
are_inside() { # NAME...
    local name
    for name; do
        await "$name" acquire
        must "$name gets a permit" test "$EVENT_STATUS" = 201
    done
    await_each counted "$@"
}

# S: they stay until the dead ones' permits are back.
crowd S "$STAYING" acquire="$LONG_TTL" enter until=back leave release
survivors=("${CROWD[@]}")
are_inside "${survivors[@]}"
line S "$STAYING workers, ttl ${LONG_TTL}s" 201 "inside: $STAYING"

# D: they will die.
now && dying_us=$NOW_US
crowd D "$DYING" acquire="$TTL" enter until=never
are_inside "${CROWD[@]}"
line D "$DYING workers, ttl ${TTL}s" 201 "inside: $LIMIT"
for name in "${CROWD[@]}"; do
    STEP='' slay "$name" SIGKILL >/dev/null
done
line D "SIGKILL to all $DYING, no release"

# W: they wait for a permit, all of them longer than the dead ones' TTL.
crowd W "$WAITING" acquire="$LONG_TTL" enter until=back work=0.1 leave release
survivors+=("${CROWD[@]}")
await_count counted $((LIMIT + DYING))
find_first acquire W
line W "$WAITING workers wait, the first is in" "$EVENT_STATUS"
after_us=$((EVENT_US - dying_us))
# Redis counts milliseconds.
must "no permit of the dead is given away before its TTL has passed" \
    test "$after_us" -ge $(($(seconds_to_ms "$TTL") * 1000 - 1000))
await_waiters $((WAITING - DYING))
count_all acquire 201
must "as many are let in as have died" test "$COUNT" = $((LIMIT + DYING))
note "the first permit came back after $(seconds "$after_us")s; $((WAITING - DYING)) still wait"

say back
for name in "${survivors[@]}"; do
    await "$name" release
    must "$name gives its permit back" test "$EVENT_STATUS" = 200
done
line S "all ${#survivors[@]} survivors have been in" "$EVENT_STATUS" "released"

count_holders
must "nobody holds a permit any more" test "$COUNT" = 0
read_history grant fencing_token
read -ra tokens <<<"$COLUMN"
must "the ledger has 60 grants" test "${#tokens[@]}" = 60
must "their tokens rise" rising "${tokens[@]}"
find_most_inside
verdict "$GREEN" "most at once, of 20" "$MOST" "$LIMIT" "NEVER MORE"
