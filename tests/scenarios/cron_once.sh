#!/usr/bin/env bash
# cron_once.sh - five hosts have the same line in their crontab, and the job must run once. A lock
# alone does that only while it is held: where the job is shorter than the difference between the
# hosts' clocks, the next host finds the lock free and runs it again. So the instant is the key of a
# record that is put with If-None-Match: * under the lease: the first host writes it and runs, the
# others find it.
#
# STEP=1 (the crowd of part 3 does not wait for Enter), FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

INSTANT=2026-11-30T02:00Z NEXT_INSTANT=2026-12-01T02:00Z
long_ttl

begin "fencegate: five hosts, one tick, one run."
long_wait
start_gateway

# Starts the hosts A to E. Their clocks differ by more than the job takes: for each it is two
# o'clock when the one before has finished.
start_hosts() { # STEP...
    local name steps=("$@")
    for name in A B C D E; do
        worker "$name" "${steps[@]}"
        steps=(after="$name:release" "$@")
    done
}

# The end of a host's turn.
gives_back() { # NAME
    await "$1" release
    must "$1 gives the lease back" test "$EVENT_STATUS" = 200
}

part 1 "A lock, held while the job runs; the clocks differ by more than that"

name_resource "cron:1"
start_hosts acquire="$LONG_TTL" run=0.05 release
for name in A B C D E; do
    outcome "$name" acquire "two o'clock: acquire $RESOURCE" 201
    outcome "$name" run "runs the job" ok
    gives_back "$name"
done
count_all run
verdict "$RED" "runs, for one tick" "$COUNT" 5 "RUN FIVE TIMES"

part 2 "The same clocks; the instant is the key of a record"

name_resource "cron:2"
start_hosts acquire="$LONG_TTL" once="$INSTANT" run=0.05 release
outcome A acquire "two o'clock: acquire $RESOURCE" 201
outcome A once "PUT $INSTANT" 201
outcome A run "runs the job" ok
gives_back A
for name in B C D E; do
    outcome "$name" acquire "two o'clock: acquire $RESOURCE" 201
    outcome "$name" once "PUT $INSTANT" "412 version_mismatch"
    gives_back "$name"
done
count_all run
verdict "$GREEN" "runs, for one tick" "$COUNT" 1 "RUN ONCE"

part 3 "The next night; the clocks agree, all five come at once"

for name in A B C D E; do
    STEP='' worker "$name" until=two_o_clock wait="$LONG_WAIT" acquire="$LONG_TTL" \
        once="$NEXT_INSTANT" run=0.05 release
done
say two_o_clock
for name in A B C D E; do
    gives_back "$name"
done
expected=201 # of the first, whoever it is
while IFS=$'\t' read -r EVENT_US name what EVENT_STATUS EVENT_FACTS; do
    if [[ $what == once ]]; then
        judge "$name" once "PUT $NEXT_INSTANT" "$expected"
        expected="412 version_mismatch"
    fi
done <"$EVENTS"
count_accepted
must "the ledger has one record for each tick" test "$COUNT" = 2
count_all run
verdict "$GREEN" "runs, for one tick" "$COUNT" 1 "RUN ONCE"
