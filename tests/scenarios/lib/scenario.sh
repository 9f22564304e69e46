# shellcheck shell=bash
# scenario.sh - what every scenario is written with. A scenario is a script like this:
#
#     source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"
#     begin "title"
#     start_gateway
#     part 1 "what this part shows"
#     worker A acquire=1 work=0.7 after=A:SIGSTOP put      # a process, see worker.sh
#     outcome A acquire "acquire invoice:1234" 201         # wait for it, print it, compare it
#     freeze A "SIGSTOP, as a GC pause would"
#     ...
#
# The script directs and looks on: it starts workers, sends them signals, and prints what they
# reported. It never acquires or writes for them. Whatever is not as expected ends it with
# status 1. However it ends, it takes everything it started with it.
#
# Settings (environment): TTL, PAUSE in seconds; STEP=1 shows each command and waits for Enter;
# FENCE_URL uses a gateway that runs already; GATEWAY is the program to start otherwise
# (build/fencegate); NO_COLOR. A terminal without colours (TERM unset or dumb) gets none either.
set -euo pipefail

LIB=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$LIB/common.sh"
# shellcheck source-path=SCRIPTDIR source=servers.sh
source "$LIB/servers.sh"
# shellcheck source-path=SCRIPTDIR source=lanes.sh
source "$LIB/lanes.sh"
# shellcheck source-path=SCRIPTDIR source=sharing.sh
source "$LIB/sharing.sh"
# shellcheck source-path=SCRIPTDIR source=holding.sh
source "$LIB/holding.sh"

PATIENCE=60 # seconds until waiting for an event is given up

declare -A PID=()    # of the workers, by name; also the ids of their process groups
declare -A CURSOR=() # "actor what" -> the line of $EVENTS up to which it was read
PART_START_US=       # what is 0.00s: the first event printed in this part

# --- begin and end ------------------------------------------------------------------------------

