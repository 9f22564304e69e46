# shellcheck shell=bash
# holding.sh - what the scenarios of `fence run` are written with, besides scenario.sh.
#
#     host A -t 1s -w 60s -- held work=5 put     # a shell that runs a worker under `fence run`
#     begins A "fence run, ttl 1s"               # wait for its job
#     freeze_host A "SIGSTOP to all of it"       # shell, fence run, its guardian, the job
#     thaw_job A "SIGCONT reaches the job"
#     thaw_host A "SIGCONT reaches the rest"
#     outcome A exit "fence run exits" 79
#
# FENCE_BIN is the program to run, if not build/fence.

FENCE_BIN=${FENCE_BIN:-$(cd "$LIB/../../.." && pwd)/build/fence}

declare -A JOB=()    # by host: the job's pid, which is also the number of its process group
declare -A RUNNER=() # by host: the pid of its fence run
HOSTS=               # set: there are hosts

# The scenario cannot do without `fence`. What an outer `fence run` told us is not for our jobs.
need_fence() {
    if [[ ! -x $FENCE_BIN ]]; then
        printf '%s: no fence at %s; run "make build"\n' "${0##*/}" "$FENCE_BIN" >&2
        exit 69
    fi
    export FENCE_BIN
    unset FENCE_RESOURCE FENCE_LEASE_ID FENCE_TOKEN FENCE_OWNER FENCE_TTL_MS FENCE_EXPIRES_AT \
        FENCE_WAIT_STEP
}

# Seconds, perhaps with a fraction, as `fence` takes them: 1.5 -> 1500ms.
duration() { printf '%sms' "$(seconds_to_ms "$1")"; }

# Starts a host, which does `fence run OPTION... RESOURCE -- worker.sh NAME STEP...` once.
host() { # NAME [OPTION...] -- STEP...
    start_host once "$@"
}

# The same in a loop: while true; do fence run ...; done
host_loop() { # NAME [OPTION...] -- STEP...
    start_host loop "$@"
}

start_host() { # once|loop NAME [OPTION...] -- STEP...
    local word command='fence run'
    for word in "${@:3}"; do
        if [[ $word == -- ]]; then
            command+=" $RESOURCE"
        fi
        command+=" $word"
    done
    step "$command"
    HOSTS=yes
    spawn KILL bash "$LIB/host.sh" "$@" 2>>"$DIR/worker.$2.log"
    PID[$2]=$!
}

# Waits until a host has the lease and its job has begun.
begins() { # NAME TEXT
    outcome "$1" acquire "$2" 201
    fact job && JOB[$1]=$FACT
    fact runner && RUNNER[$1]=$FACT
}

# --- a host's processes -------------------------------------------------------------------------

