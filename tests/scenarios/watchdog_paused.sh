#!/usr/bin/env bash
# watchdog_paused.sh - what a watchdog cannot do: the machine stops for longer than the TTL, and the
# watchdog with it. Somebody else takes over. When the machine goes on, nothing orders who is first:
# here it is the job, and what stops it is the store. Its fence run sees by the clock that the lease
# is over, kills the job and ends with 79.
#
# TTL=1 PAUSE=1.5 (seconds; the pause lasts at least until B has had its turn), STEP=1, FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

TTL=${TTL:-1} PAUSE=${PAUSE:-1.5}
check_ttl 0.5
check_seconds PAUSE
need_fence
long_ttl

begin "fencegate: who watches the watchdog?"
start_gateway

part 1 "The whole host is stopped past the TTL, watchdog and all"

host A -t "$(duration "$TTL")" --kill-after 100ms -- \
    ignore=TERM held put after=A:SIGSTOP put helper=1000 beat
begins A "fence run, ttl ${TTL}s"
outcome A put "PUT charge, X-Fencing-Token: {token}" 201
freeze_host A "SIGSTOP to all of it: as the VM is"
stopped_us=$EVENT_US

host B -t "${LONG_TTL}s" -- held after=A:put until=charge put
joins B 1 "fence run, waits for it"
begins B "fence run, has waited for it"
EVENT_US=$stopped_us
wait_since_event "$PAUSE"

thaw_job A "SIGCONT, its job happens to be first"
outcome A put "PUT charge, X-Fencing-Token: {token}" "412 stale_fencing_token"
await A beat
thaw_host A "SIGCONT, now its fence run"
continued_us=$EVENT_US
outcome A exit "fence run ends" 79
after_us=$((EVENT_US - continued_us))
note "$(printf '%d.%03d' $((after_us / 1000000)) $((after_us / 1000 % 1000)))s after its SIGCONT"
must "fence run ends soon after its SIGCONT" test "$after_us" -le 10000000
ended_us=$EVENT_US
find_last_beat A
must "the job ends with it" test "$BEAT_US" -le "$ended_us"
job_is_gone A "the job and its helper are gone"

say charge
outcome B put "PUT charge, X-Fencing-Token: {token}" 200
outcome B exit "fence run ends" 0
read_history write fencing_token
verdict "$GREEN" "written with the tokens" "$COLUMN" "1 2" "NOT ONCE AFTER ITS LEASE"

draw_lanes 40 A B