# Makes the temporary folder, prints the title.
begin() { # TITLE
    need curl setsid setpriv
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM

    DIR=$(mktemp -d "${TMPDIR:-/tmp}/fencegate.XXXXXX")
    if ((${#DIR} > 80)); then # the path of a unix socket must stay below 108 bytes
        rmdir "$DIR"
        DIR=$(mktemp -d /tmp/fencegate.XXXXXX)
    fi
    # No ~/.curlrc or ~/.sqliterc, no proxy and no option from outside changes what is shown.
    export HOME=$DIR no_proxy="127.0.0.1,localhost${no_proxy:+,$no_proxy}"
    unset CURL_HOME XDG_CONFIG_HOME "${!FENCEGATE_@}"

    BOLD='' DIM='' RED='' GREEN='' YELLOW='' PLAIN=''
    if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
        BOLD=$'\e[1m' DIM=$'\e[2m' RED=$'\e[31m' GREEN=$'\e[32m' YELLOW=$'\e[33m' PLAIN=$'\e[0m'
    fi
    export STEP=${STEP:-} TABLE=$DIR/charges.db
    printf '%s%s%s\n' "$BOLD" "$1" "$PLAIN"
}

clean_up() {
    local pid
    trap '' HUP INT TERM
    set +e
    end_process "$GATEWAY_PID"
    end_process "$REDIS_PID"
    for pid in $(jobs -pr); do # workers, also stopped ones
        { kill -KILL -- "-$pid" && wait "$pid"; } 2>/dev/null
    done
    end_strays
    if [[ -n ${DIR:-} ]]; then
        rm -rf "$DIR"
    fi
}

# SIGTERM, 5 s, SIGKILL. An empty pid is fine.
end_process() { # PID
    local tries=250
    if [[ -z $1 ]]; then
        return
    fi
    kill -TERM "$1" 2>/dev/null
    kill -CONT "$1" 2>/dev/null
    while alive "$1" && ((tries-- > 0)); do
        nap
    done
    kill -KILL "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}

# Ends the scenario as wrong.
fail() { # LINE...
    printf '%10s%swrong: %s%s\n' '' "$RED" "$1" "$PLAIN" >&2
    if (($# > 1)); then
        printf '%s\n' "${@:2}" >&2
    fi
    exit 1
}

# Ends a scenario that cannot do its work, without calling that wrong.
skip() { # LINE...
    printf '   skipped: %s\n' "$@"
    exit 0
}

# A mistake in how the script was called.
usage() { # LINE
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit 64
}

# The programs that a scenario cannot do without.
need() { # PROGRAM...
    local program
    for program; do
        if ! command -v "$program" >/dev/null; then
            printf '%s: %s is missing; "make deps" installs it\n' "${0##*/}" "$program" >&2
            exit 69
        fi
    done
}

# Settings that are seconds: digits, perhaps with a fraction. We wait that much longer for events.
check_seconds() { # NAME...
    local name
    for name; do
        if [[ ! ${!name} =~ ^[0-9]{1,5}(\.[0-9]+)?$ ]]; then
            usage "$name=${!name} is not a number of seconds"
        fi
        PATIENCE=$((PATIENCE + $(seconds_to_ms "${!name}") / 1000))
    done
}

# The same for TTL, from what the scenario needs (the gateway takes no less than 0.05) to a day.
check_ttl() { # LEAST-SECONDS
    local least=$1 ttl_ms
    check_seconds TTL
    ttl_ms=$(seconds_to_ms "$TTL")
    if ((ttl_ms < $(seconds_to_ms "$least") || ttl_ms > 86400000)); then
        usage "TTL=$TTL must be from $least to 86400 seconds"
    fi
}

# A TTL for those whose lease must not run out, however slow the machine (or, with STEP=1, the
# reader) is. Sets LONG_TTL.
# shellcheck disable=SC2034 # the scenarios use it
long_ttl() {
    LONG_TTL=30
    if [[ ${STEP:-} == 1 ]]; then
        LONG_TTL=3600
    fi
}

# --- processes ----------------------------------------------------------------------------------

# The state of a process: R, S, T (stopped), Z ...; nothing when it is gone. Sets STATE.
#
# From a file of one line, so one read(2). /proc/PID/status takes several, and a process that execs
# between two of them changes its name, and with it where each line begins.
process_state() { # PID
    local line=
    read -r line 2>/dev/null <"/proc/$1/stat" || true
    line=${line##*) } # behind the name, which may hold anything
    STATE=${line%% *}
}

alive() { # PID
    process_state "$1"
    [[ -n $STATE && $STATE != [ZX] ]]
}

# Runs a command in the background, in a session and process group of its own (so that Ctrl-C
# reaches it only through us, and a signal to the group reaches nobody else). It is killed should
# we be killed ourselves. Its pid is $!.
spawn() { # SIGNAL COMMAND...
    setsid setpriv --pdeathsig "$@" </dev/null &
}

# Starts a worker. Its steps are described in worker.sh.
worker() { # NAME STEP...
    spawn KILL bash "$LIB/worker.sh" "$@" 2>>"$DIR/worker.$1.log"
    PID[$1]=$!
}

# Stops all of a worker where it is, as a long GC pause or a suspended VM would.
freeze() { # NAME TEXT
    step "kill -STOP -- -${PID[$1]}"
    kill -STOP -- "-${PID[$1]}"
    until process_state "${PID[$1]}" && [[ $STATE == T ]]; do
        must "a process $1 to stop" alive "${PID[$1]}"
        nap
    done
    report "$1" SIGSTOP - -
    event_line "$1" SIGSTOP "$2"
}

# Lets it go on.
thaw() { # NAME TEXT
    step "kill -CONT -- -${PID[$1]}"
    report "$1" SIGCONT - -
    kill -CONT -- "-${PID[$1]}"
    event_line "$1" SIGCONT "$2"
}

# Kills it: no handler, no release, no goodbye.
slay() { # NAME TEXT
    step "kill -KILL -- -${PID[$1]}"
    { kill -KILL -- "-${PID[$1]}" && wait "${PID[$1]}"; } 2>/dev/null || true
    report "$1" SIGKILL - -
    event_line "$1" SIGKILL "$2"
}

# Waits until SECONDS have passed since the event read last.
wait_since_event() { # SECONDS
    local until_us=$((EVENT_US + $(seconds_to_ms "$1") * 1000))
    until now && ((NOW_US >= until_us)); do
        nap
    done
}

# --- events -------------------------------------------------------------------------------------

# Begins a part: a fresh events file, and the clock from 0.00s.
part() { # NUMBER TITLE
    export EVENTS=$DIR/events.$1
    : >"$EVENTS"
    CURSOR=()
    PART_START_US=
    printf '\n%s%s  %s%s\n' "$BOLD" "$1" "$2" "$PLAIN"
}

# The next event of this actor and kind that was not read yet. False where there is none so far.
# Sets EVENT_US, EVENT_STATUS, EVENT_FACTS.
next_event() { # ACTOR WHAT
    local line=0 actor what
    while IFS=$'\t' read -r EVENT_US actor what EVENT_STATUS EVENT_FACTS; do
        line=$((line + 1))
        if [[ $actor == "$1" && $what == "$2" ]] && ((line > ${CURSOR["$1 $2"]:-0})); then
            CURSOR["$1 $2"]=$line
            return 0
        fi
    done <"$EVENTS"
    return 1
}

# Waits for it.
await() { # ACTOR WHAT
    local deadline=$((SECONDS + PATIENCE)) pid=${PID[$1]:-}
    until next_event "$1" "$2"; do
        if [[ $STEP == 1 ]] && next_event "$1" next; then
            step "$EVENT_FACTS"
            report "$1" go - -
            deadline=$((SECONDS + PATIENCE))
        fi
        if [[ -n $pid ]] && ! alive "$pid"; then
            if next_event "$1" "$2"; then # its last word
                return
            fi
            fail "worker $1 ended without: $2" "$(tail -n 3 "$DIR/worker.$1.log")"
        fi
        if ((SECONDS > deadline)); then
            fail "waited $PATIENCE s for worker $1: $2" "$(tail -n 3 "$EVENTS")"
        fi
        nap
    done
}

# A fact of the event read last; nothing where it has none of that name. Sets FACT.
fact() { # NAME
    FACT=
    if [[ " $EVENT_FACTS" =~ " $1="([^ ]*) ]]; then
        FACT=${BASH_REMATCH[1]}
    fi
}

# Waits for an event, prints it, and compares it: see judge.
outcome() { # ACTOR WHAT TEXT EXPECTED
    await "$1" "$2"
    judge "$@"
}

# Prints the event read last, and compares it. EXPECTED is a status, with the code behind it where
# there is one. {token} in TEXT is the token that was sent. Sets TOKEN (granted or sent).
judge() { # ACTOR WHAT TEXT EXPECTED
    local got
    fact token
    TOKEN=$FACT
    fact code
    got=$EVENT_STATUS${FACT:+ $FACT}
    result_text "$2"
    line "$1" "${3//'{token}'/$TOKEN}" "$EVENT_STATUS" "$RESULT"
    if [[ $got != "$4" ]]; then
        fail "expected $4, got $got"
    fi
}

# What the answer said beyond its status, in a few words. Sets RESULT.
result_text() { # WHAT
    local code sent retry
    fact code && code=$FACT
    fact retry_after && retry=${FACT:+, Retry-After: $FACT}
    case $1:$EVENT_STATUS:$code in
        acquire:201:)
            RESULT="token $TOKEN"
            fact waited_ms && RESULT+=${FACT:+, waited $FACT ms}
            ;;
        renew:200:) fact left_ms && RESULT="$FACT ms left" ;;
        release:200:) RESULT="released" ;;
        put:20?: | once:20?:) fact version && RESULT="v$FACT" ;;
        unfence:200:) RESULT="no lock needed" ;;
        exit:79:) RESULT="lease lost" ;;
        exit:137:) RESULT="killed" ;;
        serve:0:) fact version && RESULT="v$FACT" ;;
        serve:80:) RESULT="stale token" ;;
        look:ok: | take:ok:) fact left && RESULT="$FACT left" ;;
        stock:201: | read:200: | sell:200:)
            fact version && RESULT="v$FACT"
            fact left && RESULT+=", $FACT left"
            ;;
        *:*:lease_held) fact holder && RESULT="$code by token ${FACT:-?}$retry" ;;
        *:*:stale_fencing_token)
            fact sent && sent=$FACT
            fact highest
            if ((${sent:-0} < ${FACT:-0})); then
                RESULT="$code: $sent < $FACT"
            else
                fact reason && RESULT="$code: $FACT"
            fi
            ;;
        *) RESULT=$code$retry ;;
    esac
}

