# shellcheck shell=bash
# job.sh - the steps of a worker that is the job of a `fence run` (host.sh), which acquires, renews
# and releases for it. What the job must know of the lease stands in its environment.
#
#     held              the lease is ours: take its token, and say so
#     heed              at SIGTERM say so, and end
#     ignore=SIGNAL     do not care about that signal, nor does what we start
#     helper=SECONDS    start a process that takes so long, and do not wait for it
#     beat              be at work for ever: write down the time, again and again
#     serve=WORD        lead until that word is said (say): write a heartbeat into the store with
#                       `fence put`, again and again (STEP=1 or not). Who is refused steps down
#
# Environment: FENCE_BIN, and FENCE_TOKEN, FENCE_LEASE_ID, FENCE_TTL_MS of fence run.

do_held() {
    token=$FENCE_TOKEN
    lease_id=$FENCE_LEASE_ID
    report "$name" acquire 201 "token=$token ttl_ms=$FENCE_TTL_MS kept=1 job=$$ runner=$PPID"
}

do_heed() {
    trap 'report "$name" SIGTERM - -; exit 143' TERM
}

do_ignore() { # SIGNAL
    trap '' "$1"
}

do_helper() { # SECONDS
    sleep "$1" &
    report "$name" helper ok "pid=$!"
}

do_beat() {
    now
    printf '%s\n' "$NOW_US" >>"$EVENTS.beats.$name"
    report "$name" beat ok -
    while true; do
        nap
        now
        printf '%s\n' "$NOW_US" >>"$EVENTS.beats.$name"
    done
}

do_serve() { # WORD
    local version status
    until [[ -e $EVENTS.$1 ]]; do
        status=0
        version=$("$FENCE_BIN" put "$RESOURCE" heartbeat "$name") || status=$?
        report "$name" serve "$status" "token=$token version=${version#v}"
        if ((status == 80)); then
            exit "$status"
        fi
        sleep 0.1
    done
}