# A process and all below it, parents first. Adds to TREE.
find_tree() { # PID
    local file child children
    TREE+=("$1")
    for file in "/proc/$1/task"/*/children; do
        children=
        read -r children 2>/dev/null <"$file" || true # its line does not end
        for child in $children; do
            find_tree "$child"
        done
    done
}

# Stops all of a host where it is: fence run with its watchdog, its guardian, and the job. First
# those who could see that the others are stopped.
freeze_host() { # NAME TEXT
    local pid TREE=()
    step "kill -STOP -- -${PID[$1]} -${JOB[$1]}"
    kill -STOP -- "-${PID[$1]}"
    find_tree "${PID[$1]}"
    kill -STOP -- "${TREE[@]}" "-${JOB[$1]}" 2>/dev/null || true # a child of the job may be gone
    for pid in "${TREE[@]}"; do
        until process_state "$pid" && [[ $STATE != [RSD] ]]; do
            nap
        done
    done
    must "a fence run and its job to stop" alive "${JOB[$1]}"
    report "$1" SIGSTOP - -
    event_line "$1" SIGSTOP "$2"
}

# Lets only its job go on.
thaw_job() { # NAME TEXT
    step "kill -CONT -- -${JOB[$1]}"
    report "$1" SIGCONT - -
    kill -CONT -- "-${JOB[$1]}"
    event_line "$1" SIGCONT "$2"
}

# Lets all of it go on.
thaw_host() { # NAME TEXT
    local TREE=()
    step "kill -CONT -- -${PID[$1]}"
    find_tree "${PID[$1]}"
    report "$1" SIGCONT - -
    kill -CONT -- "${TREE[@]}" "-${PID[$1]}"
    event_line "$1" SIGCONT "$2"
}

# Kills all of it at once, as a power cut would.
slay_host() { # NAME TEXT
    local TREE=()
    step "kill -KILL -- -${PID[$1]} -${JOB[$1]}"
    find_tree "${PID[$1]}"
    { kill -KILL -- "${TREE[@]}" "-${JOB[$1]}" && wait "${PID[$1]}"; } 2>/dev/null || true
    report "$1" SIGKILL - -
    event_line "$1" SIGKILL "$2"
}

# Kills its fence run alone: that can do nothing any more for the job or against it.
slay_runner() { # NAME TEXT
    step "kill -KILL ${RUNNER[$1]}"
    kill -KILL "${RUNNER[$1]}"
    report "$1" SIGKILL - -
    event_line "$1" SIGKILL "$2"
}

# How many processes of a group live. Sets COUNT.
count_group() { # GROUP
    local file stat
    COUNT=0
    for file in /proc/[0-9]*/stat; do
        stat=
        read -r stat 2>/dev/null <"$file" || true
        stat=${stat##*) }
        # Its fields are: state, parent, group ...
        if [[ $stat =~ ^[^ZX]\ [0-9]+\ $1\  ]]; then
            COUNT=$((COUNT + 1))
        fi
    done
}

# Waits until nothing is left of a job, and makes that an event.
job_is_gone() { # NAME TEXT
    local deadline=$((SECONDS + PATIENCE))
    while count_group "${JOB[$1]}" && ((COUNT > 0)); do
        if ((SECONDS > deadline)); then
            fail "waited $PATIENCE s for the job of $1 to end; $COUNT of its processes live"
        fi
        nap
    done
    report "$1" gone - -
    event_line "$1" gone "$2"
}

# When the job of a host was last seen at work (step beat of worker.sh). Sets BEAT_US.
find_last_beat() { # NAME
    local at
    BEAT_US=
    while read -r at; do
        BEAT_US=$at
    done <"$EVENTS.beats.$1"
    must "a heartbeat of $1" test -n "$BEAT_US"
}

# Kills what hosts have started, wherever it went: what has our $EVENTS in its environment.
end_strays() {
    local file
    if [[ -n $HOSTS ]]; then
        while IFS= read -r file; do
            file=${file#/proc/}
            kill -KILL "${file%/environ}" 2>/dev/null
        done < <(env -u EVENTS grep -lsF "EVENTS=$DIR/" /proc/[0-9]*/environ)
    fi
}

# --- the network --------------------------------------------------------------------------------

# The scenario has a network to cut, whose process is a little Python.
need_network() {
    if [[ ! -x /usr/bin/python3 ]]; then
        printf '%s: python3 is missing; "make deps-test" installs it\n' "${0##*/}" >&2
        exit 69
    fi
    if [[ ! ${FENCE_URL:-http://127.0.0.1:0} =~ ^http://[^/]+:[0-9]+/?$ ]]; then
        usage "FENCE_URL=$FENCE_URL is not http://HOST:PORT, as the network in between needs it"
    fi
}

# Starts N, the network between a host and the gateway: a process that hands bytes on. Stopped it
# is silent, killed it has closed all connections. Sets NETWORK_URL.
start_network() {
    local gateway=${FENCE_URL#http://} port='' deadline=$((SECONDS + PATIENCE))
    spawn KILL /usr/bin/python3 "$LIB/network.py" "$gateway" >"$DIR/network" 2>"$DIR/worker.N.log"
    PID[N]=$!
    until read -r port <"$DIR/network"; do
        if ! alive "${PID[N]}" || ((SECONDS > deadline)); then
            fail "the network did not start; its last lines:" "$(tail -n 3 "$DIR/worker.N.log")"
        fi
        nap
    done
    NETWORK_URL=http://127.0.0.1:$port
}