# A condition that must hold, besides the statuses.
must() { # WHAT-IS-EXPECTED COMMAND...
    if ! "${@:2}"; then
        fail "expected: $1"
    fi
}

# How many writes of the charge the gateway accepted, from its ledger. Sets COUNT.
count_accepted() {
    local url="$FENCE_URL/resources/$RESOURCE/history?kind=write"
    step "curl '$url'"
    COUNT=0
    while read -r _; do
        COUNT=$((COUNT + 1))
    done < <(curl -sS --max-time 30 "$url" | grep -oE '"kind" *: *"write"')
}

# --- what is printed ----------------------------------------------------------------------------

# With STEP=1: shows the command that comes next, waits for Enter.
step() { # COMMAND
    if [[ $STEP == 1 ]]; then
        printf '%s   [Enter]  %s%s' "$DIM" "$1" "$PLAIN"
        read -r || true
        if [[ ! -t 0 ]]; then
            echo
        fi
    fi
}

# The line of an event that we caused ourselves.
event_line() { # ACTOR WHAT TEXT
    next_event "$1" "$2"
    line "$1" "$3"
}

# One line: when, who, what, and how it ended.
line() { # ACTOR TEXT STATUS RESULT
    local at color=$GREEN
    PART_START_US=${PART_START_US:-$EVENT_US}
    at=$(((EVENT_US - PART_START_US) / 10000)) # hundredths of a second
    at=$((at < 0 ? 0 : at))                    # of two at once the second may be printed first
    printf -v at '%d.%02ds' $((at / 100)) $((at % 100))
    if [[ -z ${3:-} ]]; then
        printf '%s%8s%s  %s  %s\n' "$DIM" "$at" "$PLAIN" "$1" "$2"
        return
    fi
    case $3 in
        41? | 79 | 80 | failed | refused) color=$RED ;;
        409 | 5??) color=$YELLOW ;;
    esac
    printf '%s%8s%s  %s  %-32s %s%s%s%s\n' \
        "$DIM" "$at" "$PLAIN" "$1" "$2" "$color" "$3" "${4:+  $4}" "$PLAIN"
}

# A fact without a time.
note() { # TEXT
    printf '%10s%s\n' '' "$1"
}

# The last line of a part: what was counted, and, where that is as expected, what it means.
verdict() { # COLOR WHAT COUNTED EXPECTED MEANING
    if [[ $3 != "$4" ]]; then
        note "$2: $3"
        fail "expected $2: $4"
    fi
    printf '%10s%-36s%s%s%s\n' '' "$2: $3" "$BOLD$1" "$5" "$PLAIN"
}
