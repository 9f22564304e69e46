#!/usr/bin/env bash
# leader_election.sh - three candidates, one leads. Its lease is its term of office: it renews it as
# long as it lives. One leader is paused for longer than its term, the next one is killed; each time
# the first of the candidates that wait takes over, and the terms (the fencing tokens) rise. What a
# deposed leader still decides is refused.
#
# TTL=1 PAUSE=1.5 (seconds: what a leader has left after a renewal, and the shortest pause), STEP=1,
# FENCE_URL. A term begins with a longer TTL, so that a slow machine elects nobody too early.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

TTL=${TTL:-1} PAUSE=${PAUSE:-1.5}
check_ttl 0.05
check_seconds PAUSE
long_ttl

begin "fencegate: one leader at a time, and the old one's orders are refused."
long_wait
start_gateway
name_resource "leader:billing"

# A candidate takes over as soon as the leader's TTL has passed since its last renewal.
is_elected() { # NAME
    outcome "$1" acquire "is elected" 201
    local after_us=$((EVENT_US - renewed_us)) ttl_us=$(($(seconds_to_ms "$TTL") * 1000))
    # Redis counts milliseconds.
    must "nobody is elected while the leader's term lasts" test "$after_us" -ge $((ttl_us - 1000))
    must "somebody is elected when it is over" test "$after_us" -le $((ttl_us + 10000000))
    note "$(seconds "$after_us")s after the last renewal"
}

part 1 "The leader is paused, then its successor is killed"

stands=(wait="$LONG_WAIT" acquire="$LONG_TTL")
worker A acquire="$LONG_TTL" put=plan after=Q:ready renew="$TTL" after=A:SIGSTOP put=plan renew \
    "${stands[@]}" put=plan release
outcome A acquire "is elected" 201
terms=$TOKEN
outcome A put "PUT plan, X-Fencing-Token: {token}" 201

worker B "${stands[@]}" put=plan after=Q:again renew="$TTL" until=never
joins B 1 "stands for election"
worker C "${stands[@]}" after=N:put put=plan release
joins C 2 "stands for election"
queue_has 2 ready "two candidates wait"

outcome A renew "renew, ttl ${TTL}s" 200
fact sent_us && renewed_us=$FACT
freeze A "SIGSTOP, as a GC pause would"
stopped_us=$EVENT_US
is_elected B
deposed=$TOKEN
terms+=" $TOKEN"
outcome B put "PUT plan, X-Fencing-Token: {token}" 200

EVENT_US=$stopped_us
wait_since_event "$PAUSE"
thaw A "SIGCONT, believes that it leads"
outcome A put "PUT plan, X-Fencing-Token: {token}" "412 stale_fencing_token"
outcome A renew "renew" "410 lease_superseded"
joins A 2 "stands for election again"
queue_has 2 again "two candidates wait"

outcome B renew "renew, ttl ${TTL}s" 200
fact sent_us && renewed_us=$FACT
slay B "SIGKILL: no release, no goodbye"
is_elected C
terms+=" $TOKEN"
note "A PUT of B was still on its way; the network (N) delivers it now:"
worker N token="$deposed" put=plan
outcome N put "PUT plan, X-Fencing-Token: {token}" "412 stale_fencing_token"
outcome C put "PUT plan, X-Fencing-Token: {token}" 200
outcome C release "resigns" 200
outcome A acquire "is elected" 201
terms+=" $TOKEN"
outcome A put "PUT plan, X-Fencing-Token: {token}" 200
outcome A release "resigns" 200

read -ra tokens <<<"$terms"
must "the terms rise" rising "${tokens[@]}"
read_history write fencing_token
verdict "$GREEN" "plans of the terms" "$COLUMN" "$terms" "ONE LEADER AFTER THE OTHER"

draw_lanes 44 A B C N
