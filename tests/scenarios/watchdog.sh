#!/usr/bin/env bash
# watchdog.sh - `fence run` keeps a lease for as long as its job takes, many times the TTL. When it
# is killed it cannot renew any more, and the lease runs out by itself; the job does not outlive it,
# as a second process, the guardian, sees to that.
#
# TTL=2 (seconds, at least 1), STEP=1, FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

TTL=${TTL:-2}
check_ttl 1 # a third of it must be enough for a renewal, also on a slow machine
need_fence
long_ttl
ttl_us=$(($(seconds_to_ms "$TTL") * 1000))
PATIENCE=$((PATIENCE + 5 * ttl_us / 1000000))
printf -v job_takes '%d.%03d' $((ttl_us * 5 / 1000000)) $((ttl_us * 5 / 1000 % 1000))

begin "fencegate: the lease lasts as long as the job, and no longer."
start_gateway

keeps=(-t "$(duration "$TTL")" --kill-after 100ms)
waits=(-t "${LONG_TTL}s")

part 1 "A job of 5 x TTL"

name_resource "invoice:1"
host A "${keeps[@]}" -- held work="$job_takes" put
begins A "fence run, ttl ${TTL}s"
began_us=$EVENT_US
host B "${waits[@]}" -- held put
joins B 1 "fence run, waits for it"
outcome A put "PUT charge, X-Fencing-Token: {token}" 201
ended_us=$EVENT_US
must "the job takes 5 TTL" test $((ended_us - began_us)) -ge $((5 * ttl_us))
note "the job took $(seconds $((ended_us - began_us)))s, the lease is still its own"
outcome A exit "fence run ends" 0
begins B "fence run, has waited for it"
must "B waits for A's end" test "$EVENT_US" -gt "$ended_us"
outcome B put "PUT charge, X-Fencing-Token: {token}" 200
outcome B exit "fence run ends" 0
read_history expire fencing_token
must "no lease has run out" test -z "$COLUMN"
read_history grant owner
verdict "$GREEN" "held by" "$COLUMN" "A B" "NOBODY ELSE MEANWHILE"

draw_lanes 44 A B

part 2 "SIGKILL to fence run"

name_resource "invoice:2"
host C "${keeps[@]}" -- ignore=TERM helper=1000 held beat
begins C "fence run, ttl ${TTL}s"
await C beat
host D "${waits[@]}" -- held put
joins D 1 "fence run, waits for it"
count_group "${JOB[C]}"
must "the job has two processes, itself and a helper" test "$COUNT" -ge 2
wait_since_event "$TTL" # C's first lease is over, it lives by renewals
slay_runner C "SIGKILL to fence run: no goodbye"
killed_us=$EVENT_US
outcome C exit "its shell sees the end" 137
job_is_gone C "the job and its helper are gone"
note "$(seconds $((EVENT_US - killed_us)))s after the SIGKILL, though they ignore SIGTERM"
begins D "fence run, has waited for it"
after_us=$((EVENT_US - killed_us))
note "$(seconds "$after_us")s after the SIGKILL"
must "D gets it when the TTL has passed" test "$after_us" -le $((ttl_us + 10000000))
find_last_beat C
must "C's job is over when D gets the lease" test "$BEAT_US" -lt "$EVENT_US"
outcome D put "PUT charge, X-Fencing-Token: {token}" 201
outcome D exit "fence run ends" 0
read_history grant owner
verdict "$GREEN" "held by" "$COLUMN" "C D" "FREE WITHIN THE TTL"

draw_lanes 44 C D
