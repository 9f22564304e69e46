#!/usr/bin/env bash
# semaphore_zombie.sh - three permits, and the holder in the middle is paused for longer than its
# permit lasts. A fourth worker gets it. Now the holders' tokens are 1, 3 and 4, and 2 must not
# write any more: no single number tells them apart. First with a table that accepts the three
# newest tokens, then through the gateway, which knows each of them.
#
# TTL=1 PAUSE=1.5 (seconds: B's permit, and how long B is paused at least), STEP=1, FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

LIMIT=3
TTL=${TTL:-1} PAUSE=${PAUSE:-1.5}
check_ttl 0.05
check_seconds PAUSE
long_ttl
need sqlite3

begin "fencegate: three may, the one in the middle no longer may."
long_wait
start_gateway

# A, B and C take the three permits, B is paused, and D waits for the one that comes free: B's.
# Their next steps are in after_a ... after_d.
hand_over() {
    worker A limit="$LIMIT" acquire="$LONG_TTL" "${after_a[@]}"
    outcome A acquire "acquire $RESOURCE, ttl ${LONG_TTL}s" 201
    worker B limit="$LIMIT" acquire="$TTL" after=B:SIGSTOP "${after_b[@]}"
    outcome B acquire "acquire $RESOURCE, ttl ${TTL}s" 201
    paused=$TOKEN
    worker C limit="$LIMIT" acquire="$LONG_TTL" "${after_c[@]}"
    outcome C acquire "acquire $RESOURCE, ttl ${LONG_TTL}s" 201
    freeze B "SIGSTOP, as a GC pause would"
    stopped_us=$EVENT_US
    worker D limit="$LIMIT" wait="$LONG_WAIT" acquire="$LONG_TTL" "${after_d[@]}"
    outcome D acquire "acquire, waits for a permit" 201
    must "D's token is beyond B's and C's" test "$TOKEN" = $((paused + 2))
}

# B wakes up.
wake() {
    EVENT_US=$stopped_us
    wait_since_event "$PAUSE"
    thaw B "SIGCONT, believes that it still has one"
}

part 1 "A plain table that accepts the $LIMIT newest tokens"

name_resource "db:1"
sqlite3 -batch "$TABLE" "CREATE TABLE charges (id INTEGER PRIMARY KEY, token INTEGER, worker TEXT)"

after_a=(after=B:charge charge_newest="$LIMIT")
after_b=(charge_newest="$LIMIT")
after_c=()
after_d=(charge_newest="$LIMIT")
hand_over
outcome D charge "charge, token {token}" ok
wake
outcome B charge "charge, token {token}: not a holder" ok
outcome A charge "charge, token {token}: a holder" refused

step "sqlite3 $TABLE 'SELECT worker FROM charges ORDER BY id'"
charges=$(sqlite3 -batch -newline ' ' "$TABLE" 'SELECT worker FROM charges ORDER BY id')
verdict "$RED" "charged" "$charges" "D B " "THE WRONG ONE IN, A HOLDER OUT"

part 2 "The same pause, through the gateway"

name_resource "db:2"
after_a=(until=counted put release)
after_b=(put renew release)
after_c=(after=A:put put release)
after_d=(put after=C:put put release)
hand_over
outcome D put "PUT charge, X-Fencing-Token: {token}" 201
wake
outcome B put "PUT charge, X-Fencing-Token: {token}" "412 stale_fencing_token"
outcome B renew "renew" "410 lease_superseded"
outcome B release "release" "410 lease_superseded"
count_holders
must "three hold a permit" test "$COUNT" = "$LIMIT"
say counted
outcome A put "PUT charge, X-Fencing-Token: {token}" 200
outcome C put "PUT charge, X-Fencing-Token: {token}" 200
outcome D put "PUT charge, X-Fencing-Token: {token}" 200

await_each release A C D
read_history write owner
verdict "$GREEN" "accepted" "$COLUMN" "D A C D" "THE HOLDERS, NOBODY ELSE"

SHARED=1 draw_lanes 40 A B C D
