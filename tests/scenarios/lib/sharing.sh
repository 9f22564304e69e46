# shellcheck shell=bash
# sharing.sh - what the scenarios of waiting and sharing are written with, besides scenario.sh:
# queues, crowds, and what the ledger says about them.

# How long somebody waits who must get it in the end, however slow the machine (or, with STEP=1, the
# reader) is. Sets LONG_WAIT, in seconds.
# shellcheck disable=SC2034 # the scenarios use it
long_wait() {
    LONG_WAIT=60
    if [[ $STEP == 1 ]]; then
        LONG_WAIT=600
    fi
}

# Gives the resource a name that says what it is. At a gateway that was there before (FENCE_URL)
# it stays one that nobody else uses.
name_resource() { # NAME
    local unique=
    if [[ -z $GATEWAY_PID ]]; then
        printf -v unique ':%06x' $((SRANDOM & 0xffffff))
    fi
    export RESOURCE=$1$unique
}

# Says a word to all who wait for it (step until=WORD of a worker).
say() { # WORD
    : >"$EVENTS.$1"
}

# --- queues -------------------------------------------------------------------------------------

# Waits until so many wait in the gateway's queue.
await_waiters() { # COUNT
    local deadline=$((SECONDS + PATIENCE)) answer
    until answer=$(curl -sS --max-time 30 "$FENCE_URL/resources/$RESOURCE" 2>&1) &&
        [[ $answer =~ \"waiters\"[[:space:]]*:[[:space:]]*$1[^0-9] ]]; do
        if ((SECONDS > deadline)); then
            fail "waited $PATIENCE s for $1 waiters" "$answer"
        fi
        nap
    done
}

# A worker has asked for the lease and joins the queue, as the COUNTth of it.
joins() { # NAME COUNT TEXT
    await "$1" wait
    await_waiters "$2"
    line "$1" "$3"
}

# Q, the queue, has so many waiters: waits for that, and makes it an event.
queue_has() { # COUNT EVENT TEXT
    step "curl '$FENCE_URL/resources/$RESOURCE'"
    await_waiters "$1"
    report Q "$2" - "waiters=$1"
    event_line Q "$2" "$3"
}

# How many hold the resource. Sets COUNT.
count_holders() {
    local url="$FENCE_URL/resources/$RESOURCE"
    step "curl '$url'"
    COUNT=0
    while read -r _; do
        COUNT=$((COUNT + 1))
    done < <(curl -sS --max-time 30 "$url" | grep -oE '"expires_in_ms"')
}

# --- crowds -------------------------------------------------------------------------------------

# Waits for an event of each of them.
await_each() { # WHAT NAME...
    local name
    for name in "${@:2}"; do
        await "$name" "$1"
    done
}

# How many events of this kind there are, of whomever, with this status where one is given.
# Sets COUNT.
count_all() { # WHAT [STATUS]
    local what status
    COUNT=0
    while IFS=$'\t' read -r _ _ what status _; do
        if [[ $what == "$1" && $status == "${2:-$status}" ]]; then
            COUNT=$((COUNT + 1))
        fi
    done <"$EVENTS"
}

# How many events of this kind have exactly these facts. Sets COUNT.
count_facts() { # WHAT FACTS
    local what facts
    COUNT=0
    while IFS=$'\t' read -r _ _ what _ facts; do
        if [[ $what == "$1" && $facts == "$2" ]]; then
            COUNT=$((COUNT + 1))
        fi
    done <"$EVENTS"
}

# Waits until there are so many events of this kind.
await_count() { # WHAT COUNT
    local deadline=$((SECONDS + PATIENCE))
    until count_all "$1" && ((COUNT >= $2)); do
        if ((SECONDS > deadline)); then
            fail "waited $PATIENCE s for $2 times: $1; there are $COUNT" "$(tail -n 3 "$EVENTS")"
        fi
        nap
    done
}

# The first event of this kind by a worker of a crowd (PREFIX and a number). Sets EVENT_US,
# EVENT_STATUS, EVENT_FACTS.
find_first() { # WHAT PREFIX
    local actor what
    while IFS=$'\t' read -r EVENT_US actor what EVENT_STATUS EVENT_FACTS; do
        if [[ $what == "$1" && $actor =~ ^$2[0-9]+$ ]]; then
            return
        fi
    done <"$EVENTS"
    fail "no $1 of $2"
}

# The most that any worker has counted inside. Sets MOST.
find_most_inside() {
    local what facts
    MOST=0
    while IFS=$'\t' read -r _ _ what _ facts; do
        if [[ $what == counted && ${facts#inside=} -gt $MOST ]]; then
            MOST=${facts#inside=}
        fi
    done <"$EVENTS"
}

# --- the ledger ---------------------------------------------------------------------------------

# A field of the rows of one kind in the resource's history, oldest first. Sets COLUMN, the values
# with a blank between.
read_history() { # KIND FIELD
    local url="$FENCE_URL/resources/$RESOURCE/history?kind=$1&limit=1000" row
    local pattern="\"$2\"[[:space:]]*:[[:space:]]*(\"([^\"]*)\"|[^],}[:space:]]+)"
    step "curl '$url'"
    COLUMN=
    while IFS= read -r row; do
        if [[ $row =~ $pattern ]]; then
            COLUMN+="${COLUMN:+ }${BASH_REMATCH[2]:-${BASH_REMATCH[1]}}"
        fi
    done < <(curl -sS --max-time 30 "$url" | grep -oE '\{"seq"[^}]*\}')
}

# Microseconds as seconds: 2053123 -> 2.05.
seconds() { printf '%d.%02d' $(($1 / 1000000)) $(($1 / 10000 % 100)); }

# Do these numbers rise?
rising() { # NUMBER...
    local last=0 number
    for number; do
        if ((number <= last)); then
            return 1
        fi
        last=$number
    done
}
