#!/usr/bin/env bash
# leader_loop.sh - an election in one line of shell, on three hosts:
#
#     while true; do fence run leader -- serve; done
#
# Who gets the lease serves, the others wait for it. The leader is killed, its successor is paused
# for longer than its TTL; each time the next one takes over, and the terms (the fencing tokens)
# rise. Serving here is a heartbeat into the store, with `fence put`. The paused leader's next one
# is refused: its `fence put` exits with 80.
#
# TTL=2 PAUSE=2.5 (seconds; the pause lasts at least until there is a successor), STEP=1, FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

TTL=${TTL:-2} PAUSE=${PAUSE:-2.5}
check_ttl 1
check_seconds PAUSE
need_fence

begin "fencegate: while true; do fence run leader -- serve; done"
start_gateway
name_resource leader
terms=

# A candidate that serves until the word "resign.NAME".
candidate() { # NAME
    host_loop "$1" -t "$(duration "$TTL")" --kill-after 100ms -- \
        held serve="resign.$1" until="over.$1"
}

# A candidate's term begins, with a heartbeat; not long after another one has ended badly.
leads() { # NAME [WHEN-THAT-WAS HOW]
    begins "$1" "is elected"
    terms+="${terms:+ }$TOKEN"
    if (($# > 1)); then
        note "$(seconds $((EVENT_US - $2)))s after the leader was $3"
        must "somebody is elected when the term is over" \
            test $((EVENT_US - $2)) -le $(($(seconds_to_ms "$TTL") * 1000 + 10000000))
    fi
    outcome "$1" serve "fence put heartbeat" 0
}

part 1 "The leader is killed, its successor is paused, the third resigns"

candidate A
leads A
candidate B
joins B 1 "waits for its turn"
candidate C
joins C 2 "waits for its turn"

slay_host A "SIGKILL to the whole host"
leads B "$EVENT_US" killed

freeze_host B "SIGSTOP to all of it: as the VM is"
stopped_us=$EVENT_US
leads C "$stopped_us" stopped
EVENT_US=$stopped_us
wait_since_event "$PAUSE"
thaw_job B "SIGCONT, its job happens to be first"
thawed_us=$EVENT_US
late=0 # an answer to what it had sent before
while await B serve && [[ $EVENT_STATUS == 0 ]]; do
    late=$((late + (EVENT_US > thawed_us)))
    must "nothing is accepted from B any more" test "$late" -le 1
done
judge B serve "fence put heartbeat" 80
thaw_host B "SIGCONT, now its fence run"
outcome B exit "fence run ends" 79
joins B 1 "waits for its turn again"

say resign.C
say over.C
outcome C exit "resigns: fence run ends" 0
leads B

read -ra tokens <<<"$terms"
must "the terms rise" rising "${tokens[@]}"
# Every heartbeat in the ledger, in the order of the commits: each term once, however many it wrote.
read_history write fencing_token
written=$(tr ' ' '\n' <<<"$COLUMN" | uniq | tr '\n' ' ')
verdict "$GREEN" "heartbeats of the terms" "${written% }" "$terms" "ONE AFTER THE OTHER"

draw_lanes 50 A B C
