#!/usr/bin/env bash
# cron_wrapped.sh - five hosts with the same line in their crontabs:
#
#     fence run -n -E 0 report -- job
#
# Who finds the lease taken does not wait, and ends with 0 and without a word, so that cron sends no
# mail. That makes one run for each tick, where the job takes longer than the hosts' clocks differ.
# Where it does not, --min-hold does: the lease is kept for that long, however short the job is.
#
# MIN_HOLD=5 (seconds: more than the clocks differ, less than it is to the next tick), STEP=1,
# FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

MIN_HOLD=${MIN_HOLD:-5}
check_seconds MIN_HOLD
need_fence
long_ttl

begin "fencegate: five hosts, one line in the crontab."
start_gateway
name_resource report

line=(-t "${LONG_TTL}s" -n -E 0)
job=(held run=0.05)

# A host that came too late does nothing, and says so to nobody.
keeps_quiet() { # NAME
    outcome "$1" exit "two o'clock: does nothing, ends" 0
    fact output
    must "$1 prints nothing" test "$FACT" = 0
    must "$1 does not run the job" test "$(count_events "$1" run && echo "$COUNT")" = 0
}

# Four of the five came too late, in this order.
others_keep_quiet() {
    local name what
    await_count exit 4
    while IFS=$'\t' read -r _ name what _; do
        if [[ $what == exit ]]; then
            keeps_quiet "$name"
        fi
    done <"$EVENTS"
}

part 1 "A short job: the late clock finds the lease free again"

host A "${line[@]}" -- "${job[@]}"
outcome A run "two o'clock: runs the job" ok
outcome A exit "ends" 0
host B "${line[@]}" -- "${job[@]}" until=all_tried
outcome B run "two o'clock: runs the job" ok
for name in C D E; do
    host "$name" "${line[@]}" -- "${job[@]}"
    keeps_quiet "$name"
done
say all_tried
outcome B exit "ends" 0
count_all run
verdict "$RED" "runs, for one tick" "$COUNT" 2 "RUN TWICE"

part 2 "The same clocks; the lease is kept: --min-hold ${MIN_HOLD}s"

line+=(--min-hold "$(duration "$MIN_HOLD")")
now
began_us=$NOW_US
host A "${line[@]}" -- "${job[@]}"
begins A "two o'clock: has the lease"
outcome A run "runs the job" ok
job_is_gone A "the job is over, the lease is not"
for name in B C D E; do
    host "$name" "${line[@]}" -- "${job[@]}"
done
others_keep_quiet
outcome A exit "ends" 0
must "A holds it for as long as it said" \
    test $((EVENT_US - began_us)) -ge $(($(seconds_to_ms "$MIN_HOLD") * 1000))
count_all run
verdict "$GREEN" "runs, for one tick" "$COUNT" 1 "RUN ONCE"

part 3 "The next tick; the clocks agree, all five come at once"

for name in A B C D E; do
    host "$name" "${line[@]}" -- "${job[@]}"
done
await_count run 1
while IFS=$'\t' read -r _ name what _; do
    if [[ $what == run ]]; then
        outcome "$name" run "two o'clock: runs the job" ok
    fi
done <"$EVENTS"
others_keep_quiet
count_all run
verdict "$GREEN" "runs, for one tick" "$COUNT" 1 "RUN ONCE"
