#!/usr/bin/env bash
# partition.sh - the network between `fence run` and the gateway is cut. Nobody can tell it that the
# lease ends, so it goes by a deadline of its own, which is before the end of the lease by a margin:
# the job is dead before somebody else can get the lease. Twice: a network that swallows everything,
# and one that refuses connections.
#
# TTL=4 (seconds, at least 1), STEP=1, FENCE_URL (http).

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

TTL=${TTL:-4}
check_ttl 1
need_fence
need_network
long_ttl

begin "fencegate: cut off, the job ends before its lease does."
start_gateway

waits=(-t "${LONG_TTL}s")

# A host behind the network N.
host_behind_network() { # NAME [OPTION...] -- STEP...
    start_network
    FENCE_URL=$NETWORK_URL host "$@"
}

# The first has lost its lease and its job, the second takes over: in this order.
takes_over_after() { # FIRST SECOND
    local before_us
    outcome "$1" exit "fence run ends" 79
    job_is_gone "$1" "nothing is left of its job"
    begins "$2" "fence run, has waited for it"
    find_last_beat "$1"
    before_us=$((EVENT_US - BEAT_US))
    note "$1's job was last at work $(seconds "$before_us")s before $2 had the lease"
    must "$1's job has done its last before $2 gets the lease" test "$before_us" -gt 0
    if [[ $1 == A ]]; then # N is stopped, not gone
        thaw N "the network is back: what was on its way arrives"
    fi
    say charge
    outcome "$2" put "PUT charge, X-Fencing-Token: {token}" 201
    outcome "$2" exit "fence run ends" 0
    read_history expire fencing_token
    verdict "$GREEN" "leases that ran out, by token" "$COLUMN" 1 "NOT TWO AT A TIME"
    draw_lanes 44 N "$1" "$2"
}

part 1 "Silence: the connections stay open, nothing comes through"

name_resource "invoice:1"
host_behind_network A -t "$(duration "$TTL")" -- heed held beat
begins A "fence run, ttl ${TTL}s"
await A beat
host B "${waits[@]}" -- held until=charge put
joins B 1 "fence run, waits for it"
freeze N "the network between A and the gateway is silent"
outcome A SIGTERM "its job is told to end" -
takes_over_after A B

part 2 "Refusal: the connections are closed, new ones refused; the job ignores SIGTERM"

name_resource "invoice:2"
host_behind_network C -t "$(duration "$TTL")" -- ignore=TERM helper=1000 held beat
begins C "fence run, ttl ${TTL}s"
await C beat
host D "${waits[@]}" -- held until=charge put
joins D 1 "fence run, waits for it"
slay N "the network between C and the gateway is gone"
takes_over_after C D
