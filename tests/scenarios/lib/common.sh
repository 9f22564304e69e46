# shellcheck shell=bash
# common.sh - what the script that directs (scenario.sh) and the workers (worker.sh) share.
#
# They talk through one file, $EVENTS. Each line is something that happened, its five fields
# separated by tabs:
#
#     time             actor  what     status  facts
#     1767225600123456 A      acquire  201     token=3 ttl_ms=1000
#     1767225602123456 A      put      412     token=3 code=stale_fencing_token highest=4
#
# Time is microseconds since 1970, taken when the answer was there. A status is what the gateway
# answered, or "ok" from SQLite; facts are fields of that answer. A field without a value is "-".

export LC_ALL=C # a decimal point in numbers, bytes in patterns

# The time now, in microseconds since 1970. Sets NOW_US (a variable: no process to start).
now() { NOW_US=${EPOCHREALTIME/./}; }

# Adds a line to the events. One write(2): lines of several processes do not mix.
report() { # ACTOR WHAT STATUS FACTS
    now
    printf '%s\t%s\t%s\t%s\t%s\n' "$NOW_US" "$1" "$2" "$3" "${4:--}" >>"$EVENTS"
}

# How many events of this actor and kind there are. Sets COUNT.
count_events() { # ACTOR WHAT
    local actor what
    COUNT=0
    while IFS=$'\t' read -r _ actor what _; do
        if [[ $actor == "$1" && $what == "$2" ]]; then
            COUNT=$((COUNT + 1))
        fi
    done <"$EVENTS"
}

# A moment of waiting, between two looks at the events: reads from a pipe that nobody writes to.
# (Starting /bin/sleep each time would cost more than the waiting.)
exec {NAP_FD}<> <(:)
nap() { read -rt 0.02 -u "$NAP_FD" _ || true; }

# Seconds, perhaps with a fraction, as whole milliseconds: 1.5 -> 1500.
seconds_to_ms() { printf '%.0f' "${1}e3"; }
